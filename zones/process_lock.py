"""A lock of one process that is free in a forked child.

A fork copies the memory of a process but only one of its threads. An ordinary lock that another thread held at that
moment would stay locked in the child for ever.
"""

import os
import threading
from types import TracebackType
from weakref import WeakSet


class ProcessLock:
    """A lock as `threading.Lock`, for `with`. Its data must be usable in a child that was forked while it was held."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()

    def free(self) -> None:
        """Release it in a forked child, whichever thread of the parent held it."""
        self._lock = threading.Lock()


_locks: WeakSet[ProcessLock] = WeakSet()


def _free_all() -> None:
    for lock in _locks:
        lock.free()


os.register_at_fork(after_in_child=_free_all)
