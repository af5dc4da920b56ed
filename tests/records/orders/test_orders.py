"""All orders of each scene, over the real protocol."""

from collections.abc import Iterable
from typing import Any

import pytest

from fairlead.records.protocol import Protocol
from fairlead.records.stored import DataRecord
from tests.records.orders.enumeration import Violation, enumerate_orders
from tests.records.orders.guards import GUARDS, ON_SHARDS, on_shards, scene_on_shards_without, scene_without
from tests.records.orders.scenes import repair_scenes, scenes
from tests.records.orders.tenant_transactions import WITHIN, scene_within_without, tenant_scenes

PROTOCOL = Protocol(leaves_unindexed=True)
SCENES = {**scenes(PROTOCOL), **repair_scenes(PROTOCOL)}


# A short run leaves this scene out, which has more orders than all others together.
MANY_ORDERS = "garbage, two takers, the record that it names changes"


def all_of(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.long if name == MANY_ORDERS else ()) for name in names]


@pytest.mark.parametrize("name", all_of(SCENES))
def test_everything_holds_in_every_order_of_accesses_with_a_stop_anywhere(name: str) -> None:
    assert enumerate_orders(SCENES[name]) > 10


@pytest.mark.parametrize("name", all_of(on_shards()))
def test_everything_holds_on_our_shards_in_every_order_of_transactions(name: str) -> None:
    assert enumerate_orders(on_shards()[name]) > 5


@pytest.mark.parametrize("guard", GUARDS)
def test_without_a_guard_some_order_violates_what_must_hold(guard: str) -> None:
    with pytest.raises(Violation):
        enumerate_orders(scene_without(guard))


@pytest.fixture
def versions_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare records by their versions alone, as the protocol does: shards compare all, because of restores."""
    monkeypatch.setattr(
        DataRecord,
        "is_as",
        lambda self, other: (self.generation, self.version) == (other.generation, other.version),
    )


@pytest.mark.usefixtures("versions_alone")
@pytest.mark.parametrize("guard", ON_SHARDS)
def test_without_a_guard_of_our_shards_some_order_violates_what_must_hold(guard: str) -> None:
    with pytest.raises(Violation):
        enumerate_orders(scene_on_shards_without(guard))


@pytest.mark.parametrize("name", tenant_scenes())
def test_everything_holds_beside_writes_within_transactions_of_a_tenant(name: str) -> None:
    assert enumerate_orders(tenant_scenes()[name]) > 5


@pytest.mark.usefixtures("versions_alone")
@pytest.mark.parametrize("guard", WITHIN)
def test_without_a_guard_of_writes_within_transactions_some_order_violates_what_must_hold(guard: str) -> None:
    with pytest.raises(Violation):
        enumerate_orders(scene_within_without(guard))
