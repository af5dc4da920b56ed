"""Threads that commit at the same time share an fsync, and nothing else."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fairlead.zones.engines import Database, Transaction, transact
from fairlead.zones.engines import open as open_database
from tests.clocks import WallClock
from tests.contract.conftest import code_of


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    database = open_database(f"embedded:{tmp_path / 'store'}", clock=WallClock(), random=random.Random(1))
    yield database
    database.close()


def begun(db: Database, key: bytes, value: bytes = b"", *, reads: bytes | None = None) -> Any:
    """Return a transaction with one write, and a read of the key `reads`."""
    tr = db.create_transaction()
    if reads is not None:
        assert tr.get(reads).value is None
    tr.set(key, value)
    return tr


def stored(db: Database) -> dict[bytes, bytes]:
    return {pair.key: pair.value for pair in db.create_transaction().get_range(None, None)}


def test_commits_that_are_queued_together_are_one_commit_of_lmdb(db: Database) -> None:
    trs = [begun(db, bytes([number])) for number in range(1, 20)]
    before = db.commit_sequence()
    futures = [tr.commit() for tr in trs]
    assert db.commit_sequence() == before  # No thread has waited yet.
    assert code_of(futures[7]) == 0
    assert all(future.is_ready() for future in futures)
    assert db.commit_sequence() == (before or 0) + 1
    assert len(stored(db)) == 19
    versions = [tr.get_committed_version() for tr in trs]
    assert versions == sorted(set(versions))


def put_key(tr: Transaction, *, key: bytes) -> None:
    tr.set(key, b"")


def put_number(tr: Transaction, *, number: int) -> None:
    tr.set(b"n", str(number).encode())


def test_many_threads_share_commits_of_lmdb(db: Database) -> None:
    start = threading.Barrier(8)

    def load(thread: int) -> None:
        start.wait()
        for number in range(50):
            transact(db, partial(put_key, key=f"{thread} {number}".encode()))

    before = db.commit_sequence() or 0
    threads = [threading.Thread(target=load, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stored(db)) == 400
    assert (db.commit_sequence() or 0) - before < 300


def test_exclusive_sections_come_one_after_the_other(db: Database) -> None:
    exclusive_section = partial(db._store.exclusive_section, 60.0)  # type: ignore[attr-defined]
    inside: list[int] = []
    most: list[int] = []

    def body(tr: Transaction) -> None:
        with exclusive_section():
            inside.append(1)
            for number in range(100):
                tr.get(bytes([number])).wait()
            most.append(len(inside))
            inside.pop()

    threads = [threading.Thread(target=lambda: [transact(db, body) for _ in range(50)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 150


def test_a_thread_in_an_exclusive_section_can_commit(db: Database) -> None:
    """A finalizer may commit on the thread whose body is in the section."""
    with db.exclusive_section(), db.exclusive_section():
        transact(db, partial(put_key, key=b"a"))
    assert stored(db) == {b"a": b""}


def test_a_commit_that_fails_leaves_its_exclusive_section(db: Database) -> None:
    late, early = begun(db, b"a", reads=b"b"), begun(db, b"b")
    assert code_of(early.commit()) == 0
    assert code_of(late.commit()) == 1020
    with pytest.raises(RuntimeError):
        db._store._section_lock.release()  # type: ignore[attr-defined]


def test_threads_that_contend_lose_no_update(db: Database) -> None:
    def body(tr: Any) -> None:
        tr.set(b"n", str(int(tr.get(b"n").value or b"0") + 1).encode())

    threads = [threading.Thread(target=lambda: [transact(db, body) for _ in range(25)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stored(db) == {b"n": b"200"}


def test_a_later_commit_of_a_group_sees_the_conflicts_of_an_earlier_one(db: Database) -> None:
    one, two = begun(db, b"a", reads=b"b"), begun(db, b"b", reads=b"a")
    futures = [one.commit(), two.commit()]
    assert [code_of(future) for future in futures] == [0, 1020]
    assert stored(db) == {b"a": b""}


def test_a_later_commit_of_a_group_sees_the_writes_of_an_earlier_one(db: Database) -> None:
    trs = [db.create_transaction() for _ in range(10)]
    for tr in trs:
        tr.add(b"n", b"\x01")
    futures = [tr.commit() for tr in trs]
    assert [code_of(future) for future in futures] == [0] * 10
    assert stored(db) == {b"n": b"\x0a"}


@pytest.mark.timeout(30)
def test_commits_that_conflict_or_are_interrupted_do_not_wait_for_busy_readers(db: Database) -> None:
    """py-lmdb's abort waits until no thread is in a call of LMDB; with busy readers, it would wait without end."""

    class Interrupting(WallClock):
        def now_us(self) -> int:
            raise KeyboardInterrupt

    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            tr = db.create_transaction()
            for _ in range(50):
                assert tr.get(b"n").value is not None

    transact(db, lambda tr: tr.set(b"n", b"0"))
    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(20):
        loser = db.create_transaction()
        assert loser.get(b"n").present()
        loser.set(b"a", b"")
        transact(db, partial(put_number, number=number))
        assert code_of(loser.commit()) == 1020
    interrupted = begun(db, b"b")
    future = interrupted.commit()
    future.request.clock = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        future.wait()
    stop.set()
    for thread in threads:
        thread.join()
    assert stored(db) == {b"n": b"19"}


