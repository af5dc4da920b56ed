"""Buried items: work that will not run again by itself, kept with its error until somebody decides.

A buried item lies in its tenant's zone, so it moves and goes with the tenant; one key per buried item in a list of
the shard, ordered by time, lets an operator find them all without a search.
"""

from collections.abc import Iterator
from typing import NamedTuple

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.keyspace import (
    GRAVE,
    ROOT,
    pack_bytes,
    pack_int,
    pack_text,
    range_begin,
    range_end,
    unpack_bytes,
    unpack_int,
    unpack_names,
)
from fairlead.zones.layout import Layout, Place, Tenant
from fairlead.zones.probes import probe
from fairlead.zones.queue import stored_item
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.queue.stored_item import shortened
from fairlead.zones.records import BuriedRecord, ItemRecord, decode, encode

_GRAVE = ROOT + pack_int(GRAVE)


class BuriedItem(NamedTuple):
    """A buried item and where it lies."""

    tenant: Tenant
    zone: str
    id: bytes
    record: BuriedRecord


def bury(
    tr: Transaction,
    place: Place,
    item_id: bytes,
    record: ItemRecord,
    *,
    reason: str,
    error: str,
    traceback: str,
    now_us: int,
) -> None:
    """Move an item, whose record and ownership the caller has read with conflict, out of its queue into the grave.

    Writes: the item's record and index entry (cleared), the count, the buried record, the shard's list.
    """
    stored_item.remove(tr, place, item_id, record, keep_payload=True)
    stored_item.change_count(tr, place, record.kind, -1)
    record.lease_id = b""
    record.last_error = shortened(error)
    buried = BuriedRecord(record, reason, record.last_error, shortened(traceback), now_us)
    tr.set(place.keys.buried(item_id), encode(buried))
    tr.set(grave_key(place, item_id, now_us), record.kind.encode())


def read(tr: Transaction, place: Place, item_id: bytes) -> BuriedRecord | None:
    """Return the buried record of an item, or None. Reads its key and ownership with conflict.

    Raises:
      TenantMoved: the tenant is not this shard's any more.
    """
    owner = tr.get(place.keys.tenant.owner)
    stored = tr.get(place.keys.buried(item_id))
    stored_item.check_owner(place.layout, owner.value)
    return None if stored.value is None else decode(BuriedRecord, stored.value)


def exhume(tr: Transaction, place: Place, item_id: bytes, buried: BuriedRecord) -> None:
    """Clear the buried record and its place in the shard's list; the payload stays. `read` came before."""
    tr.clear(place.keys.buried(item_id))
    tr.clear(grave_key(place, item_id, buried.buried_us))


def revive(tr: Transaction, place: Place, item_id: bytes, buried: BuriedRecord, *, now_us: int) -> None:
    """Put a buried item back into its queue, due now, its attempts forgotten. `read` came before.

    The caller wakes the pointer (`QueueZone.wake_steps`).
    """
    probe("a buried item is revived")
    exhume(tr, place, item_id, buried)
    record = buried.item
    record.error_count = record.lapse_count = record.lapsed = record.died = record.given_back = 0
    record.ran_alone = record.started = False
    record.vesting_us = record.delayed_until_us = now_us
    tr.set(place.keys.item(item_id), encode(record))
    tr.set(place.keys.vest(record.priority, now_us, item_id), record.kind.encode())
    stored_item.change_count(tr, place, record.kind, 1)


def discard(tr: Transaction, place: Place, item_id: bytes, buried: BuriedRecord) -> None:
    """Delete a buried item for good, payload included. `read` came before."""
    exhume(tr, place, item_id, buried)
    if buried.item.payload_bytes:
        stored_item.clear_payload(tr, place, item_id)


def listing(tr: Reader, layout: Layout, *, items_max: int) -> Iterator[BuriedItem]:
    """Yield the shard's buried items, oldest first. Snapshot reads; one that is unreadable is passed over."""
    for row in tr.snapshot.get_range(_GRAVE, range_end(_GRAVE), limit=items_max):
        grave = grave_of(row.key, layout)
        if grave is None:
            continue
        place, item_id = grave
        value = tr.snapshot.get(place.keys.buried(item_id)).value
        record = None if value is None else decode(BuriedRecord, value)
        if record is not None:
            yield BuriedItem(place.tenant, place.name, item_id, record)


def in_zone(tr: Reader, place: Place, *, items_max: int) -> tuple[list[BuriedItem], bool]:
    """Return buried items of a queue zone, by their ids, and whether these are all. Snapshot reads.

    One that is unreadable is passed over.
    """
    prefix = place.keys.buried_prefix()
    rows = list(tr.snapshot.get_range(range_begin(prefix), range_end(prefix), limit=items_max + 1))
    records = [(row.key, decode(BuriedRecord, row.value)) for row in rows[:items_max]]
    return [
        BuriedItem(place.tenant, place.name, unpack_bytes(key[len(prefix) :]), record)
        for key, record in records
        if record is not None
    ], len(rows) <= items_max


def graves_named(tr: Reader, layout: Layout, item_id: bytes, *, graves_max: int) -> tuple[list[Place], bool]:
    """Return the zones in which an item of this id is buried, and whether all graves were looked at. Snapshot reads.

    The youngest graves are looked at first.
    """
    rows = list(
        tr.snapshot.get_range(_GRAVE, range_end(_GRAVE), limit=graves_max + 1, reverse=True, streaming_mode=WANT_ALL)
    )
    ending = pack_bytes(item_id)  # To take thousands of keys apart would be half of the search.
    graves = [grave_of(row.key, layout) for row in rows[:graves_max] if row.key.endswith(ending)]
    return [grave[0] for grave in graves if grave is not None and grave[1] == item_id], len(rows) <= graves_max


def grave_key(place: Place, item_id: bytes, buried_us: int) -> bytes:
    """Return the key of a buried item in the shard's list."""
    tenant = place.tenant
    names = pack_text(tenant.app) + pack_text(tenant.user) + pack_text(place.name)
    return _GRAVE + pack_int(buried_us) + names + pack_bytes(item_id)


def grave_range() -> tuple[bytes, bytes]:
    """Return begin and end of the shard's list of buried items."""
    return _GRAVE, range_end(_GRAVE)


def grave_of(key: bytes, layout: Layout) -> tuple[Place, bytes] | None:
    """Take a key of the shard's list apart: return the zone, and the item's id; None if it is damaged."""
    buried_us = unpack_int(key, len(_GRAVE))
    named = None if buried_us is None else unpack_names(key, buried_us[1], 3)
    if named is None:
        return None
    (app, user, zone), end = named
    return layout.place(Tenant(app, user), zone), unpack_bytes(key[end:])
