"""Every story of this folder is told over every engine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.clocks import ManualClock
from tests.zones.world import NOBODYS, World
from zones import engines
from zones.engines import Database
from zones.keyspace import ROOT_RANGE

ENGINES = ["memory", "embedded", pytest.param("foundationdb", marks=pytest.mark.foundationdb)]

# Set in a cluster that tests may wipe. A shard that somebody uses does not have it.
_WIPE_KEY = b"\x15fairlead tests may wipe this cluster"


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
    db = engines.open(f"fdb:{os.environ['FDB_CLUSTER_FILE']}", clock=clock, random=Random(1))
    engines.transact(db, _wipe)
    return db


def _wipe(tr: engines.Transaction) -> None:
    in_use = any(tr.get_range(*ROOT_RANGE, limit=1))
    assert not in_use or tr.get(_WIPE_KEY).present(), "the cluster holds a shard: name an empty one to the tests"
    tr.clear_range(*ROOT_RANGE)
    tr.clear_range(NOBODYS, NOBODYS + b"\xff")
    tr.set(_WIPE_KEY, b"")
