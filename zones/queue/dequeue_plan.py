"""Dequeue: peek and obtain leases in one transaction, of what the caller can run now (QuiCK section 5).

What cannot run now (a kind nobody here knows, one at its limit) must never stand in front of what can. So a dequeue
looks at a bounded window of the vesting index from its front, and if that was not enough, at a second window from
where the last one stopped. The place is kept in the zone's pointer, so that whoever visits next goes on from there.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.keyspace import IndexEntry
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.pipelining import Operation
from fairlead.zones.policy.fair_share import Quantum
from fairlead.zones.policy.tenant_limits import allowed_op, charge_limits
from fairlead.zones.probes import probe
from fairlead.zones.queue import stored_item
from fairlead.zones.queue.index_scan import Vested, read_vested
from fairlead.zones.queue.items import LeasedItem
from fairlead.zones.queue.poison_candidates import is_poison_candidate, move_poison_to_dead_letters, poison_error
from fairlead.zones.records import ItemRecord, KindPolicy, decode
from fairlead.zones.settings import WINDOW_KEYS

UNLIMITED = 1 << 30


class Admission(IntEnum):
    """Whether a caller can run an item of a kind, best answer last."""

    PAUSED = 0  # an operator has said so: whoever ends that wakes the zone
    UNKNOWN = 1  # not registered here: ask again much later
    FULL = 2  # as many as may run are running: ask again soon
    RUNS = 3


class Capacity:
    """What a caller can run now: how many items in all, and of which kinds how many, unless they are paused.

    One capacity serves all pointers of a transaction, and shrinks with each item; a retry starts with a fresh one.
    `observed`: the policies of kinds whose limits over the fleet are reckoned with in it. `poison_candidates`: how many
    items of those kinds can run alone, besides; see `poison_candidates`.
    """

    __slots__ = ("items", "kinds", "observed", "paused", "poison_candidates")

    def __init__(
        self,
        items: int,
        kinds: Mapping[str, int],
        observed: Mapping[str, KindPolicy] | None = None,
        *,
        poison_candidates: int = 1,
    ) -> None:
        self.items = items
        self.kinds = dict(kinds)
        self.observed = observed or {}
        self.poison_candidates = poison_candidates
        self.paused: frozenset[str] = frozenset()

    def fresh(self) -> "Capacity":
        """Return the same room for one attempt at a transaction."""
        return Capacity(self.items, self.kinds, self.observed, poison_candidates=self.poison_candidates)

    def admission(self, kind: str) -> Admission:
        """Say whether an item of `kind` can run now."""
        if kind in self.paused:
            return Admission.PAUSED
        left = self.kinds.get(kind)
        if left is None:
            return Admission.UNKNOWN
        return Admission.RUNS if left > 0 and self.items > 0 else Admission.FULL

    def exhaust(self, kind: str) -> None:
        """Leave no room for items of `kind`, if it is known here."""
        if kind in self.kinds:
            self.kinds[kind] = 0

    def reserve(self, kind: str) -> Admission:
        """Say whether an item of `kind` can run now, and use its room if it can."""
        left = self.kinds.get(kind, 0)
        if left <= 0 or self.items <= 0 or kind in self.paused:
            return self.admission(kind)
        self.kinds[kind] = left - 1
        self.items -= 1
        return Admission.RUNS

    def reserve_isolated(self) -> bool:
        """Say whether an item that was admitted can run alone; use the room for that, and not the items', if it can."""
        if self.poison_candidates <= 0:
            return False
        self.poison_candidates -= 1
        self.items += 1
        return True

    def take(self, kind: str, count: int, *, poison_candidates: int = 0) -> None:
        """Use the room of items of `kind`, some of which run alone."""
        self.items -= count - poison_candidates
        self.poison_candidates -= poison_candidates
        self.kinds[kind] -= count

    def release(self, kind: str) -> None:
        """Return the room of one item that was not there after all."""
        self.items += 1
        self.kinds[kind] += 1


