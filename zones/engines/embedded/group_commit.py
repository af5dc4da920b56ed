"""Group commit: threads that wait at the same time share one LMDB transaction, and with it one fsync.

The first thread that waits becomes the leader and commits everything that is queued, on its own thread, from begin to
end (LMDB's rule for write transactions); who comes meanwhile queues up and is the next group. So a commit without
company costs no hand-over between threads, and there is no thread to start, stop or lose in a fork.

An exception may be raised in any of these threads at any instant: by a signal's handler, in the main thread. A thread
has a duty to others that comes first: the leader's is its group, a waiting thread's is the lead, if it was handed over.
So the exception is kept until the duty is done. Every step of it can be taken again from where it was interrupted;
what it depends on is therefore kept in the objects, never in a thread's variables alone.
"""

from __future__ import annotations

import _thread
import threading
import traceback
from collections.abc import Callable, Iterable
from typing import Any, Final

from fairlead.zones.engines.api.errors import COMMIT_UNKNOWN_RESULT, TRANSACTION_CANCELLED, StoreError
from fairlead.zones.engines.optimistic.commit import CommitRequest

# A duty is taken up again so often. Signals come one at a time: what interrupts it more often is an error in here.
INTERRUPTIONS_MAX: Final = 8


class QueuedCommit:
    """The future of a commit in the queue. Whoever asks for the answer may find itself doing the work.

    Attributes:
      waiter: locked, and released when its thread is to wake: with the answer, or to lead. None if no thread waits.
    """

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
            self._group.await_answer(self)

    def is_ready(self) -> bool:
        """Whether it has been answered. Commits the queue on this thread if nobody else is about to."""
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
        """Wake its thread. Under the group's mutex, so that nobody wakes a thread that is awake already."""
        waiter, self.waiter = self.waiter, None
        if waiter is not None:
            waiter.release()


class _Duty:
    """What a thread does for others while it sees a commit through.

    Attributes:
      group: what it leads, as far as that has not been seen through.
      waiter: what it waits for; None if it leads.
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
          commit_all: answers every request, in order, without raising for any of them. Interrupted, it is called again.
          afterwards: called for each request when another thread may lead already, so that it may commit itself.
        """
        self._commit_all = commit_all
        self._on_answered = on_answered
        self._mutex = threading.Lock()
        self._queue: list[QueuedCommit] = []
        self._leader: object = None  # A thread's `_Duty`, or what `pause` returned; None if the lead is free.
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
                    duty.waiter.acquire()  # Released when the leader is done: with the answer, or with the lead.
        except BaseException as interruption:
            self._finish_duty(interruption, duty, queued)
            raise

    def lead_if_free(self, queued: QueuedCommit) -> None:
        """Commit what is queued, `queued` among it, unless another thread is at it."""
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
        """Wait until no thread leads, and let none lead until `resume` with what this returns. For forks."""
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
            self._hand_over(pause_token, [])  # Again, if it was interrupted.

    def reset(self) -> None:
        """Start anew in a forked child: what was queued is the parent's to commit."""
        queue, self._queue = self._queue, []
        self._mutex = threading.Lock()
        self._pausing = []
        self._leader = None
        for queued in queue:
            queued.request.withdraw(StoreError(TRANSACTION_CANCELLED))

    def _lead_or_wait(self, duty: _Duty, queued: QueuedCommit) -> bool:
        """Take the lead, or note in `duty` what to wait for; False if it has been answered."""
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
        """See a group through, or what is left to do of that."""
        group = duty.group
        if self._leader is duty:
            self._commit_all([queued.request for queued in group])
            self._hand_over(duty, group)
        while group:
            self._on_answered(group[0].request)
            group[0].call_back()
            del group[0]

    def _hand_over(self, leader: object, group: Iterable[QueuedCommit]) -> None:
        """Wake who has been answered; give up the lead: to who wants to pause, else to who waits in the queue."""
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
        """Wake a thread that waits in the queue, if there is one: it takes the lead unless another does so before."""
        for queued in self._queue:
            if queued.waiter is not None:
                queued.wake()
                return

    def _finish_duty(
        self, interruption: BaseException, duty: _Duty, queued: QueuedCommit, left: int = INTERRUPTIONS_MAX
    ) -> None:
        """Do what others depend on this thread for, before it goes the way of an exception."""
        _clear_frames(interruption)
        try:
            if not left:
                _give_up(duty.group)
            self._lead(duty)
            with self._mutex:
                if queued.waiter is duty.waiter:
                    queued.waiter = None
                if self._leader is None:  # This thread was woken to lead, perhaps.
                    self._wake_next()
        except BaseException as again:
            if left:
                self._finish_duty(again, duty, queued, left - 1)
            raise


def _give_up(group: list[QueuedCommit]) -> None:
    """Answer that nobody knows what became of a group."""
    for queued in group:
        if not queued.request.done:
            queued.request.fail(StoreError(COMMIT_UNKNOWN_RESULT))


def _clear_frames(interruption: BaseException) -> None:
    """Let go of what the calls that it ended still hold: LMDB's transaction, and with it the write lock."""
    error: BaseException | None = interruption
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__
