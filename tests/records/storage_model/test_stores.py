"""What every store of records promises, over every kind of store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random
from threading import Barrier, Event, Thread

import pytest

from fairlead.records.storage_model.record_store import BatchingStore, ConditionalWrite
from fairlead.records.stored import Versioned
from tests.records.storage_model.stores import Clients

KEY = b"key"
FIRST, SECOND, THIRD = (Versioned(b"version %d" % number, b"value %d" % number) for number in (1, 2, 3))
ROUNDS = 60
LARGE_BYTES = 90_000
STAYING, FILL = 700, 100  # More than a store reads in one piece.
ODD_KEYS = [b"\x00", b"\x00\x00", b"\x00\xff", b"a", b"a\x00", b"a\x00\x00b", b"a\x01", b"\xfe", b"\xff", b"\xff\x00"]


# --- One client after the other ---


def test_what_was_written_last_is_read_by_another_client(clients: Clients) -> None:
    assert clients.other.get(KEY) is None
    for expected, new in ((None, FIRST), (FIRST.version, SECOND), (SECOND.version, THIRD)):
        assert clients.one.put_if(KEY, new, expected)
        assert clients.other.get(KEY) == new
    assert clients.one.delete_if(KEY, THIRD.version)
    assert clients.other.get(KEY) is None


def test_an_insert_happens_only_if_there_is_nothing(clients: Clients) -> None:
    assert clients.one.put_if(KEY, FIRST, None)
    assert not clients.other.put_if(KEY, SECOND, None)
    assert clients.one.get(KEY) == FIRST


@pytest.mark.parametrize("expected", [b"", b"version", b"version 1\x00", b"version 2"])
def test_a_replacement_happens_only_if_the_version_is_the_expected_one(clients: Clients, expected: bytes) -> None:
    clients.one.put_if(KEY, FIRST, None)
    assert not clients.other.put_if(KEY, SECOND, expected)
    assert clients.one.get(KEY) == FIRST


def test_what_is_absent_is_neither_replaced_nor_deleted(clients: Clients) -> None:
    assert not clients.one.put_if(KEY, SECOND, FIRST.version)
    assert not clients.one.delete_if(KEY, FIRST.version)
    assert clients.other.get(KEY) is None


def test_a_deletion_happens_only_if_the_version_is_the_expected_one(clients: Clients) -> None:
    clients.one.put_if(KEY, SECOND, None)
    assert not clients.other.delete_if(KEY, FIRST.version)
    assert clients.one.get(KEY) == SECOND


def test_what_was_deleted_can_be_inserted_again(clients: Clients) -> None:
    for _ in range(2):
        assert clients.one.put_if(KEY, FIRST, None)
        assert clients.other.delete_if(KEY, FIRST.version)


def test_versions_and_values_are_any_bytes(clients: Clients) -> None:
    for expected, new in ((None, Versioned(b"", b"")), (b"", Versioned(b"\x00", b"\x00\xff")), (b"\x00", FIRST)):
        assert clients.one.put_if(KEY, new, expected)
        assert clients.other.get(KEY) == new


def test_large_values_are_read_as_they_were_written(clients: Clients) -> None:
    for number, expected in ((1, None), (2, b"1")):
        large = Versioned(b"%d" % number, Random(number).randbytes(LARGE_BYTES))
        assert clients.one.put_if(KEY, large, expected)
        assert clients.other.get(KEY) == large


def test_keys_are_any_bytes_and_are_scanned_in_their_order(clients: Clients) -> None:
    odd = [*ODD_KEYS, b"long" * 75]
    for key in odd:
        assert clients.one.put_if(key, Versioned(b"1", key), None)
    assert [key for key, _ in clients.other.scan(b"\x00", b"\xff\xff")] == sorted(odd)
    for key in odd:
        assert clients.other.get(key) == Versioned(b"1", key)
        assert clients.other.delete_if(key, b"1")


def test_a_scan_begins_with_its_begin_and_stops_before_its_end(clients: Clients) -> None:
    for key in (b"a", b"b", b"b\x00", b"c", b"d"):
        clients.one.put_if(key, FIRST, None)
    assert list(clients.other.scan(b"b", b"d")) == [(b"b", FIRST), (b"b\x00", FIRST), (b"c", FIRST)]
    assert list(clients.other.scan(b"b", b"b")) == []
    assert list(clients.other.scan(b"d", b"b")) == []


# --- Clients at once ---


def insert(key: bytes, new: Versioned) -> Callable[[BatchingStore], bool]:
    """Return an insert of a record."""
    return lambda store: store.put_if(key, new, None)


def changes(number: int) -> Callable[[BatchingStore], bool]:
    """Return one of three conditional writes; the version that it expects is there at the begin of a round."""
    new = Versioned(b"by %d" % number, b"")
    return {
        0: lambda store: store.put_if(KEY, new, FIRST.version),
        1: lambda store: store.delete_if(KEY, FIRST.version),
        2: lambda store: store.batch([], [ConditionalWrite(KEY, new, FIRST.version)]).is_written,
    }[number]


@pytest.mark.parametrize("pair", [(0, 0), (0, 1), (1, 1), (0, 2), (2, 2)], ids=str)
def test_of_two_writers_that_expect_one_version_exactly_one_wins(clients: Clients, pair: tuple[int, int]) -> None:
    with two_threads(clients) as run:
        for _ in range(ROUNDS // 2):
            clients.one.put_if(KEY, FIRST, None)
            assert sorted(run(*(changes(number) for number in pair))) == [False, True]
            left = clients.one.get(KEY)
            if left is not None:
                assert clients.other.delete_if(KEY, left.version)


def test_of_two_writers_that_insert_exactly_one_wins_and_its_value_is_read(clients: Clients) -> None:
    inserted = [Versioned(b"1", b"one"), Versioned(b"1", b"other")]
    with two_threads(clients) as run:
        for number in range(ROUNDS):
            key = b"%d" % number
            won = run(*(insert(key, new) for new in inserted))
            assert sorted(won) == [False, True]
            assert clients.other.get(key) == inserted[won.index(True)]


def test_no_increment_of_a_counter_is_lost(clients: Clients) -> None:
    clients.one.put_if(KEY, Versioned(b"0", b""), None)

    def increment(store: BatchingStore) -> None:
        done = 0
        while done < ROUNDS:
            found = store.get(KEY)
            assert found is not None
            done += store.put_if(KEY, Versioned(b"%d" % (int(found.version) + 1), b""), found.version)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(increment, clients))
    assert clients.one.get(KEY) == Versioned(b"%d" % (2 * ROUNDS), b"")


def test_a_scan_beside_writers_yields_once_in_order_what_is_there_all_the_while(clients: Clients) -> None:
    staying = [b"%04d" % number for number in range(STAYING)]
    for begin in range(0, STAYING, FILL):
        clients.one.batch([], [ConditionalWrite(key, FIRST, None) for key in staying[begin : begin + FILL]])
    with coming_and_going(clients.other, [key + b"+" for key in staying[::50]]):
        for _ in range(5):
            scanned = [key for key, _ in clients.one.scan(b"0", b"9")]
            assert scanned == sorted(set(scanned))
            assert [key for key in scanned if not key.endswith(b"+")] == staying


# --- Batches ---


def test_a_batch_whose_conditions_hold_writes_all(clients: Clients) -> None:
    clients.one.put_if(b"b", FIRST, None)
    clients.one.put_if(b"c", FIRST, None)
    writes = [
        ConditionalWrite(b"a", SECOND, None),
        ConditionalWrite(b"b", SECOND, FIRST.version),
        ConditionalWrite(b"c", None, FIRST.version),
    ]
    done = clients.one.batch([b"d", b"b", b"a"], writes)
    assert done.found == [None, FIRST, None]
    assert done.held == [True, True, True]
    assert done.is_written
    assert list(clients.other.scan(b"a", b"z")) == [(b"a", SECOND), (b"b", SECOND)]


def test_a_batch_with_a_condition_that_does_not_hold_writes_nothing(clients: Clients) -> None:
    clients.one.put_if(b"b", FIRST, None)
    writes = [
        ConditionalWrite(b"a", SECOND, None),
        ConditionalWrite(b"b", SECOND, SECOND.version),
        ConditionalWrite(b"c", None, FIRST.version),
    ]
    done = clients.one.batch([b"b", b"d"], writes)
    assert done.found == [FIRST, None]
    assert done.held == [True, False, False]
    assert not done.is_written
    assert list(clients.other.scan(b"a", b"z")) == [(b"b", FIRST)]


def test_a_batch_that_only_reads_changes_nothing(clients: Clients) -> None:
    clients.one.put_if(b"b", FIRST, None)
    assert clients.one.batch([b"a", b"b"], []).found == [None, FIRST]
    assert list(clients.other.scan(b"a", b"z")) == [(b"b", FIRST)]


def test_nobody_sees_half_of_a_batch(clients: Clients) -> None:
    both = (b"a", b"b")
    stop, halves = Event(), []

    def look() -> None:
        while not stop.is_set():
            found = clients.other.batch(both, []).found
            if found[0] != found[1]:
                halves.append(found)

    looking = Thread(target=look)
    looking.start()
    try:
        for number in range(ROUNDS):
            expected = None if number % 3 == 0 else b"%d" % (number - 1)
            new = None if number % 3 == 2 else Versioned(b"%d" % number, b"")
            assert clients.one.batch([], [ConditionalWrite(key, new, expected) for key in both]).is_written
    finally:
        stop.set()
        looking.join()
    assert halves == []


def test_of_two_batches_that_insert_the_same_keys_crosswise_exactly_one_wins(clients: Clients) -> None:
    with two_threads(clients) as run:
        for number in range(ROUNDS):
            keys = [b"%d a" % number, b"%d b" % number]
            writes = [
                [ConditionalWrite(key, FIRST, None) for key in keys],
                [ConditionalWrite(key, SECOND, None) for key in reversed(keys)],
            ]
            won = run(*(batch(some) for some in writes))
            assert sorted(won) == [False, True]
            expected = FIRST if won[0] else SECOND
            assert clients.one.batch(keys, []).found == [expected, expected]


def batch(writes: list[ConditionalWrite]) -> Callable[[BatchingStore], bool]:
    """Return a batch of writes."""
    return lambda store: store.batch([], writes).is_written


Calls = Callable[..., list[bool]]


@contextmanager
def two_threads(clients: Clients) -> Iterator[Calls]:
    """Yield what runs two calls at once, each with a client; it returns their answers."""
    gate = Barrier(2)

    def after_gate(call: Callable[[BatchingStore], bool], store: BatchingStore) -> bool:
        gate.wait(30)
        return call(store)

    with ThreadPoolExecutor(2) as threads:
        yield lambda one, other: list(threads.map(after_gate, (one, other), clients))


@contextmanager
def coming_and_going(store: BatchingStore, keys: list[bytes]) -> Iterator[None]:
    """Let another thread insert and delete records meanwhile."""
    stop = Event()

    def run() -> None:
        while not stop.is_set():
            for key in keys:
                store.put_if(key, FIRST, None)
            for key in keys:
                store.delete_if(key, FIRST.version)

    changing = Thread(target=run)
    changing.start()
    try:
        yield
    finally:
        stop.set()
        changing.join()
