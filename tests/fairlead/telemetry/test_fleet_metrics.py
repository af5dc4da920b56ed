"""The metrics of the stores are read from the stores, with or without a fleet."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from fairlead import App
from fairlead.actors.telemetry.metrics import DEPTH, HELD_BACK, HELD_BACK_AGE, MOVES, MOVES_COPIED, OLDEST_AGE
from fairlead.telemetry.fleet_metrics import PROCESS, STORES, FleetMetrics
from fairlead.testing import ManualClock, drain
from fairlead.zones.engines import StoreUnavailable


@pytest.fixture
def app() -> Iterator[App]:
    app = App({"eu": "memory:", "us": "memory:"}, clock=ManualClock(), random=Random(3))
    yield app
    app.close()


def test_depth_is_by_kind_and_age_by_shard(app: App) -> None:
    app.enqueue_local("mail", shard="eu")
    app.clock.sleep_us(5_000_000)
    app.enqueue_local("fax", shard="eu")
    app.enqueue_local("fax", shard="us", delay=60)
    numbers = FleetMetrics(app).read_stores().numbers
    assert {labels: number for (name, labels), number in numbers.items() if name == DEPTH.name} == {
        ("eu", "mail"): 1,
        ("eu", "fax"): 1,
        ("us", "fax"): 1,
    }
    assert numbers[OLDEST_AGE.name, ("eu",)] == 5.0
    assert numbers[OLDEST_AGE.name, ("us",)] == 0.0


def test_an_item_that_is_held_back_has_an_age_and_is_counted_apart(app: App) -> None:
    """Before, an alarm on the age never fired while a limit, a pause or an unknown kind held all items back."""
    app.enqueue_local("unknown", shard="eu")
    drain(app)
    app.clock.sleep_us(5_000_000)
    numbers = FleetMetrics(app).read_stores().numbers
    assert [numbers[each.name, ("eu",)] for each in (OLDEST_AGE, HELD_BACK, HELD_BACK_AGE)] == [5, 1, 5]
    assert [numbers[each.name, ("us",)] for each in (OLDEST_AGE, HELD_BACK, HELD_BACK_AGE)] == [0, 0, 0]


def test_moves_that_are_under_way_are_counted(app: App) -> None:
    alice = app.tenant("shop/alice")
    alice.transact(lambda tr: tr.set(("order", 7), b"paid"))
    at, to = alice.shard.name, "us" if alice.shard.name == "eu" else "eu"
    app.move(alice, to=to)

    def moves() -> list[float]:
        numbers = FleetMetrics(app).read_stores().numbers
        return [numbers[each.name, (name,)] for name in (at, to) for each in (MOVES, MOVES_COPIED)]

    assert moves() == [1, 0, 0, 0]
    drain(app)
    assert moves() == [0, 0, 0, 0]


def test_an_unreadable_shard_does_not_hide_the_others(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    app.enqueue_local("mail", shard="us")

    def refuse(*args: object) -> None:
        raise StoreUnavailable("the disk is gone", remedy="Bring it back.")

    monkeypatch.setattr(app.shards["eu"].db, "create_transaction", refuse)
    assert {labels[0] for _, labels in FleetMetrics(app).read_stores().numbers} == {"us"}


def test_metrics_of_the_stores_need_no_fleet(app: App) -> None:
    assert set(FleetMetrics(app).readings()) == {STORES, PROCESS}
