"""The end of a run whose steps have been undone: its item is cancelled, dropped, or becomes a dead letter."""

from fairlead.zones.engines import Transaction
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.pipelining import Operation
from fairlead.zones.probes import probe
from fairlead.zones.queue.dead_letters import move_to_dead_letters
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.records import ItemRecord
from fairlead.zones.reporting import completion_log
from fairlead.zones.reporting.completion_log import EndedOfZone, EndReason
from fairlead.zones.workflow.children import EndedChild, report_all, report_dead_letters
from fairlead.zones.workflow.run_end import end_run_op
from fairlead.zones.workflow.run_records import RunHead, decode_head, encode, head_key

UNDONE = "undone"  # `DeadLetterRecord.reason` of a run that has been undone to its end.
CANCELLED = "cancelled"  # `RunHead.undo_reason` of a run whose cancellation was requested.


def begin_undo_op(
    tr: Transaction, location: ZoneLocation, item_id: bytes, record: ItemRecord, error: str, traceback: str
) -> Operation[bool]:
    """Record that a run which failed for good is to be undone; False: it has no steps, or is being undone already.

    A run whose cancellation was requested meanwhile is undone because of that. The caller has read the record with
    conflict. Reads with conflict, and writes: the head. May run twice.
    """
    key = head_key(location.keys.tenant, record.run_of(item_id))
    stored = tr.get(key)
    yield
    head = None if stored.value is None else decode_head(stored.value)
    if head is None or head.undo_reason is not None:
        return False
    if record.cancelling:
        head.undo_reason = CANCELLED
    else:
        head.undo_reason = head.undo_error = error
        head.undo_traceback = traceback
    tr.set(key, encode(head))
    return True


def end_undone_op(
    tr: Transaction,
    zone: QueueZone,
    item_id: bytes,
    record: ItemRecord,
    head: RunHead,
    *,
    drop: bool,
    new_run: bytes,
    now_us: int,
) -> Operation[str]:
    """End a run that has been undone; return `cancelled`, `dropped` or `dead_lettered`.

    A dead letter gets `new_run`: its retry begins anew. `record`: from `check_held_op` in this transaction. May run
    twice: the second run finds the item, or its lease, gone. Reads and writes: what the end of a run does (`run_end`).
    """
    probe("a run has been undone to its end")
    if head.undo_reason == CANCELLED or drop:
        reason = EndReason.CANCELLED if head.undo_reason == CANCELLED else EndReason.DROPPED
        ended: list[EndedOfZone] = []
        children: list[EndedChild] = []
        holding = [(item_id, record.lease_id)]
        yield from zone.complete_op(tr, holding, now_us=now_us, ended=ended, end_reason=reason, children=children)
        completion_log.append(tr, zone.layout, ended, now_us=now_us)
        report_all(tr, [child._replace(error=head.undo_error) for child in children], now_us=now_us)
        return reason.name.lower()
    yield from end_run_op(tr, zone.location, record.run_of(item_id), now_us=now_us)
    record.keeps_run, record.run = False, new_run
    record.cancelling = False  # A request that came during the undo is none to cancel the next run.
    record.error_count += 1
    move_to_dead_letters(
        tr,
        zone.location,
        item_id,
        record,
        reason=UNDONE,
        error=head.undo_error,
        traceback=head.undo_traceback,
        now_us=now_us,
    )
    report_dead_letters(tr, zone.location, [(item_id, record)], now_us=now_us)
    return "dead_lettered"
