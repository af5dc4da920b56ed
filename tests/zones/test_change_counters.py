"""The change counter of a part, which scanners watch, changes with each pointer that vests earlier than before."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlead.zones.top_level.pointers import wake_oversleeping
from tests.zones.world import BOB, SECOND, World

HOUR_US = 3_600 * SECOND


@pytest.fixture
def watched(world: World) -> World:
    """A shard whose engine notifies scanners of commits by watches only."""
    world.layout.is_watched = True
    return world


def changes_counter(world: World, does: Callable[[], object]) -> bool:
    """Say whether `does` changes the counter of the part of Alice's queue."""
    key = world.zone.location.part.change_counter
    before = world.run(lambda tr: tr.get(key).value)
    does()
    return bool(world.run(lambda tr: tr.get(key).value) != before)


def test_the_first_item_of_a_queue_changes_the_counter(watched: World) -> None:
    assert changes_counter(watched, watched.enqueue)


def test_an_item_that_wakes_a_pointer_changes_the_counter(watched: World) -> None:
    watched.enqueue(delay=60)
    assert changes_counter(watched, watched.enqueue)


def test_an_item_whose_pointer_is_awake_does_not_change_the_counter(watched: World) -> None:
    watched.enqueue()
    assert not changes_counter(watched, watched.enqueue)


def test_a_dequeue_that_leaves_due_items_changes_the_counter(watched: World) -> None:
    """Another consumer may dequeue the remaining items."""
    watched.enqueue()
    watched.enqueue()
    assert changes_counter(watched, lambda: watched.process(items_max=1))


def test_a_dequeue_that_leaves_nothing_due_does_not_change_the_counter(watched: World) -> None:
    watched.enqueue()
    assert not changes_counter(watched, watched.process)


def test_waking_a_pointer_that_oversleeps_changes_the_counter(watched: World) -> None:
    watched.enqueue()
    watched.enqueue()
    watched.pass_us(HOUR_US)
    watched.process(items_max=1)
    watched.pass_us(-HOUR_US)
    layout, part, now_us = watched.layout, watched.zone.location.part, watched.now_us
    assert changes_counter(
        watched, lambda: watched.run(lambda tr: wake_oversleeping(tr, layout, part, now_us=now_us, entries_max=64))
    )


def test_the_counters_of_other_parts_do_not_change(watched: World) -> None:
    names = (watched.zone_of(BOB, f"queue{number}") for number in range(100))
    elsewhere = next(zone for zone in names if zone.location.part is not watched.zone.location.part)
    assert not changes_counter(watched, lambda: watched.enqueue(zone=elsewhere))


def test_without_watches_no_counter_is_written(world: World) -> None:
    world.layout.is_watched = False
    assert not changes_counter(world, world.enqueue)
