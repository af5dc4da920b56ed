"""A watch becomes ready when its value has changed, and not before."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest

from fairlead.zones.engines import Database
from tests.contract.conftest import Space, code_of

LIMIT_S = 20.0


def watched(db: Database, key: bytes) -> Any:
    """Return a committed watch on `key`."""
    tr = db.create_transaction()
    watch = tr.watch(key)
    assert code_of(tr.commit()) == 0
    return watch


def test_a_watch_is_ready_once_the_value_has_changed(db: Database, space: Space) -> None:
    space.put(a=b"1")
    watch = watched(db, space.key("a"))
    assert not watch.is_ready()
    space.put(b=b"2")
    assert not watch.is_ready()
    space.put(a=b"2")
    assert code_of(watch) == 0
    assert watch.is_ready()


def test_a_value_written_again_is_no_change(db: Database, space: Space) -> None:
    space.put(a=b"1")
    watch = watched(db, space.key("a"))
    space.put(a=b"1")
    assert not watch.is_ready()


@pytest.mark.parametrize(
    "write",
    [
        lambda tr, key: tr.clear(key),
        lambda tr, key: tr.clear_range(key, key + b"\xff"),
        lambda tr, key: tr.add(key, b"\x01"),
    ],
)
def test_every_kind_of_change_fires_a_watch(db: Database, space: Space, write: Callable[..., object]) -> None:
    space.put(a=b"1")
    watch = watched(db, space.key("a"))
    tr = db.create_transaction()
    write(tr, space.key("a"))
    assert code_of(tr.commit()) == 0
    assert code_of(watch) == 0


def test_a_watch_on_a_missing_key_waits_for_it(db: Database, space: Space) -> None:
    watch = watched(db, space.key("a"))
    assert not watch.is_ready()
    space.put(a=b"1")
    assert code_of(watch) == 0


def test_callbacks_are_called_once_when_it_fires(db: Database, space: Space) -> None:
    calls: SimpleQueue[Any] = SimpleQueue()
    watch = watched(db, space.key("a"))
    watch.on_ready(calls.put)
    space.put(a=b"1")
    assert calls.get(timeout=LIMIT_S) is watch  # On a cluster another thread calls.
    space.put(a=b"2")
    watch.wait()
    assert calls.empty()


@pytest.mark.parametrize("engine", ["memory", "embedded"], indirect=True)
def test_a_callback_may_commit(db: Database, space: Space) -> None:
    """On FoundationDB it must not: the thread that runs callbacks also delivers the results of commits."""
    watch = watched(db, space.key("a"))
    watch.on_ready(lambda _: space.put(b=b"2"))
    space.put(a=b"1")
    watch.wait()
    assert space.all() == {"a": b"1", "b": b"2"}


def test_a_watch_sees_what_its_own_transaction_wrote_before_it(db: Database, space: Space) -> None:
    tr = db.create_transaction()
    tr.set(space.key("a"), b"1")
    watch = tr.watch(space.key("a"))
    assert code_of(tr.commit()) == 0
    assert not watch.is_ready()
    space.put(a=b"2")
    assert code_of(watch) == 0


@pytest.mark.parametrize("engine", ["memory", "embedded"], indirect=True)
def test_a_watch_fires_on_what_its_own_transaction_writes_after_it(db: Database, space: Space) -> None:
    tr = db.create_transaction()
    watch = tr.watch(space.key("a"))
    tr.set(space.key("a"), b"1")
    assert code_of(watch) == 0


def test_a_watch_is_a_read_with_conflict(db: Database, space: Space) -> None:
    tr = db.create_transaction()
    watch = tr.watch(space.key("a"))
    tr.set(space.key("b"), b"1")
    space.put(a=b"1")
    assert code_of(tr.commit()) == 1020
    assert code_of(watch) == 1020


def test_a_change_between_the_read_and_the_commit_is_noticed(db: Database, space: Space) -> None:
    tr = db.create_transaction()
    watch = tr.watch(space.key("a"))
    space.put(a=b"1")
    assert code_of(tr.commit()) == 0
    assert code_of(watch) == 0


def test_a_callback_is_called_after_a_change_between_the_read_and_the_commit(db: Database, space: Space) -> None:
    calls: SimpleQueue[Any] = SimpleQueue()
    tr = db.create_transaction()
    watch = tr.watch(space.key("a"))
    watch.on_ready(calls.put)
    space.put(a=b"1")
    tr.commit().wait()
    assert calls.get(timeout=LIMIT_S) is watch


def test_a_transaction_that_is_cancelled_cancels_its_watches(db: Database, space: Space) -> None:
    tr = db.create_transaction()
    watch = tr.watch(space.key("a"))
    tr.cancel()
    assert code_of(watch) == 1025


@pytest.mark.parametrize("engine", ["memory", "embedded"], indirect=True)
def test_a_transaction_that_is_dropped_cancels_its_watches(db: Database, space: Space) -> None:
    tr = db.create_transaction()
    watch = tr.watch(space.key("a"))
    del tr
    assert watch.is_ready()
    assert code_of(watch) == 1025


def test_a_watch_outlives_its_transaction(db: Database, space: Space) -> None:
    tr = db.create_transaction()
    watch = tr.watch(space.key("a"))
    assert code_of(tr.commit()) == 0
    tr.reset()
    del tr
    assert not watch.is_ready()
    space.put(a=b"1")
    assert code_of(watch) == 0


def test_a_watch_can_be_cancelled(db: Database, space: Space) -> None:
    watch = watched(db, space.key("a"))
    watch.cancel()
    assert code_of(watch) == 1101


def test_a_watch_is_refused_if_reads_ignore_own_writes(db: Database, space: Space) -> None:
    tr = db.create_transaction()
    tr.options.set_read_your_writes_disable()
    assert code_of(tr.watch(space.key("a"))) == 1034
