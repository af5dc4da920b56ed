"""How an item ends, or has ended, whose tenant moves: what explanations and results say."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead import App, Cause, ItemFailed, NoResult, ResultPending, Retry, StoreUnavailable
from fairlead.queries.items import read_item
from fairlead.testing import ManualClock, drain
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.queue.results import Pending, ending
from fairlead.zones.reporting import completion_log
from tests.zones.faults import FaultyDatabase

ALICE = "shop/alice"


@pytest.fixture
def app() -> Iterator[App]:
    made = App({"main": "memory:", "us2": "memory:"}, clock=ManualClock())
    made.handler("mail")(lambda job: None)

    @made.handler("fails", drop=True, retry=Retry(attempts=1))
    def fails(job: Any) -> None:
        raise ValueError("no such address")

    made.tenant(ALICE).transact(lambda tr: tr.set(("order",), b"paid"))
    assert made.tenant(ALICE).shard.name == "main"
    yield made
    made.close()


def move(app: App, to: str) -> None:
    app.move(ALICE, to=to)
    drain(app)
    assert app.tenant(ALICE).find().name == to


def test_an_explanation_says_how_an_item_ended_before_its_tenant_moved(app: App) -> None:
    """Before, it said that there was no such item."""
    handle = app.tenant(ALICE).enqueue("mail")
    drain(app)
    before = handle.explain()
    move(app, "us2")
    for said in (handle.explain(), app.explain(handle.item_id)):
        assert (said.cause, said.kind, said.shard) == (Cause.COMPLETED, "mail", "us2")
        assert (said.details["ended_us"], said.details["ended_on"]) == (before.details["ended_us"], "main")
    move(app, "main")
    assert handle.explain().cause is Cause.COMPLETED


def test_a_result_says_how_an_item_ended_before_its_tenant_moved(app: App) -> None:
    """Before, an item that had failed for good was reported as one without a result."""
    alice = app.tenant(ALICE)
    failed, cancelled = alice.enqueue("fails"), alice.enqueue("mail", delay=60)
    drain(app, raise_errors=False)
    cancelled.cancel()
    move(app, "us2")
    with pytest.raises(ItemFailed):
        failed.result(timeout=0)
    with pytest.raises(NoResult, match="ended='cancelled'"):
        cancelled.result(timeout=0)
    with pytest.raises(NoResult, match="ended=None"):
        alice.item("never").result(timeout=0)


def test_the_last_end_of_a_name_counts_wherever_it_was(app: App) -> None:
    alice = app.tenant(ALICE)
    handle = alice.enqueue("mail", item_id="hello")
    drain(app)
    move(app, "us2")
    app.clock.sleep_us(1_000_000)
    alice.enqueue("mail", item_id="hello", delay=60).cancel()
    assert handle.explain().cause is Cause.CANCELLED
    move(app, "main")
    assert handle.explain().cause is Cause.CANCELLED


def test_the_page_of_an_item_shows_its_end_before_the_move(app: App) -> None:
    handle = app.tenant(ALICE).enqueue("mail")
    drain(app)
    move(app, "us2")
    found = read_item(app.shards["us2"], app.tenant(ALICE).tenant, "queue", handle.item_id, shards=app.shards)
    assert [event.what for event in found.history] == ["completed"]


def test_a_shard_that_cannot_be_read_is_named(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = app.tenant(ALICE).enqueue("mail")
    drain(app)
    move(app, "us2")

    def away(*_: object) -> None:
        raise StoreUnavailable("the disk is gone", remedy="Mount it.")

    monkeypatch.setattr(app.shards["main"].db, "create_transaction", away)
    said = handle.explain()
    assert said.cause is Cause.NEVER_SEEN
    assert said.sentence.endswith("; shard main, where its tenant may have lived, cannot be read")


def test_a_tenant_that_never_moved_costs_no_read_of_other_shards(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = app.tenant(ALICE).enqueue("mail")
    drain(app)
    find, found = completion_log.find, []
    monkeypatch.setattr(completion_log, "find", lambda *args: (found.append(1), find(*args))[1])
    assert handle.explain().cause is Cause.COMPLETED
    assert len(found) == 1


class OtherEnginesError(Exception):
    """What another engine raises."""


class LostWatch:
    """A watch that its engine has lost."""

    def is_ready(self) -> bool:
        return True

    def wait(self) -> None:
        raise OtherEnginesError

    def cancel(self) -> None:
        """There is nothing to cancel."""


@pytest.mark.parametrize("is_async", [False, True])
def test_a_wait_survives_a_lost_watch_of_the_engine_to_which_the_tenant_has_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    """Before, it knew the errors of the engine that the tenant had left."""
    clock, urls = ManualClock(), {name: f"embedded:{tmp_path / name}" for name in ("main", "us2")}
    app, mover = App(urls, clock=clock), App(urls, clock=clock)
    app.tenant(ALICE).transact(lambda tr: tr.set(("order",), b"paid"))
    handle = app.tenant(ALICE).enqueue("mail", delay=3_600)
    us2 = app.shards["us2"]
    move(mover, "us2")
    us2.db = other = FaultyDatabase(us2.db)
    other.errors = (OtherEnginesError,)

    def lost(tr: Any, location: ZoneLocation, item_id: bytes) -> Any:
        found = ending(tr, location, item_id)
        return Pending(LostWatch()) if isinstance(found, Pending) else found

    monkeypatch.setattr("fairlead.zones.queue.results.ending", lost)
    with pytest.raises(ResultPending):
        asyncio.run(handle.aresult(timeout=0.1)) if is_async else handle.result(timeout=1)
    app.close()
    mover.close()
