"""The pages that list who waits, and what is delayed, list items in shards and in PostgreSQL the same."""

from __future__ import annotations

import pytest

from fairlead import App, Config, Job, Retry
from fairlead.dashboard import pages
from fairlead.queries.queues import DELAYED_OF_QUEUE_MAX, TenantWaiting
from fairlead.testing import drain
from fairlead.zones.postgresql import inspection
from tests.fairlead.both_kinds.queues import Queues
from tests.fairlead.dashboard.asking import open_site, read

AWAY = "postgresql://127.0.0.1:1/none"
IN_STORE = pytest.mark.parametrize("store", ["pg"])


def note_arrivals(app: App) -> None:
    """Have the shards point to what lies in PostgreSQL. Nothing runs: no kind here has a handler."""
    app.handler("another kind")(lambda job: None)
    assert not drain(app).completed


def waiting(app: App, **query: str) -> list[TenantWaiting]:
    """Return the rows of the page of tenants."""
    note_arrivals(app)
    rows: list[TenantWaiting] = pages.tenants(app, query)["rows"]
    return rows


def test_tenants_are_listed_with_the_most_items_first(app: App, alice: Queues, bob: Queues) -> None:
    alice.enqueue("mail")
    for kind in ("mail", "report", "report"):
        bob.enqueue(kind, zone="slow")
    assert [(row.tenant.user, row.waiting, row.whole) for row in waiting(app)] == [
        ("bob", {"mail": 1, "report": 2}, True),
        ("alice", {"mail": 1}, True),
    ]


def test_the_oldest_due_item_says_since_when_a_tenant_waits(app: App, alice: Queues, bob: Queues) -> None:
    before_us = app.clock.now_us()
    alice.enqueue("mail")
    bob.enqueue("mail", delay=3600)
    rows = {row.tenant.user: row.oldest_us for row in waiting(app)}
    assert rows["alice"] is not None
    assert before_us - 1_000_000 <= rows["alice"] <= app.clock.now_us()
    assert rows["bob"] is None


def test_the_page_of_a_kind_lists_the_tenants_with_items_of_it(app: App, alice: Queues, bob: Queues) -> None:
    alice.enqueue("mail")
    alice.enqueue("report")
    bob.enqueue("report")
    note_arrivals(app)
    rows = pages.kind(app, {"kind": "mail"})["tenants"]
    assert [(row.tenant.user, row.waiting["mail"], row.total) for row in rows] == [("alice", 1, 2)]


@IN_STORE
def test_a_tenants_items_in_both_places_are_one_row(app: App, alice: Queues) -> None:
    app.control.limit_tenant("shop/alice", max_running=3)
    alice.enqueue("mail")
    app.tenant("shop", "alice").enqueue("mail")
    (row,) = waiting(app)
    assert (row.waiting, row.policy is not None) == ({"mail": 2}, True)
    (row,) = pages.kind(app, {"kind": "mail"})["tenants"]
    assert row.total == 2


@IN_STORE
def test_a_queue_with_very_many_items_is_counted_up_to_a_bound(
    app: App, alice: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "COUNTED_OF_QUEUES", 3)
    for _ in range(4):
        alice.enqueue("mail")
    (row,) = waiting(app)
    assert (row.total, row.whole) == (3, False)
    assert "3 or more" in read(open_site(app), "/tenants", {}).text


def test_delayed_items_are_listed_the_next_to_vest_first(app: App, alice: Queues, bob: Queues) -> None:
    alice.enqueue("mail", item_id="later", delay=7200)
    bob.enqueue("report", {"page": 7}, item_id="sooner", delay=3600, zone="slow", priority=3)
    alice.enqueue("mail", item_id="due")
    note_arrivals(app)
    found = pages.delayed(app, {})
    assert [row.record.given_id for row in found["rows"]] == ["sooner", "later"]
    assert found["whole"]
    page = read(open_site(app), "/delayed", {}).text
    assert page.index("sooner") < page.index("later")
    assert "page" in page


def test_an_item_that_waits_for_a_retry_is_listed_with_its_error(app: App, alice: Queues) -> None:
    @app.handler("mail", retry=Retry(backoff=3600))
    def send(job: Job) -> None:
        raise OSError("no printer")

    alice.enqueue("mail")
    drain(app, raise_errors=False)
    (row,) = pages.delayed(app, {})["rows"]
    assert (row.record.error_count, row.record.last_error) == (1, "OSError: no printer")


def test_more_delayed_items_of_a_queue_than_are_read_are_said(app: App, alice: Queues) -> None:
    for number in range(DELAYED_OF_QUEUE_MAX + 2):
        alice.enqueue("mail", delay=3600 + number, item_id=f"{number}")
    note_arrivals(app)
    found = pages.delayed(app, {})
    assert not found["whole"]
    assert [row.record.given_id for row in found["rows"]] == [str(number) for number in range(DELAYED_OF_QUEUE_MAX)]


@IN_STORE
def test_a_long_payload_is_not_read_for_the_list(app: App, alice: Queues) -> None:
    alice.enqueue("mail", "x" * 5_000, delay=3600)
    note_arrivals(app)
    assert "5,003 bytes" in read(open_site(app), "/delayed", {}).text


@IN_STORE
@pytest.mark.parametrize("path", ["/tenants", "/kind", "/delayed"])
def test_a_store_that_is_away_is_said_on_the_page(app: App, alice: Queues, path: str) -> None:
    alice.enqueue("mail", delay=3600)
    note_arrivals(app)
    config = app.config
    app.close()
    other = App(config=Config(shards=config.shards, external={"pg": AWAY}))
    query = {"kind": "mail"} if path == "/kind" else {}
    page = read(open_site(other), path, query).text
    other.close()
    assert "External store pg cannot be read" in page
