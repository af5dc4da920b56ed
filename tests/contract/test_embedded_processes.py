"""Several processes on one embedded store: conflicts, watches, deaths, forks, and clocks that differ."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fairlead.zones.engines import Database, StoreError, StreamingMode, Transaction, transact
from fairlead.zones.engines import open as open_database
from fairlead.zones.engines.api.errors import error_code
from fairlead.zones.engines.embedded import lmdb_files
from tests.clocks import ManualClock, WallClock
from tests.contract.conftest import code_of
from tests.contract.other_process import OtherProcess, send


def key(number: int) -> bytes:
    return f"key {number:08}".encode()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"embedded:{tmp_path / 'store'}"


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    database = open_database(url, clock=WallClock(), random=random.Random(1))
    yield database
    database.close()


def put(db: Database, number: int, value: bytes = b"") -> None:
    transact(db, lambda tr: tr.set(key(number), value))


def value_of(db: Database, number: int) -> bytes | None:
    return db.create_transaction().get(key(number)).value


def count_up(db: Database, name: bytes, times: int) -> int:
    """Add one to a number by read and write, `times` times; return the number of attempts."""
    attempts = 0

    def body(tr: Any) -> None:
        nonlocal attempts
        attempts += 1
        before = tr.get(name).value or b"0"
        tr.set(name, str(int(before) + 1).encode())

    for _ in range(times):
        transact(db, body)
    return attempts


def test_processes_that_contend_for_a_key_lose_no_update(url: str, db: Database) -> None:
    with OtherProcess(url) as one, OtherProcess(url) as two, OtherProcess(url) as three:
        others = (one, two, three)
        for other in others:
            other.start(count_up, b"shared", 50)
        count_up(db, b"shared", 50)
        for other in others:
            assert other.receive() >= 50
    assert db.create_transaction().get(b"shared").value == b"200"


def test_a_commit_of_one_process_is_read_by_the_others(url: str, db: Database) -> None:
    with OtherProcess(url) as other:
        put(db, 1, b"mine")
        assert other.call(value_of, 1) == b"mine"
        other.call(put, 2, b"theirs")
        assert value_of(db, 2) == b"theirs"


def test_a_commit_of_another_process_can_conflict(url: str, db: Database) -> None:
    with OtherProcess(url) as other:
        for expected, theirs in ((1020, 1), (0, 2), (1020, 1)):
            tr = db.create_transaction()
            assert tr.get(key(1)).value in (None, b"")
            tr.set(key(3), b"")
            other.call(put, theirs)
            assert code_of(tr.commit()) == expected


def test_a_range_read_conflicts_with_commits_of_other_processes(url: str, db: Database) -> None:
    with OtherProcess(url) as other:
        for expected, theirs in ((1020, 15), (0, 25)):
            tr = db.create_transaction()
            list(tr.get_range(key(10), key(20)))
            tr.set(key(99), b"")
            other.call(put, theirs)
            assert code_of(tr.commit()) == expected


def test_the_commit_sequence_changes_with_the_commits_of_every_process(url: str, db: Database) -> None:
    with OtherProcess(url) as other:
        before = db.commit_sequence()
        assert db.commit_sequence() == before
        value_of(db, 1)
        assert db.commit_sequence() == before
        other.call(put, 1)
        after = db.commit_sequence()
        assert after != before
        put(db, 2)
        assert db.commit_sequence() not in (before, after)


def test_a_watch_notices_another_process(url: str, db: Database) -> None:
    with OtherProcess(url) as other:
        tr = db.create_transaction()
        watch = tr.watch(key(1))
        assert code_of(tr.commit()) == 0
        other.call(put, 2)
        assert not watch.is_ready()
        other.start(put, 1, b"new")
        assert code_of(watch) == 0
        other.receive()


def answer(db: Database, rounds: int) -> None:
    """Wait until the first key has the round's number, and write it into the second."""
    for round_ in range(rounds):
        wait_for(db, 1, round_)
        put(db, 2, str(round_).encode())


def wait_for(db: Database, number: int, round_: int) -> None:
    while True:
        tr = db.create_transaction()
        watch = tr.watch(key(number))
        if tr.get(key(number)).value == str(round_).encode():
            return
        tr.commit().wait()
        watch.wait()


def test_watches_of_two_processes_miss_no_change(url: str, db: Database) -> None:
    rounds = 100
    with OtherProcess(url) as other:
        other.start(answer, rounds)
        for round_ in range(rounds):
            put(db, 1, str(round_).encode())
            wait_for(db, 2, round_)
        other.receive()


def acknowledge(db: Database) -> None:
    """Commit keys without end, and send the number of each commit."""
    number = 0
    while True:
        put(db, number, str(number).encode() * 100)
        send(number)
        number += 1


