"""Records and their indexes, as an operator with a browser sees them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from fairlead import App
from fairlead.record_type import Records
from fairlead.testing import drain
from tests.fairlead.dashboard.browsing import PHONE, page_of
from tests.fairlead.dashboard.serving import Server, served


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"embedded:{tmp_path_factory.mktemp('records') / 'main'}"


@pytest.fixture(scope="module")
def app(url: str) -> Iterator[App]:
    """An application on one shard. Each test has a type of its own."""
    made = App({"main": url})
    assert list(made.shards.values())
    yield made
    made.close()


@pytest.fixture(scope="module")
def server(app: App, url: str) -> Iterator[Server]:
    with served("--store", f"main={url}") as server:
        yield server


def made(app: App, name: str) -> Records[dict[str, Any]]:
    """Make two records of a type that have one phone."""
    records = app.records(name, unique=("email",))
    for number in range(2):
        records.create(f"u{number}", {"email": f"{number}", "phone": "07"})
    return records


def test_a_build_is_followed_without_a_reload_until_it_has_ended(browser: Browser, server: Server, app: App) -> None:
    made(app, "followed").add_index("phone", unique=True)
    with page_of(browser, server.url) as page:
        page.goto("/")
        page.get_by_role("link", name="Records", exact=True).click()
        row = page.locator("tbody tr", has_text="followed.phone")
        expect(row).to_contain_text("telling all shards")
        page.evaluate("window.stayed = true")
        drain(app)
        expect(row.locator("td[data-label=State]")).to_have_text("pending")
        expect(row.locator("td[data-label=Violations]")).to_have_text("1")
        assert page.evaluate("window.stayed")


def test_an_operator_cancels_a_build_by_its_button(browser: Browser, server: Server, app: App) -> None:
    made(app, "cancelled").add_index("phone", unique=True)
    with page_of(browser, server.url) as page:
        page.goto("/records")
        row = page.locator("tbody tr", has_text="cancelled.phone")
        row.get_by_role("link", name="Cancel", exact=True).click()
        page.get_by_role("button", name="Cancel it").click()
        expect(page.get_by_role("status")).to_have_text("The build of the index cancelled.phone is being cancelled.")
        expect(row).to_contain_text("being cancelled")
        drain(app)
        expect(row).to_contain_text("it was cancelled")


@pytest.mark.parametrize("width", [375, 760, 1024, 1280, 1440])
def test_the_page_fits_every_window(browser: Browser, server: Server, app: App, width: int) -> None:
    app.records(f"{width}{'w' * 26}", unique=("f" * 32,)).create("u", {"f" * 32: "1"})
    made(app, f"fits{width}").add_index("phone", unique=True)
    with page_of(browser, server.url, viewport={**PHONE, "width": width}) as page:
        page.goto("/records")
        expect(page.get_by_role("link", name="Cancel", exact=True).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        # Both widths are rounded separately.
        assert page.evaluate("(live => live.scrollWidth - live.clientWidth)(document.querySelector('#live'))") <= 1
