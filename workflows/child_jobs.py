"""Children: jobs and workflows that a run enqueues, and whose results it waits for."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from fairlead.workflows.argument_checks import shortened
from fairlead.workflows.errors import CallTimeout
from fairlead.workflows.execution import Child, Execution
from fairlead.workflows.recorded_errors import StepFailed, stored_error, type_name
from fairlead.workflows.requests import Home, Steps, Store, WaitFor
from fairlead.workflows.step_call import StepCall
from fairlead.workflows.step_identity import call_name
from fairlead.workflows.steps import enqueue
from fairlead.workflows.waits import WITHOUT_TIMEOUT_US
from fairlead.zones.durations import Duration, duration_us
from fairlead.zones.errors import BadArgument, ItemFailed
from fairlead.zones.layout import Tenant
from fairlead.zones.probes import probe
from fairlead.zones.queue.items import NewItem, pack_payload
from fairlead.zones.workflow.children import ChildState
from fairlead.zones.workflow.run_records import StepKind, StepState
from fairlead.zones.workflow.suspension import Arrived, Awaited, AwaitedChild

RESULT_OF = "result of "  # Begins the name of the step that takes the end of a child.


class Unfinished:
    """Stands for the result of a child that has not ended."""

    def __repr__(self) -> str:
        return "UNFINISHED"


UNFINISHED = Unfinished()


class Call(NamedTuple):
    """A child to enqueue: a job or a workflow whose end the caller waits for."""

    item: NewItem
    zone: str
    on: Tenant | None
    name: str | None


class Ended(NamedTuple):
    """How a child has ended: with a result, or an error. `is_open`: it has not."""

    result: Any
    error: Exception | None
    is_open: bool = False


def gather(
    execution: Execution, calls: Sequence[Call], *, at_least: int | None, timeout: Duration | None
) -> Steps[list[Ended]]:
    """Enqueue children, and wait until so many of them have succeeded; `at_least` None: all.

    Returns how each has ended; one that has not, or failed, is no reason to raise an error if enough others do.

    Raises:
      BadArgument: one is no `Call`, or more are to succeed than there are.
    """
    _check_calls(calls)
    if at_least is not None and not 0 <= at_least <= len(calls):
        raise BadArgument(argument="at_least", value=at_least, allowed=f"0 to {len(calls)}, the number of calls")
    children = []
    for each in calls:
        item_id = yield from enqueue(execution, each.item, zone=each.zone, on=each.on, name=each.name, parent=True)
        # Other branches of an asynchronous workflow have added theirs meanwhile.
        children.append(next(child for child in reversed(execution.children) if child.item_id == item_id))
    timeout_us = WITHOUT_TIMEOUT_US if timeout is None else duration_us("timeout", timeout, also=", or None")
    waits = []
    for child in children:
        with execution.open_call(StepKind.WAIT, f"{RESULT_OF}{child.step.name}", ()) as wait:
            waits.append(wait)
    enough = len(calls) if at_least is None else at_least
    until_us: int | None = None
    while not (_is_enough(waits, enough) or _is_timed_out(waits)):
        open_waits = {
            AwaitedChild(call_name(execution.log.segment, child.step.name), child.step.occurrence): wait
            for child, wait in zip(children, waits, strict=True)
            if not wait.has_answer
        }
        first = next(iter(open_waits.values()))
        if until_us is not None and first.entry is None:  # The deadline was recorded with one that has ended.
            first.entry = first.waiting(until_us, execution.clock_us())
            execution.log.add_pending(first.step, first.entry)
        for wait in open_waits.values():
            yield from execution.before_new(wait)
        if execution.log.has_taken:
            yield Home(partial(execution.log.record_pending, first.step, None))
        arrived: dict[Awaited, Arrived] = yield Store(partial(execution.log.find, list(open_waits)))
        now_us = execution.clock_us()
        recorded_us = None if first.entry is None else first.entry.until_us
        until_us = until_us or recorded_us or now_us + timeout_us
        if not arrived and now_us < until_us:
            waiting = [(first.step, first.waiting(until_us, now_us))]
            arrived = yield WaitFor(list(open_waits), until_us, waiting)
        if not arrived:
            probe("a workflow's child does not end in time")
            error = stored_error(CallTimeout(first.step.name.removeprefix(RESULT_OF), timeout_us / 1e6))
            first.entry = first.failed(error, now_us)
            execution.log.add_pending(first.step, first.entry)
            break
        for awaited, wait in open_waits.items():
            if awaited in arrived and not execution.log.has_many_pending:
                _take_child(execution, wait, arrived[awaited])
    if until_us is not None:
        execution.note_answer()
    return [_ended(execution, child, wait) for child, wait in zip(children, waits, strict=True)]


def _check_calls(calls: Any) -> None:
    is_list = isinstance(calls, Sequence) and not isinstance(calls, Call | str)
    wrong = [each for each in calls if not isinstance(each, Call)] if is_list else [calls]
    if wrong:
        allowed = 'a list of children: wf.gather([fairlead.child("resize", {"width": 100}), ...])'
        raise BadArgument(argument="calls", value=shortened(wrong[0]), allowed=allowed)


def _take_child(execution: Execution, wait: StepCall, arrived: Arrived) -> None:
    child = arrived.child
    assert child is not None
    if child.state == ChildState.COMPLETED:
        wait.entry = wait.done(child.result or pack_payload(None), execution.clock_us())
    else:
        failed = ItemFailed(
            call=wait.step.name.removeprefix(RESULT_OF), state=ChildState(child.state).name.lower(), error=child.error
        )
        wait.entry = wait.failed(stored_error(failed), execution.clock_us())
    execution.log.add_pending(wait.step, wait.entry, (arrived.key,))


def _ended(execution: Execution, child: Child, wait: StepCall) -> Ended:
    if not wait.has_answer:
        return Ended(None, None, is_open=True)
    try:
        ended = Ended(execution.answer(wait), None)
    except CallTimeout as error:  # The child goes on.
        return Ended(None, error)
    except (ItemFailed, StepFailed) as error:
        ended = Ended(None, error)
    execution.children.remove(child)
    return ended


def _is_enough(waits: Sequence[StepCall], enough: int) -> bool:
    """Say whether a caller need wait no longer: so many children have succeeded, or can no more."""
    entries = [wait.entry for wait in waits if wait.entry is not None and wait.has_answer]
    failed = sum(entry.state is StepState.FAILED for entry in entries)
    return len(entries) - failed >= enough or failed > len(waits) - enough


def _is_timed_out(waits: Sequence[StepCall]) -> bool:
    """Say whether the timeout has passed, as one of the waits has recorded."""
    errors = [wait.entry.error for wait in waits if wait.entry is not None and wait.entry.error is not None]
    return any(error.type_name == type_name(CallTimeout) for error in errors)


def result_of(ended: Ended) -> Any:
    """Return the result of a child that has ended.

    Raises:
      ItemFailed, CallTimeout: it has none.
    """
    if ended.error is not None:
        raise ended.error
    return UNFINISHED if ended.is_open else ended.result


def results_of(ended: Sequence[Ended], *, at_least: int | None) -> list[Any]:
    """Return the results of children; of those that need not succeed, what stands in their place.

    Raises:
      ItemFailed, CallTimeout: too few have succeeded.
    """
    if at_least is not None and sum(not (each.is_open or each.error) for each in ended) >= at_least:
        return [each.error or result_of(each) for each in ended]
    return [result_of(each) for each in ended]
