"""The transactions that end or return leased items, many at once (QuiCK section 6, Algorithm 3, lines 5 and 7).

A completed item is deleted. A failed item is requeued with a backoff, becomes a dead letter, or is dropped, as its kind
says. An item that did not run here is returned. Each item is checked against its own lease, so one lost item does not
fail the others. Neither does an item whose tenant has moved, or is locked: its end is refused, and what the caller does
about that is its own affair.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.retry_decision import RetryDecision
from fairlead.actors.execution.zone_by_zone import Refusal, or_refusal, zone_by_zone
from fairlead.actors.handlers import Form
from fairlead.actors.messages import ItemRef
from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.errors import OwnerUnreadable, TenantLocked, TenantMoved
from fairlead.zones.ownership import check_owner
from fairlead.zones.pipelining import run_one
from fairlead.zones.probes import probe
from fairlead.zones.queue import results
from fairlead.zones.queue.dead_letters import move_to_dead_letters
from fairlead.zones.queue.items import Outcome
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.queue.stored_item import shortened
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.reporting import completion_log
from fairlead.zones.reporting.completion_log import EndedOfZone, EndReason
from fairlead.zones.shard import Shard
from fairlead.zones.top_level.part_writes import PartWrites
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow.children import ChildState, EndedChild, ended_child, report_all
from fairlead.zones.workflow.undone_end import begin_undo_op

Settled = list[tuple[HeldItem, str]]  # What became of each: completed, retried, dead_lettered, dropped, lost.


class RefusedEnd(NamedTuple):
    """The end of an item that its tenant's shard refuses. `decision`: if it has failed; None: it is completed."""

    held: HeldItem
    decision: RetryDecision | None
    refusal: Refusal


class Settlement(NamedTuple):
    """What became of the ends of one transaction."""

    settled: Settled
    refused: list[RefusedEnd]


def settle(
    shard: Shard, completed: Sequence[HeldItem], failed: Sequence[RetryDecision], *, maybe_committed: bool = False
) -> Settlement:
    """Commit the ends of items of one shard in one transaction.

    Reads with conflict: per item its record, per tenant its ownership. An item that is gone counts as completed in two
    cases: a commit of unknown result came before, which has deleted it; or its handler may have completed it. After a
    conflict it does not count as completed: its enqueuer or an operator has cancelled it.
    `maybe_committed`: an earlier call made a commit of unknown result.
    """
    may_be_applied = maybe_committed

    def body(attempt: Attempt) -> Settlement:
        return _settle_once(shard, attempt, completed, failed, gone_is_completed=may_be_applied)

    def applied(tr: Reader) -> bool:
        """Return False: it is not known yet. From now on this call may have deleted an item that is gone."""
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
    gone_is_completed: bool,
) -> Settlement:
    settled: Settled = []
    refused: list[RefusedEnd] = []
    tr, now_us = attempt.tr, attempt.now_us
    ended: list[EndedOfZone] = []
    children: list[EndedChild] = []
    parts = PartWrites()
    completed = _without_cancelled(shard, tr, completed, now_us, settled, refused)
    outcomes = zone_by_zone(
        shard,
        [held.ref for held in completed],
        lambda zone, held: zone.complete_op(tr, held, now_us=now_us, ended=ended, parts=parts, children=children),
    )
    parts.write(tr)
    for held, outcome in zip(completed, outcomes, strict=True):
        if not isinstance(outcome, Outcome):
            refused.append(RefusedEnd(held, None, outcome))
            continue
        done = outcome is Outcome.DONE or (outcome is Outcome.GONE and (gone_is_completed or may_be_completed(held)))
        if outcome is Outcome.DONE and held.result is not None and held.job.keeps_result_us:
            location = shard.layout.location(held.ref.tenant, held.ref.zone)
            results.keep_result(
                tr, location, held.ref.item_id, held.result, now_us=now_us, kept_us=held.job.keeps_result_us
            )
        if not done:
            probe("an item that has run is not held any more when it is settled")
        settled.append((held, "completed" if done else "lost"))
    for decision in failed:
        became = _settle_failed(shard, tr, decision, now_us, ended, children)
        if isinstance(became, str):
            settled.append((decision.held, became))
        else:
            refused.append(RefusedEnd(decision.held, decision, became))
    completion_log.append(tr, shard.layout, ended, now_us=now_us)
    report_all(tr, _with_results(children, completed), now_us=now_us)
    return Settlement(settled, refused)


