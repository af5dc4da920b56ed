"""Since when the oldest item waits, and what is held back: found from the pointers, within bounds."""

from __future__ import annotations

import pytest

from fairlead.zones.layout import Tenant
from fairlead.zones.top_level import depth
from fairlead.zones.top_level.depth import BLOCKED_ITEMS_MAX, Backlog
from tests.zones.world import World

SECOND = 1_000_000


def waits(world: World, *, paused: bool = False) -> Backlog:
    return world.run(lambda tr: depth.backlog(tr, world.layout, world.now_us, paused=paused))


def hold_back(world: World, user: str, count: int = 1) -> Tenant:
    """Enqueue items that no consumer can run, and let a consumer find that."""
    tenant = Tenant("shop", user)
    for _ in range(count):
        world.enqueue("slow", zone=world.zone_of(tenant))
    world.process({"mail": 10})
    return tenant


def test_an_item_that_is_held_back_goes_on_waiting_while_its_pointer_sleeps(world: World) -> None:
    """Before, nothing waited whenever all pointers of throttled queues slept, which is most of the time."""
    since_us = world.now_us
    hold_back(world, "alice", 3)
    world.pass_us(1)
    found = waits(world)
    assert world.scan() == [], "its pointer sleeps"
    assert (found.oldest_us, found.whole) == (since_us, True)
    assert (found.blocked_items, found.blocked_queues, found.blocked_oldest_us, found.blocked_whole) == (
        3,
        1,
        since_us,
        True,
    )


def test_an_item_that_can_run_is_not_held_back(world: World) -> None:
    since_us = world.now_us
    world.enqueue("mail")
    found = waits(world)
    assert (found.oldest_us, found.blocked_items, found.blocked_oldest_us) == (since_us, 0, None)


def test_a_flood_does_not_hide_what_is_held_back_longer(world: World) -> None:
    since_us = world.now_us
    hold_back(world, "alice")
    world.pass_us(60 * SECOND)
    for number in range(100):
        world.enqueue("mail", zone=world.zone_of(Tenant("flood", f"user {number}")))
    found = waits(world)
    assert (found.oldest_us, found.blocked_items, found.blocked_oldest_us) == (since_us, 1, since_us)
    assert (found.whole, found.blocked_whole) == (False, True), "of the hundred that can run, 64 are looked at"


def test_a_delayed_item_neither_waits_nor_is_held_back(world: World) -> None:
    world.enqueue("slow", delay=60)
    assert waits(world) == Backlog(None, True, 0, 0, None, True)


def test_on_a_paused_shard_all_that_has_vested_is_held_back(world: World) -> None:
    world.enqueue("mail")
    assert waits(world, paused=True).blocked_items == 1


def test_a_count_beyond_the_limit_is_reported_as_a_lower_bound(world: World) -> None:
    hold_back(world, "alice", BLOCKED_ITEMS_MAX + 1)
    found = waits(world)
    assert (found.blocked_items, found.blocked_whole) == (BLOCKED_ITEMS_MAX, False)


def test_of_too_many_held_queues_the_same_ones_are_looked_at_each_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An age that changes with the sample would make an alarm flap."""
    monkeypatch.setattr(depth, "BLOCKED_QUEUES_MAX", 2)
    for number in range(5):
        hold_back(world, f"user {number}")
        world.pass_us(SECOND)
    first = waits(world)
    for _ in range(5):
        world.pass_us(SECOND // 2)
        world.process({"mail": 10})
        found = waits(world)
        assert (found.blocked_queues, found.blocked_whole, found.oldest_us) == (2, False, first.oldest_us)
