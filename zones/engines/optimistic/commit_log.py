"""The commit log: the writes of recent commits, to check whether a transaction's reads have changed.

A transaction that read at version R commits if no commit after R wrote anything that it read. This is optimistic
concurrency control, as in the resolvers of FoundationDB (section 2.2). Entries older than the window are pruned. A
transaction that is older than the pruned entries is refused.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from fairlead.zones.engines.optimistic.ranges import KeySet, Range, any_overlap, any_point_in, merge

LOOKUP_RATIO: Final = 16  # With this many times more points, binary search is faster than a set operation.
WINDOW_US: Final = 5_000_000  # FoundationDB's: a transaction lives for 5 s. Versions are microseconds, or close.


class LogEntry(msgspec.Struct, gc=False, eq=False):
    """One commit: its version, and the keys that it conflicts on.

    A process keeps thousands of entries, and a full garbage collection stops all of its threads. So the collector does
    not track entries, nor tuples of bytes: 20,000 entries lengthen a collection by 4 ms. With lists it was 8 ms.
    """

    version: int
    points: tuple[bytes, ...]
    ranges: tuple[Range, ...]
    _ordered: list[bytes] | None = None

    def ordered_points(self) -> list[bytes]:
        """Return the points in order; sorted once, and only if something is looked up in them."""
        if self._ordered is None:
            self._ordered = sorted(self.points)
        return self._ordered


class ReadSet:
    """The conflicting reads of a committing transaction, to compare with the commits since its read version."""

    __slots__ = ("_merged", "_ordered", "points", "ranges")

    def __init__(self, keys: KeySet) -> None:
        self.points = keys.points
        self.ranges = keys.ranges
        self._merged: list[Range] | None = None
        self._ordered: list[bytes] | None = None

    def changed_by(self, entry: LogEntry) -> bool:
        """Return whether the commit wrote something that was read."""
        if self._has_point_of(entry):
            return True
        if self.ranges:
            if self._merged is None:
                self._merged = merge(self.ranges)
            if any_point_in(entry.ordered_points(), self._merged) or any_overlap(self._merged, entry.ranges):
                return True
        if entry.ranges and self.points:
            if self._ordered is None:
                self._ordered = sorted(self.points)
            return any_point_in(self._ordered, entry.ranges)
        return False

    def _has_point_of(self, entry: LogEntry) -> bool:
        if len(entry.points) < LOOKUP_RATIO * len(self.points):
            return not self.points.isdisjoint(entry.points)
        written = entry.ordered_points()  # A large commit must not slow down each small one after it.
        places = ((bisect_left(written, key), key) for key in self.points)
        return any(place < len(written) and written[place] == key for place, key in places)

    def changed_by_any(self, entries: Iterable[LogEntry]) -> bool:
        """Return whether one of the commits wrote something that was read."""
        return any(map(self.changed_by, entries))


def entries_after(entries: Iterable[LogEntry], version: int) -> Iterator[LogEntry]:
    """Yield the entries above `version`, given entries from newest to oldest."""
    for entry in entries:
        if entry.version <= version:
            return
        yield entry
