"""Views of a transaction: its snapshot reads, and the iterable result of a range read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from fairlead.zones.engines.api.database import KeyValue, StreamingMode, ValueFuture
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.engines.optimistic.futures import ReadyFuture
from fairlead.zones.engines.optimistic.ranges import KEYS_BEGIN, KEYS_END


class PieceReader(Protocol):
    """The transaction that a read belongs to."""

    def read_key(self, key: bytes, snapshot: bool) -> ValueFuture:
        """Read one key."""
        ...

    def read_piece(
        self, begin: bytes, end: bytes, limit: int, reverse: bool, mode: int, piece: int, snapshot: bool
    ) -> tuple[list[KeyValue], bool]:
        """Read the next pairs of [begin, end); return them, and whether there are more."""
        ...

    def get_read_version(self) -> ReadyFuture[int]:
        """Return a future of the read version."""
        ...


class SnapshotReads:
    """The reads of a transaction, without read conflicts."""

    __slots__ = ("_transaction",)

    def __init__(self, transaction: PieceReader) -> None:
        self._transaction = transaction

    def get(self, key: bytes) -> ValueFuture:
        """Read one key without conflict."""
        return self._transaction.read_key(key, True)

    def get_range(
        self,
        begin: bytes | None,
        end: bytes | None,
        limit: int = 0,
        reverse: bool = False,
        streaming_mode: int = StreamingMode.iterator,
    ) -> RangeRead:
        """Read the pairs of [begin, end) without conflict."""
        return RangeRead(self._transaction, begin, end, limit, reverse, streaming_mode, True)

    def get_read_version(self) -> ReadyFuture[int]:
        """Return a future of the transaction's read version."""
        return self._transaction.get_read_version()


class RangeRead:
    """Pairs of a range, fetched piece by piece; the first piece was read when this was made.

    It can be iterated more than once; each iteration reads the later pieces again.
    """

    __slots__ = (
        "_begin",
        "_end",
        "_error",
        "_first",
        "_limit",
        "_mode",
        "_more",
        "_reverse",
        "_snapshot",
        "_transaction",
    )

    def __init__(
        self,
        transaction: PieceReader,
        begin: bytes | None,
        end: bytes | None,
        limit: int,
        reverse: bool,
        mode: int,
        snapshot: bool,
    ) -> None:
        self._transaction = transaction
        self._begin = KEYS_BEGIN if begin is None else begin
        self._end = KEYS_END if end is None else end
        self._limit = limit
        self._reverse = reverse
        self._mode = mode
        self._snapshot = snapshot
        self._error: StoreError | None = None
        self._first: list[KeyValue] = []
        self._more = False
        try:
            self._first, self._more = transaction.read_piece(self._begin, self._end, limit, reverse, mode, 0, snapshot)
        except StoreError as error:
            self._error = error

    def to_list(self) -> list[KeyValue]:
        """Return all pairs."""
        if not self._more and self._error is None:
            return self._first.copy()
        return list(self)

    def __iter__(self) -> Iterator[KeyValue]:
        if self._error is not None:
            raise self._error
        if not self._more or len(self._first) == self._limit:
            return iter(self._first)
        return self._pieces()

    def _pieces(self) -> Iterator[KeyValue]:
        begin, end, limit = self._begin, self._end, self._limit
        rows, more, round_ = self._first, self._more, 0
        while True:
            yield from rows
            if not more or len(rows) == limit:
                return
            if limit:
                limit -= len(rows)
            if self._reverse:
                end = rows[-1].key
            else:
                begin = rows[-1].key + b"\x00"
            round_ += 1
            rows, more = self._transaction.read_piece(
                begin, end, limit, self._reverse, self._mode, round_, self._snapshot
            )
