"""Items that ended on the shard where their tenant lived before it moved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fairlead import App, Cause, ItemFailed, NoResult, Retry, StoreUnavailable
from fairlead.queries.items import read_item
from fairlead.testing import ManualClock, drain
from fairlead.zones.reporting import completion_log

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
