"""Sets of keys, against sets of small integers."""

from __future__ import annotations

from itertools import pairwise
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from fairlead.zones.engines.optimistic import commit_log
from fairlead.zones.engines.optimistic.commit_log import LogEntry, ReadSet
from fairlead.zones.engines.optimistic.ranges import (
    KeySet,
    Range,
    any_overlap,
    any_point_in,
    covers,
    gaps,
    merge,
)

NUMBERS = st.integers(0, 30)
RANGES = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=6)


def key(number: int) -> bytes:
    return bytes([number])


def as_ranges(pairs: list[tuple[int, int]]) -> list[Range]:
    return [(key(min(pair)), key(max(pair))) for pair in pairs if pair[0] != pair[1]]


def numbers_in(ranges: list[Range]) -> set[int]:
    return {number for begin, end in ranges for number in range(begin[0], end[0])}


@given(pairs=RANGES)
def test_merged_ranges_hold_the_same_keys_without_touching(pairs: list[tuple[int, int]]) -> None:
    ranges = as_ranges(pairs)
    merged = merge(ranges)
    assert numbers_in(merged) == numbers_in(ranges)
    assert all(one[1] < two[0] for one, two in pairwise(merged))


@given(pairs=RANGES, others=RANGES, points=st.sets(NUMBERS))
def test_overlaps_are_found(pairs: list[tuple[int, int]], others: list[tuple[int, int]], points: set[int]) -> None:
    these, those = merge(as_ranges(pairs)), merge(as_ranges(others))
    assert any_overlap(these, those) == bool(numbers_in(these) & numbers_in(those))
    assert any_point_in(sorted(map(key, points)), these) == bool(points & numbers_in(these))
    assert all(covers(these, key(number)) == (number in numbers_in(these)) for number in range(31))


@given(begin=NUMBERS, end=NUMBERS, taken=RANGES)
def test_gaps_are_what_is_not_taken(begin: int, end: int, taken: list[tuple[int, int]]) -> None:
    found = list(gaps(key(begin), key(end), sorted(as_ranges(taken))))
    assert numbers_in(found) == set(range(begin, end)) - numbers_in(as_ranges(taken))


@given(
    points=st.sets(NUMBERS),
    ranges=RANGES,
    written=st.sets(NUMBERS),
    cleared=RANGES,
    lookup_ratio=st.sampled_from([0, 16]),
)
def test_a_commit_changes_what_was_read_if_they_have_a_key_in_common(
    points: set[int],
    ranges: list[tuple[int, int]],
    written: set[int],
    cleared: list[tuple[int, int]],
    lookup_ratio: int,
) -> None:
    reads = ReadSet(KeySet(map(key, points), as_ranges(ranges)))
    entry = LogEntry(1, tuple(key(number) for number in written), tuple(merge(as_ranges(cleared))))
    read = points | numbers_in(as_ranges(ranges))
    with patch.object(commit_log, "LOOKUP_RATIO", lookup_ratio):
        assert reads.changed_by(entry) == bool(read & (written | numbers_in(as_ranges(cleared))))


def test_a_range_of_one_key_is_a_point_and_an_empty_one_nothing() -> None:
    keys = KeySet()
    keys.add_range(b"a", b"a\x00")
    keys.add_range(b"b", b"b")
    keys.add_range(b"c", b"b")
    assert (keys.points, keys.ranges) == ({b"a"}, [])
    keys.add_range(b"a", b"b\x00")
    assert keys.ranges == [(b"a", b"b\x00")]
