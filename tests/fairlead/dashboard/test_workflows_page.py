"""The list of workflows: their states, its filters and pages, and what it does not read."""

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
from fairlead import App, PermanentError, Retry, WorkflowContext
from fairlead.dashboard import pages
from fairlead.queries import workflows
from fairlead.queries.workflows import WorkflowState, find_workflows, first_workflows
from fairlead.testing import ManualClock, drain
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.dead_letter_search import DeadLetterFilter
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.workflow.run_records import head_key
from tests.fairlead.dashboard.asking import open_site, read
from tests.workflows.application import ELSEWHERE, HOME, add, two_shards

MARKUP = "<script>said()</script>"
ALICE = Tenant("shop", "alice")
OF_ALICE = DeadLetterFilter(tenant=ALICE)


@pytest.fixture
def app() -> Iterator[App]:
    """An application with a workflow for each state, which its kind names."""
    made = App("memory:", clock=ManualClock(), random=Random(5))

    def fail(tr: TenantTransaction, *_: object) -> None:
        raise RuntimeError("no carrier")

    def refuse(tr: TenantTransaction, *_: object) -> None:
        raise PermanentError("no way back")

    @made.workflow("signal")
    def signal(wf: WorkflowContext) -> None:
        wf.wait_for("approved")

    @made.workflow("children", version=3)
    def children(wf: WorkflowContext) -> None:
        wf.gather([fairlead.child("never", number) for number in range(3)], timeout=600)

    @made.workflow("sleep")
    def sleep(wf: WorkflowContext) -> None:
        wf.sleep(3600)

    @made.workflow("fails", retry=Retry(attempts=9, backoff=60))
    def fails(wf: WorkflowContext) -> None:
        wf.step(add, "a")
        wf.step(fail)

    @made.workflow("undo", retry=Retry(attempts=9, backoff=60))
    def undo(wf: WorkflowContext) -> None:
        wf.step(add, "a", undo=fail)
        raise PermanentError("nobody approved")

    @made.workflow("dead")
    def dead(wf: WorkflowContext) -> None:
        wf.step(add, "a", undo=refuse)
        raise PermanentError("sold out")

    yield made
    made.close()


site_of = lru_cache(maxsize=1)(open_site)  # It compiles the templates.


def text_of(app: App, /, **query: str) -> str:
    answer = read(site_of(app), "/workflows", query)
    assert answer.status == 200, answer.text
    return answer.text


def run(app: App, *kinds: str, tenant: str = HOME, **options: Any) -> list[bytes]:
    made = [app.tenant(tenant).enqueue(kind, **options).item_id for kind in kinds]
    drain(app, raise_errors=False, replays=False)
    return made


def rows(text: str) -> list[dict[str, str]]:
    """Return the cells of each row, as text, by their labels."""
    found = []
    for row in re.findall(r"<tr data-key.*?</tr>", text, re.S):
        cells = re.findall(r'<t[hd][^>]*data-label="([^"]*)"[^>]*>(.*?)</t[hd]>', row, re.S)
        found.append({label: " ".join(unescape(re.sub(r"<[^>]*>", " ", cell)).split()) for label, cell in cells})
    return found


def kinds(text: str) -> list[str]:
    return [row["Kind"] for row in rows(text)]


ALL = ("signal", "children", "sleep", "fails", "undo", "dead")
STATES = {
    "signal": ("waits for a signal approved since 0 ms ago", "no timeout"),
    "children": ("waits for children 3 open since 0 ms ago", "in 10 min"),
    "sleep": ("sleeping since 0 ms ago", "in 60 min"),
    "fails": ("tried again later RuntimeError: no carrier", None),
    "undo": ("being undone PermanentError: nobody approved", None),
}


# --- States ---


@pytest.mark.parametrize("query", [{}, {"app": "shop"}, {"app": "shop", "user": "alice"}])
def test_workflows_are_listed_with_their_states_and_other_items_are_not(app: App, query: dict[str, str]) -> None:
    run(app, *ALL)
    app.tenant(HOME).enqueue("mail", delay=60)
    found = rows(text_of(app, **query))
    assert sorted(row["Kind"] for row in found) == sorted(STATES)
    for row in found:
        state, goes_on = STATES[row["Kind"]]
        assert row["State"] == state
        assert goes_on in (None, row["Goes on"])
        assert row["Tenant"] == "shop/alice"
        assert row["Begun"] == f"0 ms ago version {3 if row['Kind'] == 'children' else 1}"


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (WorkflowState.WAITS_FOR_SIGNAL, "signal"),
        (WorkflowState.WAITS_FOR_CHILDREN, "children"),
        (WorkflowState.SLEEPING, "sleep"),
        (WorkflowState.LATER, "fails"),
        (WorkflowState.BEING_UNDONE, "undo"),
        (WorkflowState.DEAD, "dead"),
    ],
)
@pytest.mark.parametrize("query", [{}, {"app": "shop", "user": "alice"}])
def test_a_state_filters_the_list(app: App, query: dict[str, str], state: WorkflowState, kind: str) -> None:
    run(app, *ALL)
    assert kinds(text_of(app, state=state.value, **query)) == [kind]


