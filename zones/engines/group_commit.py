"""Group commit: threads that wait at the same time share one LMDB transaction, and with it one fsync.

The first thread that waits becomes the leader and commits everything that is queued, on its own thread, from begin to
end (LMDB's rule for write transactions); who comes meanwhile queues up and is the next group. So a commit without
company costs no hand-over between threads, and there is no thread to start, stop or lose in a fork.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from typing import Any

from zones.engines.commit import CommitRequest
from zones.engines.errors import COMMIT_UNKNOWN_RESULT, TRANSACTION_CANCELLED, StoreError


class QueuedCommit:
    """The future of a commit in the queue. Whoever asks for the answer may find itself doing the work."""

    __slots__ = ("_callbacks", "_group", "request", "waiter")

    def __init__(self, group: GroupCommit, request: CommitRequest) -> None:
        self._group = group
        self.request = request
        self.waiter: _thread.LockType | None = None
        self._callbacks: list[Callable[[Any], None]] = []

    def wait(self) -> None:
        """Return once the commit is durable; raise why it is not otherwise."""
        self.block_until_ready()
        if self.request.error is not None:
            raise self.request.error

    def block_until_ready(self) -> None:
        """Return once the commit has been answered."""
        if not self.request.done:
            self._group.see_through(self)

    def is_ready(self) -> bool:
        """Whether it has been answered. Commits the queue on this thread if nobody else is about to."""
        if not self.request.done:
            self._group.lead_if_free()
        return self.request.done

    def on_ready(self, callback: Callable[[Any], None]) -> None:
        """Call `callback(self)` once answered, from the thread that commits; that may be this one, now."""
        self._callbacks.append(callback)
        if self.is_ready():
            self.call_back()

    def call_back(self) -> None:
        """Call the callbacks, each once."""
        while self._callbacks:
            try:
                callback = self._callbacks.pop()
            except IndexError:  # Another thread was quicker.
                return
            callback(self)


class GroupCommit:
    """The queue of one store in one process."""

    def __init__(
        self, commit_all: Callable[[list[CommitRequest]], None], afterwards: Callable[[CommitRequest], None]
    ) -> None:
        """Start with an empty queue.

        Args:
          commit_all: answers every request, in order, without raising for any of them.
          afterwards: called for each request when another thread may lead already, so that it may commit itself.
        """
        self._commit_all = commit_all
        self._afterwards = afterwards
        self._mutex = threading.Lock()
        self._queue: list[QueuedCommit] = []
        self._led = False
        self._pausing: list[_thread.LockType] = []

    def submit(self, request: CommitRequest) -> QueuedCommit:
        """Queue a commit."""
        queued = QueuedCommit(self, request)
        with self._mutex:
            self._queue.append(queued)
        return queued

    def see_through(self, queued: QueuedCommit) -> None:
        """Return once `queued` has been answered, by this thread or another."""
        while True:
            with self._mutex:
                if queued.request.done:
                    return
                if not self._led:
                    group = self._take_lead()
                    waiter = None
                else:
                    waiter = queued.waiter = _thread.allocate_lock()
                    waiter.acquire()
            if waiter is None:
                self._lead(group)
            else:
                waiter.acquire()  # Released when the leader is done: with the answer, or with the lead.

    def lead_if_free(self) -> None:
        """Commit what is queued, unless another thread is at it."""
        with self._mutex:
            if self._led:
                return
            group = self._take_lead()
        self._lead(group)

    def pause(self) -> None:
        """Wait until no thread leads, and let none lead until `resume`. For forks."""
        with self._mutex:
            if not self._led:
                self._led = True
                return
            turn = _thread.allocate_lock()
            turn.acquire()
            self._pausing.append(turn)
        turn.acquire()

    def resume(self) -> None:
        """End a pause."""
        self._hand_over([])

    def forget(self) -> None:
        """Start anew in a forked child: what was queued is the parent's to commit."""
        queue, self._queue = self._queue, []
        self._mutex = threading.Lock()
        self._pausing = []
        self._led = False
        for queued in queue:
            queued.request.withdraw(StoreError(TRANSACTION_CANCELLED))

    def _take_lead(self) -> list[QueuedCommit]:
        self._led = True
        group, self._queue = self._queue, []
        return group

    def _lead(self, group: list[QueuedCommit]) -> None:
        try:
            self._commit_all([queued.request for queued in group])
        finally:
            for queued in group:
                if not queued.request.done:  # Interrupted, perhaps in the middle of the commit.
                    queued.request.fail(StoreError(COMMIT_UNKNOWN_RESULT))
            self._hand_over(group)
        for queued in group:
            self._afterwards(queued.request)
            queued.call_back()

    def _hand_over(self, group: list[QueuedCommit]) -> None:
        """Give up the lead: to who wants to pause, else to who waits in the queue; wake who has been answered."""
        with self._mutex:
            woken = [queued for queued in group if queued.waiter is not None]
            turn = self._pausing.pop(0) if self._pausing else None
            if turn is None:
                self._led = False
                woken += [queued for queued in self._queue if queued.waiter is not None][:1]
            # Taken away here, so that nobody wakes a thread that is awake already but has not come round to it.
            waiters = [queued.waiter for queued in woken]
            for queued in woken:
                queued.waiter = None
        for waiter in waiters:
            assert waiter is not None
            waiter.release()
        if turn is not None:
            turn.release()
