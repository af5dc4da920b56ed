"""The status of a shard: what waits, since when, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead import App, Job, PermanentError, TenantDatabase, new_item, status
from fairlead.status import ShardStatus
from fairlead.testing import ManualClock, drain
from fairlead.zones.top_level import sessions
from fairlead.zones.top_level.sessions import SessionRecord
from tests.contract.other_process import stopped_holder
from tests.fairlead.shell import run

SECOND = 1_000_000


def look(app: App) -> ShardStatus:
    return status.read_status(app.shards["main"], "memory:")


def pass_us(app: App, duration_us: int) -> None:
    assert isinstance(app.clock, ManualClock)
    app.clock.advance(duration_us / 1e6)


def consumer_beats(app: App, consumer_id: bytes, *kinds: str) -> None:
    signs = SessionRecord("host", 7, list(kinds), 1, app.clock.now_us())
    app.shards["main"].transact(lambda attempt: sessions.heartbeat(attempt.tr, consumer_id, signs))


def test_an_empty_shard_is_empty(app: App) -> None:
    found = look(app)
    assert (found.depth, found.pointers, found.vested, found.dead_letters) == ({}, 0, 0, 0)
    assert (found.oldest_us, found.consumers, found.unserved) == (None, (), ())


def test_depth_counts_items_of_all_tenants_by_kind(app: App) -> None:
    app.enqueue_many(
        (app.tenant("shop", f"user {number}"), new_item("mail" if number % 3 else "index")) for number in range(30)
    )
    app.enqueue_local("sweep")
    found = look(app)
    assert found.depth == {"index": 10, "mail": 20, "sweep": 1}
    assert (found.pointers, found.vested) == (31, 31)


def test_a_delayed_item_is_counted_but_its_zone_has_no_work_now(app: App, alice: TenantDatabase) -> None:
    alice.enqueue("mail", delay=60)
    found = look(app)
    assert (found.depth, found.pointers, found.vested, found.oldest_us) == ({"mail": 1}, 1, 0, None)


def test_the_oldest_waiting_item_is_found_behind_a_pointer_that_moved(app: App, alice: TenantDatabase) -> None:
    """A manager that cannot run an item requeues its pointer; the item continues to wait."""
    since_us = app.clock.now_us()
    alice.enqueue("unknown")
    app.tenant("shop", "bob").enqueue("unknown", delay=1)
    drain(app)
    pass_us(app, 600 * SECOND)
    assert look(app).oldest_us == since_us


def test_what_is_held_back_is_shown_apart_by_status_and_top(
    empty_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App("embedded:data")
    for number in range(3):
        app.tenant("shop", f"user {number}").enqueue("unknown")
    drain(app)
    app.close()
    (shard,) = run("status", "--store", "embedded:data", "--json").json["shards"]
    looked = run("top", "--store", "embedded:data", "--json").json
    for each in (shard, looked):
        assert each["oldest_waits_s"] >= each["held_back"]["oldest_waits_s"] > 0
        assert (each["held_back"]["items"], each["held_back"]["at_least"], each["oldest_at_least"]) == (3, False, False)
    shown = run("status", "--store", "embedded:data").out
    assert "main: 3 items are held back by limits, pauses or unknown kinds; the oldest waits " in shown
    assert "held back 3, for " in run("top", "--store", "embedded:data").out


def test_an_item_of_lower_priority_can_be_the_oldest(app: App, alice: TenantDatabase) -> None:
    since_us = app.clock.now_us()
    alice.enqueue("mail", priority=200)
    pass_us(app, SECOND)
    alice.enqueue("mail", priority=0)
    assert look(app).oldest_us == since_us


def test_dead_letters_are_counted(app: App, alice: TenantDatabase) -> None:
    @app.handler("mail")
    def send(job: Job) -> None:
        raise PermanentError

    alice.enqueue_many(new_item("mail") for _ in range(3))
    drain(app, raise_errors=False)
    assert (look(app).dead_letters, look(app).depth) == (3, {})


def test_a_kind_that_no_live_consumer_knows_is_named(app: App, alice: TenantDatabase) -> None:
    alice.enqueue("mail")
    alice.enqueue("index")
    assert look(app).unserved == ("index", "mail")
    consumer_beats(app, b"anna", "mail", "other")
    assert look(app).unserved == ("index",)
    pass_us(app, 4 * SECOND)
    consumer_beats(app, b"bert", "index")
    assert look(app).unserved == ()
    pass_us(app, 2 * SECOND)
    found = look(app)
    assert found.unserved == ("mail",)
    assert [(each.consumer_id, each.live) for each in found.consumers] == [(b"anna", False), (b"bert", True)]


def test_counting_stops_at_its_limit(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "COUNTED_MAX", 5)
    app.enqueue_many((app.tenant("shop", f"user {number}"), new_item("mail")) for number in range(30))
    found = look(app)
    assert (found.pointers, found.vested, found.depth) == (5, 5, {"mail": 30})


def test_a_process_that_is_stopped_in_mid_commit_is_named_and_status_does_not_wait_for_it(
    empty_directory: Path,
) -> None:
    made = App("embedded:data")
    made.tenant("shop", "alice").enqueue("mail")
    made.close()
    with stopped_holder("embedded:data") as pid:
        (shard,) = run("status", "--store", "embedded:data", "--json").json["shards"]
        said = run("status", "--store", "embedded:data").out
    (after,) = run("status", "--store", "embedded:data", "--json").json["shards"]
    assert (shard["depth"], shard["writers_wait_for"]["pid"]) == ({"mail": 1}, pid)
    assert "main: no process can write; the write lock is held by process" in said
    assert f"Do: `kill -CONT {pid}` lets it go on" in said
    assert (after["depth"], after["writers_wait_for"]) == ({"mail": 1}, None)
