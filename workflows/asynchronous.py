"""How an asynchronous workflow carries out the calls of `wf`: its branches go on while one of them waits.

Calls that wait for a store run in threads. Commits at home are made one at a time. Two things need to know whether all
branches *stand*, that is, whether each has come to a new step, to a wait, or to its end:

    a new step in a replay       it is refused only if recorded steps are not reached by then
    the suspension of the run    it is suspended once there is nothing but waits, and for all of them together

Branches stand if no call is being carried out, and none has got its answer during some turns of the event loop. A
branch that waits for something of its own, such as a lock of asyncio, counts as one that stands.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from fairlead.workflows.driver import guarded, suspend
from fairlead.workflows.errors import BranchNotEnded
from fairlead.workflows.execution import Execution
from fairlead.workflows.interrupts import Cause, Failed, WorkflowInterrupt
from fairlead.workflows.own_event_loop import names_of
from fairlead.workflows.requests import Home, Outside, Pause, Request, RunFunction, Stand, Steps, Store, WaitFor
from fairlead.zones.workflow.suspension import Arrived, Awaited

T = TypeVar("T")

log = logging.getLogger("fairlead.workflows")

BRANCH_END_S = 5.0  # How long a cancelled branch may run on before its attempt ends without it.
QUIET_TURNS = 20  # Of the event loop: as many as a chain of nested `gather` takes to hand an answer on.
BUSY_PAUSE_S = 0.005  # Between two looks while a call is being carried out.


class AsyncDriver:
    """Carries out the calls of one attempt on an event loop.

    `run_function`: runs the workflow's function from its beginning; returns what it raised.
    """

    def __init__(self, execution: Execution, run_function: Callable[[], Coroutine[Any, Any, Exception | None]]) -> None:
        self._execution = execution
        self._run_function = run_function
        self._home = asyncio.Lock()
        self._busy = 0  # Calls that are being carried out.
        self._answers = 0  # Calls that have got their answers.
        self._waits: dict[asyncio.Future[dict[Awaited, Arrived]], WaitFor] = {}
        self._suspending: asyncio.Task[None] | None = None
        self._branches: set[asyncio.Task[Any]] = set()  # Those that have called `wf`.
        self._in_threads: set[asyncio.Future[Any]] = set()

    async def run(self, steps: Steps[T]) -> T:
        """Carry out a call; return its answer.

        Raises:
          WorkflowInterrupt: the attempt ends here; each further call raises it again.
        """
        branch = asyncio.current_task()
        if branch is not None and branch not in self._branches:
            self._branches.add(branch)
            branch.add_done_callback(self._branches.discard)
        try:
            request = next(steps)
            while True:
                try:
                    value = await self._answer(request)
                except BaseException as error:  # noqa: BLE001 - the generator gets it where it has asked
                    request = steps.throw(error)
                else:
                    request = steps.send(value)
        except StopIteration as stop:
            self._answers += 1
            return stop.value  # type: ignore[no-any-return]
        except WorkflowInterrupt as interrupt:
            self._execution.interrupt = self._execution.interrupt or interrupt
            raise

    async def run_attempt(self, steps: Steps[T]) -> T:
        """Carry out an attempt; return its result. What runs in threads has ended when this returns."""
        try:
            return await self.run(steps)
        finally:
            await self._end_branches()

    async def _answer(self, request: Request) -> Any:
        if isinstance(request, RunFunction):
            try:
                return await self._run_function()
            finally:
                await self._end_branches()
        if isinstance(request, Stand):
            return await self._stand()
        if isinstance(request, WaitFor):
            return await self._wait(request)
        self._busy += 1
        try:
            return await self._carry_out(request)
        except asyncio.CancelledError:
            self._execution.was_cut_off = True
            raise
        finally:
            self._busy -= 1

    async def _carry_out(self, request: Home | Store | Outside | Pause) -> Any:
        if isinstance(request, Home):
            return await self._at_home(partial(guarded, request.call))
        if isinstance(request, Store):
            return await self._in_thread(partial(guarded, request.call))
        if isinstance(request, Pause):
            return await _let_pass(request.duration_us / 1e6)
        if not request.is_async:
            return await asyncio.to_thread(request.call)
        returned = request.call()
        return await returned if inspect.isawaitable(returned) else returned

    async def _at_home(self, call: Callable[[], Any]) -> Any:
        """Run a call that commits at home. The next one begins once its thread has ended."""
        await self._home.acquire()
        return await self._in_thread(call, self._home.release)

    async def _in_thread(self, call: Callable[[], Any], then: Callable[[], object] = lambda: None) -> Any:
        """Run a call that waits for a store. It goes on if the branch is cancelled: it may have committed."""
        running = asyncio.ensure_future(self._execution.log.shard.run_blocking(call))

        def end(_: asyncio.Future[Any]) -> None:
            self._in_threads.discard(running)
            self._busy -= 1
            then()

        self._busy += 1
        self._in_threads.add(running)
        running.add_done_callback(end)
        return await asyncio.shield(running)

    async def _stand(self) -> None:
        """Return once the replay is not behind any more, or all branches stand."""
        await self._until_all_stand(lambda: not self._execution.replay.is_behind)

    async def _wait(self, request: WaitFor) -> dict[Awaited, Arrived]:
        """Wait until the run is suspended, for this and for what the other branches wait for."""
        arrived: asyncio.Future[dict[Awaited, Arrived]] = asyncio.get_running_loop().create_future()
        self._waits[arrived] = request
        if self._suspending is None or self._suspending.done():
            self._suspending = asyncio.ensure_future(self._suspend())
        try:
            return await arrived
        finally:
            self._waits.pop(arrived, None)

    async def _suspend(self) -> None:
        """Suspend the run once all branches stand; hand out what has arrived meanwhile."""
        while self._waits:
            await self._until_all_stand(lambda: not self._waits)
            waits = dict(self._waits)
            try:
                if self._execution.interrupt is not None:
                    raise self._execution.interrupt
                if not waits:
                    return
                found = await self._at_home(partial(guarded, partial(suspend, self._execution, [*waits.values()])))
            except WorkflowInterrupt as interrupt:
                self._execution.interrupt = self._execution.interrupt or interrupt
                for waiting in waits:
                    if not waiting.done():
                        waiting.set_exception(interrupt)
                return
            for waiting, request in waits.items():
                mine = {each: found[each] for each in request.awaited if each in found}
                if mine and not waiting.done():
                    del self._waits[waiting]
                    waiting.set_result(mine)

    async def _until_all_stand(self, is_over: Callable[[], bool]) -> None:
        quiet, answers = 0, self._answers
        while quiet < QUIET_TURNS and not is_over() and self._execution.interrupt is None:
            await _let_pass(BUSY_PAUSE_S if self._busy else 0)
            is_quiet = not self._busy and answers == self._answers
            quiet, answers = quiet + 1 if is_quiet else 0, self._answers

    async def _end_branches(self) -> None:
        """Cancel what still runs of the function, and wait for what runs in threads."""
        mine = asyncio.current_task()
        branches = {each for each in self._branches if each is not mine}
        if self._suspending is not None:
            branches.add(self._suspending)
        for each in branches:
            each.cancel()
        if branches:
            ended, running = await asyncio.wait(branches, timeout=BRANCH_END_S)
            for each in ended:
                if not each.cancelled():
                    each.exception()  # Otherwise asyncio logs that nobody has asked for it.
            if running:
                self._leave_behind(running)
        if self._in_threads:
            await asyncio.gather(*self._in_threads, return_exceptions=True)
        self._branches.clear()
        self._waits.clear()
        self._suspending = None

    def _leave_behind(self, running: set[asyncio.Task[Any]]) -> None:
        """End the attempt though branches still run. Each call of `wf` that they make raises an interrupt."""
        ref, execution = self._execution.held.ref, self._execution
        error = BranchNotEnded(kind=ref.kind, item=ref.item_id.hex(), branches=names_of(running))
        log.error("%s", error)
        if execution.interrupt is None or execution.interrupt.cause is Cause.REPLAY:
            execution.interrupt = WorkflowInterrupt(Failed(error))


async def _let_pass(after_s: float) -> None:
    """Let other branches go on, and so much time pass by the event loop's own clock."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(after_s, over.set_result, None) if after_s else loop.call_soon(over.set_result, None)
    try:
        await over
    finally:
        timer.cancel()
