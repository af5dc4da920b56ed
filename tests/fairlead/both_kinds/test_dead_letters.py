"""Dead letters of shards and of PostgreSQL: in groups by error on the dashboard; retried or discarded by a filter."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from fairlead import App, Config, DeadLetterFilter, Job, Tenant
from fairlead.dashboard.actions import action_of
from fairlead.external_stores import open_stores
from fairlead.testing import drain
from tests.fairlead.both_kinds.queues import Queues
from tests.fairlead.dashboard.asking import open_site, read


@pytest.fixture
def failing(app: App) -> App:
    """The application, with handlers that fail for good with the payload as their error."""

    def fail(job: Job) -> None:
        raise ValueError(job.payload)

    app.handler("mail", permanent=(ValueError,))(fail)
    app.handler("index", permanent=(ValueError,))(fail)
    return app


def fail(app: App, queues: Queues, *errors: str, kind: str = "mail") -> None:
    """Make one dead letter for each error."""
    for error in errors:
        queues.enqueue(kind, error)
    drain(app, raise_errors=False)


def text_of(app: App, path: str, /, **query: str) -> str:
    """Return a page of the dashboard."""
    answer = read(open_site(app), path, query)
    assert answer.status == 200, answer.text
    return answer.text


def rows(text: str) -> list[list[str]]:
    """Return the first four cells of each row of a page's tables: error, kind, items, tenants."""
    found = []
    for row in re.findall(r"<tr data-key.*?</tr>", text, re.S):
        cells = re.findall(r"<t[hd] .*?</t[hd]>", row, re.S)
        found.append([" ".join(unescape(re.sub(r"<[^>]*>", " ", cell)).split()) for cell in cells][:4])
    return found


def link_of(text: str, label: str) -> dict[str, Any]:
    """Return the query of the first link with this label."""
    (first, *_) = re.findall(rf'href="([^"]*)"[^>]*>{label}</a>', text)
    return {name: value for name, (value,) in parse_qs(urlsplit(unescape(first)).query).items()}


def errors_of(queues: Queues) -> list[str]:
    """Return the errors of the dead letters of a tenant."""
    return sorted(each.error for each in queues.dead_letters())


# --- In groups ---


def test_dead_letters_of_one_kind_and_one_error_are_one_group(failing: App, alice: Queues, bob: Queues) -> None:
    """Before, those in PostgreSQL were in no group."""
    fail(failing, alice, "no order 17", "no order 18")
    fail(failing, bob, "no order 19", "the mail server timed out")
    fail(failing, bob, "no order 20", kind="index")
    text = text_of(failing, "/dead-letters")
    assert sorted(rows(text)) == [
        ["ValueError: no order …", "index", "1", "1"],
        ["ValueError: no order …", "mail", "3", "2"],
        ["ValueError: the mail server timed out", "mail", "1", "1"],
    ]
    assert "5 dead letters in 3 groups" in text


def test_groups_are_filtered_by_kind_error_and_app(failing: App, alice: Queues) -> None:
    fail(failing, alice, "no order 17", "no address")
    fail(failing, alice, "no order 20", kind="index")
    assert len(rows(text_of(failing, "/dead-letters", kind="index"))) == 1
    assert [row[0] for row in rows(text_of(failing, "/dead-letters", error="address"))] == ["ValueError: no address"]
    assert rows(text_of(failing, "/dead-letters", app="shoes")) == []


def test_the_page_of_a_kind_shows_its_groups(failing: App, alice: Queues) -> None:
    fail(failing, alice, "no order 17", "no order 18")
    fail(failing, alice, "no order 20", kind="index")
    text = text_of(failing, "/kind", kind="mail")
    assert ["ValueError: no order …", "2", "1"] in [row[:3] for row in rows(text)]


@pytest.mark.parametrize(("label", "left"), [("Retry", {"mail": 2}), ("Discard", {})])
def test_a_group_is_retried_and_discarded_as_a_whole_and_alone(
    failing: App, alice: Queues, label: str, left: dict[str, int]
) -> None:
    fail(failing, alice, "no order 17", "no address", "no order 18")
    text = text_of(failing, "/dead-letters")
    items = text_of(failing, "/dead-letters/items", **link_of(text, "ValueError: no order …"))
    assert (items.count('<article class="card"'), "no address" in items) == (2, False)
    query = link_of(text, label)
    assert "2 items" in text_of(failing, f"/do/{label.lower()}", **query)
    assert action_of(failing, label.lower(), query).do(failing.operator).endswith(" 2 items.")
    assert alice.count() == left
    assert errors_of(alice) == ["ValueError: no address"]


