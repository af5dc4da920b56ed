"""A kind of workflows: its function and options, and how one attempt at an item of it goes.

An attempt reads the log, keeps older attempts from acting elsewhere, and runs the function from its beginning. Recorded
steps are answered at once. What ends the function decides what becomes of the item:

    it returns                         the worker completes the item, with what it returned
    `wf.finish`                        the item is completed already
    a wait, a long backoff             the item is back in its queue already
    a permanent error, a cancellation  that the run is undone is recorded; its steps are undone; the item ends
    any other error                    the worker requeues the item, as the kind's retry policy says
    code that does not fit             the worker makes the item a dead letter; what was done stays done
"""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Unpack

from fairlead.actors.execution.failed_attempt import is_permanent, render_error
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.runner import AttemptAccess
from fairlead.actors.handlers import Handler, UnfitCode, WorkflowOptions, describe, handler_of
from fairlead.workflows.context import WorkflowContext
from fairlead.workflows.driver import InlineDriver
from fairlead.workflows.errors import PayloadMismatch
from fairlead.workflows.execution import Execution, HomeOf
from fairlead.workflows.interrupts import Cause, Failed, WorkflowInterrupt
from fairlead.workflows.run_log import RunLog
from fairlead.workflows.step_identity import keyword_arguments
from fairlead.workflows.undo import undo_all
from fairlead.zones.errors import BadArgument, ItemFailed, LeaseLost
from fairlead.zones.probes import probe
from fairlead.zones.queue.results import pack_result
from fairlead.zones.shard import Shard
from fairlead.zones.workflow.undone_end import CANCELLED

OLDER_CODE_DELAY_US = 5_000_000  # How long a run stays in its queue that only newer code can continue.


class WorkflowKind:
    """What runs the items of a workflow. See `fairlead.actors.execution.runner.RunsAttempts`.

    Args:
      function: takes a `WorkflowContext` and the values of the payload.
      version: of its code, 1 or more.
      home_of: returns the shard where a tenant lives.

    Attributes:
      replays: replay a run after each new answer: the way in which tests find out that a function is not deterministic.
    """

    def __init__(self, function: Callable[..., Any], *, version: int, home_of: HomeOf) -> None:
        _check_function(function)
        if type(version) is not int or version < 1:
            raise BadArgument(argument="version", value=version, allowed="a whole number, 1 or more")
        self.function = function
        self.version = version
        self._home_of = home_of
        self.__module__ = getattr(function, "__module__", "?")
        self.__qualname__ = getattr(function, "__qualname__", repr(function))

    def run_attempt(self, held: HeldItem, shard: Shard, access: AttemptAccess) -> None:
        """Run one attempt at an item. What it commits by itself, it notes in `held.job`.

        Raises:
          LeaseLost: another attempt holds the item.
          Exception: the attempt has failed with it.
        """
        run_log = RunLog(held, shard, version=self.version)
        run_log.load()
        if run_log.version > self.version:
            probe("a workflow is given back to newer code")
            held.job.committed_end = run_log.give_back(OLDER_CODE_DELAY_US)
            return
        execution = Execution(
            run_log,
            version=self.version,
            home_of=self._home_of,
            extend=access.extend,
            stops_at_end=held.record.cancelling,
            replays=access.replays,
        )
        _Attempt(self.function, execution).run()


def workflow_handler(kind: str, runner: WorkflowKind, **options: Unpack[WorkflowOptions]) -> Handler:
    """Return a checked handler of a kind of workflows. The failure of a child is permanent: the call is not repeated.

    Raises:
      BadArgument: an option is out of range; see `handler_of`.
    """
    handler = handler_of(kind, runner, **options)
    return replace(handler, permanent=(*handler.permanent, ItemFailed))


class _Attempt:
    """One attempt of a synchronous workflow."""

    def __init__(self, function: Callable[..., Any], execution: Execution) -> None:
        self._function = function
        self._execution = execution
        self._held = execution.held
        self._log = execution.log

    def run(self) -> None:
        try:
            self._execution.enter()
        except WorkflowInterrupt:
            raise LeaseLost(item=self._held.ref.item_id.hex()) from None
        while True:
            error = self._replay()
            cause = None if self._execution.interrupt is None else self._execution.interrupt.cause
            if cause is Cause.REPLAY:
                probe("a workflow is replayed")
                self._execution.begin_replay()
                continue
            try:
                return self._conclude(cause, error)
            except WorkflowInterrupt as interrupt:
                return self._end(interrupt.cause)

    def _replay(self) -> Exception | None:
        """Run the function from its beginning; return what it raised. What it returned is noted."""
        execution = self._execution
        wf = WorkflowContext(execution, InlineDriver(execution))
        args, keywords = keyword_arguments(self._held.job.payload)
        try:
            inspect.signature(self._function).bind(wf, *args, **keywords)
        except TypeError as error:
            return PayloadMismatch(kind=self._held.ref.kind, reason=str(error))
        try:
            returned = self._function(wf, *args, **keywords)
        except WorkflowInterrupt:
            return None
        except Exception as error:  # noqa: BLE001 - a workflow may raise anything
            return error
        if execution.interrupt is None and (self._held.handler.result_ms or self._held.record.parent is not None):
            self._held.result = pack_result(returned)
        return None

    def _conclude(self, cause: Cause | Failed | None, error: Exception | None) -> None:
        """Do what follows from how the function has ended."""
        if isinstance(error, UnfitCode):
            raise error
        if self._log.is_undone:
            if cause in (None, Cause.END_OF_LOG):
                return self._undo()
        elif cause is Cause.CANCELLED or (cause is Cause.END_OF_LOG and self._held.record.cancelling):
            self._log.begin_undo(CANCELLED, "", "")
            return self._undo()
        elif cause is None and error is None and self._held.record.cancelling:
            self._execution.replay.check_end()
            self._log.begin_undo(CANCELLED, "", "")
            return self._undo()
        elif cause is None and error is not None:
            if is_permanent(self._held.handler, error) and not self._log.is_empty:
                self._execution.replay.check_end()
                rendered = render_error(error, self._log.shard.clock)
                self._log.begin_undo(rendered.text, rendered.text, rendered.lines)
                self._undo()
            raise error
        self._end(cause)

    def _undo(self) -> None:
        """Undo what the run has done, and end it."""
        self._execution.replay.check_end()
        InlineDriver(self._execution).run(undo_all(self._execution))
        self._held.job.committed_end = self._log.end_undone(drop=self._held.handler.drop)

    def _end(self, cause: Cause | Failed | None) -> None:
        """End the attempt as the interrupt says that ended its function."""
        if isinstance(cause, Failed):
            raise cause.error
        if cause is Cause.LOST:
            raise LeaseLost(item=self._held.ref.item_id.hex())
        if cause is Cause.SUSPENDED:
            self._held.job.committed_end = "suspended"


def _check_function(function: Callable[..., Any]) -> None:
    allowed = "a plain or an async function of `wf`, and of what its payload has"
    if not callable(function) or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadArgument(argument="workflow", value=describe(function), allowed=allowed)
