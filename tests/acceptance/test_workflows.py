"""Workflows over two shards while processes are killed at any instant: each step has happened exactly once."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fairlead import App, Config
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.acceptance.fleets import ROLES, ZONES, config, consumer, eventually, kill_one
from tests.acceptance.loads import assert_nothing_left, depth, lines_of
from tests.acceptance.workflow_shop import DEPOTS, depot
from tests.foundationdb_server import FoundationServer, needs_server
from tests.workflows.application import kept_keys

pytestmark = pytest.mark.usefixtures("cluster")

SHOP = "tests.acceptance.workflow_shop:app"
BUYERS = 10
KINDS = ("journey", "undone", "branches")


@pytest.fixture(params=["embedded", pytest.param("foundationdb", marks=needs_server)])
def chosen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Config]:
    if request.param == "embedded":
        yield config(tmp_path, shards=("a", "b"))
        return
    with FoundationServer(tmp_path / "one") as one, FoundationServer(tmp_path / "two") as two:
        settings = config(tmp_path).consumer
        yield Config(shards={"a": one.url, "b": two.url}, consumer=settings, zones=ZONES)


def buyer(number: int) -> str:
    return f"shop/user {number % BUYERS}"


class Orders:
    """Begins workflows of each kind in turn, and sends each journey its signal: at once, or some orders later."""

    def __init__(self, app: App, path: Path) -> None:
        self.app = app
        self.path = path
        self.count = 0
        self._waiting: list[int] = []

    def place(self, count: int) -> None:
        for number in range(self.count, self.count + count):
            kind = KINDS[number % len(KINDS)]
            payload: dict[str, Any] = {"number": number}
            if kind != "branches":
                payload["path"] = str(self.path)
            if kind == "journey":
                self.app.tenant(depot(number + 3)).enqueue("listener", {"number": number}, item_id=f"listener-{number}")
                self._waiting.append(number)
            self.app.tenant(buyer(number)).enqueue(kind, payload, item_id=f"{kind}-{number}")
            if len(self._waiting) > number % 7:
                self._approve(self._waiting.pop(0))
        self.count += count

    def approve_all(self) -> None:
        while self._waiting:
            self._approve(self._waiting.pop())

    def _approve(self, number: int) -> None:
        self.app.tenant(buyer(number)).signal(f"journey-{number}", "go")


def counts(app: App) -> Counter[tuple[str, int]]:
    """Return how often each step of each order has happened, wherever."""
    found: Counter[tuple[str, int]] = Counter()

    def body(tr: TenantTransaction) -> list[tuple[tuple[Any, ...], bytes]]:
        return list(tr.get_range((), snapshot=True))

    for tenant in [*map(buyer, range(BUYERS)), *map(depot, range(DEPOTS))]:
        for (what, number), value in app.tenant(tenant).transact(body):
            found[what, number] += int.from_bytes(value, "little")
    return found


def expected(count: int) -> Counter[tuple[str, int]]:
    """Return the same as a sequential execution leaves it."""
    steps: Counter[tuple[str, int]] = Counter()
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        if kind == "journey":
            steps.update({(what, number): 1 for what in ("home", "there", "again", "last", f"heard {2 * number}")})
        elif kind == "undone":
            steps.update({("done", number): 2, ("undone", number): 2})
        else:
            steps.update({(f"branch {each}", number): 3 for each in range(3)})
    return steps


def assert_exactly_once(orders: Orders) -> None:
    """Wait until every workflow has ended; check the counts of all steps, and the keys of all effects."""
    app = orders.app
    eventually(lambda: depth(app) == 0, within_s=180, otherwise=lambda: f"{depth(app)} items are left")
    assert [each.error for number in range(BUYERS) for each in app.tenant(buyer(number)).dead_letters()] == []
    assert counts(app) == expected(orders.count)
    keys, repaid = defaultdict(set), Counter[int]()
    for line in lines_of(orders.path):
        number, key, *result = line.split()
        if key == "back":
            repaid[int(number)] += 1
            assert result != ["?"]
        else:
            keys[int(number)].add(key)
    paid = {number for number in range(orders.count) if KINDS[number % len(KINDS)] != "branches"}
    assert set(keys) == paid
    assert {len(each) for each in keys.values()} == {1}, "an effect was called with two keys"
    assert set(repaid) == {number for number in paid if KINDS[number % len(KINDS)] == "undone"}


@pytest.mark.timeout(1_500)
@pytest.mark.parametrize("kills", [6, pytest.param(60, marks=pytest.mark.long)])
def test_every_step_happens_once_though_processes_are_killed(
    app: App, chosen: Config, tmp_path: Path, kills: int, record_property: Any
) -> None:
    """Each role, and workers more often than others."""
    random = Random(kills)
    orders = Orders(app, tmp_path / "paid")
    begun = time.monotonic()
    with consumer(chosen, reference=SHOP) as running:
        for _ in range(kills):
            orders.place(30)
            kill_one(running, chosen, random.choice([*ROLES, "worker", "worker"]), random)
        orders.approve_all()
        assert_exactly_once(orders)
        assert_nothing_left(app)
        assert [key for number in range(BUYERS) for key in kept_keys(app, buyer(number))] == []
    record_property(
        f"{kills} kills while workflows ran over two shards",
        f"{orders.count} workflows in {time.monotonic() - begun:.0f} s, each step once",
    )


def test_a_workflow_of_three_steps_is_answered_soon(app: App, chosen: Config, tmp_path: Path) -> None:
    with consumer(chosen, reference=SHOP):
        app.tenant(buyer(0)).enqueue("listener", {"number": 0}, item_id="listener-0")
        item = app.tenant(buyer(1)).enqueue("branches", {"number": 1})
        eventually(partial(_has_ended, app, item))
        app.tenant(buyer(0)).signal("listener-0", "done", 1)
        eventually(lambda: depth(app) == 0)
    assert counts(app) == Counter({("heard 1", 0): 1, **{(f"branch {each}", 1): 3 for each in range(3)}})


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_workflow_that_kills_its_workers_becomes_a_dead_letter_and_others_go_on(app: App, chosen: Config) -> None:
    """Its step before that is done once, and `why` tells where it stood."""
    places = ("function", "step", "effect")
    with consumer(chosen, reference=SHOP):
        items = [app.tenant(f"poison/{where}").enqueue("poison", {"where": where}) for where in places]
        app.tenant(buyer(0)).enqueue("branches", {"number": 1})
        eventually(
            lambda: depth(app) == 0,
            within_s=180,
            otherwise=lambda: [item.explain() for item in items],
        )
    assert counts(app) == Counter({(f"branch {each}", 1): 3 for each in range(3)})
    for where, item in zip(places, items, strict=True):
        (dead,) = app.tenant(f"poison/{where}").dead_letters()
        assert (dead.reason, dead.error) == ("lease expired", "its worker died or stalled while it ran this item alone")
        assert count(app, f"poison/{where}", "done") == 1
        assert "what its recorded step add has done stays done" in item.explain().sentence


def count(app: App, tenant: str, what: str) -> int:
    return app.tenant(tenant).transact(lambda tr: int.from_bytes(tr.get((what, 0)) or b"", "little"))


def _has_ended(app: App, item: Any) -> bool:
    return app.tenant(buyer(1)).count().get("branches", 0) == 0
