"""One browser and one open dashboard for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from fairlead import App
from tests.fairlead.dashboard.browsing import chromium
from tests.fairlead.dashboard.serving import Server, served


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dashboard") / "store"


@pytest.fixture(scope="module")
def app(store: Path) -> Iterator[App]:
    """The application whose store is shown. Each test has users of its own."""
    made = App(f"embedded:{store}")
    made.tenant("shop", "first").enqueue("greet")
    yield made
    made.close()


@pytest.fixture(scope="module")
def server(app: App, store: Path) -> Iterator[Server]:
    """A dashboard without a token, which only this machine reaches."""
    with served("--store", f"embedded:{store}") as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser
