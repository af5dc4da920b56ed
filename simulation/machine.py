"""The machine of a user's code: a clock, sleep, random numbers, stores, an event loop.

The product's classes get these as arguments, one set per simulated process. A user's application is one object in one
module for all processes. So the application gets this one object, which always acts as the machine of the current task.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from fairlead.simulation.cluster import Cluster
from fairlead.simulation.database import LatentTransaction, SimulatedDatabase
from fairlead.simulation.event_loop import EventLoop
from fairlead.simulation.host import SimulatedHost
from fairlead.zones.engines.api.database import Future
from fairlead.zones.shard import Shard

APPLICATION = "application"  # The sender of commits that an application makes outside of handlers.


class Machine:
    """The machine of the current task. Between turns it has no stores, and its clock is right.

    Time does not pass within a turn. A loop that reads the clock without waiting is reported as a violation.

    Attributes:
      seed: the seed of all other random generators.
      random: the generator of `os.urandom` and the like.
      shard_names: the names of all stores.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self.seed = f"{self._world.seed}: {APPLICATION}"
        self.random: Random = self._world.random(APPLICATION)
        self.shard_names = list(cluster.stores)
        self._databases = {
            name: _ApplicationDatabase(store, has_commit_sequence=cluster.plan.has_commit_sequence)
            for name, store in cluster.stores.items()
        }
        self._open: dict[str, Mapping[str, Shard]] = {}

    @property
    def turns(self) -> int:
        """The number of turns so far."""
        return self._world.turns

    def now_us(self) -> int:
        """Return the time of the machine's clock, microseconds since the epoch."""
        host = self._host()
        if host is None:
            return self._world.now_us()
        self._world.count_step()
        return host.clock.now_us()

    def elapsed_us(self) -> int:
        """Return a time that never steps back, in microseconds."""
        if self._host() is not None:
            self._world.count_step()
        return self._world.elapsed_us

    def sleep_us(self, duration_us: int) -> None:
        """Let other tasks have their turns until the time has passed."""
        self._world.sleep_us(duration_us)

    def shards(self) -> Mapping[str, Shard] | None:
        """Return the shards as this process has opened them; None between turns. May wait."""
        host = self._host()
        if host is None:
            return None
        if host.name not in self._open:
            self._open[host.name] = self._cluster.open_shards(host, self._databases)
        return self._open[host.name]

    def event_loop(self) -> EventLoop:
        """Return a new event loop. Only in a turn."""
        host = self._host()
        assert host is not None
        return EventLoop(host)

    def note(self, event: str) -> None:
        """Write a line into the event log."""
        self._world.note(event)

    def _host(self) -> SimulatedHost | None:
        current = self._world.current
        if current is None:
            return None
        assert isinstance(current.host, SimulatedHost)
        return current.host


class _ApplicationTransaction(LatentTransaction):
    """A transaction of the application. It may cancel any item; a consumer may not."""

    __slots__ = ()

    def commit(self) -> Future:
        """See `Transaction`."""
        store = self._latent_store
        store.sender = APPLICATION
        try:
            return super().commit()
        finally:
            store.sender = None


class _ApplicationDatabase(SimulatedDatabase):
    def create_transaction(self) -> LatentTransaction:
        """See `SimulatedDatabase`."""
        return _ApplicationTransaction(self, self.store.world, self._random)
