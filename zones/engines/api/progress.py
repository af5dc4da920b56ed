"""Progress: how a supervised loop reports that it has not stalled, from anywhere in the code.

A loop reports progress in each iteration, in each attempt of a transaction, and before each sleep. Each report states
how long the loop may be silent after it. The supervisor checks once a second (`fairlead.actors.runtime.supervisor`). A
thread without a supervisor reports nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

# How long one attempt of a transaction may wait for its store: FoundationDB's transactions time out after this.
ATTEMPT_SILENCE_US: Final = 10_000_000


class LoopProgress:
    """The progress of one loop. Written by its thread, read by its supervisor. No lock: each field is read at once.

    Args:
      name: the loop's name.
      stalled: the supervisor calls it if the loop stalls; None: a stall fails the actor.
    """

    __slots__ = ("_allowed_silence_us", "_has_reported", "name", "silent_us", "stalled", "thread_id")

    def __init__(self, name: str, stalled: Callable[[], None] | None = None) -> None:
        self.name = name
        self.stalled = stalled
        self.thread_id = threading.get_ident()
        self.silent_us = 0  # since the last report, as of the last check
        self._has_reported = True
        self._allowed_silence_us: int | None = 0

    def report(self, allowed_silence_us: int | None = 0) -> None:
        """Report progress. The loop may then be silent for `allowed_silence_us`; None: without limit."""
        self._allowed_silence_us = allowed_silence_us
        self._has_reported = True

    def overdue_us(self, passed_us: int) -> int:
        """Return by how much the loop has exceeded its allowed silence. `passed_us`: time since the last check."""
        allowed_silence_us = self._allowed_silence_us
        if self._has_reported or allowed_silence_us is None:
            self._has_reported = False
            self.silent_us = 0
            return 0
        self.silent_us += passed_us
        return max(0, self.silent_us - allowed_silence_us)


_current: ContextVar[LoopProgress | None] = ContextVar("progress", default=None)


def report_loop_progress(allowed_silence_us: int | None = 0) -> None:
    """Report progress of the loop on this thread; see `LoopProgress.report`."""
    progress = _current.get()
    if progress is not None:
        progress.report(allowed_silence_us)


@contextmanager
def track_loop_progress(progress: LoopProgress | None) -> Iterator[None]:
    """Let reports of this thread go to `progress` inside the context; None: to no loop, as in a user's code."""
    token = _current.set(progress)
    try:
        yield
    finally:
        _current.reset(token)


class unsupervised:
    """The context of code that may take any time and reports no progress: a user's handler.

    A class, because each item runs in one: a generator's context takes two microseconds more.
    """

    __slots__ = ("_progress", "_token")

    def __enter__(self) -> None:
        self._progress = _current.get()
        if self._progress is not None:
            self._progress.report(None)
        self._token = _current.set(None)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
        if self._progress is not None:
            self._progress.report()
