"""The page of a workflow's item: its steps as a timeline, what it waits for, its children, its undo."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from html import unescape
from random import Random
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import fairlead
from fairlead import App, Job, PermanentError, Retry, WorkflowContext
from fairlead.dashboard import timeline
from fairlead.testing import ManualClock, drain
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.fairlead.dashboard.asking import open_site, read
from tests.workflows.application import ELSEWHERE, HOME, add, two_shards

MARKUP = "<script>said()</script>"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def app(clock: ManualClock) -> Iterator[App]:
    made = App("memory:", clock=clock, random=Random(5))
    yield made
    made.close()


site_of = lru_cache(maxsize=1)(open_site)  # It compiles the templates.


def text_of(app: App, path: str, /, **query: str) -> str:
    answer = read(site_of(app), path, query)
    assert answer.status == 200, answer.text
    return answer.text


def item_page(app: App, handle: Any, tenant: str = HOME, **query: str) -> str:
    name, _, user = tenant.partition("/")
    return text_of(app, "/item", app=name, user=user, id=handle.item_id.hex(), **query)


def rows(text: str) -> list[dict[str, str]]:
    """Return the cells of each row of a page's tables, as text, by their labels."""
    found = []
    for row in re.findall(r"<tr data-key.*?</tr>", text, re.S):
        cells = re.findall(r'<t[hd][^>]*data-label="([^"]*)"[^>]*>(.*?)</t[hd]>', row, re.S)
        found.append({label: plain(cell) for label, cell in cells})
    return found