class DequeuePlan(NamedTuple):
    """What a dequeue takes, and what it saw.

    `items`: ids and records of the items to lease; `lease_all` does.
    `remaining`: the best fit among vested entries that it does not take, None if it takes all that has vested; PAUSED
    also if it takes none because the tenant is paused. `first`: of every priority the first entry that will not have
    vested, the leases to be taken included, by priority; of the whole index unless `remaining` is FULL or RUNS; nothing
    if the tenant is paused. `cursor`, `best_skipped`: where the next dequeue goes on behind what cannot run (empty: at
    the front), and the best fit among what lies before. `skipped_kinds`: the kinds of the vested entries that cannot
    run now, as far as it looked. `unreadable`: vested items that a newer version wrote, or whose records or entries are
    damaged; left alone. `dead_letters`: ids and records of the items that it buried; `last_error` says why.
    `poison_candidates`: how many items it passed over that must run alone, and cannot now.
    """

    items: list[tuple[bytes, ItemRecord]]
    remaining: Admission | None
    first: list[IndexEntry]
    cursor: bytes
    best_skipped: Admission
    skipped_kinds: set[str]
    dead_letters: list[tuple[bytes, ItemRecord]]
    unreadable: int
    poison_candidates: int


def plan_op(tr: Transaction, index_scan: "IndexScan", quantum: Quantum, *, lease_us: int) -> Operation[DequeuePlan]:
    """Choose vested items that a room admits, in (priority, vesting time) order, for `lease_all` to lease.

    As many as the tenant's turn allows, whose first read has been sent.

    An item that lapsed `lapses_before_alone` times is passed over like a kind at its limit unless the room has a place
    in which it runs alone. One that lapsed again there is buried instead: one poisonous item must not bury those that
    share its worker. Where nothing runs alone, one is buried that has lapsed `SHARED_EXPIRIES` times more.

    Reads with conflict: ownership, the records of the items it chooses; by snapshot: the vesting index. The first round
    is ownership and the front of the index. Writes only what it buries, and clears index entries that lead nowhere.
    """
    location, now_us = index_scan.location, index_scan.now_us
    items: list[tuple[bytes, ItemRecord]] = []
    dead_letters: list[tuple[bytes, ItemRecord]] = []
    unreadable = poison_candidates = 0
    while True:
        picked = yield from index_scan.pick_op(tr, quantum.items_max, lambda: quantum.share() - len(items))
        if quantum.must_ask and index_scan.stopped_short and not quantum.policy.paused:
            asks = quantum.is_first(location.tenant)
            quantum.allowed = (yield from allowed_op(tr, location, quantum.policy, now_us=now_us)) if asks else 0
            continue
        reads = [tr.get(location.keys.item(entry.id)) for entry, _ in picked]
        yield
        skipped_before = unreadable + poison_candidates
        for (entry, kind), read in zip(picked, reads, strict=True):
            value = read.value
            record = None if value is None else decode(ItemRecord, value)
            if value is None or (record is not None and not _leads_to(entry, record)):
                probe("an item is gone or moved between the index and its record")
                _clear_dangling(tr, location, entry)
            elif record is None or record.kind != kind:
                unreadable += 1
                index_scan.skip(Admission.UNKNOWN)
            elif (proof := poison_error(location, record)) is not None:
                move_poison_to_dead_letters(tr, location, entry.id, record, proof, now_us=now_us)
                dead_letters.append((entry.id, record))
            elif is_poison_candidate(location, record) and not index_scan.capacity.reserve_isolated():
                poison_candidates += 1
                index_scan.skip_poison_candidate(kind)
            else:
                items.append((entry.id, record))
                index_scan.unvested.append(IndexEntry(entry.priority, now_us + lease_us, entry.id))
                continue
            index_scan.capacity.release(kind)
        if index_scan.ended or unreadable + poison_candidates == skipped_before:
            break
    remaining, first = _remaining(index_scan, quantum, len(items))
    if quantum.policy.is_limited:
        charge_limits(tr, location, quantum.policy, [item_id for item_id, _ in items], now_us=now_us)
    return DequeuePlan(
        items, remaining, first, index_scan.cursor, index_scan.best_skipped, index_scan.skipped_kinds, dead_letters,
        unreadable, poison_candidates,
    )  # fmt: skip


