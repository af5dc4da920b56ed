"""Moves of tenants, as an operator with a browser sees them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from fairlead import App
from fairlead.audit_log import read_log
from fairlead.testing import drain
from tests.fairlead.dashboard.browsing import PHONE, page_of
from tests.fairlead.dashboard.serving import Server, served


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder: Path = tmp_path_factory.mktemp("moves")
    return {name: f"embedded:{folder / name}" for name in ("main", "us2")}


@pytest.fixture(scope="module")
def app(urls: dict[str, str]) -> Iterator[App]:
    """An application on two shards. Each test has users of its own."""
    made = App(urls)
    assert list(made.shards.values())
    yield made
    made.close()


@pytest.fixture(scope="module")
def server(app: App, urls: dict[str, str]) -> Iterator[Server]:
    with served(*(part for name, url in urls.items() for part in ("--store", f"{name}={url}"))) as server:
        yield server


def begin(app: App, user: str) -> None:
    """Begin to move a tenant that has a value of a megabyte in rows."""
    alice = app.tenant("shop", user)
    alice.transact(lambda tr: [tr.set(("page", number), bytes(10_000)) for number in range(100)])
    alice.enqueue("mail", delay=3_600)
    app.move(alice, to="us2" if alice.shard.name == "main" else "main")


def test_a_move_is_followed_without_a_reload_until_it_has_ended(browser: Browser, server: Server, app: App) -> None:
    begin(app, "followed")
    with page_of(browser, server.url) as page:
        page.goto("/")
        page.get_by_role("link", name="Moves", exact=True).click()
        row = page.locator("tbody tr", has_text="shop/followed")
        expect(row).to_contain_text("has not begun")
        page.evaluate("window.stayed = true")
        drain(app)
        expect(row).to_contain_text("moved")
        expect(row.locator("td[data-label=Copied]")).to_contain_text("MB")
        assert page.evaluate("window.stayed")
        row.get_by_role("link", name="shop/followed").click()
        expect(page.locator(".facts").first).to_contain_text(f"on shard {app.tenant('shop/followed').find().name}")


def test_an_operator_cancels_a_move_by_its_button(browser: Browser, server: Server, app: App) -> None:
    begin(app, "cancelled")
    with page_of(browser, server.url) as page:
        page.goto("/tenant?app=shop&user=cancelled")
        expect(page.locator("#live")).to_contain_text("has not begun; its items run meanwhile")
        page.get_by_role("link", name="All moves").click()
        row = page.locator("tbody tr", has_text="shop/cancelled")
        row.get_by_role("link", name="Cancel", exact=True).click()
        page.get_by_role("button", name="Cancel it").click()
        expect(page.get_by_role("status")).to_have_text("The move of shop/cancelled is being taken back.")
        expect(row).to_contain_text("being cancelled")
        expect(row.get_by_role("link", name="Cancel", exact=True)).to_have_count(0)
        drain(app)
        expect(row).to_contain_text("it was cancelled")
    latest = read_log(app.shards, entries_max=1)[0]
    assert (latest.action, latest.audit_entry.through) == ("cancel move", "dashboard")


@pytest.mark.parametrize("width", [375, 760, 820, 1024, 1150, 1280, 1440])
def test_the_page_fits_every_window(browser: Browser, server: Server, app: App, width: int) -> None:
    begin(app, f"{width}-{'w' * 80}")
    with page_of(browser, server.url, viewport={**PHONE, "width": width}) as page:
        page.goto("/moves")
        expect(page.get_by_role("link", name="Cancel", exact=True).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        # Both widths are rounded separately.
        assert page.evaluate("(live => live.scrollWidth - live.clientWidth)(document.querySelector('#live'))") <= 1
