"""The pages: groups of dead letters, a kind, periodic work, tenants by name, an item's history."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from random import Random
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from fairlead import App, Job, Retry
from fairlead.dashboard import pages
from fairlead.dashboard.actions import action_of
from fairlead.queries import tenants
from fairlead.testing import ManualClock, drain
from fairlead.zones.policy.policies import change_kind_policy
from fairlead.zones.records import DeadLetterRecord, decode, encode
from tests.fairlead.dashboard.asking import open_site, read


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def app(clock: ManualClock) -> Iterator[App]:
    """An application: `mail` fails for good with the payload as its error, and `fax` is retried."""
    made = App("memory:", clock=clock, random=Random(5))

    def fail(job: Job) -> None:
        raise ValueError(job.payload)

    made.handler("mail", permanent=(ValueError,))(fail)
    made.handler("index", permanent=(ValueError,))(fail)
    made.handler("fax", retry=Retry(attempts=3))(fail)
    yield made
    made.close()


def text_of(app: App, path: str, /, **query: str) -> str:
    answer = read(open_site(app), path, query)
    assert answer.status == 200, answer.text
    return answer.text


def fail(app: App, user: str, *errors: str, kind: str = "mail") -> None:
    for error in errors:
        app.tenant("shop", user).enqueue(kind, error)
        drain(app, raise_errors=False)
        app.clock.sleep_us(1)  # So that their times differ.


def rows(text: str) -> list[list[str]]:
    """Return the cells of each row of a page's tables, as text."""
    found = []
    for row in re.findall(r"<tr data-key.*?</tr>", text, re.S):
        cells = re.findall(r"<t[hd] .*?</t[hd]>", row, re.S)
        found.append([" ".join(unescape(re.sub(r"<[^>]*>", " ", cell)).split()) for cell in cells])
    return found


def link_of(text: str, label: str) -> dict[str, Any]:
    """Return the query of the first link with this label."""
    (first, *_) = re.findall(rf'href="([^"]*)"[^>]*>{label}</a>', text)
    return {name: value for name, (value,) in parse_qs(urlsplit(unescape(first)).query).items()}


# --- Dead letters in groups ---


def test_dead_letters_of_one_kind_and_one_error_are_one_group(app: App, clock: ManualClock) -> None:
    fail(app, "alice", "no order 17", "no order 18")
    clock.advance(3_600)
    fail(app, "bob", "no order 19", "the mail server timed out")
    fail(app, "bob", "no order 20", kind="index")
    found = rows(text_of(app, "/dead-letters"))
    assert [row[:4] for row in found] == [
        ["ValueError: no order …", "mail", "3", "2"],
        ["ValueError: no order …", "index", "1", "1"],
        ["ValueError: the mail server timed out", "mail", "1", "1"],
    ]
    assert found[0][4:6] == ["60 min ago", "0 ms ago"]


def test_a_group_leads_to_its_items_and_to_no_others(app: App) -> None:
    fail(app, "alice", "no order 17", "no address", "no order 18")
    text = text_of(app, "/dead-letters")
    items = text_of(app, "/dead-letters/items", **link_of(text, "ValueError: no order …"))
    assert items.count('<article class="card"') == 2
    assert "no address" not in items
    assert "no order 17" in items


@pytest.mark.parametrize(("label", "left"), [("Retry", {"mail": 2}), ("Discard", {})])
def test_a_group_is_retried_and_discarded_as_a_whole_and_alone(app: App, label: str, left: dict[str, int]) -> None:
    fail(app, "alice", "no order 17", "no address", "no order 18")
    text = text_of(app, "/dead-letters")
    query = link_of(text, label)
    asked = text_of(app, f"/do/{label.lower()}", **query)
    assert "2 items" in asked
    assert "signature ValueError: no order …" in asked
    what = done(app, label.lower(), query)
    assert what.startswith(("Retried 2 items", "Discarded 2 items"))
    assert app.tenant("shop", "alice").count() == left
    assert [each.error for each in app.tenant("shop", "alice").dead_letters()] == ["ValueError: no address"]


def done(app: App, what: str, query: dict[str, str]) -> str:
    """Confirm an action; return the text of the next page."""
    return action_of(app, what, query).do(app.operator)


