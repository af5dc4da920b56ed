"""The floor over FoundationDB makes the writes of the floor over LMDB, and sends a transaction's reads together."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from bench import floor_foundationdb
from bench.floor import Floor
from bench.floor_foundationdb import FoundationFloor
from fairlead.zones import engines
from fairlead.zones.engines import Database
from fairlead.zones.keyspace import ROOT
from tests.clocks import ManualClock
from tests.rooted import cluster_url

ITEMS, ZONES = 250, 100


@pytest.fixture(params=["memory", pytest.param("fdb", marks=pytest.mark.foundationdb)])
def db(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Database:
    url = "memory:" if request.param == "memory" else cluster_url(monkeypatch)
    return engines.open(url, clock=ManualClock(), random=Random(1))


def lmdb_floor(tmp_path: Path) -> Floor:
    floor = Floor(tmp_path / "floor")
    floor.write(0, ITEMS, zones=ZONES, batch=100)
    return floor


@pytest.mark.parametrize("batch", [1, 100])
def test_it_writes_as_many_keys_as_the_floor_over_lmdb(tmp_path: Path, db: Database, batch: int) -> None:
    floor, other = FoundationFloor(db), lmdb_floor(tmp_path)
    floor.write(0, ITEMS, zones=ZONES, batch=batch)
    assert floor.entries() == other.entries()
    assert floor.lease_and_complete() == other.lease_and_complete() == ITEMS
    assert floor.entries() == other.entries() == 2 * ZONES
    floor.close()
    assert floor.entries() == 0


def test_an_item_that_comes_twice_for_a_zone_in_one_transaction_is_counted_twice(db: Database) -> None:
    floor = FoundationFloor(db)
    floor.write(0, 4, zones=1, batch=4)
    assert floor.lease_and_complete() == 4
    assert floor.entries() == 2, "the count went with the last item"


class Steps:
    """The steps of a transaction, in order: `get` when a read is sent, `value` when its value is used."""

    def __init__(self, tr: Any) -> None:
        self._tr = tr
        self.taken: list[str] = []

    def get(self, key: bytes) -> Any:
        self.taken.append("get")
        return Answer(self, self._tr.get(key))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tr, name)


class Answer:
    def __init__(self, steps: Steps, future: Any) -> None:
        self._steps = steps
        self._future = future

    @property
    def value(self) -> Any:
        self._steps.taken.append("value")
        return self._future.value


def test_all_counts_of_a_batch_are_requested_before_the_wait_for_the_first(db: Database) -> None:
    floor = FoundationFloor(db)
    made: list[Steps] = []
    create = db.create_transaction

    def watched() -> Any:
        made.append(Steps(create()))
        return made[-1]

    db.create_transaction = watched  # type: ignore[method-assign]
    floor.write(0, 100, zones=100, batch=100)
    assert [steps.taken for steps in made] == [["get"] * 100 + ["value"] * 100]


def test_the_keys_of_the_floor_are_not_those_of_a_queue() -> None:
    assert not floor_foundationdb.BEGIN <= ROOT < floor_foundationdb.END
