"""A simulated shard's store: the memory engine, whose answers take their time, and whose commits can go wrong.

A transaction's first read waits for its read version; every other read is sent at once and waited for when its value
is used, reads of one instant together; a commit is on its way for a while, is carried out somewhere between, whether
or not its caller still lives, and may end in an answer that tells nothing. Each wait is a switch: anything can happen
between a transaction's read and its commit. Latencies default to FoundationDB's own figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from functools import partial
from random import Random
from typing import Any, NamedTuple

from simulation.world import START_US, Task, World
from zones.engines.clock import Clock
from zones.engines.commit import CommitRequest, version_stamp
from zones.engines.database import KeyValue, StreamingMode
from zones.engines.errors import COMMIT_UNKNOWN_RESULT, NOT_COMMITTED, StoreError
from zones.engines.futures import FailedValue, Value
from zones.engines.memory import MemorySnapshot, MemoryStore
from zones.engines.range_read import RangeRead
from zones.engines.transaction import Transaction


class Latencies(NamedTuple):
    """Mean latencies in microseconds; FoundationDB section 5 gives the defaults."""

    read_version_us: int = 1_000
    read_us: int = 350
    commit_us: int = 2_000


class Fate(Enum):
    """What becomes of a commit that reached its store."""

    DECIDED = "carried out or refused, by what it read"
    CONFLICT = "1020, though nothing changed"
    UNKNOWN_APPLIED = "1021, and applied"
    UNKNOWN_LOST = "1021, and not applied"


class Change(NamedTuple):
    """What a commit did to one key; None is no value."""

    key: bytes
    before: bytes | None
    after: bytes | None


class Commit(NamedTuple):
    """A commit that was applied: where, by whom (the host's name), and what it changed, in key order."""

    shard: str
    by: str
    version: int
    changes: list[Change]


class SimulatedStore(MemoryStore):
    """The store of one shard. `draw_fate` and `on_commit` are set by the faults and the oracles."""

    def __init__(self, world: World, name: str, latencies: Latencies) -> None:
        super().__init__(world.now_us())
        self.world = world
        self.name = name
        self.draw_fate: list[Callable[[], Fate]] = []
        self.on_commit: list[Callable[[Commit], None]] = []
        self.away_until_us = 0
        self.commits_sent = 0
        self.commits = 0  # those that were applied
        self._latencies = latencies
        self._random = world.random(f"store {name}")

    def snapshot(self, clock: Clock) -> MemorySnapshot:
        """Return the newest version, newest at some time between call and return."""
        wait_us = self._wait_us(self._latencies.read_version_us)
        away_us = self.away_until_us - self.world.now_us()
        if away_us > 0 or self._random.random() < 0.5:
            self.world.sleep_us(max(0, away_us) + wait_us)
            return super().snapshot(clock)
        opened = super().snapshot(clock)
        self.world.sleep_us(wait_us)
        return opened

    def submit(self, request: CommitRequest) -> PendingCommit:  # type: ignore[override]
        """Send a commit off. It happens even if its sender dies now."""
        request.begin()
        self.commits_sent += 1
        fate = Fate.DECIDED
        for draw in self.draw_fate:
            if fate is Fate.DECIDED:
                fate = draw()
        wait_us = self._wait_us(self._latencies.commit_us)
        if self.away_until_us > self.world.now_us():
            wait_us += self.away_until_us - self.world.now_us()
        there_us = int(wait_us * self._random.random())
        assert self.world.current is not None
        pending = PendingCommit(self.world)
        apply = partial(self._apply, request, pending, fate, self.world.current.host.name, wait_us - there_us)
        self.world.after(there_us, apply)
        return pending

    def read_ready_us(self) -> int:
        """Draw when the answer to a read that is sent now arrives."""
        return self.world.now_us() + self._wait_us(self._latencies.read_us)

    def _apply(self, request: CommitRequest, pending: PendingCommit, fate: Fate, by: str, back_us: int) -> None:
        error: StoreError | None = None
        if fate is Fate.CONFLICT:
            request.fail(StoreError(NOT_COMMITTED))
        elif fate is Fate.UNKNOWN_LOST:
            request.fail(StoreError(COMMIT_UNKNOWN_RESULT))
        else:
            before = MemoryStore.snapshot(self, self.world)
            super().submit(request)
            if request.error is None:
                self._announce(request, before, by)
                if fate is Fate.UNKNOWN_APPLIED:
                    error = StoreError(COMMIT_UNKNOWN_RESULT)
        error = error or request.error
        if error is not None:
            told = f"{error.code}, applied" if request.error is None else str(error.code)
            self.world.note(f"{self.name} refuses {by}: {told}")
        pending.answer(error, back_us)

    def _announce(self, request: CommitRequest, before: MemorySnapshot, by: str) -> None:
        self.commits += 1
        version = request.committed_version
        done = request.writes.mutations(before.get, version_stamp(version))
        after = dict(done.values)
        after.update(dict.fromkeys(done.cleared))  # type: ignore[arg-type]
        for begin, end in done.ranges:
            for key, _ in before.scan(begin, end, False):
                after.setdefault(key, None)  # type: ignore[arg-type]
        changes = [Change(key, was, after[key]) for key in sorted(after) if (was := before.get(key)) != after[key]]
        self.world.note(f"{self.name} commits {by}: {version - START_US} {len(changes)}")
        commit = Commit(self.name, by, version, changes)
        for tell in self.on_commit:
            tell(commit)

    def _wait_us(self, mean_us: int) -> int:
        return int(mean_us * (0.5 + self._random.expovariate(2.0)))


class PendingCommit:
    """The future of a commit on its way; see `zones.engines.database.Future`."""

    __slots__ = ("_callbacks", "_error", "_ready_us", "_waiting", "_world")

    def __init__(self, world: World) -> None:
        self._world = world
        self._callbacks: list[Callable[[PendingCommit], None]] = []
        self._ready_us: int | None = None
        self._error: StoreError | None = None
        self._waiting: list[Task] = []

    def answer(self, error: StoreError | None, back_us: int) -> None:
        """Send the answer back: it arrives after `back_us`."""
        self._error = error
        self._ready_us = self._world.now_us() + back_us
        for task in self._waiting:
            self._world.wake(task, back_us)
        for callback in self._callbacks:
            self._world.after(back_us, partial(callback, self))

    def wait(self) -> None:
        """Return if the commit is durable; raise why not, or that nobody knows."""
        if self._ready_us is None:
            assert self._world.current is not None
            self._waiting.append(self._world.current)
            self._world.park()
        elif self._ready_us > self._world.now_us():
            self._world.sleep_us(self._ready_us - self._world.now_us())
        if self._error is not None:
            raise self._error

    def is_ready(self) -> bool:
        """Whether the answer has arrived."""
        return self._ready_us is not None and self._ready_us <= self._world.now_us()

    def on_ready(self, callback: Callable[[PendingCommit], None]) -> None:
        """Call `callback(self)` when the answer has arrived, between turns."""
        if self._ready_us is None:
            self._callbacks.append(callback)
        else:
            self._world.at(max(self._ready_us, self._world.now_us()), partial(callback, self))


class LatentTransaction(Transaction):
    """The engine's own transaction, whose reads are answered after a while."""

    __slots__ = ("_latent_store", "_ready_us", "_sent_us")

    def __init__(self, database: SimulatedDatabase, clock: Clock, random: Random) -> None:
        self._latent_store = database.store
        self._sent_us = self._ready_us = -1
        super().__init__(database, database.store, clock, random)

    def read_key(self, key: bytes, snapshot: bool) -> LateValue:  # type: ignore[override]
        """See `Transaction`."""
        value = super().read_key(key, snapshot)
        return LateValue(value, self.sent_now(), self._latent_store.world)

    def read_piece(
        self, begin: bytes, end: bytes, limit: int, reverse: bool, mode: int, piece: int, snapshot: bool
    ) -> tuple[list[KeyValue], bool]:
        """See `Transaction`. Later pieces are asked for when they are needed."""
        if piece:
            self._latent_store.world.sleep_us(self.sent_now() - self._now_us())
        return super().read_piece(begin, end, limit, reverse, mode, piece, snapshot)

    def get_range(  # type: ignore[override]
        self,
        begin: bytes | None,
        end: bytes | None,
        limit: int = 0,
        reverse: bool = False,
        streaming_mode: int = StreamingMode.iterator,
    ) -> LateRange:
        """See `Transaction`."""
        return self.late_range(RangeRead(self, begin, end, limit, reverse, streaming_mode, False))

    @property
    def snapshot(self) -> LateSnapshotReads:  # type: ignore[override]
        """See `Transaction`."""
        return LateSnapshotReads(self)

    def late_range(self, rows: RangeRead) -> LateRange:
        """Return rows as they arrive."""
        return LateRange(rows, self.sent_now(), self._latent_store.world)

    def sent_now(self) -> int:
        """Return when the answer to a read that is sent now arrives; reads of one instant travel together."""
        now_us = self._now_us()
        if now_us != self._sent_us:
            self._sent_us = now_us
            self._ready_us = self._latent_store.read_ready_us()
        return self._ready_us


class LateValue:
    """A value on its way; see `zones.engines.database.ValueFuture`."""

    __slots__ = ("_ready_us", "_value", "_world")

    def __init__(self, value: Value | FailedValue, ready_us: int, world: World) -> None:
        self._value = value
        self._ready_us = ready_us
        self._world = world

    @property
    def value(self) -> bytes | None:
        """The value, once it is there."""
        self.block_until_ready()
        return self._value.value

    def present(self) -> bool:
        """Whether the key is there."""
        return self.value is not None

    def wait(self) -> LateValue:
        """Return this future itself, once it is ready."""
        self.block_until_ready()
        self._value.wait()
        return self

    def is_ready(self) -> bool:
        """Whether `.value` would return at once."""
        return self._ready_us <= self._world.now_us()

    def block_until_ready(self) -> None:
        """Wait."""
        left_us = self._ready_us - self._world.now_us()
        if left_us > 0:
            self._world.sleep_us(left_us)


class LateRange:
    """Rows on their way."""

    __slots__ = ("_ready_us", "_rows", "_world")

    def __init__(self, rows: RangeRead, ready_us: int, world: World) -> None:
        self._rows = rows
        self._ready_us = ready_us
        self._world = world

    def to_list(self) -> list[KeyValue]:
        """Return all pairs."""
        return list(self)

    def __iter__(self) -> Iterator[KeyValue]:
        left_us = self._ready_us - self._world.now_us()
        if left_us > 0:
            self._world.sleep_us(left_us)
        return iter(self._rows)


class LateSnapshotReads:
    """The reads of a transaction without read conflicts, answered after a while."""

    __slots__ = ("_transaction",)

    def __init__(self, transaction: LatentTransaction) -> None:
        self._transaction = transaction

    def get(self, key: bytes) -> LateValue:
        """See `SnapshotReads`."""
        return self._transaction.read_key(key, True)

    def get_range(
        self,
        begin: bytes | None,
        end: bytes | None,
        limit: int = 0,
        reverse: bool = False,
        streaming_mode: int = StreamingMode.iterator,
    ) -> LateRange:
        """See `SnapshotReads`."""
        rows = RangeRead(self._transaction, begin, end, limit, reverse, streaming_mode, True)
        return self._transaction.late_range(rows)

    def get_read_version(self) -> Any:
        """See `SnapshotReads`."""
        return self._transaction.get_read_version()


class SimulatedDatabase:
    """The database of one shard, as every actor opens it.

    Args:
      tells_changes: whether it answers `change_token`, as the embedded engine does and FoundationDB does not.
    """

    errors: tuple[type[Exception], ...] = (StoreError,)
    results_can_be_unknown = True

    def __init__(self, store: SimulatedStore, *, tells_changes: bool) -> None:
        self.url = f"simulated:{store.name}"
        self.limits = store.limits
        self.store = store
        self._tells_changes = tells_changes
        self._random = store.world.random(f"retries of {store.name}")

    def create_transaction(self) -> LatentTransaction:
        """Return a new, empty transaction."""
        return LatentTransaction(self, self.store.world, self._random)

    def change_token(self) -> int | None:
        """Return the version of the last commit, or None if this store does not tell."""
        return self.store.change_token() if self._tells_changes else None

    def turn(self) -> AbstractContextManager[object]:
        """Return nothing to wait for."""
        return nullcontext()

    def close(self) -> None:
        """Do nothing: the data goes with the world."""
