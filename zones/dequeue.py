"""Dequeue: peek and obtain leases in one transaction, of what the caller can run now (QuiCK section 5).

What cannot run now (a kind nobody here knows, one at its limit) must never stand in front of what can. So a dequeue
looks at a bounded window of the vesting index from its front, and if that was not enough, at a second window from
where the last one stopped. The place is kept in the zone's pointer, so that whoever visits next goes on from there.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from zones import stored_item
from zones.buried import bury
from zones.items import LeasedItem
from zones.keyspace import IndexEntry
from zones.layout import Place
from zones.records import ItemRecord, decode
from zones.settings import WINDOW_KEYS
from zones.steps import Steps
from zones.vesting import read_vested

UNLIMITED = 1 << 30


class Fit(IntEnum):
    """Whether a caller can run an item of a kind, best answer last."""

    UNKNOWN = 0  # not registered, or paused: ask again much later
    FULL = 1  # as many as may run are running: ask again soon
    RUNS = 2


class Room:
    """What a caller can run now: how many items in all, and of which kinds how many.

    One room serves all visits of a transaction, and shrinks with each item taken; a retry starts with a fresh one.
    """

    __slots__ = ("items", "kinds")

    def __init__(self, items: int, kinds: Mapping[str, int]) -> None:
        self.items = items
        self.kinds = dict(kinds)

    def fit(self, kind: str) -> Fit:
        """Say whether an item of `kind` can run now."""
        left = self.kinds.get(kind)
        if left is None:
            return Fit.UNKNOWN
        return Fit.RUNS if left > 0 and self.items > 0 else Fit.FULL

    def take(self, kind: str) -> None:
        """Use the room of one item."""
        self.items -= 1
        self.kinds[kind] -= 1

    def give_back(self, kind: str) -> None:
        """Return the room of one item that was not there after all."""
        self.items += 1
        self.kinds[kind] += 1


class Dequeued(NamedTuple):
    """What a dequeue took, and what it saw.

    `left`: the best fit among vested entries that it did not take, None if it took all it saw.
    `resume`: where the next dequeue goes on behind what cannot run; empty: at the front.
    """

    items: list[LeasedItem]
    left: Fit | None
    resume: bytes
    buried: int
    unreadable: int


def dequeue_steps(
    tr: Any,
    place: Place,
    *,
    room: Room,
    items_max: int,
    lease_id: bytes,
    lease_us: int,
    now_us: int,
    resume: bytes = b"",
) -> Steps[Dequeued]:
    """Lease up to `items_max` vested items that `room` admits, in (priority, vesting time) order.

    An item that lapsed `lapses_before_alone` times is taken alone, as the only item of its dequeue; one that lapsed
    again while it ran alone is buried instead: one poisonous item must not bury those that share its worker.

    Reads with conflict: ownership, the records of the items it takes; by snapshot: the vesting index. Writes: those
    items and their index entries. Conflicts with no enqueue.
    """
    owner = tr.get(place.keys.tenant.owner)
    picked, left, resume = yield from _pick_steps(tr, place, room, items_max, now_us, resume)
    reads = [tr.get(place.keys.item(entry.id)) for entry, _ in picked]
    yield
    stored_item.check_owner(place.layout, owner.value)
    lapses_max = place.layout.settings.lapses_before_alone
    items: list[LeasedItem] = []
    buried = unreadable = 0
    for (entry, kind), read in zip(picked, reads, strict=True):
        record = None if read.value is None else decode(ItemRecord, read.value)
        if record is None and read.value is not None:
            unreadable += 1
        elif record is None or (record.priority, record.vesting_us) != entry[:2]:
            _clear_dangling(tr, place, entry)
        elif record.lease_id and record.ran_alone:
            bury(tr, place, entry.id, record, reason="lapsed", error=LAPSED_ALONE, traceback="", now_us=now_us)
            buried += 1
        elif items and (items[-1].alone or record.lapse_count + bool(record.lease_id) >= lapses_max):
            left = Fit.RUNS
        else:
            items.append(lease(tr, place, entry.id, record, lease_id=lease_id, lease_us=lease_us, now_us=now_us))
            continue
        room.give_back(kind)
    return Dequeued(items, left, resume, buried, unreadable)


LAPSED_ALONE = "its worker died or stalled while it ran this item alone"


def lease(
    tr: Any, place: Place, item_id: bytes, record: ItemRecord, *, lease_id: bytes, lease_us: int, now_us: int
) -> LeasedItem:
    """Store `record`, which the caller has read with conflict and found vested, as leased; count its lapse.

    *Lapse*: it is leased although its last lease was never given back: its worker died or stalled.
    """
    if record.lease_id:
        record.lapse_count += 1
    record.lease_id, record.lease_us = lease_id, lease_us
    stored_item.move(tr, place, item_id, record, now_us + lease_us)
    return LeasedItem(item_id, record, record.lapse_count >= place.layout.settings.lapses_before_alone)


def _pick_steps(
    tr: Any, place: Place, room: Room, items_max: int, now_us: int, resume: bytes
) -> Steps[tuple[list[tuple[IndexEntry, str]], Fit | None, bytes]]:
    """Choose entries whose kinds can run: from the front, then from `resume`. Takes their room."""
    picked: list[tuple[IndexEntry, str]] = []
    left: Fit | None = None

    def enough(entry: IndexEntry, value: bytes) -> bool:
        nonlocal left
        if len(picked) >= items_max:
            return True
        kind = value.decode()
        fit = room.fit(kind)
        if fit is Fit.RUNS:
            room.take(kind)
            picked.append((entry, kind))
        else:
            left = fit if left is None else max(left, fit)
        return False

    begin = b""
    while True:
        stopped_at = yield from read_vested(
            tr, place.keys, now_us=now_us, keys_max=WINDOW_KEYS, first_read=items_max + 1, begin=begin, enough=enough
        )
        if stopped_at is None:
            return picked, left, b""
        if len(picked) >= items_max:
            return picked, Fit.RUNS, resume
        if begin:
            return picked, max(left or Fit.FULL, Fit.FULL), stopped_at
        begin = max(stopped_at, resume)


def _clear_dangling(tr: Any, place: Place, entry: IndexEntry) -> None:
    """Clear an index entry that disagrees with the record it names; the record was read with conflict."""
    key = place.keys.vest(entry.priority, entry.vesting_us, entry.id)
    tr.add_read_conflict_key(key)
    tr.clear(key)
