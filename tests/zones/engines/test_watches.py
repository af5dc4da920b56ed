"""Watches that nobody waits for any more, and the order in which those that somebody waits for are fired."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fairlead.zones import engines
from fairlead.zones.engines import Database
from tests.clocks import ManualClock


@pytest.fixture(params=["memory", "embedded"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    url = {"memory": "memory:", "embedded": f"embedded:{tmp_path / 'data'}"}[request.param]
    opened = engines.open(url, clock=ManualClock(), random=Random(1))
    yield opened
    opened.close()


def watched(db: Database, key: bytes) -> Any:
    tr = db.create_transaction()
    watch = tr.watch(key)
    tr.commit().wait()
    return watch


def drop(db: Database, count: int, *, keys: int) -> None:
    """Arm watches, one after the other, and wait for none of them."""
    for number in range(count):
        watched(db, b"%d" % (number % keys))


@pytest.mark.parametrize("keys", [10_000, 1])
def test_a_watch_that_is_dropped_leaves_nothing_behind(db: Database, keys: int) -> None:
    """Before, each left a kilobyte: whoever waited for a million results held a gigabyte."""
    drop(db, 1_000, keys=keys)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        drop(db, 5_000, keys=keys)
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (grown - before) / 5_000 < 50


def test_a_watch_is_fired_however_many_others_were_dropped(db: Database) -> None:
    kept = [watched(db, b"kept %d" % number) for number in range(100)]
    drop(db, 1_000, keys=1_000)
    tr = db.create_transaction()
    tr.clear_range(b"kept", b"kepu")
    for number in range(50):
        tr.set(b"kept %d" % number, b"1")
    tr.commit().wait()
    assert [watch.is_ready() for watch in kept] == [True] * 50 + [False] * 50


def test_watches_are_fired_in_the_order_of_their_keys_and_then_of_their_arming(db: Database) -> None:
    """An order that hung on a hash would be another one in the next process: no seed would replay it."""
    fired: list[int] = []
    held = []
    for number in range(200):
        watch = watched(db, b"%03d" % (number // 2))
        watch.on_ready(lambda _, number=number: fired.append(number))
        held.append(watch)
    tr = db.create_transaction()
    for number in reversed(range(100)):
        tr.set(b"%03d" % number, b"1")
    tr.commit().wait()
    assert fired == list(range(200))