def test_a_failed_commit_does_not_fail_others_of_its_group(db: Database) -> None:
    transact(db, lambda tr: tr.set(b"seen", b"1"))
    stale = db.create_transaction()
    assert stale.get(b"seen").value == b"1"
    stale.set(b"stale", b"")
    transact(db, lambda tr: tr.set(b"seen", b"2"))
    large = begun(db, b"large", bytes(1_000))
    large.options.set_size_limit(100)
    futures = [tr.commit() for tr in (begun(db, b"a"), stale, large, begun(db, b"b"))]
    assert [code_of(future) for future in futures] == [0, 1020, 2101, 0]
    assert sorted(stored(db)) == [b"a", b"b", b"seen"]


def test_a_commit_that_is_only_polled_completes(db: Database) -> None:
    tr = begun(db, b"a")
    future = tr.commit()
    assert future.is_ready()
    assert stored(db) == {b"a": b""}


def test_a_commit_with_only_a_callback_completes(db: Database) -> None:
    called: list[object] = []
    tr = begun(db, b"a")
    future = tr.commit()
    future.on_ready(called.append)
    assert called == [future]
    future.on_ready(called.append)
    assert called == [future, future]
    assert stored(db) == {b"a": b""}


def test_a_commit_that_is_still_queued_can_be_cancelled(db: Database) -> None:
    one, two = begun(db, b"a"), begun(db, b"b")
    futures = [one.commit(), two.commit()]
    one.cancel()
    assert [code_of(future) for future in futures] == [1025, 0]
    assert stored(db) == {b"b": b""}


def test_a_finished_commit_stays_when_its_transaction_is_cancelled(db: Database) -> None:
    tr = begun(db, b"a")
    future = tr.commit()
    assert code_of(future) == 0
    tr.cancel()
    assert code_of(future) == 0
    assert stored(db) == {b"a": b""}


def test_a_leader_that_is_interrupted_once_commits_its_group_first(db: Database) -> None:
    class Interrupting(WallClock):
        interrupts = True

        def now_us(self) -> int:
            if self.interrupts:
                self.interrupts = False
                raise KeyboardInterrupt
            return super().now_us()

    tr, other = begun(db, b"a"), begun(db, b"b")
    future, other_future = tr.commit(), other.commit()
    future.request.clock = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        future.wait()
    assert [code_of(future), code_of(other_future)] == [0, 0]
    assert stored(db) == {b"a": b"", b"b": b""}


def test_a_leader_that_is_interrupted_again_answers_unknown_result_and_blocks_no_commit(db: Database) -> None:
    class Interrupting(WallClock):
        def now_us(self) -> int:
            raise KeyboardInterrupt

    tr, other = begun(db, b"a"), begun(db, b"b")
    future, other_future = tr.commit(), other.commit()
    future.request.clock = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        future.wait()
    assert [code_of(future), code_of(other_future)] == [1021, 1021]
    transact(db, lambda tr: tr.set(b"c", b""))
    assert stored(db) == {b"c": b""}


def test_closing_the_database_fails_queued_commits(tmp_path: Path) -> None:
    db = open_database(f"embedded:{tmp_path / 'other'}", clock=WallClock(), random=random.Random(1))
    tr = begun(db, b"a")
    future = tr.commit()
    db.close()
    assert code_of(future) == 1025
    assert code_of(begun(db, b"b").commit()) == 1025
    assert code_of(db.create_transaction().get_read_version()) == 1025
    opened = list(Path("/proc/self/fd").iterdir())
    assert not [str(each) for each in opened if each.is_symlink() and str(tmp_path) in str(each.readlink())]
