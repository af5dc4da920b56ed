"""Reads at a snapshot: the first copy at it, or at a later snapshot; without a copy, the key's present value."""

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import groupby, islice
from typing import NamedTuple

from fairlead.zones.engines import KeyValue, Reader
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import ShardLayout
from fairlead.zones.ownership import check_owner
from fairlead.zones.snapshots.snapshot_keys import copies_prefix, unpack_copy
from fairlead.zones.snapshots.snapshot_list import numbers_from, snapshots_of

PAGE_ROWS = 500  # Of one transaction, with its time of five seconds.
PAGE_BYTES = 1_000_000
CHANGES_ROWS = 100  # Each may hold 100,000 bytes, which are on their way at once.


class Page(NamedTuple):
    """Some pairs in order, with keys of DATA.

    `next_key`: where the next page begins, or ends if the order is reversed; None: there is none.
    """

    rows: list[KeyValue]
    next_key: bytes | None


class Change(NamedTuple):
    """A key of DATA that had another value at a snapshot than it has now. None: it is not there."""

    key: bytes
    then: bytes | None
    now: bytes | None


class SnapshotReads:
    """Reads of one transaction at a snapshot. Snapshot reads: the result must decide no write.

    Raises:
      TenantMoved, TenantLocked: see `check_owner`. A shared lock is passed.
      SnapshotGone: the tenant has no such snapshot.
    """

    def __init__(self, tr: Reader, layout: ShardLayout, keys: TenantKeys, number: int) -> None:
        value = tr.snapshot.get(keys.owner).value
        check_owner(tr, layout, keys, value, writes=False)
        self._tr = tr
        self._keys = keys
        self._sources = [copies_prefix(keys, each) for each in numbers_from(keys, snapshots_of(value), number)]

    def get(self, key: bytes) -> bytes | None:
        """Return the value that a key of DATA had."""
        suffix = key[len(self._keys.data) :]
        reads = [self._tr.snapshot.get(prefix + suffix) for prefix in self._sources]
        present = self._tr.snapshot.get(key)
        for read in reads:
            copy = read.value
            if copy is not None:
                return unpack_copy(copy)
        return present.value

    def get_range(self, begin: bytes, end: bytes, *, reverse: bool = False) -> Iterator[KeyValue]:
        """Yield the pairs that there were in [begin, end), both in DATA, in order."""
        for suffix, rows in self._by_key([*self._sources, self._keys.data], begin, end, reverse=reverse):
            value = self._value(rows)
            if value is not None:
                yield KeyValue(self._keys.data + suffix, value)

    def page(self, begin: bytes, end: bytes, *, limit: int = 0, reverse: bool = False) -> Page:
        """Return the first pairs of `get_range`: as many as one transaction should read, at most `limit` if not 0."""
        rows: list[KeyValue] = []
        size = 0
        for row in islice(self.get_range(begin, end, reverse=reverse), limit or None):
            rows.append(row)
            size += len(row.key) + len(row.value)
            if len(rows) == PAGE_ROWS or size >= PAGE_BYTES:
                return Page(rows, row.key if reverse else row.key + b"\x00")
        return Page(rows, None)

    def changes(self, begin: bytes) -> tuple[list[Change], bytes | None]:
        """Return the first keys from `begin` on whose value has changed since, and where to go on; None: that is all.

        Reads copies, and the present values of their keys.
        """
        data = self._keys.data
        by_key = self._by_key(self._sources, begin, data + b"\xff", reverse=False)
        first = [(data + suffix, self._value(rows)) for suffix, rows in islice(by_key, CHANGES_ROWS)]
        present = [self._tr.snapshot.get(key) for key, _ in first]
        found: list[Change] = []
        size = 0
        for (key, then), read in zip(first, present, strict=True):
            now = read.value
            if then != now:
                found.append(Change(key, then, now))
            size += len(then or b"") + len(now or b"")
            if size >= PAGE_BYTES:
                return found, key + b"\x00"
        return found, first[-1][0] + b"\x00" if len(first) == CHANGES_ROWS else None

    def _by_key(
        self, prefixes: list[bytes], begin: bytes, end: bytes, *, reverse: bool
    ) -> Iterator[tuple[bytes, list[tuple[int, bytes, bool]]]]:
        """Yield, in order, the part of each key behind its prefix, with its rows: which source, value, is a copy."""
        size, last = len(self._keys.data), len(prefixes)
        ranges = [
            self._tr.snapshot.get_range(prefix + begin[size:], prefix + end[size:], reverse=reverse)
            for prefix in prefixes
        ]
        streams = [
            _stream(rows, len(prefix), last - place if reverse else place, is_copy=prefix != self._keys.data)
            for place, (prefix, rows) in enumerate(zip(prefixes, ranges, strict=True))
        ]
        merged = merge(*streams, key=lambda row: row[:2], reverse=reverse)
        for suffix, rows in groupby(merged, key=lambda row: row[0]):
            yield suffix, [(place, value, is_copy) for _, place, value, is_copy in rows]

    @staticmethod
    def _value(rows: list[tuple[int, bytes, bool]]) -> bytes | None:
        """Return the value that counts: that of the first source."""
        _, value, is_copy = rows[0]
        return unpack_copy(value) if is_copy else value


def _stream(
    rows: Iterable[KeyValue], prefix_bytes: int, place: int, *, is_copy: bool
) -> Iterator[tuple[bytes, int, bytes, bool]]:
    for row in rows:
        yield row.key[prefix_bytes:], place, row.value, is_copy
