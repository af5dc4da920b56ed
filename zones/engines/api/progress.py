"""Progress: how a supervised loop shows that it goes on, from wherever in the code it is.

A loop that stands still cannot say so. So it says the opposite, often: in each turn, in each attempt of a transaction,
and before each sleep, with how long it may now be silent. Its supervisor looks once a second
(`fairlead.actors.runtime.supervisor`). A thread that nobody supervises notes nothing.
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
    """What is known of one loop. Written by its own thread, read by its supervisor; no lock, since each field is whole.

    Args:
      name: of the loop.
      stalled: called by the supervisor if the loop stands still; None: that fails the actor.
    """

    __slots__ = ("_allowed_silence_us", "_has_reported", "name", "silent_us", "stalled", "thread_id")

    def __init__(self, name: str, stalled: Callable[[], None] | None = None) -> None:
        self.name = name
        self.stalled = stalled
        self.thread_id = threading.get_ident()
        self.silent_us = 0  # for how long nothing was heard, as of the last look
        self._has_reported = True
        self._allowed_silence_us: int | None = 0

    def report(self, allowed_silence_us: int | None = 0) -> None:
        """Note that the loop goes on, and for how long it may be silent from now on; None: for as long as it likes."""
        self._allowed_silence_us = allowed_silence_us
        self._has_reported = True

    def overdue_us(self, passed_us: int) -> int:
        """Return by how much the loop has been silent for longer than it said. `passed_us`: since the last look."""
        allowed_silence_us = self._allowed_silence_us
        if self._has_reported or allowed_silence_us is None:
            self._has_reported = False
            self.silent_us = 0
            return 0
        self.silent_us += passed_us
        return max(0, self.silent_us - allowed_silence_us)


_current: ContextVar[LoopProgress | None] = ContextVar("progress", default=None)


def report_loop_progress(allowed_silence_us: int | None = 0) -> None:
    """Note that the loop on this thread goes on; see `LoopProgress.report`."""
    progress = _current.get()
    if progress is not None:
        progress.report(allowed_silence_us)


@contextmanager
def track_loop_progress(progress: LoopProgress | None) -> Iterator[None]:
    """Let what this thread does inside be noted in `progress`; None: nowhere, such as while a user's code runs."""
    token = _current.set(progress)
    try:
        yield
    finally:
        _current.reset(token)


class unsupervised:
    """Run code inside that may take as long as it likes, and says nothing: a user's handler.

    A class, since each item is run in one: a generator's context takes two microseconds more.
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
