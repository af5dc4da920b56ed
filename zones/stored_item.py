"""An item as it is stored: its record, its index entry, its counts and its payload, always changed together.

Everything that inserts, moves or removes an item goes through the functions here, so that the index names every
record exactly once and the counts equal the items. Each writes only; what must be read first, and with which
conflicts, is said where they are called.
"""

from typing import Any

from zones.errors import OwnerUnreadable, TenantMoved
from zones.keyspace import range_begin, range_end
from zones.layout import Layout, Place
from zones.probes import probe
from zones.records import ItemRecord, OwnerRecord, TenantRule, decode, encode, is_newer
from zones.settings import INLINE_PAYLOAD_BYTES_MAX, PIECE_BYTES

_ZERO = bytes(8)


def insert(tr: Any, place: Place, item_id: bytes, record: ItemRecord) -> None:
    """Write a new item with its index entry and its payload. The caller counts it with `change_count`."""
    payload = record.payload
    if len(payload) > INLINE_PAYLOAD_BYTES_MAX:
        record.payload_bytes = len(payload)
        record.payload = b""
        for number, begin in enumerate(range(0, len(payload), PIECE_BYTES)):
            tr.set(place.keys.piece(item_id, number), payload[begin : begin + PIECE_BYTES])
    tr.set(place.keys.item(item_id), encode(record))
    tr.set(place.keys.vest(record.priority, record.vesting_us, item_id), record.kind.encode())


def rewrite(tr: Any, place: Place, item_id: bytes, record: ItemRecord) -> None:
    """Store `record`, of which the caller changed nothing that the index names."""
    tr.set(place.keys.item(item_id), encode(record))


def move(tr: Any, place: Place, item_id: bytes, record: ItemRecord, vesting_us: int) -> bytes:
    """Store `record`, changed by the caller, under a new vesting time; return its stored form."""
    tr.clear(place.keys.vest(record.priority, record.vesting_us, item_id))
    record.vesting_us = vesting_us
    value = encode(record)
    tr.set(place.keys.item(item_id), value)
    tr.set(place.keys.vest(record.priority, vesting_us, item_id), record.kind.encode())
    return value


def remove(tr: Any, place: Place, item_id: bytes, record: ItemRecord, *, keep_payload: bool = False) -> None:
    """Clear an item, its index entry, and its payload unless `keep_payload`. The caller counts it."""
    tr.clear(place.keys.item(item_id))
    tr.clear(place.keys.vest(record.priority, record.vesting_us, item_id))
    if record.payload_bytes and not keep_payload:
        clear_payload(tr, place, item_id)


def clear_payload(tr: Any, place: Place, item_id: bytes) -> None:
    """Clear the pieces of a payload that was too long for its record."""
    prefix = place.keys.payload_prefix(item_id)
    tr.clear_range(range_begin(prefix), range_end(prefix))


def read_payload(tr: Any, place: Place, item_id: bytes, record: ItemRecord) -> bytes:
    """Return the payload of an item, put together from its pieces by snapshot reads if it has any."""
    if not record.payload_bytes:
        return record.payload
    probe("a payload is put together from its pieces")
    prefix = place.keys.payload_prefix(item_id)
    return b"".join(pair.value for pair in tr.snapshot.get_range(range_begin(prefix), range_end(prefix)))


def change_count(tr: Any, place: Place, kind: str, change: int) -> None:
    """Add `change` to the counts of the zone and of its part; a count's key goes when it reaches zero.

    Atomic adds: no reads, no conflicts. Not idempotent: the caller has read, with conflict, that the items are
    there (or are not).
    """
    amount = change.to_bytes(8, "little", signed=True)
    for key in (place.keys.count(kind), place.part.depth(kind)):
        tr.add(key, amount)
        if change < 0:
            tr.compare_and_clear(key, _ZERO)


def number_of(value: bytes) -> int:
    """Return what a count says; of one that is damaged, what an atomic add takes it for."""
    return int.from_bytes(value[:8].ljust(8, b"\0"), "little", signed=True)


_NO_RULE = TenantRule()


def check_owner(layout: Layout, value: bytes | None) -> TenantRule:
    """Return the tenant's rule. `value`: its ownership record; absent means: at home since ever, and without a rule.

    Raises:
      TenantMoved: the record names another shard.
      OwnerUnreadable: it cannot be read.
    """
    if value is None:
        return _NO_RULE
    owner = decode(OwnerRecord, value)
    if owner is None:
        raise OwnerUnreadable(shard=layout.shard_id.hex(), newer=is_newer(value))
    if owner.shard_id != layout.shard_id:
        raise TenantMoved(shard=layout.shard_id.hex(), owner=owner.shard_id.hex())
    return owner.rule
