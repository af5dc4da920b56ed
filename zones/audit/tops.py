"""Checks of pointers: their records, their queue, their index, and whether they vest in time for their zones."""

from typing import Any

from zones import pointers
from zones.audit.findings import Problem
from zones.audit.places import elements_of
from zones.keyspace import IndexEntry, PartKeys
from zones.layout import Layout, Place, Tenant
from zones.queue_zone import QueueZone
from zones.records import ItemRecord, PointerRecord, decode, is_newer
from zones.steps import Steps, alone
from zones.vesting import read_first_of_each_priority

NO_POINTER = "a zone with items has no pointer"
LATE_POINTER = "a pointer vests later than its zone needs"
EMPTY_INDEX = "the pointer index names a pointer that is not there"
WRONG_INDEX = "the pointer index names another pointer than its zone's"
DAMAGED_POINTER = "a pointer's record is damaged"
NOT_INDEXED = "a pointer is missing from the pointer index"
MISPLACED = "a pointer lies where nobody looks for it"
NO_ENTRY = "a pointer has no entry in the top-level queue"
DANGLING_ENTRY = "an entry of the top-level queue leads to no pointer"
DAMAGED_NAME = "the pointer index holds a key that names no zone"


def check_zone(tr: Any, place: Place, *, now_us: int, rest_us: int) -> Steps[list[Problem]]:
    """Check that consumers will find a zone's items: it has a pointer, which vests in time.

    In time is not later than the earliest item, or `now_us + rest_us` if its work may be throttled or paused, or the
    end of a lease. What is missing on one side only is found from the other.
    """
    settings = place.layout.settings
    begin, end = place.keys.item_range()
    indexed = tr.get(place.keys.pointer)
    stored = tr.get(place.part.item(place.pointer_id))
    rows = tr.get_range(begin, end, limit=1)
    yield
    row = next(iter(rows), None)
    pointer = None if stored.value is None else decode(PointerRecord, stored.value)
    if row is None or (pointer is None and (stored.value is not None or indexed.value is not None)):
        return []
    earliest_us = yield from _earliest_steps(tr, place)
    needed_us = now_us if earliest_us is None else max(earliest_us, now_us)
    if pointer is None:
        return [Problem(NO_POINTER, row.key, place, mend=lambda tr: _wake(tr, place, needed_us, now_us))]
    slack_us = (settings.wake_slack_ms + settings.max_skew_ms) * 1000
    late = earliest_us is not None and pointer.vesting_us > max(earliest_us, now_us + rest_us) + slack_us
    lease_ends_us = now_us + (settings.max_pointer_lease_ms + settings.max_skew_ms) * 1000
    if not late or (pointer.lease_id and pointer.vesting_us <= lease_ends_us):
        return []

    def wake(tr: Any) -> None:
        pointers.wake(tr, place, pointer, earliest_us=needed_us, now_us=now_us)

    return [Problem(LATE_POINTER, place.part.item(place.pointer_id), place, mend=wake)]


def check_index(tr: Any, layout: Layout, key: bytes, *, now_us: int) -> Steps[list[Problem]]:
    """Check a key of the pointer index: it names its zone's pointer, which is there and can be read."""
    match elements_of(key):
        case (_, _, str(app), str(user), str(zone)):
            place = layout.place(Tenant(app, user), zone)
        case _:
            return [Problem(DAMAGED_NAME, key, mend=lambda tr: tr.clear(key))]
    begin, end = place.keys.item_range()
    indexed = tr.get(key)
    stored = tr.get(place.part.item(place.pointer_id))
    rows = tr.get_range(begin, end, limit=1)
    yield
    if indexed.value is None:
        return []
    if stored.value is None:

        def mend(tr: Any) -> None:
            if next(iter(rows), None) is None:
                tr.clear(key)
            else:
                pointers.create(tr, place, vesting_us=now_us, now_us=now_us)

        return [Problem(EMPTY_INDEX, key, place, mend=mend)]
    if indexed.value != place.pointer_id:
        return [Problem(WRONG_INDEX, key, place, mend=lambda tr: tr.set(key, place.pointer_id))]
    if decode(PointerRecord, stored.value) is None and not is_newer(stored.value):

        def make_anew(tr: Any) -> None:
            pointers.create(tr, place, vesting_us=now_us, now_us=now_us)

        return [Problem(DAMAGED_POINTER, place.part.item(place.pointer_id), place, mend=make_anew)]
    return []


def check_pointer(tr: Any, layout: Layout, part: PartKeys, pointer_id: bytes) -> Steps[list[Problem]]:
    """Check a pointer: it lies where its zone's name says, the pointer index knows it, and it has an entry."""
    key = part.item(pointer_id)
    stored = tr.get(key)
    yield
    pointer = None if stored.value is None else decode(PointerRecord, stored.value)
    if pointer is None:
        return []
    place = pointers.place_of(pointer, layout)
    entry_key = part.vest(pointer.priority, pointer.vesting_us, pointer_id)
    if (place.part.part, place.pointer_id) != (part.part, pointer_id):

        def clear(tr: Any) -> None:
            tr.clear(key)
            tr.clear(entry_key)

        return [Problem(MISPLACED, key, place, mend=clear)]
    entry, indexed = tr.get(entry_key), tr.get(place.keys.pointer)
    yield
    problems = []
    if entry.value is None:
        problems.append(Problem(NO_ENTRY, key, place, mend=lambda tr: tr.set(entry_key, b"")))
    if indexed.value is None:
        problems.append(Problem(NOT_INDEXED, key, place, mend=lambda tr: tr.set(place.keys.pointer, pointer_id)))
    return problems


def check_top_entry(tr: Any, part: PartKeys, entry: IndexEntry) -> Steps[list[Problem]]:
    """Check an entry of the top-level queue: it leads to a pointer that says the same."""
    key = part.vest(*entry)
    present, stored = tr.get(key), tr.get(part.item(entry.id))
    yield
    if present.value is None:
        return []
    pointer = None if stored.value is None else decode(PointerRecord, stored.value)
    unreadable = pointer is None and stored.value is not None
    if unreadable or (pointer is not None and (pointer.priority, pointer.vesting_us) == entry[:2]):
        return []
    return [Problem(DANGLING_ENTRY, key, mend=lambda tr: tr.clear(key))]


def _earliest_steps(tr: Any, place: Place) -> Steps[int | None]:
    """Read when the earliest item vests, by index entries that lead to items; None if there are none."""
    first = yield from read_first_of_each_priority(tr, place.keys)
    reads = [tr.get(place.keys.item(entry.id)) for entry in first]
    yield
    times = []
    for entry, read in zip(first, reads, strict=True):
        record = None if read.value is None else decode(ItemRecord, read.value)
        if record is not None and (record.priority, record.vesting_us) == entry[:2]:
            times.append(entry.vesting_us)
    return min(times, default=None)


def _wake(tr: Any, place: Place, earliest_us: int, now_us: int) -> None:
    zone = QueueZone(place.layout, place.tenant, place.name)
    alone(zone.wake_steps(tr, earliest_us=earliest_us, now_us=now_us))
