"""The commit log of an embedded store: in the store, so that all processes see it, and its newest part decoded.

A key is a version, the newest first (`own_keys`), a value the points and ranges that its commit conflicts on (msgpack).
Entries older than the window are pruned, but for the newest of them: so every transaction still within its window
finds the version it read at, or an older one, in the log, and one whose version lies before the oldest entry is
refused, whatever any clock says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from zones.engines.commit_log import WINDOW_US, LogEntry, Reads, after
from zones.engines.errors import TRANSACTION_TOO_OLD, StoreError
from zones.engines.own_keys import LOG_BEGIN, log_key, log_version
from zones.engines.ranges import KeySet, Range

TAIL_POINTS_MAX: Final = 20_000  # About 3 MB. Older entries are decoded when a long transaction asks for them.
PRUNE_EVERY: Final = 64  # Entries; a pruning touches two more pages, so it is not done for each.
PRUNE_MAX: Final = 256  # Entries at a time, or twice what was appended, so that no commit has to wait for long.
VERSIONS_APART: Final = 5  # So a window holds a million entries at most, even while the clock stands still.

UNDECODABLE: Final = (msgspec.MsgspecError, RecursionError)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[list[bytes], list[tuple[bytes, bytes]]]).decode

Txn = Any  # lmdb.Transaction[bytes]; its stubs make generics of what is none at run time.


class StoredLog:
    """The log, used by one thread at a time except for `version`."""

    def __init__(self) -> None:
        self._newest = (-1, 0)  # Number of the LMDB transaction that this process saw last, and its version.
        self._tail: deque[LogEntry] = deque()
        self._tail_points = 0
        self._tail_floor = 0  # The tail holds every entry above this, up to `last`.
        self._behind = False  # Unless other processes have committed, and it was not needed yet.
        self._since_pruned = 0
        self.last = 0

    def version(self, txn: Txn) -> int:
        """Return the version of the last commit that a read transaction sees."""
        number, version = self._newest
        if txn.id() == number:
            return version
        return _last_version(txn.cursor())

    # --- Within one write transaction: begin, then check and append in turn, then finish or forget. ---

    def begin(self, txn: Txn) -> None:
        """Learn the last version, as the write transaction sees it."""
        number, self.last = self._newest
        if txn.id() - 1 != number:
            stored = _last_version(txn.cursor())
            self._behind = self._behind or stored != self.last
            self.last = stored

    def changed(self, txn: Txn, reads: Reads, read_version: int) -> bool:
        """Whether a commit above `read_version` wrote something that was read.

        Raises:
          StoreError: 1007 if entries that would tell have been pruned, or are damaged.
        """
        if self._behind:
            self._catch_up(txn, read_version)
        if read_version < self._tail_floor:
            if read_version < _first_version(txn.cursor()):
                raise StoreError(TRANSACTION_TOO_OLD, read_version=read_version)
            if reads.changed_by_any(self._stored(txn, read_version, self._tail_floor)):
                return True
        return reads.changed_by_any(after(reversed(self._tail), read_version))

    def find(self, txn: Txn, mark: bytes, above: int) -> int | None:
        """Return the version of the commit above `above` that is marked so; None if there is none.

        Raises:
          StoreError: 1007 if entries that would tell have been pruned.
        """
        if not self.changed(txn, Reads(KeySet((mark,))), above):
            return None
        return next(entry.version for entry in self._stored(txn, above, self.last) if mark in entry.points)

    def append(self, txn: Txn, version: int, points: Sequence[bytes], ranges: list[Range]) -> None:
        """Add a commit, above all others."""
        assert version > self.last
        txn.put(log_key(version), _encode((points, ranges)))
        if self._behind:
            self._forget_tail(self.last)
        self._keep(LogEntry(version, points, ranges))
        self._since_pruned += 1
        self.last = version

    def is_due_for_pruning(self) -> bool:
        """Whether so much was appended that looking for old entries pays."""
        return self._since_pruned >= PRUNE_EVERY

    def prune(self, txn: Txn) -> None:
        """Delete what the window has left behind, or the oldest part of it."""
        most = max(PRUNE_MAX, 2 * self._since_pruned)
        self._since_pruned = 0
        cursor = txn.cursor()
        if not cursor.set_range(log_key(max(0, self.last - WINDOW_US))):
            return
        kept = cursor.key()  # The newest one that is older than the window.
        while most and cursor.last() and cursor.key() > kept:
            cursor.delete()
            most -= 1

    def committed(self, number: int) -> None:
        """Note that the write transaction of this number, LMDB's own, was committed."""
        self._newest = (number, self.last)

    def forget(self) -> None:
        """Forget what was decoded: the write transaction was not committed, or the process was forked."""
        self._newest = (-1, 0)
        self._forget_tail(0)
        self._behind = True

    def _catch_up(self, txn: Txn, read_version: int) -> None:
        """Decode what other processes have committed, as far as a transaction of `read_version` needs it."""
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
        except StoreError:  # One is damaged: the next transaction reads after it, and need not know what it said.
            self.forget()
            raise
        for entry in missing:
            self._keep(entry)
        self._behind = False

    def _stored(self, txn: Txn, above: int, up_to: int) -> Iterator[LogEntry]:
        """Yield the entries of versions above `above`, up to `up_to`, the newest first.

        Raises:
          StoreError: 1007 if one of them is damaged: nobody can tell what it conflicts with.
        """
        cursor = txn.cursor()
        if cursor.set_range(log_key(up_to)):
            for key, value in cursor.iternext():
                version = log_version(key)
                if version <= above:
                    return
                try:
                    points, ranges = _decode(value)
                except UNDECODABLE:
                    raise StoreError(TRANSACTION_TOO_OLD, read_version=above) from None
                yield LogEntry(version, points, ranges)

    def _keep(self, entry: LogEntry) -> None:
        self._tail.append(entry)
        self._tail_points += len(entry.points)
        while self._tail_points > TAIL_POINTS_MAX:
            dropped = self._tail.popleft()
            self._tail_points -= len(dropped.points)
            self._tail_floor = dropped.version

    def _forget_tail(self, floor: int) -> None:
        self._tail.clear()
        self._tail_points = 0
        self._tail_floor = floor
        self._behind = False


def _last_version(cursor: Any) -> int:
    return log_version(cursor.key()) if cursor.set_range(LOG_BEGIN) else 0


def _first_version(cursor: Any) -> int:
    return log_version(cursor.key()) if cursor.last() else 0


def start_log(txn: Txn, version: int) -> None:
    """Give a new log its first entry: versions start near the clock, and the log is never empty."""
    txn.put(log_key(version), _encode(([], [])))
