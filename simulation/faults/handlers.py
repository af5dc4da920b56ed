"""Faults of handlers: they fail before or after their work, hang, or exit.

Handlers fail or hang only in an item's first attempt, and only if another attempt follows a failure: an application
sees the failures for which it has retries, and no others.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Final

from fairlead.actors.execution.job import Job
from fairlead.actors.handlers import Handler
from fairlead.simulation.faults.cleanup import leaked_in_flight
from fairlead.simulation.faults.fault import Fault
from fairlead.simulation.host import SimulatedHost

KILLERS_MAX: Final = 8
ISOLATED_US: Final = 500_000  # The duration of a killer's isolated run, so that other items come meanwhile.
RESTART_US: Final = 100_000


class InjectedFailure(Exception):
    """The error of a handler that a fault strikes."""


def may_fail(handler: Handler, job: Job) -> bool:
    """Whether another attempt follows a failure of this attempt."""
    attempts = handler.retry.attempts
    return (
        job.attempt == 1 and (attempts is None or attempts > 1) and not issubclass(InjectedFailure, handler.permanent)
    )


class HandlerFault(Fault):
    """A fault of handlers, in each attempt with a drawn probability."""

    fracs: ClassVar = (0.01, 0.1)

    def set_up(self) -> None:
        """See `Fault`."""
        self._frac = self.random.choice(self.fracs)
        self.cluster.handler_interceptors.append(self)

    def check(self) -> str | None:
        """Check that every slot is free again: no actor holds an item."""
        return leaked_in_flight(self.cluster)

    def before(self, host: SimulatedHost, handler: Handler, job: Job) -> None:
        """A handler is about to run on `host`. May raise, and may wait."""

    def after(self, host: SimulatedHost, handler: Handler, job: Job) -> None:
        """A handler has returned. May raise, and may wait."""


class FailingHandlers(HandlerFault):
    """Handlers raise before their work, or after it, before their completion."""

    fracs: ClassVar = (0.05, 0.3)

    def before(self, host: SimulatedHost, handler: Handler, job: Job) -> None:
        """See `HandlerFault`."""
        self._fail(handler, job, "before its work")

    def after(self, host: SimulatedHost, handler: Handler, job: Job) -> None:
        """See `HandlerFault`."""
        self._fail(handler, job, "after its work")

    def _fail(self, handler: Handler, job: Job, when: str) -> None:
        if may_fail(handler, job) and self.strikes(self._frac):
            raise InjectedFailure(when)


class ExitingHandlers(HandlerFault):
    """Handlers raise SystemExit or KeyboardInterrupt, which are not subclasses of Exception, but failed attempts."""

    def before(self, host: SimulatedHost, handler: Handler, job: Job) -> None:
        """See `HandlerFault`."""
        self._exit(handler, job)

    def after(self, host: SimulatedHost, handler: Handler, job: Job) -> None:
        """See `HandlerFault`."""
        self._exit(handler, job)

    def _exit(self, handler: Handler, job: Job) -> None:
        if may_fail(handler, job) and self.strikes(self._frac):
            raise self.random.choice([SystemExit, KeyboardInterrupt])("drawn")


class HangingHandlers(HandlerFault):
    """Handlers hang for a while: longer than their lease, their timeout, or a transaction may take."""

    def before(self, host: SimulatedHost, handler: Handler, job: Job) -> None:
        """See `HandlerFault`."""
        self._hang(host, handler, job)

    def after(self, host: SimulatedHost, handler: Handler, job: Job) -> None:
        """See `HandlerFault`."""
        self._hang(host, handler, job)

    def _hang(self, host: SimulatedHost, handler: Handler, job: Job) -> None:
        if may_fail(handler, job) and self.strikes(self._frac):
            host.clock.sleep_us(self.random.choice([100_000, 1_500_000, 6_000_000]))


class KillingHandlers(HandlerFault):
    """A few items end the process that runs them, each time, unless it is an isolated worker.

    The leases of items beside them expire, too, so that several items become poison candidates at once.
    """

    def set_up(self) -> None:
        """See `Fault`."""
        self._killers: set[bytes] = set()
        super().set_up()

    def before(self, host: SimulatedHost, handler: Handler, job: Job) -> None:
        """See `HandlerFault`."""
        if not self.is_active or not self._kills(job):
            return
        actor = self.cluster.actors[host.name.partition("#")[0]]
        if self.cluster.is_isolated(host.name):
            host.clock.sleep_us(ISOLATED_US)
        else:
            self.cluster.world.after(0, partial(actor.restart, "an item ends its process", RESTART_US))
            host.clock.sleep_us(RESTART_US)

    def _kills(self, job: Job) -> bool:
        if len(self._killers) < KILLERS_MAX and self.strikes(self._frac):
            self._killers.add(job.id)
        return job.id in self._killers
