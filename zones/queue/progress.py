"""Progress: how far the handler of a long item says that it is, kept in the item's record.

There it is seen wherever the item is, outlives the worker, and is there for the next attempt, which may go on from it.
"""

from collections.abc import Sequence

from fairlead.zones.engines import Transaction
from fairlead.zones.layout import Place
from fairlead.zones.pipelining import Steps
from fairlead.zones.queue import stored_item
from fairlead.zones.queue.items import Outcome
from fairlead.zones.queue.lease_check import Holding, held_steps
from fairlead.zones.records import ItemRecord, Progress

NOTE_CHARS_MAX = 200  # It is kept in the record, which every lease rewrites.


def progress_steps(tr: Transaction, place: Place, told: Sequence[tuple[Holding, Progress]]) -> Steps[list[Outcome]]:
    """Write progress into the records of items that are held; say how each went.

    Reads with conflict: ownership, the records. Writes: the records. May run twice.
    """
    records = yield from held_steps(tr, place, [holding for holding, _ in told])
    outcomes = []
    for ((item_id, _), progress), record in zip(told, records, strict=True):
        if isinstance(record, ItemRecord):
            record.progress = progress
            stored_item.rewrite(tr, place, item_id, record)
        outcomes.append(Outcome.DONE if isinstance(record, ItemRecord) else record)
    return outcomes
