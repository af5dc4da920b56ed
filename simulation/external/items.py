"""The state of an external store: rows, transactions that lock and write them, and snapshots, as PostgreSQL has them.

A transaction gets its number when it first writes, and others see what it has written once it commits: perhaps after
transactions of later numbers. A replica that is promoted without the last commits gives their numbers anew.

A row that a transaction has locked can be read by others, not changed. Whoever must not wait passes it over. Above READ
COMMITTED a transaction fails if it would change what has been committed since its first statement.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar

from fairlead.zones.external.store import Queue
from fairlead.zones.records import DeadLetterRecord, ItemRecord

T = TypeVar("T")

UNDONE_MAX = 500  # So many commits can be lost by a promotion.
DOORBELL = "doorbell"  # The key of the data that says whether the doorbell rings.


class Isolation(Enum):
    """The isolation level of a transaction."""

    READ_COMMITTED = "read committed"
    REPEATABLE_READ = "repeatable read"
    SERIALIZABLE = "serializable"


class State(Enum):
    """What a row is."""

    WAITS = 0  # or is leased
    ENDED = 1  # its id is kept
    DEAD = 2


class SerializationFailure(Exception):
    """The transaction would change what another one has changed since it began (40001). Its user tries again."""


class Locked(Exception):
    """Another transaction has locked what this statement must change. It waits for the end of that transaction."""


@dataclass(frozen=True, slots=True)
class StoredItem:
    """One row; it never changes, but is replaced.

    Attributes:
      record: its history. What columns hold is elsewhere here.
      number: of the transaction that enqueued it, or last made it vest earlier.
      lease_id: stays after the lease has ended by its time.
      taken_until_us: for how long the id stays taken after the end. `kept_until_us`: for how long the row stays.
      started: how the handler has started; 0: not; EXPIRED_ALONE: its last one ran alone, and its lease expired.
      deaths: how many leases of started handlers have expired since one ended otherwise.
      session: which claims it.
      result: what its handler returned, if it has ended, and that is kept.
      dead_letter: why it does not run again; `dead_since_us`: since when.
    """

    queue: Queue
    item_id: bytes
    record: ItemRecord
    number: int
    vesting_us: int
    enqueued_us: int
    lease_id: bytes = b""
    leased_until_us: int = 0
    leases: int = 0
    expired: int = 0
    state: State = State.WAITS
    taken_until_us: int = 0
    kept_until_us: int = 0
    started: int = 0
    deaths: int = 0
    session: bytes = b""
    result: bytes | None = None
    dead_letter: DeadLetterRecord | None = None
    dead_since_us: int = 0


@dataclass(frozen=True, slots=True)
class SessionRow:
    """The session of a worker, and how many heartbeats came."""

    session_id: bytes
    worker: bytes
    beat: int = 0


Value = StoredItem | SessionRow | int | None
Key = bytes | str  # The id of an item, or the name of other data.


class Change(NamedTuple):
    """What a commit did to one key: an item by its id, or other data by its name."""

    key: Key
    before: Value
    after: Value


@dataclass(slots=True, eq=False)
class Transaction:
    """An open transaction: what it has locked and written.

    Attributes:
      number: None: it has not written yet.
      shared: what it has locked so that nobody deletes it.
      seen: how many commits there were at its first statement; 0: none came.
      rings: whether its commit rings the doorbell.
      found_empty: queues that a visit has found empty by it.
    """

    table: ItemTable
    isolation: Isolation = Isolation.READ_COMMITTED
    number: int | None = None
    seen: int | None = None
    written: dict[Key, Value] = field(default_factory=dict)
    locked: set[Key] = field(default_factory=set)
    shared: set[Key] = field(default_factory=set)
    rings: bool = False
    is_prepared: bool = False
    found_empty: list[Queue] = field(default_factory=list)

    @property
    def writes(self) -> bool:
        """Whether its commit must be made durable."""
        return bool(self.written)

    def get(self, key: Key) -> Value:
        """Return a value as this transaction sees it."""
        return self.written[key] if key in self.written else self.table.values.get(key)

    def item(self, item_id: bytes) -> StoredItem | None:
        """Return a row as this transaction sees it."""
        found = self.get(item_id)
        assert found is None or isinstance(found, StoredItem)
        return found

    def is_locked(self, key: Key) -> bool:
        """Whether another transaction has locked it."""
        return self.table.locks.get(key, self) is not self

    def lock(self, key: Key, *, inserts: bool = False) -> None:
        """Lock what this transaction is about to change. `inserts`: what has been deleted since is in nobody's way.

        Raises:
          Locked: by another transaction.
          SerializationFailure: it was changed since this transaction began, which is above READ COMMITTED.
        """
        if self.is_locked(key):
            raise Locked(key)
        if self.isolation is not Isolation.READ_COMMITTED:
            if self.seen is None:
                self.seen = self.table.commits
            is_deleted = inserts and key not in self.table.values
            if self.table.changed_at.get(key, 0) > self.seen and not is_deleted:
                raise SerializationFailure(key)
        self.table.locks[key] = self
        self.locked.add(key)

    def lock_against_deletion(self, key: Key) -> None:
        """Lock what others may lock so, too, and change, but not delete: FOR KEY SHARE.

        Raises:
          Locked: another transaction deletes it.
        """
        other = self.table.locks.get(key, self)
        if other is not self and other.written.get(key, key) is None:
            raise Locked(key)
        self.shared.add(key)

    def delete(self, key: Key) -> None:
        """Delete what is locked.

        Raises:
          Locked: another transaction has locked it against that.
        """
        if any(key in each.shared for each in self.table.open if each is not self):
            raise Locked(key)
        self.write(key, None)

    def begin_statement(self) -> None:
        """Take the snapshot, if this is the first statement."""
        if self.seen is None:
            self.seen = self.table.commits

    def take_number(self) -> int:
        """Return the number of the transaction."""
        if self.number is None:
            self.number = self.table.take_number()
        return self.number

    def write(self, key: Key, value: Value) -> None:
        """Write what is locked."""
        assert key in self.locked, "what is written is locked"
        self.take_number()
        self.written[key] = value


class _Undo(NamedTuple):
    changes: list[Change]
    next_number: int


class ItemTable:
    """What is committed, who has locked what, and the numbers of transactions. `now_us`: the store's own clock.

    Attributes:
      entries_left: how many index entries each ended item leaves, as while a transaction of a user stays open.
    """

    def __init__(self, now_us: Callable[[], int]) -> None:
        self.now_us = now_us
        self.values: dict[Key, Value] = {}
        self.locks: dict[Key, Transaction] = {}
        self.changed_at: dict[Key, int] = {}  # which commit has changed it last
        self.commits = 0
        self.timeline = 1
        self.entries_left = 0
        self.ended: Counter[tuple[Queue, str, int]] = Counter()  # Index entries of ended items, by kind and priority.
        self.open: dict[Transaction, None] = {}
        self._next_number = 1
        self._last_ended = 0  # The highest number of a transaction that has ended.
        self._undo: deque[_Undo] = deque(maxlen=UNDONE_MAX)

    def rows(self) -> Iterator[StoredItem]:
        """Yield all rows that are committed."""
        return (value for value in self.values.values() if isinstance(value, StoredItem))

    # --- Transactions ---

    def begin(self, isolation: Isolation = Isolation.READ_COMMITTED) -> Transaction:
        """Begin a transaction."""
        begun = Transaction(self, isolation)
        self.open[begun] = None
        return begun

    def commit(self, transaction: Transaction) -> list[Change]:
        """Commit a transaction; return what it changes."""
        changes = [Change(key, self.values.get(key), after) for key, after in transaction.written.items()]
        self._end(transaction)
        if changes:
            self.commits += 1
            self._undo.append(_Undo(changes, self._next_number))
            for key, _, after in changes:
                self._put(key, after)
        return changes

    def roll_back(self, transaction: Transaction) -> None:
        """End a transaction without what it has written."""
        self._end(transaction)

    def restart(self) -> None:
        """End all transactions but those that are prepared."""
        for transaction in [each for each in self.open if not each.is_prepared]:
            self.roll_back(transaction)

    def promote(self, lost: int) -> list[Change]:
        """Begin another history, without the last commits; return what these had changed, the last first.

        A prepared transaction goes on if its number is from before.
        """
        self.restart()
        changes: list[Change] = []
        for _ in range(min(lost, len(self._undo))):
            undone, _ = self._undo.pop()
            self.commits += 1  # What a transaction above READ COMMITTED has seen is gone.
            for change in reversed(undone):
                self._put(change.key, change.before)
                changes.append(change)
        if changes:
            self._next_number = self._undo[-1].next_number if self._undo else 1
            for transaction in [each for each in self.open if (each.number or 0) >= self._next_number]:
                self.roll_back(transaction)
            self._last_ended = min(self._last_ended, self._next_number - 1)
        self.timeline += 1
        return changes

    def _put(self, key: Key, value: Value) -> None:
        self.changed_at[key] = self.commits
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value

    def _end(self, transaction: Transaction) -> None:
        del self.open[transaction]
        for key in transaction.locked:
            del self.locks[key]
        self._last_ended = max(self._last_ended, transaction.number or 0)

    # --- Numbers ---

    def take_number(self) -> int:
        """Return the next number."""
        number, self._next_number = self._next_number, self._next_number + 1
        return number

    def snapshot_now(self) -> str:
        """Return a snapshot as PostgreSQL writes it: xmin:xmax:those that run."""
        xmax = self._last_ended + 1
        running = sorted(each.number for each in self.open if each.number is not None and each.number < xmax)
        return f"{running[0] if running else xmax}:{xmax}:{','.join(map(str, running))}"


def sees(snapshot: str, number: int) -> bool:
    """Whether a snapshot sees what the transaction of a number has committed."""
    _, xmax, running = snapshot.split(":")
    return number < int(xmax) and number not in {int(each) for each in running.split(",") if each}


Statement = Callable[[Transaction], T]


class CarryOut(Protocol):
    """Carries out a statement in a transaction of its own, and commits it; returns its answer. `writes`: it may."""

    def __call__(self, statement: Statement[T], *, writes: bool) -> T:
        """See the class."""
        ...
