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
from fairlead.zones.layout import Place
from fairlead.zones.pipelining import Steps
from fairlead.zones.policy.fair_share import Turn
from fairlead.zones.policy.tenant_limits import allowed_steps, note_taken
from fairlead.zones.probes import probe
from fairlead.zones.queue import stored_item
from fairlead.zones.queue.index_scan import Vested, read_vested
from fairlead.zones.queue.items import LeasedItem
from fairlead.zones.queue.poison_candidates import bury_lapsed, is_suspect, proof_against
from fairlead.zones.records import ItemRecord, KindRule, decode
from fairlead.zones.settings import WINDOW_KEYS

UNLIMITED = 1 << 30


class Fit(IntEnum):
    """Whether a caller can run an item of a kind, best answer last."""

    PAUSED = 0  # an operator has said so: whoever ends that wakes the zone
    UNKNOWN = 1  # not registered here: ask again much later
    FULL = 2  # as many as may run are running: ask again soon
    RUNS = 3


class Room:
    """What a caller can run now: how many items in all, and of which kinds how many, unless they are paused.

    One room serves all visits of a transaction, and shrinks with each item taken; a retry starts with a fresh one.
    `heard`: the rules of kinds whose limits over the fleet are reckoned with in it. `suspects`: how many items of those
    kinds can run alone, besides; see `suspicion`.
    """

    __slots__ = ("heard", "items", "kinds", "paused", "suspects")

    def __init__(
        self,
        items: int,
        kinds: Mapping[str, int],
        heard: Mapping[str, KindRule] | None = None,
        *,
        suspects: int = 1,
    ) -> None:
        self.items = items
        self.kinds = dict(kinds)
        self.heard = heard or {}
        self.suspects = suspects
        self.paused: frozenset[str] = frozenset()

    def fresh(self) -> "Room":
        """Return the same room for one attempt at a transaction."""
        return Room(self.items, self.kinds, self.heard, suspects=self.suspects)

    def fit(self, kind: str) -> Fit:
        """Say whether an item of `kind` can run now."""
        if kind in self.paused:
            return Fit.PAUSED
        left = self.kinds.get(kind)
        if left is None:
            return Fit.UNKNOWN
        return Fit.RUNS if left > 0 and self.items > 0 else Fit.FULL

    def close(self, kind: str) -> None:
        """Leave no room for items of `kind`, if it is known here."""
        if kind in self.kinds:
            self.kinds[kind] = 0

    def admit(self, kind: str) -> Fit:
        """Say whether an item of `kind` can run now, and use its room if it can."""
        left = self.kinds.get(kind, 0)
        if left <= 0 or self.items <= 0 or kind in self.paused:
            return self.fit(kind)
        self.kinds[kind] = left - 1
        self.items -= 1
        return Fit.RUNS

    def admit_suspect(self) -> bool:
        """Say whether an item that was admitted can run alone; use the room for that, and not the items', if it can."""
        if self.suspects <= 0:
            return False
        self.suspects -= 1
        self.items += 1
        return True

    def take(self, kind: str, count: int, *, suspects: int = 0) -> None:
        """Use the room of items of `kind`, some of which run alone."""
        self.items -= count - suspects
        self.suspects -= suspects
        self.kinds[kind] -= count

    def give_back(self, kind: str) -> None:
        """Return the room of one item that was not there after all."""
        self.items += 1
        self.kinds[kind] += 1


class Choice(NamedTuple):
    """What a dequeue takes, and what it saw.

    `items`: ids and records of the items to lease; `take` does.
    `left`: the best fit among vested entries that it does not take, None if it takes all that has vested; PAUSED also
    if it takes none because the tenant is paused.
    `first`: of every priority the first entry that will not have vested, the leases to be taken included, by priority;
    of the whole index unless `left` is FULL or RUNS; nothing if the tenant is paused.
    `resume`, `passed`: where the next dequeue goes on behind what cannot run (empty: at the front), and the best fit
    among what lies before.
    `passed_kinds`: the kinds of the vested entries that cannot run now, as far as it looked.
    `unreadable`: vested items that a newer version wrote, or whose records or entries are damaged; left alone.
    `buried`: ids and records of the items that it buried; `last_error` says why.
    `suspects`: how many items it passed over that must run alone, and cannot now.
    """

    items: list[tuple[bytes, ItemRecord]]
    left: Fit | None
    first: list[IndexEntry]
    resume: bytes
    passed: Fit
    passed_kinds: set[str]
    buried: list[tuple[bytes, ItemRecord]]
    unreadable: int
    suspects: int


