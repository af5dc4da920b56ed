"""Checks of items that ended: dead letters and their list, retained ids, and results."""

from fairlead.zones.engines import Transaction
from fairlead.zones.keyspace import RESULT, RETAINED_ID
from fairlead.zones.layout import ShardLayout, Tenant, ZoneLocation
from fairlead.zones.maintenance.integrity.findings import Problem, pair
from fairlead.zones.maintenance.integrity.items import key_problems_op, with_payload
from fairlead.zones.maintenance.integrity.parsed_keys import KeyParser, ZoneKey
from fairlead.zones.pipelining import Operation
from fairlead.zones.queue.dead_letters import dead_letter_index_key
from fairlead.zones.queue.id_retention import kept_until_us, retention_key
from fairlead.zones.records import DeadLetterRecord, decode, is_newer
from fairlead.zones.tuples import elements_of

DAMAGED_DEAD_LETTER = "a dead letter's record is damaged"
NOT_LISTED = "a dead letter is missing from the shard's list"
QUEUED_AND_DEAD_LETTER = "an item is both in its queue and a dead letter"
DANGLING_DEAD_LETTER_ENTRY = "the list of dead letters names one that does not exist"
NEVER_EXPIRES = "a retained id would never expire"
RESULT_NEVER_EXPIRES = "a result would never expire"
DAMAGED_RETAINED_ID = "the expiry of a retained id cannot be read"
DANGLING_RETENTION_ENTRY = "a retention entry names no retained id"


def check_dead_letter(tr: Transaction, location: ZoneLocation, item_id: bytes) -> Operation[list[Problem]]:
    """Check a dead letter: the shard's list names it, and the item is not in its queue."""
    key = location.keys.dead_letter(item_id)
    stored, present = tr.get(key), tr.get(location.keys.item(item_id))
    yield
    if stored.value is None:
        return []
    record = decode(DeadLetterRecord, stored.value)
    if record is None:
        damaged = Problem(DAMAGED_DEAD_LETTER, key, location, item_id, aside=with_payload(location, key, item_id))
        return [] if is_newer(stored.value) else [damaged]
    listed_key = dead_letter_index_key(location, item_id, record.dead_lettered_us)
    listed = tr.get(listed_key)
    yield
    problems = []
    if listed.value is None:
        kind = record.item.kind.encode()
        problems.append(Problem(NOT_LISTED, key, location, item_id, lambda tr: tr.set(listed_key, kind)))
    if record.item.keys:
        problems += yield from key_problems_op(tr, location, item_id, record.item, key)
    if present.value is not None:
        problems.append(Problem(QUEUED_AND_DEAD_LETTER, key, location, item_id, aside=[pair(key)]))
    return problems


def check_dead_letter_entry(tr: Transaction, layout: ShardLayout, key: bytes) -> Operation[list[Problem]]:
    """Check an entry of the shard's list of dead letters: the dead letter exists, with the same time."""
    dangling = Problem(DANGLING_DEAD_LETTER_ENTRY, key, mend=lambda tr: tr.clear(key))
    match elements_of(key):
        case (_, _, int(dead_lettered_us), str(app), str(user), str(zone), bytes(item_id)):
            location = layout.location(Tenant(app, user), zone)
        case _:
            return [dangling]
    present = tr.get(key)
    stored = tr.get(location.keys.dead_letter(item_id))
    yield
    record = None if stored.value is None else decode(DeadLetterRecord, stored.value)
    unreadable = record is None and stored.value is not None
    if present.value is None or unreadable or (record is not None and record.dead_lettered_us == dead_lettered_us):
        return []
    return [dangling._replace(location=location, item_id=item_id)]


def check_retained_id(tr: Transaction, location: ZoneLocation, item_id: bytes) -> Operation[list[Problem]]:
    """Check a retained id: a retention entry exists for it."""
    key = location.keys.retained_id(item_id)
    stored = tr.get(key)
    yield
    if stored.value is None:
        return []
    if len(stored.value) != 8:
        return [Problem(DAMAGED_RETAINED_ID, key, location, item_id, lambda tr: tr.clear(key))]
    expiry_key = retention_key(location, key, int.from_bytes(stored.value, "big"))
    entry = tr.get(expiry_key)
    yield
    if entry.value is not None:
        return []
    return [Problem(NEVER_EXPIRES, key, location, item_id, lambda tr: tr.set(expiry_key, b""))]


def check_result(tr: Transaction, location: ZoneLocation, item_id: bytes) -> Operation[list[Problem]]:
    """Check a kept result: a retention entry exists for it."""
    key = location.keys.result(item_id)
    stored = tr.get(key)
    yield
    if stored.value is None:
        return []
    expiry_key = retention_key(location, key, kept_until_us(stored.value))
    entry = tr.get(expiry_key)
    yield
    if entry.value is not None:
        return []
    return [Problem(RESULT_NEVER_EXPIRES, key, location, item_id, lambda tr: tr.set(expiry_key, b""))]


def check_retention_entry(tr: Transaction, layout: ShardLayout, key: bytes) -> Operation[list[Problem]]:
    """Check a retention entry: its key can be that of a retained id or a result.

    A missing id is not an error: its item may have been completed again, with an earlier expiry.
    """
    present = tr.get(key)
    yield
    match elements_of(key):
        case (_, _, int(part), int(_), bytes(named)) if _is_retained(KeyParser(layout).zone_key(named), part):
            return []
    if present.value is None:
        return []
    return [Problem(DANGLING_RETENTION_ENTRY, key, mend=lambda tr: tr.clear(key))]


def _is_retained(key: ZoneKey | None, part: int) -> bool:
    """Say whether a key of a zone in this part can hold a retained id, or a result."""
    if key is None or key.location.part.part != part:
        return False
    return key.number in (RETAINED_ID, RESULT) and [type(element) for element in key.rest] == [bytes]
