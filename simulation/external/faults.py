"""Faults of an external store: of its connections and statements, its notifications, its server, and its clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Final

from fairlead.simulation.external import statements
from fairlead.simulation.external.items import SessionRow, Transaction
from fairlead.simulation.external.server import Fate, StoreCommit, StoreServer
from fairlead.simulation.host import SimulatedHost
from fairlead.zones.external.store import Queue
from fairlead.zones.layout import ID_BYTES
from fairlead.zones.queue.items import new_item

HostOf = Callable[[str], SimulatedHost | None]

CLOCK_STEP_US_MAX: Final = 2_000_000  # How much the clock of the server may be off.
PAUSES_US: Final = (1_000, 20_000, 300_000)
WORKER_PAUSES_US: Final = (1_300_000, 2_500_000)  # Two or three looks of a consumer find the same heartbeat.
ARRIVALS_MAX: Final = 15  # In a run.
LOST_US_MAX: Final = (0, 20_000, 500_000)  # The commits of how long a promotion loses.


class StoreFault:
    """A disturbance of the store, from `begin` until `stop`. It draws its severity.

    Args:
      host_of: returns the host of a name, if it is that of an actor of a consumer, and lives.
    """

    def __init__(self, server: StoreServer, random: Random, host_of: HostOf) -> None:
        self.server = server
        self.host_of = host_of
        self.random = random
        self.is_active = False

    def begin(self) -> None:
        """Begin to strike."""
        self.is_active = True
        self.set_up()

    def stop(self) -> None:
        """Stop striking."""
        self.is_active = False

    def set_up(self) -> None:
        """Draw the severity, and register."""
        raise NotImplementedError

    def strikes(self, frac: float) -> bool:
        """Draw whether the fault strikes; never after `stop`."""
        return self.is_active and self.random.random() < frac

    def stand_still(self, name: str, pauses_us: Sequence[int] = PAUSES_US) -> None:
        """Let the host of a name stand still for a while, if it is that of a consumer."""
        host = self.host_of(name)
        if host is not None:
            pause_us = self.random.choice(pauses_us)
            self.server.world.note(f"{name} stands still for {pause_us} us")
            host.paused_until_us = max(host.paused_until_us, self.server.world.now_us() + pause_us)

    def at_random_times(self, mean_us: float, happen: Callable[[], object]) -> None:
        """Call `happen` at random times, until `stop`."""

        def once() -> None:
            if self.is_active:
                happen()
                self.at_random_times(mean_us, happen)

        self.server.world.after(1 + int(self.random.expovariate(1 / mean_us)), once, order=self.random.random())


class CutConnections(StoreFault):
    """Connections break before a commit, after it, or while it is on its way."""

    def set_up(self) -> None:
        """See `StoreFault`."""
        frac = self.random.choice([0.01, 0.1, 0.3])
        fates = [Fate.CUT_BEFORE, Fate.CUT_AFTER, Fate.CUT_LATE]
        self.server.draw_fate.append(lambda: self.random.choice(fates) if self.strikes(frac) else Fate.CARRIED_OUT)


class CancelledStatements(StoreFault):
    """Statements take too long: they hold their locks until they are cancelled."""

    def set_up(self) -> None:
        """See `StoreFault`."""
        frac = self.random.choice([0.005, 0.05])
        self.server.draw_fate.append(lambda: Fate.CANCELLED if self.strikes(frac) else Fate.CARRIED_OUT)


class LostNotifications(StoreFault):
    """Some notifications are lost, or all."""

    def set_up(self) -> None:
        """See `StoreFault`."""
        frac = self.random.choice([0.3, 1.0])
        self.server.loses_ring.append(lambda: self.strikes(frac))


class StandingReaders(StoreFault):
    """A process stands still after it has read in the store, and goes on with what was true then."""

    def set_up(self) -> None:
        """See `StoreFault`."""
        self._frac = self.random.choice([0.02, 0.2])
        self.server.on_read.append(self._strike)

    def _strike(self, by: str, transaction: Transaction) -> None:
        if self.strikes(self._frac):
            self.stand_still(by)


class StandingWorkers(StoreFault):
    """A worker stands still after a heartbeat, for so long that consumers find the same heartbeat again."""

    def set_up(self) -> None:
        """See `StoreFault`."""
        self._frac = self.random.choice([0.1, 0.5])
        self.server.on_commit.append(self._strike)

    def _strike(self, commit: StoreCommit) -> None:
        if any(isinstance(each.after, SessionRow) for each in commit.changes) and self.strikes(self._frac):
            self.stand_still(commit.by, WORKER_PAUSES_US)


class ArrivalsBesideVisits(StoreFault):
    """An item is committed just after a visit has found its queue empty, and before the visit commits in the shard."""

    def set_up(self) -> None:
        """See `StoreFault`."""
        self._frac = self.random.choice([0.2, 0.8])
        self._left = ARRIVALS_MAX
        self.server.on_read.append(self._strike)

    def _strike(self, by: str, transaction: Transaction) -> None:
        for queue in transaction.found_empty:
            if self._left and self.strikes(self._frac):
                self._left -= 1
                self.stand_still(by)
                self.server.world.after(self.server.wait_us(), partial(self._enqueue, queue))

    def _enqueue(self, queue: Queue) -> None:
        if not self.server.is_down:
            transaction = self.server.table.begin()
            statements.enqueue(transaction, queue, self.random.randbytes(ID_BYTES), new_item("plain", ""))
            self.server.commit("user", transaction)


class ServerRestarts(StoreFault):
    """The server stops at once, and starts again."""

    def set_up(self) -> None:
        """See `StoreFault`."""
        self.at_random_times(self.random.choice([1e6, 4e6]), self.server.restart)


class Promotions(StoreFault):
    """A replica takes over, without the last commits."""

    def set_up(self) -> None:
        """See `StoreFault`."""
        most_us = self.random.choice(LOST_US_MAX)
        self.at_random_times(
            self.random.choice([1e6, 4e6]), lambda: self.server.promote(self.random.randint(0, most_us))
        )


class ServerClockSteps(StoreFault):
    """The clock of the server steps, forward or back."""

    def set_up(self) -> None:
        """See `StoreFault`."""
        most_us = self.random.choice([20_000, CLOCK_STEP_US_MAX])
        self.at_random_times(
            self.random.choice([0.5e6, 2e6]), lambda: self._step(self.random.randint(-most_us, most_us))
        )

    def _step(self, skew_us: int) -> None:
        self.server.clock.jump(skew_us)
        self.server.world.note(f"the clock of pg is off by {skew_us} us from now on")


STORE_FAULTS: Final = (
    CutConnections,
    CancelledStatements,
    LostNotifications,
    StandingReaders,
    ArrivalsBesideVisits,
    ServerRestarts,
    Promotions,
    ServerClockSteps,
    StandingWorkers,
)


def draw_faults(server: StoreServer, random: Random, host_of: HostOf) -> list[StoreFault]:
    """Draw the faults of a run: none, few, or most."""
    frac = random.choice([0, 0.2, 0.5, 0.8])
    return [
        fault(server, server.world.random(f"fault {fault.__name__}"), host_of)
        for fault in STORE_FAULTS
        if random.random() < frac
    ]
