"""A fleet drains a store in which records and keys of every subspace are damaged: only damaged queues wait."""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fairlead import App, Config, Job, fleet
from fairlead.actors.telemetry.errors import USERS_ERROR
from fairlead.fleet import Fleet
from fairlead.workflows.context import WorkflowContext
from fairlead.zones import engines
from fairlead.zones.keyspace import META_KEY, ROOT_RANGE, TenantKeys
from fairlead.zones.maintenance.integrity import check_integrity
from fairlead.zones.tuples import elements_of
from tests.workflows.application import add, count
from tests.zones.corrupting import damage_of, left

VICTIMS, BYSTANDERS = 30, 10
PARCELS = 20
LIMIT_S = 20.0


class Shop:
    """An application on disk, its fleet of threads, and the items that have run."""

    def __init__(self, directory: Path) -> None:
        self.app = App(config=Config(shards={"main": f"embedded:{directory}"}))
        self.ran: Counter[str] = Counter()
        for kind in ("mail", "index"):
            self.app.handler(kind)(self.run)
        self.app.handler("broken", permanent=(ValueError,))(self.fail)
        self.app.workflow("checkout")(self.checkout)
        self.app.every(1, kind="tick")(self.run)
        self.fleet: Fleet | None = None

    def run(self, job: Job) -> None:
        self.ran[job.tenant.user] += 1
        time.sleep(0.002)

    def checkout(self, wf: WorkflowContext) -> None:
        wf.step(add, "ordered")
        for _ in range(PARCELS):
            wf.sleep(0.1)
            wf.step(add, "packed")

    def fail(self, job: Job) -> None:
        raise ValueError(job.id)

    def fill(self, name: str, count: int) -> None:
        database = self.app.tenant("shop", name)
        for number in range(count):
            database.enqueue("mail" if number % 3 else "index", bytes(20_000) if number == 1 else {"number": number})
        database.enqueue("broken")
        database.enqueue("checkout", item_id="checkout")
        database.enqueue("mail", item_id="once", unique_for=60)
        database.enqueue("mail", delay=3600)

    def pairs(self) -> list[tuple[bytes, bytes]]:
        return engines.transact(
            self.app.shards["main"].db, lambda tr: [(row.key, row.value) for row in tr.get_range(*ROOT_RANGE)]
        )

    def damage(self, random: Random) -> None:
        """Damage a few pairs of every subspace, except those of the bystanders."""
        spared = tuple(TenantKeys("shop", name).packed for name in names("bystander", BYSTANDERS))
        sorts: dict[Any, list[tuple[bytes, bytes]]] = defaultdict(list)
        for key, value in self.pairs():
            if key != META_KEY and not any(each in key for each in spared):
                elements = elements_of(key)
                sorts[elements[1:2] + elements[4:5] + elements[6:7]].append((key, value))

        def body(tr: Any) -> None:
            for pairs in sorts.values():
                for pair in random.sample(pairs, min(3, len(pairs))):
                    done = damage_of(pair, random)
                    if not any(each in done.after[0] for each in (*spared, META_KEY)):
                        tr.clear(pair[0])
                        tr.set(*done.after)

        engines.transact(self.app.shards["main"].db, body)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path / "data")
    yield made
    if made.fleet is not None:
        made.fleet.stop(drain=0)
    made.app.close()


def names(stem: str, count: int) -> list[str]:
    return [f"{stem} {number}" for number in range(count)]


MORE_SEEDS = [pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 60)]


@pytest.mark.parametrize("seed", [1, 2, 3, *MORE_SEEDS])
def test_other_tenants_are_served_while_records_and_keys_are_damaged(
    shop: Shop, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    random = Random(seed)
    for name in names("victim", VICTIMS) + names("bystander", BYSTANDERS):
        shop.fill(name, 8)
    shop.app.control.limit_tenant("shop", "victim 1", max_running=2, per_s=100)
    shop.app.control.limit_kind("index", max_running=50)
    shop.fleet = fleet.start(shop.app, "shop:app", runtime="threads")
    eventually(lambda: shop.ran.total() > 20)
    for round in range(1, 4):
        shop.damage(random)
        for name in names("bystander", BYSTANDERS):
            shop.app.tenant("shop", name).enqueue("mail")
        wanted = 9 + round
        eventually(lambda: all(shop.ran[name] >= wanted for name in names("bystander", BYSTANDERS)))  # noqa: B023
    counts = {"ordered": 1, "packed": PARCELS}
    bystanders = [str(shop.app.tenant("shop", name).tenant) for name in names("bystander", BYSTANDERS)]
    eventually(lambda: all({each: count(shop.app, name, each) for each in counts} == counts for name in bystanders))
    told = [record.message for record in caplog.records if "cannot be read, and are skipped" in record.message]
    assert len(told) <= 3 * VICTIMS, "a line for each queue, and not for each visit"
    ours = [record for record in caplog.records if not hasattr(record, USERS_ERROR)]  # Not the error of a handler.
    # One flipped bit of a count of attempts makes a record that can be read, of an item that is to be given up.
    given_up = [record for record in ours if "of shop/victim" in record.message and "is given up" in record.message]
    assert not [record for record in ours if record.levelno >= logging.ERROR and record not in given_up]
    shop.fleet.stop(drain=5)
    shop.fleet = None
    assert left(check_integrity(shop.app.shards["main"], quarantine=True)) == []


def eventually(condition: Any) -> None:
    until = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < until, "it does not happen"
        time.sleep(0.01)
