"""One attempt at an item of a workflow: what is done around its function, and what becomes of the item.

Written once for both kinds of workflows, as a generator of `requests`, like the calls of `wf`.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from fairlead.actors.execution.failed_attempt import is_permanent, render_error
from fairlead.actors.handlers import UnfitCode
from fairlead.workflows.callers_frames import with_callers_frames
from fairlead.workflows.entering import enter
from fairlead.workflows.execution import Execution
from fairlead.workflows.interrupts import Cause, Failed, WorkflowInterrupt
from fairlead.workflows.replay import StepsDiffer
from fairlead.workflows.requests import Home, RunFunction, Steps, Store
from fairlead.workflows.undo import undo_all
from fairlead.zones.errors import LeaseLost
from fairlead.zones.probes import probe
from fairlead.zones.queue.results import ResultNotKept
from fairlead.zones.workflow.undone_end import CANCELLED

log = logging.getLogger("fairlead.workflows")


def attempt(execution: Execution) -> Steps[None]:
    """Run the function, and do what follows from how it ends. What this commits, it notes in `execution.held.job`.

    Raises:
      LeaseLost: another attempt holds the item.
      Exception: the attempt has failed with it.
    """
    try:
        yield from _attempt(execution)
    except WorkflowInterrupt as interrupt:
        _end(execution, interrupt)


def _attempt(execution: Execution) -> Steps[None]:
    yield Store(partial(enter, execution))
    execution.count_replay()
    while True:
        error: Exception | None = yield RunFunction()
        interrupt = execution.interrupt
        if interrupt is None or interrupt.cause is not Cause.REPLAY:
            break
        execution.begin_replay()
    if interrupt is not None and interrupt.cause is Cause.FINISHED:
        _after_finish(execution, error)
    elif interrupt is not None:
        yield from _after_interrupt(execution, interrupt)
    elif isinstance(error, UnfitCode | ResultNotKept):  # Other code may continue where this one stood.
        raise error
    elif execution.log.is_undone:
        yield from _undo(execution)
    elif execution.held.record.cancelling and not (error is not None and execution.replay.is_behind):
        yield from _begin_undo(execution, (CANCELLED, "", ""))
    elif error is not None:
        yield from _after_error(execution, error)
    else:
        _after_return(execution)


def _after_interrupt(execution: Execution, interrupt: WorkflowInterrupt) -> Steps[None]:
    cause = interrupt.cause
    if cause is Cause.END_OF_LOG and execution.log.is_undone:
        yield from _undo(execution)
    elif cause is Cause.CANCELLED or (cause is Cause.END_OF_LOG and _is_to_be_cancelled(execution)):
        yield from _begin_undo(execution, (CANCELLED, "", ""))
    else:
        _end(execution, interrupt)


def _is_to_be_cancelled(execution: Execution) -> bool:
    """Whether the lease, or the worker's status since, has shown the request to cancel the run."""
    return execution.held.record.cancelling or execution.held.job.cancel_requested


def _after_finish(execution: Execution, error: Exception | None) -> None:
    """Report what the function did after it had completed its item. No commit can follow: the item is gone."""
    if execution.late_call:
        late = execution.after_finish()
        log.error("%s", late)
        raise late
    if error is not None:
        raise error


def _after_return(execution: Execution) -> None:
    """Report recorded steps that the function has not reached. The item is completed all the same, but a test fails.

    Raises:
      StepsDiffer: in a test that replays.
    """
    try:
        execution.replay.check_end()
    except StepsDiffer as error:
        if execution.replays:
            raise
        ref = execution.held.ref
        log.warning("a workflow is completed, kind=%s item=%s: %s", ref.kind, ref.item_id.hex(), error)


def _after_error(execution: Execution, error: Exception) -> Steps[None]:
    """Undo a run that has failed for good; raise the error."""
    if is_permanent(execution.held.handler, error) and not execution.log.is_empty:
        rendered = render_error(error, execution.log.shard.clock)
        yield from _begin_undo(execution, (rendered.text, rendered.text, rendered.lines))
    raise error


def _begin_undo(execution: Execution, why: tuple[str, str, str]) -> Steps[None]:
    """Record that the run is undone, and why: the reason, the error, and its traceback. Then undo it."""
    execution.replay.check_end()
    yield Home(partial(execution.log.begin_undo, *why))
    if execution.was_cut_off:
        probe("a run is undone in its next attempt, which reads what its cancelled branches have done")
        execution.held.job.committed_end = yield Home(partial(execution.log.give_back, 0))
        return
    yield from _undo(execution)


def _undo(execution: Execution) -> Steps[None]:
    """Undo what the run has done, and end it."""
    execution.replay.check_end()
    yield from undo_all(execution)
    end: Callable[[], Any] = partial(execution.log.end_undone, drop=execution.held.handler.drop)
    execution.held.job.committed_end = yield Home(end)


def _end(execution: Execution, interrupt: WorkflowInterrupt) -> None:
    """End the attempt as the interrupt says that ended its function, or what followed."""
    cause = interrupt.cause
    if isinstance(cause, Failed):
        _raise_alone(with_callers_frames(cause.error, interrupt))
    if cause is Cause.LOST:
        raise LeaseLost(item=execution.held.ref.item_id.hex())
    if cause is Cause.SUSPENDED:
        execution.held.job.committed_end = "suspended"


def _raise_alone(error: Exception) -> NoReturn:
    """Raise an error with the context that it has had: the interrupts on its way out say nothing to a reader."""
    context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context