@pytest.mark.parametrize("store", ["pg"])
def test_groups_of_a_shard_and_of_a_store_are_one(failing: App, alice: Queues) -> None:
    fail(failing, alice, "no order 17")
    fail(failing, failing.tenant("shop", "bob"), "no order 18")
    assert rows(text_of(failing, "/dead-letters")) == [["ValueError: no order …", "mail", "2", "2"]]


@pytest.mark.parametrize("store", ["pg"])
def test_of_many_dead_letters_in_a_store_the_oldest_are_grouped_and_the_page_says_so(
    failing: App, alice: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.queries.dead_letter_groups.SCANNED_PER_PAGE_MAX", 4)
    monkeypatch.setattr("fairlead.external_dead_letters.BULK_ITEMS_MAX", 2)
    fail(failing, alice, *(f"no order {number}" for number in range(5)))
    for path in ("/dead-letters", "/kind"):
        text = text_of(failing, path, kind="mail")
        assert "Of external store pg the oldest 4 dead letters were read; there are more." in text
        assert "4" in [cell for row in rows(text) for cell in row]


def test_more_errors_than_there_are_groups_are_said_to_be_more(
    failing: App, alice: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, the last stretch of dead letters that was read said whether there are more."""
    monkeypatch.setattr("fairlead.queries.dead_letter_groups.GROUPS_MAX", 1)
    monkeypatch.setattr("fairlead.queries.tenants.SCANNED_MAX", 1)
    monkeypatch.setattr("fairlead.external_dead_letters.BULK_ITEMS_MAX", 1)
    for error in ("no order", "no address", "no order"):
        fail(failing, alice, error)
    text = text_of(failing, "/dead-letters")
    assert [row[0] for row in rows(text)] == ["ValueError: no order"]
    assert "there are more" in text


@pytest.mark.parametrize("store", ["pg"])
def test_groups_of_shards_are_shown_while_a_store_is_away(
    failing: App, alice: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(failing, failing.tenant("shop", "bob"), "no order 18")
    away = open_stores(Config(external={"pg": "postgresql://127.0.0.1:1/none"}), failing.clock)
    with monkeypatch.context() as patched:
        patched.setattr(failing, "_externals", away)
        text = text_of(failing, "/dead-letters")
    assert "External store pg cannot be read" in text
    assert rows(text) == [["ValueError: no order …", "mail", "1", "1"]]


# --- By a filter ---

FILTERS: dict[str, DeadLetterFilter] = {
    "kind": DeadLetterFilter(kind="index"),
    "tenant": DeadLetterFilter(tenant=Tenant("shop", "bob")),
    "zone": DeadLetterFilter(tenant=Tenant("shop", "bob"), zone="queue"),
    "error": DeadLetterFilter(error="timed out"),
}


@pytest.mark.parametrize("chosen", FILTERS)
def test_dead_letters_that_match_a_filter_are_retried_and_others_stay(
    failing: App, alice: Queues, bob: Queues, chosen: str
) -> None:
    fail(failing, alice, "no order 17")
    fail(failing, bob, "timed out", kind="index")
    criteria = FILTERS[chosen]
    assert failing.retry_dead_letters(criteria, dry_run=True).by_kind == {"index": 1}
    assert bob.count() == {}
    assert failing.retry_dead_letters(criteria).by_kind == {"index": 1}
    assert (alice.count(), bob.count(), bob.dead_letters()) == ({}, {"index": 1}, [])
    assert errors_of(alice) == ["ValueError: no order 17"]


def test_all_dead_letters_are_discarded(failing: App, alice: Queues, bob: Queues) -> None:
    fail(failing, alice, "no order 17")
    fail(failing, bob, "timed out", kind="index")
    assert failing.discard_dead_letters(DeadLetterFilter()).count == 2
    assert (errors_of(alice), errors_of(bob), alice.count(), bob.count()) == ([], [], {}, {})


def test_dead_letters_of_before_a_time_are_discarded(failing: App, alice: Queues) -> None:
    fail(failing, alice, "old")
    (old,) = alice.dead_letters()
    fail(failing, alice, "new")
    criteria = DeadLetterFilter(before_us=old.dead_lettered_us + 1)
    assert failing.discard_dead_letters(criteria).count == 1
    assert errors_of(alice) == ["ValueError: new"]
