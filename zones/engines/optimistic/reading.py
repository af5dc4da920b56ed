"""The reads of a transaction: from a snapshot that the first read opens, overlaid with the transaction's own writes.

Each read records the keys of the store that it depends on: the commit conflicts on these keys. Keys that this
transaction has set or cleared itself do not count, because no other transaction can change what it sees there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fairlead.zones.engines.api.clock import Clock
from fairlead.zones.engines.api.database import KeyValue, Pair, StreamingMode
from fairlead.zones.engines.api.errors import (
    ACCESSED_UNREADABLE,
    EXACT_MODE_WITHOUT_LIMITS,
    FUTURE_VERSION,
    KEY_OUTSIDE_LEGAL_RANGE,
    RANGE_LIMITS_INVALID,
    READ_VERSION_ALREADY_SET,
    TRANSACTION_TOO_OLD,
    VERSION_INVALID,
    StoreError,
    TransactionTooLong,
)
from fairlead.zones.engines.optimistic.commit import NO_VERSION, Store
from fairlead.zones.engines.optimistic.commit_log import WINDOW_US
from fairlead.zones.engines.optimistic.futures import FailedValue, ReadyFuture, Value
from fairlead.zones.engines.optimistic.range_read import RangeRead, SnapshotReads
from fairlead.zones.engines.optimistic.ranges import KEYS_END, KeySet, covers
from fairlead.zones.engines.optimistic.snapshot import Snapshot
from fairlead.zones.engines.optimistic.transaction_state import TransactionState
from fairlead.zones.engines.optimistic.writes import PendingAtomics, Writes

# Bytes fetched at a time, per streaming mode, as in the C binding. The iterator mode grows with every piece.
_PIECE_BYTES: Final = {
    StreamingMode.want_all: 80_000,
    StreamingMode.exact: 1 << 62,
    StreamingMode.small: 256,
    StreamingMode.medium: 1_000,
    StreamingMode.large: 4_096,
    StreamingMode.serial: 80_000,
}
_ITERATOR_BYTES: Final = (4_096, 6_144, 9_216, 13_824, 20_736, 31_104, 46_656, 69_984, 80_000, 120_000)

_new = tuple.__new__  # `KeyValue._make`, without the call around it.

# A read with such an error makes the commit fail with the same error.
_STICKY_ERRORS: Final = frozenset({TRANSACTION_TOO_OLD, FUTURE_VERSION, ACCESSED_UNREADABLE})


class Reading(TransactionState):
    """A transaction as far as it reads."""

    __slots__ = (
        "_own_writes_disabled",
        "_read_error",
        "_reads",
        "_set_version",
        "_snapshot",
        "_snapshot_own_writes",
        "_store",
        "_writes",
    )

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(clock)
        self._store = store

    def _clear_reads(self) -> None:
        self._snapshot: Snapshot | None = None
        self._set_version: int | None = None
        self._reads = KeySet()
        self._writes = Writes()
        self._read_error: StoreError | None = None
        self._own_writes_disabled = False
        self._snapshot_own_writes = 1

    @property
    def snapshot(self) -> SnapshotReads:
        """This transaction, with reads without conflict."""
        # A new object each time: a stored one would be a cycle, and pin LMDB's pages until a garbage collection.
        return SnapshotReads(self)

    def get(self, key: bytes) -> Value | FailedValue:
        """Read one key. Conflicts with changes, unless this transaction has set or cleared the key itself."""
        return self.read_key(key, False)

    def get_range(
        self,
        begin: bytes | None,
        end: bytes | None,
        limit: int = 0,
        reverse: bool = False,
        streaming_mode: int = StreamingMode.iterator,
    ) -> RangeRead:
        """Read the pairs of [begin, end); None stands for the first and the last key.

        Conflicts with changes from `begin` to the last key returned, or to `end` if the limit was not reached.
        """
        return RangeRead(self, begin, end, limit, reverse, streaming_mode, False)

    def get_read_version(self) -> ReadyFuture[int]:
        """Open the snapshot, and return a future of its version."""
        try:
            self._check_usable()
            return ReadyFuture(self._open_snapshot().version())
        except StoreError as error:
            return ReadyFuture(NO_VERSION, error)

    def set_read_version(self, version: int) -> None:
        """Read at `version`, from another transaction's `get_read_version`.

        The embedded engine keeps no old snapshots: every version but the present one is too old (1007).
        """
        if not self._is_writable():
            return
        if version <= 0:
            self.defer(VERSION_INVALID, version=version)
        elif self._snapshot is not None or self._set_version is not None:
            self.defer(READ_VERSION_ALREADY_SET)
        else:
            self._set_version = version

    def add_read_conflict_key(self, key: bytes) -> None:
        """Conflict with changes of `key`, as if it had been read."""
        if self._takes_conflict_range(key, key + b"\x00") and (
            self._own_writes_disabled or not self._writes.is_independent(key)
        ):
            self._reads.points.add(key)

    def add_read_conflict_range(self, begin: bytes, end: bytes) -> None:
        """Conflict with changes in [begin, end), as if it had been read; raises 2005 if inverted."""
        if self._takes_conflict_range(begin, end):
            self._conflict_on_read(begin, end)

    def _takes_conflict_range(self, begin: bytes, end: bytes) -> bool:
        raise NotImplementedError  # `Writing` checks it as it checks writes.

    # --- One key ---

    def read_key(self, key: bytes, snapshot: bool) -> Value | FailedValue:
        """Read one key, as a snapshot read or not."""
        # The hottest path: a plain read calls only the clock and the store.
        if not self._plain_reads or self._now_us() > self._expires_us or key in self._writes.entries or key >= KEYS_END:
            return self._read_key_slow_path(key, snapshot)
        opened = self._snapshot
        assert opened is not None
        try:
            value = opened.get(key)
        except opened.errors as error:
            try:
                value = opened.get_after_error(key, error)
            except StoreError as ended:
                return FailedValue(self._read_failed(ended))
        if not snapshot:
            self._reads.points.add(key)
        return Value(value)

    def _read_key_slow_path(self, key: bytes, snapshot: bool) -> Value | FailedValue:
        writes = self._writes
        try:
            self._check_usable()
            if key >= KEYS_END:
                raise StoreError(KEY_OUTSIDE_LEGAL_RANGE, key=key)
            if not self._sees_own_writes(snapshot):
                return Value(self._stored(key, snapshot))
            if writes.is_unreadable(key, key + b"\x00"):
                raise self._read_failed(StoreError(ACCESSED_UNREADABLE, key=key))
            if key in writes.entries:
                entry = writes.entries[key]
                if isinstance(entry, PendingAtomics):
                    entry = entry.apply(self._stored(key, snapshot))
                return Value(entry)
            if writes.ranges and covers(writes.ranges, key):
                return Value(None)
            return Value(self._stored(key, snapshot))
        except StoreError as error:
            return FailedValue(error)

    def _stored(self, key: bytes, snapshot: bool) -> bytes | None:
        opened = self._open_snapshot()
        try:
            value = opened.get(key)
        except opened.errors as error:
            try:
                value = opened.get_after_error(key, error)
            except StoreError as ended:
                raise self._read_failed(ended) from None
        if not snapshot:
            self._reads.points.add(key)
        return value

    # --- A range ---

    def read_piece(
        self, begin: bytes, end: bytes, limit: int, reverse: bool, mode: int, piece: int, snapshot: bool
    ) -> tuple[list[KeyValue], bool]:
        """Return the first pairs of a range, and whether there may be more. For `RangeRead`."""
        self._check_usable()
        if begin > KEYS_END or end > KEYS_END:
            raise StoreError(KEY_OUTSIDE_LEGAL_RANGE, begin=begin, end=end)
        if limit < 0:
            raise StoreError(RANGE_LIMITS_INVALID, limit=limit)
        if mode == StreamingMode.exact and not limit:
            raise StoreError(EXACT_MODE_WITHOUT_LIMITS)
        if begin >= end:
            return [], False
        if mode == StreamingMode.iterator:
            piece_bytes = _ITERATOR_BYTES[min(piece, len(_ITERATOR_BYTES) - 1)]
        else:
            piece_bytes = _PIECE_BYTES[mode]
        try:
            return self._read_rows(begin, end, limit, reverse, piece_bytes, snapshot)
        except StoreError as error:
            raise self._read_failed(error) from None

    def _read_rows(
        self, begin: bytes, end: bytes, limit: int, reverse: bool, piece_bytes: int, snapshot: bool
    ) -> tuple[list[KeyValue], bool]:
        writes = self._writes
        touched = bool(writes.entries or writes.ranges) or writes.unreadable is not None
        overlaid = touched and self._sees_own_writes(snapshot)
        pairs = writes.overlay(begin, end, self._scan, reverse) if overlaid else self._scan(begin, end, reverse)
        rows: list[KeyValue] = []
        left_bytes, more = piece_bytes, False
        for pair in pairs:
            rows.append(_new(KeyValue, pair))
            left_bytes -= len(pair[0]) + len(pair[1])
            if len(rows) == limit or left_bytes <= 0:
                more = True
                break
        if more and reverse:
            begin = rows[-1].key
        elif more:
            end = rows[-1].key + b"\x00"
        if overlaid and writes.is_unreadable(begin, end):
            raise StoreError(ACCESSED_UNREADABLE, begin=begin, end=end)
        if not snapshot:
            self._conflict_on_read(begin, end)
        return rows, more

    def _scan(self, begin: bytes, end: bytes, reverse: bool) -> Iterator[Pair]:
        return self._open_snapshot().scan(begin, end, reverse)

    def _conflict_on_read(self, begin: bytes, end: bytes) -> None:
        writes = self._writes
        if self._own_writes_disabled or not (writes.entries or writes.ranges):
            self._reads.add_range(begin, end)
        else:
            for part_begin, part_end in writes.unwritten(begin, end):
                self._reads.add_range(part_begin, part_end)

    # --- The snapshot ---

    def _open_snapshot(self) -> Snapshot:
        """Return the snapshot, opened by the first read; 1007 once its window has closed."""
        snapshot = self._snapshot
        if snapshot is not None:
            if self._now_us() > self._window_ends_us:
                raise self._read_failed(TransactionTooLong())
            return snapshot
        if self._read_error is not None:
            raise self._read_error
        if self._set_version is None:
            snapshot = self._store.snapshot(self.clock)
        else:
            snapshot = self._store.snapshot_at(self.clock, self._set_version)
        self._snapshot = snapshot
        writes = self._writes
        layered = bool(writes.ranges) or writes.unreadable is not None or self._own_writes_disabled
        self._plain_reads = self._usable and not layered
        self._window_ends_us = ends_us = snapshot.opened_us + WINDOW_US
        if ends_us < self._expires_us:
            self._expires_us = ends_us
        return snapshot

    def _close_snapshot(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        self._plain_reads = False
        if snapshot is not None:
            snapshot.close()

    def _read_failed(self, error: StoreError) -> StoreError:
        """Record an error of the store if the commit must fail with it too; return it."""
        if self._read_error is None and error.code in _STICKY_ERRORS:
            self._read_error = error
            if error.code == TRANSACTION_TOO_OLD:
                self._close_snapshot()  # So a clock that is set back does not reopen the window.
        return error

    def _sees_own_writes(self, snapshot: bool) -> bool:
        return not self._own_writes_disabled and (not snapshot or self._snapshot_own_writes > 0)

    # --- For the options ---

    def disable_own_writes(self) -> bool:
        """Let reads see only the store; False if the transaction has already read or written."""
        if self._snapshot is not None or self._writes or self._reads:
            return False
        self._own_writes_disabled = True
        return True

    def nest_snapshot_own_writes(self, step: int) -> None:
        """Count one more (1) or one less (-1) reason for snapshot reads to see the transaction's own writes."""
        self._snapshot_own_writes += step
