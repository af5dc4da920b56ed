"""What a dequeue takes: a decision without a transaction, from what was read so far (QuiCK section 5).

An item that cannot run now (its kind is unknown here, or at its limit) must never block one that can. So a dequeue
reads a bounded window of the vesting index from its front, and if that was not enough, a second window from the cursor:
where the last dequeue stopped. The zone's pointer stores the cursor, so the next dequeue continues, by any consumer.

`plan` is called with what has been read. It returns the finished plan, or what must be read next: `dequeue` reads that,
and calls again. Usually that is one round for the index, and one for the records.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple, TypeGuard

from fairlead.zones.keyspace import IndexEntry
from fairlead.zones.probes import probe
from fairlead.zones.queue.items import Outcome
from fairlead.zones.queue.poison_candidates import is_poison_candidate, poison_error
from fairlead.zones.records import ItemRecord, KindPolicy
from fairlead.zones.settings import ZoneSettings

UNLIMITED = 1 << 30


class Admission(IntEnum):
    """Whether a caller can run an item of a kind, best answer last."""

    PAUSED = 0  # by an operator: the command that ends the pause wakes the zone
    UNKNOWN = 1  # no handler is registered here: ask again much later
    FULL = 2  # as many as may run are running: ask again soon
    RUNS = 3


class Reservation(NamedTuple):
    """Capacity that is used: how many items of each kind, and how many of all these are poison candidates."""

    kinds: Mapping[str, int]
    poison_candidates: int = 0


NOTHING = Reservation({})


class Capacity:
    """What a caller can run now: how many items in all, and how many of each kind; of a paused kind none.

    One capacity serves all pointers of a transaction, and shrinks with each item; a retry starts with a fresh one.
    `observed`: the policies of the kinds whose fleet-wide limits it includes. `poison_candidates`: how many items can
    run isolated besides `items`; see `poison_candidates`.
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
        """Return the same capacity for one attempt at a transaction."""
        return Capacity(self.items, self.kinds, self.observed, poison_candidates=self.poison_candidates)

    def admission(self, kind: str, used: int = 0) -> Admission:
        """Say whether an item of `kind` can run now, besides `used` that are about to be taken."""
        if kind in self.paused:
            return Admission.PAUSED
        left = self.kinds.get(kind)
        if left is None:
            return Admission.UNKNOWN
        return Admission.RUNS if left > used and self.items > 0 else Admission.FULL

    def exhaust(self, kind: str) -> None:
        """Set the capacity for items of `kind` to none, if the kind is known here."""
        if kind in self.kinds:
            self.kinds[kind] = 0

    def take(self, reserved: Reservation) -> None:
        """Use the capacity of many items."""
        for kind, count in reserved.kinds.items():
            self.kinds[kind] -= count
            self.items -= count
        self.items += reserved.poison_candidates
        self.poison_candidates -= reserved.poison_candidates

    def release(self, reserved: Reservation) -> None:
        """Make the capacity of items that were not taken after all available again."""
        for kind, count in reserved.kinds.items():
            self.kinds[kind] += count
            self.items += count
        self.items -= reserved.poison_candidates
        self.poison_candidates += reserved.poison_candidates


class Cursor(NamedTuple):
    """Where a dequeue goes on in the index, and the best admission among the entries before that it does not read."""

    key: bytes = b""
    best_skipped: Admission = Admission.PAUSED


FRONT = Cursor()


@dataclass(slots=True)
class Entries:
    """What has been read of a zone's vesting index, and of the records that it names.

    Attributes:
      vested: the vested entries with their kinds, in order: those of the first window, then those of the second.
      unvested: the first entry that has not vested, of each priority that was passed.
      second_begin: the number of the first entry of the second window; None: it has not begun.
      has_gap: there are entries between the two windows that are not read.
      window_read: the window begun last has been read: to its last entry, or to the end of the index.
      stopped_at: the key behind what was read; None: the end of the index.
      records: by item id the record, GONE if there is none, UNREADABLE if a newer version wrote it or it is damaged.
    """

    vested: list[tuple[IndexEntry, str]] = field(default_factory=list)
    unvested: list[IndexEntry] = field(default_factory=list)
    second_begin: int | None = None
    has_gap: bool = False
    window_read: bool = True
    stopped_at: bytes | None = None
    records: dict[bytes, ItemRecord | Outcome] = field(default_factory=dict)


class Need(Enum):
    """What a plan needs to know next."""

    ENTRIES = "entries"  # more of the index
    RECORDS = "records"  # the records of items
    LIMIT = "limit"  # how many items the tenant's limits allow


class UnfinishedPlan(NamedTuple):
    """A plan that is not finished. `item_ids`: whose records to read. `reserved`: what it may take, as far as known."""

    need: Need
    item_ids: Sequence[bytes]
    reserved: Reservation


