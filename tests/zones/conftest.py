"""Every test of this folder runs over every engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from fairlead.zones import engines
from fairlead.zones.engines import Database
from tests.clocks import ManualClock
from tests.rooted import on_cluster
from tests.zones.world import World

ENGINES = ["memory", "embedded", pytest.param("foundationdb", marks=pytest.mark.foundationdb)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=ENGINES)
def db(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> Iterator[Database]:
    """An empty database."""
    opened = open_empty(request.param, clock, tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def world(db: Database, clock: ManualClock) -> World:
    """An empty shard with two parts."""
    return World(db, clock)


def open_empty(engine: str, clock: ManualClock, directory: Path) -> Database:
    """Open an empty database of the engine."""
    if engine == "memory":
        return engines.open("memory:", clock=clock, random=Random(1))
    if engine == "embedded":
        return engines.open(f"embedded:{directory / 'store'}", clock=clock, random=Random(1))
    return on_cluster(clock=clock, random=Random(1))
