"""What scanners that watch a part are told of: each pointer that vests sooner than they knew."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlead.zones.top_level.pointers import wake_oversleeping
from tests.zones.world import BOB, SECOND, World

HOUR_US = 3_600 * SECOND


@pytest.fixture
def watched(world: World) -> World:
    """A shard whose engine tells of commits by watches alone."""
    world.layout.is_watched = True
    return world


def tells(world: World, does: Callable[[], object]) -> bool:
    """Say whether whoever watches the part of Alice's queue is told by what happens."""
    key = world.zone.location.part.change_counter
    before = world.run(lambda tr: tr.get(key).value)
    does()
    return bool(world.run(lambda tr: tr.get(key).value) != before)


def test_the_first_item_of_a_queue_tells(watched: World) -> None:
    assert tells(watched, watched.enqueue)


def test_an_item_that_wakes_a_pointer_tells(watched: World) -> None:
    watched.enqueue(delay_ms=60_000)
    assert tells(watched, watched.enqueue)


def test_an_item_whose_pointer_is_awake_tells_nobody(watched: World) -> None:
    watched.enqueue()
    assert not tells(watched, watched.enqueue)


def test_a_visit_that_leaves_something_due_tells(watched: World) -> None:
    """Whoever visits next need not be the one whose manager visited."""
    watched.enqueue()
    watched.enqueue()
    assert tells(watched, lambda: watched.visit(items_max=1))


def test_a_visit_that_leaves_nothing_due_tells_nobody(watched: World) -> None:
    watched.enqueue()
    assert not tells(watched, watched.visit)


def test_who_wakes_a_pointer_that_oversleeps_tells(watched: World) -> None:
    watched.enqueue()
    watched.enqueue()
    watched.pass_us(HOUR_US)
    watched.visit(items_max=1)
    watched.pass_us(-HOUR_US)
    layout, part, now_us = watched.layout, watched.zone.location.part, watched.now_us
    assert tells(
        watched, lambda: watched.run(lambda tr: wake_oversleeping(tr, layout, part, now_us=now_us, entries_max=64))
    )


def test_of_another_part_nobody_is_told(watched: World) -> None:
    names = (watched.zone_of(BOB, f"queue{number}") for number in range(100))
    elsewhere = next(zone for zone in names if zone.location.part is not watched.zone.location.part)
    assert not tells(watched, lambda: watched.enqueue(zone=elsewhere))


def test_where_nobody_watches_nothing_is_written(world: World) -> None:
    world.layout.is_watched = False
    assert not tells(world, world.enqueue)