class DequeuePlan(NamedTuple):
    """What a dequeue takes, and what it saw.

    Attributes:
      items: ids and records of the items to lease.
      remaining: the best admission among the vested entries that it does not take; None: it takes all that has vested.
      first: of every priority the first entry that will not have vested, the leases to be taken included, by priority;
        of the whole index unless `remaining` is FULL or RUNS; nothing if the tenant is paused.
      cursor: where the next dequeue goes on behind what cannot run.
      skipped_kinds: the kinds of the vested entries that cannot run now, as far as it looked.
      dead_letters: ids and records of the poison items to move to the dead letters, and why.
      dangling: index entries to clear, since they disagree with the records that they name.
      unreadable: vested items that a newer version wrote, or whose records or entries are damaged; left as they are.
      poison_candidates: how many items it passed over because they must run isolated, and cannot now.
      reserved: the capacity that its items use.
      is_idle: what `first` names is only when to look again; the zone counts as inactive.
    """

    items: Sequence[tuple[bytes, ItemRecord]]
    remaining: Admission | None
    first: Sequence[IndexEntry]
    cursor: Cursor
    skipped_kinds: set[str]
    dead_letters: Sequence[tuple[bytes, ItemRecord, str]]
    dangling: Sequence[IndexEntry]
    unreadable: int
    poison_candidates: int
    reserved: Reservation
    is_idle: bool = False


def plan(
    entries: Entries,
    capacity: Capacity,
    quantum: int | None,
    cursor: Cursor = FRONT,
    *,
    beyond: Admission = Admission.RUNS,
    leased_until_us: int = 0,
    settings: ZoneSettings | None = None,
) -> DequeuePlan | UnfinishedPlan:
    """Choose vested items that `capacity` admits, in (priority, vesting time) order. Changes none of its arguments.

    An item with `expiries_before_isolation` lease expiries is passed over, like a kind at its limit, unless it can run
    isolated. After one more expiry there it is a dead letter instead: one poisonous item must not take others with it.

    Args:
      quantum: how many items the tenant may give; None: not known yet. Then LIMIT is wanted before the first item.
      beyond: what a vested entry beyond the quantum is: FULL at a limit of the tenant, PAUSED if the tenant is paused.
      leased_until_us: when the leases to be taken end.
    """
    if quantum is None:
        if entries.vested:
            return UnfinishedPlan(Need.LIMIT, [], NOTHING)
        quantum = 0
    draft = _Draft(entries, capacity, cursor, settings or ZoneSettings())
    stopped = draft.walk(quantum)
    if not stopped and not _is_complete(entries):
        return UnfinishedPlan(Need.ENTRIES, [], draft.reserved())
    if draft.unread:
        return UnfinishedPlan(Need.RECORDS, draft.unread, draft.reserved())
    if stopped:
        return draft.stopped_short(beyond if draft.taken >= quantum else Admission.RUNS, leased_until_us)
    return draft.came_to_the_end(leased_until_us)


