"""What the body of a transaction across shards has written to one shard, and not committed.

The body's own reads see it. Nobody else does, until the transaction is decided and the writes are carried out. Writes
are kept in order, as they will be carried out. Beside them lies what a read needs: what is known of each key, and which
ranges were cleared.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from fairlead.zones.engines import KeyValue, Limits, Reads, StoreError, Transaction
from fairlead.zones.engines.api.database import ValueFuture
from fairlead.zones.engines.api.errors import (
    KEY_TOO_LARGE,
    TRANSACTION_TOO_LARGE,
    USED_DURING_COMMIT,
    VALUE_TOO_LARGE,
)
from fairlead.zones.spanning.write_set import DataWrite, ItemEnd, ItemWrite, WriteKind, WriteSet

COUNTER_BYTES = 8
# Of the size of a transaction: a write is stored in PREPARED, and once more when it is carried out.
SHARE_OF_TRANSACTION = 2
WRITE_BYTES = 28  # What a write costs beside its key and its value, at most.
ENDED = "Use a transaction in its own body only: what is kept of it afterwards reads and writes nothing."
TOO_LARGE = "Write less in one transaction across shards: half of what a transaction on one shard may write."


class Added(NamedTuple):
    """What is added to the number that the store holds, as 8 bytes little-endian."""

    sum: bytes


Change = bytes | Added | None  # A key's value after the buffered writes; None: it is cleared.


class WriteBuffer:
    """The writes to one shard."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._writes: list[DataWrite] = []
        self._items: list[ItemWrite] = []
        self._ends: list[ItemEnd] = []
        self._changes: dict[bytes, Change] = {}
        self._changed: list[bytes] = []  # the keys of `_changes`, in order
        self._cleared: list[tuple[bytes, bytes]] = []
        self._bytes = 0
        self._is_closed = False

    def __bool__(self) -> bool:
        return bool(self._writes or self._items or self._ends)

    @property
    def write_set(self) -> WriteSet:
        """All writes, in order."""
        return WriteSet(tuple(self._writes), tuple(self._items), tuple(self._ends))

    def close(self) -> None:
        """Refuse all that comes later: the body has ended, and what it has written is about to be committed."""
        self._is_closed = True

    def require_open(self) -> None:
        """See that the body has not ended.

        Raises:
          StoreError (2017): it has; what it writes now would be lost.
        """
        if self._is_closed:
            raise StoreError(USED_DURING_COMMIT, remedy=ENDED)

    def set(self, key: bytes, value: bytes) -> None:
        """Set a key."""
        self._append(DataWrite(WriteKind.SET, key, value))
        self._change(key, value)

    def clear(self, key: bytes) -> None:
        """Clear a key."""
        self._append(DataWrite(WriteKind.CLEAR, key))
        self._change(key, None)

    def clear_range(self, begin: bytes, end: bytes) -> None:
        """Clear [begin, end)."""
        self._append(DataWrite(WriteKind.CLEAR_RANGE, begin, end))
        self._cleared.append((begin, end))
        for key in self._changed_in(begin, end):
            self._changes[key] = None

    def add(self, key: bytes, param: bytes) -> None:
        """Add 8-byte little-endian integers, as FoundationDB does: modulo 2^64; the value becomes 8 bytes long."""
        self._append(DataWrite(WriteKind.ADD, key, param))
        if key not in self._changes and not self._is_cleared(key):
            self._change(key, Added(param))
            return
        before = self._changes.get(key)
        self._change(key, Added(_sum(before.sum, param)) if isinstance(before, Added) else _sum(before, param))

    def enqueue(self, item: ItemWrite) -> None:
        """Enqueue an item whose id is free."""
        self._grow(len(item.payload) + WRITE_BYTES * 10)
        self._items.append(item)

    def complete(self, end: ItemEnd) -> None:
        """Complete an item that is held under a lease."""
        self._grow(len(end.result) + WRITE_BYTES * 10)
        self._ends.append(end)

    def ends_item(self, zone: tuple[str, str, str], item_id: bytes) -> bool:
        """Say whether an item of this id is completed in a zone, which is named by app, user and zone."""
        return any((each.app, each.user, each.zone, each.item_id) == (*zone, item_id) for each in self._ends)

    def holds_item(self, zone: tuple[str, str, str], item_id: bytes) -> bool:
        """Say whether an item of this id is enqueued in a zone, which is named by app, user and zone."""
        return any((each.app, each.user, each.zone, each.item_id) == (*zone, item_id) for each in self._items)

    # --- What reads see ---

    def seen(self, key: bytes, stored: ValueFuture) -> ValueFuture:
        """Return the value of a key as the body sees it, by the value in the store."""
        self.require_open()
        if key in self._changes:
            return _Changed(stored, self._changes[key])
        return _Changed(stored, None) if self._is_cleared(key) else stored

    def seen_range(
        self, begin: bytes, end: bytes, stored: Iterable[KeyValue], *, limit: int, reverse: bool
    ) -> Iterator[KeyValue]:
        """Return the pairs of [begin, end) in order as the body sees them; `stored`: those in the store, in this order.

        `stored` is read no further than the last pair that is yielded needs, so that no more can conflict.
        """
        self.require_open()
        return islice(self._merged(begin, end, stored, reverse=reverse), limit or None)

    def _merged(self, begin: bytes, end: bytes, stored: Iterable[KeyValue], *, reverse: bool) -> Iterator[KeyValue]:
        """Yield stored and changed pairs in order, without those that are cleared."""
        changed = self._changed_in(begin, end)
        pending = iter(reversed(changed) if reverse else changed)
        own = next(pending, None)
        for row in stored:
            while own is not None and (own > row.key if reverse else own < row.key):
                yield from self._own_pair(own, None)
                own = next(pending, None)
            if own == row.key:
                yield from self._own_pair(own, row.value)
                own = next(pending, None)
            elif not self._is_cleared(row.key):
                yield KeyValue(row.key, row.value)
        while own is not None:
            yield from self._own_pair(own, None)
            own = next(pending, None)

    def _own_pair(self, key: bytes, stored: bytes | None) -> Iterator[KeyValue]:
        """Yield a changed key with its value, unless the change has cleared it."""
        value = _changed(self._changes[key], stored)
        if value is not None:
            yield KeyValue(key, value)

    def _change(self, key: bytes, change: Change) -> None:
        if key not in self._changes:
            insort(self._changed, key)
        self._changes[key] = change

    def _changed_in(self, begin: bytes, end: bytes) -> list[bytes]:
        return self._changed[bisect_left(self._changed, begin) : bisect_left(self._changed, end)]

    def _is_cleared(self, key: bytes) -> bool:
        return any(begin <= key < end for begin, end in self._cleared)

    # --- Limits: what is decided must be possible to carry out ---

    def _append(self, write: DataWrite) -> None:
        if type(write.value) is not bytes:  # As on one shard, where the engine refuses it.
            raise TypeError(f"keys and values are bytes, not {type(write.value).__name__}")
        longest = max(len(write.key), len(write.value) if write.kind is WriteKind.CLEAR_RANGE else 0)
        if longest > self._limits.key_bytes_max:
            raise StoreError(KEY_TOO_LARGE, bytes=longest, bytes_max=self._limits.key_bytes_max)
        if len(write.value) > self._limits.value_bytes_max:
            raise StoreError(VALUE_TOO_LARGE, bytes=len(write.value), bytes_max=self._limits.value_bytes_max)
        self._grow(len(write.key) + len(write.value) + WRITE_BYTES)
        self._writes.append(write)

    def _grow(self, size: int) -> None:
        self.require_open()
        bytes_max = self._limits.transaction_bytes_max // SHARE_OF_TRANSACTION
        if self._bytes + size > bytes_max:
            raise StoreError(TRANSACTION_TOO_LARGE, remedy=TOO_LARGE, bytes=self._bytes + size, bytes_max=bytes_max)
        self._bytes += size