def plain(markup: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", markup)).replace(" ,", ",").split()).replace(" ,", ",")


def pairs(text: str) -> dict[str, str]:
    """Return the item's properties by their names."""
    return {
        plain(name): plain(value) for name, value in re.findall(r"<dt>(.*?)</dt>\s*<dd[^>]*>(.*?)</dd>", text, re.S)
    }


def bars(text: str) -> list[tuple[str, float, float]]:
    """Return the look of each bar, where it begins and where it ends, in percent of the axis."""
    found = re.findall(r'<rect class="(\w+)" x="([\d.]+)%" width="([\d.]+)%"', text)
    return [(look, float(begin), float(begin) + float(width)) for look, begin, width in found]


def slow(tr: TenantTransaction, app: App, seconds: float) -> float:
    app.clock.sleep_us(int(seconds * 1e6))
    return seconds


def fail(tr: TenantTransaction) -> None:
    raise RuntimeError("no carrier")


# --- Steps as a timeline ---


def test_the_steps_of_a_workflow_are_bars_along_one_axis(app: App, clock: ManualClock) -> None:
    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(lambda tr: slow(tr, app, 1), name="reserve")
        wf.effect(lambda key: slow(None, app, 2), name="pay")  # type: ignore[arg-type]
        wf.wait_for("approved", timeout=3600)

    handle = app.tenant(HOME).enqueue("w")
    drain(app)
    clock.advance(7)
    text = item_page(app, handle)
    assert [(row["No"], row["Step"], row["State"], row["Result or error"]) for row in rows(text)] == [
        ("0", "reserve step", "done", "1"),
        ("1", "pay effect", "done", "2"),
        ("2", "wait_for approved wait", "waits", "until in 60 min"),
    ]
    assert [row["Start and duration"] for row in rows(text)] == [
        "10 s ago, took 1.0 s",
        "9.0 s ago, took 2.0 s",
        "7.0 s ago, for 7.0 s so far",
    ]
    assert bars(text) == [("done", 0, 10), ("done", 10, 30), ("open", 30, 100)]
    assert "3 steps, over 10 s." in plain(text)


def test_the_page_of_a_workflow_that_waits_says_for_what_since_when_and_how_long(app: App, clock: ManualClock) -> None:
    app.workflow("w")(lambda wf: wf.wait_for("approved", timeout=3600))
    app.workflow("patient")(lambda wf: wf.wait_for("approved"))
    app.workflow("asleep")(lambda wf: wf.sleep(3600))
    handles = [app.tenant(HOME).enqueue(kind) for kind in ("w", "patient", "asleep")]
    drain(app)
    clock.advance(600)
    texts = [item_page(app, handle) for handle in handles]
    assert ["Due, after a delay, a wait" in plain(text) for text in texts] == [True, False, True]
    waiting, patient, asleep = map(pairs, texts)
    assert (waiting["Waits for"], waiting["Goes on"]) == ("signal approved since 10 min ago", "in 50 min at the latest")
    assert patient["Goes on"] == "when that has come: the wait has no timeout"
    assert "Vests" not in patient
    assert (asleep["Waits for"], asleep["Goes on"]) == ("its time since 10 min ago", "in 50 min")
    assert waiting["Begun by"] == "version 1 of its code, 10 min ago"


def test_a_step_that_is_tried_again_shows_its_tries(app: App) -> None:
    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(fail, name="ship", retry=Retry(attempts=9, backoff=60))

    handle = app.tenant(HOME).enqueue("w")
    drain(app)
    text = item_page(app, handle)
    (row,) = rows(text)
    assert (row["Step"], row["State"], row["Failed tries"]) == ("ship step", "is tried again", "1")
    assert row["Result or error"].startswith("RuntimeError: ")
    assert pairs(text)["Waits for"] == "the next try of its step"


def test_a_step_that_failed_shows_its_error_and_its_page_counts_a_repeated_attempt(app: App) -> None:
    def refuse(tr: TenantTransaction) -> None:
        raise PermanentError(MARKUP)

    @app.workflow("w", retry=Retry(attempts=9, backoff=60))
    def work(wf: WorkflowContext) -> None:
        try:
            wf.step(refuse, name="try it")
        except PermanentError:
            wf.step(fail, name="ship")

    handle = app.tenant(HOME).enqueue("w")
    drain(app, raise_errors=False)
    text = item_page(app, handle)
    (row,) = rows(text)
    assert (row["State"], row["Result or error"]) == ("failed", f"PermanentError: {MARKUP}")
    assert bars(text)[0][0] == "failed"
    assert "Its step ship failed once: RuntimeError: no carrier" in plain(text)


def test_steps_since_a_checkpoint_are_shown_with_what_it_kept(app: App) -> None:
    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        if wf.state is None:
            wf.step(add, "a")
            wf.checkpoint({"page": 7})
        wf.wait_for("go")

    handle = app.tenant(HOME).enqueue("w")
    drain(app)
    text = item_page(app, handle)
    assert pairs(text)["Checkpoints"] == '1 {"page": 7}'
    assert [row["Step"] for row in rows(text)] == ["wait_for go wait"]
    assert "1 step since the last checkpoint" in plain(text)


def test_many_steps_come_page_by_page_the_latest_first(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "STEPS_PER_PAGE", 3)

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        for _ in range(7):
            wf.step(add, "a")
        wf.wait_for("go")

    handle = app.tenant(HOME).enqueue("w")
    drain(app)
    seen, page = [item_page(app, handle)], "1"
    while earlier := re.search(r'href="([^"]*)">Earlier steps', seen[-1]):
        (page,) = parse_qs(urlsplit(unescape(earlier[1])).query)["page"]
        seen.append(item_page(app, handle, page=page))
    assert [[row["No"] for row in rows(text)] for text in seen] == [["5", "6", "7"], ["2", "3", "4"], ["0", "1"]]
    assert "3 of 8 steps" in plain(seen[0])
    assert [row["No"] for row in rows(item_page(app, handle, page="99"))] == ["0", "1"]
    query = {"app": "shop", "user": "alice", "id": handle.item_id.hex(), "page": "x"}
    assert read(site_of(app), "/item", query).status == 400


def test_a_log_longer_than_the_page_reads_says_so(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        for _ in range(7):
            wf.step(add, "a")
        wf.wait_for("go")

    handle = app.tenant(HOME).enqueue("w")
    drain(app, replays=False)
    monkeypatch.setattr("fairlead.zones.workflow.step_log.PAGE_ROWS", 4)
    assert "There are more, which this page does not read." in item_page(app, handle)


def test_an_item_that_is_no_workflow_has_no_timeline(app: App) -> None:
    text = item_page(app, app.tenant(HOME).enqueue("mail"))
    assert "<h2>Steps</h2>" not in text


# --- Children ---


def test_children_are_links_to_their_pages_and_lead_back(app: App) -> None:
    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.enqueue("mail", 7)
        wf.gather([fairlead.child("resize", number, delay=60 * number) for number in range(2)])

    @app.handler("resize")
    def resize(job: Job) -> None:
        pass

    handle = app.tenant(HOME).enqueue("w", item_id="album-7")
    drain(app, within=1)
    text = item_page(app, handle)
    assert pairs(text)["Waits for"].startswith("1 child: call resize (2)")
    links = {
        label.split()[0]: unescape(to)
        for to, label in re.findall(r'<a class="id" href="([^"]*)"[^>]*>([^<]*)</a>', text)
    }
    ended, open_one = (
        unescape(to) for to, _ in re.findall(r'<a class="id" href="([^"]*)"[^>]*>(child [^<]*)</a>', text)
    )
    assert urlsplit(ended).path == "/search", "it has ended, and may have been in any queue"
    assert "resize" in text_of(app, "/search", **query_of(ended))
    child = text_of(app, urlsplit(open_one).path, **query_of(open_one))
    assert pairs(child)["Kind"] == "resize"
    assert pairs(child)["Called by"].endswith("of shop/alice, in its step call resize (2)")
    (back,) = re.findall(r'<dt>Called by</dt><dd><a href="([^"]*)"', child)
    assert "<title>Item album-7" in text_of(app, "/item", **query_of(unescape(back)))
    assert pairs(text_of(app, "/item", **query_of(links["item"])))["Kind"] == "mail"


def query_of(link: str) -> dict[str, str]:
    return {name: value for name, (value,) in parse_qs(urlsplit(link).query).items()}


def test_a_child_on_another_shard_is_a_link_to_its_page_there() -> None:
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.call("resize", on=ELSEWHERE)

    handle = app.tenant(HOME).enqueue("w")
    drain(app)
    text = item_page(app, handle)
    (to,) = re.findall(r'<a class="id" href="([^"]*)"[^>]*>child ', text)
    assert "on shop/u1" in rows(text)[0]["Step"]
    assert pairs(text_of(app, "/item", **query_of(unescape(to))))["Queue"].endswith("on shard a")


# --- Undo, dead letters ---


def test_steps_that_are_undone_are_marked_with_the_reason(app: App) -> None:
    @app.workflow("w", retry=Retry(attempts=9, backoff=60))
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "a", name="reserve", undo=lambda tr, name: fail(tr))
        wf.step(add, "b", name="pay", undo=lambda tr, name: None)
        raise PermanentError("nobody approved")

    handle = app.tenant(HOME).enqueue("w")
    drain(app, raise_errors=False)
    text = item_page(app, handle)
    assert [(row["Step"], row["State"]) for row in rows(text)] == [
        ("reserve step", "done"),
        ("pay step", "done undone"),
        ("undo pay undo", "undo"),
    ]
    assert [look for look, _, _ in bars(text)] == ["done", "undo", "undo"]
    assert pairs(text)["Reason of its undo"] == "PermanentError: nobody approved"


def test_a_workflow_whose_cancellation_was_requested_says_so(app: App) -> None:
    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "a", undo=lambda tr, name: None)
        wf.wait_for("go")

    handle = app.tenant(HOME).enqueue("w")
    drain(app)
    handle.cancel()
    assert pairs(item_page(app, handle))["Reason of its undo"] == "its cancellation was requested"


