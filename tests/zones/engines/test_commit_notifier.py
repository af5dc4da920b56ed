"""A listener is woken by commits of other processes, and by nothing else."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fairlead.zones.engines import Database, Listener, transact
from fairlead.zones.engines import open as open_database
from fairlead.zones.engines.embedded.commit_notifier import FILE, SLOTS, CommitNotifier
from tests.clocks import WallClock
from tests.contract.other_process import OtherProcess

SOON_S = 10.0  # A limit, not a measure: a notification comes within a millisecond.


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"embedded:{tmp_path / 'store'}"


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    opened = open_database(url, clock=WallClock(), random=random.Random(1))
    transact(opened, lambda tr: tr.set(b"a", b""))
    yield opened
    opened.close()


@pytest.fixture
def other(url: str, db: Database) -> Iterator[OtherProcess]:
    with OtherProcess(url) as other:
        yield other


@pytest.fixture
def listener(db: Database) -> Iterator[Listener]:
    taken = db.listener()
    assert taken is not None
    with closing(taken):
        yield taken


def put(db: Database) -> None:
    transact(db, lambda tr: tr.set(b"put-" + os.urandom(4), b""))


def put_many(db: Database) -> None:
    for _ in range(50):
        put(db)


opened_listeners: list[Listener] = []


def listen(db: Database) -> None:
    listener = db.listener()
    assert listener is not None
    opened_listeners.append(listener)
    listener.wait(0)


def wait_soon(_: Database) -> bool:
    return opened_listeners[-1].wait(SOON_S)


def slots(url: str) -> bytes:
    return (Path(url.partition(":")[2]) / FILE).read_bytes()[:SLOTS]


def test_a_commit_of_another_process_ends_the_wait(listener: Listener, other: OtherProcess) -> None:
    listener.wait(0)
    other.start(put)
    assert listener.wait(SOON_S)


def test_a_commit_of_this_process_wakes_other_processes_and_not_this_one(
    db: Database, listener: Listener, other: OtherProcess
) -> None:
    listener.wait(0)
    other.call(listen)
    other.start(wait_soon)
    put(db)
    assert other.receive()
    assert not listener.wait(0)


def test_a_transaction_that_only_reads_wakes_no_listener(listener: Listener, other: OtherProcess) -> None:
    listener.wait(0)
    other.call(read)
    assert not listener.wait(0)


def read(db: Database) -> None:
    transact(db, lambda tr: tr.get(b"a").value)


def test_many_commits_before_a_wait_end_one_wait(listener: Listener, other: OtherProcess) -> None:
    listener.wait(0)
    other.call(put_many)
    assert listener.wait(0)
    assert not listener.wait(0)


def test_a_closed_listener_releases_its_slot(db: Database, url: str) -> None:
    first = db.listener()
    assert first is not None
    first.wait(0)
    assert slots(url)[0] == 1
    first.close()
    assert slots(url) == bytes(SLOTS)


def test_the_slot_of_a_killed_process_is_released(db: Database, url: str, other: OtherProcess) -> None:
    other.call(listen)
    other.kill()
    assert slots(url)[0] == 1
    put(db)
    assert slots(url) == bytes(SLOTS)


def test_a_live_listener_whose_slot_was_cleared_is_notified_again(db: Database, url: str, other: OtherProcess) -> None:
    other.call(listen)
    file = Path(url.partition(":")[2]) / FILE
    file.write_bytes(bytes(file.stat().st_size))
    other.call(listen_again)
    put(db)
    assert other.call(wait_soon)


def listen_again(_: Database) -> None:
    opened_listeners[-1].wait(0)


def test_a_process_gets_no_listener_while_every_slot_is_taken(tmp_path: Path) -> None:
    notifier = CommitNotifier(tmp_path)
    taken = [notifier.listener() for _ in range(SLOTS)]
    assert None not in taken
    assert notifier.listener() is None
    for listener in taken:
        assert listener is not None
        listener.close()
    notifier.close()


def test_without_its_file_there_is_no_listener_and_commits_go_on(tmp_path: Path) -> None:
    (tmp_path / "store" / FILE).mkdir(parents=True)
    db = open_database(f"embedded:{tmp_path / 'store'}", clock=WallClock(), random=random.Random(1))
    assert db.listener() is None
    put(db)
    db.close()


def test_a_commit_of_a_forked_child_wakes_its_parent(db: Database, listener: Listener) -> None:
    listener.wait(0)
    child = os.fork()
    if child == 0:
        try:
            put(db)
        finally:
            os._exit(0)
    assert listener.wait(SOON_S)
    os.waitpid(child, 0)


def test_a_wait_ends_in_time_without_a_notification(listener: Listener) -> None:
    begun = time.monotonic()
    assert not listener.wait(0.05)
    assert time.monotonic() - begun >= 0.05


def test_a_listener_of_a_closed_store_waits_in_vain_and_harms_no_other_store(url: str, db: Database) -> None:
    listener = db.listener()
    assert listener is not None
    db.close()
    assert not listener.wait(0)
    listener.close()
    again = open_database(url, clock=WallClock(), random=random.Random(1))
    put(again)
    again.close()
