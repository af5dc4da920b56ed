"""A lock of one process, which a fork leaves free in the child.

A fork copies the memory of a process but only one of its threads. A lock that another thread held at that moment is
held for ever in the child: nobody is there to release it.
"""

import os
import threading
from types import TracebackType
from weakref import WeakSet


class ProcessLock:
    """A lock as `threading.Lock`, for `with`. What it protects must be usable in a child forked in the middle."""

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
