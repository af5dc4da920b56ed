"""Records and unique items while slots move and processes are killed: none is lost, and no key is held twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import IO, Any

import pytest

from fairlead import App, Config
from fairlead.record_type import Records
from fairlead.records.alternate_keys import Field, pack_unique
from fairlead.records.errors import Taken
from fairlead.records.on_shards import cleanup
from fairlead.records.on_shards.slots import DATA, SLOTS_APP, Locations
from fairlead.records.on_shards.unique_items import ItemLocations, pack_unique_key
from fairlead.records.stored import DataRecord, IndexRecord, unpack_data, unpack_index
from fairlead.zones import keyspace
from fairlead.zones.engines import transact
from fairlead.zones.keyspace import ROOT, ROOT_RANGE
from fairlead.zones.layout import Tenant
from fairlead.zones.tuples import unpack
from tests.acceptance.clerk_values import CITIES, SHOPS, STOP, UNIQUE_KEYS, VALUES, email, people_of, shop
from tests.acceptance.fleets import Machine, consumer, eventually, kill_one, machine, written
from tests.acceptance.loads import assert_nothing_left, depth, lines_of
from tests.acceptance.moving import Movers
from tests.acceptance.two_shards import PAIRS, pair_of_shards

pytestmark = pytest.mark.usefixtures("cluster")

REFERENCE = "tests.acceptance.records_shop:app"
CLERKS = 2

Data = dict[str, Any]


@pytest.fixture(autouse=True)
def _product_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo what the application changes in the product: its module is imported into this process, too."""
    monkeypatch.setattr(cleanup, "DELAY_S", cleanup.DELAY_S)


@pytest.fixture(params=PAIRS)
def chosen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Config]:
    with pair_of_shards(request.param, tmp_path) as pair:
        yield pair


class Clerks:
    """Processes that run clerks; a clerk that is killed is started again."""

    def __init__(self, on: Machine, random: Random, log: IO[str]) -> None:
        self._machine = on
        self._random = random
        self._log = log
        self._running = [self._start(number) for number in range(CLERKS)]

    def kill_one(self) -> None:
        number = self._random.randrange(CLERKS)
        os.kill(self._running[number].pid, signal.SIGKILL)
        self._running[number].wait()
        self._running[number] = self._start(number)

    def end(self) -> None:
        (self._machine.directory / STOP).touch()
        assert [each.wait(60) for each in self._running] == [0] * CLERKS

    def _start(self, number: int) -> subprocess.Popen[str]:
        typed = [str(number), str(self._random.random())]
        return self._machine.start([sys.executable, "-m", "tests.acceptance.records_shop", *typed], log=self._log)


def moving_tenants() -> list[str | Tenant]:
    """Return the slots that have records and index records, and the tenants of the shops."""
    people, items = Locations("person"), ItemLocations()
    return [
        *(people.data_tenant(key) for number in range(CLERKS) for key in people_of(number)),
        *(people.index_tenant(_email_key(number)) for number in range(VALUES)),
        *(items.index_tenant(pack_unique_key(("count", number))) for number in range(UNIQUE_KEYS)),
        *map(shop, range(SHOPS)),
    ]


class Noted:
    """What clerks have noted.

    Attributes:
      possible: the values that each record may have: those that were acknowledged last, and what a killed clerk was
        about to write.
      generations: of all records that existed.
      enqueued: the tenants of the items that were acknowledged, by their ids.
      counts: what happened how often.
    """

    def __init__(self, directory: Path) -> None:
        self.possible: dict[str, list[Data | None]] = defaultdict(lambda: [None])
        self.generations: set[str] = set()
        self.enqueued: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        for number in range(CLERKS):
            before: dict[str, list[Data | None]] = {}
            for line in lines_of(directory / f"clerk-{number}"):
                what, key, result, generation = json.loads(line)
                self.counts[result if what == "refused" else what] += 1
                self.generations.add(generation)
                self._follow(before, what, key, result)

    def _follow(self, before: dict[str, list[Data | None]], what: str, key: str, result: Any) -> None:
        assert what != "wrong", result
        if what == "enqueued":
            self.enqueued[result] = key
        elif what == "begin":
            before[key] = self.possible[key]
            self.possible[key] = [*self.possible[key], result]
        elif what == "refused" and key in before:
            self.possible[key] = before[key]
        elif what in ("saw", "done"):
            assert result in self.possible[key], f"{key} is {result}, and not one of {self.possible[key]}"
            self.possible[key] = [result]


def stored(app: App, type_name: str) -> tuple[dict[str, DataRecord], dict[bytes, IndexRecord]]:
    """Return all data records and index records of a type, dummies and garbage too."""
    data: dict[str, DataRecord] = {}
    index: dict[bytes, IndexRecord] = {}
    for name in app.shards:
        for row in transact(app.shards[name].db, lambda tr: list(tr.snapshot.get_range(*ROOT_RANGE))):
            path = unpack(row.key, len(ROOT))
            if path[0] == keyspace.DB and path[3:6] == (keyspace.DATA, SLOTS_APP, type_name):
                assert app.tenant(Tenant(*path[1:3])).find().name == name, f"{path} is left on {name}"
                if path[6] == DATA:
                    data[path[7]] = unpack_data(path[7], row.value)
                else:
                    index[path[7]] = unpack_index(row.value)
    return data, index


