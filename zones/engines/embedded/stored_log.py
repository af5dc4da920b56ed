"""The commit log of an embedded store. It is stored, so that all processes see it; its newest part is cached decoded.

A key is a version, the newest first (`reserved_keys`); a value is an `_Entry` (msgpack). Entries older than the window
are pruned, except the newest of them. So each transaction within its window finds its read version, or an older one, in
the log. A transaction whose read version is before the oldest entry is refused, whatever the clock shows.

The version of an entry gives its age, unless versions are ahead of the clock. This happens after a commit by a clock
that was ahead: each later commit raises the version by only `VERSION_GAP`. Then the commit time in the entry gives its
age. If the clock stands still or is often set back, neither helps, and the size of the log is bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import lmdb
import msgspec

from fairlead.zones.engines.api.errors import TRANSACTION_TOO_OLD, StoreError
from fairlead.zones.engines.optimistic.commit_log import WINDOW_US, LogEntry, ReadSet, entries_after
from fairlead.zones.engines.optimistic.ranges import KeySet, Range
from fairlead.zones.engines.optimistic.reserved_keys import LOG_BEGIN, log_key, log_version

TAIL_POINTS_MAX: Final = 20_000  # About 3 MB. Older entries are decoded when a long transaction asks for them.
SMALL_POINTS_MAX: Final = 32  # A step writes four keys; a batch of items that a worker completes writes hundreds.
PRUNE_EVERY: Final = 64  # Entries. Pruning writes two more pages, so it is not done for each commit.
PRUNE_MAX: Final = 256  # Entries at a time, or twice as many as were appended, so that no commit waits for long.
VERSION_GAP: Final = 5  # So a window holds a million entries at most, even while the clock stands still.
LOG_BYTES_MAX: Final = 256 << 20  # More than a disk writes in a window. Older transactions get 1007.

UNDECODABLE: Final = (msgspec.MsgspecError, RecursionError)


class _Entry(msgspec.Struct, array_like=True):
    """The keys that a commit conflicts on, its time by the clock, and the bytes of all entries before it."""

    points: tuple[bytes, ...]
    ranges: tuple[tuple[bytes, bytes], ...]
    made_us: int = 0
    bytes_before: int = 0


class _EntryTail(msgspec.Struct, array_like=True):
    """An `_Entry` of which only time and bytes are decoded."""

    points: msgspec.Raw
    ranges: msgspec.Raw
    made_us: int = 0
    bytes_before: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Entry).decode
_decode_tail = msgspec.msgpack.Decoder(_EntryTail).decode


class StoredLog:
    """The log, used by one thread at a time except for `version`."""

    def __init__(self) -> None:
        self._newest = (-1, 0)  # Number of the LMDB transaction that this process saw last, and its version.
        self._bytes_after = 0  # Bytes of all entries up to `last`.
        self._tail: deque[LogEntry] = deque()
        self._tail_points = 0
        self._written: dict[bytes, int] = {}  # Of each point in the small entries of the tail, its newest version.
        self._large: deque[LogEntry] = deque()  # The other entries of the tail: with many points, or with ranges.
        self._tail_floor = 0  # The tail holds every entry above this, up to `last`.
        self._behind = False  # True if other processes have committed, and the tail lacks their entries.
        self._in_transaction = False
        self._since_pruned = 0
        self.last = 0

    def version(self, txn: lmdb.Transaction[bytes]) -> int:
        """Return the version of the last commit that a read transaction sees."""
        number, version = self._newest
        if txn.id() == number:
            return version
        return _last_version(txn.cursor())

    # --- Within one write transaction: `begin`, then `changed` and `append` in turn, then `committed`. ---

    def begin(self, txn: lmdb.Transaction[bytes]) -> None:
        """Read the last version, as the write transaction sees it."""
        if self._in_transaction:  # The last transaction was not committed, or was interrupted.
            self.reset()
        self._in_transaction = True
        number, self.last = self._newest
        if txn.id() - 1 != number:
            cursor = txn.cursor()
            stored = _last_version(cursor)
            self._behind = self._behind or stored != self.last
            self.last = stored
            self._bytes_after = _bytes_after(cursor.value())

    def changed(self, txn: lmdb.Transaction[bytes], reads: ReadSet, read_version: int) -> bool:
        """Return whether a commit above `read_version` wrote something that was read.

        Raises:
          StoreError: 1007 if needed entries have been pruned, or are damaged.
        """
        if self._behind:
            self._catch_up(txn, read_version)
        if read_version < self._tail_floor:
            if read_version < _first_version(txn.cursor()):
                raise StoreError(TRANSACTION_TOO_OLD, read_version=read_version)
            if reads.changed_by_any(self._stored(txn, read_version, self._tail_floor)):
                return True
        if reads.ranges:
            return reads.changed_by_any(entries_after(reversed(self._tail), read_version))
        # One lookup for each point, not one for each small commit since. While 64 threads run steps, the leader's CPU
        # time for a group of 21 commits fell from 1.34 to 1.10 ms.
        written = self._written
        for key in reads.points:
            if written.get(key, 0) > read_version:
                return True
        return bool(self._large) and reads.changed_by_any(entries_after(reversed(self._large), read_version))

    def find(self, txn: lmdb.Transaction[bytes], commit_id: bytes, above: int) -> int | None:
        """Return the version of the commit with this id, above the version `above`; None if there is none.

        Raises:
          StoreError: 1007 if needed entries have been pruned.
        """
        if not self.changed(txn, ReadSet(KeySet((commit_id,))), above):
            return None
        return next(entry.version for entry in self._stored(txn, above, self.last) if commit_id in entry.points)

    def append(
        self, txn: lmdb.Transaction[bytes], version: int, points: Sequence[bytes], ranges: list[Range], made_us: int
    ) -> None:
        """Add a commit, above all others."""
        assert version > self.last
        entry = _encode((points, ranges, made_us, self._bytes_after))
        txn.put(log_key(version), entry)
        self._bytes_after += len(entry)
        if self._behind:
            self._forget_tail(self.last)
        self._keep(LogEntry(version, tuple(points), tuple(ranges)))
        self._since_pruned += 1
        self.last = version

    def is_due_for_pruning(self) -> bool:
        """Return whether enough was appended for pruning to pay."""
        return self._since_pruned >= PRUNE_EVERY

    def prune(self, txn: lmdb.Transaction[bytes], now_us: int) -> None:
        """Delete entries older than the window, or the oldest of them."""
        most = max(PRUNE_MAX, 2 * self._since_pruned)
        self._since_pruned = 0
        cursor = txn.cursor()
        kept = None  # The newest one that is older than the window.
        if self.last > now_us + WINDOW_US or self._is_too_large(cursor):
            kept = self._newest_old(cursor, now_us - WINDOW_US, most)
        elif cursor.set_range(log_key(max(0, self.last - WINDOW_US))):
            kept = cursor.key()
        while kept is not None and most and cursor.last() and cursor.key() > kept:
            cursor.delete()
            most -= 1

    def _is_too_large(self, cursor: lmdb.Cursor[bytes]) -> bool:
        return bool(cursor.last()) and self._bytes_after - _tail_of(cursor.value()).bytes_before > LOG_BYTES_MAX

    def _newest_old(self, cursor: lmdb.Cursor[bytes], until_us: int, most: int) -> bytes | None:
        """Return the key of the newest entry, among the `most` oldest, that is old or exceeds the size limit.

        Old: committed by `until_us`. All entries before this one are older, whatever the clock was.
        """
        newest = None
        if cursor.last():
            for key, value in islice(cursor.iterprev(), most):
                tail = _tail_of(value)
                if tail.made_us <= until_us or self._bytes_after - tail.bytes_before > LOG_BYTES_MAX:
                    newest = key
                if key <= log_key(self.last):
                    break
        return newest

    def committed(self, number: int) -> None:
        """Note that LMDB's write transaction of this number was committed."""
        self._newest = (number, self.last)
        self._in_transaction = False

    def reset(self) -> None:
        """Drop the cached entries: a write transaction was not committed, or the process was forked."""
        self._newest = (-1, 0)
        self._forget_tail(0)
        self._behind = True

    def _catch_up(self, txn: lmdb.Transaction[bytes], read_version: int) -> None:
        """Decode the entries of other processes that a transaction of `read_version` needs."""
        known = self._tail[-1].version if self._tail else self._tail_floor
        start = max(known, read_version, _first_version(txn.cursor()))
        if start > known:
            self._forget_tail(start)
        missing: deque[LogEntry] = deque()
        points = 0
        try:
            for entry in self._stored(txn, start, self.last):
                points += len(entry.points)
                if points > TAIL_POINTS_MAX:  # The older ones stay in the store.
                    self._forget_tail(entry.version)
                    break
                missing.appendleft(entry)
        except StoreError:  # An entry is damaged. Later transactions read after it, and do not need it.
            self.reset()
            raise
        for entry in missing:
            self._keep(entry)
        self._behind = False

    def _stored(self, txn: lmdb.Transaction[bytes], above: int, up_to: int) -> Iterator[LogEntry]:
        """Yield the entries of versions above `above`, up to `up_to`, the newest first.

        Raises:
          StoreError: 1007 if one of them is damaged: what it conflicts with is unknown.
        """
        cursor = txn.cursor()
        if cursor.set_range(log_key(up_to)):
            for key, value in cursor.iternext():
                version = log_version(key)
                if version <= above:
                    return
                try:
                    entry = _decode(value)
                except UNDECODABLE:
                    raise StoreError(TRANSACTION_TOO_OLD, read_version=above) from None
                yield LogEntry(version, entry.points, entry.ranges)

    def _keep(self, entry: LogEntry) -> None:
        self._tail.append(entry)
        self._tail_points += len(entry.points)
        if _is_small(entry):
            self._written.update(dict.fromkeys(entry.points, entry.version))
        else:
            self._large.append(entry)
        while self._tail_points > TAIL_POINTS_MAX:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        dropped = self._tail.popleft()
        self._tail_points -= len(dropped.points)
        self._tail_floor = dropped.version
        if not _is_small(dropped):
            self._large.popleft()
            return
        for key in dropped.points:
            if self._written.get(key) == dropped.version:
                del self._written[key]

    def _forget_tail(self, floor: int) -> None:
        self._tail.clear()
        self._tail_points = 0
        self._written.clear()
        self._large.clear()
        self._tail_floor = floor
        self._behind = False


def _is_small(entry: LogEntry) -> bool:
    """Whether the points of an entry are looked up one by one. Few commits are large, and each has many points."""
    return len(entry.points) <= SMALL_POINTS_MAX and not entry.ranges


def _tail_of(value: bytes) -> _EntryTail:
    """Return time and bytes of an entry; zeros if it is damaged."""
    try:
        return _decode_tail(value)
    except UNDECODABLE:
        return _EntryTail(msgspec.Raw(), msgspec.Raw())


def _bytes_after(value: bytes) -> int:
    return _tail_of(value).bytes_before + len(value)


def _last_version(cursor: lmdb.Cursor[bytes]) -> int:
    return log_version(cursor.key()) if cursor.set_range(LOG_BEGIN) else 0


def _first_version(cursor: lmdb.Cursor[bytes]) -> int:
    return log_version(cursor.key()) if cursor.last() else 0


def start_log(txn: lmdb.Transaction[bytes], version: int) -> None:
    """Write the first entry of a new log. Versions start near the clock, and the log is never empty."""
    txn.put(log_key(version), _encode(([], [])))
