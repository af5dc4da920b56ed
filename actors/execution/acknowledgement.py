"""Settling items: what becomes of leased items, many in one transaction.

Completed items go; failed ones are requeued with backoff, buried, or dropped, as their kind says (QuiCK section 6,
Algorithm 3); those that nobody is to run now go back. One lost item never fails the rest: each is checked against its
own lease.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from fairlead.actors.execution import retry
from fairlead.actors.execution.failed_attempt import Cause, Failure
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.zone_by_zone import lost_if_moved, zone_by_zone
from fairlead.actors.handlers import Form
from fairlead.actors.messages import ItemRef
from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.errors import TenantMoved
from fairlead.zones.pipelining import run_one
from fairlead.zones.probes import probe
from fairlead.zones.queue import results
from fairlead.zones.queue.dead_letters import move_to_dead_letters
from fairlead.zones.queue.items import Outcome
from fairlead.zones.queue.stored_item import check_owner
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.reporting import completion_log
from fairlead.zones.reporting.completion_log import EndedOfZone, EndReason
from fairlead.zones.shard import Shard
from fairlead.zones.top_level.part_writes import PartWrites
from fairlead.zones.transaction_runner import Attempt

STORE_PAUSE_US = 1_000_000  # Before an item is tried again whose attempt the store refused.

Settled = list[tuple[HeldItem, str]]  # what became of each: completed, retried, buried, dropped, lost


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """What becomes of a failed item: `delay_us` until its next attempt, or None: it failed for good.

    `counted`: whether this was a failure of the item's; if not, it was the store's, or another coroutine's.
    `raised`: the error itself, if a log may ask it for its words again.
    """

    held: HeldItem
    delay_us: int | None
    error: str
    traceback: str
    counted: bool = True
    raised: BaseException | None = None


def decide_retry(held: HeldItem, failure: Failure, *, now_us: int, random: Random) -> RetryDecision:
    """Decide what becomes of an item whose attempt failed. Runs no code of the user's."""
    counted = failure.cause not in (Cause.STORE, Cause.EVENT_LOOP)
    if failure.cause is Cause.EVENT_LOOP:
        delay_us: int | None = 0
    elif failure.cause is Cause.STORE:
        delay_us = STORE_PAUSE_US
    elif failure.cause is Cause.PERMANENT:
        delay_us = None
    else:
        record = held.record
        delay_us = retry.delay_us(
            held.handler.retry,
            error_count=record.error_count + 1,
            age_us=now_us - record.runnable_us,
            random=random,
        )
    raised = failure.error if failure.safe_to_log else None
    return RetryDecision(held, delay_us, failure.text, failure.lines, counted=counted, raised=raised)


def settle(
    shard: Shard, completed: Sequence[HeldItem], failed: Sequence[RetryDecision], *, maybe_committed: bool = False
) -> Settled:
    """Commit the ends of items of one shard in one transaction.

    Reads with conflict: per item its record, per tenant its ownership. An item that is gone counts as completed after
    a commit of unknown result, because this call took it away, and if its handler may have completed it itself. After
    a conflict it does not: somebody has cancelled it.
    `maybe_committed`: such a commit was made by an earlier call.
    """
    may_be_applied = maybe_committed

    def body(attempt: Attempt) -> Settled:
        return _settle_once(shard, attempt, completed, failed, gone_is_mine=may_be_applied)

    def applied(tr: Reader) -> bool:
        """Nobody can tell yet; but an item that is gone from now on may have been taken away by this call."""
        nonlocal may_be_applied
        may_be_applied = True
        return False

    return shard.transact(shard.in_exclusive_section(body), applied=applied)


def _settle_once(
    shard: Shard,
    attempt: Attempt,
    completed: Sequence[HeldItem],
    failed: Sequence[RetryDecision],
    *,
    gone_is_mine: bool,
) -> Settled:
    settled: Settled = []
    tr, now_us = attempt.tr, attempt.now_us
    ended: list[EndedOfZone] = []
    parts = PartWrites()
    outcomes = zone_by_zone(
        shard,
        [held.ref for held in completed],
        lambda zone, held: zone.complete_op(tr, held, now_us=now_us, ended=ended, parts=parts),
    )
    parts.write(tr)
    for held, outcome in zip(completed, outcomes, strict=True):
        done = outcome is Outcome.DONE or (outcome is Outcome.GONE and (gone_is_mine or may_be_completed(held)))
        if outcome is Outcome.DONE and held.result is not None:
            location = shard.layout.location(held.ref.tenant, held.ref.zone)
            results.keep_result(
                tr, location, held.ref.item_id, held.result, now_us=now_us, kept_us=held.job.keeps_result_us
            )
        if not done:
            probe("an item that has run is somebody else's when it is settled")
        settled.append((held, "completed" if done else "lost"))
    for decision in failed:
        settled.append((decision.held, _settle_failed(shard, tr, decision, now_us, ended)))
    completion_log.append(tr, shard.layout, ended, now_us=now_us)
    return settled


def return_items(shard: Shard, refs: Sequence[ItemRef]) -> None:
    """Requeue items at once in one transaction, neither as errors nor as lapses; what is not held is left alone.

    Reads with conflict: per item its record, per tenant its ownership.
    """

    def body(attempt: Attempt) -> None:
        for ref in refs:
            zone = shard.zone(ref.tenant, ref.zone)
            operation = zone.requeue_op(attempt.tr, ref.item_id, ref.lease_id, delay_us=0, now_us=attempt.now_us)
            run_one(lost_if_moved(operation, Outcome.LEASE_LOST))

    shard.transact(shard.in_exclusive_section(body))


def may_be_completed(held: HeldItem) -> bool:
    """Whether its handler may have completed an item: of one that ran in another process nobody here knows."""
    return held.job.may_be_completed or held.handler.form is Form.REMOTE


def _settle_failed(
    shard: Shard, tr: Transaction, decision: RetryDecision, now_us: int, ended: list[EndedOfZone]
) -> str:
    """Requeue, bury or drop one item; say what became of it. Adds to `ended` what is gone for good."""
    held = decision.held
    zone = shard.zone(held.ref.tenant, held.ref.zone)
    if decision.delay_us is not None:
        operation = zone.requeue_op(
            tr,
            held.ref.item_id,
            held.ref.lease_id,
            delay_us=decision.delay_us,
            now_us=now_us,
            error_count=held.record.error_count + decision.counted,
            error=decision.error,
            traceback=decision.traceback,
        )
        outcome = run_one(lost_if_moved(operation, Outcome.LEASE_LOST))
        if outcome is Outcome.GONE and may_be_completed(held):
            return "completed"
        return "retried" if outcome is Outcome.DONE else "lost"
    owner = tr.get(zone.location.keys.tenant.owner)
    value = tr.get(zone.location.keys.item(held.ref.item_id)).value
    try:
        check_owner(shard.layout, owner.value)
    except TenantMoved:
        return "lost"
    record = None if value is None else decode(ItemRecord, value)
    if value is None and may_be_completed(held):
        return "completed"
    if record is None or record.lease_id != held.ref.lease_id:
        return "lost"
    if held.handler.drop:
        probe("an item that failed for good is dropped")
        holding = (held.ref.item_id, held.ref.lease_id)
        run_one(zone.complete_op(tr, [holding], now_us=now_us, ended=ended, end_reason=EndReason.DROPPED))
        return "dropped"
    record.error_count += 1
    move_to_dead_letters(
        tr,
        zone.location,
        held.ref.item_id,
        record,
        reason="error",
        error=decision.error,
        traceback=decision.traceback,
        now_us=now_us,
    )
    return "buried"
