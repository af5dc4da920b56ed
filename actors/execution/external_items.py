"""What a worker does with items that lie in an external store: their ends and their leases (QuiCK section 6.1).

Each batch is one statement in the store. A row that a user's transaction has locked is left out of it, and tried again:
an open cancellation of one item holds up no other.
"""

from collections.abc import Callable, Sequence

import msgspec

from fairlead.actors.execution import acknowledgement
from fairlead.actors.execution.acknowledgement import Settled, Settlement
from fairlead.actors.execution.external_claims import leases_of
from fairlead.actors.execution.external_end_log import ExternalEndLog
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.retry_decision import RetryDecision
from fairlead.actors.handlers import Form
from fairlead.actors.messages import ItemRef
from fairlead.zones.engines import Clock
from fairlead.zones.external.store import ExternalStore, ItemLease, Start
from fairlead.zones.probes import probe
from fairlead.zones.queue.items import Outcome
from fairlead.zones.queue.stored_item import shortened
from fairlead.zones.records import DeadLetterRecord, ItemRecord
from fairlead.zones.spanning.lock_wait import LockWait

LOCKED_RETRY_US = 10_000
LOCKED_TRIES = 200  # Two seconds: then its lease may end, and it runs again.


class ExternalEnds:
    """The ends of items of one store; see `ItemEnds`. `end_log`: is told of them; None: the caller writes them."""

    def __init__(self, store: ExternalStore, clock: Clock, end_log: ExternalEndLog | None = None) -> None:
        self._store = store
        self._clock = clock
        self._end_log = end_log

    def settle(
        self, completed: Sequence[HeldItem], failed: Sequence[RetryDecision], *, maybe_committed: bool = False
    ) -> Settlement:
        """See `ItemEnds`. Several statements: those that complete, requeue, and make dead letters."""
        settled = self._settle(completed, self._complete, "completed")
        again = [each for each in failed if each.delay_us is not None]
        dropped = [each for each in failed if each.delay_us is None and each.held.handler.drop]
        dead = [each for each in failed if each.delay_us is None and not each.held.handler.drop]
        settled += self._settle([each.held for each in again], lambda some: self._requeue(again, some), "retried")
        settled += self._settle(
            [each.held for each in dropped], lambda some: self._store.complete(leases_of(some)), "dropped"
        )
        settled += self._settle(
            [each.held for each in dead], lambda some: self._make_dead_letters(dead, some), "dead_lettered"
        )
        ended = {*completed} if maybe_committed else set()
        return Settlement([(held, _known(held, became, held in ended)) for held, became in settled], [])

    def note(self, settled: Settled) -> None:
        """See `ItemEnds`."""
        if self._end_log is not None:
            self._end_log.note(settled)

    def begin_lock_wait(self) -> LockWait:
        """Never called: an external store refuses no end because of a lock."""
        raise AssertionError("an external store has no locks of transactions across shards")

    def _complete(self, items: Sequence[HeldItem]) -> list[Outcome | None]:
        keeps = [max(held.record.unique_us, held.job.keeps_result_us if held.result else 0) for held in items]
        return self._store.complete(leases_of(items), keeps_us=keeps, results=[held.result for held in items])

    def _requeue(self, decisions: Sequence[RetryDecision], items: Sequence[HeldItem]) -> list[Outcome | None]:
        by_item = {decision.held: decision for decision in decisions}
        some = [by_item[held] for held in items]
        return self._store.requeue(
            leases_of(items),
            [each.delay_us for each in some],
            [_after_failure(each) for each in some],
            tracebacks=[shortened(each.traceback) for each in some],
        )

    def _make_dead_letters(self, decisions: Sequence[RetryDecision], items: Sequence[HeldItem]) -> list[Outcome | None]:
        by_item = {decision.held: decision for decision in decisions}
        now_us = self._clock.now_us()
        records = [
            DeadLetterRecord(_after_failure(each), "error", shortened(each.error), shortened(each.traceback), now_us)
            for each in (by_item[held] for held in items)
        ]
        return self._store.dead_letter(leases_of(items), records)

    def _settle(
        self,
        items: Sequence[HeldItem],
        change: Callable[[Sequence[HeldItem]], list[Outcome | None]],
        done: str,
    ) -> Settled:
        """Change items, locked ones again and again; return what became of each, `gone` if it is not there."""
        settled: Settled = []
        for _ in range(LOCKED_TRIES):
            if not items:
                return settled
            outcomes = list(zip(items, change(items), strict=True))
            settled += [(held, _became(outcome, done)) for held, outcome in outcomes if outcome is not None]
            items = [held for held, outcome in outcomes if outcome is None]
            if items:
                probe("the end of an external item waits for another transaction")
                self._clock.sleep_us(LOCKED_RETRY_US)
        return settled + [(held, "lost") for held in items]


