"""Checks of what is over: buried items and their list, and ids that stay taken after completion."""

from fairlead.zones.engines import Transaction
from fairlead.zones.keyspace import DONE, RESULT
from fairlead.zones.layout import Layout, Place, Tenant
from fairlead.zones.maintenance.integrity.findings import Problem, pair
from fairlead.zones.maintenance.integrity.items import with_payload
from fairlead.zones.maintenance.integrity.parsed_keys import Places, ZoneKey
from fairlead.zones.pipelining import Steps
from fairlead.zones.queue.dead_letters import grave_key
from fairlead.zones.queue.id_retention import TIME_BYTES, forget_key
from fairlead.zones.records import BuriedRecord, decode, is_newer
from fairlead.zones.tuples import elements_of

DAMAGED_BURIED = "a buried item's record is damaged"
NOT_LISTED = "a buried item is missing from the shard's list"
BURIED_ALIVE = "an id is both present and buried"
DANGLING_GRAVE = "the list of buried items names one that is not there"
NEVER_FORGOTTEN = "an id would stay taken for ever"
RESULT_NEVER_FORGOTTEN = "a result would be kept for ever"
DAMAGED_DONE = "until when an id stays taken cannot be read"
DANGLING_FORGET = "an entry to forget names no id that stays taken"


def check_buried(tr: Transaction, place: Place, item_id: bytes) -> Steps[list[Problem]]:
    """Check a buried item: the shard's list names it, and it does not live on in the queue."""
    key = place.keys.buried(item_id)
    stored, present = tr.get(key), tr.get(place.keys.item(item_id))
    yield
    if stored.value is None:
        return []
    record = decode(BuriedRecord, stored.value)
    if record is None:
        damaged = Problem(DAMAGED_BURIED, key, place, item_id, aside=with_payload(place, key, item_id))
        return [] if is_newer(stored.value) else [damaged]
    listed_key = grave_key(place, item_id, record.buried_us)
    listed = tr.get(listed_key)
    yield
    problems = []
    if listed.value is None:
        kind = record.item.kind.encode()
        problems.append(Problem(NOT_LISTED, key, place, item_id, lambda tr: tr.set(listed_key, kind)))
    if present.value is not None:
        problems.append(Problem(BURIED_ALIVE, key, place, item_id, aside=[pair(key)]))
    return problems


def check_grave(tr: Transaction, layout: Layout, key: bytes) -> Steps[list[Problem]]:
    """Check an entry of the shard's list of buried items: the item is buried, since then."""
    dangling = Problem(DANGLING_GRAVE, key, mend=lambda tr: tr.clear(key))
    match elements_of(key):
        case (_, _, int(buried_us), str(app), str(user), str(zone), bytes(item_id)):
            place = layout.place(Tenant(app, user), zone)
        case _:
            return [dangling]
    present = tr.get(key)
    stored = tr.get(place.keys.buried(item_id))
    yield
    record = None if stored.value is None else decode(BuriedRecord, stored.value)
    unreadable = record is None and stored.value is not None
    if present.value is None or unreadable or (record is not None and record.buried_us == buried_us):
        return []
    return [dangling._replace(place=place, item_id=item_id)]


def check_done(tr: Transaction, place: Place, item_id: bytes) -> Steps[list[Problem]]:
    """Check an id that stays taken: there is an entry that will make it be forgotten."""
    key = place.keys.done(item_id)
    stored = tr.get(key)
    yield
    if stored.value is None:
        return []
    if len(stored.value) != 8:
        return [Problem(DAMAGED_DONE, key, place, item_id, lambda tr: tr.clear(key))]
    forgotten_by = forget_key(place, key, int.from_bytes(stored.value, "big"))
    entry = tr.get(forgotten_by)
    yield
    if entry.value is not None:
        return []
    return [Problem(NEVER_FORGOTTEN, key, place, item_id, lambda tr: tr.set(forgotten_by, b""))]


def check_result(tr: Transaction, place: Place, item_id: bytes) -> Steps[list[Problem]]:
    """Check a kept result: there is an entry that will make it be forgotten."""
    key = place.keys.result(item_id)
    stored = tr.get(key)
    yield
    if stored.value is None:
        return []
    forgotten_by = forget_key(place, key, int.from_bytes(stored.value[:TIME_BYTES], "big"))
    entry = tr.get(forgotten_by)
    yield
    if entry.value is not None:
        return []
    return [Problem(RESULT_NEVER_FORGOTTEN, key, place, item_id, lambda tr: tr.set(forgotten_by, b""))]


def check_forget(tr: Transaction, layout: Layout, key: bytes) -> Steps[list[Problem]]:
    """Check an entry to forget: what it names could be an id that stays taken.

    That it is none any more is no error: it may have been completed again, until earlier.
    """
    present = tr.get(key)
    yield
    match elements_of(key):
        case (_, _, int(part), int(_), bytes(named)) if _keeps_taken(Places(layout).zone_key(named), part):
            return []
    if present.value is None:
        return []
    return [Problem(DANGLING_FORGET, key, mend=lambda tr: tr.clear(key))]


def _keeps_taken(key: ZoneKey | None, part: int) -> bool:
    """Say whether a key of a zone in this part can keep an id taken, or a result."""
    if key is None or key.place.part.part != part:
        return False
    return key.number in (DONE, RESULT) and [type(element) for element in key.rest] == [bytes]
