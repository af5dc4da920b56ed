"""A process that is stopped in the middle of a commit blocks every writer. The writers log a warning that names it."""

from __future__ import annotations

import logging
import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlead.zones.engines import Database, transact, write_stall
from fairlead.zones.engines import open as open_database
from fairlead.zones.engines.embedded import lock_watchdog, write_lock
from fairlead.zones.engines.embedded.write_lock import STALL_US
from tests.clocks import WallClock
from tests.contract.other_process import OtherProcess, send, stopped_holder
from tests.documents.blocks import DOCS, blocks_of

LIMIT_S = 20.0


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the second before a warning to a fifth. `tests/acceptance/test_pauses.py` waits for a whole second."""
    monkeypatch.setattr(lock_watchdog, "_POLL_S", STALL_US / 5e6)
    monkeypatch.setattr(write_lock, "STALL_US", STALL_US // 5)


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


def keys_of(db: Database) -> list[bytes]:
    return [row.key for row in db.create_transaction().get_range(None, None)]


def eventually(what: Callable[[], object]) -> None:
    until = time.monotonic() + LIMIT_S
    while not what():
        assert time.monotonic() < until
        time.sleep(0.01)


@contextmanager
def writers(db: Database, count: int) -> Iterator[list[threading.Thread]]:
    """Start threads that write a key each, and wait for them at the end."""
    threads = [threading.Thread(target=put, args=(db, b"%d" % number)) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield threads
    finally:
        for thread in threads:
            thread.join(LIMIT_S)
            assert not thread.is_alive(), "still blocked"


def messages_with(caplog: pytest.LogCaptureFixture, what: str) -> list[str]:
    return [line for line in caplog.messages if what in line]


def test_a_stopped_holder_of_the_write_lock_is_named_once_and_all_writers_go_on_after_it(
    url: str, db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with stopped_holder(url) as pid, writers(db, 5) as threads:
        eventually(lambda: messages_with(caplog, "have waited"))
        assert all(thread.is_alive() for thread in threads)
        stall = write_stall(db)
        assert stall is not None
        assert (stall.pid, stall.state) == (pid, "stopped")
        os.kill(pid, signal.SIGCONT)
        eventually(lambda: messages_with(caplog, "go on, after"))
    assert write_stall(db) is None
    (warning,) = messages_with(caplog, "have waited")
    assert f"process {pid} (stopped; " in warning
    assert f"`kill -CONT {pid}`" in warning
    assert len(messages_with(caplog, "go on, after")) == 1
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    eventually(lambda: len(keys_of(db)) == 6)


def test_the_warning_is_the_one_that_the_documentation_shows(
    url: str, db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    (shown,) = [block.text for block in blocks_of(DOCS / "reliability.md") if "wait" in block.text]
    with stopped_holder(url) as pid, writers(db, 1):
        eventually(lambda: messages_with(caplog, "have waited"))
        os.kill(pid, signal.SIGCONT)
        eventually(lambda: messages_with(caplog, "go on, after"))
    (warning,) = messages_with(caplog, "have waited")
    path = url.removeprefix("embedded:")
    shown_warning = warning.replace(path, "./data").replace(str(pid), "23207").replace("more than 0 s", "more than 1 s")
    assert re.sub(r"\(stopped; [^)]+\)", "(stopped; ray::WorkerActor)", shown_warning) == " ".join(shown.split())


def test_reads_go_on_while_writers_are_blocked(url: str, db: Database) -> None:
    put(db, b"before")
    with stopped_holder(url) as pid:
        assert keys_of(db) == [b"before"]
        os.kill(pid, signal.SIGCONT)


def test_a_holder_that_is_killed_frees_the_write_lock_and_commits_nothing(url: str, db: Database) -> None:
    with stopped_holder(url) as pid, writers(db, 3):
        os.kill(pid, signal.SIGKILL)
    assert keys_of(db) == [b"0", b"1", b"2"]
    assert write_stall(db) is None


def keep_writing(db: Database) -> None:
    send("begun")
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        put(db, b"busy")


def test_a_busy_store_is_no_stall(url: str, db: Database, caplog: pytest.LogCaptureFixture) -> None:
    with OtherProcess(url) as one, OtherProcess(url) as other:
        for each in (one, other):
            each.start(keep_writing)
            assert each.receive() == "begun"
        with writers(db, 1):
            assert write_stall(db) is None
        for each in (one, other):
            each.receive()
    assert messages_with(caplog, url.removeprefix("embedded:")) == []


def test_an_unknown_holder_is_not_mistaken_for_another_process(
    url: str, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock file of a container's store holds the ids of that container."""
    with stopped_holder(url) as pid:
        monkeypatch.setattr("fairlead.zones.engines.embedded.write_lock._has_mapped", lambda process, file: False)
        stall = write_stall(db)
        assert stall is not None
        assert stall.pid is None
        assert str(pid) not in stall.holder + stall.remedy
        assert "lock.mdb" in stall.remedy
        os.kill(pid, signal.SIGCONT)


