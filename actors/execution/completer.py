"""The completer: it commits the ends of a worker's items of one place (QuiCK section 6, Algorithm 3, lines 3 to 8).

A place is a shard or an external store.

One transaction ends all items that finished while the last one committed: completed, requeued with a backoff, moved to
the dead letters, or dropped. Each event is recorded here and nowhere else, in `AttemptCounts`.

An item whose tenant is locked is left out, and tried again in 10 ms: the others do not wait for it. One whose tenant
has moved is handed over to the completer of the shard where the tenant lives now.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Protocol

from fairlead.actors.execution.acknowledgement import RefusedEnd, Settled, Settlement
from fairlead.actors.execution.failed_attempt import Cause, Failure
from fairlead.actors.execution.failure_log import FailureLog
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.item_ends import ItemEnds
from fairlead.actors.execution.moved_items import DecidedEnd, FollowTenant
from fairlead.actors.execution.retry_decision import RetryDecision, decide_retry
from fairlead.actors.execution.runner import timeout_of
from fairlead.actors.execution.shard_access import StoreAccess
from fairlead.actors.execution.slots import Slots
from fairlead.actors.runtime.host import Host
from fairlead.zones.engines.api.errors import MAYBE_COMMITTED, TRANSACTION_TOO_LARGE, error_code
from fairlead.zones.errors import TenantLocked, TenantMoved
from fairlead.zones.probes import probe
from fairlead.zones.spanning.lock_wait import LockWait

COMPLETE_MAX = 512  # Items in one transaction that ends them.
STORE_RETRY_S = 0.5
LOCKED_RETRY_S = 0.01  # A transaction across shards holds its locks for a few commits.

Finished = tuple[HeldItem, Failure | None]  # None: the attempt has not failed.


class AttemptCounts(Protocol):
    """Where a completer records what became of attempts; see `ShardCounts`."""

    def record(self, settled: Settled, ended: Iterable[HeldItem] = ()) -> None:
        """Count what became of items, and how long the handlers of `ended` ran: to their ends, or until now."""
        ...

    def record_failures(self, items: Iterable[HeldItem]) -> None:
        """Count attempts that raised an error, or ran too long."""
        ...

    def record_event(self, name: str, items: Sequence[HeldItem]) -> None:
        """Count items to which something happened that is no outcome: `timed_out` or `returned`."""
        ...


class Completer:
    """The ends of one worker's items of one place.

    Args:
      follow: returns the worker's loops for the shard where the tenant of an item lives now.
      linger_s: how long an end waits for others while items wait.
    """

    def __init__(
        self,
        host: Host,
        access: StoreAccess,
        ends: ItemEnds,
        slots: Slots,
        counts: AttemptCounts,
        failure_log: FailureLog,
        *,
        follow: FollowTenant,
        linger_s: float,
    ) -> None:
        self._host = host
        self._access = access
        self._ends = ends
        self._slots = slots
        self._counts = counts
        self._failure_log = failure_log
        self._follow = follow
        self._linger_s = linger_s
        self._lock = host.lock()
        self._first_finished = host.condition(self._lock)
        self._stopped = host.condition(self._lock)
        self._finished: list[Finished] = []
        self._decided: list[DecidedEnd] = []  # To be committed again.
        self._lock_wait: LockWait | None = None  # While some are there because of locks.
        self._stopping = False

    def start(self) -> None:
        """Start the loop."""
        self._host.spawn("completer", self._run)

    def stop(self) -> None:
        """Let the loop end once it has committed what has finished."""
        with self._lock:
            self._stopping = True
            self._first_finished.notify_all()
            self._stopped.notify_all()

    # --- Called by a slot ---

    def complete(self, held: HeldItem) -> None:
        """Have an item completed whose handler has ended without a failure (Algorithm 3, line 7)."""
        self._add((held, None))

    def requeue(self, held: HeldItem, failure: Failure) -> None:
        """Have an item requeued that has failed, or ended as its retry policy says (Algorithm 3, lines 4 and 5)."""
        self._add((held, failure))

    def _add(self, finished: Finished) -> None:
        with self._lock:
            self._finished.append(finished)
            if len(self._finished) == 1:  # The loop waits for the first.
                self._first_finished.notify()

    # --- Records what happened to items ---

    def note_lost(self, items: Sequence[HeldItem]) -> None:
        """Count items that the worker has lost."""
        if items:
            self._note([(held, "lost") for held in items])

    def note_returned(self, items: Sequence[HeldItem]) -> None:
        """Count items that are returned."""
        self._counts.record_event("returned", items)

    def note_given_up(self, items: Sequence[HeldItem]) -> None:
        """Count the time of handlers that were given up; their ends do not count any more."""
        self._note([], items)

    def _note(self, settled: Settled, ended: Sequence[HeldItem] = ()) -> None:
        """Count and note what became of items, and count the time of handlers that have ended."""
        self._counts.record(settled, ended)
        self._ends.note(settled)

    # --- Waits for the store ---

    def _run(self) -> None:
        while (work := self._next_work()) is not None:
            batch, decided = work
            settled, refused = self._settle(batch, decided)
            self._keep(self._retry_refused(refused, settled))
            lost = {held for held, _ in settled}
            left = {each.held for each in refused} - lost
            # An item that has timed out ends by itself, whatever becomes of its requeue.
            ended = [held for held, _ in batch if held not in left or held.timed_out]
            ended += [held for held, _ in decided if held not in left and not held.timed_out]
            self._note(settled, ended)
            self._slots.drop(ended)

    def _next_work(self) -> tuple[list[Finished], list[DecidedEnd]] | None:
        """Return what has finished, and what is to be committed again, once there is some; None: the loop is to end."""
        with self._lock:
            while not self._finished:
                if self._decided:
                    self._first_finished.wait(LOCKED_RETRY_S)
                    break
                if self._stopping:
                    return None
                self._first_finished.wait()
            if self._finished and len(self._finished) < COMPLETE_MAX and self._slots.has_waiting:
                self._stopped.wait(self._linger_s)
            batch, self._finished = self._finished[:COMPLETE_MAX], self._finished[COMPLETE_MAX:]
            decided, self._decided = self._decided, []
        return batch, decided

    def _retry_refused(self, refused: Sequence[RefusedEnd], settled: Settled) -> list[DecidedEnd]:
        """Hand over the ends of items whose tenants have moved; return those that are to be committed here again.

        Adds to `settled` what is lost: its lease is over, or nobody knows where its tenant lives.
        """
        again: list[DecidedEnd] = []
        if not any(isinstance(each.refusal, TenantLocked) for each in refused):
            self._lock_wait = None
        for held, decision, refusal in refused:
            if self._host.clock.now_us() >= held.lease_until_us:
                settled.append((held, "lost"))
            elif isinstance(refusal, TenantLocked):
                probe("the end of an item is left out because its tenant is locked")
                self._help_unlock(refusal)
                again.append(DecidedEnd(held, decision))
            elif (home := self._follow(held, refusal)) is not None:
                probe("the end of an item follows its tenant to another shard")
                home.take_over(DecidedEnd(held, decision))
            else:
                settled.append((held, "lost"))
        return again

    def _help_unlock(self, locked: TenantLocked) -> None:
        """End a lock whose transaction is decided, or whose process has died."""
        if self._lock_wait is None:
            self._lock_wait = self._ends.begin_lock_wait()
        self._access.succeeds(partial(self._lock_wait.look, locked))

    def take_over(self, end: DecidedEnd) -> None:
        """Have the end of an item committed whose tenant has moved to this shard."""
        self._keep([end])

    def _keep(self, ends: Sequence[DecidedEnd]) -> None:
        with self._lock:
            self._decided += ends
            if ends:
                self._first_finished.notify()

    def settle_once(self, items: Sequence[HeldItem]) -> None:
        """Commit the ends of items in one try, for a worker that is abandoned. If the store refuses, leases expire."""
        self._note(self._once(self._settle([(held, held.failure) for held in items], [], once=True)))

    def time_out(self, items: Sequence[HeldItem]) -> None:
        """Requeue items whose handlers ran past their timeout; the handlers' own ends no longer count.

        In one try, because the leases of other items must not wait for it. If the store refuses, these leases expire.
        An item whose tenant is locked, or has moved, is left to the loop, which tries again.
        """
        self._counts.record_event("timed_out", items)
        # A failure before the timeout counts: its hooks were called with it, and only they ran on.
        failed = [(held, held.failure or timeout_of(held, self._host.clock)) for held in items]
        settled, refused = self._commit([], self._decide(failed), until_us=0)
        self._keep(self._retry_refused(refused, settled))
        self._note(settled)
        for held in items:
            held.failure = None  # See `InFlight.drop`.

    def _once(self, settlement: Settlement) -> Settled:
        """Commit where their tenants live, in one try, what tenants that have moved have refused."""
        settled, refused = settlement
        for held, decision, refusal in refused:
            home = self._follow(held, refusal) if isinstance(refusal, TenantMoved) else None
            settled += [(held, "lost")] if home is None else home.commit_once(DecidedEnd(held, decision))
        return settled

    def commit_once(self, end: DecidedEnd) -> Settled:
        """Commit an end in one try; return what became of the item. If the store refuses, its lease expires."""
        held, decision = end
        settled, refused = self._commit([held] if decision is None else [], [decision] if decision else [], until_us=0)
        return settled + [(each.held, "lost") for each in refused]

    def _settle(self, batch: Sequence[Finished], decided: Sequence[DecidedEnd], *, once: bool = False) -> Settlement:
        """Commit the ends of items; try until the last of their leases expires, or only `once`.

        `decided`: ends that were refused before.
        """
        mine: list[Finished] = []
        settled: Settled = []
        for held, failure in batch:
            end = _committed_end(held)
            if end:
                settled.append((held, end))
            elif not held.job.cancelled:
                mine.append((held, failure))
        completed = [held for held, failure in mine if failure is None]
        errors = [(held, failure) for held, failure in mine if failure is not None]
        self._decide([(held, failure) for held, failure in batch if failure is not None and held.job.committed_end])
        settled += [(held, "lost") for held, failure in errors if failure.cause is Cause.LOST]
        decisions = self._decide([each for each in errors if each[1].cause is not Cause.LOST])
        completed += [held for held, decision in decided if decision is None]
        decisions += [decision for _, decision in decided if decision is not None]
        refused: list[RefusedEnd] = []
        if completed or decisions:
            leases = [held.lease_until_us for held in (*completed, *(each.held for each in decisions))]
            committed = self._commit(completed, decisions, 0 if once else max(leases))
            settled, refused = settled + committed.settled, committed.refused
        return Settlement(settled, refused)

    def _decide(self, failed: Sequence[tuple[HeldItem, Failure]]) -> list[RetryDecision]:
        """Decide when failed items run again, if at all. Log and count the failures."""
        if not failed:
            return []
        now_us, random = self._host.clock.now_us(), self._host.random
        decisions = [decide_retry(held, failure, now_us=now_us, random=random) for held, failure in failed]
        counted = [
            each for each, (_, failure) in zip(decisions, failed, strict=True) if failure.cause is not Cause.GONE
        ]
        self._counts.record_failures([each.held for each in counted])
        for each in counted:
            self._failure_log.note(each)
        return decisions

    def _commit(self, completed: Sequence[HeldItem], failed: Sequence[RetryDecision], until_us: int) -> Settlement:
        """Commit ends, in halves if they are too large for one transaction. Try until `until_us`."""
        settlement = Settlement([(held, "lost") for held in [*completed, *(each.held for each in failed)]], [])
        too_large = may_be_done = False

        def work() -> None:
            nonlocal settlement, too_large, may_be_done
            try:
                settlement = self._ends.settle(completed, failed, maybe_committed=may_be_done)
            except self._access.errors as error:
                may_be_done = may_be_done or error_code(error) in MAYBE_COMMITTED
                if error_code(error) != TRANSACTION_TOO_LARGE or len(completed) + len(failed) == 1:
                    raise
                too_large = True

        while not self._access.succeeds(work) and self._host.clock.now_us() < until_us:
            probe("the ends of items are committed again after the store refused them")
            with self._lock:
                self._stopped.wait(STORE_RETRY_S)
        if not too_large:
            return settlement
        done, decided = len(completed) // 2, (len(failed) + 1) // 2
        first = self._commit(completed[:done], failed[:decided], until_us)
        second = self._commit(completed[done:], failed[decided:], until_us)
        return Settlement(first.settled + second.settled, first.refused + second.refused)


def _committed_end(held: HeldItem) -> str:
    """Return what became of an item whose handler has committed that; empty: it has not."""
    job = held.job
    return job.committed_end or ("completed" if job.completed else "")