def choose_steps(tr: Transaction, search: "Search", turn: Turn, *, lease_us: int) -> Steps[Choice]:
    """Choose vested items that a room admits, in (priority, vesting time) order, for `take` to lease.

    As many as the tenant's turn allows, whose first read has been sent.

    An item that lapsed `lapses_before_alone` times is passed over like a kind at its limit unless the room has a place
    in which it runs alone. One that lapsed again there is buried instead: one poisonous item must not bury those that
    share its worker. Where nothing runs alone, one is buried that has lapsed `SHARED_LAPSES` times more.

    Reads with conflict: ownership, the records of the items it chooses; by snapshot: the vesting index. The first round
    is ownership and the front of the index. Writes only what it buries, and clears index entries that lead nowhere.
    """
    place, now_us = search.place, search.now_us
    items: list[tuple[bytes, ItemRecord]] = []
    buried: list[tuple[bytes, ItemRecord]] = []
    unreadable = suspects = 0

    while True:
        picked = yield from search.pick_steps(tr, turn.items_max, lambda: turn.share() - len(items))
        if turn.must_ask and search.stopped_short and not turn.rule.paused:
            asks = turn.is_first(place.tenant)
            turn.allowed = (yield from allowed_steps(tr, place, turn.rule, now_us=now_us)) if asks else 0
            continue
        reads = [tr.get(place.keys.item(entry.id)) for entry, _ in picked]
        yield
        paused = turn.rule.paused
        passed_before = unreadable + suspects
        for (entry, kind), read in zip(picked, reads, strict=True):
            value = read.value
            record = None if value is None else decode(ItemRecord, value)
            if value is None or (record is not None and not _leads_to(entry, record)):
                probe("an item is gone or moved between the index and its record")
                _clear_dangling(tr, place, entry)
            elif record is None or record.kind != kind:
                unreadable += 1
                search.pass_over(Fit.UNKNOWN)
            elif (proof := proof_against(place, record)) is not None:
                bury_lapsed(tr, place, entry.id, record, proof, now_us=now_us)
                buried.append((entry.id, record))
            elif is_suspect(place, record) and not search.room.admit_suspect():
                suspects += 1
                search.pass_over_suspect(kind)
            else:
                items.append((entry.id, record))
                search.unvested.append(IndexEntry(entry.priority, now_us + lease_us, entry.id))
                continue
            search.room.give_back(kind)
        if search.ended or unreadable + suspects == passed_before:
            break
    left = Fit.RUNS if search.stopped_short else search.left
    first = _first_of_each(search.unvested)
    if paused and search.stopped_short:
        probe("a paused tenant is visited")
        left, first = Fit.PAUSED, []
    elif search.stopped_short and turn.allowed is not None and len(items) >= turn.allowed:
        probe("a tenant is at its limit")
        left = Fit.FULL
    if turn.rule.is_limited:
        note_taken(tr, place, turn.rule, [item_id for item_id, _ in items], now_us=now_us)
    return Choice(items, left, first, search.resume, search.passed, search.passed_kinds, buried, unreadable, suspects)


def take(
    tr: Transaction,
    place: Place,
    choice: Choice,
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
        lease(tr, place, item_id, record, lease_id=lease_id, lease_us=lease_us, now_us=now_us, holder=holder)
        for item_id, record in choice.items
    ]