def _without_cancelled(
    shard: Shard,
    tr: Transaction,
    completed: Sequence[HeldItem],
    now_us: int,
    settled: Settled,
    refused: list[RefusedEnd],
) -> Sequence[HeldItem]:
    """Requeue workflows that have returned, but whose cancellation was requested meanwhile: their steps are undone.

    Returns the other items; adds these to `settled`, or to `refused`. Reads with conflict: the records of workflows
    that keep a log.
    """
    logged = [held for held in completed if held.handler.form is Form.WORKFLOW and held.record.keeps_run]
    if not logged:
        return completed
    cancelled: set[HeldItem] = set()
    for held in logged:
        zone = shard.zone(held.ref.tenant, held.ref.zone)
        value = tr.get(zone.location.keys.item(held.ref.item_id)).value
        record = None if value is None else decode(ItemRecord, value)
        if record is not None and record.cancelling and record.lease_id == held.ref.lease_id:
            probe("a workflow that has returned finds that its cancellation was requested")
            operation = zone.requeue_op(tr, held.ref.item_id, held.ref.lease_id, delay_us=0, now_us=now_us)
            outcome = run_one(or_refusal(operation, Outcome.LEASE_LOST))
            cancelled.add(held)
            if isinstance(outcome, Outcome):
                settled.append((held, "returned" if outcome is Outcome.DONE else "lost"))
            else:
                refused.append(RefusedEnd(held, None, outcome))
    return [held for held in completed if held not in cancelled]


def _with_results(children: Sequence[EndedChild], completed: Sequence[HeldItem]) -> list[EndedChild]:
    """Return the children with what their handlers returned."""
    if not children:
        return []
    returned = {(held.ref.tenant, held.ref.zone, held.ref.item_id): held.result or b"" for held in completed}
    return [
        child._replace(result=returned.get((child.location.tenant, child.location.name, child.item_id), b""))
        for child in children
    ]


def return_items(shard: Shard, refs: Sequence[ItemRef]) -> list[tuple[ItemRef, Refusal]]:
    """Return items to where they were, in one transaction, neither as errors nor as lease expiries.

    They vest when they vested before, at the latest now: so each keeps its place, and a clock that is ahead does not
    delay it. Items that are not held stay. Returns the items whose tenants refuse it. Reads with conflict: per item its
    record, per tenant its ownership.
    """

    def body(attempt: Attempt) -> list[tuple[ItemRef, Refusal]]:
        refused: list[tuple[ItemRef, Refusal]] = []
        now_us = attempt.now_us
        for ref in refs:
            zone = shard.zone(ref.tenant, ref.zone)
            delay_us = min(0, ref.vested_us - now_us) if ref.vested_us else 0
            operation = zone.requeue_op(attempt.tr, ref.item_id, ref.lease_id, delay_us=delay_us, now_us=now_us)
            outcome = run_one(or_refusal(operation, Outcome.LEASE_LOST))
            if not isinstance(outcome, Outcome):
                refused.append((ref, outcome))
        return refused

    return shard.transact(shard.in_exclusive_section(body))


def may_be_completed(held: HeldItem) -> bool:
    """Say whether the handler of an item may have completed it. A Ray task may have, without its worker's knowledge."""
    return held.job.may_be_completed or held.handler.form is Form.REMOTE


def _settle_failed(
    shard: Shard,
    tr: Transaction,
    decision: RetryDecision,
    now_us: int,
    ended: list[EndedOfZone],
    children: list[EndedChild],
) -> str | Refusal:
    """Requeue one item, make it a dead letter, or drop it; return what became of it, or why its tenant refuses that.

    Adds to `ended` if it is gone, and to `children` if a parent must learn that it failed for good.
    """
    held = decision.held
    zone = shard.zone(held.ref.tenant, held.ref.zone)
    if decision.delay_us is not None:
        return _retry(zone, tr, decision, decision.delay_us, now_us)
    owner = tr.get(zone.location.keys.tenant.owner)
    value = tr.get(zone.location.keys.item(held.ref.item_id)).value
    try:
        check_owner(tr, shard.layout, zone.location.keys.tenant, owner.value)
    except OwnerUnreadable:
        return "lost"
    except (TenantMoved, TenantLocked) as refusal:
        return refusal
    record = None if value is None else decode(ItemRecord, value)
    if value is None and may_be_completed(held):
        return "completed"
    if record is None or record.lease_id != held.ref.lease_id:
        return "lost"
    if (
        decision.may_undo
        and record.keeps_run
        and run_one(begin_undo_op(tr, zone.location, held.ref.item_id, record, decision.error, decision.traceback))
    ):
        probe("a workflow that failed for good is to be undone")
        return _requeue_failed(zone, tr, decision, 0, now_us, error_count=0)  # Its undos have all their tries.
    state = ChildState.DROPPED if held.handler.drop else ChildState.FAILED
    if record.parent is not None:
        children.append(ended_child(zone.location, held.ref.item_id, record, state, error=shortened(decision.error)))
    if held.handler.drop:
        probe("an item that failed for good is dropped")
        holding = (held.ref.item_id, held.ref.lease_id)
        run_one(zone.complete_op(tr, [holding], now_us=now_us, ended=ended, end_reason=EndReason.DROPPED, children=[]))
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
    return "dead_lettered"


def _record_of_workflow(tr: Transaction, zone: QueueZone, held: HeldItem) -> ItemRecord:
    """Return the record of a workflow as it is now; as it was leased, if it is gone. Reads it with conflict."""
    value = tr.get(zone.location.keys.item(held.ref.item_id)).value
    record = None if value is None else decode(ItemRecord, value)
    return held.record if record is None else record


def _retry(zone: QueueZone, tr: Transaction, decision: RetryDecision, delay_us: int, now_us: int) -> str | Refusal:
    """Let one item run again after its backoff; return what became of it, or why its tenant refuses that.

    A step of a workflow clears the count of errors. If the result of its commit is unknown, only the store knows
    whether it did. If the cancellation of a workflow was requested during its attempt, its undo waits for no backoff.
    """
    held = decision.held
    record = _record_of_workflow(tr, zone, held) if held.handler.form is Form.WORKFLOW else held.record
    if record.cancelling and not held.record.cancelling:
        delay_us = 0
    return _requeue_failed(zone, tr, decision, delay_us, now_us, error_count=record.error_count + decision.counted)


def _requeue_failed(
    zone: QueueZone, tr: Transaction, decision: RetryDecision, delay_us: int, now_us: int, *, error_count: int
) -> str | Refusal:
    """Let one item run again after `delay_us`; return what became of it, or why its tenant refuses that."""
    held = decision.held
    operation = zone.requeue_op(
        tr,
        held.ref.item_id,
        held.ref.lease_id,
        delay_us=delay_us,
        now_us=now_us,
        error_count=error_count,
        error=decision.error,
        traceback=decision.traceback,
    )
    outcome = run_one(or_refusal(operation, Outcome.LEASE_LOST))
    if not isinstance(outcome, Outcome):
        return outcome
    if outcome is Outcome.GONE and may_be_completed(held):
        return "completed"
    return "retried" if outcome is Outcome.DONE else "lost"
