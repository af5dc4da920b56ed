"""A transaction that buffers its writes reads, writes and conflicts as the transaction below it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from fairlead.zones import engines
from fairlead.zones.engines import Database
from fairlead.zones.engines.api.errors import NOT_COMMITTED, StoreError
from fairlead.zones.engines.foundationdb.write_bursts import BURST_SIZE, BurstTransaction
from tests.clocks import ManualClock

ONE = (1).to_bytes(8, "little")


@pytest.fixture
def db(clock: ManualClock) -> Database:
    return engines.open("memory:", clock=clock, random=Random(1))


class RecordingTransaction:
    """A transaction that records its calls in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    @property
    def snapshot(self) -> RecordingTransaction:
        return self

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **how: self.calls.append((name, *args))


def test_writes_are_done_at_the_end_in_their_order() -> None:
    tr = RecordingTransaction()
    with BurstTransaction(tr) as burst:
        burst.add_read_conflict_key(b"a")
        burst.set(b"a", b"1")
        burst.clear(b"b")
        burst.clear_range(b"c", b"d")
        burst.add(b"e", ONE)
        burst.compare_and_clear(b"e", ONE)
        burst.add_write_conflict_key(b"f")
        burst.add_read_conflict_range(b"g", b"h")
        burst.add_write_conflict_range(b"i", b"j")
        assert tr.calls == []
    assert tr.calls == [
        ("add_read_conflict_key", b"a"),
        ("set", b"a", b"1"),
        ("clear", b"b"),
        ("clear_range", b"c", b"d"),
        ("add", b"e", ONE),
        ("compare_and_clear", b"e", ONE),
        ("add_write_conflict_key", b"f"),
        ("add_read_conflict_range", b"g", b"h"),
        ("add_write_conflict_range", b"i", b"j"),
    ]


def test_a_long_body_writes_before_its_end() -> None:
    tr = RecordingTransaction()
    with BurstTransaction(tr) as burst:
        burst.add_read_conflict_key(b"a")
        for number in range(BURST_SIZE - 2):
            burst.set(b"%d" % number, b"1")
        assert tr.calls == []
        burst.add_write_conflict_key(b"b")
        burst.clear(b"c")
        assert len(tr.calls) == BURST_SIZE + 1
        burst.set(b"d", b"1")
    assert tr.calls[0] == ("add_read_conflict_key", b"a")
    assert tr.calls[-2:] == [("clear", b"c"), ("set", b"d", b"1")]


def test_a_body_that_fails_writes_nothing() -> None:
    tr = RecordingTransaction()
    with pytest.raises(KeyError), BurstTransaction(tr) as burst:
        burst.set(b"a", b"1")
        raise KeyError
    assert tr.calls == []


def test_a_declared_conflict_waits_for_no_read() -> None:
    tr = RecordingTransaction()
    with BurstTransaction(tr) as burst:
        burst.add_read_conflict_key(b"guard")
        burst.get(b"a")
        burst.snapshot.get(b"b")
        assert [name for name, *_ in tr.calls] == ["get", "get"]


READS = {
    "get": lambda tr: tr.get(b"a").value,
    "get_range": lambda tr: next(row.value for row in tr.get_range(b"a", b"b")),
    "snapshot.get": lambda tr: tr.snapshot.get(b"a").value,
    "snapshot.get_range": lambda tr: next(row.value for row in tr.snapshot.get_range(b"a", b"b")),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_read_finds_what_was_written_before_it(db: Database, read: Any) -> None:
    with BurstTransaction(db.create_transaction()) as burst:
        burst.set(b"a", b"1")
        assert read(burst) == b"1"


def test_other_calls_come_after_the_writes_before_them() -> None:
    tr = RecordingTransaction()
    with BurstTransaction(tr) as burst:
        burst.set(b"a", b"1")
        burst.byte_max(b"a", b"2")
    assert [name for name, *_ in tr.calls] == ["set", "byte_max"]


def test_a_conflict_that_was_declared_before_a_write_of_the_same_key_counts(db: Database) -> None:
    """Declared after the write, it would be a conflict with the transaction's own write, which does not count."""
    tr, other = db.create_transaction(), db.create_transaction()
    tr.get_read_version().wait()
    with BurstTransaction(tr) as burst:
        burst.add_read_conflict_key(b"a")
        burst.clear(b"a")
    other.set(b"a", b"other")
    other.commit().wait()
    with pytest.raises(StoreError) as refused:
        tr.commit().wait()
    assert refused.value.code == NOT_COMMITTED


def test_engines_without_a_thread_to_wake_write_at_once(db: Database) -> None:
    tr = RecordingTransaction()
    with db.burst(tr) as same:
        assert same is tr
