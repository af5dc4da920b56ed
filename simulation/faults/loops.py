"""Faults of loops: a loop of an actor dies of an unexpected error, or stalls.

The actor's supervisor must notice within seconds, and the actor must restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.simulation.faults.actors import ActorFault
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.world import InjectedError

if TYPE_CHECKING:
    from fairlead.simulation.actor import Actor


class DyingLoops(ActorFault):
    """A loop of an actor dies of an error when it takes a lock."""

    def set_up(self) -> None:
        """See `Fault`."""
        self.at_random_times(self.random.choice([1e6, 3e6]), self.strike_actor)

    def strike(self, actor: Actor, host: SimulatedHost) -> None:
        """See `ActorFault`."""
        host.inject_at_lock(lambda: self._die(host))

    def _die(self, host: SimulatedHost) -> None:
        self.cluster.world.note(f"a loop of {host.name} dies")
        raise InjectedError("a loop dies")


class StalledLoops(ActorFault):
    """A loop of an actor stalls for ever before it takes a lock."""

    def set_up(self) -> None:
        """See `Fault`."""
        self.at_random_times(self.random.choice([1e6, 3e6]), self.strike_actor)

    def strike(self, actor: Actor, host: SimulatedHost) -> None:
        """See `ActorFault`."""
        host.inject_at_lock(lambda: self._stall(host))

    def _stall(self, host: SimulatedHost) -> None:
        self.cluster.world.note(f"a loop of {host.name} stalls")
        self.cluster.world.block_forever()
