"""Handlers in the world, of every form: the oracles see their starts and ends, and faults may disturb them."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import wraps
from typing import Any, Protocol

from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.job import Job
from fairlead.actors.execution.runner import TRANSACTION_US, AttemptAccess
from fairlead.actors.handlers import Form, Handler, Registry, plain_function
from fairlead.simulation.event_loop import EventLoop
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.oracles.oracle import HandlerRun, OracleSuite
from fairlead.simulation.replica import ItemName
from fairlead.zones.external.names import pointer_zone
from fairlead.zones.shard import Shard


class HandlerInterceptor(Protocol):
    """Code that runs before and after each handler; see `fairlead.simulation.faults.handlers.HandlerFault`."""

    def before(self, host: SimulatedHost, handler: Handler, job: Job) -> None:
        """A handler is about to run on `host`. May raise, and may wait."""
        ...

    def after(self, host: SimulatedHost, handler: Handler, job: Job) -> None:
        """A handler has returned. May raise, and may wait."""
        ...


class SimulatedRunners:
    """See `fairlead.actors.execution.runner.Runners`."""

    def __init__(self, host: SimulatedHost) -> None:
        self._host = host
        self._loop: EventLoop | None = None

    def run_coroutine(self, function: Callable[[Job], Any], held: HeldItem) -> Any:
        """See `Runners`. One event loop serves all coroutines of a worker, as in production."""
        if self._loop is None:
            self._loop = EventLoop(self._host)
            self._host.spawn("event loop", self._loop.live)
        return self._loop.run_to_end(function(held.job), on_cancel=held.job.on_cancel)

    def run_remote(self, function: Callable[[Job], Any], held: HeldItem) -> Any:
        """Run the plain function of a Ray remote function, with the arguments that Ray would send to its task.

        The function runs in the worker, and dies with the worker. After its timeout it runs on, without its result.
        """
        carried: Job = pickle.loads(pickle.dumps(held.job))
        carried.report_progress_to(held.job.record_progress)
        return function(carried)

    def close(self) -> None:
        """Do nothing: the event loop ends with its actor's incarnation."""


class InstrumentedHandlers:
    """A maker of handlers whose starts and ends the oracles see, and which `interceptors` may disturb."""

    def __init__(self, host: SimulatedHost, suite: OracleSuite, interceptors: Sequence[HandlerInterceptor]) -> None:
        self._host = host
        self._suite = suite
        self._interceptors = interceptors

    def of(self, registry: Registry) -> Registry:
        """Return the same handlers, instrumented."""
        instrumented = Registry()
        for handler in registry:
            instrumented.add(replace(handler, function=self._instrumented(handler)))
        return instrumented

    def _instrumented(self, handler: Handler) -> Any:
        if handler.form is Form.WORKFLOW:
            return _InstrumentedAttempts(handler, self._observed)
        called = plain_function(handler.function) if handler.form is Form.REMOTE else handler.function

        @wraps(called)  # Errors name the handler.
        async def coroutine(job: Job) -> Any:
            with self._observed(handler, job) as run:
                result = await called(job)
                run.returned = True
            return result

        @wraps(called)
        def function(job: Job, *rest: Any) -> Any:
            with self._observed(handler, job, rest[0] if handler.form is Form.IN_STORE else None) as run:
                result = called(job, *rest)
                run_us = self._host.clock.now_us() - run.clock_us
                too_long = handler.form is Form.TRANSACTIONAL and run_us > TRANSACTION_US
                # The worker counts these as failed attempts.
                run.returned = not (too_long or inspect.isawaitable(result) or inspect.isgenerator(result))
            return result

        return coroutine if handler.form is Form.ASYNC else function

    @contextmanager
    def _observed(self, handler: Handler, job: Job, connection: Any = None) -> Iterator[HandlerRun]:
        host = self._host
        zone = job.zone if job.store is None else pointer_zone(job.store, job.zone)
        item = ItemName(job.shard_name, job.tenant, zone, job.id)
        run = HandlerRun(
            item,
            job,
            host.name,
            host.clock.now_us(),
            may_drop=handler.drop,
            commits_ends=handler.form is Form.WORKFLOW,
            connection=connection,
        )
        self._suite.on_start(run)
        try:
            for interceptor in self._interceptors:
                interceptor.before(host, handler, job)
            yield run
            returned, run.returned = run.returned, False
            for interceptor in self._interceptors:
                interceptor.after(host, handler, job)
            run.returned = returned
        except BaseException as error:
            run.error = type(error).__name__
            raise
        finally:
            if not host.dead:  # The commits of a dead handler may still be on their way, so its run is not over.
                self._suite.on_end(run)


Observed = Callable[[Handler, Job], AbstractContextManager[HandlerRun]]


class _InstrumentedAttempts:
    """The function of a workflow's handler, instrumented; see `fairlead.actors.execution.runner.RunsAttempts`."""

    def __init__(self, handler: Handler, observed: Observed) -> None:
        self._handler = handler
        self._observed = observed
        self.__module__ = handler.function.__module__
        self.__qualname__ = handler.function.__qualname__  # Errors name the function.

    def run_attempt(self, held: HeldItem, shard: Shard, access: AttemptAccess) -> None:
        """See `RunsAttempts`."""
        with self._observed(self._handler, held.job) as run:
            self._handler.function.run_attempt(held, shard, access)
            run.returned = True
