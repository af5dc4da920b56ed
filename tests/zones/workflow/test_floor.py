"""FLOOR is raised once a day, if there is a tombstone."""

from __future__ import annotations

from fairlead.zones.pipelining import run_one
from fairlead.zones.workflow import participants
from fairlead.zones.workflow.floor import RAISE_US, raise_daily
from tests.zones.world import BOB, SECOND, World


def end_a_run(world: World, run: bytes) -> None:
    """Leave a tombstone with Bob."""
    keys = world.zone_of(BOB).location.keys.tenant
    world.run(lambda tr: run_one(participants.clean_up_op(tr, world.layout, BOB, keys, run, now_us=world.now_us)))


def floor_of(world: World) -> int:
    keys = world.zone_of(BOB).location.keys.tenant
    return world.run(lambda tr: run_one(participants.ask_op(tr, world.layout, keys))).floor


def tombstones(world: World, *runs: bytes) -> int:
    keys = world.zone_of(BOB).location.keys.tenant
    return sum(world.get(keys.fence(run)) is not None for run in runs)


def look(world: World, *, tombstones_max: int = 10) -> bool:
    return world.run(lambda tr: raise_daily(tr, now_us=world.now_us, tombstones_max=tombstones_max))


FIRST, SECOND_RUN, THIRD = (bytes([number]) * 16 for number in range(3))


def test_the_floor_is_raised_once_a_day(world: World) -> None:
    end_a_run(world, FIRST)
    look(world)
    assert (floor_of(world), tombstones(world, FIRST)) == (1, 0)
    end_a_run(world, SECOND_RUN)
    world.pass_us(RAISE_US - SECOND)
    look(world)
    assert (floor_of(world), tombstones(world, SECOND_RUN)) == (1, 1)
    world.pass_us(SECOND)
    look(world)
    look(world)
    assert (floor_of(world), tombstones(world, SECOND_RUN)) == (2, 0)


def test_a_shard_without_tombstones_is_not_written_to(world: World) -> None:
    world.enqueue()
    stored = world.everything()
    for _ in range(2):
        assert not look(world)
        world.pass_us(RAISE_US)
    assert world.everything() == stored


def test_more_tombstones_than_fit_are_cleared_by_the_next_looks(world: World) -> None:
    runs = [FIRST, SECOND_RUN, THIRD]
    for run in runs:
        end_a_run(world, run)
    assert [look(world, tombstones_max=2), tombstones(world, *runs)] == [True, 1]
    assert [look(world, tombstones_max=2), tombstones(world, *runs)] == [False, 0]


def test_a_clock_that_was_ahead_delays_it_for_a_day_at_most(world: World) -> None:
    end_a_run(world, FIRST)
    world.pass_us(100 * RAISE_US)
    look(world)
    world.clock.advance_us(-100 * RAISE_US)
    end_a_run(world, SECOND_RUN)
    look(world)
    assert (floor_of(world), tombstones(world, SECOND_RUN)) == (2, 0)
