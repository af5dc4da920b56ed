"""Group commit: threads that wait at the same time share one LMDB transaction, and with it one fsync.

The first thread that waits becomes leader. It commits all queued requests on its own thread, because LMDB binds a write
transaction to one thread. Requests that arrive meanwhile are the next group. So a single commit needs no switch between
threads, and there is no extra thread to start, stop or lose in a fork.

A signal handler may raise an exception in the main thread at any instant. The thread then first does its duty to other
threads: a leader completes its group; a waiting thread that was woken to lead passes leadership on. Only then the
exception continues. Each step of a duty can be repeated after an interruption, so its state is kept in objects, never
only in a thread's variables.
"""

from __future__ import annotations

import _thread
import threading
import traceback
from collections.abc import Callable, Iterable
from typing import Any, Final

from fairlead.zones.engines.api.errors import COMMIT_UNKNOWN_RESULT, TRANSACTION_CANCELLED, StoreError
from fairlead.zones.engines.optimistic.commit import CommitRequest

# A duty is resumed this often. Signals come one at a time, so more interruptions are an error of this module.
INTERRUPTIONS_MAX: Final = 8


class QueuedCommit:
    """The future of a commit in the queue. A thread that asks for the answer may become leader and do the work.

    Attributes:
      waiter: a locked lock. Its release wakes the waiting thread, with the answer or to lead. None if no thread waits.
    """

    __slots__ = ("_callbacks", "_group", "request", "waiter")

    def __init__(self, group: GroupCommit, request: CommitRequest) -> None:
        self._group = group
        self.request = request
        self.waiter: _thread.LockType | None = None
        self._callbacks: list[Callable[[Any], None]] = []

    def wait(self) -> None:
        """Return once the commit is durable; raise the error if it failed."""
        self.block_until_ready()
        if self.request.error is not None:
            raise self.request.error

    def block_until_ready(self) -> None:
        """Return once the commit has been answered."""
        if not self.request.done:
            self._group.await_answer(self)

    def is_ready(self) -> bool:
        """Return whether it has been answered. Commits the queue on this thread if no other thread is leader."""
        if not self.request.done:
            self._group.lead_if_free(self)
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

    def wake(self) -> None:
        """Wake its thread. Only under the group's mutex, so that each thread is woken once."""
        waiter, self.waiter = self.waiter, None
        if waiter is not None:
            waiter.release()


class _Duty:
    """What a thread owes to other threads while it waits for its own commit.

    Attributes:
      group: the commits of which it is leader, as far as they have not been completed.
      waiter: the lock that it waits for; None if it is leader.
    """

    __slots__ = ("group", "waiter")

    def __init__(self) -> None:
        self.group: list[QueuedCommit] = []
        self.waiter: _thread.LockType | None = None


