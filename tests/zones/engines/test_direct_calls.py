"""A FoundationDB transaction by direct calls reads, writes and conflicts as a transaction of the binding."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fairlead.zones.engines import Database, StreamingMode, transact
from fairlead.zones.engines import open as open_database
from fairlead.zones.engines.api.errors import error_code
from fairlead.zones.engines.foundationdb.direct_calls import ADD, COMPARE_AND_CLEAR, ITERATOR, READ, WRITE
from tests.clocks import ManualClock
from tests.rooted import new_root

ONE = (1).to_bytes(8, "little")
NOT_COMMITTED = 1020
CANCELLED = 1025
ROWS = 3_000  # More than one answer of the cluster has, in every mode but one.


def test_the_clients_numbers_are_the_bindings() -> None:
    options = pytest.importorskip("fdb.fdboptions")
    assert (options.MutationType["add"][0], options.MutationType["compare_and_clear"][0]) == (ADD, COMPARE_AND_CLEAR)
    assert (options.ConflictRangeType["read"][0], options.ConflictRangeType["write"][0]) == (READ, WRITE)
    assert options.StreamingMode["iterator"][0] == ITERATOR


on_a_cluster = pytest.mark.foundationdb


@pytest.fixture
def db() -> Database:
    url = f"fdb:{os.environ['FDB_CLUSTER_FILE']}"
    return open_database(url, clock=ManualClock(), random=random.Random(1))


@pytest.fixture
def root(db: Database) -> Iterator[bytes]:
    root = new_root()
    transact(db, lambda tr: [tr.set(root + b"row %05d" % number, b"%d" % number) for number in range(ROWS)])
    yield root
    transact(db, lambda tr: tr.clear_range(root, root + b"\xff"))


def read_both_ways(db: Database, read: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Return what is read directly, and what the binding reads."""
    tr = db.create_transaction()
    with db.burst(tr) as direct:
        found = read(direct)
    return found, read(db.create_transaction())


@on_a_cluster
@pytest.mark.parametrize("snapshot", [False, True])
def test_a_value_is_read_whether_it_is_there_empty_or_with_zeros(db: Database, root: bytes, snapshot: bool) -> None:
    values = {b"absent": None, b"empty": b"", b"zeros": b"\x00a\x00", b"long": bytes(90_000)}
    transact(db, lambda tr: [tr.set(root + key, value) for key, value in values.items() if value is not None])

    def read(tr: Any) -> list[tuple[bytes | None, bool]]:
        reader = tr.snapshot if snapshot else tr
        sent = [reader.get(root + key) for key in values]
        return [(each.value, each.present()) for each in sent]

    found, expected = read_both_ways(db, read)
    assert found == [(value, value is not None) for value in values.values()]
    assert found == [(value, bool(there)) for value, there in expected]


@on_a_cluster
@pytest.mark.parametrize("mode", [StreamingMode.iterator, StreamingMode.want_all, StreamingMode.small])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [0, 1, 7, 2_000])
def test_a_range_is_read_in_any_number_of_pieces(
    db: Database, root: bytes, mode: int, reverse: bool, limit: int
) -> None:
    def read(tr: Any) -> list[tuple[bytes, bytes]]:
        rows = tr.get_range(root, root + b"\xff", limit=limit, reverse=reverse, streaming_mode=mode)
        return [(row.key, row.value) for row in rows]

    found, expected = read_both_ways(db, read)
    assert len(found) == (limit or ROWS)
    assert found == expected


@on_a_cluster
def test_an_empty_range_has_no_rows_and_a_range_can_be_iterated_twice(db: Database, root: bytes) -> None:
    with db.burst(db.create_transaction()) as tr:
        assert list(tr.get_range(root + b"a", root + b"b")) == []
        rows = tr.snapshot.get_range(root, root + b"\xff", limit=3)
        assert list(rows) == list(rows) != []


