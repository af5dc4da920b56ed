"""Writes of a FoundationDB transaction, kept and done in bursts.

The client does everything in a thread of its own, and each write is handed to that thread. If the writes come one by
one, with some microseconds of Python between them, that thread falls asleep after each, and each wakes it: that takes
three times as much processor time, of both threads, as writes that come together. So a body of the product's own keeps
its writes, and does `BURST_SIZE` of them at once; and what is left, before its next read or at its end. What the
transaction reads, writes and conflicts with stays the same.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, cast

from fairlead.zones.engines.api.database import Reads, Transaction

BURST_SIZE = 100  # Calls: the client's thread wakes for each burst, and then works beside the body that goes on.

Call = tuple[Callable[..., None], tuple[Any, ...]]


class BurstTransaction:
    """A transaction that keeps what it writes. Used as a context: what is left at its end is written then.

    The order of writes and declared conflicts is kept, since a conflict with what the transaction has already written
    itself is none. A read comes after all writes before it, and need not wait for conflicts. Everything else that a
    transaction has is the other one's, after the writes.

    Args:
      tr: the transaction.
      send_reads: sends the reads that it has not sent yet; called at the end, as a read without a use may conflict too.
    """

    __slots__ = ("_buffered", "_send_reads", "_tr", "_wrote", "snapshot")

    def __init__(self, tr: Transaction, send_reads: Callable[[], None] = lambda: None) -> None:
        self._tr = tr
        self._send_reads = send_reads
        self._buffered: list[Call] = []
        self._wrote = False  # one of what is kept changes what a read finds
        self.snapshot = _Reads(tr.snapshot, self)

    def __enter__(self) -> Transaction:
        return cast("Transaction", self)  # What it has not itself, `__getattr__` gets.

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._flush()
            self._send_reads()

    def __getattr__(self, name: str) -> Any:
        self._flush()
        return getattr(self._tr, name)

    def before_read(self) -> None:
        """Write what a read must find."""
        if self._wrote:
            self._flush()

    def get(self, key: bytes) -> Any:
        """See `Transaction`."""
        self.before_read()
        return self._tr.get(key)

    def get_range(self, *args: Any, **how: Any) -> Any:
        """See `Transaction`."""
        self.before_read()
        return self._tr.get_range(*args, **how)

    def set(self, key: bytes, value: bytes) -> None:
        """See `Transaction`."""
        self._buffer(self._tr.set, (key, value))

    def clear(self, key: bytes) -> None:
        """See `Transaction`."""
        self._buffer(self._tr.clear, (key,))

    def clear_range(self, begin: bytes, end: bytes) -> None:
        """See `Transaction`."""
        self._buffer(self._tr.clear_range, (begin, end))

    def add(self, key: bytes, param: bytes) -> None:
        """See `Transaction`."""
        self._buffer(self._tr.add, (key, param))

    def compare_and_clear(self, key: bytes, param: bytes) -> None:
        """See `Transaction`."""
        self._buffer(self._tr.compare_and_clear, (key, param))

    def add_read_conflict_key(self, key: bytes) -> None:
        """See `Transaction`."""
        self._buffered.append((self._tr.add_read_conflict_key, (key,)))

    def add_read_conflict_range(self, begin: bytes, end: bytes) -> None:
        """See `Transaction`."""
        self._buffered.append((self._tr.add_read_conflict_range, (begin, end)))

    def add_write_conflict_key(self, key: bytes) -> None:
        """See `Transaction`."""
        self._buffered.append((self._tr.add_write_conflict_key, (key,)))

    def add_write_conflict_range(self, begin: bytes, end: bytes) -> None:
        """See `Transaction`."""
        self._buffered.append((self._tr.add_write_conflict_range, (begin, end)))

    def _buffer(self, write: Callable[..., None], args: tuple[bytes, ...]) -> None:
        self._wrote = True
        self._buffered.append((write, args))
        if len(self._buffered) >= BURST_SIZE:
            self._flush()

    def _flush(self) -> None:
        buffered, self._buffered, self._wrote = self._buffered, [], False
        for write, args in buffered:
            write(*args)


class _Reads:
    """The snapshot reads of a transaction that keeps its writes."""

    __slots__ = ("_burst", "_reader")

    def __init__(self, reader: Reads, burst: BurstTransaction) -> None:
        self._reader = reader
        self._burst = burst

    def __getattr__(self, name: str) -> Any:
        self._burst.before_read()
        return getattr(self._reader, name)

    def get(self, key: bytes) -> Any:
        """See `Reads`."""
        self._burst.before_read()
        return self._reader.get(key)

    def get_range(self, *args: Any, **how: Any) -> Any:
        """See `Reads`."""
        self._burst.before_read()
        return self._reader.get_range(*args, **how)
