"""The event loop of a worker's coroutines: one thread, which no coroutine can end or stop for the others.

asyncio lets `SystemExit` and `KeyboardInterrupt` of a task leave the loop, which ends the loop's thread. Here such an
error ends its own task only. Two things still cost the worker its loop, and the next coroutine gets a new one: code
that ends the loop (a callback that exits, `loop.stop()`), and code that blocks it.

The attempt whose code ended or blocked the loop has failed. It is found by the task or the callback that ran: that has
the context of the item. The other attempts on the loop have not failed, and their items run again at once.

A callback that a thread without such a context has scheduled (`loop.call_soon_threadsafe`) leads to no item. Then all
items of the loop run again, and those attempts fail whose item's latest error is a lost loop already. That error is
stored with the item. So no item blocks one loop after the other without using up its attempts, on whichever worker.
"""

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import Context, ContextVar
from functools import partial
from types import FrameType
from typing import Any

from fairlead.actors.execution.job import STUCK_US, Job
from fairlead.actors.handlers import describe
from fairlead.actors.runtime.host import Host
from fairlead.zones.engines.api.progress import report_loop_progress
from fairlead.zones.errors import QueueError

log = logging.getLogger("fairlead.worker")

CLEANUP_S = 1.0  # How long the cancelled coroutines of a lost loop may take.
PROGRESS_S = 1.0  # How often an idle loop reports progress to the supervisor.


class EventLoopLost(QueueError):
    """The worker's event loop was ended or blocked by another coroutine while this one ran on it.

    Do: nothing for this item, which runs again. Look in the log for the coroutine that caused it.
    """

    message = "the worker's event loop was lost while the handler ran on it"


class EventLoopBlocked(QueueError):
    """A coroutine kept the event loop of its worker for ten seconds without an `await`.

    Do: use `await` for every wait (`asyncio.sleep`, an asynchronous client). Or move the work into a plain handler,
    which has a thread of its own, or into `asyncio.to_thread`. The attempt has failed.
    """

    message = "the handler blocked the event loop: it ran for 10 s without an await"


class EventLoopEnded(QueueError):
    """A coroutine ended the event loop of its worker: it called `loop.stop()`, or a callback of it raised SystemExit.

    Do: raise an error in the coroutine itself, and leave the loop to the worker. The attempt has failed.
    """

    message = "the handler ended the event loop of its worker"


class EventLoopLostAgain(QueueError):
    """The worker's event loop was ended or blocked again, by an unknown coroutine, while this one ran on it.

    Do: look in the log for what the loop was doing. Probably a thread scheduled it by `loop.call_soon_threadsafe`. One
    of the handlers that ran is the cause. The attempts of all those have failed that had lost their event loop before.
    """

    message = "the worker's event loop was lost again while the handler ran on it"


class Exited(Exception):
    """Stands for an error that would have ended the loop; `error` is that error."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.error = error


async def contained(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine so that nothing which it raises ends the loop.

    Raises:
      Exited: it raised SystemExit or KeyboardInterrupt.
      What it raises otherwise.
    """
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        raise Exited(error) from error


_RUN_HANDLE = asyncio.Handle._run.__code__  # Runs a callback, or a part of a task.
# The answer of the item whose code runs.
_answer: ContextVar[Future[Any] | None] = ContextVar("answer", default=None)