def test_every_acknowledged_commit_of_a_killed_process_is_durable(url: str) -> None:
    for acknowledged_at_least in (1, 100):
        victim = OtherProcess(url)
        victim.start(acknowledge)
        acknowledged = [victim.receive() for _ in range(acknowledged_at_least)]
        victim.kill()
        acknowledged += victim.receive_all()
        db = open_database(url, clock=WallClock(), random=random.Random(1))
        found = [pair.value for pair in db.create_transaction().get_range(None, None)]
        whole = [str(number).encode() * 100 for number in range(len(found))]
        assert found == whole
        assert len(acknowledged) <= len(found) <= len(acknowledged) + 1
        transact(db, lambda tr: tr.clear_range(b"", b"\xff"))
        db.close()


def test_a_process_killed_in_the_middle_of_a_commit_blocks_no_other(url: str, db: Database) -> None:
    for _ in range(5):
        victim = OtherProcess(url)
        victim.start(acknowledge)
        victim.receive()
        victim.kill()
        put(db, 99_999, b"still here")
    assert value_of(db, 99_999) == b"still here"


def hold_snapshot(db: Database) -> None:
    """Keep a read transaction open without end."""
    tr = db.create_transaction()
    send(tr.get(key(0)).value)
    threading.Event().wait()


def test_the_snapshot_of_a_killed_process_pins_no_page_for_long(url: str, db: Database, tmp_path: Path) -> None:
    put(db, 0, b"")
    victim = OtherProcess(url)
    victim.start(hold_snapshot)
    assert victim.receive() == b""
    victim.kill()
    for _ in range(64):  # Each time the log is pruned, the snapshots of dead processes are freed.
        put(db, 0, b"")
    before = (tmp_path / "store" / "data.mdb").stat().st_size
    for round_ in range(30):
        put(db, 1, bytes([round_]) * 100_000)
    assert (tmp_path / "store" / "data.mdb").stat().st_size < before + 1_000_000


def free_dead_readers(db: Database) -> int:
    freed: int = db._store.files._env.reader_check()  # type: ignore[attr-defined]
    return freed


def test_a_process_that_copies_its_own_store_is_not_treated_as_dead(url: str, db: Database, tmp_path: Path) -> None:
    """The kernel drops a process's locks on a file when it closes any descriptor of it."""
    put(db, 0, b"before")
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    tr = db.create_transaction()
    assert tr.get(key(0)).value == b"before"
    with OtherProcess(url) as other:
        assert other.call(free_dead_readers) == 0
        for round_ in range(30):
            other.call(put, 0, b"%d" % round_)
    assert tr.get(key(0)).value == b"before"


TRY_TO_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no locks of files")
def test_a_store_stays_locked_after_its_process_has_copied_it(url: str, db: Database, tmp_path: Path) -> None:
    """Without the lock, a process that opens the store would recreate the lock file, and write during a commit."""
    put(db, 0, b"before")
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    lock_file = str(tmp_path / "store" / "lock.mdb")
    locking = subprocess.run([sys.executable, "-c", TRY_TO_LOCK, lock_file], capture_output=True, check=False)
    assert b"BlockingIOError" in locking.stderr


def commit_once_a_second(db: Database, seconds: int) -> None:
    clock = ManualClock()
    here = open_database(db.url, clock=clock, random=random.Random(1))
    for second in range(seconds):
        put(here, second, b"changed")
        clock.advance_us(1_000_000)


def test_a_process_that_slept_past_a_pruned_entry_is_refused_whatever_its_clock_shows(url: str) -> None:
    """Its own clock stands still, so only the log in the store shows how much time has passed."""
    stopped = ManualClock(1_000_000_000_000_000)
    db = open_database(url, clock=stopped, random=random.Random(1))
    put(db, 0, b"")
    trs = [db.create_transaction() for _ in range(2)]
    for tr in trs:
        assert tr.get(key(0)).value == b""
        tr.set(key(1_000), b"mine")
    with OtherProcess(url) as other:
        other.call(commit_once_a_second, 200)
    assert [code_of(tr.commit()) for tr in trs] == [1007, 1007]
    tr = db.create_transaction()
    assert tr.get(key(0)).value == b"changed"
    tr.set(key(1_000), b"mine")
    assert code_of(tr.commit()) == 0
    db.close()


