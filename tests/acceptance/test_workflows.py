"""Workflows over two shards while processes are killed at any instant: each step has happened exactly once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fairlead import App, Config
from tests.acceptance.fleets import ROLES, ZONES, config, consumer, eventually, kill_one
from tests.acceptance.loads import assert_nothing_left, depth
from tests.acceptance.orders import BUYERS, SHOP, Orders, assert_exactly_once, buyer, counts
from tests.foundationdb_server import FoundationServer, needs_server
from tests.workflows.application import kept_keys

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture(params=["embedded", pytest.param("foundationdb", marks=needs_server)])
def chosen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Config]:
    if request.param == "embedded":
        yield config(tmp_path, shards=("a", "b"))
        return
    with FoundationServer(tmp_path / "one") as one, FoundationServer(tmp_path / "two") as two:
        settings = config(tmp_path).consumer
        yield Config(shards={"a": one.url, "b": two.url}, consumer=settings, zones=ZONES)


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
