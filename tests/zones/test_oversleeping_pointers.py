"""Pointers and leases of a clock that was ahead for a moment: they end when a good clock finds them."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.zones.keyspace import PartKeys
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.top_level.pointers import OversleepScan, longest_sleep_us, wake_oversleeping
from fairlead.zones.top_level.process_pointers import lease
from tests.zones.world import LEASE_US, MS, SECOND, World

HOUR_US = 3_600 * SECOND
SETTINGS = ZoneSettings()


def look(world: World, *, entries_max: int = 64) -> int:
    """Search every part from its end to its beginning; return how many pointers were woken."""
    return sum(look_at(world, part, entries_max) for part in world.layout.parts)


def look_at(world: World, part: PartKeys, entries_max: int) -> int:
    woken, end = 0, b""
    while True:

        def body(tr: Any, end: bytes = end) -> OversleepScan:
            return wake_oversleeping(tr, world.layout, part, now_us=world.now_us, entries_max=entries_max, end=end)

        looked = world.run(body)
        woken, end = woken + looked.woken, looked.end
        if not end:
            return woken


def served_by_a_clock_that_is_ahead(world: World, ahead_us: int) -> None:
    world.pass_us(ahead_us)
    world.process(items_max=1)
    world.pass_us(-ahead_us)


@pytest.mark.parametrize("ahead_us", [HOUR_US, 365 * 24 * HOUR_US])
def test_a_backlog_that_was_served_by_a_clock_that_was_ahead_is_found_and_runs(world: World, ahead_us: int) -> None:
    """Before, items that were enqueued by a good clock waited until that time came."""
    world.enqueue()
    world.enqueue()
    served_by_a_clock_that_is_ahead(world, ahead_us)
    assert world.scan() == [], "no scan would find it for as long as that"
    assert look(world) == 1
    (result,) = world.process()
    assert len(result.items) == 1


def test_an_item_that_such_a_clock_leased_is_leased_again_even_if_it_is_the_only_one(world: World) -> None:
    world.enqueue()
    served_by_a_clock_that_is_ahead(world, HOUR_US)
    look(world)
    (result,) = world.process()
    assert result.items == [], "its lease has not ended, by the index"
    (result,) = world.process()
    assert len(result.items) == 1
    assert result.items[0].had_expired


def test_an_item_that_such_a_clock_leased_is_leased_again_although_others_wait_for_long_before_it(
    world: World,
) -> None:
    """Before, only the first that waits was looked at."""
    world.enqueue()
    served_by_a_clock_that_is_ahead(world, HOUR_US)
    for minutes in range(40, 50):
        world.enqueue(delay=minutes * 60)
    world.enqueue()
    (item,) = world.process()[0].items
    world.run(lambda tr: world.zone.complete(tr, item.id, lease_id=item.record.lease_id, now_us=world.now_us))
    world.pass_us(LEASE_US)
    assert world.process()[0].items == []
    (again,) = world.process()[0].items
    assert again.had_expired


def test_a_pointer_that_such_a_clock_leased_is_found(world: World) -> None:
    world.enqueue()
    ref = world.ref()
    world.pass_us(HOUR_US)
    world.run(lambda tr: lease(tr, world.layout, ref, lease_id=b"l" * 16, lease_us=SECOND, now_us=world.now_us))
    world.pass_us(-HOUR_US)
    assert look(world) == 1
    assert len(world.process()[0].items) == 1


def test_a_pointer_to_an_item_delayed_by_a_year_may_sleep_for_a_year(world: World) -> None:
    world.enqueue(delay=365 * 24 * 3600)
    for _ in range(10):
        assert look(world) == 0
        world.pass_us(HOUR_US)


def test_a_pointer_that_sleeps_as_long_as_any_may_is_left_asleep(world: World) -> None:
    soon_s = SETTINGS.max_item_lease_ms // 1000
    world.enqueue(delay=3600)
    world.pass_us(HOUR_US - 1)
    world.enqueue(delay=soon_s)
    world.pass_us(1)
    world.process()
    assert world.pointer_delay_us() <= SETTINGS.max_sleep_ms * MS
    assert look(world) == 0


def test_a_pointer_that_sleeps_because_all_items_wait_is_left_asleep(world: World) -> None:
    world.enqueue(delay=10)
    world.enqueue(delay=10 * 86_400)
    world.pass_us(10 * SECOND)
    world.process()
    (held,) = world.run(lambda tr: world.zone.peek(tr, items_max=1, now_us=world.now_us + LEASE_US))
    world.run(lambda tr: world.zone.complete(tr, held.id, now_us=world.now_us))
    world.pass_us(LEASE_US)
    world.process()
    assert world.pointer_delay_us() > SETTINGS.max_sleep_ms * MS
    for _ in range(20):
        assert look(world) == 0
        world.pass_us(HOUR_US)


def test_a_clock_that_is_off_by_less_than_is_allowed_wakes_no_pointer(world: World) -> None:
    world.enqueue(delay=3600)
    pointer = world.pointer()
    assert pointer is not None
    assert pointer.vesting_us > longest_sleep_us(world.now_us, SETTINGS)
    world.pass_us(-SETTINGS.max_skew_ms * MS)
    assert look(world) == 0


def test_many_that_sleep_rightly_do_not_hide_one_that_oversleeps(world: World) -> None:
    world.enqueue()
    world.enqueue()
    served_by_a_clock_that_is_ahead(world, HOUR_US)
    for number in range(50):
        world.enqueue(delay=10 * 3600, zone=world.zone_of(world.zone.location.tenant, f"z{number}"))
    assert look(world, entries_max=7) == 1


def test_the_pointer_of_an_empty_queue_is_deleted_even_if_such_a_clock_processed_it_last(world: World) -> None:
    """Before, it was processed again and again, until that time had come."""
    world.enqueue()
    world.pass_us(HOUR_US)
    (result,) = world.process()
    (item,) = result.items
    world.run(lambda tr: world.zone.complete(tr, item.id, lease_id=item.record.lease_id, now_us=world.now_us))
    world.pass_us(-HOUR_US)
    look(world)
    world.process()
    assert world.pointer() is None
