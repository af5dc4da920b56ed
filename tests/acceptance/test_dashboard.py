"""The dashboard shows what a fleet of Ray actors does, and controls the fleet."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import expect

from fairlead import App, Config, NewItem, TenantDatabase, new_item
from tests.acceptance.fleets import config, consumer
from tests.acceptance.shop import payload
from tests.fairlead.dashboard.browsing import chromium, page_of
from tests.fairlead.dashboard.serving import served

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture
def chosen(tmp_path: Path) -> Config:
    return config(tmp_path)


WAITING_MIN = 300  # Some ten seconds of work: pages of a busy machine take as long.


@contextmanager
def supplied(tenant: TenantDatabase, items: list[NewItem]) -> Iterator[threading.Event]:
    """Keep at least as many items waiting until the event is set."""
    enough = threading.Event()

    def keep() -> None:
        while not enough.is_set():
            if sum(tenant.count().values()) < len(items):
                tenant.enqueue_many(items)
            enough.wait(0.1)

    thread = threading.Thread(target=keep)
    thread.start()
    try:
        yield enough
    finally:
        enough.set()
        thread.join()


def test_a_drain_by_ray_is_seen_live_and_stops_at_a_pause(app: App, chosen: Config, tmp_path: Path) -> None:
    items = [new_item("noted", payload(0, path=str(tmp_path / "notes"), takes_ms=300))] * WAITING_MIN
    store = chosen.shards["main"]
    with chromium() as browser, served("--store", store) as server, page_of(browser, server.url) as page:
        page.goto("/running")
        with consumer(chosen), supplied(app.tenant("shop", "alice"), items) as supply:
            expect(page.locator("tbody tr").first).to_contain_text("shop/alice")
            page.get_by_role("link", name="Kinds").click()
            page.get_by_role("link", name="noted").click()
            expect(page.get_by_role("heading", level=1)).to_have_text("noted")
            expect(page.locator("tr", has_text="shop/alice")).to_be_visible()
            expect(page.locator("section", has_text="Consumers").locator("li").first).to_contain_text("slots")
            page.goto("/tenants")
            row = page.locator("tr", has_text="shop/alice")
            row.get_by_role("link", name="Pause", exact=True).click()
            page.get_by_role("dialog").get_by_role("button", name="Pause").click()
            expect(row).to_contain_text("paused")
            supply.set()
            page.goto("/running")
            expect(page.locator(".empty")).to_have_text("Nothing runs.")
            left = sum(app.tenant("shop", "alice").count().values())
            assert left > 0
            page.goto("/tenants")
            row.get_by_role("link", name="Resume", exact=True).click()
            page.get_by_role("dialog").get_by_role("button", name="Resume").click()
            page.goto("/")
            expect(page.locator(".tiles > div", has_text="Items in queues").locator("dd")).to_have_text("0")
