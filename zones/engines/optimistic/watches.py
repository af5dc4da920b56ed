"""Futures that a commit makes ready: watches, and versionstamps.

A watch is ready once the value of its key differs from the value that its transaction saw. A commit of this process
fires it. For commits of other processes, `is_ready` and `wait` read the key, if anything was committed since the last
read. Nothing runs in the background.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, Protocol

from fairlead.zones.engines.api.clock import Clock
from fairlead.zones.engines.api.errors import TRANSACTION_CANCELLED, StoreError
from fairlead.zones.engines.optimistic.snapshot import Snapshot
from fairlead.zones.engines.optimistic.writes import Mutations

POLL_US: Final = 2_000  # The delay until a waiting watch notices another process's commit.
COUNT_MIN: Final = 100  # This many dropped watches may stay in the list.


class _PendingFuture:
    """A future that is made ready later, with callbacks."""

    __slots__ = ("__weakref__", "_callbacks", "_error", "_ready")

    def __init__(self) -> None:
        self._ready = False
        self._error: StoreError | None = None
        self._callbacks: list[Callable[[Any], None]] = []

    def fail(self, error: StoreError) -> None:
        """Make it ready with an error; nothing happens if it is ready already."""
        if self.settle(error):
            self.call_back()

    def settle(self, error: StoreError | None = None) -> bool:
        """Make it ready without calling callbacks. Returns False if it was ready before."""
        if self._ready:
            return False
        self._error = error
        self._ready = True
        return True

    def on_ready(self, callback: Callable[[Any], None]) -> None:
        """Call `callback(self)` once ready, on the thread that makes it ready; now if it is ready."""
        self._callbacks.append(callback)
        if self.is_ready():
            self.call_back()

    def is_ready(self) -> bool:
        """Whether `wait` would return at once."""
        return self._ready

    def cancel(self) -> None:
        """Cancel the wait; `wait` then raises 1101."""
        self.fail(StoreError(1101))

    def call_back(self) -> None:
        """Call the callbacks if it is ready, each once."""
        # The thread that removes a callback from the list calls it, so it is called once.
        while self._ready and self._callbacks:
            try:
                callback = self._callbacks.pop()
            except IndexError:
                return
            callback(self)


class Versionstamp(_PendingFuture):
    """The ten bytes of a commit's versionstamp; ready once the commit is durable."""

    __slots__ = ("_stamp",)

    def __init__(self) -> None:
        super().__init__()
        self._stamp = b""

    def resolve(self, stamp: bytes) -> None:
        """Make it ready without calling callbacks."""
        self._stamp = stamp
        self.settle()

    @property
    def value(self) -> bytes:
        """The stamp, once the commit has been waited for.

        Raises:
          StoreError: 2021 if the transaction wrote nothing, or what its commit raised.
        """
        assert self._ready, "wait for the commit first: nothing else makes a versionstamp ready"
        if self._error is not None:
            raise self._error
        return self._stamp

    def wait(self) -> Versionstamp:
        """Return this future itself, as the binding does."""
        assert self.value
        return self


class WatchOwner(Protocol):
    """The transaction that made a watch."""

    clock: Clock


class WatchableStore(Protocol):
    """What a watch needs of its store."""

    watches: Watches

    def snapshot(self, clock: Clock) -> Snapshot:
        """Return the newest snapshot."""
        ...

    def commit_sequence(self) -> int:
        """A number that changes with every commit."""
        ...


class Watch(_PendingFuture):
    """A watch on one key."""

    __slots__ = ("_clock", "_last_sequence", "_store", "_transaction", "key", "seen")

    def __init__(self, transaction: WatchOwner, key: bytes, seen: bytes | None) -> None:
        super().__init__()
        self.key = key
        self.seen = seen
        # Weak: a transaction that is dropped without a commit cancels its watches, so they must not keep it alive.
        self._transaction = weakref.ref(transaction)
        self._clock = transaction.clock
        self._store: WatchableStore | None = None
        self._last_sequence: int | None = None

    def written(self, key: bytes, value: bytes | None) -> None:
        """Fire if `value` is a new value of this watch's key."""
        if key == self.key and value != self.seen and self.settle():
            self.call_back()

    def touched(self, key: bytes) -> None:
        """Fire if `key` is this watch's key: its new value is unknown until the commit."""
        if key == self.key and self.settle():
            self.call_back()

    def arm(self, store: WatchableStore) -> None:
        """Start watching the store: the transaction has committed."""
        self._store = store
        store.watches.add(self)

    def is_ready(self) -> bool:
        """Return whether the value has changed. Reads the key if there were commits since the last read."""
        if self._ready:
            return True
        if self._store is None:
            if self._transaction() is None:
                self.fail(StoreError(TRANSACTION_CANCELLED))
            return self._ready
        sequence = self._store.commit_sequence()
        if sequence != self._last_sequence:
            self._last_sequence = sequence
            if self._present_value(self._store) != self.seen and self.settle():
                self.call_back()
        return self._ready

    def block_until_ready(self) -> None:
        """Return once ready, sleeping on the clock in between."""
        while not self.is_ready():
            self._clock.sleep_us(POLL_US)

    def wait(self) -> None:
        """Return once the value has changed.

        Raises:
          StoreError: what kept the transaction from committing, 1025 if it was dropped before.
        """
        self.block_until_ready()
        if self._error is not None:
            raise self._error

    def _present_value(self, store: WatchableStore) -> bytes | None:
        snapshot = store.snapshot(self._clock)
        try:
            return snapshot.get(self.key)
        except snapshot.errors as error:
            return snapshot.get_after_error(self.key, error)
        finally:
            snapshot.close()


class Watches:
    """The armed watches of one store in this process. Nothing is kept of those that were dropped.

    They are fired in the order of their keys, and of arming: the same in every process.
    """

    def __init__(self) -> None:
        self._by_key: dict[bytes, list[weakref.ref[Watch]]] = {}
        self._count = 0
        self._count_max = COUNT_MIN  # With so many the dropped ones are sought out: as many again as were alive then.
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def add(self, watch: Watch) -> None:
        """Let commits fire this watch."""
        with self._lock:
            if self._count >= self._count_max:
                self._drop_dead()
            self._by_key.setdefault(watch.key, []).append(weakref.ref(watch))
            self._count += 1

    def check(self, mutations: Mutations) -> None:
        """Let the watches on keys that a commit touched look at the store. Call it without a lock."""
        with self._lock:
            touched = {key for key in mutations.cleared if key in self._by_key}
            touched.update(key for key, _ in mutations.values if key in self._by_key)
            for begin, end in mutations.ranges:
                touched.update(key for key in self._by_key if begin <= key < end)
            looking = [watch for key in sorted(touched) for each in self._by_key[key] if (watch := each()) is not None]
        for watch in looking:
            if watch.is_ready():
                self._remove(watch)

    def _remove(self, watch: Watch) -> None:
        with self._lock:
            armed = self._by_key.get(watch.key, [])
            left = [each for each in armed if each() not in (None, watch)]
            self._count -= len(armed) - len(left)
            self._put(watch.key, left)

    def _drop_dead(self) -> None:
        for key, armed in list(self._by_key.items()):
            self._put(key, [each for each in armed if each() is not None])
        self._count = sum(map(len, self._by_key.values()))
        self._count_max = max(COUNT_MIN, 2 * self._count)

    def _put(self, key: bytes, armed: list[weakref.ref[Watch]]) -> None:
        if armed:
            self._by_key[key] = armed
        else:
            self._by_key.pop(key, None)