class _Draft:
    """What a plan has chosen of the entries so far. An item whose record is unread counts as one that runs."""

    __slots__ = (
        "_best_skipped",
        "_capacity",
        "_cursor",
        "_dangling",
        "_dead_letters",
        "_entries",
        "_in_second",
        "_isolated",
        "_items",
        "_items_left",
        "_kinds",
        "_leased",
        "_poison_candidates",
        "_remaining",
        "_settings",
        "_skipped_kinds",
        "_unreadable",
        "taken",
        "unread",
    )  # fmt: skip

    def __init__(self, entries: Entries, capacity: Capacity, cursor: Cursor, settings: ZoneSettings) -> None:
        self._entries = entries
        self._capacity = capacity
        self._cursor = cursor
        self._settings = settings
        self._items_left = capacity.items
        self._in_second = False
        self._best_skipped = cursor.best_skipped
        self._remaining: Admission | None = None
        self._kinds: dict[str, int] = {}  # how many items it takes of each kind
        self._isolated = 0
        self._leased: list[IndexEntry] = []
        self._items: list[tuple[bytes, ItemRecord]] = []
        self._skipped_kinds: set[str] = set()
        self._dead_letters: list[tuple[bytes, ItemRecord, str]] = []
        self._dangling: list[IndexEntry] = []
        self._unreadable = self._poison_candidates = 0
        self.unread: list[bytes] = []  # ids of items that it takes if their records allow it
        self.taken = 0  # how many items it takes

    def walk(self, quantum: int) -> bool:
        """Consider the entries in order; say whether it stopped in front of one because it had enough."""
        entries, capacity, kinds = self._entries, self._capacity, self._kinds
        records, available, paused = entries.records, capacity.kinds, capacity.paused
        for number, (entry, kind) in enumerate(entries.vested):
            if self.taken >= quantum or self._items_left <= 0:
                return True
            if number == entries.second_begin:
                self._in_second = True
                if not entries.has_gap:
                    self._best_skipped = Admission.PAUSED
            used = kinds.get(kind, 0)
            if available.get(kind, 0) <= used or kind in paused:
                self._skip_kind(kind, capacity.admission(kind, used))
                continue
            record = records.get(entry.id)
            if record is None:
                self.unread.append(entry.id)
            elif self._can_take(record, entry, kind):
                self._items.append((entry.id, record))
                self._leased.append(entry)
            else:
                continue
            kinds[kind] = used + 1
            self.taken += 1
            self._items_left -= 1
        enough = self.taken >= quantum or self._items_left <= 0
        return enough and entries.window_read and entries.stopped_at is not None

    def _can_take(self, record: ItemRecord | Outcome, entry: IndexEntry, kind: str) -> TypeGuard[ItemRecord]:
        """Say whether an item can be taken by what is known of its record; note why if it cannot."""
        if isinstance(record, Outcome):
            return self._cannot_read(entry, gone=record is Outcome.GONE)
        if record.vesting_us != entry.vesting_us or record.priority != entry.priority:  # The entry of another time.
            return self._cannot_read(entry, gone=True)
        if record.kind != kind:
            return self._cannot_read(entry, gone=False)
        if not (record.expiry_count or record.started or record.ran_isolated):
            return True
        error = poison_error(record, self._settings)
        if error is not None:
            self._dead_letters.append((entry.id, record, error))
            return False
        return not is_poison_candidate(record, self._settings) or self._can_isolate(kind)

    def _cannot_read(self, entry: IndexEntry, *, gone: bool) -> bool:
        if gone:
            self._dangling.append(entry)
        else:
            self._unreadable += 1
            self._skip(Admission.UNKNOWN)
        return False

    def _can_isolate(self, kind: str) -> bool:
        """Use the capacity for an isolated item, if there is any, and not the others'."""
        if self._isolated >= self._capacity.poison_candidates:
            probe("an item that must run isolated is passed over")
            self._poison_candidates += 1
            self._skip_kind(kind, Admission.FULL)
            return False
        self._isolated += 1
        self._items_left += 1
        return True

    def reserved(self) -> Reservation:
        """Return the capacity that it uses."""
        return Reservation(self._kinds, self._isolated)

    def stopped_short(self, remaining: Admission, leased_until_us: int) -> DequeuePlan:
        """Return the plan that stops in front of an entry because it has enough."""
        cursor = Cursor(self._cursor.key, self._best_skipped)
        if remaining is Admission.PAUSED:
            probe("a pointer of a paused tenant is processed")
            return self._plan(remaining, [], cursor)
        if remaining is Admission.FULL:
            probe("a tenant is at its limit")
        return self._plan(remaining, self._first(leased_until_us), cursor)

    def came_to_the_end(self, leased_until_us: int) -> DequeuePlan:
        """Return the plan that has considered all entries: of the whole index, or of both windows."""
        stopped_at, first = self._entries.stopped_at, self._first(leased_until_us)
        if stopped_at is None:
            if self._entries.has_gap:
                self._skip(self._best_skipped)
            return self._plan(self._remaining, first, FRONT)
        # The next dequeue goes on from here, and soon: what comes is not known.
        remaining = max(self._remaining or Admission.FULL, Admission.FULL)
        return self._plan(remaining, first, Cursor(stopped_at, self._best_skipped))

    def _skip_kind(self, kind: str, admission: Admission) -> None:
        self._skipped_kinds.add(kind)
        self._skip(admission)

    def _skip(self, admission: Admission) -> None:
        self._remaining = admission if self._remaining is None else max(self._remaining, admission)
        if self._in_second:
            self._best_skipped = max(self._best_skipped, admission)

    def _first(self, leased_until_us: int) -> list[IndexEntry]:
        """Return the first entry of every priority that will not have vested, by priority."""
        first: dict[int, IndexEntry] = {}
        for entry in self._entries.unvested:
            first[entry.priority] = min(entry, first.get(entry.priority, entry))
        for entry in self._leased:
            known = first.get(entry.priority)
            if known is None or known.vesting_us > leased_until_us:
                first[entry.priority] = IndexEntry(entry.priority, leased_until_us, entry.id)
        return [first[priority] for priority in sorted(first)]

    def _plan(self, remaining: Admission | None, first: list[IndexEntry], cursor: Cursor) -> DequeuePlan:
        return DequeuePlan(
            self._items, remaining, first, cursor, self._skipped_kinds, self._dead_letters, self._dangling,
            self._unreadable, self._poison_candidates, self.reserved(),
        )  # fmt: skip


def _is_complete(entries: Entries) -> bool:
    """Say whether no more of the index is read this time."""
    return entries.window_read and (entries.stopped_at is None or entries.second_begin is not None)
