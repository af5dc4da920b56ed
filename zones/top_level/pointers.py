"""Pointers: the entries of the top-level queue, one per active queue zone (QuiCK section 6).

A pointer's id is its zone's packed name. Its record lies beside the zone's items, so an enqueue finds it without a
search. Its entry in the top-level queue names the zone, so a scan finds the zone without the record.

A manager moves a pointer each time it processes it, and an enqueue reads it each time: by snapshot, or they would
conflict all the time. What an enqueue must not miss is that the pointer was made, deleted or put to sleep meanwhile. So
a transaction that does one of these declares a write conflict on the pointer's *guard*, a key that never holds a value.
A transaction that reads the pointer by snapshot declares a read conflict on the guard.

                                   reads with conflict                           writes
    enqueue, pointer awake         guard
    enqueue that makes it          guard                                         record, entry, guard
    enqueue that wakes it          guard, record                                 record, entry
    lease; requeue, items remain   record                                        record, entry
    requeue that is a sleep        record, whole vesting index of the zone       record, entry, guard
    deletion                       record, whole item range of the zone          record, entry, guard

Each transaction that inserts an index entry that vests earlier than the one it replaces (a returned item, a retried
dead letter, a shorter lease) is an enqueue here.

A clock that was ahead for a moment puts pointers to sleep for too long. So each record states when it was written and
how long the pointer may sleep. If that is longer than `max_sleep`, its index entry states it, too. A pointer that vests
later than its bound allows oversleeps: housekeeping finds it, and wakes it.
"""

from typing import NamedTuple

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.engines.api.database import ValueFuture
from fairlead.zones.keyspace import PartKeys
from fairlead.zones.layout import ShardLayout, ZoneLocation
from fairlead.zones.pipelining import Operation
from fairlead.zones.probes import probe
from fairlead.zones.queue.index_scan import WANT_ALL, collect_vested
from fairlead.zones.records import POINTER_PRIORITY, PointerRecord, decode, encode
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.top_level.part_writes import PartWrites, wake_watchers

MAY_SLEEP = b"\x02"  # Before two times, when it was written and how long it may sleep: longer than `max_sleep`.
_TIME_BYTES = 8
UNREADABLE = b"\x01"  # The mark of a pointer whose zone holds something that could not be read.


class PointerRef(NamedTuple):
    """What a scan knows of a pointer: where it is and when it vested. The manager reads the record.

    `id`: the end of its entry, which is the packed name of its zone unless the entry is dangling; see `location_of`.
    """

    part: int
    id: bytes
    vesting_us: int
    priority: int


def scan(
    tr: Reader, part: PartKeys, *, now_us: int, ids_max: int, begin: bytes = b""
) -> Operation[tuple[list[PointerRef], bytes | None]]:
    """Read up to `ids_max` vested pointers of a part in order, and where to go on (None: that was all).

    Reads index keys only, by snapshot; conflicts with nothing (QuiCK section 6: the peek "only scans entries of the
    vesting time index"). A pointer that has a second, dangling entry comes once: a batch may hold each pointer
    only once.
    """
    end = part.vest_priority(POINTER_PRIORITY + 1)  # Behind those that have not vested there is no other priority.
    entries, stopped_at = yield from collect_vested(tr, part, now_us=now_us, keys_max=ids_max, begin=begin, end=end)
    refs = {entry.id: PointerRef(part.part, entry.id, entry.vesting_us, entry.priority) for entry in reversed(entries)}
    return list(reversed(refs.values())), stopped_at


def scan_back(
    tr: Reader, part: PartKeys, *, before_us: int, ids_max: int, end: bytes = b""
) -> Operation[tuple[list[PointerRef], bytes | None]]:
    """Read up to `ids_max` pointers of a part that vested before `before_us`, the youngest first, and where to go on.

    As `scan`, but from the other end: two scans from either end rarely choose the same. `end`: as it was returned.
    """
    begin, end = part.vest_priority(POINTER_PRIORITY), end or part.vest_after(POINTER_PRIORITY, before_us - 1)
    sent = tr.snapshot.get_range(begin, end, limit=ids_max, reverse=True, streaming_mode=WANT_ALL)
    yield
    rows = list(sent)
    entries = [entry for row in rows if (entry := part.entry(row.key)) is not None]
    refs = {entry.id: PointerRef(part.part, entry.id, entry.vesting_us, entry.priority) for entry in reversed(entries)}
    return list(reversed(refs.values())), rows[-1].key if len(rows) == ids_max else None


def pointer_ids(tr: Reader, layout: ShardLayout, *, ids_max: int) -> tuple[list[bytes], bool]:
    """Return the ids of up to `ids_max` pointers, vested or not, and whether these are all. Snapshot reads."""
    ids: list[bytes] = []
    for part in layout.parts:
        begin, end = part.vest_priority(0), part.vest_end()
        rows = tr.snapshot.get_range(begin, end, limit=ids_max + 1 - len(ids), streaming_mode=WANT_ALL)
        ids += [entry.id for row in rows if (entry := part.entry(row.key)) is not None]
        if len(ids) > ids_max:
            return ids[:ids_max], False
    return ids, True


