"""Whoever listens for commits of other processes is woken by them, and by nothing that costs it anything."""

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
from tests.contract.neighbours import Neighbour

SOON_S = 10.0  # A limit, and not a measure: a word comes within a millisecond.


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
def other(url: str, db: Database) -> Iterator[Neighbour]:
    with Neighbour(url) as neighbour:
        yield neighbour


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


KEPT: list[Listener] = []


def listen(db: Database) -> None:
    listener = db.listener()
    assert listener is not None
    KEPT.append(listener)
    KEPT[-1].wait(0)


def hear(_: Database) -> bool:
    return KEPT[-1].wait(SOON_S)


def slots(url: str) -> bytes:
    return (Path(url.partition(":")[2]) / FILE).read_bytes()[:SLOTS]


def test_a_commit_of_another_process_ends_the_wait(listener: Listener, other: Neighbour) -> None:
    listener.wait(0)
    other.tell(put)
    assert listener.wait(SOON_S)


def test_a_commit_of_this_process_is_heard_by_others_and_not_by_it(
    db: Database, listener: Listener, other: Neighbour
) -> None:
    listener.wait(0)
    other.ask(listen)
    other.tell(hear)
    put(db)
    assert other.hear()
    assert not listener.wait(0)


def test_who_reads_only_wakes_nobody(listener: Listener, other: Neighbour) -> None:
    listener.wait(0)
    other.ask(read)
    assert not listener.wait(0)


def read(db: Database) -> None:
    transact(db, lambda tr: tr.get(b"a").value)


def test_many_commits_before_the_wait_are_heard_once(listener: Listener, other: Neighbour) -> None:
    listener.wait(0)
    other.ask(put_many)
    assert listener.wait(0)
    assert not listener.wait(0)


def test_who_listens_no_more_vacates_its_slot(db: Database, url: str) -> None:
    first = db.listener()
    assert first is not None
    first.wait(0)
    assert slots(url)[0] == 1
    first.close()
    assert slots(url) == bytes(SLOTS)


def test_the_slot_of_one_that_was_killed_is_free(db: Database, url: str, other: Neighbour) -> None:
    other.ask(listen)
    other.kill()
    assert slots(url)[0] == 1
    put(db)
    assert slots(url) == bytes(SLOTS)


def test_one_whose_slot_was_taken_for_a_dead_ones_is_heard_of_again(db: Database, url: str, other: Neighbour) -> None:
    other.ask(listen)
    file = Path(url.partition(":")[2]) / FILE
    file.write_bytes(bytes(file.stat().st_size))
    other.ask(listen_again)
    put(db)
    assert other.ask(hear)


def listen_again(_: Database) -> None:
    KEPT[-1].wait(0)


def test_where_every_slot_is_taken_one_does_without(tmp_path: Path) -> None:
    notifier = CommitNotifier(tmp_path)
    taken = [notifier.listener() for _ in range(SLOTS)]
    assert None not in taken
    assert notifier.listener() is None
    for listener in taken:
        assert listener is not None
        listener.close()
    notifier.close()


def test_without_a_place_for_it_nobody_listens_and_commits_go_on(tmp_path: Path) -> None:
    (tmp_path / "store" / FILE).mkdir(parents=True)
    db = open_database(f"embedded:{tmp_path / 'store'}", clock=WallClock(), random=random.Random(1))
    assert db.listener() is None
    put(db)
    db.close()


def test_a_forked_child_is_heard_by_its_parent(db: Database, listener: Listener) -> None:
    listener.wait(0)
    child = os.fork()
    if child == 0:
        try:
            put(db)
        finally:
            os._exit(0)
    assert listener.wait(SOON_S)
    os.waitpid(child, 0)


def test_a_wait_ends_in_time_without_a_wakeup(listener: Listener) -> None:
    begun = time.monotonic()
    assert not listener.wait(0.05)
    assert time.monotonic() - begun >= 0.05


def test_who_waits_while_the_store_is_closed_hears_nothing_and_harms_nobody(url: str, db: Database) -> None:
    listener = db.listener()
    assert listener is not None
    db.close()
    assert not listener.wait(0)
    listener.close()
    again = open_database(url, clock=WallClock(), random=random.Random(1))
    put(again)
    again.close()
