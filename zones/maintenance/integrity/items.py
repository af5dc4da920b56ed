"""Checks of items: each record has one index entry and each index entry one record; payloads are whole."""

from collections.abc import Iterable
from functools import partial

from fairlead.zones.engines import KeyValue, Transaction
from fairlead.zones.keyspace import IndexEntry, range_begin, range_end
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.maintenance.integrity.claims import claim_problems_op
from fairlead.zones.maintenance.integrity.findings import Problem, Range, pair
from fairlead.zones.pipelining import Operation, run_one
from fairlead.zones.queue import item_keys, stored_item
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.records import DeadLetterRecord, ItemRecord, decode, is_newer

DAMAGED_ITEM = "an item's record is damaged"
NO_ENTRY = "an item has no entry in the vesting index"
WRONG_KIND = "an index entry names another kind than its item"
LONG_LEASE = "a lease ends later than any lease may"
DANGLING_ENTRY = "an index entry leads to no item"
INCOMPLETE_PAYLOAD = "a payload is incomplete"
ORPHAN_PAYLOAD = "pieces of a payload belong to no item"
ORPHAN_TRACEBACK = "a traceback belongs to no item"
NOT_FOUND_BY_KEY = "an item is not found by one of its keys"


def check_item(tr: Transaction, location: ZoneLocation, item_id: bytes, *, now_us: int) -> Operation[list[Problem]]:
    """Check a record: readable, named by its index entry, its lease within bounds, its claim and payload present."""
    keys = location.keys
    key = keys.item(item_id)
    stored = tr.get(key)
    yield
    if stored.value is None:
        return []
    record = decode(ItemRecord, stored.value)
    if record is None:
        damaged = Problem(DAMAGED_ITEM, key, location, item_id, aside=with_payload(location, key, item_id))
        return [] if is_newer(stored.value) else [damaged]
    entry_key = keys.vest(record.priority, record.vesting_us, item_id)
    entry = tr.get(entry_key)
    pieces = _pieces(tr, location, item_id, limit=1) if record.payload_bytes else ()
    yield
    problems = []
    kind = record.kind.encode()
    if entry.value != kind:

        def mend_entry(tr: Transaction) -> None:
            tr.set(entry_key, kind)
            _wake(tr, location, record.vesting_us, now_us)

        problems.append(Problem(NO_ENTRY if entry.value is None else WRONG_KIND, key, location, item_id, mend_entry))
    settings = location.layout.settings
    latest_us = now_us + settings.max_item_lease_ms * 1000 + settings.clocks_apart_us_max
    if record.lease_id and record.vesting_us > latest_us:

        def revoke(tr: Transaction) -> None:
            stored_item.move(tr, location, item_id, record, now_us)
            _wake(tr, location, now_us, now_us)

        problems.append(Problem(LONG_LEASE, key, location, item_id, revoke))
    if record.claim:
        problems += yield from claim_problems_op(tr, location, item_id, record, key)
    if record.keys:
        problems += yield from key_problems_op(tr, location, item_id, record, key)
    if record.payload_bytes and next(iter(pieces), None) is None:
        problems.append(Problem(INCOMPLETE_PAYLOAD, key, location, item_id, aside=with_payload(location, key, item_id)))
    return problems


def key_problems_op(
    tr: Transaction, location: ZoneLocation, item_id: bytes, record: ItemRecord, key: bytes
) -> Operation[list[Problem]]:
    """Check that an item, or a dead letter, has an entry for each of its keys. `key`: where its record lies."""
    if not all(map(item_keys.is_key, record.keys)):
        return [Problem(DAMAGED_ITEM, key, location, item_id, aside=with_payload(location, key, item_id))]
    reads = [tr.get(item_keys.entry_keys(location, item_id, packed)[0]) for packed in record.keys]
    yield
    if all(read.present() for read in reads):
        return []
    mend = partial(item_keys.add, location=location, item_id=item_id, keys=record.keys)
    return [Problem(NOT_FOUND_BY_KEY, key, location, item_id, mend)]


def check_entry(tr: Transaction, location: ZoneLocation, entry: IndexEntry) -> Operation[list[Problem]]:
    """Check an entry of the vesting index: it leads to a record with the same values."""
    key = location.keys.vest(*entry)
    present = tr.get(key)
    stored = tr.get(location.keys.item(entry.id))
    yield
    if present.value is None:
        return []
    record = None if stored.value is None else decode(ItemRecord, stored.value)
    unreadable = record is None and stored.value is not None
    if unreadable or (record is not None and (record.priority, record.vesting_us) == entry[:2]):
        return []
    return [Problem(DANGLING_ENTRY, key, location, entry.id, lambda tr: tr.clear(key))]


def check_payload(tr: Transaction, location: ZoneLocation, item_id: bytes) -> Operation[list[Problem]]:
    """Check the pieces of a payload: an item or a dead letter owns them, and their length is as recorded."""
    keys = location.keys
    key = keys.payload_prefix(item_id)
    present, dead_letter = tr.get(keys.item(item_id)), tr.get(keys.dead_letter(item_id))
    pieces = _pieces(tr, location, item_id)
    yield
    length = sum(len(piece.value) for piece in pieces)
    if not length:
        return []
    owner: ItemRecord | None = None
    record_key = keys.item(item_id) if present.value is not None else keys.dead_letter(item_id)
    if present.value is not None:
        owner = decode(ItemRecord, present.value)
    elif dead_letter.value is not None:
        record = decode(DeadLetterRecord, dead_letter.value)
        owner = None if record is None else record.item
    else:
        return [
            Problem(ORPHAN_PAYLOAD, key, location, item_id, lambda tr: stored_item.clear_payload(tr, location, item_id))
        ]
    if owner is None or owner.payload_bytes == length:
        return []
    if not owner.payload_bytes:
        return [
            Problem(ORPHAN_PAYLOAD, key, location, item_id, lambda tr: stored_item.clear_payload(tr, location, item_id))
        ]
    return [Problem(INCOMPLETE_PAYLOAD, key, location, item_id, aside=with_payload(location, record_key, item_id))]


def check_traceback(tr: Transaction, location: ZoneLocation, item_id: bytes) -> Operation[list[Problem]]:
    """Check a traceback: its item exists."""
    key = location.keys.traceback(item_id)
    present, stored = tr.get(key), tr.get(location.keys.item(item_id))
    yield
    if present.value is None or stored.value is not None:
        return []
    return [Problem(ORPHAN_TRACEBACK, key, location, item_id, lambda tr: tr.clear(key))]


def with_payload(location: ZoneLocation, key: bytes, item_id: bytes) -> list[Range]:
    """Return the ranges of a record, its traceback, and the pieces of its payload."""
    prefix = location.keys.payload_prefix(item_id)
    return [pair(key), pair(location.keys.traceback(item_id)), (range_begin(prefix), range_end(prefix))]


def _pieces(tr: Transaction, location: ZoneLocation, item_id: bytes, limit: int = 0) -> Iterable[KeyValue]:
    prefix = location.keys.payload_prefix(item_id)
    return tr.get_range(range_begin(prefix), range_end(prefix), limit=limit)


def _wake(tr: Transaction, location: ZoneLocation, earliest_us: int, now_us: int) -> None:
    zone = QueueZone(location.layout, location.tenant, location.name)
    run_one(zone.wake_op(tr, earliest_us=earliest_us, now_us=now_us))
