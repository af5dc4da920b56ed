"""Each tick of a period happens once; ticks that no consumer saw are collapsed."""

from __future__ import annotations

import pytest

from fairlead.zones.errors import BadArgument
from fairlead.zones.keyspace import PERIODIC, ROOT, pack_int, pack_text
from fairlead.zones.layout import local_tenant
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.items import Enqueued, unpack_payload
from fairlead.zones.queue.periodic import Period, last_tick_us, period, periods_of, tick_op
from tests.zones.world import SECOND, World

MINUTE = 60 * SECOND
MINUTELY = period("sweep", 60)


def tick(world: World, which: Period = MINUTELY) -> Enqueued | None:
    return world.run(lambda tr: run_one(tick_op(tr, world.layout, which, run=world.new_id(), now_us=world.now_us)))


def until_next(world: World, which: Period = MINUTELY) -> int:
    return last_tick_us(which, world.now_us) + which.every_us - world.now_us


def payloads(world: World, kind: str = "sweep") -> list[dict[str, int]]:
    zone = world.zone_of(local_tenant(kind))
    items = world.run(lambda tr: zone.peek(tr, items_max=100, now_us=world.now_us))
    return [unpack_payload(item.record.payload) for item in items]


def test_a_new_period_begins_with_its_next_tick(world: World) -> None:
    assert tick(world) is None
    world.pass_us(until_next(world) - 1)
    assert tick(world) is None
    world.pass_us(1)
    assert tick(world) is not None
    assert payloads(world) == [{"tick_us": world.now_us, "collapsed": 0}]


def test_a_tick_is_enqueued_once_however_many_look(world: World) -> None:
    tick(world)
    world.pass_us(until_next(world))
    assert [tick(world) is not None for _ in range(3)] == [True, False, False]
    assert len(payloads(world)) == 1


def test_of_two_that_see_a_tick_at_once_one_conflicts(world: World) -> None:
    tick(world)
    world.pass_us(until_next(world))
    one, other = world.db.create_transaction(), world.db.create_transaction()
    for tr in (one, other):
        assert run_one(tick_op(tr, world.layout, MINUTELY, run=world.new_id(), now_us=world.now_us)) is not None
    one.commit().wait()
    with pytest.raises(world.db.errors):
        other.commit().wait()
    assert len(payloads(world)) == 1


def test_looking_before_a_tick_writes_nothing_and_so_conflicts_with_nothing(world: World) -> None:
    tick(world)
    before = world.stored(ROOT, ROOT + b"\xff")
    tick(world)
    assert world.stored(ROOT, ROOT + b"\xff") == before


def test_ticks_that_nobody_saw_are_collapsed_into_the_last(world: World) -> None:
    tick(world)
    world.pass_us(until_next(world) + 5 * MINUTE + 7 * SECOND)
    tick(world)
    assert payloads(world) == [{"tick_us": world.now_us - 7 * SECOND, "collapsed": 5}]
    assert tick(world) is None
    world.pass_us(53 * SECOND)
    assert tick(world) is not None


def test_ticks_lie_at_fixed_times_shifted_by_the_phase(world: World) -> None:
    shifted = period("report", 86_400, phase=3600)
    tick(world, shifted)
    world.pass_us(until_next(world, shifted))
    assert tick(world, shifted) is not None
    assert world.now_us % (86_400 * SECOND) == 3_600 * SECOND


def test_a_period_that_was_changed_begins_with_its_next_tick(world: World) -> None:
    tick(world)
    world.pass_us(until_next(world))
    hourly = period("sweep", 3600)
    assert tick(world, hourly) is None
    world.pass_us(until_next(world, hourly))
    assert tick(world, hourly) is not None


def test_a_next_tick_that_a_wrong_clock_set_years_ahead_is_not_waited_for(world: World) -> None:
    world.run(lambda tr: run_one(tick_op(tr, world.layout, MINUTELY, run=world.new_id(), now_us=world.now_us + 10**14)))
    assert tick(world) is None
    world.pass_us(until_next(world))
    assert tick(world) is not None


def test_clocks_a_little_apart_do_not_repeat_a_tick(world: World) -> None:
    tick(world)
    world.pass_us(until_next(world))
    assert tick(world) is not None
    behind_us = world.now_us - 2 * world.layout.settings.max_skew_ms * 1000
    assert (
        world.run(lambda tr: run_one(tick_op(tr, world.layout, MINUTELY, run=world.new_id(), now_us=behind_us))) is None
    )
    assert tick(world) is None
    assert len(payloads(world)) == 1


def test_a_record_of_a_newer_format_is_not_changed(world: World) -> None:
    key = ROOT + pack_int(PERIODIC) + pack_text("sweep")
    world.set(key, b"\x02new")
    assert tick(world) is None
    assert world.stored(key, key + b"\x00") == [(key, b"\x02new")]


def test_each_period_belongs_to_one_shard() -> None:
    periods = [period(f"kind {number}", 1) for number in range(20)]
    names = ["eu", "us", "asia"]
    shares = [periods_of(periods, name, names) for name in names]
    assert sorted(each for share in shares for each in share) == sorted(periods)
    assert all(shares)
    assert periods_of(periods, "eu", names[::-1]) == shares[0]


@pytest.mark.parametrize(
    "kind, interval, phase", [("", 1, 0), ("k", 0.999, 0), ("k", 366 * 86_400, 0), ("k", 1, 1), ("k", 1, -1)]
)
def test_a_period_out_of_range_is_refused(kind: str, interval: float, phase: float) -> None:
    with pytest.raises(BadArgument):
        period(kind, interval, phase=phase)


@pytest.mark.parametrize("damaged", [b"", b"\x01", b"\x01\xc1", b"\x63\x92", b"\x01\x92\x00\x00"])
def test_a_damaged_record_is_replaced_and_the_period_continues_with_its_next_tick(world: World, damaged: bytes) -> None:
    """It was taken for a newer version's, and the period stopped without a log line."""
    tick(world)
    world.set(ROOT + pack_int(PERIODIC) + pack_text("sweep"), damaged)
    assert tick(world) is None
    world.pass_us(until_next(world))
    assert [tick(world) is not None for _ in range(2)] == [True, False]
    assert payloads(world) == [{"tick_us": world.now_us, "collapsed": 0}]
