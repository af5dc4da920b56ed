"""A kind of workflows: its function and options, and how one attempt at an item of it goes.

An attempt reads the log, keeps older attempts from acting elsewhere, and runs the function from its beginning. Recorded
steps are answered at once. What ends the function decides what becomes of the item:

    it returns                         the worker completes the item, with what it returned
    `wf.finish`                        the item is completed already
    a wait, a long backoff             the item is back in its queue already
    a permanent error, a cancellation  that the run is undone is recorded; its steps are undone; the item ends
    any other error                    the worker requeues the item, as the kind's retry policy says
    code that does not fit             the worker makes the item a dead letter; what was done stays done
    what is stored is damaged          likewise
    what is stored is newer            the item is given back to newer code
"""

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, TypeVar, Unpack

from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.job import Job
from fairlead.actors.execution.runner import AttemptAccess
from fairlead.actors.handlers import Handler, WorkflowOptions, describe, handler_of
from fairlead.workflows.async_context import AsyncWorkflowContext
from fairlead.workflows.asynchronous import AsyncDriver
from fairlead.workflows.attempt import attempt
from fairlead.workflows.awaited_calls import AwaitedCalls
from fairlead.workflows.context import RunInformation, WorkflowContext
from fairlead.workflows.driver import InlineDriver
from fairlead.workflows.errors import PayloadMismatch
from fairlead.workflows.execution import ApplyLater, Execution, HomeOf, OnMoved, ignore_move
from fairlead.workflows.interrupts import WorkflowInterrupt
from fairlead.workflows.own_event_loop import run_alone
from fairlead.workflows.requests import Steps
from fairlead.workflows.run_log import RunLog
from fairlead.workflows.step_identity import keyword_arguments
from fairlead.zones.errors import BadArgument, ItemFailed, ItemGone, RunUnreadable, TenantMoved
from fairlead.zones.probes import probe
from fairlead.zones.queue.results import pack_result
from fairlead.zones.shard import Shard
from fairlead.zones.spanning.coordinator import apply_at_once

T = TypeVar("T")

_BY_POSITION = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
)
OLDER_CODE_DELAY_US = 5_000_000  # How long a run stays in its queue that only newer code can continue.
# What the record of such an item names as awaited, until its next lease: nothing wakes it, but `why` can tell.
NEWER_CODE = "newer code"
NEWER_FAIRLEAD = "newer Fairlead"


