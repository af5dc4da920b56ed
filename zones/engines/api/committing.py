"""Whether some work waits for its commit, for those who judge how long the work takes.

Code that a user has written, and that does not come back, may be at fault. One that waits for a commit is not: what it
waits for is the store.
"""

from __future__ import annotations

from contextvars import ContextVar, Token


class CommitTracker:
    """Work that is done inside, on this thread.

    `in_progress`: a transaction of it is being committed, or was, and it is not known yet whether that has happened.
    Written by the thread that works, read by any.
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
    """Note that a commit of what this thread does begins or has ended."""
    committing = _current.get()
    if committing is not None:
        committing.in_progress = in_progress
