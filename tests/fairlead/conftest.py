"""Applications to tell stories about."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from fairlead import App, Config, ConsumerSettings, TenantDatabase
from fairlead.testing import ManualClock
from tests.fairlead.live import Gate


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
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Enter a directory with nothing in it; modules that a story writes there, `fl_...`, are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in [each for each in sys.modules if each.startswith("fl_")]:
        del sys.modules[name]


@pytest.fixture
def live(tmp_path: Path) -> Iterator[App]:
    """An application on disk, by the machine's own time, for real consumers."""
    settings = ConsumerSettings(workers=1, managers=1, slots=2, lease_ms=2_000, drain_ms=100)
    made = App(config=Config(shards={"main": f"embedded:{tmp_path / 'store'}"}, consumer=settings))
    yield made
    made.close()


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.opened.set()
