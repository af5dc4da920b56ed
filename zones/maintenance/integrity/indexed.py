"""Checks of the shard's index: each entry has its two keys, and names what its tenant holds.

One key lies beside the tenant's rows, one in the index.
"""

from collections.abc import Iterator
from functools import partial

from fairlead.zones.engines import KeyValue, Transaction
from fairlead.zones.keyspace import TenantKeys, unpack_names
from fairlead.zones.layout import ShardLayout, Tenant, ZoneLocation
from fairlead.zones.local_index import Entry, indexed_key, listing_key, parse_local_key
from fairlead.zones.maintenance.integrity.findings import Problem
from fairlead.zones.maintenance.integrity.parsed_keys import DB_PREFIX_BYTES
from fairlead.zones.maintenance.integrity.records import check_damaged_key
from fairlead.zones.maintenance.integrity.walk import Check
from fairlead.zones.pipelining import Operation
from fairlead.zones.queue import item_keys
from fairlead.zones.queue.item_keys import IndexedItem
from fairlead.zones.records import DeadLetterRecord, ItemRecord, decode

NOT_IN_INDEX = "the shard's index does not find what a tenant holds"
NAMES_NO_ITEM = "the shard's index names an item that has no such key, or has ended"
DANGLING_ENTRY = "the shard's index names what its tenant does not hold"


def row_checks(key: bytes, layout: ShardLayout) -> Iterator[Check]:
    """Yield the checks of a tenant's row in the subspace `INDEXED`.

    A repair writes the entry of the shard's index; or clears both keys, if they name what is not there.
    """
    names, listed_key = unpack_names(key, DB_PREFIX_BYTES, 2), listing_key(key)
    if names is None or listed_key is None:
        yield partial(check_damaged_key, key=key, derived=True)
        return
    yield partial(_check_row, key=key, listed_key=listed_key)
    item = item_keys.item_of_row(TenantKeys(*names[0]), key)
    if item is not None:
        location = layout.location(Tenant(*names[0]), item.zone)
        yield partial(_check_item, key=key, listed_key=listed_key, location=location, item=item)


def entry_check(row: KeyValue) -> Check:
    """Return the check of a row of the shard's index. A repair clears an entry without its twin."""
    entry = parse_local_key(row.key)
    if entry is None:
        return partial(check_damaged_key, key=row.key, derived=True)
    return partial(_check_entry, key=row.key, entry=entry)


def _check_row(tr: Transaction, *, key: bytes, listed_key: bytes) -> Operation[list[Problem]]:
    stored, listed = tr.get(key), tr.get(listed_key)
    yield
    if not stored.present() or listed.present():
        return []
    return [Problem(NOT_IN_INDEX, key, mend=lambda tr: tr.set(listed_key, b""))]


def _check_item(
    tr: Transaction, *, key: bytes, listed_key: bytes, location: ZoneLocation, item: IndexedItem
) -> Operation[list[Problem]]:
    """Check that an entry names an item, or a dead letter, that has this key."""
    stored, present = tr.get(key), tr.get(location.keys.item(item.item_id))
    dead = tr.get(location.keys.dead_letter(item.item_id))
    yield
    if not stored.present():
        return []
    record = None if present.value is None else decode(ItemRecord, present.value)
    dead_letter = None if dead.value is None else decode(DeadLetterRecord, dead.value)
    unreadable = (present.present() and record is None) or (dead.present() and dead_letter is None)
    held = (*(() if record is None else record.keys), *(() if dead_letter is None else dead_letter.item.keys))
    if unreadable or item.packed_key in held:
        return []

    def clear(tr: Transaction) -> None:
        tr.clear(key)
        tr.clear(listed_key)

    return [Problem(NAMES_NO_ITEM, key, location, item.item_id, clear)]


def _check_entry(tr: Transaction, *, key: bytes, entry: Entry) -> Operation[list[Problem]]:
    """Check an entry by its twin; both are there, too, of a tenant that has left and is not cleared."""
    listed = tr.get(key)
    stored = tr.get(indexed_key(TenantKeys(*entry.tenant), entry.index_key, entry.member))
    yield
    if not listed.present() or stored.present():
        return []
    return [Problem(DANGLING_ENTRY, key, mend=lambda tr: tr.clear(key))]