class GroupCommit:
    """The queue of one store in one process."""

    def __init__(
        self, commit_all: Callable[[list[CommitRequest]], None], on_answered: Callable[[CommitRequest], None]
    ) -> None:
        """Start with an empty queue.

        Args:
          commit_all: answers every request, in order, and raises for none. It is called again after an interruption.
          on_answered: called for each request after leadership was passed on. It may commit itself.
        """
        self._commit_all = commit_all
        self._on_answered = on_answered
        self._mutex = threading.Lock()
        self._queue: list[QueuedCommit] = []
        self._leader: object = None  # A thread's `_Duty`, or the token of `pause`; None if there is no leader.
        self._pausing: list[_thread.LockType] = []

    def submit(self, request: CommitRequest) -> QueuedCommit:
        """Queue a commit."""
        queued = QueuedCommit(self, request)
        with self._mutex:
            self._queue.append(queued)
        return queued

    def await_answer(self, queued: QueuedCommit) -> None:
        """Return once `queued` has been answered, by this thread or another."""
        duty = _Duty()
        try:
            while self._lead_or_wait(duty, queued):
                if duty.waiter is None:
                    self._lead(duty)
                else:
                    duty.waiter.acquire()  # The leader releases it: with the answer, or to lead next.
        except BaseException as interruption:
            self._finish_duty(interruption, duty, queued)
            raise

    def lead_if_free(self, queued: QueuedCommit) -> None:
        """Commit the queue, with `queued` in it, unless another thread is leader."""
        duty = _Duty()
        try:
            with self._mutex:
                if self._leader is not None:
                    return
                self._become_leader(duty)
            self._lead(duty)
        except BaseException as interruption:
            self._finish_duty(interruption, duty, queued)
            raise

    def pause(self) -> object:
        """Wait until no thread is leader, and let none become leader until `resume`. Returns its token. For forks."""
        pause_token = _thread.allocate_lock()
        pause_token.acquire()
        try:
            with self._mutex:
                if self._leader is None:
                    self._leader = pause_token
                    return pause_token
                self._pausing.append(pause_token)
            pause_token.acquire()
        except BaseException:
            with self._mutex:
                if pause_token in self._pausing:
                    self._pausing.remove(pause_token)
            self.resume(pause_token)
            raise
        return pause_token

    def resume(self, pause_token: object) -> None:
        """End a pause."""
        try:
            self._hand_over(pause_token, [])
        finally:
            self._hand_over(pause_token, [])  # Again, in case the first call was interrupted.

    def reset(self) -> None:
        """Start over in a forked child. The parent commits what was queued."""
        queue, self._queue = self._queue, []
        self._mutex = threading.Lock()
        self._pausing = []
        self._leader = None
        for queued in queue:
            queued.request.withdraw(StoreError(TRANSACTION_CANCELLED))

    def _lead_or_wait(self, duty: _Duty, queued: QueuedCommit) -> bool:
        """Become leader, or set `duty.waiter` to wait; False if `queued` has been answered."""
        with self._mutex:
            if queued.request.done:
                return False
            if self._leader is None:
                duty.waiter = None
                self._become_leader(duty)
            else:
                waiter = _thread.allocate_lock()
                waiter.acquire()
                duty.waiter = queued.waiter = waiter
            return True

    def _become_leader(self, duty: _Duty) -> None:
        self._leader = duty
        duty.group, self._queue = self._queue, []

    def _lead(self, duty: _Duty) -> None:
        """Commit a group and call its callbacks, from where an interruption stopped."""
        group = duty.group
        if self._leader is duty:
            self._commit_all([queued.request for queued in group])
            self._hand_over(duty, group)
        while group:
            self._on_answered(group[0].request)
            group[0].call_back()
            del group[0]

    def _hand_over(self, leader: object, group: Iterable[QueuedCommit]) -> None:
        """Wake answered threads, and give up leadership: to a thread that pauses, else to a waiting thread."""
        with self._mutex:
            for queued in group:
                queued.wake()
            if self._leader is leader:
                if self._pausing:
                    self._leader = pause_token = self._pausing[0]
                    del self._pausing[0]
                    pause_token.release()
                else:
                    self._leader = None
                    self._wake_next()

    def _wake_next(self) -> None:
        """Wake a thread that waits in the queue, if there is one, to become leader."""
        for queued in self._queue:
            if queued.waiter is not None:
                queued.wake()
                return

    def _finish_duty(
        self, interruption: BaseException, duty: _Duty, queued: QueuedCommit, left: int = INTERRUPTIONS_MAX
    ) -> None:
        """Complete the duty to other threads before an exception continues."""
        _clear_frames(interruption)
        try:
            if not left:
                _give_up(duty.group)
            self._lead(duty)
            with self._mutex:
                if queued.waiter is duty.waiter:
                    queued.waiter = None
                if self._leader is None:  # This thread may have been woken to lead.
                    self._wake_next()
        except BaseException as again:
            if left:
                self._finish_duty(again, duty, queued, left - 1)
            raise


def _give_up(group: list[QueuedCommit]) -> None:
    """Answer a group's commits with an unknown result (1021)."""
    for queued in group:
        if not queued.request.done:
            queued.request.fail(StoreError(COMMIT_UNKNOWN_RESULT))


def _clear_frames(interruption: BaseException) -> None:
    """Drop the local variables of the calls that it ended: LMDB's transaction among them, and so the write lock."""
    error: BaseException | None = interruption
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__
