"""All orders of each scene, over the real protocol."""

import pytest

from fairlead.records.protocol import Protocol
from tests.records.orders.enumeration import Violation, enumerate_orders
from tests.records.orders.guards import GUARDS, scenes_without
from tests.records.orders.scenes import scenes

NAMES = list(scenes(Protocol()))


@pytest.mark.parametrize("name", NAMES)
def test_everything_holds_in_every_order_of_accesses_with_a_stop_anywhere(name: str) -> None:
    assert enumerate_orders(scenes(Protocol())[name]) > 10


@pytest.mark.parametrize("guard", GUARDS)
def test_without_a_guard_some_order_violates_what_must_hold(guard: str) -> None:
    assert violations(guard), f"no order shows why {guard}"


def violations(guard: str) -> list[str]:
    """Return what is violated without a guard, in the first scene that shows it."""
    for scene in scenes_without(guard).values():
        try:
            enumerate_orders(scene)
        except Violation as violation:
            return [str(violation)]
    return []
