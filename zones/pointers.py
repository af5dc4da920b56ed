"""Pointers: the entries of the top-level queue, one per active queue zone (QuiCK section 6).

A pointer's id is the hash of its zone's name, so an enqueue reads the pointer and the pointer index in one round,
and a pointer is found without a search. The pointer index, which says whether there is one, is a key of its own
because every enqueue reads it with conflict: it changes only when a pointer is made or deleted, never when it is
leased or moved, so enqueues and consumers do not collide.
"""

from typing import Any, NamedTuple

from zones.keyspace import PartKeys
from zones.layout import Layout, Place, Tenant
from zones.probes import probe
from zones.records import POINTER_PRIORITY, PointerRecord, encode
from zones.settings import ZoneSettings
from zones.steps import Steps
from zones.vesting import collect_vested


class PointerRef(NamedTuple):
    """What a scan knows of a pointer: where it is and when it vested. The record is the manager's to read."""

    part: int
    id: bytes
    vesting_us: int
    priority: int


def scan(
    tr: Any, part: PartKeys, *, now_us: int, ids_max: int, begin: bytes = b""
) -> Steps[tuple[list[PointerRef], bytes | None]]:
    """Read up to `ids_max` vested pointers of a part in order, and where to go on (None: that was all).

    Reads index keys only, by snapshot; conflicts with nothing (QuiCK section 6: "the peek only scans entries of the
    vesting time index"). A pointer that has a second, dangling entry comes once: a batch of visits may hold at most
    one of each.
    """
    entries, stopped_at = yield from collect_vested(tr, part, now_us=now_us, keys_max=ids_max, begin=begin)
    refs = {entry.id: PointerRef(part.part, entry.id, entry.vesting_us, entry.priority) for entry in reversed(entries)}
    return list(reversed(refs.values())), stopped_at


def earliest_vesting_us(tr: Any, part: PartKeys, *, after_us: int = 0) -> Steps[int | None]:
    """Read when the next pointer of the part vests after `after_us`, or None if none does. Snapshot reads."""
    rows = tr.snapshot.get_range(part.vest_after(POINTER_PRIORITY, after_us), part.vest_end(), limit=1)
    yield
    row = next(iter(rows), None)
    return None if row is None else part.entry(row.key).vesting_us


def create(tr: Any, place: Place, *, vesting_us: int, now_us: int) -> None:
    """Make the zone's pointer. Writes record, index entry and pointer index.

    The caller has read the pointer index with conflict, so two that create the same pointer collide.
    """
    record = PointerRecord(place.tenant.app, place.tenant.user, place.name, vesting_us, last_active_us=now_us)
    tr.set(place.keys.pointer, place.pointer_id)
    tr.set(place.part.item(place.pointer_id), encode(record))
    tr.set(place.part.vest(record.priority, vesting_us, place.pointer_id), b"")


def move(tr: Any, part: PartKeys, pointer_id: bytes, pointer: PointerRecord, vesting_us: int) -> None:
    """Store `pointer`, changed by the caller, under a new vesting time. Writes the record and its index entry.

    The caller has read the record with conflict.
    """
    tr.clear(part.vest(pointer.priority, pointer.vesting_us, pointer_id))
    pointer.vesting_us = vesting_us
    tr.set(part.item(pointer_id), encode(pointer))
    tr.set(part.vest(pointer.priority, vesting_us, pointer_id), b"")


def delete(tr: Any, place: Place, pointer: PointerRecord) -> None:
    """Clear the pointer, its index entry, and the pointer index.

    The caller has read with conflict: the record, the pointer index, and the zone's whole item range.
    """
    tr.clear(place.keys.pointer)
    tr.clear(place.part.item(place.pointer_id))
    tr.clear(place.part.vest(pointer.priority, pointer.vesting_us, place.pointer_id))


def must_wake(pointer: PointerRecord, *, earliest_us: int, now_us: int, settings: ZoneSettings) -> bool:
    """Say whether a pointer would let an item wait that vests at `earliest_us`.

    A leased pointer is left alone if its lease ends soon: its holder will requeue it, and must look at the index to
    do so. A lease longer than anybody may take comes from a wrong clock and is not waited for. A pointer that a
    consumer has left to others lets an item wait that only that consumer can run.
    """
    if pointer.lease_id and pointer.vesting_us > now_us:
        if pointer.vesting_us <= now_us + (settings.max_pointer_lease_ms + settings.max_skew_ms) * 1000:
            probe("an enqueue finds its zone's pointer leased")
            return False
        probe("an enqueue does not believe the lease of its zone's pointer")
        return True
    return pointer.left or pointer.vesting_us > max(earliest_us, now_us) + settings.wake_slack_ms * 1000


def wake(tr: Any, place: Place, pointer: PointerRecord, *, earliest_us: int, now_us: int) -> None:
    """Move a pointer, read by snapshot, forward to where its earliest item needs it.

    Adds a read conflict on the record: of two that wake one pointer, and of a waker and a lease, one loses. QuiCK
    does this in a second transaction; a crash in between would leave a fresh item behind a sleeping pointer.
    """
    probe("a sleeping pointer is woken")
    tr.add_read_conflict_key(place.part.item(place.pointer_id))
    if pointer.lease_id:  # Its holder has not looked at the index yet, and will not put right what vests before this.
        earliest_us = now_us
    pointer.lease_id = b""
    if pointer.left:  # It keeps its place among the vested, and by its new time all look again who passed it over.
        pointer.left = False
        move(tr, place.part, place.pointer_id, pointer, pointer.vesting_us + 1)
    else:
        move(tr, place.part, place.pointer_id, pointer, max(earliest_us, now_us))


def place_of(pointer: PointerRecord, layout: Layout) -> Place:
    """Return the zone that a pointer points to."""
    return layout.place(Tenant(pointer.app, pointer.user), pointer.zone)