class WorkflowKind:
    """What runs the items of a workflow. See `fairlead.actors.execution.runner.RunsAttempts`.

    Args:
      function: takes a `WorkflowContext` and the values of the payload.
      version: of its code, 1 or more.
      home_of: returns the shard where a tenant lives.
      on_moved: called when a shard says that a tenant has moved, so that `home_of` learns where it lives; False: it
        cannot.
      apply_later: runs a call that carries out on other shards what a transaction across shards has committed.

    Attributes:
      replays: replay a run after each new answer: the way in which tests find out that a function is not deterministic.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        version: int,
        home_of: HomeOf,
        on_moved: OnMoved = ignore_move,
        apply_later: ApplyLater = apply_at_once,
    ) -> None:
        _check_function(function)
        if type(version) is not int or version < 1:
            raise BadArgument(argument="version", value=version, allowed="a whole number, 1 or more")
        self.function = function
        self.version = version
        self._home_of = home_of
        self._on_moved = on_moved
        self._apply_later = apply_later
        self.__module__ = getattr(function, "__module__", "?")
        self.__qualname__ = getattr(function, "__qualname__", repr(function))

    def run_attempt(self, held: HeldItem, shard: Shard, access: AttemptAccess) -> None:
        """Run one attempt at an item. What it commits by itself, it notes in `held.job`.

        Raises:
          LeaseLost: another attempt holds the item.
          RunUnreadable: what is stored of the run is damaged.
          TenantMoved: a tenant on whom the run acts has moved; the next attempt finds it.
          Exception: the attempt has failed with it.
        """
        run_log = RunLog(held, shard, version=self.version)
        try:
            self._run_logged(run_log, access)
        except TenantMoved as moved:
            self._on_moved(moved)
            raise
        except RunUnreadable as error:
            if not error.is_newer:
                raise
            probe("a workflow is given back to a newer version of Fairlead")
            held.job.committed_end = run_log.give_back(OLDER_CODE_DELAY_US, waits_for=NEWER_FAIRLEAD)

    def _run_logged(self, run_log: RunLog, access: AttemptAccess) -> None:
        held = run_log.held
        run_log.load()
        if run_log.version > self.version:
            probe("a workflow is given back to newer code")
            held.job.committed_end = run_log.give_back(OLDER_CODE_DELAY_US, waits_for=NEWER_CODE)
            return
        execution = Execution(
            run_log,
            version=self.version,
            home_of=self._home_of,
            on_moved=self._on_moved,
            apply_later=self._apply_later,
            externals=access.externals,
            keep_lease=access.keep_lease,
            step_counts=access.step_counts,
            spans=access.spans,
            stops_at_end=held.record.cancelling,
            replays=access.replays,
        )
        run = _FunctionRun(self, execution)
        if inspect.iscoroutinefunction(self.function):
            access.runners.run_coroutine(run.attempt_async, held)
        else:
            run.carry_out(attempt(execution))

    def run_on_this_thread(self, execution: Execution, steps: Steps[T]) -> T:
        """Carry out steps that run the function, on an event loop of their own if it is async; return their result.

        Raises:
          BranchNotEnded: see `run_alone`.
        """
        run = _FunctionRun(self, execution)
        if inspect.iscoroutinefunction(self.function):
            return run_alone(run.carry_out_async(steps), kind=execution.held.ref.kind)
        return run.carry_out(steps)

    @cached_property
    def signature(self) -> inspect.Signature:
        """The parameters of the function. Kept, because finding them takes 15 µs, and each replay asks for them."""
        return inspect.signature(self.function)


def workflow_handler(kind: str, runner: WorkflowKind, **options: Unpack[WorkflowOptions]) -> Handler:
    """Return a checked handler of a kind of workflows.

    Two errors are permanent, so that the function may catch them: a child failed; the item that a signal was sent to is
    gone.

    Raises:
      BadArgument: an option is out of range; see `handler_of`.
    """
    handler = handler_of(kind, runner, **options)
    return replace(handler, permanent=(*handler.permanent, ItemFailed, ItemGone))


class _FunctionRun:
    """Runs a workflow's function for one attempt."""

    def __init__(self, kind: WorkflowKind, execution: Execution) -> None:
        self._kind = kind
        self._execution = execution

    def carry_out(self, steps: Steps[T]) -> T:
        """Carry out steps that run a plain function."""
        driver = InlineDriver(self._execution, lambda: self._replay(driver))
        return driver.run(steps)

    async def attempt_async(self, job: Job) -> None:
        """Run an attempt of an async function, on an event loop."""
        await self.carry_out_async(attempt(self._execution))

    async def carry_out_async(self, steps: Steps[T]) -> T:
        """Carry out steps that run an async function, on an event loop."""
        driver = AsyncDriver(self._execution, lambda: self._replay_async(driver))
        return await driver.run_attempt(steps)

    def _replay(self, driver: InlineDriver) -> Exception | None:
        """Run the function from its beginning; return what it raised. What it returned is noted."""
        try:
            self._note_result(self._bound(WorkflowContext(self._execution, driver))())
        except WorkflowInterrupt:
            return None
        except Exception as error:  # noqa: BLE001 - a workflow may raise anything
            return error
        return None

    async def _replay_async(self, driver: AsyncDriver) -> Exception | None:
        execution, calls = self._execution, AwaitedCalls()
        try:
            returned = await self._bound(AsyncWorkflowContext(execution, driver, calls))()
            if execution.interrupt is None and not execution.ends_here:
                calls.check(execution.held.ref.kind)
            self._note_result(returned)
        except BaseException as error:
            if self._execution.interrupt is not None:  # A group of tasks may have wrapped it.
                return None
            if not isinstance(error, Exception):
                raise
            return error
        finally:
            calls.close()
        return None

    def _bound(self, wf: RunInformation) -> Callable[[], Any]:
        """Return the function with its arguments.

        Raises:
          PayloadMismatch: the payload does not fit.
        """
        args, keywords = keyword_arguments(self._execution.held.job.payload)
        try:
            self._kind.signature.bind(wf, *args, **keywords)
        except TypeError as error:
            first = next(iter(self._kind.signature.parameters))
            reason = f"{first} is the first parameter, which gets wf" if first in keywords else str(error)
            raise PayloadMismatch(kind=self._execution.held.ref.kind, reason=reason) from None
        return partial(self._kind.function, wf, *args, **keywords)

    def _note_result(self, returned: Any) -> None:
        held = self._execution.held
        if self._execution.interrupt is None and (held.handler.result_ms or held.record.parent is not None):
            held.result = pack_result(returned)


def _check_function(function: Callable[..., Any]) -> None:
    allowed = "a plain or an async function of `wf`, and of what its payload has"
    if not callable(function) or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadArgument(argument="workflow", value=describe(function), allowed=allowed)
    if not _takes_wf(function):
        first = "a function whose first parameter is `wf`, such as `def checkout(wf, order)`"
        raise BadArgument(argument="workflow", value=describe(function), allowed=first)


def _takes_wf(function: Callable[..., Any]) -> bool:
    """Whether a function can be called with `wf`, which is given by position. True for one that does not tell."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:
        return True
    return bool(parameters) and parameters[0].kind in _BY_POSITION
