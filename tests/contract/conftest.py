"""The engines, each with an empty store: every contract test runs over all of them."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clocks import ManualClock
from zones.engines import Database
from zones.engines import open as open_database
from zones.engines.clock import Clock

ENGINES = ["memory", "embedded", pytest.param("fdb", marks=pytest.mark.foundationdb)]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def url(engine: str, tmp_path: Path) -> str:
    places = {"memory": "", "embedded": str(tmp_path / "store"), "fdb": os.environ.get("FDB_CLUSTER_FILE", "")}
    return f"{engine}:{places[engine]}"


@pytest.fixture
def db(url: str, clock: Clock) -> Iterator[Database]:
    database = open_database(url, clock=clock, random=random.Random(1))
    yield database
    database.close()
