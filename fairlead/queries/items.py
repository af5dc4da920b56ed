"""One item, with all that is known of it: why it does not run, its record, its payload, its grave."""

from typing import NamedTuple

from fairlead.explanation import Explanation, explain_at
from fairlead.views import DeadLetterView, ItemView, dead_letter_view, item_view
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.dead_letters import DeadLetter
from fairlead.zones.queue.results import Returned, ending
from fairlead.zones.records import DeadLetterRecord, ItemRecord, decode
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt


class ItemDetails(NamedTuple):
    """An item. `view`: if it is in its queue; `dead_letter`: if it failed for good; neither: it ended, or never was.

    `returned`: what its handler did, if that is kept.
    """

    explanation: Explanation
    view: ItemView | None
    record: ItemRecord | None
    dead_letter: DeadLetterView | None
    returned: Returned | None
    now_us: int


def read_item(shard: Shard, tenant: Tenant, zone: str, item_id: bytes) -> ItemDetails:
    """Return what is known of an item. Snapshot reads, but for its tenant's ownership.

    Raises:
      TenantMoved: the tenant is another shard's.
      One of `shard.db.errors`: the shard cannot be read.
    """
    explanation = explain_at(shard, tenant, zone, item_id)
    location = shard.layout.location(tenant, zone)

    def body(attempt: Attempt) -> ItemDetails:
        tr, now_us = attempt.tr, attempt.now_us
        stored = tr.snapshot.get(location.keys.item(item_id))
        stored_dead_letter = tr.snapshot.get(location.keys.dead_letter(item_id))
        record = None if stored.value is None else decode(ItemRecord, stored.value)
        dead_letter_record = (
            None if stored_dead_letter.value is None else decode(DeadLetterRecord, stored_dead_letter.value)
        )
        view = None if record is None else item_view(shard, tr, location, item_id, record, now_us=now_us)
        dead_letter = (
            None
            if dead_letter_record is None
            else dead_letter_view(shard, tr, DeadLetter(tenant, zone, item_id, dead_letter_record))
        )
        ended = None if stored.present() or stored_dead_letter.present() else ending(tr, location, item_id)
        return ItemDetails(
            explanation, view, record, dead_letter, ended if isinstance(ended, Returned) else None, now_us
        )

    return shard.transact(body)
