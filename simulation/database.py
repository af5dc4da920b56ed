"""A simulated shard as an actor opens it: the engine's own transaction, with latency.

The first read waits for its read version. Every other read is sent at once, and waited for when its value is used. All
reads of one instant are answered together. Each wait is a switch: anything can happen between two reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from random import Random
from typing import Any, NamedTuple

from fairlead.simulation.store import SimulatedStore
from fairlead.simulation.world import Task, World
from fairlead.zones.engines.api import database
from fairlead.zones.engines.api.clock import Clock
from fairlead.zones.engines.api.database import KeyValue, StreamingMode
from fairlead.zones.engines.api.errors import TOO_MANY_WATCHES, TRANSACTION_TOO_OLD, StoreError
from fairlead.zones.engines.foundationdb.write_bursts import BurstTransaction
from fairlead.zones.engines.optimistic.futures import FailedValue, Value
from fairlead.zones.engines.optimistic.range_read import RangeRead, SnapshotReads
from fairlead.zones.engines.optimistic.transaction import Transaction
from fairlead.zones.engines.optimistic.watches import Watch


class PendingRead(NamedTuple):
    """A read that was sent: the time of its answer, and its error, if any."""

    ready_us: int
    error: StoreError | None

    def wait(self, world: World) -> None:
        """Wait for the answer. Raises the error, if any."""
        left_us = self.ready_us - world.now_us()
        if left_us > 0:
            world.sleep_us(left_us)
        if self.error is not None:
            raise self.error


class LatentTransaction(Transaction):
    """The engine's own transaction, whose reads have latency."""

    __slots__ = ("_forgotten", "_latent_store", "_pending_read", "_sent_us")

    def __init__(self, database: SimulatedDatabase, clock: Clock, random: Random) -> None:
        self._latent_store = database.store
        super().__init__(database, database.store, clock, random)

    def _clear_state(self) -> None:
        super()._clear_state()
        self._sent_us = -1
        self._forgotten: StoreError | None = None

    def read_key(self, key: bytes, snapshot: bool) -> LateValue:  # type: ignore[override]
        """See `Transaction`."""
        value = super().read_key(key, snapshot)
        return LateValue(value, self.send_read(), self._latent_store.world)

    def read_piece(
        self, begin: bytes, end: bytes, limit: int, reverse: bool, mode: int, piece: int, snapshot: bool
    ) -> tuple[list[KeyValue], bool]:
        """See `Transaction`. Further pieces are requested when they are needed."""
        if piece:
            self.send_read().wait(self._latent_store.world)
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
        return self.late_range(super().get_range(begin, end, limit, reverse, streaming_mode))

    @property
    def snapshot(self) -> LateSnapshotReads:
        """See `Transaction`."""
        return LateSnapshotReads(self)

    def watch(self, key: bytes) -> LateWatch:  # type: ignore[override]
        """See `Transaction`. The watch is ready some time after the change, or never."""
        return LateWatch(super().watch(key), self._latent_store)

    def late_range(self, rows: RangeRead) -> LateRange:
        """Return rows with latency."""
        return LateRange(rows, self.send_read(), self._latent_store.world)

    def send_read(self) -> PendingRead:
        """Send a read. Reads of one instant are answered together. After a read fails as too old, all later ones do."""
        now_us = self._now_us()
        if now_us != self._sent_us:
            self._sent_us = now_us
            store = self._latent_store
            if self._forgotten is None and store.is_forgetful():
                store.world.note(f"{store.name} calls a version too old")
                self._forgotten = StoreError(TRANSACTION_TOO_OLD)
            self._pending_read = PendingRead(store.read_ready_us(), self._forgotten)
        return self._pending_read


class LateValue:
    """A value with latency; see `fairlead.zones.engines.api.database.ValueFuture`."""

    __slots__ = ("_pending_read", "_value", "_world")

    def __init__(self, value: Value | FailedValue, pending_read: PendingRead, world: World) -> None:
        self._value = value
        self._pending_read = pending_read
        self._world = world

    @property
    def value(self) -> bytes | None:
        """The value. Waits."""
        self._pending_read.wait(self._world)
        return self._value.value

    def present(self) -> bool:
        """Whether the key is there."""
        return self.value is not None

    def wait(self) -> LateValue:
        """Return this future itself, once it is ready."""
        self._pending_read.wait(self._world)
        self._value.wait()
        return self

    def is_ready(self) -> bool:
        """Whether `.value` would return at once."""
        return self._pending_read.ready_us <= self._world.now_us()

    def block_until_ready(self) -> None:
        """Wait."""
        self._pending_read.wait(self._world)


