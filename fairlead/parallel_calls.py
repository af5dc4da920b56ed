"""Calls on several shards at once, in a few threads: a write with keys on two shards waits for one of them only."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Protocol, TypeVar

from fairlead.zones.process_lock import ProcessLock

T = TypeVar("T")

THREADS_MAX = 16  # One record has few keys; so many calls of all threads of the process wait for stores at once.


class RunsCalls(Protocol):
    """Runs calls on several shards: at once, or in a simulated world one after the other."""

    def run_all(self, calls: Sequence[Callable[[], T]], /) -> list[T]:
        """Return what the calls return, in order, once all have ended."""
        ...

    def close(self) -> None:
        """Start no more calls."""
        ...


class ParallelCalls:
    """The threads of one process. They start when they are needed; a forked child starts its own."""

    def __init__(self) -> None:
        self._lock = ProcessLock()
        self._pool: ThreadPoolExecutor | None = None
        self._pid = 0

    def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Run calls at once; return what they return, in order. The last one runs in the caller's thread.

        All have ended when this returns. What a call raises is raised here.
        """
        if len(calls) == 1:
            return [calls[0]()]
        begun = [self._threads().submit(copy_context().run, call) for call in calls[:-1]]
        try:
            last = calls[-1]()
        finally:
            results = [each.result() for each in begun]
        return [*results, last]

    def close(self) -> None:
        """End the threads; the next call starts others."""
        with self._lock:
            if self._pool is not None and self._pid == os.getpid():
                self._pool.shutdown(wait=False)
            self._pool = None

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None or self._pid != os.getpid():
                self._pid = os.getpid()
                self._pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="fairlead-shards")
            return self._pool