def test_a_workflow_that_runs_or_is_due_says_so(app: App) -> None:
    handle = app.tenant(HOME).enqueue("signal")
    drain(app)
    handle.signal("approved")
    assert kinds(text_of(app, state="due")) == ["signal"]
    zone, now_us = app.tenant(HOME).shard.zone(ALICE), app.clock.now_us()
    app.tenant(HOME).shard.transact(
        lambda attempt: zone.obtain_lease(attempt.tr, handle.item_id, lease_id=bytes(16), lease_us=10**6, now_us=now_us)
    )
    assert kinds(text_of(app, state="running")) == ["signal"]
    handle.cancel()
    assert kinds(text_of(app, state="being undone")) == ["signal"]


def test_a_dead_letter_shows_its_error_and_when_it_failed(app: App) -> None:
    run(app, "dead")
    (row,) = rows(text_of(app, state="dead letter"))
    assert (row["State"], row["Failed"]) == (
        "dead letter PermanentError: sold out PermanentError: no way back",
        "0 ms ago",
    )


def test_a_state_that_there_is_not_is_refused(app: App) -> None:
    assert read(site_of(app), "/workflows", {"state": "gone"}).status == 400


# --- Filters ---


def test_a_kind_an_app_a_user_and_a_queue_filter_the_list(app: App) -> None:
    run(app, "signal", "sleep")
    run(app, "signal", zone="other")
    run(app, "signal", tenant="mall/bob")
    assert kinds(text_of(app, kind="sleep")) == ["sleep"]
    assert kinds(text_of(app, app="mall")) == ["signal"]
    assert kinds(text_of(app, zone="other")) == ["signal"]
    assert len(kinds(text_of(app, app="shop", user="alice"))) == 3
    assert kinds(text_of(app, app="shop", user="alice", zone="other", kind="signal")) == ["signal"]
    assert kinds(text_of(app, app="shop", user="nobody")) == []
    assert "No workflows match." in text_of(app, kind="never")


def test_local_workflows_are_listed(app: App) -> None:
    app.enqueue_local("signal")
    drain(app)
    assert [row["Tenant"] for row in rows(text_of(app))] == ["(local) signal"]
    assert kinds(text_of(app, local="signal", shard="main")) == ["signal"]
    assert kinds(text_of(app, local="signal")) == ["signal"]


def test_the_links_of_other_pages_lead_to_the_workflows_of_a_tenant_and_of_a_kind(app: App) -> None:
    (item_id,) = run(app, "signal")
    site = site_of(app)
    item = {"app": "shop", "user": "alice", "id": item_id.hex()}
    for path, query in (("/tenant", {"app": "shop", "user": "alice"}), ("/item", item), ("/delayed", {})):
        shown = read(site, path, query).text
        links = re.findall(r'href="(/workflows\?[^"]*)"', shown)
        assert len(links) == (2 if path == "/item" else 1)
        for link in links:  # Of the tenant, and of the kind.
            found = {name: value for name, (value,) in parse_qs(urlsplit(unescape(link)).query).items()}
            assert kinds(text_of(app, **found)) == ["signal"]
        if path != "/item":
            assert "waits for a signal" in shown


# --- Pages and bounds ---


def walked(app: App, label: str, /, **query: str) -> list[str]:
    """Return all pages, from the first to the last."""
    texts = [text_of(app, **query)]
    while link := re.search(rf'href="(/workflows\?[^"]*)">{label}', texts[-1]):
        found = {name: value for name, (value,) in parse_qs(urlsplit(unescape(link[1])).query).items()}
        texts.append(text_of(app, **found))
    return texts


