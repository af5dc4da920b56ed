"""Writes of a FoundationDB transaction, buffered and done in bursts.

The client works in a thread of its own, and each write is passed to this thread. Writes with some microseconds of
Python between them let the thread sleep and wake it each time. This takes three times as much processor time of both
threads as writes that come together. So a body of the product buffers its writes, and does `BURST_SIZE` of them at
once. It does the rest before its next read, or at its end. Reads, writes and conflicts of the transaction stay the
same.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, cast

from fairlead.zones.engines.api.database import Reads, Transaction

BURST_SIZE = 100  # Calls. The client's thread wakes for each burst, and then works in parallel with the body.

Call = tuple[Callable[..., None], tuple[Any, ...]]


class BurstTransaction:
    """A transaction that buffers its writes. Used as a context: its end does the remaining writes.

    Writes and declared conflicts keep their order, because a conflict with the transaction's own earlier write does not
    count. A read comes after all writes before it; it need not wait for conflicts. All other calls go to the inner
    transaction, after the writes.

    Args:
      tr: the inner transaction.
      send_reads: sends its planned reads. Called at the end, because an unused read may conflict too.
    """

    __slots__ = ("_buffered", "_send_reads", "_tr", "_wrote", "snapshot")

    def __init__(self, tr: Transaction, send_reads: Callable[[], None] = lambda: None) -> None:
        self._tr = tr
        self._send_reads = send_reads
        self._buffered: list[Call] = []
        self._wrote = False  # whether a buffered call changes what a read finds
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
        """Do the buffered writes that a read must see."""
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
    """The snapshot reads of a transaction that buffers its writes."""

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
