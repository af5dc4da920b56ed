"""All orders of builds and drops of an index beside clients, over the real fill and the real stages."""

from collections.abc import Iterable
from typing import Any

import pytest

from tests.records.orders.enumeration import Violation, enumerate_orders
from tests.records.orders.index_changes import PLANTED, IndexClients, scenes_of, scenes_without

NAMES = list(scenes_of(IndexClients()))

# A short run leaves these out, which take most of the time.
MANY_ORDERS = (
    "a fill, a key is given up and taken",
    "an update of a record that was filled meanwhile keeps the key",
)


def all_of(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.long if name in MANY_ORDERS else ()) for name in names]


@pytest.mark.parametrize("name", all_of(NAMES))
def test_an_index_that_is_readable_is_complete_in_every_order_with_a_stop_anywhere(name: str) -> None:
    assert enumerate_orders(scenes_of(IndexClients())[name]) > 30


@pytest.mark.parametrize("guard", all_of(PLANTED))
def test_without_a_guard_some_order_shows_an_index_that_is_not(guard: str) -> None:
    assert violations(guard), f"no order shows why {guard}"


def violations(guard: str) -> list[str]:
    """Return what is violated without a guard, in the first scene that shows it."""
    for scene in scenes_without(guard).values():
        try:
            enumerate_orders(scene)
        except Violation as violation:
            return [str(violation)]
    return []
