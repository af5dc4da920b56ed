"""Reading a vesting index: all that has vested, in order, and hardly anything else."""

from __future__ import annotations

from random import Random
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.zones import engines
from fairlead.zones.engines import Database, Reader, transact
from fairlead.zones.keyspace import IndexEntry, QueueKeys
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.index_scan import FIRST_LOOK, VestedReader, collect_vested, read_first_of_each_priority
from tests.clocks import ManualClock

NOW_US = 1_000
KEYS = QueueKeys(b"index/")

# Around the present, so that many share a time, and one vests at this very microsecond.
ENTRIES = st.sets(
    st.tuples(st.integers(0, 3), st.integers(NOW_US - 4, NOW_US + 4), st.integers(0, 3)).map(
        lambda parts: IndexEntry(parts[0], parts[1], bytes([parts[2]]) * 16)
    ),
    max_size=40,
)


def stored(entries: set[IndexEntry]) -> Database:
    db = engines.open("memory:", clock=ManualClock(), random=Random(1))

    def body(tr: Any) -> None:
        for entry in entries:
            tr.set(KEYS.vest(*entry), b"mail")

    transact(db, body)
    return db


@given(ENTRIES, st.integers(1, 5), st.integers(1, 5), st.integers(1, 50))
def test_a_reading_shows_what_has_vested_in_order_and_what_comes_first_of_the_rest(
    entries: set[IndexEntry], first_read: int, then_read: int, keys_max: int
) -> None:
    """However it is cut into reads."""

    def body(tr: Any) -> VestedReader:
        reader = VestedReader(KEYS, now_us=NOW_US, keys_max=keys_max, first_read=first_read, then_read=then_read)
        while not reader.is_done:
            run_one(reader.read_op(tr))
        return reader

    reading = transact(stored(entries), body)
    vested = sorted(entry for entry in entries if entry.vesting_us <= NOW_US)
    rest = sorted(entry for entry in entries if entry.vesting_us > NOW_US)
    assert [entry for entry, _ in reading.entries] == vested[:keys_max]
    assert len(vested) <= keys_max or reading.next_key is not None
    if reading.next_key is None:
        firsts = [min(entry for entry in rest if entry.priority == each) for each in {entry.priority for entry in rest}]
        assert reading.unvested == sorted(firsts)


@given(ENTRIES, st.integers(1, 10))
def test_a_collection_goes_on_where_it_stopped(entries: set[IndexEntry], keys_max: int) -> None:
    def body(tr: Any) -> list[IndexEntry]:
        found: list[IndexEntry] = []
        begin: bytes | None = b""
        while begin is not None:
            some, begin = run_one(collect_vested(tr, KEYS, now_us=NOW_US, keys_max=keys_max, begin=begin))
            assert len(some) <= keys_max
            found += some
        return found

    found = transact(stored(entries), body)
    assert found == sorted(entry for entry in entries if entry.vesting_us <= NOW_US)


@pytest.mark.parametrize("vested", [0, 1, 5])
def test_what_waits_for_its_time_is_not_read_however_much_it_is(vested: int) -> None:
    """A scan of a million sleeping tenants costs what a scan of ten does."""
    entries = {IndexEntry(100, NOW_US + number - vested, bytes(16)) for number in range(1, 10_001)}
    db = stored(entries)
    rows_read = 0

    def body(tr: Any) -> list[IndexEntry]:
        nonlocal rows_read
        rows_read = 0
        return run_one(collect_vested(cast("Reader", Counting(tr)), KEYS, now_us=NOW_US, keys_max=1_250))[0]

    class Counting:
        """A transaction that counts the rows its range reads return."""

        def __init__(self, tr: Any) -> None:
            self._tr = tr
            self.snapshot = self

        def get_range(self, *args: Any, **options: Any) -> list[Any]:
            nonlocal rows_read
            rows = list(self._tr.snapshot.get_range(*args, **options))
            rows_read += len(rows)
            return rows

    assert len(transact(db, body)) == vested
    assert rows_read <= vested + 2 * FIRST_LOOK


@given(ENTRIES, st.lists(st.binary(max_size=12), max_size=12), st.sampled_from([1, 2, 64]))
def test_damaged_keys_are_passed_over_and_hold_up_nothing(
    entries: set[IndexEntry], damaged: list[bytes], keys_max: int
) -> None:
    """A reader that took a damaged key for another would look at the same stretch for ever."""
    db = stored(entries)
    rests = [rest for rest in damaged if KEYS.entry(KEYS.vest_prefix + rest) is None]
    transact(db, lambda tr: [tr.set(KEYS.vest_prefix + rest, b"mail") for rest in rests])

    def body(tr: Any) -> tuple[list[IndexEntry], list[IndexEntry]]:
        found: list[IndexEntry] = []
        begin: bytes | None = b""
        while begin is not None:
            some, begin = run_one(
                collect_vested(tr, KEYS, now_us=NOW_US, keys_max=keys_max, begin=begin, first_read=FIRST_LOOK)
            )
            found += some
        return found, run_one(read_first_of_each_priority(tr, KEYS))

    vested, first = transact(db, body)
    assert vested == sorted(entry for entry in entries if entry.vesting_us <= NOW_US)
    assert [entry.priority for entry in first] == sorted({entry.priority for entry in entries})


@pytest.mark.parametrize("code", [b"\x16\x01\x00", b"\x15\x00", b"\x14\x1d", b"\x15", b""])
def test_a_key_of_no_priority_ends_no_reading(code: bytes) -> None:
    db = stored({IndexEntry(3, NOW_US + 1, bytes(16))})
    transact(db, lambda tr: tr.set(KEYS.vest_prefix + code, b"mail"))
    assert transact(db, lambda tr: run_one(read_first_of_each_priority(tr, KEYS))) == [(3, NOW_US + 1, bytes(16))]
