"""What befalls handlers, whatever they do themselves: they fail, before or after their work, and they hang.

Only an item's first attempt is struck, and only where another one follows a failure: the application sees the trouble
that its retries are there for, and no more.
"""

from __future__ import annotations

from typing import ClassVar

from actors.handlers import Handler
from actors.job import Job
from simulation.faults.aftermath import held_for_nothing
from simulation.faults.fault import Fault
from simulation.host import SimulatedHost


class DrawnFailure(Exception):
    """What a struck handler raises."""


def may_fail(handler: Handler, job: Job) -> bool:
    """Say whether a failure of this attempt is followed by another attempt."""
    attempts = handler.retry.attempts
    return job.attempt == 1 and (attempts is None or attempts > 1) and not issubclass(DrawnFailure, handler.permanent)


class HandlerFault(Fault):
    """Something that befalls handlers, each attempt with a drawn chance."""

    fracs: ClassVar = (0.01, 0.1)

    def set_up(self) -> None:
        """See `Fault`."""
        self._frac = self.random.choice(self.fracs)
        self.cluster.handler_faults.append(self)

    def check(self) -> str | None:
        """Every slot is free again: nobody holds an item."""
        return held_for_nothing(self.cluster)

    def before(self, host: SimulatedHost, handler: Handler, job: Job) -> None:
        """A handler is about to run on `host`. May raise, and may wait."""

    def after(self, host: SimulatedHost, handler: Handler, job: Job) -> None:
        """A handler has returned. May raise, and may wait."""


class FailingHandlers(HandlerFault):
    """Handlers raise: instead of their work, or after it, when all that it did has happened but its completion."""

    costs_leases = False
    fracs: ClassVar = (0.05, 0.3)

    def before(self, host: SimulatedHost, handler: Handler, job: Job) -> None:
        """See `HandlerFault`."""
        self._fail(handler, job, "before its work")

    def after(self, host: SimulatedHost, handler: Handler, job: Job) -> None:
        """See `HandlerFault`."""
        self._fail(handler, job, "after its work")

    def _fail(self, handler: Handler, job: Job, when: str) -> None:
        if may_fail(handler, job) and self.strikes(self._frac):
            raise DrawnFailure(when)


class HangingHandlers(HandlerFault):
    """Handlers stand still for a while: longer than their lease, their timeout, or a transaction may take."""

    def before(self, host: SimulatedHost, handler: Handler, job: Job) -> None:
        """See `HandlerFault`."""
        self._hang(host, handler, job)

    def after(self, host: SimulatedHost, handler: Handler, job: Job) -> None:
        """See `HandlerFault`."""
        self._hang(host, handler, job)

    def _hang(self, host: SimulatedHost, handler: Handler, job: Job) -> None:
        if may_fail(handler, job) and self.strikes(self._frac):
            host.clock.sleep_us(self.random.choice([100_000, 1_500_000, 6_000_000]))
