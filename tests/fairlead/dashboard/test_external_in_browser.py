"""External stores, as an operator with a browser sees them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from fairlead import App, Job
from fairlead.zones.external.names import Queue
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.items import new_item
from fairlead.zones.records import DeadLetterRecord
from tests.fairlead.dashboard.browsing import PHONE, page_of, tile
from tests.fairlead.dashboard.serving import Server, served
from tests.fairlead.live_consumers import Gate, consumer
from tests.postgresql_server import TestedPostgres
from tests.zones.postgresql.database import Database, held

CAROL = Tenant("shop", "carol")
AWAY = "postgresql://127.0.0.1:1/none"


@pytest.fixture(scope="module")
def database(postgresql: TestedPostgres) -> Iterator[Database]:
    """A database with queues."""
    made = Database(postgresql, "dashboard")
    made.prepare()
    yield made
    made.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the shard is."""
    return tmp_path_factory.mktemp("external")


@pytest.fixture(scope="module")
def server(database: Database, folder: Path) -> Iterator[Server]:
    """A dashboard of an application with two external stores, one of which does not answer."""
    app = App(f"embedded:{folder / 'main'}")
    assert list(app.shards.values())
    app.close()
    settings = folder / "fairlead.toml"
    external = f'external.pg = "{database.dsn}"\nexternal.far = "{AWAY}"\n'
    settings.write_text(f'shards.main = "embedded:{folder}/main"\n{external}', encoding="utf-8")
    with served("--config", str(settings)) as server:
        yield server


def test_what_waits_in_a_store_appears_without_a_reload(browser: Browser, server: Server, database: Database) -> None:
    database.empty()
    with page_of(browser, server.url) as page:
        page.goto("/")
        row = page.locator("tbody tr", has_text="pg").first
        expect(row.locator("td[data-label=Items]")).to_have_text("0")
        page.evaluate("window.stayed = true")
        with database.connect() as connection:
            connection.execute("SELECT fairlead.enqueue('shop', 'alice', 'receipt')")
        expect(row.locator("td[data-label=Items]")).to_have_text("1")
        expect(row.locator("td[data-label=Reader]")).to_contain_text("no consumer reads it")
        expect(row.locator("td[data-label=Reader]")).to_contain_text("1 unseen")
        expect(page.locator(".concerns")).to_contain_text("1 item is in external store pg, and no consumer reads it")
        assert tile(page, "Items in queues") == "1"
        assert page.evaluate("window.stayed")
        far = page.locator("tbody tr", has_text="far")
        expect(far).to_contain_text("no PostgreSQL that takes writes answers")


def test_an_item_is_found_by_its_name_and_its_tenant(browser: Browser, server: Server, database: Database) -> None:
    with database.connect() as connection:
        connection.execute("SELECT fairlead.enqueue('shop', 'bob', 'receipt', item_id => 'order 7')")
    with page_of(browser, server.url) as page:
        page.goto("/search")
        page.locator("main").get_by_label("Item id or name").fill("order 7")
        page.get_by_label("App").fill("shop")
        page.get_by_label("User").fill("bob")
        page.get_by_role("button", name="Search").click()
        expect(page.locator("article.card")).to_contain_text("queue queue in pg, its pointer on shard main")
        expect(page.locator("article.card")).to_contain_text("No consumer")


@pytest.fixture
def carol(database: Database) -> None:
    """A tenant with an item that waits in the store, and a dead letter."""
    database.empty()
    database.put(new_item("invoice", {"order": 8}, item_id="order 8"), tenant=CAROL)
    (leased,) = database.lease(CAROL, rooms={"invoice": 1})
    database.store.dead_letter([held(leased)], [DeadLetterRecord(leased.record, "error", "no such address", "", 1)])
    database.put(new_item("receipt", {"order": 9}, item_id="order 9"), tenant=CAROL)


def test_the_page_of_a_tenant_shows_its_queues_in_stores_and_leads_to_their_items(
    browser: Browser, server: Server, carol: None
) -> None:
    with page_of(browser, server.url) as page:
        page.goto("/tenant?app=shop&user=carol")
        expect(page.get_by_role("heading", name="Queue queue in pg")).to_contain_text("1 item")
        expect(page.get_by_role("alert")).to_contain_text("External store far cannot be read")
        page.get_by_role("link", name="order 9").click()
        expect(page.locator(".verdict")).to_contain_text("No consumer")
        expect(page.locator("dl")).to_contain_text("queue in pg, its pointer on shard main")
        expect(page.locator("main")).to_contain_text('"order": 9')


