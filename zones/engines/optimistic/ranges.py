"""Sets of keys and key ranges: what a transaction read, and what it wrote.

Points and ranges are kept apart, because nearly all conflicts are point against point: the intersection of two
sets of points is one call that runs at the speed of C, whereas ranges need a search for each.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

Range = tuple[bytes, bytes]

KEYS_BEGIN: Final = b""
KEYS_END: Final = b"\xff"  # Keys from here on are FoundationDB's own.

# FoundationDB's client adds this to the bytes of a conflict range's two ends.
_RANGE_BYTES: Final = 24


class KeySet:
    """Keys, as points and half-open ranges [begin, end). Grows only."""

    __slots__ = ("points", "ranges")

    def __init__(self, points: Iterable[bytes] = (), ranges: Iterable[Range] = ()) -> None:
        self.points: set[bytes] = set(points)
        self.ranges: list[Range] = list(ranges)

    def __bool__(self) -> bool:
        return bool(self.points or self.ranges)

    def add_range(self, begin: bytes, end: bytes) -> None:
        """Add [begin, end); an empty range adds nothing, a range of one key adds a point."""
        if begin >= end:
            return
        if len(end) == len(begin) + 1 and end[-1] == 0 and end.startswith(begin):
            self.points.add(begin)
        else:
            self.ranges.append((begin, end))

    def size_bytes(self) -> int:
        """Return the size that FoundationDB would count for these keys as conflict ranges."""
        points = self.points
        # A point is the range from the key to the key and a zero byte.
        size_bytes = 2 * sum(map(len, points)) + (_RANGE_BYTES + 1) * len(points)
        return size_bytes + sum(map(len, chain.from_iterable(self.ranges))) + _RANGE_BYTES * len(self.ranges)


def merge(ranges: Iterable[Range]) -> list[Range]:
    """Return the same keys as sorted ranges that neither overlap nor touch."""
    merged: list[Range] = []
    for begin, end in sorted(ranges):
        if merged and begin <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        else:
            merged.append((begin, end))
    return merged


def covers(merged: Sequence[Range], key: bytes) -> bool:
    """Return whether one of the merged ranges contains `key`."""
    index = bisect_right(merged, (key, b"\xff\xff")) - 1
    return index >= 0 and merged[index][0] <= key < merged[index][1]


def any_point_in(points: Sequence[bytes], merged: Sequence[Range]) -> bool:
    """Return whether one of the sorted `points` lies in one of the merged ranges."""
    if len(points) < len(merged):
        return any(covers(merged, point) for point in points)
    for begin, end in merged:
        index = bisect_left(points, begin)
        if index < len(points) and points[index] < end:
            return True
    return False


def any_overlap(these: Sequence[Range], those: Sequence[Range]) -> bool:
    """Return whether two lists of merged ranges have a key in common."""
    if len(these) > len(those):
        these, those = those, these
    for begin, end in these:
        # The last range of `those` that begins before this one ends reaches furthest.
        index = bisect_left(those, (end,)) - 1
        if index >= 0 and those[index][1] > begin:
            return True
    return False


def gaps(begin: bytes, end: bytes, taken: Iterable[Range]) -> Iterable[Range]:
    """Yield the parts of [begin, end) that are in none of the sorted ranges `taken`."""
    for taken_begin, taken_end in taken:
        if taken_begin >= end:
            break
        if taken_begin > begin:
            yield begin, taken_begin
        if taken_end > begin:
            begin = taken_end
    if begin < end:
        yield begin, end
