"""The system's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 30_000
expect.set_options(timeout=PATIENCE_MS)
PHONE = {"width": 375, "height": 800}


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser; `make test` installs it."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("needs Chromium: apt-get install chromium, or make test")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def page_of(browser: Browser, url: str, **how: Any) -> Iterator[Page]:
    """Open a page as a new visitor; fails if it logs an error, or asks for anything from elsewhere."""
    context = browser.new_context(base_url=url, **how)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(f"a script said {dialog.message}"))
    page.on("request", lambda request: None if request.url.startswith(url) else wrong.append(request.url))
    try:
        yield page
        assert wrong == []
    finally:
        context.close()


def tile(page: Page, name: str) -> str:
    """Return the number that the first page shows under a name."""
    return page.locator(".tiles > div", has_text=name).locator("dd").inner_text()
