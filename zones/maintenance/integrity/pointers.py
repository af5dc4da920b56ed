"""Checks of pointers: their records, their queue, and whether they vest in time for their zones."""

from fairlead.zones.engines import Transaction
from fairlead.zones.layout import ShardLayout, ZoneLocation
from fairlead.zones.maintenance.integrity.findings import Problem
from fairlead.zones.pipelining import Operation, run_one
from fairlead.zones.policy.policies import may_sleep
from fairlead.zones.queue.index_scan import read_first_of_each_priority
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.records import ItemRecord, PointerRecord, decode, is_newer
from fairlead.zones.top_level import pointers
from fairlead.zones.top_level.pointers import PointerRef

NO_POINTER = "a zone with items has no pointer"
LATE_POINTER = "a pointer vests later than its zone needs"
DAMAGED_POINTER = "a pointer's record is damaged"
NO_ENTRY = "a pointer has no entry in the top-level queue"
DANGLING_ENTRY = "an entry of the top-level queue leads to no pointer"


def check_zone(tr: Transaction, location: ZoneLocation, *, now_us: int, rest_us: int) -> Operation[list[Problem]]:
    """Check that consumers will find a zone's items: it has a pointer, which vests in time.

    In time means: not later than the earliest item; or `now_us + rest_us` if its work may be throttled or of an unknown
    kind; or the end of a lease; or the end of a pause. `check_pointer` finds a pointer that cannot be read.
    """
    settings = location.layout.settings
    begin, end = location.keys.item_range()
    stored = tr.get(location.keys.pointer)
    rows = tr.get_range(begin, end, limit=1)
    yield
    row = next(iter(rows), None)
    pointer = None if stored.value is None else decode(PointerRecord, stored.value)
    if row is None or (pointer is None and stored.value is not None):
        return []
    earliest_us = yield from _earliest_op(tr, location)
    needed_us = now_us if earliest_us is None else max(earliest_us, now_us)
    if pointer is None:
        return [Problem(NO_POINTER, row.key, location, mend=lambda tr: _wake(tr, location, needed_us, now_us))]
    slack_us = (settings.wake_slack_ms + settings.max_skew_ms) * 1000
    late = earliest_us is not None and pointer.vesting_us > max(earliest_us, now_us + rest_us) + slack_us
    lease_ends_us = now_us + (settings.max_pointer_lease_ms + settings.max_skew_ms) * 1000
    if not late or (pointer.lease_id and pointer.vesting_us <= lease_ends_us) or may_sleep(tr, location):
        return []

    def wake(tr: Transaction) -> None:
        pointers.wake(tr, location, pointer, earliest_us=needed_us, now_us=now_us)

    return [Problem(LATE_POINTER, location.keys.pointer, location, mend=wake)]


def check_pointer(tr: Transaction, location: ZoneLocation, *, now_us: int) -> Operation[list[Problem]]:
    """Check the record of a zone's pointer: it can be read, and it has an entry in the top-level queue."""
    key = location.keys.pointer
    stored = tr.get(key)
    yield
    if stored.value is None:
        return []
    pointer = decode(PointerRecord, stored.value)
    if pointer is None:
        if is_newer(stored.value):
            return []

        def make_anew(tr: Transaction) -> None:
            pointers.create(tr, location, vesting_us=now_us, now_us=now_us)

        return [Problem(DAMAGED_POINTER, key, location, mend=make_anew)]
    entry_key = location.part.vest(pointer.priority, pointer.vesting_us, location.pointer_id)
    entry = tr.get(entry_key)
    yield
    if entry.value is None:
        return [Problem(NO_ENTRY, key, location, mend=lambda tr: tr.set(entry_key, b""))]
    return []


def check_pointer_entry(tr: Transaction, layout: ShardLayout, key: bytes, ref: PointerRef) -> Operation[list[Problem]]:
    """Check an entry of the top-level queue: it leads to a pointer of that part with the same values."""
    location = pointers.location_of(ref, layout)
    present = tr.get(key)
    stored = None if location is None else tr.get(location.keys.pointer)
    yield
    if present.value is None:
        return []
    if stored is not None and stored.value is not None:
        pointer = decode(PointerRecord, stored.value)
        if pointer is None or (pointer.vesting_us, pointer.priority) == (ref.vesting_us, ref.priority):
            return []
    return [Problem(DANGLING_ENTRY, key, mend=lambda tr: tr.clear(key))]


def _earliest_op(tr: Transaction, location: ZoneLocation) -> Operation[int | None]:
    """Read when the earliest item vests, by index entries that lead to items; None if there are none."""
    first = yield from read_first_of_each_priority(tr, location.keys)
    reads = [tr.get(location.keys.item(entry.id)) for entry in first]
    yield
    times = []
    for entry, read in zip(first, reads, strict=True):
        record = None if read.value is None else decode(ItemRecord, read.value)
        if record is not None and (record.priority, record.vesting_us) == entry[:2]:
            times.append(entry.vesting_us)
    return min(times, default=None)


def _wake(tr: Transaction, location: ZoneLocation, earliest_us: int, now_us: int) -> None:
    zone = QueueZone(location.layout, location.tenant, location.name)
    run_one(zone.wake_op(tr, earliest_us=earliest_us, now_us=now_us))
