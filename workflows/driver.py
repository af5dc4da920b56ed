"""How a synchronous workflow carries out the calls of `wf`: on its own thread, one after the other."""

from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import Any, Protocol, TypeVar

from fairlead.workflows.argument_checks import ASYNC_REFUSED
from fairlead.workflows.errors import OtherThread
from fairlead.workflows.execution import Execution
from fairlead.workflows.interrupts import BodyFailed, Cause, Failed, WorkflowInterrupt
from fairlead.workflows.requests import Home, Outside, Pause, Request, RunFunction, Steps, Store, WaitFor, run_inline
from fairlead.zones.errors import BadArgument
from fairlead.zones.workflow.participants import AskAgain
from fairlead.zones.workflow.run_records import StepKind
from fairlead.zones.workflow.suspension import Arrived, Awaited, Wait

T = TypeVar("T")

_STORE_CALLS = (Home, Store)  # A tuple, because a union would be made anew for each step.


class Driver(Protocol):
    """Carries out the calls of `wf`."""

    def run(self, steps: Steps[T]) -> T:
        """Carry out a call; return its answer."""
        ...


class InlineDriver:
    """Carries out the calls of one attempt, which come from the thread that has made this.

    `run_function`: runs the workflow's function from its beginning; returns what it raised.
    """

    def __init__(self, execution: Execution, run_function: Callable[[], Exception | None]) -> None:
        self._execution = execution
        self._run_function = run_function
        self._thread = get_ident()

    def run(self, steps: Steps[T]) -> T:
        """See `Driver`.

        Raises:
          WorkflowInterrupt: the attempt ends here; each further call raises it again.
        """
        try:
            if get_ident() != self._thread:
                raise WorkflowInterrupt(Failed(OtherThread(kind=self._execution.held.ref.kind)))
            return run_inline(steps, self._answer)
        except WorkflowInterrupt as interrupt:
            self._execution.interrupt = self._execution.interrupt or interrupt
            raise

    def _answer(self, request: Request) -> Any:
        if isinstance(request, _STORE_CALLS):
            return guarded(request.call)
        if isinstance(request, RunFunction):
            return self._run_function()
        if isinstance(request, Outside):
            if request.is_async:
                raise BadArgument(argument="function", value="async", allowed=ASYNC_REFUSED)
            return request.call()
        if isinstance(request, Pause):
            self._execution.log.shard.clock.sleep_us(request.duration_us)
        if isinstance(request, WaitFor):
            return guarded(partial(suspend, self._execution, [request]))
        return None  # A synchronous workflow has one branch, which stands.


def guarded(call: Callable[[], T]) -> T:
    """Call a function that waits for a store. Its errors end the attempt: the workflow's code must not catch them."""
    try:
        return call()
    except (BodyFailed, AskAgain):
        raise
    except Exception as error:
        raise WorkflowInterrupt(Failed(error)) from error


def suspend(execution: Execution, waits: list[WaitFor]) -> dict[Awaited, Arrived]:
    """Suspend the run until the first of several waits is over; return what has arrived meanwhile.

    Raises:
      WorkflowInterrupt: it is suspended.
    """
    awaited = [each for wait in waits for each in wait.awaited]
    waiting = [each for wait in waits for each in wait.waiting]
    try:
        found = execution.log.suspend(Wait(awaited, min(wait.until_us for wait in waits)), waiting)
    except WorkflowInterrupt:  # A cancellation: the commit of a try of a step may have arrived since.
        execution.was_cut_off |= any(entry.kind is StepKind.STEP for _, entry in waiting)
        raise
    if not found:
        raise WorkflowInterrupt(Cause.SUSPENDED)
    return found