@on_a_cluster
def test_direct_writes_are_those_of_the_binding(db: Database, root: bytes) -> None:
    transact(db, lambda tr: [tr.set(root + key, ONE) for key in (b"cleared", b"counted", b"spent", b"range 1")])

    def body(tr: Any) -> None:
        with db.burst(tr) as direct:
            direct.set(root + b"set", b"\x00value")
            direct.clear(root + b"cleared")
            direct.clear_range(root + b"range", root + b"rangf")
            direct.add(root + b"counted", ONE)
            direct.compare_and_clear(root + b"spent", ONE)

    transact(db, body)
    keys = (b"set", b"cleared", b"range 1", b"counted", b"spent")
    found = transact(db, lambda tr: [tr.get(root + key).value for key in keys])
    assert found == [b"\x00value", None, None, (2).to_bytes(8, "little"), None]


READS: dict[str, Callable[[Any, bytes], Any]] = {
    "get": lambda tr, key: tr.get(key),
    "get_range": lambda tr, key: tr.get_range(key, key + b"\x00"),
    "add_read_conflict_key": lambda tr, key: tr.add_read_conflict_key(key),
    "add_read_conflict_range": lambda tr, key: tr.add_read_conflict_range(key, key + b"\x00"),
}
WRITES: dict[str, Callable[[Any, bytes], Any]] = {
    "set": lambda tr, key: tr.set(key, b"other"),
    "add_write_conflict_key": lambda tr, key: tr.add_write_conflict_key(key),
    "add_write_conflict_range": lambda tr, key: tr.add_write_conflict_range(key, key + b"\x00"),
}


@on_a_cluster
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_an_unused_read_conflicts_with_a_later_write(
    db: Database, root: bytes, read: Callable[[Any, bytes], Any], write: Callable[[Any, bytes], Any]
) -> None:
    tr, key = db.create_transaction(), root + b"key"
    with db.burst(tr) as direct:
        direct.get(root + b"first").wait()  # Its read version is as of now.
        kept = read(direct, key)
        direct.set(root + b"own", b"")
    if kept is not None:
        list(kept) if hasattr(kept, "__iter__") else kept.wait()  # A read counts once it has been answered.

    def other(tr: Any) -> None:
        with db.burst(tr) as direct:
            write(direct, key)

    transact(db, other)
    with pytest.raises(db.errors) as refused:
        tr.commit().wait()
    assert error_code(refused.value) == NOT_COMMITTED


@on_a_cluster
def test_a_snapshot_read_conflicts_with_no_write(db: Database, root: bytes) -> None:
    tr, key = db.create_transaction(), root + b"key"
    with db.burst(tr) as direct:
        direct.snapshot.get(key).wait()
        list(direct.snapshot.get_range(key, key + b"\x00"))
        direct.set(root + b"own", b"")
    transact(db, lambda tr: tr.set(key, b"other"))
    tr.commit().wait()


@on_a_cluster
def test_a_read_finds_what_was_written_before_it_and_not_what_comes_after(db: Database, root: bytes) -> None:
    key = root + b"key"
    with db.burst(db.create_transaction()) as tr:
        tr.get(root + b"first")
        before = tr.get(key)
        tr.set(key, b"1")
        between = tr.get(key)
        tr.set(key, b"2")
        rows = tr.get_range(key, key + b"\x00")
        assert (before.value, between.value, [row.value for row in rows]) == (None, b"1", [b"2"])


@on_a_cluster
def test_an_error_of_the_client_is_the_bindings(db: Database, root: bytes) -> None:
    tr = db.create_transaction()
    with db.burst(tr) as direct:
        direct.get(root).wait()
        value, rows = direct.get(root), direct.get_range(root, root + b"\xff")
        tr.cancel()
        for read in (lambda: value.value, lambda: value.value, lambda: list(rows)):
            with pytest.raises(db.errors) as caught:
                read()
            assert error_code(caught.value) == CANCELLED


@on_a_cluster
def test_reads_without_a_wait_are_released(db: Database, root: bytes) -> None:
    for number in range(200):
        with db.burst(db.create_transaction()) as tr:
            for each in range(5):
                tr.get(root + b"row %05d" % (number + each))
                tr.get_range(root, root + b"\xff", limit=5)