def test_a_dead_letter_in_a_store_is_listed_and_runs_again_by_a_click(
    browser: Browser, server: Server, database: Database, carol: None
) -> None:
    with page_of(browser, server.url) as page:
        page.goto("/dead-letters/items?kind=invoice")
        card = page.locator("section", has_text="External store pg").locator("article.card")
        expect(card).to_contain_text("no such address")
        card.get_by_role("link", name="order 8").click()
        expect(page.locator(".verdict")).to_contain_text("Dead letter")
        page.locator("main").get_by_role("link", name="Retry").click()
        page.get_by_role("button", name="Retry it").click()
        expect(page.locator(".verdict")).not_to_contain_text("Dead letter")
        expect(page.locator("ol.history")).to_contain_text("retr")
    assert database.store.queues.dead_letters(None, items_max=1) == []


@pytest.fixture
def fleet(server: Server, folder: Path, database: Database) -> Iterator[Gate]:
    """A consumer whose handler reports progress and waits for a gate."""
    database.empty()
    gate = Gate()
    app = App(f"embedded:{folder}/main", external={"pg": database.dsn})

    def report(job: Job) -> None:
        job.progress(3, 8, "pages")
        gate(job)

    app.handler("report")(report)
    with consumer(app):
        yield gate
        gate.opened.set()
    app.close()


def test_what_runs_in_a_store_is_listed_and_counted_until_it_ends(
    browser: Browser, server: Server, database: Database, fleet: Gate
) -> None:
    with page_of(browser, server.url) as page:
        page.goto("/running")
        expect(page.locator("main")).to_contain_text("Nothing runs.")
        page.evaluate("window.stayed = true")
        database.put(new_item("report", {"year": 2031}, item_id="report 7"), tenant=CAROL)
        row = page.locator("tbody tr", has_text="report 7")
        expect(row.locator("td[data-label=Tenant]")).to_contain_text("in pg")
        expect(row.locator("td[data-label=Kind]")).to_contain_text("2031")
        expect(row.locator("td[data-label=Progress]")).to_contain_text("3 of 8, pages")
        row.get_by_role("link", name="report 7").click()
        expect(page.locator(".verdict")).to_contain_text("has had it for")
        expect(page.locator("dl")).to_contain_text("queue in pg, its pointer on shard main")
        page.goto("/")
        expect(page.locator("dt", has_text="Running now").locator("+ dd")).to_have_text("1")
        fleet.opened.set()
        expect(page.locator("dt", has_text="Running now").locator("+ dd")).to_have_text("0")
        page.goto("/kind?kind=report")
        expect(page.locator("dt", has_text="Completed").first.locator("+ dd")).to_contain_text("1")


def test_what_runs_in_a_store_is_cancelled_by_a_click(
    browser: Browser, server: Server, database: Database, fleet: Gate
) -> None:
    database.put(new_item("report", item_id="report 8"), tenant=CAROL)
    with page_of(browser, server.url) as page:
        page.goto("/running")
        page.locator("tbody tr", has_text="report 8").get_by_role("link", name="Cancel").click()
        page.get_by_role("button", name="Cancel it").click()
        expect(page.get_by_role("status")).to_contain_text("Cancelled item")
        expect(page.locator("main")).to_contain_text("Nothing runs.", timeout=30_000)
    assert database.store.queues.count(Queue(CAROL, "queue")) == {}


@pytest.mark.parametrize("width", [375, 1024])
def test_the_list_of_what_runs_fits_every_window(
    browser: Browser, server: Server, database: Database, fleet: Gate, width: int
) -> None:
    database.put(new_item("report", item_id="report 9"), tenant=CAROL)
    with page_of(browser, server.url, viewport={**PHONE, "width": width}) as page:
        page.goto("/running")
        expect(page.locator("tbody tr", has_text="report 9")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [375, 1024])
def test_the_page_of_a_tenant_fits_every_window(browser: Browser, server: Server, carol: None, width: int) -> None:
    with page_of(browser, server.url, viewport={**PHONE, "width": width}) as page:
        page.goto("/tenant?app=shop&user=carol")
        expect(page.get_by_role("heading", name="Queue queue in pg")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [375, 1024])
def test_the_section_fits_every_window(browser: Browser, server: Server, width: int) -> None:
    with page_of(browser, server.url, viewport={**PHONE, "width": width}) as page:
        page.goto("/")
        expect(page.get_by_role("heading", name="External stores")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(
    ("query", "said"),
    [("store=nope", "external store of this name"), (f"store=pg&zone={'z' * 79}", "78 bytes")],
)
def test_a_link_to_no_store_or_no_queue_is_refused_with_the_reason(server: Server, query: str, said: str) -> None:
    answer = server.ask(f"/item?app=shop&user=carol&id={'00' * 16}&{query}")
    assert answer.status == 400
    assert said in answer.text