class EventLoop:
    """One event loop on a thread that `host` spawns.

    Attributes:
      is_lost: it accepts no more coroutines.
      has_ended: its thread has ended, too.
    """

    def __init__(self, host: Host) -> None:
        self.is_lost = self.has_ended = False
        self._loop = asyncio.new_event_loop()
        self._loop.set_task_factory(self._make_task)
        self._end = self._loop.stop
        self._loop.stop = self._stop  # type: ignore[method-assign]
        self._ended_by: Future[Any] | None = None  # The answer of the item whose code ended it.
        self._thread_id = 0
        self._lock = threading.Lock()
        self._answers: dict[Future[Any], asyncio.Task[Any] | None] = {}  # Those that are still awaited.
        self._lost_before: set[Future[Any]] = set()  # Of items whose latest error is a lost event loop.
        self._owners: dict[asyncio.Task[Any], Future[Any]] = {}  # The answer of each task's item; child tasks, too.
        host.spawn("event loop", self._run, self._on_stall)

    def run_to_end(self, function: Callable[[Job], Coroutine[Any, Any, Any]], job: Job, *, last_error: str = "") -> Any:
        """Run a coroutine function from another thread; return what it returns, raise what it raises.

        Args:
          last_error: the error of the attempt before this one, as it is stored with the item.

        Raises:
          EventLoopLost, EventLoopLostAgain, EventLoopBlocked, EventLoopEnded: see there.
          concurrent.futures.CancelledError: the job was cancelled meanwhile, and so is the coroutine.
        """
        answer = Future[Any]()
        with self._lock:
            if self.is_lost:
                raise EventLoopLost(kind=job.kind, item=job.id.hex())
            self._answers[answer] = None
            # The name of `EventLoopLostAgain` begins so, too.
            if last_error.startswith(EventLoopLost.__name__):
                self._lost_before.add(answer)
            self._loop.call_soon_threadsafe(self._start, answer, function, job)
        job.on_cancel(partial(self._cancel, answer, function, job))
        try:
            return answer.result()
        finally:
            self._lost_before.discard(answer)

    def close(self) -> None:
        """Accept no more coroutines, and end the thread; what still runs ends as on a lost loop."""
        with self._lock:
            self.is_lost = True
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._end)

    # --- On the loop's thread ---

    def _run(self) -> None:
        self._thread_id = threading.get_ident()
        self._loop.call_soon(self._show_progress)
        self._run_until_it_ends()
        self._lose(self._ended_by, EventLoopEnded())
        self._loop.call_soon(self._abandon)
        self._run_until_it_ends()
        with self._lock:
            self._loop.close()
            self.has_ended = True

    def _run_until_it_ends(self) -> None:
        try:
            self._loop.run_forever()
        except BaseException as error:
            log.error("the event loop ended, and is replaced", exc_info=error)
            self._ended_by = _owner_of_callback(error)

    def _stop(self) -> None:
        """Replace `loop.stop`, which only users' code calls: here it is known which item's code."""
        log.error("the event loop ended, and is replaced: it was stopped", stack_info=True)
        self._ended_by = _answer.get()
        self._end()

    def _show_progress(self) -> None:
        report_loop_progress()
        self._loop.call_later(PROGRESS_S, self._show_progress)

    def _start(self, answer: Future[Any], function: Callable[[Job], Coroutine[Any, Any, Any]], job: Job) -> None:
        token = _answer.set(answer)
        try:
            task = self._loop.create_task(function(job))
        except BaseException as error:  # noqa: BLE001 - the handler is called to make its coroutine
            self._deliver(answer, error=error)
            return
        finally:
            _answer.reset(token)
        with self._lock:
            if answer in self._answers:
                self._answers[answer] = task
            else:
                self._interrupt(task, function, job)
        task.add_done_callback(partial(self._ended, answer))

    def _ended(self, answer: Future[Any], task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self._deliver(answer, error=asyncio.CancelledError())
            return
        error = task.exception()
        if error is None:
            self._deliver(answer, result=task.result())
        else:
            self._deliver(answer, error=error.error if isinstance(error, Exited) else error)

    def _interrupt(self, task: asyncio.Task[Any], function: Callable[[Job], Any], job: Job) -> None:
        """Cancel a coroutine, and check later whether it has ended: after the time for which a slot waits.

        A coroutine that catches its cancellation runs on. Its slot is free already.
        """
        task.cancel()
        check = self._loop.call_later(STUCK_US / 1e6, _log_if_it_runs, task, function, job)
        task.add_done_callback(lambda _: check.cancel())

    def _make_task(self, loop: Any, coroutine: Any, **how: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(contained(coroutine), loop=loop, **how)
        owner = _answer.get()
        if owner is not None:
            self._owners[task] = owner
            task.add_done_callback(lambda ended: self._owners.pop(ended, None))
        return task

    def _abandon(self) -> None:
        """Cancel the tasks of a lost loop, and end the loop once they have ended, or after `CLEANUP_S`."""
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            asyncio.gather(*tasks, return_exceptions=True).add_done_callback(lambda _: self._end())
        self._loop.call_later(CLEANUP_S if tasks else 0, self._end)

    # --- On any thread ---

    def _cancel(self, answer: Future[Any], function: Callable[[Job], Any], job: Job) -> None:
        with self._lock:
            task = self._answers.pop(answer, None)
            if not answer.done():
                answer.cancel()
            if task is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._interrupt, task, function, job)

    def _deliver(self, answer: Future[Any], *, result: Any = None, error: BaseException | None = None) -> None:
        with self._lock:
            self._answers.pop(answer, None)
            if answer.done():  # It was cancelled, or the loop was lost before.
                return
            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)

    def _on_stall(self) -> None:
        """Called by the supervisor: a coroutine, or a callback, has blocked the loop for too long."""
        task = asyncio.current_task(self._loop)
        owner = _owner_of_running_callback(self._thread_id) if task is None else self._owners.get(task)
        self._lose(owner, EventLoopBlocked())
        with self._lock:
            if not self._loop.is_closed():  # The loop may have ended meanwhile.
                self._loop.call_soon_threadsafe(self._abandon)

    def _lose(self, blamed: Future[Any] | None, failure: QueueError) -> None:
        """Accept no more coroutines. Let the attempt of `blamed` fail, and the items of the others run again.

        Without a `blamed` one, the attempts fail whose items had lost their event loop before; not if it was closed.
        """
        with self._lock:
            unexplained = blamed is None and not self.is_lost
            self.is_lost = True
            answers, self._answers = self._answers, {}
            for answer in answers:
                if answer.done():
                    continue
                if answer is blamed:
                    answer.set_exception(failure)
                elif unexplained and answer in self._lost_before:
                    answer.set_exception(EventLoopLostAgain())
                else:
                    answer.set_exception(EventLoopLost())


def _log_if_it_runs(task: asyncio.Task[Any], function: Callable[[Job], Any], job: Job) -> None:
    if not task.done():
        log.error(
            "handler %s ignores job.cancelled; it goes on beside what runs in its place, kind=%s item=%s",
            describe(function), job.kind, job.id.hex(),
        )  # fmt: skip


def _owner_of_callback(error: BaseException) -> Future[Any] | None:
    """Return the answer of the item whose code scheduled the callback that raised an error; None: unknown."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is _RUN_HANDLE:
            return _owner_of_handle(trace.tb_frame)
        trace = trace.tb_next
    return None


def _owner_of_running_callback(thread_id: int) -> Future[Any] | None:
    """Return the answer of the item whose code scheduled the callback that runs on a thread; None: unknown."""
    frame = sys._current_frames().get(thread_id)
    while frame is not None:
        if frame.f_code is _RUN_HANDLE:
            return _owner_of_handle(frame)
        frame = frame.f_back
    return None


def _owner_of_handle(frame: FrameType) -> Future[Any] | None:
    """Return the answer of the item whose code scheduled the callback that runs in a frame of `asyncio.Handle._run`.

    A callback runs in a copy of the context in which it was scheduled.
    """
    context: Context = frame.f_locals["self"]._context
    return context.get(_answer)
