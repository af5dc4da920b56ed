"""Faults of loops: a loop of an actor dies of an unexpected error, or stalls.

The actor's supervisor must notice within seconds, and the actor must restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.actors.runtime.supervisor import STALL_US
from fairlead.simulation.faults.actors import ActorFault
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.world import InjectedError

if TYPE_CHECKING:
    from fairlead.simulation.actor import Actor


NOTICED_US = 5_000_000  # The time for an actor to end after a loop of it has died.
STALL_NOTICED_US = STALL_US + 2_000_000  # The loop has reported progress, and the supervisor looks, once a second.


class DyingLoops(ActorFault):
    """A loop of an actor dies of an error when it takes a lock. The actor must end at once."""

    def set_up(self) -> None:
        """See `Fault`."""
        self._unnoticed: list[str] = []
        self.at_random_times(self.random.choice([1e6, 3e6]), self.strike_actor)

    def strike(self, actor: Actor, host: SimulatedHost) -> None:
        """See `ActorFault`."""
        host.inject_at_lock(lambda: self._die(host))

    def check(self) -> str | None:
        """See `ActorFault`. Check also that each actor whose loop died has ended in time."""
        return f"{self._unnoticed[0]} went on without its loop" if self._unnoticed else super().check()

    def _die(self, host: SimulatedHost) -> None:
        self.cluster.world.note(f"a loop of {host.name} dies")
        self.cluster.world.after(NOTICED_US, lambda: None if host.dead else self._unnoticed.append(host.name))
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
        self.noticed_by_us = self.cluster.world.now_us() + STALL_NOTICED_US
        self.cluster.world.block_forever()