def _remaining(index_scan: "IndexScan", quantum: Quantum, count: int) -> tuple[Admission | None, list[IndexEntry]]:
    """Return `remaining` and `first` of the plan that takes `count` items."""
    if not index_scan.stopped_short:
        return index_scan.remaining, _first_of_each(index_scan.unvested)
    if quantum.policy.paused:
        probe("a paused tenant is visited")
        return Admission.PAUSED, []
    if quantum.allowed is not None and count >= quantum.allowed:
        probe("a tenant is at its limit")
        return Admission.FULL, _first_of_each(index_scan.unvested)
    return Admission.RUNS, _first_of_each(index_scan.unvested)


def lease_all(
    tr: Transaction,
    location: ZoneLocation,
    plan: DequeuePlan,
    *,
    lease_id: bytes,
    lease_us: int,
    now_us: int,
    holder: bytes | None = None,
) -> list[LeasedItem]:
    """Lease the items of a choice for the consumer `holder`. Writes them and their index entries.

    Conflicts with no enqueue.
    """
    return [
        lease(tr, location, item_id, record, lease_id=lease_id, lease_us=lease_us, now_us=now_us, holder=holder)
        for item_id, record in plan.items
    ]


def lease(
    tr: Transaction,
    location: ZoneLocation,
    item_id: bytes,
    record: ItemRecord,
    *,
    lease_id: bytes,
    lease_us: int,
    now_us: int,
    holder: bytes | None = None,
) -> LeasedItem:
    """Store `record`, which the caller has read with conflict and found vested, as leased; count its lapse.

    *Lapse*: it is leased although its last lease was never given back: its worker died or stalled. Only one of an
    attempt that had started raises suspicion: others were with that worker, and cannot have killed it.
    """
    isolated = is_poison_candidate(location, record)
    vested_us, had_expired = record.vesting_us, bool(record.lease_id)
    if had_expired:
        probe("an item lapsed")
        record.expiry_count += record.started
        record.expired_count += 1
    record.started = False
    record.lease_id, record.lease_us = lease_id, lease_us
    record.session, record.leased_us = holder, now_us
    stored = stored_item.move(tr, location, item_id, record, now_us + lease_us)
    return LeasedItem(item_id, record, isolated, stored, vested_us, had_expired)