def test_a_dead_letter_of_other_code_shows_both_lists_and_its_steps_stand_still(app: App, clock: ManualClock) -> None:
    names = iter([MARKUP, "ship"])

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "a", name=next(names))
        wf.wait_for("go")

    handle = app.tenant(HOME).enqueue("w")
    drain(app, raise_errors=False)
    clock.advance(600)
    text = item_page(app, handle)
    assert "Recorded steps beside those of this code" in text
    assert f"> {MARKUP}" in unescape(text)
    assert [row["Step"] for row in rows(text)] == [f"{MARKUP} step"]
    assert "ago, took" in rows(text)[0]["Start and duration"]


def test_the_payload_of_a_dead_letter_that_is_a_child_leads_to_its_parent(app: App) -> None:
    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.call("resize")

    @app.handler("resize", permanent=(ValueError,))
    def resize(job: Job) -> None:
        raise ValueError("no picture")

    app.tenant(HOME).enqueue("w", item_id="album-7")
    drain(app, raise_errors=False)
    (dead_letter,) = [each for each in app.tenant(HOME).dead_letters() if each.kind == "resize"]
    text = text_of(app, "/item", app="shop", user="alice", id=dead_letter.id.hex())
    assert "in its step call resize" in pairs(text)["Called by"]


# --- What cannot be read, and hostile text ---


def test_a_shard_that_is_away_is_named_and_the_other_steps_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    app = two_shards()

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(add, "a", name="here")
        wf.call("mail", on=ELSEWHERE)

    handle = app.tenant(HOME).enqueue("w")
    drain(app)
    other = app.tenant(ELSEWHERE).shard

    def refuse(*_: object, **__: object) -> None:
        raise StoreUnavailable("no answer", remedy="wait")

    monkeypatch.setattr(other, "transact", refuse)
    text = item_page(app, handle)
    assert [row["Step"] for row in rows(text)] == ["here step", "result of call mail wait"]
    assert "Steps of shop/u1 are missing:" in text


def test_markup_and_characters_that_turn_text_around_are_shown_as_text(app: App) -> None:
    turned = f"{MARKUP}\u202e\n"

    @app.workflow("w")
    def work(wf: WorkflowContext) -> None:
        wf.step(lambda tr: {turned: turned}, name=turned)
        wf.wait_for(turned)

    handle = app.tenant(HOME).enqueue("w")
    drain(app)
    text = item_page(app, handle)
    assert MARKUP not in text
    assert "\u202e" not in text.partition("<h2>Steps</h2>")[2].partition("</section>")[0]
    assert rows(text)[0]["Step"] == f"{MARKUP}\\u202e step"
    assert pairs(text)["Waits for"].startswith(f"signal {MARKUP}\\u202e")