def test_groups_are_those_of_the_latest_dead_letters_and_the_page_says_so(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.queries.dead_letter_groups.SCANNED_PER_PAGE_MAX", 4)
    monkeypatch.setattr(tenants, "SCANNED_MAX", 3)
    fail(app, "alice", "old", "old", "new", "new", "new")
    text = text_of(app, "/dead-letters")
    assert [row[0:3:2] for row in rows(text)] == [["ValueError: new", "3"], ["ValueError: old", "1"]]
    assert "Of the latest 4 dead letters; there are more" in text
    hidden = text_of(app, "/dead-letters", error="never said")
    assert "None of the latest 4 dead letters matches." in hidden


def test_a_group_without_text_is_retried_alone(app: App) -> None:
    """Before, an empty signature in a link meant all errors of the kind."""
    fail(app, "alice", "no order 17", "no address")
    text_left_out(app, "no address")
    text = text_of(app, "/dead-letters")
    assert ["(no text)", "mail", "1"] in [row[:3] for row in rows(text)]
    query = {"kind": "mail", "many": "1", "signature": "(no text)"}
    assert link_of(text, re.escape("(no text)")) == {"kind": "mail", "signature": "(no text)"}
    assert done(app, "discard", query) == "Discarded 1 item."


def text_left_out(app: App, error: str) -> None:
    """Store a dead letter's error as an empty text."""
    tenant = app.tenant("shop", "alice")
    (item_id,) = [each.id for each in tenant.dead_letters() if error in each.error]
    key = tenant.shard.layout.location(tenant.tenant, "queue").keys.dead_letter(item_id)

    def body(attempt: Any) -> None:
        record = decode(DeadLetterRecord, attempt.tr.get(key).value or b"")
        assert record is not None
        record.error = ""
        attempt.tr.set(key, encode(record))

    tenant.shard.transact(body)


def test_dead_letters_of_an_app_are_shown_and_discarded_alone(app: App) -> None:
    """Before, an app without a user was refused with an error page."""
    fail(app, "alice", "no order 17")
    fail(app, "bob", "no order 18")
    app.tenant("shoes", "alice").enqueue("mail", "no order 19")
    drain(app, raise_errors=False)
    text = text_of(app, "/dead-letters", app="shop")
    assert [row[:4] for row in rows(text)] == [["ValueError: no order …", "mail", "2", "2"]]
    assert 'name="app" value="shop"' in text
    query = link_of(text, "Discard them")
    assert "all dead letters of app shop?" in text_of(app, "/do/discard", **query)
    assert done(app, "discard", query) == "Discarded 2 items."
    assert len(app.tenant("shoes", "alice").dead_letters()) == 1


def test_without_dead_letters_the_page_says_so(app: App) -> None:
    assert "No dead letters." in text_of(app, "/dead-letters")
    fail(app, "alice", "no")
    assert "No dead letters match." in text_of(app, "/dead-letters", kind="index")


def test_groups_of_several_shards_are_one(tmp_path: Any) -> None:
    made = App({name: f"embedded:{tmp_path / name}" for name in ("eu", "us")})
    made.handler("mail", permanent=(ValueError,))(refuse)
    made.enqueue_everywhere("mail")
    drain(made, raise_errors=False)
    assert [row[0:3:2] for row in rows(text_of(made, "/dead-letters"))] == [["ValueError: no", "2"]]
    made.close()


@pytest.mark.parametrize("path", ["/dead-letters", "/dead-letters/items"])
def test_dead_letters_of_one_shard_are_shown_and_retried_alone(tmp_path: Any, path: str) -> None:
    """Before, the page showed one shard, and its buttons acted on all."""
    made = App({name: f"embedded:{tmp_path / name}" for name in ("eu", "us")})
    made.handler("mail", permanent=(ValueError,))(refuse)
    made.enqueue_everywhere("mail")
    drain(made, raise_errors=False)
    text = text_of(made, path, shard="eu")
    assert "Only on shard eu." in re.sub(r"\s+", " ", text)
    query = link_of(text, "Retry them")
    assert "1 item goes back" in text_of(made, "/do/retry", **query)
    assert 'type="hidden" name="shard" value="eu"' in text
    answer = read(open_site(made), path, {"shard": "asia"})
    assert (answer.status, "no shard of this name" in answer.text.lower()) == (404, True)
    made.close()


def test_the_filter_of_local_items_stays_when_it_is_sent_again(app: App) -> None:
    """Before, the form sent the kind as a user without an app, which was refused."""
    app.enqueue_everywhere("mail", "no")
    drain(app, raise_errors=False)
    text = text_of(app, "/dead-letters", local="mail")
    assert 'type="hidden" name="local" value="mail"' in text
    assert 'name="user"' not in text
    assert "Only local items of kind mail." in re.sub(r"\s+", " ", text)


def refuse(job: Job) -> None:
    raise ValueError("no")


# --- One kind ---


def test_the_page_of_a_kind_says_whose_items_wait_most_first(app: App) -> None:
    for user, count in (("alice", 1), ("bob", 3), ("carol", 2)):
        for _ in range(count):
            app.tenant("shop", user).enqueue("mail")
    app.tenant("shop", "dora").enqueue("index")
    app.tenant("shop", "bob").enqueue("index")
    text = text_of(app, "/kind", kind="mail")
    assert [row[:3] for row in rows(text)] == [
        ["shop/bob", "3", "4"],
        ["shop/carol", "2", "2"],
        ["shop/alice", "1", "1"],
    ]
    assert "Counted in all 4 active queues." in text


def test_the_page_of_a_kind_reads_a_bounded_number_of_queues_and_says_so(
    app: App, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.queries.queues.QUEUES_MAX", 3)
    for number in range(5):
        app.tenant("shop", f"user-{number}").enqueue("mail")
        clock.advance(1e-6)
    text = text_of(app, "/kind", kind="mail")
    assert len(rows(text)) == 3
    assert "Counted in 3 active queues, the first in line. There are more." in text


def test_the_page_of_a_kind_shows_its_policies_and_pauses_it(app: App) -> None:
    app.control.limit_kind("mail", max_running=3)
    app.control.pause_kind("mail")
    text = text_of(app, "/kind", kind="mail")
    assert "at most 3 at once" in text
    assert link_of(text, "Resume") == {"kind": "mail", "back": "/kind?kind=mail"}


def test_one_policy_of_all_shards_is_shown_once_and_several_with_their_shards(tmp_path: Any) -> None:
    made = App({name: f"embedded:{tmp_path / name}" for name in ("eu", "us")})
    made.control.pause_kind("mail")
    for path in ("/kinds", "/kind"):
        assert text_of(made, path, kind="mail").count(">paused<") == 1
    made.shards["eu"].transact(
        lambda attempt: change_kind_policy(attempt.tr, "mail", now_us=attempt.now_us, max_running=3)
    )
    for path in ("/kinds", "/kind"):
        text = text_of(made, path, kind="mail")
        assert text.count(">paused<") == 2
        assert text.count('<span class="quiet">eu</span>') == text.count('<span class="quiet">us</span>') == 1
    made.close()


def test_the_page_of_a_kind_shows_its_latest_failures_by_group(app: App) -> None:
    fail(app, "alice", "no order 17", "no order 18")
    fail(app, "alice", "never shown here", kind="index")
    text = text_of(app, "/kind", kind="mail")
    assert ["ValueError: no order …", "2", "1"] in [row[:3] for row in rows(text)]
    assert "never shown here" not in text


def test_the_page_of_a_kind_says_so_if_only_later_dead_letters_of_others_were_read(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, the page said that there are none."""
    monkeypatch.setattr("fairlead.queries.dead_letter_groups.SCANNED_PER_PAGE_MAX", 2)
    monkeypatch.setattr(tenants, "SCANNED_MAX", 2)
    fail(app, "alice", "no")
    fail(app, "alice", "no", "no", kind="index")
    assert "None of the latest 2 dead letters is of this kind. There are more." in text_of(app, "/kind", kind="mail")
    assert "Of the latest 2 dead letters of all kinds; there are more" in text_of(app, "/kind", kind="index")


def test_the_page_of_a_kind_counts_the_tenants_that_it_leaves_out(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, the page said that there are more queues, although it had read all."""
    monkeypatch.setattr(pages, "TENANTS_OF_KIND_MAX", 2)
    for user in ("alice", "bob", "carol", "dora"):
        app.tenant("shop", user).enqueue("mail")
    app.tenant("shop", "edsger").enqueue("index")
    app.control.pause_tenant("shop", "frances")
    text = text_of(app, "/kind", kind="mail")
    assert [row[0] for row in rows(text)] == ["shop/alice", "shop/bob"]
    assert "Counted in all 5 active queues. 2 more tenants have items of this kind there." in text


def test_the_page_of_an_unknown_kind_says_so(app: App) -> None:
    app.tenant("shop", "alice").enqueue("misspelt")
    text = text_of(app, "/kind", kind="misspelt")
    assert "no live consumer handles it<" in text
    assert "shop/alice" in text


def test_the_list_of_kinds_leads_to_each(app: App) -> None:
    app.tenant("shop", "alice").enqueue("mail")
    assert link_of(text_of(app, "/kinds"), "mail") == {"kind": "mail"}


# --- Periodic work ---


def test_periodic_work_is_listed_by_its_next_tick(app: App, clock: ManualClock) -> None:
    app.every(3_600, kind="sweep")(refuse)
    app.every(60, kind="tidy")(refuse)
    drain(app, raise_errors=False)
    found = rows(text_of(app, "/periodic"))
    assert [(row[0], row[2]) for row in found] == [("tidy", "60 s"), ("sweep", "60 min")]
    assert found[0][1].startswith("in ")
    clock.advance(200)
    late = rows(text_of(app, "/periodic"))[0]
    assert late[0] == "tidy"
    assert "overdue: no live consumer enqueues it" in late[1]
    assert "Next tick" in text_of(app, "/kind", kind="tidy")


def test_without_periodic_work_the_page_says_how_there_is_some(app: App) -> None:
    assert "No periodic work." in text_of(app, "/periodic")


# --- Tenants by name ---


@pytest.fixture
def customers(app: App) -> App:
    for name in ("alice", "alan", "bob"):
        app.tenant("shop", name).enqueue("mail")
    app.tenant("a/b", "carol").enqueue("mail")
    app.tenant("shoes", "alfred").transact(lambda tr: tr.set(("key",), b"value"))
    app.enqueue_everywhere("mail")
    return app


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("al", ["shoes/alfred", "shop/alan", "shop/alice"]),
        ("shop", ["shop/alan", "shop/alice", "shop/bob"]),
        ("sho", ["shoes/alfred", "shop/alan", "shop/alice", "shop/bob"]),
        ("shop/al", ["shop/alan", "shop/alice"]),
        ("shop/alice", ["shop/alice"]),
        ("shop/", ["shop/alan", "shop/alice", "shop/bob"]),
        ("/al", []),
        ("a//b", ["a//b/carol"]),
        ("a//b/c", ["a//b/carol"]),
        ("alicia", []),
        ("mail", []),
    ],
)
def test_tenants_are_found_by_the_beginning_of_their_names(customers: App, text: str, found: list[str]) -> None:
    """By app, by user, or both. Local items are no tenant; a tenant may have keys and no item."""
    for path, query in (("/tenants", {"find": text}), ("/search", {"q": text})):
        shown = text_of(customers, path, **query)
        part = shown.partition('<ul class="plain">')[2].partition("</ul>")[0]
        assert re.findall(r">([\w/]+)</a>", part) == found
        assert ("No tenant has" in shown) == (not found)


def test_an_app_is_found_however_many_apps_come_before_it(customers: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, only the first apps were read, so the last app of many was not found by its name."""
    monkeypatch.setattr("fairlead.zones.tenant_search.APPS_MAX", 2)
    text = text_of(customers, "/tenants", find="shop")
    assert re.findall(r">(shop/[a-z]+)</a>", text.partition('<ul class="plain">')[2].partition("</ul>")[0]) == [
        "shop/alan", "shop/alice", "shop/bob"
    ]  # fmt: skip
    assert "there may be more" in text


def test_a_page_with_too_many_tenants_says_that_there_are_more(customers: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "TENANTS_FOUND_MAX", 2)
    text = text_of(customers, "/tenants", find="shop/")
    assert "there may be more" in text
    assert "shop/bob" not in text.partition('<ul class="plain">')[2].partition("</ul>")[0]


# --- An item's history ---


def events(text: str) -> list[str]:
    return [unescape(each) for each in re.findall(r"<strong>([^<]*)</strong>", text.partition('class="history"')[2])]


def test_the_history_of_an_item_that_is_tried_again(app: App, clock: ManualClock) -> None:
    item_id = app.tenant("shop", "alice").enqueue("fax", "busy", item_id="fax-7").item_id
    clock.advance(1)
    drain(app, raise_errors=False)
    text = text_of(app, "/item", app="shop", user="alice", id=item_id.hex())
    attempts = app.tenant("shop", "alice").explain(item_id).attempts.raised
    assert events(text) == ["Enqueued", f"Attempt {attempts} leased, and failed", f"Attempt {attempts + 1} is due"]
    assert "ValueError: busy" in text.partition('class="history"')[2]


def test_the_history_of_an_item_names_its_failure_and_what_operators_did(app: App, clock: ManualClock) -> None:
    item_id = app.tenant("shop", "alice").enqueue("mail", "no", item_id="mail-7").item_id
    for _ in range(2):
        clock.advance(1)
        drain(app, raise_errors=False)
        clock.advance(1)
        dead = text_of(app, "/item", app="shop", user="alice", id=item_id.hex())
        app.tenant("shop", "alice").retry_dead_letter("mail-7", by=app.operator)
    assert events(dead) == [
        "Enqueued", "Retry", "Due, after a delay, a wait, or a retry by an operator", "Attempt 1 leased",
        "Failed for good",
    ]  # fmt: skip
    assert app.operator.name in dead


def test_the_history_of_an_item_that_ended_says_in_which_attempt(app: App) -> None:
    app.handler("note")(lambda job: None)
    item_id = app.tenant("shop", "alice").enqueue("note").item_id
    drain(app)
    text = text_of(app, "/item", app="shop", user="alice", id=item_id.hex())
    assert events(text) == ["Completed"]
    assert "in attempt 1" in text


def test_an_item_page_is_titled_with_the_name_that_the_item_was_given(app: App) -> None:
    item_id = app.tenant("shop", "alice").enqueue("mail", "no", item_id="order-7").item_id
    for dead in (False, True):
        if dead:
            drain(app, raise_errors=False)
        text = text_of(app, "/item", app="shop", user="alice", id=item_id.hex())
        assert "<title>Item order-7 · Fairlead</title>" in text
        assert '<h1>Item <span class="given">order-7</span></h1>' in text
        assert f'<dt>Id</dt><dd class="id">{item_id.hex()}</dd>' in text


def test_an_item_page_shows_the_keys_by_which_the_item_is_found(app: App) -> None:
    keys: dict[str, str | int] = {"order": 7, "city": "<Ulm>", "text": "x" * 100}
    item_id = app.tenant("shop", "alice").enqueue("mail", "no", keys=keys).item_id
    for dead in (False, True):
        if dead:
            drain(app, raise_errors=False)
        text = text_of(app, "/item", app="shop", user="alice", id=item_id.hex())
        assert "<dt>Keys</dt><dd>order=7, city=&lt;Ulm&gt;, text=(long)</dd>" in text


def test_search_shows_no_empty_list_of_tenants_beside_an_item(app: App) -> None:
    app.tenant("shop", "alice").enqueue("mail", item_id="order-7")
    assert "No tenant has" not in text_of(app, "/search", q="order-7")
    assert "No tenant has" in text_of(app, "/search", q="order-8")


def test_search_shows_an_item_by_the_name_that_was_typed_and_no_command_to_type(app: App) -> None:
    item_id = app.tenant("shop", "alice").enqueue("mail", "no", item_id="order-7").item_id
    drain(app, raise_errors=False)
    by_name, by_id = (text_of(app, "/search", q=typed) for typed in ("order-7", item_id.hex()))
    assert ">order-7</a>" in by_name
    assert f">{item_id.hex()}</a>" in by_id
    assert "it failed for good: ValueError: no</p>" in by_name


# --- Names that browsers change or show wrongly ---


@pytest.mark.parametrize("user", ["a\nb", "a\rb", " a ", "a\u202eb"])
def test_an_action_names_its_target_in_the_address_of_its_form(app: App, user: str) -> None:
    """Browsers send a line end in a field as two characters. Before, another tenant was paused."""
    app.tenant("shop", user).enqueue("mail")
    asked = text_of(app, "/do/pause", app="shop", user=user)
    (target,) = re.findall(r'<form method="post" action="/do/pause\?([^"]*)"', asked)
    assert parse_qs(unescape(target)) == {"app": ["shop"], "user": [user]}
    assert 'name="user"' not in asked


def test_characters_that_turn_the_text_around_are_spelled_out_in_questions(app: App) -> None:
    app.tenant("shop", "a\u202eb").enqueue("mail")
    assert "Pause tenant shop/a\\u202eb?" in text_of(app, "/do/pause", app="shop", user="a\u202eb")
    assert "\u202e" not in text_of(app, "/tenants")


def test_a_link_takes_any_parameter(app: App) -> None:
    assert "Pause kind mail?" in text_of(app, "/do/pause", kind="mail", path="x", query="y")


def test_an_address_may_name_a_tenant_as_it_is_printed(customers: App) -> None:
    assert "<h1>shop/alice" in read(open_site(customers), "/tenant", {"app": "shop/alice"}).text
    assert read(open_site(customers), "/tenant", {"app": "shop"}).status == 400
