"""One transaction of the memory and embedded engines: optimistic, with FoundationDB's semantics step by step.

It reads from a snapshot that its first read opens, keeps what it writes to itself, notes which keys of the store its
answers came from, and hands both to the store at commit. All that differs between the two engines is behind
`Store` and `Snapshot`. One thread at a time may use a transaction.

Sources: FoundationDB 7.3, `ReadYourWrites.actor.cpp` and `NativeAPI.actor.cpp`, and answers recorded from a cluster.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

from zones.engines import atomics
from zones.engines.atomics import Atomic
from zones.engines.clock import Clock
from zones.engines.commit import NO_VERSION, CommitRequest, Snapshot, Store
from zones.engines.commit_log import WINDOW_US, Reads
from zones.engines.database import Future, KeyValue, Pair, StreamingMode
from zones.engines.errors import (
    ACCESSED_UNREADABLE,
    EXACT_MODE_WITHOUT_LIMITS,
    FUTURE_VERSION,
    INVERTED_RANGE,
    KEY_OUTSIDE_LEGAL_RANGE,
    KEY_TOO_LARGE,
    NO_COMMIT_VERSION,
    RANGE_LIMITS_INVALID,
    READ_VERSION_ALREADY_SET,
    RETRYABLE,
    TRANSACTION_CANCELLED,
    TRANSACTION_TIMED_OUT,
    TRANSACTION_TOO_LARGE,
    TRANSACTION_TOO_OLD,
    USED_DURING_COMMIT,
    VALUE_TOO_LARGE,
    VERSION_INVALID,
    WATCHES_DISABLED,
    StoreError,
)
from zones.engines.futures import Done, FailedValue, Value
from zones.engines.options import Persistent, TransactionOptions
from zones.engines.range_read import KEYS_END, RangeRead, SnapshotReads
from zones.engines.ranges import KeySet, covers
from zones.engines.watches import Versionstamp, Watch
from zones.engines.writes import Entry, Waiting, Writes

_NEVER_US: Final = 1 << 62

_BACKOFF_US: Final = 10_000  # FoundationDB's DEFAULT_BACKOFF; it doubles with every retry.
_BACKOFF_OLD_US: Final = 10_000  # Its FUTURE_VERSION_RETRY_DELAY, after 1007 and 1009.

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

_FOUNDATIONDB_KEY_BYTES_MAX: Final = 10_000
_SHORTER_KEYS: Final = "Shorten the key: the embedded engine takes 511 bytes, FoundationDB 10,000"


class Transaction:
    """A transaction with the binding's API; `zones.engines.database.Transaction` says what that is."""

    __slots__ = (
        "__weakref__",
        "_backoff_us",
        "_commit_started",
        "_created_us",
        "_deferred",
        "_ended",
        "_expires_us",
        "_next_write_silent",
        "_now_us",
        "_own_writes_disabled",
        "_plain",
        "_random",
        "_read_error",
        "_reads",
        "_request",
        "_retries",
        "_set_version",
        "_snapshot",
        "_snapshot_own_writes",
        "_stamps",
        "_store",
        "_usable",
        "_watches",
        "_window_ends_us",
        "_writes",
        "clock",
        "persistent",
    )

    def __init__(self, store: Store, clock: Clock, random_: random.Random) -> None:
        self._store = store
        self._random = random_
        self._now_us = clock.now_us
        self.clock = clock
        self._start_anew()

    def _start_anew(self) -> None:
        self.persistent = Persistent()
        self._retries = 0
        self._backoff_us = _BACKOFF_US
        self._created_us = self._now_us()
        self._clear()

    def _clear(self) -> None:
        self._snapshot: Snapshot | None = None
        self._set_version: int | None = None
        self._reads = KeySet()
        self._writes = Writes()
        self._watches: list[Watch] = []
        self._stamps: list[Versionstamp] = []
        self._request: CommitRequest | None = None
        # What may stand in the way of the next step. `_usable` is the sum of the next three: none of them.
        self._usable = True
        self._deferred: StoreError | None = None  # A write was refused; every later step says so.
        self._commit_started = False
        self._ended: StoreError | None = None  # Cancelled, timed out, or used during commit.
        self._read_error: StoreError | None = None  # A read failed; the commit will too.
        self._plain = True  # A write needs no more than to be noted; False if anything of the following is not so.
        self._next_write_silent = False
        self._own_writes_disabled = False
        self._snapshot_own_writes = 1
        self._window_ends_us = _NEVER_US
        self.apply_timeout()

    # --- Reading ---

    @property
    def snapshot(self) -> SnapshotReads:
        """This transaction, with reads that are no reason to conflict."""
        return SnapshotReads(
            self
        )  # Made anew: kept, it would close a cycle, and only the collector would free LMDB's pages.

    @property
    def options(self) -> TransactionOptions:
        """The setters of this transaction's options."""
        return TransactionOptions(self)

    def get(self, key: bytes) -> Value | FailedValue:
        """Read one key; a reason to conflict unless this transaction has set or cleared it itself."""
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

    def get_read_version(self) -> Done[int]:
        """Open the snapshot, and return a future of its version."""
        try:
            self._check_usable()
            return Done(self._opened().version())
        except StoreError as error:
            return Done(NO_VERSION, error)

    def set_read_version(self, version: int) -> None:
        """Read as of `version`, from another transaction's `get_read_version`.

        The embedded engine keeps no old snapshots for transactions to come: there every version but the present one
        is too old (1007).
        """
        if not self._writable():
            return
        if version <= 0:
            self.defer(VERSION_INVALID, version=version)
        elif self._snapshot is not None or self._set_version is not None:
            self.defer(READ_VERSION_ALREADY_SET)
        else:
            self._set_version = version

    def read_key(self, key: bytes, snapshot: bool) -> Value | FailedValue:
        """Read one key, as a snapshot read or not."""
        # The hottest path: an ordinary read falls through it with no call but the clock's and the store's.
        writes = self._writes
        opened = self._snapshot
        if (
            opened is None
            or not self._usable
            or self._now_us() > self._expires_us
            or key >= KEYS_END
            or key in writes.entries
            or writes.ranges
            or writes.unreadable_keys
            or self._own_writes_disabled
        ):
            return self._read_key_with_care(key, snapshot)
        try:
            value = opened.get(key)
        except opened.errors as error:
            try:
                value = opened.explain(key, error)
            except StoreError as ended:
                return FailedValue(self._read_failed(ended))
        if not snapshot:
            self._reads.points.add(key)
        return Value(value)

    def _read_key_with_care(self, key: bytes, snapshot: bool) -> Value | FailedValue:
        try:
            self._check_usable()
            if key >= KEYS_END:
                raise StoreError(KEY_OUTSIDE_LEGAL_RANGE, key=key)
            own_writes = not self._own_writes_disabled and (not snapshot or self._snapshot_own_writes > 0)
            if not own_writes:
                return Value(self._stored(key, snapshot))
            writes = self._writes
            if writes.unreadable_keys and writes.is_unreadable(key, key + b"\x00"):
                raise self._read_failed(StoreError(ACCESSED_UNREADABLE, key=key))
            if key in writes.entries:
                entry = writes.entries[key]
                return Value(entry.apply(self._stored(key, snapshot)) if type(entry) is Waiting else entry)  # type: ignore[arg-type]
            if writes.ranges and covers(writes.ranges, key):
                return Value(None)
            return Value(self._stored(key, snapshot))
        except StoreError as error:
            return FailedValue(error)

    def _stored(self, key: bytes, snapshot: bool) -> bytes | None:
        opened = self._opened()
        try:
            value = opened.get(key)
        except opened.errors as error:
            try:
                value = opened.explain(key, error)
            except StoreError as ended:
                raise self._read_failed(ended) from None
        if not snapshot:
            self._reads.points.add(key)
        return value

    def read_piece(
        self, begin: bytes, end: bytes, limit: int, reverse: bool, mode: int, piece: int, snapshot: bool
    ) -> tuple[list[KeyValue], bool]:
        """Return the first pairs of a range and whether there may be more; for `RangeRead`."""
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
        overlaid = bool(writes.entries or writes.ranges or writes.unreadable_keys) and not self._own_writes_disabled
        if snapshot and self._snapshot_own_writes <= 0:
            overlaid = False
        pairs = writes.overlay(begin, end, self._scan, reverse) if overlaid else self._scan(begin, end, reverse)
        rows: list[KeyValue] = []
        size_bytes, more = 0, False
        for pair in pairs:
            rows.append(KeyValue._make(pair))
            size_bytes += len(pair[0]) + len(pair[1])
            if len(rows) == limit or size_bytes >= piece_bytes:
                more = True
                break
        if more and reverse:
            begin = rows[-1].key
        elif more:
            end = rows[-1].key + b"\x00"
        if overlaid and writes.unreadable_keys and writes.is_unreadable(begin, end):
            raise StoreError(ACCESSED_UNREADABLE, begin=begin, end=end)
        if not snapshot:
            self._conflict_on_read(begin, end)
        return rows, more

    def _conflict_on_read(self, begin: bytes, end: bytes) -> None:
        writes = self._writes
        if self._own_writes_disabled or not (writes.entries or writes.ranges):
            self._reads.add_range(begin, end)
        else:
            for part_begin, part_end in writes.unwritten(begin, end):
                self._reads.add_range(part_begin, part_end)

    def _scan(self, begin: bytes, end: bytes, reverse: bool) -> Iterator[Pair]:
        return self._opened().scan(begin, end, reverse)

    def _opened(self) -> Snapshot:
        """Return the snapshot, opened by the first read; 1007 once the window has closed."""
        snapshot = self._snapshot
        if snapshot is None:
            if self._read_error is not None:
                raise self._read_error
            if self._set_version is None:
                snapshot = self._store.snapshot(self.clock)
            else:
                snapshot = self._store.snapshot_at(self.clock, self._set_version)
            self._snapshot = snapshot
            self._window_ends_us = self._now_us() + WINDOW_US
            self._expires_us = min(self._expires_us, self._window_ends_us)
        elif self._now_us() > self._window_ends_us:
            raise self._read_failed(StoreError(TRANSACTION_TOO_OLD))
        return snapshot

    def _read_failed(self, error: StoreError) -> StoreError:
        """Note a read that the store could not answer: the commit fails with the same error."""
        if self._read_error is None and error.code in (TRANSACTION_TOO_OLD, FUTURE_VERSION, ACCESSED_UNREADABLE):
            self._read_error = error
            if error.code == TRANSACTION_TOO_OLD:
                self._close_snapshot()  # So a clock that steps back does not open the window again.
        return error

    def _close_snapshot(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            snapshot.close()

    # --- Writing ---

    def set(self, key: bytes, value: bytes) -> None:
        """Set a key."""
        limits = self._store.limits
        if (
            self._plain
            and type(key) is bytes is type(value)
            and len(key) <= limits.key_bytes_max
            and len(value) <= limits.value_bytes_max
            and key < KEYS_END
        ):
            self._writes.entries[key] = value
        elif self._accepts(key, value):
            self._put(key, value)

    def clear(self, key: bytes) -> None:
        """Clear a key."""
        if self._accepts(key, b"", clearing=True) and len(key) <= self._store.limits.key_bytes_max:
            self._put(key, None)

    def clear_range(self, begin: bytes | None, end: bytes | None) -> None:
        """Clear [begin, end). An inverted range fails every later step with 2005."""
        begin = b"" if begin is None else _checked_bytes(begin)
        end = KEYS_END if end is None else _checked_bytes(end)
        if not self._writable():
            return
        if begin > end:
            self.defer(INVERTED_RANGE, begin=begin, end=end)
        elif end > KEYS_END:
            self.defer(KEY_OUTSIDE_LEGAL_RANGE, begin=begin, end=end)
        elif begin < end:
            self._writes.clear_range(begin, end, conflicting=self._next_write_conflicts())
            for watch in self._watches:
                if begin <= watch.key < end:
                    watch.written(None)

    def add(self, key: bytes, param: bytes) -> None:
        """Add little-endian integers; the value becomes as long as `param`."""
        self._update(key, atomics.add, param)

    def bit_and(self, key: bytes, param: bytes) -> None:
        """Combine bitwise by and."""
        self._update(key, atomics.bit_and, param)

    def bit_or(self, key: bytes, param: bytes) -> None:
        """Combine bitwise by or."""
        self._update(key, atomics.bit_or, param)

    def bit_xor(self, key: bytes, param: bytes) -> None:
        """Combine bitwise by exclusive or."""
        self._update(key, atomics.bit_xor, param)

    def max(self, key: bytes, param: bytes) -> None:
        """Keep the larger little-endian integer."""
        self._update(key, atomics.maximum, param)

    def min(self, key: bytes, param: bytes) -> None:
        """Keep the smaller little-endian integer; `param` if there is none."""
        self._update(key, atomics.minimum, param)

    def byte_max(self, key: bytes, param: bytes) -> None:
        """Keep the lexicographically larger string."""
        self._update(key, atomics.byte_max, param)

    def byte_min(self, key: bytes, param: bytes) -> None:
        """Keep the lexicographically smaller string; `param` if there is none."""
        self._update(key, atomics.byte_min, param)

    def append_if_fits(self, key: bytes, param: bytes) -> None:
        """Append, unless the value would become longer than 100,000 bytes."""
        self._update(key, atomics.append_if_fits, param)

    def compare_and_clear(self, key: bytes, param: bytes) -> None:
        """Clear the key if its value equals `param`."""
        self._update(key, atomics.compare_and_clear, param)

    def set_versionstamped_key(self, key: bytes, param: bytes) -> None:
        """Set a key into which the commit writes its versionstamp; the last 4 bytes of `key` are the stamp's offset."""
        if self._accepts(key[:-4], param):
            try:
                self._writes.put_stamped_key(key, param, conflicting=self._next_write_conflicts())
            except StoreError as error:
                self._defer(error)

    def set_versionstamped_value(self, key: bytes, param: bytes) -> None:
        """Set a value into which the commit writes its versionstamp; the last 4 bytes of `param` are the stamp's offset."""
        if self._accepts(key, param[:-4]):
            try:
                self._writes.put_stamped_value(key, param, conflicting=self._next_write_conflicts())
            except StoreError as error:
                self._defer(error)

    def add_read_conflict_key(self, key: bytes) -> None:
        """Conflict with changes of `key`, as if it had been read."""
        self.add_read_conflict_range(key, key + b"\x00")

    def add_read_conflict_range(self, begin: bytes, end: bytes) -> None:
        """Conflict with changes in [begin, end), as if it had been read; raises 2005 if inverted."""
        if self._conflict_range_accepted(begin, end):
            self._conflict_on_read(begin, end)

    def add_write_conflict_key(self, key: bytes) -> None:
        """Make who read `key` conflict, as if it had been written."""
        self.add_write_conflict_range(key, key + b"\x00")

    def add_write_conflict_range(self, begin: bytes, end: bytes) -> None:
        """Make who read in [begin, end) conflict, as if it had been written; raises 2005 if inverted."""
        if self._conflict_range_accepted(begin, end):
            self._writes.conflicts.add_range(begin, end)

    def _conflict_range_accepted(self, begin: bytes, end: bytes) -> bool:
        if _checked_bytes(begin) > _checked_bytes(end):
            raise StoreError(INVERTED_RANGE, begin=begin, end=end)
        if not self._writable():
            return False
        if end > KEYS_END and begin >= KEYS_END:
            self.defer(KEY_OUTSIDE_LEGAL_RANGE, begin=begin, end=end)
            return False
        return True

    def _update(self, key: bytes, operation: Atomic, param: bytes) -> None:
        if not self._accepts(key, param):
            return
        self._writes.update(key, operation, param, conflicting=self._plain or self._next_write_conflicts())
        for watch in self._watches:
            if watch.key == key:
                watch.changed()

    def _put(self, key: bytes, entry: Entry) -> None:
        self._writes.put(key, entry, conflicting=self._next_write_conflicts())
        for watch in self._watches:
            if watch.key == key:
                watch.written(entry)  # type: ignore[arg-type]

    def _accepts(self, key: bytes, param: bytes, *, clearing: bool = False) -> bool:
        """Whether a write of this size to this key may go on; if not, the reason fails the later steps."""
        limits = self._store.limits
        if not self._writable():
            return False
        if _checked_bytes(key) >= KEYS_END:
            self.defer(KEY_OUTSIDE_LEGAL_RANGE, key=key)
        elif len(key) > limits.key_bytes_max and not clearing:
            remedy = _SHORTER_KEYS if limits.key_bytes_max < _FOUNDATIONDB_KEY_BYTES_MAX else ""
            self.defer(KEY_TOO_LARGE, remedy, key_bytes=len(key), key_bytes_max=limits.key_bytes_max)
        elif len(_checked_bytes(param)) > limits.value_bytes_max:
            self.defer(VALUE_TOO_LARGE, value_bytes=len(param), value_bytes_max=limits.value_bytes_max)
        else:
            return True
        return False

    def _next_write_conflicts(self) -> bool:
        """Whether the write at hand conflicts; uses up the option that it does not."""
        silent, self._next_write_silent = self._next_write_silent, False
        return not silent

    def _writable(self) -> bool:
        if self._usable:
            return True
        if self._commit_started and self._deferred is None:
            self._end(StoreError(USED_DURING_COMMIT))
            self.defer(USED_DURING_COMMIT)
        return False

    def defer(self, code: int, remedy: str = "", **fields: object) -> None:
        """Fail every later step with this error: how the binding treats a refused write."""
        self._defer(StoreError(code, remedy=remedy, **fields))

    def _defer(self, error: StoreError) -> None:
        if self._deferred is None:
            self._deferred = error
        self._usable = self._plain = False

    # --- Life and death ---

    def commit(self) -> Future:
        """Start the commit, and return its future.

        A transaction that wrote nothing and declared no write conflict commits always, however old. Afterwards the
        transaction is of no use until `reset` (2017).

        Raises, when waited for:
          StoreError: 1020 if something that it read has changed, 1007 if it read too long ago, 2101 if it is larger
            than the size limit, 1031, 1025, or what an earlier step left behind.
        """
        try:
            self._check_usable()
        except StoreError as error:
            return Done(None, error)
        self._commit_started = True
        self._usable = self._plain = False
        reads = Reads(self._reads) if self._reads else None
        try:
            if self._read_error is not None:
                raise self._read_error
            if not self._writes:
                return self._commit_without_writes()
            size_bytes, size_bytes_max = self._size_bytes(), self.persistent.size_bytes_max
            if size_bytes > size_bytes_max:
                raise StoreError(TRANSACTION_TOO_LARGE, bytes=size_bytes, bytes_max=size_bytes_max)
            read_version = self._set_version
            if self._snapshot is not None:
                read_version = self._snapshot.version()
                if reads is not None and self._now_us() > self._window_ends_us:
                    raise StoreError(TRANSACTION_TOO_OLD)
        except StoreError as error:
            self._fail_waiting(error)
            return Done(None, error)
        finally:
            self._close_snapshot()
        if read_version is None:
            reads = None  # What it read came from nowhere but itself, or was only declared: there is no "since".
        elif reads is None:
            read_version = None
        request = CommitRequest(self.clock, reads, read_version, self._writes, self._watches, self._stamps)
        self._request = request
        return self._store.submit(request)

    def _commit_without_writes(self) -> Future:
        for stamp in self._stamps:
            stamp.fail(StoreError(NO_COMMIT_VERSION))
        for watch in self._watches:
            watch.arm(self._store)
        self._watches, self._stamps = [], []
        return Done(None)

    def get_committed_version(self) -> int:
        """Return the version of the commit, -1 before it or if nothing was written."""
        return NO_VERSION if self._request is None else self._request.committed_version

    def get_versionstamp(self) -> Versionstamp:
        """Return a future of the ten bytes that this transaction's commit will stamp with; ask before the commit."""
        stamp = Versionstamp()
        try:
            self._check_usable()
            self._stamps.append(stamp)
        except StoreError as error:
            stamp.fail(error)
        return stamp

    def get_approximate_size(self) -> Done[int]:
        """Return a future of the bytes that the commit would count against the size limit."""
        try:
            self._check_usable()
        except StoreError as error:
            return Done(0, error)
        return Done(self._size_bytes())

    def watch(self, key: bytes) -> Watch:
        """Return a future that is ready once `key` has another value than this transaction sees.

        Adds a read conflict on `key`. It starts to watch at the commit; cancelling the transaction before makes it fail.
        """
        try:
            self._check_usable()
            if self._own_writes_disabled:
                raise StoreError(WATCHES_DISABLED)
            watch = Watch(self, key, self.read_key(key, False).value)
        except StoreError as error:
            watch = Watch(self, key, None)
            watch.fail(error)
            return watch
        self._watches.append(watch)
        self._plain = False
        return watch

    def on_error(self, error: StoreError | int) -> Future:
        """Reset after a retryable error, and return a future that waits as long as is polite before the next attempt.

        Any other error is raised by that future, and the transaction is cancelled.
        """
        if isinstance(error, int):
            error = StoreError(error)
        if self._ended is not None:
            return Done(None, self._ended)
        hit_limit = 0 <= self.persistent.retry_limit <= self._retries
        self._retries += 1
        if hit_limit or error.code not in RETRYABLE:
            self._end(StoreError(TRANSACTION_CANCELLED))
            return Done(None, error)
        delay_max_us = self.persistent.retry_delay_max_ms * 1_000
        if error.code in (TRANSACTION_TOO_OLD, FUTURE_VERSION):
            delay_us = min(_BACKOFF_OLD_US, delay_max_us)
        else:
            delay_us = int(self._backoff_us * self._random.random())
            self._backoff_us = min(self._backoff_us * 2, delay_max_us)
        self._abandon(StoreError(TRANSACTION_CANCELLED))
        self._clear()
        return Delay(self.clock, self._now_us() + delay_us)

    def cancel(self) -> None:
        """End the transaction: every later step fails with 1025, until `reset`."""
        self._end(StoreError(TRANSACTION_CANCELLED))

    def reset(self) -> None:
        """Make it as good as new; options, retries and the timeout's clock start again too."""
        self._abandon(StoreError(TRANSACTION_CANCELLED))
        self._start_anew()

    def _check_usable(self) -> None:
        """Raise what stands in the way of a step, in the binding's order."""
        if self._ended is None and self._now_us() > self._expires_us and self._timed_out():
            self._end(StoreError(TRANSACTION_TIMED_OUT))
        if self._usable:
            return
        if self._deferred is not None:
            raise self._deferred
        if self._commit_started:
            self._end(StoreError(USED_DURING_COMMIT))
            raise StoreError(USED_DURING_COMMIT)
        assert self._ended is not None
        raise self._ended

    def _end(self, error: StoreError) -> None:
        if self._ended is None:
            self._ended = error
            self._usable = self._plain = False
            self._abandon(error)

    def _abandon(self, error: StoreError) -> None:
        """Let go of the snapshot, and of whoever waits for a commit that will not come."""
        self._close_snapshot()
        request = self._request
        if request is None or request.withdraw(error):
            self._fail_waiting(error)

    def _fail_waiting(self, error: StoreError) -> None:
        for waiting in (*self._watches, *self._stamps):
            waiting.fail(error)
        self._watches, self._stamps = [], []

    # --- For the options ---

    def apply_timeout(self) -> None:
        """Let the timeout in force decide when the transaction expires."""
        timeout_ms = self.persistent.timeout_ms
        deadline_us = self._created_us + timeout_ms * 1_000 if timeout_ms else _NEVER_US
        self._expires_us = min(deadline_us, self._window_ends_us)

    def _timed_out(self) -> bool:
        timeout_ms = self.persistent.timeout_ms
        return bool(timeout_ms) and self._now_us() > self._created_us + timeout_ms * 1_000

    def next_write_is_silent(self) -> None:
        """Let the next write add no write conflict."""
        if self._writable():
            self._next_write_silent = True
            self._plain = False

    def disable_own_writes(self) -> bool:
        """Let reads see the store only; False if it is too late for that."""
        if self._snapshot is not None or self._writes or self._reads:
            return False
        self._own_writes_disabled = True
        return True

    def nest_snapshot_own_writes(self, step: int) -> None:
        """Count one more (1) or one less (-1) reason for snapshot reads to see the transaction's own writes."""
        self._snapshot_own_writes += step

    def _size_bytes(self) -> int:
        reads = self._reads
        points = 2 * sum(map(len, reads.points)) + 25 * len(reads.points)
        ranges = sum(len(begin) + len(end) for begin, end in reads.ranges) + 24 * len(reads.ranges)
        return points + ranges + self._writes.size_bytes()


class Delay:
    """The future of `on_error`: ready when the time has come."""

    __slots__ = ("_clock", "_until_us")

    def __init__(self, clock: Clock, until_us: int) -> None:
        self._clock = clock
        self._until_us = until_us

    def is_ready(self) -> bool:
        """Whether the time has come."""
        return self._clock.now_us() >= self._until_us

    def wait(self) -> None:
        """Sleep on the clock until then."""
        left_us = self._until_us - self._clock.now_us()
        if left_us > 0:
            self._clock.sleep_us(left_us)

    def on_ready(self, callback: Any) -> None:
        """Wait, and call `callback(self)`."""
        self.wait()
        callback(self)


def _checked_bytes(data: bytes) -> bytes:
    if type(data) is not bytes:
        raise TypeError(f"keys and values are bytes, not {type(data).__name__}")
    return data
