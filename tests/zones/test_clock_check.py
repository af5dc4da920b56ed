"""A consumer whose clock is wrong notices, and takes no leases."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.zones.keyspace import TIME_KEY
from fairlead.zones.top_level.clock_check import ClockStatus, ShardClock, check_clock
from tests.zones.colliding import Body, collides
from tests.zones.world import SECOND, World

MAX_SKEW_US = 5 * SECOND
WATCH_US = 3 * SECOND
HOUR_US = 3_600 * SECOND


def new_clock() -> ShardClock:
    return ShardClock(max_skew_us=MAX_SKEW_US, watch_us=WATCH_US)


def shard_time(world: World) -> int | None:
    value = world.run(lambda tr: tr.get(TIME_KEY).value)
    return None if value is None else int.from_bytes(value, "little")


def heartbeat_at(world: World, clock: ShardClock, now_us: int) -> ClockStatus:
    return world.run(lambda tr: check_clock(tr, clock, now_us=now_us))


def heartbeats_until_taken_over(world: World, clock: ShardClock) -> int:
    """Beat once a second until the clock takes the shard's time over; return how long that was, in microseconds."""
    begun_us = world.now_us
    while heartbeat_at(world, clock, world.now_us) is ClockStatus.WATCHING:
        world.pass_us(SECOND)
    return world.now_us - begun_us


def test_the_first_consumer_of_a_shard_sets_its_time(world: World) -> None:
    assert heartbeat_at(world, new_clock(), world.now_us) is ClockStatus.GOOD
    assert shard_time(world) == world.now_us


def test_a_clock_within_the_skew_is_good_and_never_turns_the_time_back(world: World) -> None:
    ahead, behind = world.now_us + MAX_SKEW_US, world.now_us
    assert heartbeat_at(world, new_clock(), ahead) is ClockStatus.GOOD
    assert heartbeat_at(world, new_clock(), behind) is ClockStatus.GOOD
    assert shard_time(world) == ahead


def test_a_clock_that_is_far_off_while_others_advance_the_time_is_off(world: World) -> None:
    good, wrong = new_clock(), new_clock()
    standings = []
    for _ in range(5):
        assert heartbeat_at(world, good, world.now_us) is ClockStatus.GOOD
        standings.append(heartbeat_at(world, wrong, world.now_us + HOUR_US))
        world.pass_us(SECOND)
    assert standings == [ClockStatus.WATCHING, *[ClockStatus.OFF] * 4]
    assert shard_time(world) == world.now_us - SECOND


def test_a_clock_takes_over_a_time_that_no_consumer_advances(world: World) -> None:
    """A fleet that starts again a day later finds a time that is a day old."""
    assert heartbeat_at(world, new_clock(), world.now_us) is ClockStatus.GOOD
    world.pass_us(24 * HOUR_US)
    clock = new_clock()
    assert heartbeats_until_taken_over(world, clock) == WATCH_US
    assert shard_time(world) == world.now_us
    assert heartbeat_at(world, clock, world.now_us) is ClockStatus.GOOD


def test_the_clock_of_the_only_consumer_takes_the_time_over_at_once(world: World) -> None:
    """A fleet that stopped in good order left nobody on the list, and must not wait when it starts again."""
    heartbeat_at(world, new_clock(), world.now_us)
    world.pass_us(24 * HOUR_US)
    assert (
        world.run(lambda tr: check_clock(tr, new_clock(), now_us=world.now_us, is_only_consumer=lambda: True))
        is ClockStatus.TAKEN_OVER
    )
    assert shard_time(world) == world.now_us


def test_a_take_over_turns_back_a_time_that_a_wrong_clock_left_in_the_future(world: World) -> None:
    assert heartbeat_at(world, new_clock(), world.now_us + HOUR_US) is ClockStatus.GOOD
    assert heartbeats_until_taken_over(world, new_clock()) == WATCH_US
    assert shard_time(world) == world.now_us


def test_a_clock_that_was_set_right_is_good_again(world: World) -> None:
    good, wrong = new_clock(), new_clock()
    heartbeat_at(world, good, world.now_us)
    assert heartbeat_at(world, wrong, world.now_us - HOUR_US) is ClockStatus.WATCHING
    assert heartbeat_at(world, wrong, world.now_us) is ClockStatus.GOOD


@pytest.mark.parametrize("step_us", [-HOUR_US, 2 * HOUR_US], ids=["back", "ahead"])
def test_a_clock_that_steps_while_it_watches_has_not_watched_for_that_long(world: World, step_us: int) -> None:
    """Before, one that stepped from an hour behind to an hour ahead took the time over from others that lived."""
    heartbeat_at(world, new_clock(), world.now_us)
    world.pass_us(SECOND)
    clock, behind_us = new_clock(), world.now_us - HOUR_US
    assert heartbeat_at(world, clock, behind_us) is ClockStatus.WATCHING
    stepped_us = behind_us + SECOND + step_us
    standings = [heartbeat_at(world, clock, stepped_us + check_clock * SECOND) for check_clock in range(4)]
    assert standings[:2] == [ClockStatus.WATCHING] * 2
    assert ClockStatus.TAKEN_OVER in standings[2:]


def test_heartbeats_do_not_conflict_with_each_other_and_take_overs_do(world: World) -> None:
    clocks = first, second = new_clock(), new_clock()

    def heartbeats(clock: ShardClock, expected: ClockStatus) -> Body:
        def body(tr: Any) -> None:
            assert check_clock(tr, clock, now_us=world.now_us) is expected

        return body

    assert not collides(world.db, heartbeats(first, ClockStatus.GOOD), heartbeats(second, ClockStatus.GOOD))
    world.pass_us(HOUR_US)
    for _ in range(WATCH_US // SECOND):
        for clock in clocks:
            assert heartbeat_at(world, clock, world.now_us) is ClockStatus.WATCHING
        world.pass_us(SECOND)
    assert collides(world.db, heartbeats(first, ClockStatus.TAKEN_OVER), heartbeats(second, ClockStatus.TAKEN_OVER))