def earliest_vesting_us(tr: Reader, part: PartKeys, *, after_us: int = 0) -> Operation[int | None]:
    """Read when the next pointer of the part vests after `after_us`, or None if none does. Snapshot reads."""
    begin, end = part.vest_after(POINTER_PRIORITY, after_us), part.vest_end()
    while True:
        rows = tr.snapshot.get_range(begin, end, limit=1)
        yield
        row = next(iter(rows), None)
        if row is None:
            return None
        entry = part.entry(row.key)
        if entry is not None:
            return entry.vesting_us
        begin = row.key + b"\x00"


def location_of(ref: PointerRef, layout: ShardLayout) -> ZoneLocation | None:
    """Return the zone that a pointer points to; None if an entry of that id does not belong into that part."""
    location = layout.location_of(ref.id)
    return location if location is not None and location.part.part == ref.part else None


def read_for_insert(tr: Transaction, location: ZoneLocation) -> ValueFuture:
    """Read the record of the zone's pointer for a transaction that inserts an index entry, and return the future.

    Reads by snapshot, and with conflict the guard: so it conflicts with transactions that make or delete the pointer or
    put it to sleep, and not with requeues that leave it awake. If this very transaction made, woke or deleted the
    pointer, it sees the pointer as changed.
    """
    stored = tr.snapshot.get(location.keys.pointer)  # Conflicts count from the first read on: it must be one.
    tr.add_read_conflict_key(location.keys.pointer_guard)
    return stored


def create(
    tr: Transaction, location: ZoneLocation, *, vesting_us: int, now_us: int, parts: PartWrites | None = None
) -> None:
    """Make the zone's pointer. Writes the record and its index entry; a declared write conflict on the guard.

    The caller has called `read_for_insert`, so two that create the same pointer conflict.
    """
    record = PointerRecord(vesting_us, last_active_us=now_us)
    _store(tr, location, record, bound_us=vesting_us - now_us, now_us=now_us, entry_value=b"")
    tr.add_write_conflict_key(location.keys.pointer_guard)
    wake_scanners(tr, location, parts)


def move(
    tr: Transaction,
    location: ZoneLocation,
    pointer: PointerRecord,
    vesting_us: int,
    *,
    now_us: int,
    bound_us: int | None = None,
    entry_value: bytes = b"",
) -> None:
    """Store `pointer`, changed by the caller, under a new vesting time. Writes the record and its index entry.

    The caller has read the record with conflict. `bound_us`: how long it may sleep; None: until `vesting_us`.
    `entry_value`: a mark for those that count pointers, such as `UNREADABLE`; it stands until the next move.
    """
    tr.clear(location.part.vest(pointer.priority, pointer.vesting_us, location.pointer_id))
    pointer.vesting_us = vesting_us
    _store(
        tr,
        location,
        pointer,
        bound_us=vesting_us - now_us if bound_us is None else bound_us,
        now_us=now_us,
        entry_value=entry_value,
    )


def _store(
    tr: Transaction, location: ZoneLocation, pointer: PointerRecord, *, bound_us: int, now_us: int, entry_value: bytes
) -> None:
    pointer.scheduled_us, pointer.bound_us = now_us, max(0, bound_us)
    if not entry_value and pointer.bound_us > location.layout.settings.max_sleep_ms * 1000:
        entry_value = b"".join([MAY_SLEEP, *(each.to_bytes(_TIME_BYTES, "big") for each in (now_us, pointer.bound_us))])
    tr.set(location.keys.pointer, encode(pointer))
    tr.set(location.part.vest(pointer.priority, pointer.vesting_us, location.pointer_id), entry_value)


def delete(tr: Transaction, location: ZoneLocation, pointer: PointerRecord) -> None:
    """Clear the pointer and its index entry; a declared write conflict on the guard.

    The caller has read with conflict: the record, and the zone's whole item range.
    """
    tr.clear(location.keys.pointer)
    tr.clear(location.part.vest(pointer.priority, pointer.vesting_us, location.pointer_id))
    tr.add_write_conflict_key(location.keys.pointer_guard)