def test_a_clock_that_is_set_back_does_not_prolong_the_search_for_a_stall(url: str, db: Database) -> None:
    class SetBack(WallClock):
        slept_us = 0

        def now_us(self) -> int:
            return super().now_us() - (3_600_000_000 if self.slept_us else 0)

        def sleep_us(self, duration_us: int) -> None:
            self.slept_us += duration_us
            assert self.slept_us <= write_lock.STALL_US

    with stopped_holder(url) as pid:
        stall = db._store.files.write_lock.find_stall(SetBack())  # type: ignore[attr-defined]
        assert stall is not None
        assert stall.pid == pid


def test_reading_the_lock_state_releases_none_of_lmdbs_locks(url: str, db: Database) -> None:
    """A close of the lock file would release them: they belong to the process, not to one descriptor."""
    inode = str(Path(url.removeprefix("embedded:"), "lock.mdb").stat().st_ino)

    def locks() -> int:
        held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        return sum(fields[-4] == str(os.getpid()) and fields[-3].endswith(f":{inode}") for fields in held)

    put(db, b"a")
    before = locks()
    assert before > 0
    assert write_stall(db) is None
    assert locks() == before


def test_a_process_that_can_start_no_thread_waits_without_a_watchdog_and_then_writes(
    url: str, db: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If a limit on threads is reached, or the interpreter ends, a commit must not fail."""
    caplog.set_level(logging.INFO, "fairlead.store")
    start = threading.Thread.start

    def start_no_watchdog(thread: threading.Thread) -> None:
        if thread.name == "lock watchdog":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_no_watchdog)
    with stopped_holder(url) as pid, writers(db, 1):
        eventually(lambda: messages_with(caplog, "can't start new thread"))
        os.kill(pid, signal.SIGCONT)
    assert b"0" in keys_of(db)


def test_a_forked_child_watches_its_own_waits(url: str, db: Database, caplog: pytest.LogCaptureFixture) -> None:
    put(db, b"parent's")
    with stopped_holder(url) as pid, writers(db, 1):
        eventually(lambda: messages_with(caplog, "have waited"))
        os.kill(pid, signal.SIGCONT)
        eventually(lambda: messages_with(caplog, "go on, after"))
    caplog.clear()
    log_file = Path(url.removeprefix("embedded:")).with_name("log")
    with stopped_holder(url) as pid:
        child = os.fork()
        if not child:
            logging.getLogger().addHandler(logging.FileHandler(log_file))
            put(db, b"child's")
            os._exit(0)
        eventually(lambda: log_file.exists() and f"held by process {pid}" in log_file.read_text())
        os.kill(pid, signal.SIGCONT)
        assert os.waitpid(child, 0)[1] == 0
    assert b"child's" in keys_of(db)
    assert caplog.messages == [], "the parent waited for nothing"
