"""One item of an external store, with all that the store and the tenant's shard know of it."""

from collections.abc import Mapping

from fairlead.ends_elsewhere import ends_elsewhere
from fairlead.explanation import Cause, Explanation
from fairlead.external_explanation import explain_in_stores
from fairlead.queries.items import ItemDetails, audit_entries, ends_at, history
from fairlead.shards import Shards
from fairlead.views import external_dead_letter_view, external_item_view
from fairlead.zones.external.inspection import InspectedStore
from fairlead.zones.external.names import Queue, pointer_zone
from fairlead.zones.external.queue_operations import DeadRow, EndedRow, FoundRow
from fairlead.zones.queue.items import Item, unpack_payload
from fairlead.zones.queue.results import Returned
from fairlead.zones.shard import Shard


def read_item_in_store(
    shards: Shards, shard: Shard, stores: Mapping[str, InspectedStore], name: str, queue: Queue, item_id: bytes
) -> ItemDetails:
    """Return what is known of an item of a store; `shard`: where its tenant lives.

    If the store does not answer, the explanation says so, and nothing else is known.

    Raises:
      One of `shard.db.errors`: the shard cannot be read.
      StoreUnavailable: the store has answered, and does not any more.
    """
    nowhere = Explanation(item_id, Cause.NOT_FOUND, "no shard has it")
    explanation = explain_in_stores(nowhere, shards, {name: stores[name]}, item_id, queue)
    now_us = shard.clock.now_us()
    is_away = explanation.cause is Cause.STORE_AWAY
    found = None if is_away else stores[name].queues.find(queue, [item_id], now_us=now_us)
    cancelled = [] if is_away else stores[name].cancelled([item_id], now_us=now_us)
    target = {"tenant": list(queue.tenant), "store": name, "zone": queue.zone, "item": item_id.hex()}
    location = shard.layout.location(queue.tenant, pointer_zone(name, queue.zone))
    elsewhere = [ended for _, ended in ends_elsewhere(shards, shard, location, item_id).ends]
    actions, ends = shard.transact(
        lambda attempt: (audit_entries(attempt.tr, target), ends_at(attempt.tr, location, item_id))
    )
    record = found.record if isinstance(found, Item) else None
    if record is not None and record.lease_id:  # A store does not keep when the latest attempt began.
        record.leased_us, record.progress = explanation.details.get("since_us", 0), explanation.progress
    dead = found.dead_letter if isinstance(found, DeadRow) else None
    dead_record = None if dead is None else dead.record
    return ItemDetails(
        explanation=explanation,
        view=external_item_view(shard.name, name, queue, found, now_us=now_us) if isinstance(found, Item) else None,
        record=record,
        stored=record if dead_record is None else dead_record.item,
        dead_letter=None if dead is None else external_dead_letter_view(shard.name, name, dead),
        returned=_returned(found),
        history=history(record, dead_record, [*elsewhere, *ends, *cancelled], actions, now_us),
        now_us=now_us,
    )


def _returned(found: FoundRow | None) -> Returned | None:
    if isinstance(found, EndedRow) and found.result is not None:
        return Returned(unpack_payload(found.result))
    return None
