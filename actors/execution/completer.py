"""What a worker owes one shard: the ends of its items, their leases, and what it cannot run.

Two loops per shard, so that a shard that refuses holds up no other, and ends wait for nothing but commits:
    settling   commits the ends of all that finished while the last commit was under way
    renewing   extends leases, requeues what ran past its timeout, gives back what waited too long, writes the timesheet
They do what `Worker` has decided, and share its table. None of them decides whether a handler may go on: that must not
wait for a store.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from fairlead.actors.execution import acknowledgement
from fairlead.actors.execution.deadlines import Chores
from fairlead.actors.execution.failed_attempt import Cause, Failure
from fairlead.actors.execution.failure_log import FailureLog
from fairlead.actors.execution.in_flight import HeldItem, InFlight, Phase
from fairlead.actors.execution.runner import timeout_of
from fairlead.actors.execution.status_reporting import StatusReporter, StatusUpdate
from fairlead.actors.execution.zone_by_zone import zone_by_zone
from fairlead.actors.runtime.actor_identity import Identity
from fairlead.actors.runtime.host import Condition, Host, Lock
from fairlead.actors.runtime.rate_limited_log import RateLimitedLog
from fairlead.actors.settings import ConsumerSettings
from fairlead.actors.telemetry.outcome_counts import OutcomeCounts
from fairlead.zones.engines.api.errors import MAYBE_COMMITTED, TRANSACTION_TOO_LARGE, error_code
from fairlead.zones.probes import probe
from fairlead.zones.queue.items import Outcome
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

log = logging.getLogger("fairlead.worker")

SETTLE_MAX = 512  # Items in one settling transaction.
EXTEND_MAX = 256  # Items in one extending transaction.
STORE_RETRY_S = 0.5


@dataclass(slots=True)
class WorkerState:
    """What the loops of a worker share, under one lock.

    Attributes:
      arrived: notified when an item may start: idle slots wait for it.
      left: notified when items have left: the manager and a drain wait for it.
      failures: what is told of handlers that fail.
      handled: what telemetry counts of attempts.
      idle_slots, slot_called: how many slots wait, and whether one of them has been notified and has not come yet.
      returning: items that no longer are held here, and whose requeue is still to be committed.
    """

    in_flight: InFlight
    lock: Lock
    arrived: Condition
    left: Condition
    failure_log: FailureLog
    outcome_counts: OutcomeCounts
    counts: Counter[str] = field(default_factory=Counter)
    idle_slots: int = 0
    slot_woken: bool = False
    returning: int = 0
    stopping: bool = False

    def wake_slot(self) -> None:
        """Call an idle slot if an item waits, unless one is on its way; that one calls the next. The lock is held.

        So a handler that waits lets the next slot come, and of handlers that do not, one slot runs one after the other:
        to wake a thread for each would take longer than they do.
        """
        if self.idle_slots and not self.slot_woken and self.in_flight.waiting:
            self.slot_woken = True
            self.arrived.notify()

    def await_wake(self) -> None:
        """Wait, as a slot, until an item may start. The lock is held."""
        self.idle_slots += 1
        self.arrived.wait()
        self.idle_slots -= 1
        self.slot_woken = False

    def note_left(self) -> None:
        """Tell everybody that items have left, which may let others start. The lock is held."""
        self.left.notify_all()
        self.wake_slot()


class Custody:
    """A worker's dealings with one shard. `start` starts its loops; they end once the table is `stopping`."""

    def __init__(
        self, host: Host, shard: Shard, settings: ConsumerSettings, state: WorkerState, identity: Identity
    ) -> None:
        self._host = host
        self._shard = shard
        self._lease_us = settings.lease_ms * 1000
        self._linger_s = settings.linger_ms / 1000
        self._state = state
        self._finished: list[HeldItem] = []
        self._extend: Sequence[HeldItem] = ()
        self._timed_out: list[HeldItem] = []
        self._returning: list[HeldItem] = []
        self._status_reporter = StatusReporter(shard, identity, incarnation=host.incarnation, slots=settings.slots)
        self._status_update: StatusUpdate | None = None
        self._writing = False  # an account that is not here any more
        self._ended = host.condition(state.lock)
        self._due = host.condition(state.lock)
        self._pause = host.condition(state.lock)  # notified when the worker stops
        self._refusal_log = RateLimitedLog(
            host.clock, log, "shard %s refuses; what it is not told in time will lapse: %s"
        )

    def start(self) -> None:
        """Start the loops."""
        self._host.spawn("settling", self._run_settling)
        self._host.spawn("renewing", self._run_renewing)

    # --- Called with the table's lock held ---

    def finish(self, held: HeldItem) -> None:
        """Take over an item whose handler has ended."""
        self._finished.append(held)
        if len(self._finished) == 1:  # The loop waits for the first.
            self._ended.notify()

    def take(self, work: Chores) -> None:
        """Take over what is to be done for items of this shard. Each is due again later if it cannot be done now."""
        self._extend = work.extend
        self._timed_out += work.time_out
        self._returning += work.give_back
        self._state.returning += len(work.give_back)
        self._due.notify()

    def lose(self, held: HeldItem) -> None:
        """Count an item that its worker has lost."""
        self._note([(held, "lost")])

    def give_up(self, held: HeldItem) -> None:
        """Count the time of a handler that does not listen; how it ends is nobody's concern any more."""
        self._note_times([held], until_us=self._host.clock.now_us())

    def tick(self, *, holds: bool) -> bool:
        """Write the timesheet if it is time to; say whether there is something to write, now or later.

        `holds`: whether the worker holds an item of this shard.
        """
        now_us, reporter = self._host.clock.now_us(), self._status_reporter
        if holds:
            reporter.begin(now_us)
        if not self.is_writing and reporter.is_due(now_us):
            self._status_update = reporter.status_update(self._state.in_flight, now_us=now_us)
            self._due.notify()
        return reporter.unwritten or self.is_writing

    def stop(self) -> None:
        """Let the loops end, once they have done what they have."""
        if self._status_reporter.unwritten:
            self._status_update = self._status_reporter.status_update(
                self._state.in_flight, now_us=self._host.clock.now_us()
            )
        for condition in (self._ended, self._due, self._pause):
            condition.notify_all()

    @property
    def is_writing(self) -> bool:
        """Whether an account is still to be written, or is being."""
        return self._writing or self._status_update is not None

    def _note(self, settled: acknowledgement.Settled) -> None:
        now_us = self._host.clock.now_us()
        for (kind, outcome), count in Counter((held.ref.kind, outcome) for held, outcome in settled).items():
            self._state.counts[outcome] += count
            self._state.outcome_counts.settle(kind, outcome, count)
            self._status_reporter.note(kind, outcome, count, now_us=now_us)

    def _note_times(self, items: Iterable[HeldItem], *, until_us: int | None = None) -> None:
        """Count the time of handlers that have begun, to their end or until then.

        A clock that was set back meanwhile makes it none.
        """
        runs = [
            (held.ref, (held.ended_us if until_us is None else until_us) - held.began_us)
            for held in items
            if held.began_us
        ]
        if runs:
            self._status_reporter.note_times(runs, now_us=self._host.clock.now_us())

    # --- Called without ---

    def extend(
        self, items: Sequence[HeldItem], lease_us: int, *, started: bool = False, ran_isolated: bool = False
    ) -> None:
        """Extend leases in one transaction; cancel the items that are lost. The marks: see `extend_op`.

        Errors: what the store raises; then no lease was extended.
        """

        def body(attempt: Attempt) -> tuple[int, list[Outcome]]:
            tr, now_us = attempt.tr, attempt.now_us
            outcomes = zone_by_zone(
                self._shard,
                [held.ref for held in items],
                lambda zone, held: zone.extend_op(
                    tr, held, lease_us=lease_us, now_us=now_us, started=started, ran_isolated=ran_isolated
                ),
            )
            return now_us + lease_us, outcomes

        until_us, outcomes = self._shard.transact(self._shard.in_exclusive_section(body))
        with self._state.lock:
            for held, outcome in zip(items, outcomes, strict=True):
                if outcome is Outcome.DONE or (outcome is Outcome.GONE and acknowledgement.may_be_completed(held)):
                    held.lease_until_us = until_us
                elif held.phase is not Phase.FINISHED and not held.job.cancelled:
                    self._lose(held)

    def _lose(self, held: HeldItem) -> None:
        """Cancel an item that somebody else has taken over. The lock is held."""
        probe("an extension finds its item taken over or gone")
        held.cancel(self._host.clock.now_us())
        self._note([(held, "lost")])
        if held.phase is Phase.WAITING:
            self._state.in_flight.drop(held)
            self._state.note_left()

    def give_back(self, items: Sequence[HeldItem]) -> None:
        """Let items vest now, see `acknowledgement.return_items`; what the store refuses is left to lapse."""
        for begin in range(0, len(items), SETTLE_MAX):
            refs = [held.ref for held in items[begin : begin + SETTLE_MAX]]
            self.with_store(partial(acknowledgement.return_items, self._shard, refs))

    def with_store(self, work: Callable[[], object]) -> bool:
        """Do `work`, which commits; say whether the store let it."""
        try:
            work()
        except self._shard.db.errors as error:
            self.note_refusal(error)
            return False
        return True

    def note_refusal(self, error: Exception) -> None:
        """Log that the store refuses, unless that has been said."""
        with self._state.lock:
            self._refusal_log.note(self._shard.name, error)

    # --- The loops ---

    def _run_settling(self) -> None:
        state = self._state
        while True:
            with state.lock:
                while not self._finished:
                    if state.stopping:
                        return
                    self._ended.wait()
                if len(self._finished) < SETTLE_MAX and state.in_flight.waiting:
                    self._pause.wait(self._linger_s)
                batch, self._finished = self._finished[:SETTLE_MAX], self._finished[SETTLE_MAX:]
            self.settle(batch)
            with state.lock:
                self._note_times(batch)
                for held in batch:
                    if held.began_us:
                        state.outcome_counts.end(
                            held.ref, began_us=held.began_us, ended_us=held.ended_us, error=held.error
                        )
                    state.in_flight.drop(held)
                state.note_left()

    def settle(self, batch: Sequence[HeldItem], *, once: bool = False) -> None:
        """Commit the ends of items; try as long as a lease stands, or only `once`, then let them lapse."""
        mine = [held for held in batch if not held.job.cancelled and not held.job.completed]
        completed = [held for held in mine if held.failure is None]
        errors = [(held, held.failure) for held in mine if held.failure is not None]
        failed = self._retry_decisions([(held, failure) for held, failure in errors if failure.cause is not Cause.LOST])
        until_us = 0 if once else max((held.lease_until_us for held in mine), default=0)
        settled = [(held, "completed") for held in batch if held.job.completed]
        settled += [(held, "lost") for held, failure in errors if failure.cause is Cause.LOST]
        if mine:
            settled += self._commit_ends(completed, failed, until_us)
        with self._state.lock:
            self._note(settled)

    def _commit_ends(
        self, completed: Sequence[HeldItem], failed: Sequence[acknowledgement.RetryDecision], until_us: int
    ) -> acknowledgement.Settled:
        """Commit ends, in halves if they are too large for one transaction; try until the last lease ends."""
        settled: acknowledgement.Settled = [(held, "lost") for held in [*completed, *(each.held for each in failed)]]
        too_large = may_be_done = False

        def work() -> None:
            nonlocal settled, too_large, may_be_done
            try:
                settled = acknowledgement.settle(self._shard, completed, failed, maybe_committed=may_be_done)
            except self._shard.db.errors as error:
                may_be_done = may_be_done or error_code(error) in MAYBE_COMMITTED
                if error_code(error) != TRANSACTION_TOO_LARGE or len(completed) + len(failed) == 1:
                    raise
                too_large = True

        while not self.with_store(work) and self._host.clock.now_us() < until_us:
            probe("the ends of items are committed again after the store refused them")
            with self._state.lock:
                self._pause.wait(STORE_RETRY_S)
        if not too_large:
            return settled
        done, decided = len(completed) // 2, (len(failed) + 1) // 2
        first = self._commit_ends(completed[:done], failed[:decided], until_us)
        return first + self._commit_ends(completed[done:], failed[decided:], until_us)

    def _run_renewing(self) -> None:
        state = self._state
        while True:
            with state.lock:
                while not (self._extend or self._timed_out or self._returning or self._status_update):
                    if state.stopping:
                        return
                    self._due.wait()
                status_update, self._status_update = self._status_update, None
                self._writing = status_update is not None
                extend, self._extend = self._extend, ()
                timed_out, self._timed_out = self._timed_out, []
                returning, self._returning = self._returning, []
            self._renew(extend)
            self._time_out(timed_out)
            self.give_back(returning)
            if status_update is not None:
                self._write(status_update)
            if returning or status_update is not None:
                with state.lock:
                    self._writing = False
                    state.returning -= len(returning)
                    state.in_flight.note_returned(returning)
                    state.left.notify_all()

    def _renew(self, items: Sequence[HeldItem]) -> None:
        for begin in range(0, len(items), EXTEND_MAX):
            self.with_store(partial(self.extend, items[begin : begin + EXTEND_MAX], self._lease_us))

    def _write(self, status_update: StatusUpdate) -> None:
        reporter = self._status_reporter
        lost: list[HeldItem] = []
        written = self._takes(lambda: lost.extend(reporter.write(status_update)))
        with self._state.lock:
            if written:
                reporter.note_written(status_update)
            else:
                reporter.begin(self._host.clock.now_us())
            for held in lost:
                if held.phase is Phase.RUNNING and not (
                    held.job.cancelled or held.job.may_be_completed or held.is_ending
                ):
                    self._lose(held)
        for begin in range(0, len(status_update.progress), EXTEND_MAX):
            self._takes(partial(reporter.write_progress, status_update.progress[begin : begin + EXTEND_MAX]))

    def _takes(self, work: Callable[[], object]) -> bool:
        """Do `work`, which writes on the timesheet; say whether the store let it."""
        try:
            work()
        except self._shard.db.errors as error:
            # What holds for ends and leases is said by them: a disk that is nearly full may take a sheet all the same.
            log.debug("shard %s does not take this worker's timesheet: %s", self._shard.name, error)
            return False
        return True

    def _time_out(self, items: Sequence[HeldItem]) -> None:
        """Requeue items whose handlers ran past their timeout; the handlers' own ends no longer count.

        Tried once: what the store refuses lapses, and the leases of others must not wait for it.
        """
        if items:
            # A failure that came before stands, and only its hooks ran on: they were told of it.
            failed = [(held, held.failure or timeout_of(held, self._host.clock)) for held in items]
            decisions = self._retry_decisions(failed)
            settled = self._commit_ends([], decisions, until_us=0)
            with self._state.lock:
                self._note(settled)

    def _retry_decisions(self, failed: Sequence[tuple[HeldItem, Failure]]) -> list[acknowledgement.RetryDecision]:
        now_us, random = self._host.clock.now_us(), self._host.random
        decisions = [
            acknowledgement.decide_retry(held, failure, now_us=now_us, random=random) for held, failure in failed
        ]
        with self._state.lock:
            for (held, failure), decision in zip(failed, decisions, strict=True):
                if failure.cause is not Cause.GONE:
                    self._state.failure_log.note(decision)
                    self._state.outcome_counts.fail(held.ref.kind)
        return decisions
