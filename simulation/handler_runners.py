"""Handlers in the world: whatever their form, the oracles see when they start and end, and faults may strike them."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.job import Job
from fairlead.actors.execution.runner import TRANSACTION_US
from fairlead.actors.handlers import Form, Handler, Registry, plain_function
from fairlead.simulation.event_loop import EventLoop
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.oracles.oracle import HandlerRun
from fairlead.simulation.replica import ItemName

if TYPE_CHECKING:
    from fairlead.simulation.cluster import Cluster


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
        """Run the function of which a Ray remote one was made, with what Ray would carry to its task.

        It runs in the worker, and dies with it; past its timeout it is not killed but given up.
        """
        carried: Job = pickle.loads(pickle.dumps(held.job))
        carried.report_progress_to(held.job.record_progress)
        return function(carried)

    def close(self) -> None:
        """Do nothing: the event loop ends with its actor's life."""


def instrumented(registry: Registry, host: SimulatedHost, cluster: Cluster) -> Registry:
    """Return the same handlers, whose starts and ends the oracles see, and which faults may strike."""
    seen = Registry()
    for handler in registry:
        seen.add(replace(handler, function=_instrumented(handler, host, cluster)))
    return seen


def _instrumented(handler: Handler, host: SimulatedHost, cluster: Cluster) -> Callable[..., Any]:
    called = plain_function(handler.function) if handler.form is Form.REMOTE else handler.function

    @wraps(called)  # Errors name the handler.
    async def coroutine(job: Job) -> Any:
        with _watching(handler, job, host, cluster) as run:
            result = await called(job)
            run.returned = True
        return result

    @wraps(called)
    def function(job: Job, *rest: Any) -> Any:
        with _watching(handler, job, host, cluster) as run:
            result = called(job, *rest)
            too_long = handler.form is Form.TRANSACTIONAL and host.clock.now_us() - run.clock_us > TRANSACTION_US
            # Else the worker does not take it for done.
            run.returned = not (too_long or inspect.isawaitable(result) or inspect.isgenerator(result))
        return result

    return coroutine if handler.form is Form.ASYNC else function


@contextmanager
def _watching(handler: Handler, job: Job, host: SimulatedHost, cluster: Cluster) -> Iterator[HandlerRun]:
    item = ItemName(job.shard_name, job.tenant, job.zone, job.id)
    run = HandlerRun(item, job, host.name, host.clock.now_us(), may_drop=handler.drop)
    cluster.suite.on_start(run)
    try:
        for fault in cluster.handler_faults:
            fault.before(host, handler, job)
        yield run
        returned, run.returned = run.returned, False
        for fault in cluster.handler_faults:
            fault.after(host, handler, job)
        run.returned = returned
    except BaseException as error:
        run.error = type(error).__name__
        raise
    finally:
        if not host.dead:  # Else what it had sent off may still happen, so it is not over.
            cluster.suite.on_end(run)