class _Changed:
    """The future of a value that buffered writes have changed."""

    def __init__(self, stored: ValueFuture, change: Change) -> None:
        self._stored = stored
        self._change = change

    @property
    def value(self) -> bytes | None:
        """See `ValueFuture`."""
        return _changed(self._change, None if not isinstance(self._change, Added) else self._stored.value)

    def present(self) -> bool:
        """See `ValueFuture`."""
        return self.value is not None

    def wait(self) -> "_Changed":
        """See `ValueFuture`."""
        self._stored.wait()
        return self

    def is_ready(self) -> bool:
        """See `ValueFuture`."""
        return self._stored.is_ready()


class BufferedReads:
    """Reads of a transaction, with or without conflict, that see the buffered writes."""

    def __init__(self, reads: Reads, buffer: WriteBuffer) -> None:
        self._reads = reads
        self._buffer = buffer

    def get(self, key: bytes) -> ValueFuture:
        """See `Reads`."""
        return self._buffer.seen(key, self._reads.get(key))

    def get_range(self, begin: bytes, end: bytes, limit: int = 0, reverse: bool = False) -> Iterator[KeyValue]:
        """See `Reads`."""
        stored_limit = limit if not self._buffer else 0
        stored = self._reads.get_range(begin, end, limit=stored_limit, reverse=reverse)
        return self._buffer.seen_range(begin, end, stored, limit=limit, reverse=reverse)


class BufferedTransaction(BufferedReads):
    """What takes the place of the engine's transaction for a body: it reads there, and its writes are buffered."""

    def __init__(self, tr: Transaction, buffer: WriteBuffer) -> None:
        super().__init__(tr, buffer)
        self._tr = tr
        self.set, self.clear, self.clear_range, self.add = buffer.set, buffer.clear, buffer.clear_range, buffer.add

    @property
    def snapshot(self) -> BufferedReads:
        """See `Reader`."""
        return BufferedReads(self._tr.snapshot, self._buffer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tr, name)


def _changed(change: Change, stored: bytes | None) -> bytes | None:
    """Return a key's value after a change, by its value in the store."""
    return _sum(stored, change.sum) if isinstance(change, Added) else change


def _sum(before: bytes | None, param: bytes) -> bytes:
    total = int.from_bytes((before or b"")[:COUNTER_BYTES], "little") + int.from_bytes(param, "little")
    return (total % (1 << 8 * COUNTER_BYTES)).to_bytes(COUNTER_BYTES, "little")