class LateWatch:
    """A watch with latency. Its callback runs in a task of the caller's host, as in a thread of the client."""

    __slots__ = ("_refused", "_store", "_watch")

    def __init__(self, watch: Watch, store: SimulatedStore) -> None:
        self._watch = watch
        self._store = store
        self._refused = False

    def on_ready(self, callback: Callable[[Any], None]) -> None:
        """See `Watch`. Faults lose some watches, and refuse others."""
        task = self._store.world.current
        assert task is not None
        host = task.host

        def call_back() -> None:
            if not host.dead:
                host.spawn("watch", partial(callback, self))

        def ready(_: Any) -> None:
            if host.dead:  # Its watch ended with it. The object may stay in a cycle, and may draw nothing then.
                return
            if not any(loses() for loses in self._store.loses_watch):
                self._store.world.after(self._store.wakeup_us(), call_back)

        self._refused = any(refuses() for refuses in self._store.refuses_watch)
        if self._refused:
            self._store.world.after(self._store.wakeup_us(), call_back)
        else:
            self._watch.on_ready(ready)

    def wait(self) -> None:
        """See `Watch`."""
        if self._refused:
            raise StoreError(TOO_MANY_WATCHES)
        self._watch.wait()

    def block_until_ready(self) -> None:
        """See `Watch`."""
        self._watch.block_until_ready()

    def is_ready(self) -> bool:
        """See `Watch`."""
        return self._watch.is_ready()

    def cancel(self) -> None:
        """See `Watch`."""
        self._watch.cancel()


class LateRange:
    """Rows with latency."""

    __slots__ = ("_pending_read", "_rows", "_world")

    def __init__(self, rows: RangeRead, pending_read: PendingRead, world: World) -> None:
        self._rows = rows
        self._pending_read = pending_read
        self._world = world

    def to_list(self) -> list[KeyValue]:
        """Return all pairs."""
        return list(self)

    def __iter__(self) -> Iterator[KeyValue]:
        self._pending_read.wait(self._world)
        return iter(self._rows)


class LateSnapshotReads(SnapshotReads):
    """The reads of a transaction without read conflicts, with latency."""

    __slots__ = ("_latent",)

    def __init__(self, transaction: LatentTransaction) -> None:
        super().__init__(transaction)
        self._latent = transaction

    def get_range(  # type: ignore[override]
        self,
        begin: bytes | None,
        end: bytes | None,
        limit: int = 0,
        reverse: bool = False,
        streaming_mode: int = StreamingMode.iterator,
    ) -> LateRange:
        """See `SnapshotReads`."""
        return self._latent.late_range(super().get_range(begin, end, limit, reverse, streaming_mode))


class SimulatedDatabase:
    """The database of one shard, as every actor opens it.

    Args:
      has_commit_sequence: whether it answers `commit_sequence`, as the embedded engine does and FoundationDB does not.
      has_listener: whether it wakes listeners after commits, as the embedded engine does where it can.
    """

    errors: tuple[type[Exception], ...] = (StoreError,)
    results_can_be_unknown = True

    def __init__(self, store: SimulatedStore, *, has_commit_sequence: bool, has_listener: bool = False) -> None:
        self.url = f"simulated:{store.name}"
        self.limits = store.limits
        self.store = store
        self._has_commit_sequence = has_commit_sequence
        self._has_listener = has_listener
        self._random = store.world.random(f"retries of {store.name}")

    def create_transaction(self) -> LatentTransaction:
        """Return a new, empty transaction."""
        return LatentTransaction(self, self.store.world, self._random)

    def commit_sequence(self) -> int | None:
        """Return the version of the last commit, or None if this store does not tell."""
        return self.store.commit_sequence() if self._has_commit_sequence else None

    def listener(self) -> SimulatedListener | None:
        """Return a listener that waits for commits, or None if this store has none."""
        return SimulatedListener(self.store) if self._has_listener else None

    def exclusive_section(self) -> AbstractContextManager[object]:
        """Return a section without a wait."""
        return nullcontext()

    def burst(self, tr: database.Transaction) -> AbstractContextManager[database.Transaction]:
        """Return the transaction as FoundationDB's engine does."""
        return BurstTransaction(tr)

    def close(self) -> None:
        """Do nothing: the data ends with the world."""


class SimulatedListener:
    """A listener that waits for commits of one store. It misses one in ten."""

    def __init__(self, store: SimulatedStore) -> None:
        self._store = store
        self._waiting: Task | None = None
        self._notified = False
        store.on_applied.append(self._on_commit)

    def wait(self, timeout_s: float) -> bool:
        """See `Listener`."""
        world = self._store.world
        if not self._notified:
            self._waiting = world.current
            try:
                world.suspend(round(timeout_s * 1e6))
            finally:
                self._waiting = None
        notified, self._notified = self._notified, False
        return notified

    def close(self) -> None:
        """See `Listener`."""
        self._store.on_applied.remove(self._on_commit)

    def _on_commit(self) -> None:
        if self._store.loses_wakeup():
            return
        self._notified = True
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            self._store.world.wake(waiting)
