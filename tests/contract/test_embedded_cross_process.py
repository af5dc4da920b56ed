"""Processes that commit at the same time share one commit. If one of them dies, each commit is made at most once."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import lmdb
import pytest

from fairlead.zones.engines import Database, StoreUnavailable, transact
from fairlead.zones.engines import open as open_database
from fairlead.zones.engines.embedded import lmdb_commit
from fairlead.zones.engines.embedded.cross_process import CrossProcessCommit, flat_combining
from fairlead.zones.engines.embedded.engine import EmbeddedStore
from fairlead.zones.engines.embedded.lmdb_files import LmdbFiles
from fairlead.zones.engines.embedded.stored_log import StoredLog
from tests.clocks import WallClock
from tests.contract.conftest import code_of
from tests.contract.other_process import OtherProcess, send

LIMIT_S = 30.0
ONE = (1).to_bytes(8, "little")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"embedded:{tmp_path / 'store'}"


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    database = open_database(url, clock=WallClock(), random=random.Random(1))
    yield database
    database.close()


def put(db: Database, key: bytes) -> None:
    transact(db, lambda tr: tr.set(key, b""))


def count(db: Database) -> None:
    """Add one, so that a repeated commit is visible."""
    transact(db, lambda tr: tr.add(b"count", ONE))


def counted(db: Database) -> int:
    return int.from_bytes(db.create_transaction().get(b"count").value or b"", "little")


def keys_of(db: Database) -> list[bytes]:
    return [row.key for row in db.create_transaction().get_range(None, None)]


def store_of(db: Database) -> EmbeddedStore:
    return db._store  # type: ignore[attr-defined, no-any-return]


def await_batches(db: Database, batches: int) -> None:
    mailbox = store_of(db).cross_process._mailbox
    assert mailbox is not None
    until = time.monotonic() + LIMIT_S
    while len(mailbox.unanswered()) < batches:
        assert time.monotonic() < until, "the other processes submit nothing"
        time.sleep(0.001)


@contextmanager
def during_commit(db: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pause a commit of this process in the middle: the process is leader and has the write lock."""
    begun, go_on = threading.Event(), threading.Event()
    begin = StoredLog.begin

    def begin_and_wait(self: StoredLog, txn: Any) -> None:
        begin(self, txn)
        begun.set()
        assert go_on.wait(LIMIT_S)

    with monkeypatch.context() as patched:
        patched.setattr(StoredLog, "begin", begin_and_wait)
        thread = threading.Thread(target=put, args=(db, b"mine"))
        thread.start()
        assert begun.wait(LIMIT_S)
        try:
            yield
        finally:
            go_on.set()
            thread.join()