class ExternalLeases:
    """The leases of items of one store. See `HeldLeases`."""

    def __init__(self, store: ExternalStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def start(self, held: HeldItem, lease_us: int, *, ran_isolated: bool) -> tuple[int, Outcome]:
        """See `HeldLeases`. An item that is locked keeps the lease that it has."""
        until_us = self._clock.now_us() + lease_us
        begins = Start.ISOLATED if ran_isolated else Start.BESIDE_OTHERS
        (outcome,) = self._store.extend(leases_of([held]), lease_us=lease_us, begins=begins)
        return (held.lease_until_us, Outcome.DONE) if outcome is None else (until_us, outcome)

    def return_items(self, items: Sequence[HeldItem]) -> None:
        """See `HeldLeases`. Progress that a handler has reported is stored: another worker goes on from it.

        The transaction of a handler that is interrupted holds its item until it is rolled back.
        """
        left = items
        for _ in range(LOCKED_TRIES):
            histories = [_after_return(held) for held in left]
            outcomes = self._store.requeue(leases_of(left), [None] * len(left), histories)
            left = [held for held, outcome in zip(left, outcomes, strict=True) if outcome is None]
            if not left:
                return
            probe("the return of an external item waits for another transaction")
            self._clock.sleep_us(LOCKED_RETRY_US)


def return_external_items(store: ExternalStore, refs: Sequence[ItemRef]) -> list[ItemRef]:
    """Let items vest now, where they vested before, neither as errors nor as lease expiries.

    Returns those that another transaction has locked: these are as they were.
    """
    held = [ItemLease(ref.item_id, ref.lease_id) for ref in refs]
    outcomes = store.requeue(held, [None] * len(refs), [None] * len(refs))
    return [ref for ref, outcome in zip(refs, outcomes, strict=True) if outcome is None]


def _after_return(held: HeldItem) -> ItemRecord | None:
    """Return the history of an item that is returned; None: it stays as it is."""
    record = _with_progress(held)
    return None if record is held.record else msgspec.structs.replace(record, expiry_count=0)


def _after_failure(decision: RetryDecision) -> ItemRecord:
    """Return the history of an item after a failed attempt."""
    record = _with_progress(decision.held)
    return msgspec.structs.replace(
        record,
        error_count=record.error_count + decision.counted,
        expiry_count=0,
        last_error=shortened(decision.error),
    )


def _with_progress(held: HeldItem) -> ItemRecord:
    """Return the history of an item with what its handler has reported, for the next attempt.

    Not of a handler in SQL: what it did for that progress is rolled back.
    """
    reported = None if held.handler.form is Form.IN_STORE else held.job.reported
    return held.record if reported is None else msgspec.structs.replace(held.record, progress=reported)


def _became(outcome: Outcome, done: str) -> str:
    return done if outcome is Outcome.DONE else "gone" if outcome is Outcome.GONE else "lost"


def _known(held: HeldItem, became: str, may_be_ended: bool) -> str:
    """Return what became of an item. One that is gone is completed if this worker may have completed it, else lost."""
    if became != "gone":
        return became
    return "completed" if may_be_ended or acknowledgement.may_be_completed(held) else "lost"