@pytest.mark.parametrize("query", [{}, {"app": "shop", "user": "alice"}])
@pytest.mark.parametrize("count", [6, 7])
def test_workflows_come_page_by_page_and_each_once(
    app: App, monkeypatch: pytest.MonkeyPatch, query: dict[str, str], count: int
) -> None:
    monkeypatch.setattr(pages, "WORKFLOWS_PER_PAGE", 3)
    monkeypatch.setattr(workflows, "SCANNED_MAX", 2)
    app.tenant(HOME).enqueue_many(fairlead.new_item("never", zone) for zone in range(5))
    run(app, *["signal"] * (count - 2))
    run(app, "sleep", zone="before")
    run(app, "sleep", zone="zeta")
    seen = walked(app, "Next page", **query)
    assert [len(rows(text)) for text in seen] == [3, 3, 1][: -(-count // 3)]
    assert len({row["Workflow"] for text in seen for row in rows(text)}) == count


@pytest.mark.parametrize("count", [6, 7])
def test_dead_letters_of_workflows_come_page_by_page_the_latest_first(
    app: App, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(pages, "WORKFLOWS_PER_PAGE", 3)
    monkeypatch.setattr(workflows, "SCANNED_MAX", 2)
    app.handler("plain", permanent=(ValueError,))(lambda job: int("no number"))
    ids = []
    for _ in range(count):
        ids += run(app, "dead")
        run(app, "plain")
        app.clock.sleep_us(1)
    seen = walked(app, "Earlier ones", state="dead letter")
    found = re.findall(r'data-key="main/(\w+)"', "".join(seen))
    assert found == [item_id.hex() for item_id in reversed(ids)]


def test_a_search_among_many_items_is_bounded_and_can_continue(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflows, "SCANNED_MAX", 2)
    monkeypatch.setattr(workflows, "SCANNED_PER_PAGE_MAX", 4)
    app.tenant(HOME).enqueue_many(fairlead.new_item("never") for _ in range(8))
    run(app, "signal")
    shard = app.shards["main"]
    first = find_workflows(shard, OF_ALICE, None, rows_max=3)
    assert first.scanned == 4
    assert first.next_key is not None
    seen = walked(app, "Next page", app="shop", user="alice")
    assert sum(len(rows(text)) for text in seen) == 1
    assert len(seen) == 3
    assert "Among 4 items that were read" in seen[0]
    assert "No more workflows match." in seen[1] + seen[2]


def test_of_many_queues_the_first_are_read_and_the_page_says_so(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflows, "QUEUES_MAX", 2)
    for number in range(5):
        run(app, "signal", tenant=f"shop/user-{number}")
    found = first_workflows(app.shards["main"], DeadLetterFilter(), None)
    assert len(found.rows) <= 4
    assert not found.whole
    assert "There are more: name a tenant" in text_of(app)


def test_of_a_long_queue_the_first_items_are_read_and_the_page_says_so(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows, "SCANNED_PER_PAGE_MAX", 4)
    monkeypatch.setattr(workflows, "OF_QUEUE_MIN", 4)
    run(app, *["signal"] * 6)
    found = first_workflows(app.shards["main"], DeadLetterFilter(), None)
    assert (len(found.rows), found.scanned, found.whole) == (4, 4, False)
    assert "There are more: name a tenant" in text_of(app)
    assert len(rows(text_of(app, app="shop", user="alice"))) == 6


def test_of_a_tenant_with_many_queues_the_first_are_read_and_any_by_name(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows, "QUEUES_OF_TENANT_MAX", 2)
    for number in range(3):
        run(app, "signal", zone=f"zone-{number}")
    text = text_of(app, app="shop", user="alice")
    assert len(rows(text)) == 2
    assert "The tenant has more queues: name one." in text
    assert len(rows(text_of(app, app="shop", user="alice", zone="zone-2"))) == 1


# --- What cannot be read, and hostile text ---


def test_the_workflows_of_other_shards_are_shown_if_one_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    app = two_shards()
    app.workflow("w")(lambda wf: wf.wait_for("go"))
    for tenant in (HOME, ELSEWHERE):
        app.tenant(tenant).enqueue("w")
    drain(app)

    def refuse(*_: object, **__: object) -> None:
        raise StoreUnavailable("no answer", remedy="wait")

    monkeypatch.setattr(app.tenant(ELSEWHERE).shard, "transact", refuse)
    text = text_of(app)
    assert [row["Tenant"] for row in rows(text)] == [HOME]
    assert "Shard a cannot be read:" in text
    assert "Shard a cannot be read:" in text_of(app, app="shop", user="u1")


def test_a_workflow_whose_head_is_damaged_is_listed(app: App) -> None:
    (item_id,) = run(app, "signal")
    shard = app.tenant(HOME).shard
    keys = shard.zone(ALICE).location.keys.tenant
    shard.transact(lambda attempt: attempt.tr.set(head_key(keys, item_id), b"\xff"))
    assert [(row["State"], row["Begun"]) for row in rows(text_of(app))] == [
        ("waits for a signal approved since 0 ms ago", "–")
    ]


def test_markup_is_shown_as_text(app: App) -> None:
    app.workflow(MARKUP)(lambda wf: wf.wait_for(f"{MARKUP}\u202e"))
    run(app, MARKUP, item_id=MARKUP)
    text = text_of(app, kind=MARKUP, app="shop", user="alice")
    assert MARKUP not in text
    assert "\u202e" not in text
    assert rows(text)[0]["State"] == f"waits for a signal {MARKUP}\\u202e since 0 ms ago"
