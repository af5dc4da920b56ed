"""Tenants share what there is by their weights, from the commit on that says so."""

from __future__ import annotations

from collections import Counter

import pytest

from fairlead.zones.layout import Tenant
from fairlead.zones.policy import policies
from fairlead.zones.queue.dequeue_plan import Capacity
from fairlead.zones.queue.items import new_item
from fairlead.zones.top_level.process_pointers import DequeueParams, process_pointers
from tests.zones.world import ANY, SECOND, World


def named(user: str) -> Tenant:
    return Tenant("shop", user)


def flood(world: World, *users: str, items: int = 1_000) -> None:
    for user in users:
        world.enqueue_all([new_item("mail")] * items, zone=world.zone_of(named(user)))


def weigh(world: World, user: str, weight: float) -> None:
    world.run(
        lambda tr: policies.change_tenant_policy(tr, world.layout, named(user), now_us=world.now_us, weight=weight)
    )


def shares(world: World, batches: int, *, capacity: int, pointers: int = 1_000, dequeue_max: int = 64) -> Counter[str]:
    """Serve the oldest pointers again and again, as a manager with capacity for so many; count whose items it takes."""
    taken: Counter[str] = Counter()
    for _ in range(batches):
        world.pass_us(1_000)
        refs = sorted(world.scan(), key=lambda ref: (ref.vesting_us, ref.id))[: min(pointers, capacity)]
        items_max = min(dequeue_max, capacity // len(refs))
        terms = DequeueParams(world.now_us, world.new_id(), 100 * SECOND, items_max, SECOND, SECOND)
        visits, _ = world.run(lambda tr: process_pointers(tr, world.layout, refs, Capacity(capacity, ANY), terms))  # noqa: B023
        for visit in visits:
            assert visit.location is not None
            taken[visit.location.tenant.user] += len(visit.items)
    return taken


def test_without_weights_all_take_equally_many(world: World) -> None:
    flood(world, "a", "b", "c")
    assert shares(world, 5, capacity=30) == {"a": 50, "b": 50, "c": 50}


def test_a_heavier_tenant_takes_more_of_every_batch(world: World) -> None:
    flood(world, "a", "b", "c")
    weigh(world, "a", 3)
    assert shares(world, 5, capacity=45) == {"a": 135, "b": 45, "c": 45}


def test_a_lighter_tenant_takes_less_and_fractions_add_up(world: World) -> None:
    flood(world, "a", "b")
    weigh(world, "a", 0.25)
    assert shares(world, 8, capacity=20) == {"a": 20, "b": 80}


@pytest.mark.parametrize("weight", [2, 5])
def test_with_capacity_for_one_item_at_a_time_a_heavier_tenant_keeps_its_place(world: World, weight: float) -> None:
    """Long items: a worker has a free slot now and then, and there is nothing to divide."""
    flood(world, "a", "b", "c", items=100)
    weigh(world, "a", weight)
    taken = shares(world, 10 * (int(weight) + 2), capacity=1)
    assert taken == {"a": 10 * weight, "b": 10, "c": 10}


def test_with_capacity_for_one_item_at_a_time_a_lighter_tenant_passes_its_turn_on(world: World) -> None:
    flood(world, "a", "b", items=100)
    weigh(world, "a", 0.5)
    taken = shares(world, 61, capacity=1)
    assert 2 * taken["a"] - 2 <= taken["b"] <= 2 * taken["a"] + 2
    assert taken["a"] > 10


def test_a_single_heavy_tenant_takes_all_capacity(world: World) -> None:
    flood(world, "a", items=100)
    weigh(world, "a", 100)
    assert shares(world, 2, capacity=50) == {"a": 100}


def test_every_tenant_gets_an_item_however_heavy_another_is(world: World) -> None:
    flood(world, *"abcdefgh", items=200)
    weigh(world, "a", 100)
    taken = shares(world, 40, capacity=8)
    assert all(taken[user] >= 1 for user in "abcdefgh")


def test_a_weight_takes_no_capacity_from_the_others_of_its_batch(world: World) -> None:
    """Who finds the capacity used up would be put off as if its kind were at its limit."""
    flood(world, *"abcdefgh")
    weigh(world, "a", 5)
    shares(world, 1, capacity=8)
    assert len(world.scan()) == 8


def test_a_tenant_whose_queue_is_empty_leaves_no_deficit_behind(world: World) -> None:
    flood(world, "a", items=1)
    flood(world, "b")
    weigh(world, "a", 5)
    shares(world, 3, capacity=1)
    pointer = world.pointer(world.zone_of(named("a")))
    assert pointer is not None
    assert pointer.deficit == 0


# --- A tenant with many queue zones ---


def flood_zones(world: World, user: str, zones: int, *, items: int = 100) -> None:
    for number in range(zones):
        world.enqueue_all([new_item("mail")] * items, zone=world.zone_of(named(user), f"z{number}"))


def test_a_tenant_with_many_queue_zones_has_one_turn_in_a_batch_and_not_one_for_each(world: World) -> None:
    """Before, its share of what a batch may take grew with the number of its zones."""
    flood_zones(world, "a", 8)
    flood(world, "b")
    assert shares(world, 5, capacity=9 * 16, dequeue_max=16) == {"a": 5 * 16, "b": 5 * 16}


def test_each_zone_of_a_tenant_takes_an_item_however_many_there_are(world: World) -> None:
    flood_zones(world, "a", 40)
    flood(world, "b")
    taken = shares(world, 1, capacity=1_000, dequeue_max=16)
    assert taken == {"a": 40, "b": 16}


def test_a_single_tenant_does_not_divide_its_quantum(world: World) -> None:
    flood_zones(world, "a", 8)
    assert shares(world, 1, capacity=1_000, dequeue_max=16) == {"a": 8 * 16}


def test_a_weight_is_the_tenants_and_not_each_of_its_zones(world: World) -> None:
    flood_zones(world, "a", 4)
    flood(world, "b")
    weigh(world, "a", 2)
    taken = shares(world, 6, capacity=5 * 12, dequeue_max=12)
    assert 1.8 <= taken["a"] / taken["b"] <= 2.2
