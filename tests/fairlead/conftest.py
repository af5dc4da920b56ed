"""Applications to tell stories about."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from fairlead import App, TenantDatabase
from fairlead.testing import ManualClock


@pytest.fixture
def app() -> Iterator[App]:
    """An application in memory whose time stands still."""
    made = App("memory:", clock=ManualClock(), random=Random(3))
    yield made
    made.close()


@pytest.fixture
def alice(app: App) -> TenantDatabase:
    return app.tenant("shop", "alice")


@pytest.fixture
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a directory with nothing in it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
