"""Cancelling an item: it is deleted, or, if it is a workflow that has recorded steps, its steps are undone first.

The request to undo is in the item's record. The next commit of the workflow at home reads it, and from then on the run
is undone. A run that is being undone already goes on with that.
"""

from enum import Enum
from typing import NamedTuple

from fairlead.zones.engines import Transaction
from fairlead.zones.errors import ItemGone, ItemUnreadable
from fairlead.zones.keyspace import range_begin, range_end
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.moving.move_record import take_back_instead
from fairlead.zones.pipelining import Operation, run_one
from fairlead.zones.probes import probe
from fairlead.zones.queue import dead_letters, insertion, stored_item
from fairlead.zones.queue.lease_check import raise_unless_done
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.records import Parent
from fairlead.zones.reporting import completion_log
from fairlead.zones.reporting.completion_log import EndedOfZone
from fairlead.zones.workflow.arrival import Receiver, receiver_op


class CancelOutcome(Enum):
    """What a cancellation has done."""

    DELETED = "deleted"  # the item is gone
    UNDOING = "undoing"  # the item is a workflow, whose steps are undone first


class Life(NamedTuple):
    """What tells an item from a later one of its name."""

    run: bytes
    enqueued_us: int


class Cancellation(NamedTuple):
    """What a cancellation has done, and to which life of the item."""

    outcome: CancelOutcome
    life: Life


def cancel_op(
    tr: Transaction, zone: QueueZone, item_id: bytes, *, force: bool, now_us: int, parent: Parent | None = None
) -> Operation[Cancellation]:
    """Delete an item, leased or not; a workflow that has recorded steps is to be undone instead.

    The item of a move takes the move back, in any case. A workflow that is not leased, or is a dead letter, vests now;
    the lease of one that runs stays. `force`: delete it without undoing anything, and also if it is a dead letter.
    `parent`: only if it is the child of that call. Another item may have its name by now. May run twice.

    Reads with conflict: ownership, the record; if there is none, the dead letter; of a run that keeps keys its log up
    to the first key, the head; and what `complete_op`, `discard` or `wake_op` read. Writes: see there; or the record,
    and its index entry.

    Raises:
      ItemGone: there is no such item; it is not the child of `parent`; or it is a dead letter that has recorded no
        steps, without `force`.
      ItemUnreadable: a newer version wrote it, or it is damaged.
      TenantMoved: another shard owns the tenant.
    """
    location = zone.location
    found = yield from receiver_op(tr, location, item_id)
    if found is None or parent not in (None, found.record.parent):
        raise _gone(location, item_id)
    life = _identity_of(found)
    if take_back_instead(tr, location, item_id, found.record):
        yield from _vest_now_op(tr, found, now_us=now_us)
        return Cancellation(CancelOutcome.UNDOING, life)
    has_steps = False
    if found.record.keeps_run and not force:
        log = location.keys.tenant.step_log(found.run)
        first = tr.get_range(range_begin(log), range_end(log), limit=1)
        yield
        has_steps = next(iter(first), None) is not None
    if has_steps:
        yield from _request_op(tr, found, now_us=now_us)
        return Cancellation(CancelOutcome.UNDOING, life)
    if found.dead_letter is not None:
        if not force:
            raise _gone(location, item_id)
        dead_letters.discard(tr, location, item_id, found.dead_letter, now_us=now_us)
        return Cancellation(CancelOutcome.DELETED, life)
    ended: list[EndedOfZone] = []
    (outcome,) = yield from zone.complete_op(tr, [(item_id, None)], now_us=now_us, ended=ended)
    raise_unless_done(outcome, item_id)
    completion_log.append(tr, zone.layout, ended, now_us=now_us)
    return Cancellation(CancelOutcome.DELETED, life)


def was_applied(tr: Transaction, location: ZoneLocation, item_id: bytes, cancellation: Cancellation | None) -> bool:
    """Say whether a cancellation of unknown result was applied: later items of that name are not cancelled again.

    Reads with conflict: ownership, the record or the dead letter.
    """
    if cancellation is None:
        return False
    try:
        found = run_one(receiver_op(tr, location, item_id))
    except ItemUnreadable:
        return False
    if found is None or _identity_of(found) != cancellation.life:
        return True
    return found.dead_letter is None and found.record.cancelling


def _request_op(tr: Transaction, found: Receiver, *, now_us: int) -> Operation[None]:
    """Write the request to undo, and let the item vest now unless it is leased."""
    location, item_id, record = found.location, found.item_id, found.record
    if found.dead_letter is not None:
        probe("a dead letter is cancelled, and its steps are to be undone")
        record.cancelling = True
        dead_letters.retry_dead_letter(tr, location, item_id, found.dead_letter, now_us=now_us)
    elif record.cancelling:
        return
    else:
        record.cancelling = True
        if record.lease_id or record.vesting_us <= now_us:
            probe("a workflow is cancelled while it runs")
            stored_item.rewrite(tr, location, item_id, record)
            return
        probe("a workflow is cancelled while it waits")
        record.waits_for = ()
        record.delayed_until_us = now_us
        stored_item.move(tr, location, item_id, record, now_us)
    yield from insertion.wake_op(tr, location, earliest_us=now_us, now_us=now_us)


def _vest_now_op(tr: Transaction, found: Receiver, *, now_us: int) -> Operation[None]:
    location, item_id, record = found.location, found.item_id, found.record
    if found.dead_letter is not None:
        dead_letters.retry_dead_letter(tr, location, item_id, found.dead_letter, now_us=now_us)
    elif record.lease_id or record.vesting_us <= now_us:
        return
    else:
        record.delayed_until_us = now_us
        stored_item.move(tr, location, item_id, record, now_us)
    yield from insertion.wake_op(tr, location, earliest_us=now_us, now_us=now_us)


def _identity_of(found: Receiver) -> Life:
    return Life(found.run, found.record.enqueued_us)


def _gone(location: ZoneLocation, item_id: bytes) -> ItemGone:
    return ItemGone(item=item_id.hex(), tenant=str(location.tenant), zone=location.name)
