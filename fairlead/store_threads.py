"""Threads that wait for a store, so that a coroutine that awaits the store does not block its event loop.

A call that a coroutine awaits runs in one of a few threads. The watches that coroutines await are polled by a single
thread. Nothing here touches a store on the thread of an event loop.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Protocol, TypeVar

from fairlead.zones.process_lock import ProcessLock

T = TypeVar("T")

THREADS_MAX = 4  # With 8, an event loop waited 4 to 14 ms for the interpreter; calls per second were the same.
POLL_S_MIN, POLL_S_MAX = 0.001, 0.02  # The first poll interval, and the longest.


class Watchable(Protocol):
    """A watch of an engine."""

    def is_ready(self) -> bool:
        """Whether the watched key has changed, or the watch was lost."""
        ...


class AwaitableCalls(Protocol):
    """How coroutines wait for stores."""

    async def run(self, call: Callable[[], T], /) -> T:
        """Run a call that blocks; return what it returns, raise what it raises."""
        ...

    async def wait_for(self, watch: Watchable, timeout_s: float | None) -> bool:
        """Wait until a watch is ready; False if `timeout_s` ended first. None: as long as it takes."""
        ...

    def start(self, call: Callable[[], None], /) -> None:
        """Have a call that blocks made soon; nobody waits for it. What it raises is lost, so it logs what may fail."""
        ...

    def close(self) -> None:
        """Start no more calls."""
        ...


class StoreThreads:
    """The threads of one process. They start when they are needed; a forked child starts its own."""

    def __init__(self) -> None:
        self._lock = ProcessLock()
        self._pool: ThreadPoolExecutor | None = None
        self._poller = _Poller()
        self._pid = 0

    async def run(self, call: Callable[[], T], /) -> T:
        """See `AwaitableCalls`.

        If the coroutine is cancelled while it waits, a call that has not begun is dropped. A call that has begun goes
        on to its end, and may commit.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        begun = self._threads().submit(_answer, loop, answer, copy_context(), call)
        try:
            return await answer
        except asyncio.CancelledError:
            begun.cancel()
            raise

    async def wait_for(self, watch: Watchable, timeout_s: float | None) -> bool:
        """See `AwaitableCalls`."""
        with self._lock:
            self._begin_in_this_process()
            ready = self._poller.add(watch)
        try:
            await asyncio.wait_for(asyncio.wrap_future(ready), timeout_s)
        except TimeoutError:
            return False
        return True

    def start(self, call: Callable[[], None], /) -> None:
        """See `AwaitableCalls`. A process that ends makes the calls first that were started."""
        self._threads().submit(call)

    def close(self) -> None:
        """See `AwaitableCalls`. Calls that wait for a thread are still made."""
        with self._lock:
            if self._pool is not None and self._pid == os.getpid():
                self._pool.shutdown(wait=False)
            self._pool = None

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            self._begin_in_this_process()
            if self._pool is None:
                self._pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="fairlead-async")
            return self._pool

    def _begin_in_this_process(self) -> None:
        """Forget the threads of the parent: they do not exist in a forked child."""
        if self._pid != os.getpid():
            self._pid, self._pool, self._poller = os.getpid(), None, _Poller()


def _answer(
    loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T], context: Context, call: Callable[[], T]
) -> None:
    """Run a call in a thread of the pool, and pass the answer to its event loop, if that still runs."""
    try:
        result = context.run(call)
    except BaseException as error:  # noqa: BLE001 - whatever the call raises is raised where it is awaited
        settle = partial(_settle, answer, None, error)
    else:
        settle = partial(_settle, answer, result, None)
    with suppress(RuntimeError):  # The event loop was closed meanwhile, and no coroutine waits.
        loop.call_soon_threadsafe(settle)


def _settle(answer: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    """Called on the event loop."""
    if answer.cancelled():
        return
    if error is None:
        answer.set_result(result)
    elif isinstance(error, StopIteration):  # No future takes one.
        answer.set_exception(RuntimeError(f"the call raised {error!r}"))
    else:
        answer.set_exception(error)


class _Poller:
    """One thread that polls all awaited watches. It ends when there are none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Future[None], Watchable] = {}
        self._poll_s = POLL_S_MIN
        self._runs = False

    def add(self, watch: Watchable) -> Future[None]:
        """Return a future that is done once the watch is ready. Cancel it to give up."""
        ready = Future[None]()
        with self._lock:
            self._waiting[ready] = watch
            self._poll_s = POLL_S_MIN
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="fairlead-async-watches", daemon=True).start()
        return ready

    def _run(self) -> None:
        while True:
            with self._lock:
                waiting = list(self._waiting.items())
                if not waiting:
                    self._runs = False
                    return
                self._poll_s = min(self._poll_s * 2, POLL_S_MAX)
                poll_s = self._poll_s
            ended = [ready for ready, watch in waiting if _has_ended(ready, watch)]
            with self._lock:
                for ready in ended:
                    del self._waiting[ready]
            time.sleep(poll_s)


def _has_ended(ready: Future[None], watch: Watchable) -> bool:
    """Resume the coroutine that awaits a watch if the watch is ready; return whether no coroutine awaits it now."""
    try:
        if not (ready.cancelled() or watch.is_ready()):
            return False
    except Exception as error:  # noqa: BLE001 - such as that of a store that was closed meanwhile
        if ready.set_running_or_notify_cancel():
            ready.set_exception(error)
        return True
    if ready.set_running_or_notify_cancel():
        ready.set_result(None)
    return True
