"""Progress: how far the handler of a long item has come, by its own report, kept in the item's record.

There it outlives the worker. Every reader of the item sees it, and the next attempt may go on from it.
"""

from collections.abc import Sequence

from fairlead.zones.engines import Transaction
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.pipelining import Operation
from fairlead.zones.queue import stored_item
from fairlead.zones.queue.items import Outcome
from fairlead.zones.queue.lease_check import LeaseRef, check_leases_op
from fairlead.zones.records import ItemRecord, Progress

NOTE_CHARS_MAX = 200  # It is kept in the record, which every lease rewrites.


def progress_op(
    tr: Transaction, location: ZoneLocation, reported: Sequence[tuple[LeaseRef, Progress]]
) -> Operation[list[Outcome]]:
    """Write progress into the records of items that are held; say how each went.

    Reads with conflict: ownership, the records. Writes: the records. May run twice.
    """
    records = yield from check_leases_op(tr, location, [holding for holding, _ in reported])
    outcomes = []
    for ((item_id, _), progress), record in zip(reported, records, strict=True):
        if isinstance(record, ItemRecord):
            record.progress = progress
            stored_item.rewrite(tr, location, item_id, record)
        outcomes.append(Outcome.DONE if isinstance(record, ItemRecord) else record)
    return outcomes