def lease(
    tr: Transaction,
    place: Place,
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
    alone = is_suspect(place, record)
    vested_us, lapsed = record.vesting_us, bool(record.lease_id)
    if lapsed:
        probe("an item lapsed")
        record.lapse_count += record.started
        record.lapsed += 1
    record.started = False
    record.lease_id, record.lease_us = lease_id, lease_us
    record.session, record.leased_us = holder, now_us
    stored = stored_item.move(tr, place, item_id, record, now_us + lease_us)
    return LeasedItem(item_id, record, alone, stored, vested_us, lapsed)


class Search:
    """A search of a zone's index for what `room` admits: through a window at its front, then one from `resume` on.

    `left`: the best fit among vested entries that it passed over. `unvested`: of every priority that it went through,
    the first entry that has not vested. `passed_kinds`: the kinds of what cannot run. `stopped_short`: it stopped in
    front of an entry because it had found enough. `ended`: there is nothing more to look at this time.
    """

    __slots__ = ("_begin", "_gap", "_keys_left", "_second", "ended", "left", "now_us", "passed", "passed_kinds",
                 "place", "resume", "room", "stopped_short", "unvested")  # fmt: skip

    def __init__(self, place: Place, room: Room, *, now_us: int) -> None:
        self.place = place
        self.room = room
        self.now_us = now_us
        self._begin = b""
        self._keys_left = WINDOW_KEYS
        self._second = False  # in the second window
        self._gap = False  # there are entries between the two windows that nobody looks at this time
        self.resume = b""
        self.passed = Fit.PAUSED
        self.left: Fit | None = None
        self.unvested: list[IndexEntry] = []
        self.passed_kinds: set[str] = set()
        self.stopped_short = False
        self.ended = False

    def resume_at(self, resume: bytes, passed: Fit) -> None:
        """Say where the last dequeue stopped, see `Choice`; in time until the first window has been read."""
        keys = self.place.keys
        if keys.vest_priority(0) <= resume < keys.vest_end():  # A damaged one would lead into another tenant's queue.
            self.resume, self.passed = resume, passed

    def pick_steps(self, tr: Reader, count_max: int, wanted: Callable[[], int]) -> Steps[list[tuple[IndexEntry, str]]]:
        """Choose entries that can run, from where the search stands; take their room.

        `wanted` says how many, at most `count_max`; it is asked once what the first round reads is there.
        """
        picked: list[tuple[IndexEntry, str]] = []
        count = count_max
        room = self.room

        def enough(piece: Sequence[Vested]) -> int | None:
            nonlocal count
            count = wanted()
            for number, (entry, value) in enumerate(piece):
                if len(picked) >= count or room.items <= 0:
                    self._keys_left -= number
                    return number
                kind = value.decode("utf-8", "replace")  # No handler is registered for what is damaged.
                fit = room.admit(kind)
                if fit is Fit.RUNS:
                    picked.append((entry, kind))
                else:
                    self.passed_kinds.add(kind)
                    self.pass_over(fit)
            self._keys_left -= len(piece)
            return None

        while True:
            reading = yield from read_vested(
                tr,
                self.place.keys,
                now_us=self.now_us,
                keys_max=self._keys_left,
                first_read=min(count_max, WINDOW_KEYS) + 1,
                then_read=WINDOW_KEYS,
                begin=self._begin,
                enough=enough,
            )
            self.unvested += reading.unvested
            self.stopped_short = reading.stopped_at is not None and (len(picked) >= count or room.items <= 0)
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

    def pass_over_suspect(self, kind: str) -> None:
        """Note that an item cannot run now because it must run alone; like one of a kind at its limit."""
        probe("an item that must run alone is passed over")
        self.passed_kinds.add(kind)
        self.pass_over(Fit.FULL)

    def pass_over(self, fit: Fit) -> None:
        """Note a vested entry that is not taken."""
        self.left = fit if self.left is None else max(self.left, fit)
        if self._second:
            self.passed = max(self.passed, fit)

    def _begin_second_window(self, stopped_at: bytes) -> None:
        self._second = True
        self._keys_left = WINDOW_KEYS
        self._gap = self.resume > stopped_at
        self._begin = max(stopped_at, self.resume)
        if not self._gap:
            self.passed = Fit.PAUSED

    def _end_at_the_end(self) -> None:
        """Start at the front next time. What the visits since the last start passed over is left."""
        self.ended = True
        if self._gap:
            self.pass_over(self.passed)
        self.resume, self.passed = b"", Fit.PAUSED

    def _end_at(self, stopped_at: bytes) -> None:
        """Go on from here next time, and soon: nobody knows what comes."""
        self.ended = True
        self.resume = stopped_at
        self.left = max(self.left or Fit.FULL, Fit.FULL)


def _first_of_each(entries: list[IndexEntry]) -> list[IndexEntry]:
    """Return the first entry of every priority among `entries`, by priority."""
    first: dict[int, IndexEntry] = {}
    for entry in entries:
        first[entry.priority] = min(entry, first.get(entry.priority, entry))
    return [first[priority] for priority in sorted(first)]


def _leads_to(entry: IndexEntry, record: ItemRecord) -> bool:
    """Say whether an index entry is the one of its item as it is now."""
    return record.vesting_us == entry.vesting_us and record.priority == entry.priority


def _clear_dangling(tr: Transaction, place: Place, entry: IndexEntry) -> None:
    """Clear an index entry that disagrees with the record it names; the record was read with conflict."""
    key = place.keys.vest(entry.priority, entry.vesting_us, entry.id)
    tr.add_read_conflict_key(key)
    tr.clear(key)