def test_a_map_that_another_process_has_grown_is_adopted(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small = 1 << 20
    monkeypatch.setattr(lmdb_files, "MAP_BYTES", small)
    db = open_database(url, clock=WallClock(), random=random.Random(1))
    put(db, 0, b"before")
    old = db.create_transaction()
    assert old.get(key(0)).value == b"before"
    with OtherProcess(url, map_bytes=small) as other:
        other.call(fill, 50)
        assert value_of(db, 49) == bytes(100_000)
        with pytest.raises(db.errors) as caught:
            _ = old.get(key(0)).value
        assert error_code(caught.value) == 1007
        put(db, 50, b"after")
        assert other.call(value_of, 50) == b"after"
    db.close()


def fill(db: Database, values: int) -> None:
    for number in range(values):
        put(db, number, bytes(100_000))


def test_a_full_map_grows_and_the_whole_commit_is_stored(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmdb_files, "MAP_BYTES", 1 << 20)
    db = open_database(url, clock=WallClock(), random=random.Random(1))

    def fill(tr: Transaction) -> None:
        for number in range(100):
            tr.set(key(number), bytes(90_000))

    transact(db, fill)
    assert [len(value) for _, value in db.create_transaction().get_range(None, None)] == [90_000] * 100
    db.close()


def in_child(function: Any) -> bytes:
    """Return what `function()` returns in a forked child."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, function())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        output = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return output


def test_a_forked_child_and_its_parent_use_separate_stores(url: str, db: Database) -> None:
    put(db, 1, b"parent's")
    begun = db.create_transaction()
    assert begun.get(key(1)).value == b"parent's"
    begun.set(key(9), b"")

    def child() -> bytes:
        seen = value_of(db, 1) or b""
        put(db, 2, b"child's")
        inherited = code_of(begun.commit())
        return seen + b" " + str(inherited).encode()

    assert in_child(child) == b"parent's 1007"
    assert value_of(db, 2) == b"child's"
    put(db, 3, b"parent's again")
    assert in_child(lambda: value_of(db, 3) or b"") == b"parent's again"
    assert code_of(begun.commit()) == 1007
    assert value_of(db, 9) is None


def test_a_forked_child_does_not_wait_for_an_exclusive_section_of_its_parent(url: str, db: Database) -> None:
    with db.exclusive_section():
        assert in_child(lambda: put(db, 1, b"child's") or b"done") == b"done"
    assert value_of(db, 1) == b"child's"


def test_forks_in_the_middle_of_commits_lose_no_commit(url: str, db: Database) -> None:
    stop = threading.Event()
    committed: list[int] = []

    def load(start: int) -> None:
        number = start
        while not stop.is_set():
            put(db, number)
            committed.append(number)
            number += 1

    threads = [threading.Thread(target=load, args=(start * 100_000,)) for start in range(3)]
    for thread in threads:
        thread.start()

    def put_and_answer(number: int) -> bytes:
        put(db, number)
        return b"done"

    for fork in range(5):
        assert in_child(partial(put_and_answer, 900_000 + fork)) == b"done"
    stop.set()
    for thread in threads:
        thread.join()
    found = {pair.key for pair in db.create_transaction().get_range(None, None)}
    assert found == {key(number) for number in [*committed, *range(900_000, 900_005)]}


def fork_beside_readers(db: Database) -> int:
    """Fork twenty times while threads read; return how many children ended."""
    put(db, 1)
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            transact(db, lambda tr: [tr.get(key(number)).wait() for number in range(10)])

    readers = [threading.Thread(target=read) for _ in range(20)]
    for reader in readers:
        reader.start()
    ended = 0
    for _ in range(20):
        child = os.fork()
        if not child:
            os._exit(0)
        if not has_ended(child, within_s=5):
            break
        ended += 1
    over.set()
    for reader in readers:
        reader.join()
    return ended


def has_ended(child: int, within_s: float) -> bool:
    """Wait for a child to end; kill it if it does not."""
    until_s = time.monotonic() + within_s
    while not os.waitpid(child, os.WNOHANG)[0]:
        if time.monotonic() > until_s:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return False
        time.sleep(0.001)
    return True


def test_a_child_that_was_forked_beside_readers_does_not_wait_for_them(url: str) -> None:
    """A close in the child would wait for calls of LMDB that the parent's threads made at the fork."""
    with OtherProcess(url) as other:
        assert other.call(fork_beside_readers) == 20


def read_while_the_clock_steps(db: Database) -> int:
    """Read ranges on one thread while another steps the clock, which closes the window of each snapshot."""
    clock = ManualClock()
    here = open_database(db.url, clock=clock, random=random.Random(1))
    transact(here, lambda tr: [tr.set(key(number), b"") for number in range(2_000)])
    over = threading.Event()
    answers = Counter[int]()

    def read() -> None:
        while not over.is_set():
            try:
                rows = list(here.create_transaction().get_range(b"", b"\xff", streaming_mode=StreamingMode.want_all))
                assert len(rows) == 2_000
                answers[0] += 1
            except StoreError as error:
                answers[error.code] += 1

    reader = threading.Thread(target=read)
    reader.start()
    while sum(answers.values()) < 500 or 0 not in answers:
        clock.advance_us(10_000_000)
        here.create_transaction().get(key(1)).wait()
    over.set()
    reader.join()
    assert set(answers) <= {0, 1007}
    return sum(answers.values())


def test_ending_a_snapshot_during_a_read_does_not_crash_the_process(url: str) -> None:
    """A clock step of seconds, or a stop of the process, closes the windows of current reads."""
    with OtherProcess(url) as other:
        assert other.call(read_while_the_clock_steps) >= 500
