"""The snapshots of a world: its archives, its archivists, and the end, when all snapshots are dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from fairlead.simulation.actor import Actor
from fairlead.simulation.cluster import Cluster
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.oracles.snapshots import NothingIsKeptOfWhatIsDropped, SnapshotsKeepTheirState
from fairlead.simulation.snapshots.archivist import OPERATIONS, Archivist, ArchivistHabits
from fairlead.simulation.trial import STEP_US
from fairlead.simulation.world import Violation
from fairlead.zones.layout import Tenant

ARCHIVES_MAX = 2
ROWS = (3, 12, 120)  # A restore of more than a hundred keys takes several transactions.
SNAPSHOTS_MAX_DRAWN = (2, 4, 12)
ARCHIVISTS = 3
OPERATIONS_EACH = 30
ENDED = "all snapshots can be dropped in the end"
END_US_MAX = 60_000_000


class SnapshotWorkload:
    """The archives and archivists of one world.

    Args:
      others: tenants of others, of which archivists take snapshots, too. They restore none of these.
      enqueues: whether they enqueue items in the archives. Nobody runs these.
      operations: how many operations each archivist runs.
    """

    def __init__(
        self, cluster: Cluster, *, others: Sequence[Tenant], enqueues: bool = False, operations: int = OPERATIONS_EACH
    ) -> None:
        plan, draw = cluster.plan, cluster.world.random("snapshots")
        self.others = others
        self.archives = [Tenant("archive", f"a{number}") for number in range(draw.randint(1, ARCHIVES_MAX))]
        self.habits = ArchivistHabits(
            rows=draw.choice(ROWS),
            kept_max=draw.choice(SNAPSHOTS_MAX_DRAWN),
            pauses_frac=draw.choice([0, 0.1, 0.3]),
            pauses_between_frac=draw.choice([0, 0.3, 0.9]),
            enqueues=enqueues,
            weights={name: draw.choice([1, 2, 10]) for name in OPERATIONS},
        )
        self.history = SnapshotsKeepTheirState(cluster.world, ahead_us_max=plan.ahead_us_max)
        self.oracles: list[Oracle] = [self.history, NothingIsKeptOfWhatIsDropped(cluster.world)]
        self.actors: dict[str, Actor] = {}
        self._cluster = cluster
        self._think_us = plan.trouble_us // operations
        self._done: set[str] = set()
        self._left = dict.fromkeys((f"archivist{number}" for number in range(ARCHIVISTS)), operations)
        self._random = {name: cluster.world.random(name) for name in self._left}

    def start(self) -> None:
        """Start the archivists, each on a machine of its own."""
        for name in self._left:
            actor = Actor(self._cluster.world, self._cluster.add_node(name), name, self._live)
            self.actors[name] = actor
            actor.start()

    @property
    def is_done(self) -> bool:
        """Whether the archivists have ended their last calls."""
        return self._done == self._left.keys()

    @property
    def is_settled(self) -> bool:
        """Whether all that they have dropped is merged, and all that they have begun to restore is restored."""
        return self.history.is_settled

    def end(self) -> list[Mapping[bytes, bytes]]:
        """Drop all snapshots, by the operator; return the pairs of each of the others' tenants. Passes time.

        Raises:
          Violation: it does not come to an end.
        """
        world, operator = self._cluster.world, self._cluster.operator
        states: list[Mapping[bytes, bytes]] = []
        task = operator.do(
            "end snapshots", lambda: states.extend(self._archivist(operator.host, world.random("end")).end())
        )
        end_us = world.now_us() + END_US_MAX
        while task.is_alive():
            if world.now_us() > end_us:
                raise Violation(ENDED, f"not after {END_US_MAX / 1e6:g} s")
            world.run_until(world.now_us() + STEP_US)
        return states

    def _live(self, host: SimulatedHost) -> None:
        """Run operation after operation. After a kill the next incarnation goes on."""
        name = host.name.partition("#")[0]
        draw = self._random[name]
        archivist = self._archivist(host, draw)
        while self._left[name]:
            host.clock.sleep_us(int(draw.expovariate(1 / self._think_us)))
            self._left[name] -= 1
            archivist.call_one()
        self._done.add(name)

    def _archivist(self, host: SimulatedHost, random: Random) -> Archivist:
        shards = self._cluster.open_shards(host)
        return Archivist(host, shards, self.archives, self.others, random, self.habits, self.history)
