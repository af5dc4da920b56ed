"""Whether some work waits for its commit.

A handler that does not return may be at fault. A handler that waits for a commit is not: it waits for the store.
"""

from __future__ import annotations

from contextvars import ContextVar, Token


class CommitTracker:
    """Tracks the commits of the work inside this context, on this thread.

    `in_progress`: a transaction is being committed, or its result is not known yet. Written by the working thread, read
    by any thread.
    """

    __slots__ = ("_token", "in_progress")

    def __init__(self) -> None:
        self.in_progress = False

    def __enter__(self) -> None:
        self._token: Token[CommitTracker | None] = _current.set(self)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


_current: ContextVar[CommitTracker | None] = ContextVar("committing", default=None)


def track_commit(in_progress: bool) -> None:
    """Note that a commit of this thread's work begins or has ended."""
    committing = _current.get()
    if committing is not None:
        committing.in_progress = in_progress
