"""One item, with all that is known of it: why it does not run, its record, its payload, its grave."""

from typing import NamedTuple

from fairlead.explanation import Explanation, explain_at
from fairlead.views import BuriedView, ItemView, buried_view, item_view
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.dead_letters import BuriedItem
from fairlead.zones.queue.results import Returned, ending
from fairlead.zones.records import BuriedRecord, ItemRecord, decode
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt


class ItemSeen(NamedTuple):
    """An item. `view`: if it is in its queue; `dead_letter`: if it failed for good; neither: it ended, or never was.

    `returned`: what its handler did, if that is kept.
    """

    said: Explanation
    view: ItemView | None
    record: ItemRecord | None
    dead_letter: BuriedView | None
    returned: Returned | None
    now_us: int


def look_at_item(shard: Shard, tenant: Tenant, zone: str, item_id: bytes) -> ItemSeen:
    """Return what is known of an item. Snapshot reads, but for its tenant's ownership.

    Raises:
      TenantMoved: the tenant is another shard's.
      One of `shard.db.errors`: the shard cannot be read.
    """
    said = explain_at(shard, tenant, zone, item_id)
    place = shard.layout.place(tenant, zone)

    def body(attempt: Attempt) -> ItemSeen:
        tr, now_us = attempt.tr, attempt.now_us
        stored = tr.snapshot.get(place.keys.item(item_id))
        grave = tr.snapshot.get(place.keys.buried(item_id))
        record = None if stored.value is None else decode(ItemRecord, stored.value)
        gone = None if grave.value is None else decode(BuriedRecord, grave.value)
        view = None if record is None else item_view(shard, tr, place, item_id, record, now_us=now_us)
        buried = None if gone is None else buried_view(shard, tr, BuriedItem(tenant, zone, item_id, gone))
        ended = None if stored.present() or grave.present() else ending(tr, place, item_id)
        return ItemSeen(said, view, record, buried, ended if isinstance(ended, Returned) else None, now_us)

    return shard.transact(body)