class IndexScan:
    """A search of a zone's index for what `capacity` admits: through a window at its front, then one from `cursor` on.

    `remaining`: the best fit among vested entries that it passed over. `unvested`: of every priority that it went
    through, the first entry that has not vested. `skipped_kinds`: the kinds of what cannot run. `stopped_short`: it
    stopped in front of an entry because it had found enough. `ended`: there is nothing more to look at this time.
    """

    __slots__ = (
        "_begin",
        "_gap",
        "_keys_left",
        "_second",
        "best_skipped",
        "capacity",
        "cursor",
        "ended",
        "location",
        "now_us",
        "remaining",
        "skipped_kinds",
        "stopped_short",
        "unvested",
    )  # fmt: skip

    def __init__(self, location: ZoneLocation, capacity: Capacity, *, now_us: int) -> None:
        self.location = location
        self.capacity = capacity
        self.now_us = now_us
        self._begin = b""
        self._keys_left = WINDOW_KEYS
        self._second = False  # in the second window
        self._gap = False  # there are entries between the two windows that nobody looks at this time
        self.cursor = b""
        self.best_skipped = Admission.PAUSED
        self.remaining: Admission | None = None
        self.unvested: list[IndexEntry] = []
        self.skipped_kinds: set[str] = set()
        self.stopped_short = False
        self.ended = False

    def set_cursor(self, cursor: bytes, best_skipped: Admission) -> None:
        """Say where the last dequeue stopped, see `DequeuePlan`; in time until the first window has been read."""
        keys = self.location.keys
        if keys.vest_priority(0) <= cursor < keys.vest_end():  # A damaged one would lead into another tenant's queue.
            self.cursor, self.best_skipped = cursor, best_skipped

    def pick_op(self, tr: Reader, count_max: int, wanted: Callable[[], int]) -> Operation[list[tuple[IndexEntry, str]]]:
        """Choose entries that can run, from where the search stands; take their room.

        `wanted` says how many, at most `count_max`; it is asked once what the first round reads is there.
        """
        picked: list[tuple[IndexEntry, str]] = []
        count = count_max
        capacity = self.capacity

        def enough(piece: Sequence[Vested]) -> int | None:
            nonlocal count
            count = wanted()
            for number, (entry, value) in enumerate(piece):
                if len(picked) >= count or capacity.items <= 0:
                    self._keys_left -= number
                    return number
                kind = value.decode("utf-8", "replace")  # No handler is registered for what is damaged.
                admission = capacity.reserve(kind)
                if admission is Admission.RUNS:
                    picked.append((entry, kind))
                else:
                    self.skipped_kinds.add(kind)
                    self.skip(admission)
            self._keys_left -= len(piece)
            return None

        while True:
            reading = yield from read_vested(
                tr,
                self.location.keys,
                now_us=self.now_us,
                keys_max=self._keys_left,
                first_read=min(count_max, WINDOW_KEYS) + 1,
                then_read=WINDOW_KEYS,
                begin=self._begin,
                enough=enough,
            )
            self.unvested += reading.unvested
            self.stopped_short = reading.stopped_at is not None and (len(picked) >= count or capacity.items <= 0)
            if reading.stopped_at is None:
                self._end_at_the_end()
            elif self.stopped_short:
                self._begin = reading.stopped_at
            elif self._second:
                self._end_at(reading.stopped_at)
            else:
                self._begin_second_window(reading.stopped_at)
                continue
            return picked

    def skip_poison_candidate(self, kind: str) -> None:
        """Note that an item cannot run now because it must run alone; like one of a kind at its limit."""
        probe("an item that must run alone is passed over")
        self.skipped_kinds.add(kind)
        self.skip(Admission.FULL)

    def skip(self, admission: Admission) -> None:
        """Note a vested entry that is not taken."""
        self.remaining = admission if self.remaining is None else max(self.remaining, admission)
        if self._second:
            self.best_skipped = max(self.best_skipped, admission)

    def _begin_second_window(self, stopped_at: bytes) -> None:
        self._second = True
        self._keys_left = WINDOW_KEYS
        self._gap = self.cursor > stopped_at
        self._begin = max(stopped_at, self.cursor)
        if not self._gap:
            self.best_skipped = Admission.PAUSED

    def _end_at_the_end(self) -> None:
        """Start at the front next time. What the visits since the last start passed over is left."""
        self.ended = True
        if self._gap:
            self.skip(self.best_skipped)
        self.cursor, self.best_skipped = b"", Admission.PAUSED

    def _end_at(self, stopped_at: bytes) -> None:
        """Go on from here next time, and soon: nobody knows what comes."""
        self.ended = True
        self.cursor = stopped_at
        self.remaining = max(self.remaining or Admission.FULL, Admission.FULL)


def _first_of_each(entries: list[IndexEntry]) -> list[IndexEntry]:
    """Return the first entry of every priority among `entries`, by priority."""
    first: dict[int, IndexEntry] = {}
    for entry in entries:
        first[entry.priority] = min(entry, first.get(entry.priority, entry))
    return [first[priority] for priority in sorted(first)]


def _leads_to(entry: IndexEntry, record: ItemRecord) -> bool:
    """Say whether an index entry is the one of its item as it is now."""
    return record.vesting_us == entry.vesting_us and record.priority == entry.priority


def _clear_dangling(tr: Transaction, location: ZoneLocation, entry: IndexEntry) -> None:
    """Clear an index entry that disagrees with the record it names; the record was read with conflict."""
    key = location.keys.vest(entry.priority, entry.vesting_us, entry.id)
    tr.add_read_conflict_key(key)
    tr.clear(key)
