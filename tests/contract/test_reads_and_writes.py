"""A transaction reads earlier commits and its own writes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlead.zones.engines import Database, KeyValue, StreamingMode, Transaction
from fairlead.zones.engines.api.errors import error_code
from tests.contract.conftest import Space, code_of


def test_a_committed_value_is_read_by_the_next_transaction(db: Database, space: Space) -> None:
    space.put(a=b"1")
    tr = db.create_transaction()
    value = tr.get(space.key("a"))
    assert value.value == b"1"
    assert value.present()
    assert value.wait() is value
    assert value.is_ready()


def test_a_key_that_is_not_there_has_no_value(db: Database, space: Space) -> None:
    tr = db.create_transaction()
    value = tr.get(space.key("a"))
    assert value.value is None
    assert not value.present()


def test_other_transactions_see_writes_only_after_the_commit(db: Database, space: Space) -> None:
    tr = db.create_transaction()
    tr.set(space.key("a"), b"1")
    assert space.all() == {}
    assert code_of(tr.commit()) == 0
    assert space.all() == {"a": b"1"}


def test_a_snapshot_does_not_move_while_others_commit(db: Database, space: Space) -> None:
    space.put(a=b"1", b=b"1")
    tr = db.create_transaction()
    assert tr.get(space.key("a")).value == b"1"
    space.put(a=b"2", b=b"2", c=b"2")
    assert tr.get(space.key("b")).value == b"1"
    assert [pair.value for pair in tr.get_range(space.prefix, space.end())] == [b"1", b"1"]


def test_a_range_is_read_in_order_within_its_bounds(db: Database, space: Space) -> None:
    space.put(a=b"1", b=b"2", c=b"3", d=b"4")
    tr = db.create_transaction()
    names = [key[-1:] for key, _ in tr.get_range(space.key("b"), space.key("d"))]
    assert names == [b"b", b"c"]
    back = [pair.key[-1:] for pair in tr.get_range(space.key("a"), space.end(), limit=3, reverse=True)]
    assert back == [b"d", b"c", b"b"]


def test_a_pair_has_names_and_unpacks(db: Database, space: Space) -> None:
    space.put(a=b"1")
    [pair] = db.create_transaction().get_range(space.prefix, space.end())
    key, value = pair
    assert (pair.key, pair.value) == (key, value) == (space.key("a"), b"1")
    assert KeyValue(key, value).value == b"1"


@pytest.mark.parametrize(
    "mode",
    [
        StreamingMode.want_all,
        StreamingMode.iterator,
        StreamingMode.small,
        StreamingMode.medium,
        StreamingMode.large,
        StreamingMode.serial,
    ],
)
def test_every_streaming_mode_gives_the_whole_range(db: Database, space: Space, mode: int) -> None:
    space.put(**{f"{number:04}": bytes(100) for number in range(300)})
    tr = db.create_transaction()
    forward = [pair.key for pair in tr.get_range(space.prefix, space.end(), streaming_mode=mode)]
    backward = [pair.key for pair in tr.get_range(space.prefix, space.end(), reverse=True, streaming_mode=mode)]
    limited = [pair.key for pair in tr.get_range(space.prefix, space.end(), limit=123, streaming_mode=mode)]
    assert forward == [space.key(f"{number:04}") for number in range(300)]
    assert backward == forward[::-1]
    assert limited == forward[:123]


def test_the_exact_mode_requires_a_limit(db: Database, space: Space) -> None:
    space.put(a=b"1", b=b"2")
    tr = db.create_transaction()
    exact = tr.get_range(space.prefix, space.end(), limit=1, streaming_mode=StreamingMode.exact)
    assert len(list(exact)) == 1
    with pytest.raises(db.errors) as caught:
        list(tr.get_range(space.prefix, space.end(), streaming_mode=StreamingMode.exact))
    assert error_code(caught.value) == 2210


def test_a_range_can_be_read_twice(db: Database, space: Space) -> None:
    space.put(**{f"{number:04}": bytes(100) for number in range(100)})
    rows = db.create_transaction().get_range(space.prefix, space.end(), streaming_mode=StreamingMode.small)
    assert len(list(rows)) == len(list(rows)) == 100


def test_own_writes_are_seen_by_every_kind_of_read(db: Database, space: Space) -> None:
    space.put(a=b"1", b=b"2", c=b"3")
    tr = db.create_transaction()
    tr.set(space.key("aa"), b"new")
    tr.clear(space.key("b"))
    tr.add(space.key("c"), b"\x01")
    for reader in (tr, tr.snapshot):
        assert reader.get(space.key("aa")).value == b"new"
        assert reader.get(space.key("b")).value is None
        assert reader.get(space.key("c")).value == b"4"
        rows = {pair.key[-2:]: pair.value for pair in reader.get_range(space.prefix, space.end())}
        assert rows == {b"/a": b"1", b"aa": b"new", b"/c": b"4"}


def test_a_cleared_range_hides_earlier_values_and_not_later_writes(db: Database, space: Space) -> None:
    space.put(a=b"1", b=b"2", c=b"3", d=b"4")
    tr = db.create_transaction()
    tr.set(space.key("ba"), b"before")
    tr.clear_range(space.key("b"), space.key("d"))
    tr.set(space.key("bb"), b"after")
    names = [key[len(space.prefix) :] for key, _ in tr.get_range(space.prefix, space.end())]
    assert names == [b"a", b"bb", b"d"]
    assert code_of(tr.commit()) == 0
    assert space.all() == {"a": b"1", "bb": b"after", "d": b"4"}


def test_reads_sent_together_are_answered_by_the_same_snapshot(db: Database, space: Space) -> None:
    space.put(a=b"1", b=b"2")
    tr = db.create_transaction()
    futures = [tr.get(space.key(name)) for name in "ab"]
    ranges = [tr.get_range(space.prefix, space.end()) for _ in range(2)]
    assert [future.value for future in futures] == [b"1", b"2"]
    assert [len(list(rows)) for rows in ranges] == [2, 2]


def test_the_first_piece_of_a_range_is_read_when_it_is_made(db: Database, space: Space) -> None:
    space.put(a=b"1")
    tr = db.create_transaction()
    rows = tr.get_range(space.prefix, space.end())
    tr.set(space.key("b"), b"2")
    assert [pair.value for pair in rows] == [b"1"]


def test_keys_and_values_are_bytes(db: Database, space: Space) -> None:
    tr = db.create_transaction()
    for key, value in (("a", b""), (b"a", "")):
        with pytest.raises(TypeError):
            tr.set(key, value)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        tr.clear_range("a", "b")  # type: ignore[arg-type]


def test_keys_and_values_out_of_bounds_fail_at_the_commit(db: Database, space: Space) -> None:
    refused: list[tuple[Callable[[Transaction], object], int]] = [
        (lambda tr: tr.set(bytes(db.limits.key_bytes_max + 1), b""), 2102),
        (lambda tr: tr.set(space.key("a"), bytes(db.limits.value_bytes_max + 1)), 2103),
        (lambda tr: tr.add(space.key("a"), bytes(db.limits.value_bytes_max + 1)), 2103),
        (lambda tr: tr.set(b"\xff/a", b""), 2004),
        (lambda tr: tr.clear(b"\xff/a"), 2004),
        (lambda tr: tr.clear_range(b"\xfe", b"\xff\x01"), 2004),
    ]
    for write, code in refused:
        tr = db.create_transaction()
        write(tr)
        tr.set(space.key("b"), b"1")
        assert code_of(tr.commit()) == code
    assert space.all() == {}


def test_reading_and_clearing_a_key_that_is_too_long_finds_nothing(db: Database, space: Space) -> None:
    long = space.prefix + bytes(20_000)
    tr = db.create_transaction()
    assert tr.get(long).value is None
    tr.clear(long)
    assert tr.get(long).value is None
    assert code_of(tr.commit()) == 0


def test_a_key_and_a_value_of_the_largest_sizes_fit(db: Database, space: Space) -> None:
    longest = space.prefix.ljust(db.limits.key_bytes_max, b"k")
    tr = db.create_transaction()
    tr.set(longest, bytes(db.limits.value_bytes_max))
    assert code_of(tr.commit()) == 0
    tr = db.create_transaction()
    assert tr.get(longest).value == bytes(db.limits.value_bytes_max)
    assert [key for key, _ in tr.get_range(space.prefix, space.end())] == [longest]
    assert [key for key, _ in tr.get_range(longest + b"\x00", space.end())] == []


def test_keys_and_values_may_hold_any_byte(db: Database, space: Space) -> None:
    keys = [space.prefix + bytes([byte]) for byte in range(255)]
    tr = db.create_transaction()
    for key in keys:
        tr.set(key, key[-1:])
    assert code_of(tr.commit()) == 0
    assert [tuple(pair) for pair in db.create_transaction().get_range(space.prefix, space.end())] == [
        (key, key[-1:]) for key in keys
    ]


def test_an_empty_value_is_not_an_absent_one(db: Database, space: Space) -> None:
    space.put(a=b"")
    tr = db.create_transaction()
    value = tr.get(space.key("a"))
    assert value.value == b""
    assert value.present()


@pytest.mark.parametrize("engine", ["memory", "embedded"], indirect=True)
def test_the_empty_key_is_a_key_like_any_other(db: Database) -> None:
    """LMDB accepts no empty key, so the engine stores another. On a cluster, tests write below their prefix only."""

    def pairs() -> list[tuple[bytes, bytes]]:
        forward = [(pair.key, pair.value) for pair in db.create_transaction().get_range(None, None)]
        assert [tuple(pair) for pair in db.create_transaction().get_range(b"", b"\xff", reverse=True)] == forward[::-1]
        return forward

    tr = db.create_transaction()
    tr.set(b"", b"\x01")
    tr.set(b"a", b"1")
    assert tr.get(b"").value == b"\x01"
    assert code_of(tr.commit()) == 0
    assert pairs() == [(b"", b"\x01"), (b"a", b"1")]
    tr = db.create_transaction()
    assert tr.get(b"").value == b"\x01"
    tr.add(b"", b"\x01")
    assert code_of(tr.commit()) == 0
    assert pairs() == [(b"", b"\x02"), (b"a", b"1")]
    tr = db.create_transaction()
    tr.clear(b"")
    assert code_of(tr.commit()) == 0
    assert pairs() == [(b"a", b"1")]
    tr = db.create_transaction()
    tr.set(b"", b"3")
    assert code_of(tr.commit()) == 0
    tr = db.create_transaction()
    tr.clear_range(b"", b"b")
    assert code_of(tr.commit()) == 0
    assert pairs() == []
