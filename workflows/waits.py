"""Waits: for a signal, for a time, for the end of children. A run that waits is suspended."""

from collections.abc import Sequence
from enum import Enum
from functools import partial
from typing import Any

from fairlead.workflows.errors import SignalTimeout
from fairlead.workflows.execution import Execution
from fairlead.workflows.recorded_errors import stored_error
from fairlead.workflows.requests import Home, Steps, Store, WaitFor
from fairlead.workflows.step_call import StepCall
from fairlead.workflows.step_identity import given_name
from fairlead.zones.durations import Duration, duration_us
from fairlead.zones.layout import check_name
from fairlead.zones.probes import probe
from fairlead.zones.queue.items import pack_payload
from fairlead.zones.workflow.run_records import StepEntry, StepKind
from fairlead.zones.workflow.suspension import Arrived, Awaited, AwaitedSignal

WITHOUT_TIMEOUT_US = 315_360_000_000_000  # Ten years: the longest delay of an item.


class NoDefault(Enum):
    """What `wait_for` has as its `default` if none is given: the timeout is an error."""

    RAISES = "raises SignalTimeout"


def wait_for(
    execution: Execution, signal: str, timeout: Duration | None, *, default: Any, name: str | None
) -> Steps[Any]:
    """Wait for a signal; return its payload, or `default` after the timeout.

    Raises:
      SignalTimeout: the timeout has passed, and `default` is `NoDefault.RAISES`.
    """
    timeout_us = WITHOUT_TIMEOUT_US if timeout is None else duration_us("timeout", timeout, also=", or None")
    check_name("signal", signal)
    awaited = AwaitedSignal(signal)
    try:
        return (yield from wait(execution, given_name(name, f"wait_for {signal}"), [awaited], timeout_us))
    except SignalTimeout:
        if default is NoDefault.RAISES:
            raise
        return default


def sleep(execution: Execution, duration: Duration, *, name: str | None) -> Steps[None]:
    """Wait for a time to pass."""
    yield from wait(execution, given_name(name, "sleep"), [], duration_us("seconds", duration))


def wait(execution: Execution, name: str, awaited: Sequence[AwaitedSignal], timeout_us: int) -> Steps[Any]:
    """Wait for the first of several signals, or for a time to pass.

    Raises:
      SignalTimeout: the time has passed, and there was a signal to wait for.
    """
    with execution.open_call(StepKind.WAIT, name, ()) as call:
        if not call.has_answer:
            yield from execution.before_new(call)
            known_us = None if call.entry is None else call.entry.until_us
            until_us = known_us if known_us is not None else execution.clock_us() + timeout_us
            first = yield from _first(execution, call, awaited, until_us)
            call.entry = _ended(call, awaited, first, timeout_us, execution.clock_us())
            execution.log.add_pending(call.step, call.entry, () if first is None else (first.key,))
            execution.note_answer()
        return execution.answer(call)


def _ended(
    call: StepCall, awaited: Sequence[AwaitedSignal], first: Arrived | None, timeout_us: int, at_us: int
) -> StepEntry:
    """Return the entry of a wait that is over. `first`: what has come; None: the time."""
    if first is not None:
        return call.done(first.payload, at_us)
    if not awaited:
        return call.done(pack_payload(None), at_us)
    probe("a signal does not come in time")
    return call.failed(stored_error(SignalTimeout(awaited[0].name, timeout_us / 1e6)), at_us)


def _first(execution: Execution, call: StepCall, awaited: Sequence[Awaited], until_us: int) -> Steps[Arrived | None]:
    """Wait for the first of what arrives; None: the time has come. Other branches may wait for the same signal."""
    while True:
        if execution.log.has_taken:
            yield Home(partial(execution.log.record_pending, call.step, None))
        found: dict[Awaited, Arrived] = (yield Store(partial(execution.log.find, awaited))) if awaited else {}
        now_us = execution.clock_us()
        if not found and now_us < until_us:
            found = yield WaitFor(awaited, until_us, [(call.step, call.waiting(until_us, now_us))])
        first = next(iter(found.values()), None)
        if first is None or not execution.log.was_taken(first.key):
            return first