def assert_records(people: Records[Data], noted: Noted) -> None:
    """See that each record is as it was acknowledged, has its values alone, and is found by them."""
    records = {key: people.get(key) for number in range(CLERKS) for key in people_of(number)}
    held: dict[tuple[str, Any], str] = {}
    for key, record in records.items():
        value = None if record is None else record.value
        assert value in noted.possible[key], f"{key} is {value}, and not one of {noted.possible[key]}"
        for name in ("email", "phone") if record is not None else ():
            assert record is not None
            if record.value[name] is not None:
                assert (name, record.value[name]) not in held, f"{key} and {held[name, record.value[name]]}"
                held[name, record.value[name]] = key
    for city in CITIES:
        expected = sorted(key for key, record in records.items() if record is not None and record.value["city"] == city)
        assert [each.key for each in people.find_all(city=city)] == expected
    wanted: list[tuple[str, Any]] = [
        *(("email", email(n)) for n in range(VALUES)),
        *(("phone", n) for n in range(VALUES)),
    ]
    for name, value in wanted:
        found = people.find(**{name: value})
        assert (None if found is None else found.key) == held.get((name, value)), (name, value)
        if found is None:
            people.delete(people.create("probe", {name: value}))
        else:
            with pytest.raises(Taken):
                people.create("probe", {name: value})


def assert_clean(app: App, noted: Noted) -> None:
    """See that no create has left anything. An update or delete that was killed may leave index records."""
    data, index = stored(app, "person")
    assert [key for key, record in data.items() if record.is_dummy] == []
    real = {record.generation.hex() for record in data.values()} | noted.generations
    assert [entry for entry in index.values() if entry.generation.hex() not in real] == []
    assert stored(app, "fairlead.items") == ({}, {})


def assert_items(app: App, noted: Noted, path: Path) -> None:
    """See that each item was counted once, and that no two items of one key ran at the same time."""
    rows = [app.tenant(shop(n)).transact(lambda tr: list(tr.get_range((), snapshot=True))) for n in range(SHOPS)]
    counted = {key[1]: int.from_bytes(value, "little") for each in rows for key, value in each if key[0] == "done"}
    tokens = {key[1]: value.decode() for each in rows for key, value in each if key[0] == "token"}
    assert set(counted.values()) == {1}
    assert noted.enqueued.keys() <= counted.keys()
    begun: dict[tuple[str, str], int] = {}
    ended: dict[tuple[str, str], int] = {}
    for line in lines_of(path):
        what, key, item_id, token, time_ns = line.split()
        if what == "begin":
            begun.setdefault((key, item_id), int(time_ns))
        elif tokens.get(item_id) == token:
            ended[key, item_id] = int(time_ns)
    spans = sorted((key, begun[key, item_id], end) for (key, item_id), end in ended.items())
    assert len(spans) == len(counted)
    for (key, _, end), (next_key, begin, _) in pairwise(spans):
        assert key != next_key or end < begin, f"two items of {key} at once"


@pytest.mark.timeout(1_500)
@pytest.mark.parametrize("kills", [3, pytest.param(60, marks=pytest.mark.long)])
def test_records_are_kept_found_and_unique_though_slots_move_and_processes_are_killed(
    app: App, chosen: Config, tmp_path: Path, kills: int, record_property: Any
) -> None:
    random, movers, begun = Random(kills), Movers(app, Random(kills + 1), moving_tenants()), time.monotonic()
    written(chosen, tmp_path)
    people = app.records("person", unique=("email", "phone"), lookup=("city",))
    with machine(tmp_path) as here, consumer(chosen, reference=REFERENCE) as running:
        with (tmp_path / "log").open("w") as log:
            clerks = Clerks(here, random, log)
            with movers.running():
                for number in range(kills):
                    eventually(lambda number=number: len(clerk_lines(tmp_path)) > 100 * (number + 1))  # type: ignore[misc]
                    if number % 3 == 2:
                        kill_one(running, chosen, random.choice(["worker", "scanner", "manager"]), random)
                    else:
                        time.sleep(random.random() / 2)
                        clerks.kill_one()
                clerks.end()
        eventually(lambda: depth(app) == 0, otherwise=lambda: f"{depth(app)} items are left")
        noted = Noted(tmp_path)
        assert_clean(app, noted)
        assert_items(app, noted, tmp_path / "counted")
        assert_records(people, noted)
        assert_nothing_left(app)
    assert movers.errors == []
    assert movers.ended["moved"] > 0
    record_property(
        f"{kills} kills of clerks and actors while slots moved between two shards",
        f"{dict(noted.counts)} and {dict(movers.ended)} moves in {time.monotonic() - begun:.0f} s",
    )


def clerk_lines(directory: Path) -> list[str]:
    return [line for number in range(CLERKS) for line in lines_of(directory / f"clerk-{number}")]


def _email_key(number: int) -> bytes:
    return pack_unique(Field("email", is_unique=True), email(number))