def must_wake(pointer: PointerRecord, *, earliest_us: int, now_us: int, settings: ZoneSettings) -> bool:
    """Say whether a pointer would let an item wait that vests at `earliest_us`.

    A leased pointer stays if its lease ends soon: its holder will requeue it, and must read the index for that. A lease
    longer than any consumer may take comes from a wrong clock, and the pointer is woken. A pointer that a consumer has
    deferred would let an item wait that only that consumer can run.
    """
    if pointer.lease_id and pointer.vesting_us > now_us:
        if pointer.vesting_us <= now_us + (settings.max_pointer_lease_ms + settings.max_skew_ms) * 1000:
            probe("an enqueue finds its zone's pointer leased")
            return False
        probe("an enqueue does not believe the lease of its zone's pointer")
        return True
    return pointer.deferred or pointer.vesting_us > max(earliest_us, now_us) + settings.wake_slack_ms * 1000


def wake(
    tr: Transaction,
    location: ZoneLocation,
    pointer: PointerRecord,
    *,
    earliest_us: int,
    now_us: int,
    parts: PartWrites | None = None,
) -> None:
    """Move a pointer, read by snapshot, forward to where its earliest item needs it.

    Adds a read conflict on the record: of two that wake one pointer, and of a waker and a lease, one loses. QuiCK
    does this in a second transaction; a crash in between would leave a fresh item behind a sleeping pointer.
    """
    probe("a sleeping pointer is woken")
    tr.add_read_conflict_key(location.keys.pointer)
    if pointer.lease_id:  # Its holder has not read the index yet, and will not wake it for earlier items.
        earliest_us = now_us
    pointer.lease_id = b""
    if pointer.deferred:  # It keeps its place. By its new time, consumers that passed it over look at it again.
        pointer.deferred = False
        move(tr, location, pointer, pointer.vesting_us + 1, now_us=now_us)
    else:
        move(tr, location, pointer, max(earliest_us, now_us), now_us=now_us)
    wake_scanners(tr, location, parts)


def wake_scanners(tr: Transaction, location: ZoneLocation, parts: PartWrites | None = None) -> None:
    """Wake the scanners that watch the pointer's part: it vests earlier than they know. One atomic add, if any does.

    `parts`: gathers that; None: it is written now.
    """
    if not location.layout.is_watched:
        return
    if parts is None:
        wake_watchers(tr, location.part.change_counter)
    else:
        parts.wake_watchers(location.part.change_counter)


def oversleeps(vesting_us: int, entry_value: bytes, *, now_us: int, settings: ZoneSettings) -> bool:
    """Say whether a pointer vests later than its writer can have intended: its clock was ahead.

    `entry_value`: the value of its index entry. Good clocks are `max_skew` off at most.
    """
    if vesting_us <= longest_sleep_us(now_us, settings):
        return False
    if len(entry_value) != len(MAY_SLEEP) + 2 * _TIME_BYTES or not entry_value.startswith(MAY_SLEEP):
        return True
    scheduled_us, bound_us = (int.from_bytes(entry_value[at : at + _TIME_BYTES], "big") for at in (1, 1 + _TIME_BYTES))
    return scheduled_us > now_us + settings.max_skew_ms * 1000 or vesting_us > scheduled_us + bound_us


def longest_sleep_us(now_us: int, settings: ZoneSettings) -> int:
    """Return the latest vesting time of a pointer whose entry states no bound: by a sleep, or by a lease."""
    return now_us + (max(settings.max_sleep_ms, settings.max_pointer_lease_ms) + settings.max_skew_ms) * 1000


class OversleepScan(NamedTuple):
    """What a scan for oversleeping pointers found. `end`: where to go on; empty: at the end of the part again."""

    woken: int
    entries: int
    end: bytes


def wake_oversleeping(
    tr: Transaction, layout: ShardLayout, part: PartKeys, *, now_us: int, entries_max: int, end: bytes = b""
) -> OversleepScan:
    """Wake the pointers of a part that oversleep.

    Looks at `entries_max` entries, from the latest backward, or from `end`. Snapshot reads of the index; with conflict
    the records of those that it wakes. May run twice.
    """
    begin = part.vest_after(POINTER_PRIORITY, longest_sleep_us(now_us, layout.settings))
    rows = list(
        tr.snapshot.get_range(begin, end or part.vest_end(), limit=entries_max, reverse=True, streaming_mode=WANT_ALL)
    )
    late = []
    for row in rows:
        entry = part.entry(row.key)
        if entry is None or not oversleeps(entry.vesting_us, row.value, now_us=now_us, settings=layout.settings):
            continue
        location = layout.location_of(entry.id)
        if location is not None:  # Otherwise the store check finds the entry.
            late.append((location, entry.vesting_us, tr.get(location.keys.pointer)))
    for location, vesting_us, stored in late:
        pointer = None if stored.value is None else decode(PointerRecord, stored.value)
        if pointer is not None and pointer.vesting_us == vesting_us:
            probe("a pointer that oversleeps is woken")
            pointer.lease_id, pointer.deferred = b"", False
            move(tr, location, pointer, now_us, now_us=now_us)
            wake_scanners(tr, location)
    return OversleepScan(len(late), len(rows), rows[-1].key if len(rows) == entries_max else b"")
