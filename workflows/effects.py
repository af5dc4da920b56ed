"""Effects: calls outside the database, each with an idempotency key, whose answers are recorded."""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fairlead.actors.execution.retry import Retry
from fairlead.workflows.argument_checks import check_effect
from fairlead.workflows.errors import EffectUnknown
from fairlead.workflows.execution import Body, Execution, inside
from fairlead.workflows.interrupts import BodyFailed, WorkflowInterrupt
from fairlead.workflows.recorded_errors import stored_error
from fairlead.workflows.requests import Home, Outside, Steps
from fairlead.workflows.step_call import StepCall
from fairlead.workflows.step_commits import record_failure
from fairlead.workflows.step_identity import idempotency_key, name_of
from fairlead.workflows.undoables import add_undo, note_undo
from fairlead.zones.probes import probe
from fairlead.zones.queue.items import pack_payload
from fairlead.zones.workflow.run_records import StepEntry, StepKind, StepState


def effect(
    execution: Execution,
    function: Body,
    args: Sequence[Any],
    *,
    name: str | None,
    retry: Retry | None,
    once: bool,
    undo: Body | None,
    may_be_async: bool,
) -> Steps[Any]:
    """Call a function outside the database, and record its answer. `may_be_async`: the workflow is async.

    Raises:
      BadArgument: see `check_effect`.
    """
    check_effect(function, undo=undo, retry=retry, may_be_async=may_be_async)
    with execution.open_call(StepKind.EFFECT, name_of(function, name), args) as call:
        if not call.has_answer:
            key = idempotency_key(execution.log.run, execution.log.segment, call.step)
            fail = partial(record_failure, execution, call, execution.log.shard, execution.held.ref.tenant)
            if execution.ends_here and undo is not None:  # It may have happened.
                add_undo(execution, call, undo, args, pack_payload(None), execution.held.ref.tenant)
            if call.entry is not None and call.entry.state is StepState.BEGUN:
                probe("the answer of an effect that is called once is lost")
                yield from execution.before_new(call)
                with execution.begin_try(call, execution.held.ref.tenant) as step_try:
                    step_try.error = EffectUnknown(call.step.name, key)
                    entry = yield from fail(stored_error(step_try.error))
                    step_try.state = entry.state
            else:
                yield from execution.before_new(call)
                if execution.log.has_pending or (execution.log.head is None and not once):
                    # What was read, and the version, which decided what is called with this key.
                    yield Home(partial(execution.log.record_pending, call.step, None))
                if once:
                    yield Home(partial(execution.log.record_step, call.step, call.begun(execution.clock_us())))
                do = partial(do_effect, execution, call, partial(function, key, *args))
                try:
                    tries = Retry(attempts=1) if once else retry
                    entry = yield from execution.try_step(call, do, fail, tries, tenant=execution.held.ref.tenant)
                except WorkflowInterrupt:
                    if undo is not None:  # It may have happened, though its answer is not recorded.
                        add_undo(execution, call, undo, args, pack_payload(None), execution.held.ref.tenant)
                    raise
            call.entry = entry
        note_undo(execution, call, undo, args, execution.held.ref.tenant)
        return execution.answer(call)


def do_effect(execution: Execution, call: StepCall, function: Callable[[], Any]) -> Steps[StepEntry]:
    """Call the function of an effect once, and record its answer. Raises `BodyFailed` for an error of it."""
    try:
        returned = yield Outside(partial(inside, function, first="the idempotency key"), is_async=_is_async(function))
    except Exception as error:
        raise BodyFailed(error) from error
    done = call.done(execution.packed(call.step.name, returned), execution.clock_us())
    yield from execution.extend_lease()
    entry: StepEntry = yield Home(partial(execution.log.record_step, call.step, done))
    return entry


def _is_async(function: Callable[..., Any]) -> bool:
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function)
