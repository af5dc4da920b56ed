"""Slots: the places in which a worker's handlers run, and the only owner of each held item's phase.

Every transition of an item (accepted, started, finished, cancelled, lost, returned, given up, dropped) is one method
here, under one lock. So two loops that want different things of an item (its handler ends, its lease expires, its
timeout passes, the worker drains) cannot both have it: the first transition decides, and the method returns to the
second caller what it still may do. No method calls another part of the worker. `Job.cancel` may interrupt a coroutine
or a Ray task, which takes locks of the event loop or of the host only.
"""

from collections.abc import Callable, Iterable, Sequence

from fairlead.actors.execution.deadlines import DueWork, due_work
from fairlead.actors.execution.failed_attempt import Failure
from fairlead.actors.execution.in_flight import HeldItem, InFlight, Phase
from fairlead.actors.messages import Report
from fairlead.actors.runtime.host import Host


class Slots:
    """The slots of one worker with the items that wait, run, or have finished. Any thread may call any method.

    Args:
      count: how many handlers run at once.
      isolates: see `InFlight`.
    """

    def __init__(self, host: Host, *, count: int, isolates: bool) -> None:
        self._clock = host.clock
        self._lock = host.lock()
        self._may_start = host.condition(self._lock)  # Idle slots wait for it.
        self._holds_some = host.condition(self._lock)  # The deadlines loop waits for it while nothing is held.
        self._left = host.condition(self._lock)  # The manager and a drain wait for it.
        self._stopped = host.condition(self._lock)  # The deadlines loop waits for it between two ticks.
        self._in_flight = InFlight(slots=count, incarnation=host.incarnation, isolates=isolates)
        self._idle = 0  # Slots that wait.
        self._woken = False  # One of them was notified, and does not run yet.
        self._returning = 0  # Items whose return is not committed yet; some are not held any more.
        self._stopping = False

    # --- Called by a slot ---

    def take(self) -> HeldItem | None:
        """Wait for an item that may start, and let it start. None: the worker stops."""
        with self._lock:
            while (held := self._in_flight.next_to_run(self._clock.now_us())) is None:
                if self._stopping:
                    return None
                self._idle += 1
                self._may_start.wait()
                self._idle -= 1
                self._woken = False
            self._wake_slot()
            return held

    def finish(self, held: HeldItem) -> HeldItem | None:
        """Note that the handler of an item has ended; return the next item if one may start now.

        Both in one step, because a step costs as much as a handler that does nothing. A given-up item stays given up,
        and then nothing starts: another slot has replaced the caller.
        """
        with self._lock:
            if held.phase is Phase.GIVEN_UP:
                return None
            now_us = self._clock.now_us()
            self._in_flight.finish(held, now_us)
            following = self._in_flight.next_to_run(now_us)
            if following is not None:
                self._wake_slot()
            return following

    def fail(self, held: HeldItem, failure: Failure | None) -> bool:
        """Note what the error of a handler means; False if its item was cancelled before, and the error is too late."""
        with self._lock:
            if held.job.cancelled:
                return False
            held.failure = failure
            return True

    # --- Called by the manager ---

    def accept(self, items: Iterable[HeldItem]) -> Report | None:
        """Accept items to run, and return a report. None: the worker drains, and accepts none of them."""
        with self._lock:
            if not self._in_flight.accepting:
                return None
            for held in items:
                self._in_flight.accept(held)
            self._wake_slot()
            self._holds_some.notify_all()
            return self._in_flight.report()

    def report(self) -> Report:
        """Return a report."""
        with self._lock:
            return self._in_flight.report()

    def await_progress(self, seen: int, timeout_s: float) -> Report:
        """Return a report once `progress` is not `seen` any more, or after `timeout_s`."""
        with self._lock:
            if self._in_flight.progress == seen:
                self._left.wait(timeout_s)
            return self._in_flight.report()

    # --- Called by the loops ---

    def await_items(self, pause_s: float) -> bool:
        """Wait for `pause_s`, and then until an item is held. False: the worker stops."""
        with self._lock:
            if not self._stopping:
                self._stopped.wait(pause_s)
            while not len(self._in_flight) and not self._stopping:
                self._holds_some.wait()
            return not self._stopping

    def take_due_work(self, lease_us: int) -> DueWork:
        """Return what is due for the held items.

        Items that ran past their timeout, lost their lease, or are returned are cancelled by then; stuck ones are given
        up. The caller does the rest: it hands items over to the loops of their shards, and replaces slots.
        """
        with self._lock:
            now_us = self._clock.now_us()
            due = due_work(self._in_flight, now_us=now_us, lease_us=lease_us)
            for held in due.time_out:
                held.timed_out = True
                held.cancel(now_us)
            for held in due.lost:
                self._lose(held, now_us)
            for held in due.stuck:
                self._in_flight.give_up(held)
            self._begin_return(due.return_now, now_us)
            if due.lost or due.stuck:
                self._note_left()
            return due

    def extend(self, items: Iterable[HeldItem], until_us: int) -> None:
        """Note that leases were extended; a claim is renewed then like a lease."""
        with self._lock:
            for held in items:
                held.lease_until_us = until_us
                held.claim_until_us = held.renewal_us = 0

    def claim(self, items: Iterable[HeldItem], until_us: int, claim_until_us: int, renewal_us: int) -> None:
        """Note that leases became claims; see `HeldItem`."""
        with self._lock:
            for held in items:
                held.claim_until_us, held.renewal_us = claim_until_us, renewal_us
                held.lease_until_us = min(until_us, claim_until_us)

    def keep_claims(self, items: Iterable[HeldItem], until_us: int) -> None:
        """Note that a heartbeat kept claims: their handlers may go on until `until_us`, or the end of their claims."""
        with self._lock:
            for held in items:
                if held.claim_until_us:
                    held.lease_until_us = min(until_us, held.claim_until_us)

    def lose(self, items: Iterable[HeldItem]) -> list[HeldItem]:
        """Cancel items that another worker has leased, or whose lease has expired; return the items that this cancels.

        An item that was cancelled before, or that has finished, stays as it is.
        """
        with self._lock:
            now_us = self._clock.now_us()
            lost = [held for held in items if held.phase is not Phase.FINISHED and not held.job.cancelled]
            for held in lost:
                self._lose(held, now_us)
            if lost:
                self._note_left()
            return lost

    def end_return(self, items: Sequence[HeldItem]) -> None:
        """Note that the return of items was committed, or was refused."""
        with self._lock:
            self._returning -= len(items)
            self._in_flight.note_returned(items)
            self._left.notify_all()

    def drop(self, items: Iterable[HeldItem]) -> None:
        """Forget items whose ends are committed, or were refused for good."""
        with self._lock:
            for held in items:
                self._in_flight.drop(held)
            self._note_left()

    # --- Called by the worker as a whole ---

    def begin_drain(self) -> list[HeldItem]:
        """Accept nothing from now on. Return the items that waited, for the caller to return them to their queues."""
        with self._lock:
            self._in_flight.accepting = False
            waiting = list(self._in_flight.waiting)
            self._begin_return(waiting, self._clock.now_us())
            return waiting

    def cancel_running(self) -> list[HeldItem]:
        """Cancel the items that still run. Return them, for the caller to return them to their queues."""
        with self._lock:
            running = [held for held in self._in_flight if held.phase is Phase.RUNNING]
            self._begin_return(running, self._clock.now_us())
            return running

    def abandon(self) -> tuple[list[HeldItem], list[HeldItem]]:
        """Accept nothing from now on, and cancel all items that have not ended. Return the ended and the cancelled.

        Items whose return has not ended are among the cancelled: the loop that was to return them may be the dead one.
        """
        with self._lock:
            self._in_flight.accepting = False
            now_us = self._clock.now_us()
            ended = [held for held in self._in_flight if held.phase is Phase.FINISHED or held.failure is not None]
            others = [held for held in self._in_flight if held not in ended]
            for held in others:
                held.cancel(now_us)
            return ended, others + self._in_flight.returning

    def await_empty(self, timeout_us: int) -> int:
        """Wait until no item is held or being returned; return how much of `timeout_us` was not needed."""
        with self._lock:
            return self._await(lambda: not len(self._in_flight) and not self._returning, timeout_us)

    def await_commits(self, timeout_us: int) -> None:
        """Wait until every end and every return has been committed, `timeout_us` at most."""
        with self._lock:
            self._await(
                lambda: not self._returning and all(held.phase is not Phase.FINISHED for held in self._in_flight),
                timeout_us,
            )

    def stop(self) -> None:
        """Let idle slots and the deadlines loop end."""
        with self._lock:
            self._stopping = True
            for condition in (self._may_start, self._holds_some, self._left, self._stopped):
                condition.notify_all()

    # --- For information ---

    def __len__(self) -> int:
        return len(self._in_flight)

    @property
    def has_waiting(self) -> bool:
        """Whether an item waits for a slot. A hint: takes no lock."""
        return bool(self._in_flight.waiting)

    def items(self) -> list[HeldItem]:
        """Return the items that are held."""
        with self._lock:
            return list(self._in_flight)

    # --- The lock is held ---

    def _wake_slot(self) -> None:
        """Wake an idle slot if an item waits, unless one is woken already; that slot wakes the next.

        So a handler that waits lets the next slot start, and handlers that do not wait run one after the other in one
        slot: to wake a thread for each would take longer than the handler.
        """
        if self._idle and not self._woken and self._in_flight.waiting:
            self._woken = True
            self._may_start.notify()

    def _note_left(self) -> None:
        """Notify those that wait for items to leave; another item may start, too."""
        self._left.notify_all()
        self._wake_slot()

    def _lose(self, held: HeldItem, now_us: int) -> None:
        held.cancel(now_us)
        if held.phase is Phase.WAITING:
            self._in_flight.drop(held)

    def _begin_return(self, items: Sequence[HeldItem], now_us: int) -> None:
        """Let items start no more, and interrupt those that run."""
        for held in items:
            if held.phase is Phase.WAITING:
                self._in_flight.begin_return(held, now_us)
            held.cancel(now_us)
        self._returning += len(items)
        if items:
            self._note_left()

    def _await(self, condition: Callable[[], bool], timeout_us: int) -> int:
        """Wait for items to leave until `condition` holds or `timeout_us` have passed; return the unused time.

        If the clock is set back, the wait lasts longer by the time since an item left last, and no more.
        """
        while not condition() and timeout_us > 0:
            begun_us = self._clock.now_us()
            if not self._left.wait(timeout_us / 1e6):
                return 0
            timeout_us -= max(0, self._clock.now_us() - begun_us)
        return max(0, timeout_us)
