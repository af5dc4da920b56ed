"""Applications for the tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from fairlead import App, Config, ConsumerSettings, TenantDatabase
from fairlead.testing import ManualClock
from tests.fairlead.live_consumers import Gate
from tests.rooted import cluster_url

FOUNDATIONDB = pytest.param("foundationdb", marks=pytest.mark.foundationdb)


@pytest.fixture(params=["memory", FOUNDATIONDB])
def app(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """An application with a manual clock, in memory, and on a cluster if FDB_CLUSTER_FILE names one."""
    url = "memory:" if request.param == "memory" else cluster_url(monkeypatch)
    made = App(url, clock=ManualClock(), random=Random(3))
    yield made
    made.close()


@pytest.fixture
def alice(app: App) -> TenantDatabase:
    return app.tenant("shop", "alice")


@pytest.fixture
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Enter an empty directory. Modules that a test writes there, `fl_...`, leave `sys.modules` at the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in [each for each in sys.modules if each.startswith("fl_")]:
        del sys.modules[name]


@pytest.fixture(params=["embedded", FOUNDATIONDB])
def live(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """An application on disk or on a cluster, with the machine's clock, for real consumers."""
    settings = ConsumerSettings(workers=1, managers=1, slots=2, lease_ms=2_000, drain_ms=100)
    url = f"embedded:{tmp_path / 'store'}" if request.param == "embedded" else cluster_url(monkeypatch)
    made = App(config=Config(shards={"main": url}, consumer=settings))
    yield made
    made.close()


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.opened.set()