def test_commits_that_are_submitted_during_a_commit_are_made_in_one_transaction(
    url: str, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = db.commit_sequence()
    assert before is not None
    with ExitStack() as stack:
        others = [stack.enter_context(OtherProcess(url)) for _ in range(3)]
        with during_commit(db, monkeypatch):
            for other in others:
                other.start(count)
            await_batches(db, 3)
        for other in others:
            other.receive()
    assert counted(db) == 3
    assert db.commit_sequence() == before + 1


def read_and_write(db: Database, value: bytes) -> int:
    """Read the shared key, write it, and return the code of the commit."""
    tr = db.create_transaction()
    assert tr.get(b"shared").value is None
    send("read")
    tr.set(b"shared", value)
    return code_of(tr.commit())


def test_of_two_conflicting_commits_in_one_transaction_the_second_fails(
    url: str, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OtherProcess(url) as one, OtherProcess(url) as two:
        with during_commit(db, monkeypatch):
            for other in (one, two):
                other.start(read_and_write, b"")
                assert other.receive() == "read"
            await_batches(db, 2)
        assert sorted([one.receive(), two.receive()]) == [0, 1020]


def test_a_commit_that_another_process_made_has_the_version_that_is_in_the_store(
    url: str, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OtherProcess(url) as other:
        with during_commit(db, monkeypatch):
            other.start(committed_version)
            await_batches(db, 1)
        version = other.receive()
    assert db.create_transaction().get_read_version().wait() == version


def committed_version(db: Database) -> int:
    tr = db.create_transaction()
    tr.set(b"theirs", b"")
    tr.commit().wait()
    return tr.get_committed_version()


def test_a_watch_fires_on_a_commit_that_another_process_made_for_its_own(
    url: str, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OtherProcess(url) as other:
        with during_commit(db, monkeypatch):
            other.start(fire_own_watch)
            await_batches(db, 1)
        assert other.receive() == "called"


def fire_own_watch(db: Database) -> str:
    called: list[str] = []
    tr = db.create_transaction()
    watch = tr.watch(b"watched")
    watch.on_ready(lambda _: called.append("called"))
    tr.commit().wait()
    put(db, b"watched")
    return "".join(called)


def test_nothing_is_committed_for_a_process_that_has_died(
    url: str, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with during_commit(db, monkeypatch), OtherProcess(url) as other:
        other.start(put, b"theirs")
        await_batches(db, 1)
        other.kill()
    assert keys_of(db) == [b"mine"]


def test_the_batch_of_a_dead_process_is_not_committed_after_its_slot_has_a_new_owner(
    url: str, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OtherProcess(url) as next_owner:
        with during_commit(db, monkeypatch):
            with OtherProcess(url) as other:
                other.start(put, b"theirs")
                await_batches(db, 1)
                other.kill()
            next_owner.start(put, b"its own")
            await_batches(db, 1)
        next_owner.receive()
    assert keys_of(db) == [b"its own", b"mine"]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def lead_and(what: Callable[[], None], *, after: str) -> Callable[[Database], None]:
    """Patch this process: its next commit waits for a batch, and calls `what` after the step `after`."""
    batches = CrossProcessCommit.batches

    def wait_for_batches(self: CrossProcessCommit, clock: Any) -> Any:
        send("leads")
        until = time.monotonic() + LIMIT_S
        while not (found := batches(self, clock)):
            assert time.monotonic() < until
            time.sleep(0.001)
        if after == "finding batches":
            what()
        return found

    CrossProcessCommit.batches = wait_for_batches  # type: ignore[method-assign]
    if after == "the commit":
        CrossProcessCommit.answer = lambda *_: what()  # type: ignore[method-assign]
    return count


def count_and_die(db: Database, after: str) -> None:
    lead_and(die, after=after)(db)


@pytest.mark.parametrize(("after", "made"), [("finding batches", 0), ("the commit", 1)])
def test_if_the_leader_dies_a_followers_commit_is_made_once(url: str, db: Database, after: str, made: int) -> None:
    with OtherProcess(url) as leader:
        leader.start(count_and_die, after)
        assert leader.receive() == "leads"
        count(db)
    assert counted(db) == 1 + made


def count_and_lose_the_answer(db: Database) -> None:
    lead_and(lambda: None, after="the commit")(db)


def test_an_answer_that_is_lost_is_found_in_the_log(url: str, db: Database) -> None:
    with OtherProcess(url) as leader:
        leader.start(count_and_lose_the_answer)
        assert leader.receive() == "leads"
        count(db)
        leader.receive()
    assert counted(db) == 2


def stop_before_the_write_lock(db: Database) -> None:
    def stop(self: LmdbFiles) -> Any:
        send("leads")
        os.kill(os.getpid(), signal.SIGSTOP)

    LmdbFiles.begin_write = stop  # type: ignore[method-assign]
    count(db)


def test_a_stopped_leader_does_not_block_followers_for_long(
    url: str, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flat_combining, "WAKEUP_WAITS_MAX", 5)
    with OtherProcess(url) as leader:
        leader.start(stop_before_the_write_lock)
        assert leader.receive() == "leads"
        count(db)
        count(db)
    assert counted(db) == 2


def stop_once_before_the_write_lock(db: Database) -> None:
    begin_write = LmdbFiles.begin_write

    def stop(self: LmdbFiles) -> Any:
        LmdbFiles.begin_write = begin_write  # type: ignore[method-assign]
        send(os.getpid())
        os.kill(os.getpid(), signal.SIGSTOP)
        return begin_write(self)

    LmdbFiles.begin_write = stop  # type: ignore[method-assign]
    count(db)


def test_a_commit_that_failed_is_not_made_later_by_another_process(
    url: str, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise lmdb.DiskError("no more room")

    with OtherProcess(url) as leader:
        leader.start(stop_once_before_the_write_lock)
        pid = leader.receive()
        with monkeypatch.context() as patched:
            patched.setattr(flat_combining, "WAKEUP_WAITS_MAX", 5)
            patched.setattr(lmdb_commit, "_apply", fail)
            with pytest.raises(StoreUnavailable):
                count(db)
        os.kill(pid, signal.SIGCONT)
        leader.receive()
    assert counted(db) == 1


def test_a_commit_that_does_not_fit_into_a_batch_is_made_without_one(
    url: str, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OtherProcess(url) as other:
        with during_commit(db, monkeypatch):
            other.start(put_much)
        other.receive()
    assert keys_of(db) == [b"mine", b"much"]


def put_much(db: Database) -> None:
    transact(db, lambda tr: tr.set(b"much", bytes(50_000)))


def test_without_a_mailbox_each_process_commits_alone(tmp_path: Path) -> None:
    (tmp_path / "store" / "letters").mkdir(parents=True)
    db = open_database(f"embedded:{tmp_path / 'store'}", clock=WallClock(), random=random.Random(1))
    count(db)
    with OtherProcess(db.url) as other:
        other.call(count)
    assert counted(db) == 2
    db.close()


def count_without_end(db: Database, name: bytes) -> None:
    while True:
        transact(db, lambda tr: tr.add(name, ONE))
        send("one")


def test_processes_killed_at_any_moment_lose_and_repeat_no_commit(url: str, db: Database) -> None:
    acknowledged: dict[bytes, int] = {}
    for round_ in range(8):
        names = [f"{round_}-{number}".encode() for number in range(4)]
        others = {name: OtherProcess(url) for name in names}
        for name, other in others.items():
            other.start(count_without_end, name)
        for other in others.values():
            for _ in range(20 + round_):
                other.receive()
        for name, other in others.items():  # One by one, so that each dies while others go on.
            other.kill()
            acknowledged[name] = 20 + round_ + len(other.receive_all())
    count(db)
    for name, count_acknowledged in acknowledged.items():
        found = int.from_bytes(db.create_transaction().get(name).value or b"", "little")
        assert count_acknowledged <= found <= count_acknowledged + 1
