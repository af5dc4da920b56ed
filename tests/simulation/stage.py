"""A small stage for stories: one simulated shard, one host, and the tasks that a test runs there."""

from collections.abc import Callable
from typing import TypeVar

from fairlead.simulation.database import SimulatedDatabase
from fairlead.simulation.host import NodeClock, SimulatedHost
from fairlead.simulation.oracles.oracle import OracleSuite
from fairlead.simulation.replica import ShardReplica
from fairlead.simulation.store import Latencies, SimulatedStore
from fairlead.simulation.world import World
from fairlead.zones.layout import Tenant
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.shard import Shard, open_shard

T = TypeVar("T")

ALICE = Tenant("shop", "alice")
SECOND = 1_000_000


class Stage:
    """A world with one shard, `s0`, and a host, `a`. `replica` shows the contents of the shard, commit by commit."""

    def __init__(
        self,
        seed: int = 1,
        settings: ZoneSettings | None = None,
        store_class: type[SimulatedStore] = SimulatedStore,
        *,
        part_count: int = 1,
    ) -> None:
        self.world = World(seed)
        self.suite = OracleSuite(self.world, ["s0"])
        self.store = store_class(self.world, "s0", Latencies())
        self.store.on_commit.append(self.suite.on_commit)
        self.database = SimulatedDatabase(self.store, has_commit_sequence=False)
        self.host = self.add_host("a#1")
        self._settings = settings or ZoneSettings()
        self._part_count = part_count
        self.shard: Shard = self.play(lambda: self.open(self.host))

    @property
    def replica(self) -> ShardReplica:
        return self.suite.shards["s0"]

    def add_host(self, name: str, *, skew_us: int = 0) -> SimulatedHost:
        clock = NodeClock(self.world, skew_us)
        return SimulatedHost(self.world, name, clock, self.world.random(name), on_recycle=print, on_failure=print)

    def open(self, host: SimulatedHost) -> Shard:
        """Open the shard as a process on `host` does."""
        return open_shard(
            "s0",
            self.database,
            clock=host.clock,
            random=host.random,
            settings=self._settings,
            part_count=self._part_count,
        )

    def play(self, scene: Callable[[], T], *, host: SimulatedHost | None = None, within_us: int = 10 * SECOND) -> T:
        """Run a scene in a task to its end, beside other tasks, and return its result."""
        results: list[T] = []
        (host or self.host).spawn("scene", lambda: results.append(scene()))
        until_us = self.world.now_us() + within_us
        while not results and self.world.now_us() < until_us:
            self.world.run_until(self.world.now_us() + 1_000)
        assert results, "the scene did not end in time"
        return results[0]

    def pass_us(self, duration_us: int) -> None:
        """Let the world go on."""
        self.world.run_until(self.world.now_us() + duration_us)

    @property
    def now_us(self) -> int:
        return self.world.now_us()
