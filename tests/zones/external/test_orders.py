"""Every order of accesses of a producer, a reader and consumers: no committed item is left behind a sleeping pointer.

Without one of the guards some order leaves an item behind.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlead.zones.external.store import ItemLease
from tests.simulation.races.missing_guards import planted
from tests.zones.external.town import LEASE_US, Town, schedules, with_pointer

Scene = Callable[[], tuple[Town, list[Callable[[], object]]]]


def beside_an_arrival(town: Town) -> list[Callable[[], object]]:
    """What goes on: an item is enqueued, the reader looks, and a consumer visits."""
    return [lambda: town.produce("new"), town.read, town.visit]


def emptied() -> Town:
    """A queue that has become empty, behind a pointer that still sleeps until a lease would have ended."""
    town = Town()
    town.produce("old")
    town.read()
    town.visit()
    town.items.complete([ItemLease(town.taken[0], None)])
    return town


def a_sleep_beside_an_arrival() -> tuple[Town, list[Callable[[], object]]]:
    """A visit finds the queue empty, and is about to put its pointer to sleep."""
    town = emptied()
    town.clock.advance_us(LEASE_US)
    with_pointer(town, last_active_us=town.clock.now_us())
    return town, beside_an_arrival(town)


def a_deletion_beside_an_arrival() -> tuple[Town, list[Callable[[], object]]]:
    """The queue has been empty for long, and a visit is about to delete its pointer."""
    town = emptied()
    town.clock.advance_us(1_000_000_000)
    return town, beside_an_arrival(town)


def a_first_arrival() -> tuple[Town, list[Callable[[], object]]]:
    """The queue has no pointer yet."""
    town = Town()
    return town, beside_an_arrival(town)


def two_readers() -> tuple[Town, list[Callable[[], object]]]:
    """Two transactions of users commit in any order, while a reader looks."""
    town = Town()
    return town, [lambda: town.produce("one"), lambda: town.produce("two"), town.read]


ORDERS_MIN = 50  # With fewer, nobody gives way.
SCENES = [a_sleep_beside_an_arrival, a_deletion_beside_an_arrival, a_first_arrival, two_readers]


def wrong_orders(scene: Scene) -> list[tuple[str, list[int]]]:
    """Return what is wrong at the end of orders of a scene."""
    found, orders = [], 0
    for town, order in schedules(scene):
        orders += 1
        wrong = town.waits_unseen()
        if wrong:
            found.append((wrong, order))
    assert orders > ORDERS_MIN
    return found


@pytest.mark.parametrize("scene", SCENES)
def test_in_every_order_an_item_is_found(scene: Scene) -> None:
    assert wrong_orders(scene) == []


BUGS = (
    "a visit of an external queue does not read the guard of its pointer",
    "a reader that finds a pointer awake does not write to its guard",
)


@pytest.mark.parametrize("bug", BUGS)
def test_without_a_guard_some_order_leaves_an_item_behind(bug: str) -> None:
    with planted(bug):
        assert any(wrong_orders(scene) for scene in SCENES)
