"""Rollups show what workers have done in the last hour, by intervals, whatever the number of workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fairlead.zones.keyspace import ROLLUP, ROOT, pack_int, range_begin, range_end
from fairlead.zones.queue.items import new_item
from fairlead.zones.reporting import rollups
from fairlead.zones.reporting.rollups import (
    INTERVAL_US,
    KEPT_INTERVALS,
    KINDS_MAX,
    TENANTS_MAX,
    Interval,
    KindRollup,
    Rollup,
    interval_of,
)
from fairlead.zones.top_level import depth
from tests.zones.colliding import collides
from tests.zones.world import ALICE, BOB, World

WORKER, OTHER = b"worker\x00one", b"worker two"
ALL = ROOT + pack_int(ROLLUP)
ONE = (1).to_bytes(8, "little")


def completed(count: int, *, run_us: int = 0) -> Rollup:
    return Rollup({"mail": KindRollup(completed=count, run_us=run_us)}, {"shop": {"alice": run_us}})


def write(world: World, incarnation: bytes, rollup: Rollup) -> None:
    world.run(lambda tr: rollups.write(tr, incarnation, interval_of(world.now_us), rollup))


def sum_up(world: World) -> bool:
    return world.run(lambda tr: rollups.sum_up(tr, world.layout, now_us=world.now_us))


def read(world: World) -> list[Interval]:
    return world.run(lambda tr: rollups.read(tr, now_us=world.now_us))


def counted(intervals: list[Interval]) -> list[tuple[int, int]]:
    return [
        (interval.number, interval.rollup.kinds["mail"].completed) for interval in intervals if interval.rollup.kinds
    ]


@pytest.fixture(autouse=True)
def interval_by_interval(world: World) -> None:
    """Sum up each interval by itself, also on a cluster."""
    world.layout.is_watched = False


def test_where_reads_are_expensive_a_minute_is_summed_up_at_once(world: World) -> None:
    world.layout.is_watched = True
    summed = []
    for _ in range(2 * rollups.WATCHED_INTERVALS):
        write(world, WORKER, completed(1))
        world.pass_us(INTERVAL_US)
        summed.append(sum_up(world))
    assert sum(summed) in (2, 3), "once a minute, and at first"
    assert sum(count for _, count in counted(read(world))) == 2 * rollups.WATCHED_INTERVALS


def test_a_worker_overwrites_its_row_of_the_interval(world: World) -> None:
    write(world, WORKER, completed(3))
    write(world, WORKER, completed(5))
    assert counted(read(world)) == [(interval_of(world.now_us), 5)]


def test_an_interval_includes_all_workers_before_and_after_it_is_summed_up(world: World) -> None:
    first = interval_of(world.now_us)
    write(world, WORKER, completed(3, run_us=10))
    write(world, OTHER, completed(4, run_us=5))
    assert counted(read(world)) == [(first, 7)]
    world.pass_us(2 * INTERVAL_US)
    assert sum_up(world)
    assert counted(read(world)) == [(first, 7)]
    (interval,) = read(world)
    assert interval.rollup.tenants == {"shop": {"alice": 15}}
    assert len(world.stored(range_begin(ALL), range_end(ALL))) == 1, "the workers' rows have gone into one"


def enqueue_kinds(world: World, count: int) -> None:
    """Enqueue items of many kinds for two tenants, as an application with user names in kinds does."""
    for tenant in (ALICE, BOB):
        world.enqueue_all([new_item(f"mail-{number:04}") for number in range(count)], zone=world.zone_of(tenant))


@pytest.fixture
def few_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a reading of the depth read 600 counts."""
    monkeypatch.setattr(depth, "KEYS_MAX", 600)


@pytest.mark.usefixtures("few_keys")
def test_the_depth_names_the_first_of_very_many_kinds_exactly(world: World) -> None:
    enqueue_kinds(world, 350)
    found = world.run(lambda tr: depth.depth(tr, world.layout))
    assert not found.whole
    assert found.kinds == {f"mail-{number:04}": 2 for number in range(len(found.kinds))}
    assert len(found.kinds) == 300


def test_the_depth_names_all_of_a_few_kinds(world: World) -> None:
    enqueue_kinds(world, 3)
    assert world.run(lambda tr: depth.depth(tr, world.layout)) == (
        {f"mail-000{number}": 2 for number in range(3)},
        True,
    )


@pytest.mark.parametrize("damaged", [2**63 - 1, -(2**63)])
def test_an_interval_is_summed_up_although_the_counts_of_a_kind_are_damaged(world: World, damaged: int) -> None:
    enqueue_kinds(world, 1)
    value = damaged.to_bytes(8, "little", signed=True)
    keys = [part.depth("mail-0000") for part in world.layout.parts]
    world.run(lambda tr: [tr.set(key, value) for key in keys])
    world.pass_us(2 * INTERVAL_US)
    assert sum_up(world)
    assert [interval.waiting is not None for interval in read(world)] == [True]


@pytest.mark.usefixtures("few_keys")
def test_however_many_kinds_there_are_summing_up_reads_a_bounded_number_of_counts(world: World) -> None:
    """It read a count per kind and part: with 200,000 kinds it delayed heartbeats for seconds, then for ever."""
    enqueue_kinds(world, 1_000)
    world.pass_us(2 * INTERVAL_US)
    rows = 0

    class Counting:
        def __init__(self, tr: Any) -> None:
            self._tr = tr

        def __getattr__(self, name: str) -> Any:
            return getattr(self._tr, name)

        @property
        def snapshot(self) -> Counting:
            return Counting(self._tr.snapshot)

        def get_range(self, *args: Any, **how: Any) -> Iterator[Any]:
            nonlocal rows
            for row in self._tr.get_range(*args, **how):
                rows += 1
                yield row

    assert world.run(lambda tr: rollups.sum_up(Counting(tr), world.layout, now_us=world.now_us))
    assert rows <= depth.KEYS_MAX + 100
    (interval,) = read(world)
    assert interval.waiting is not None
    assert len(interval.waiting) <= KINDS_MAX + 1


def test_a_summed_interval_has_the_waiting_items(world: World) -> None:
    world.enqueue("mail")
    world.pass_us(2 * INTERVAL_US)
    sum_up(world)
    (interval,) = read(world)
    assert interval.waiting == {"mail": 1}
    assert interval.oldest_us == world.now_us - 2 * INTERVAL_US


def test_an_interval_is_summed_up_once(world: World) -> None:
    write(world, WORKER, completed(3))
    world.pass_us(2 * INTERVAL_US)
    assert [sum_up(world), sum_up(world)] == [True, False]
    assert counted(read(world)) == [(interval_of(world.now_us) - 2, 3)]


def test_concurrent_sums_of_one_interval_conflict(world: World) -> None:
    write(world, WORKER, completed(3))
    world.pass_us(2 * INTERVAL_US)
    body = lambda tr: rollups.sum_up(tr, world.layout, now_us=world.now_us)  # noqa: E731
    assert collides(world.db, body, body)


def test_a_late_row_is_added_to_its_interval(world: World) -> None:
    interval = interval_of(world.now_us)
    world.pass_us(2 * INTERVAL_US)
    sum_up(world)
    world.run(lambda tr: rollups.write(tr, WORKER, interval, completed(3)))
    world.pass_us(INTERVAL_US)
    sum_up(world)
    assert counted(read(world)) == [(interval, 3)]


def test_intervals_older_than_an_hour_are_cleared(world: World) -> None:
    for _ in range(KEPT_INTERVALS + 50):
        world.pass_us(INTERVAL_US)
        sum_up(world)
    assert len(world.stored(range_begin(ALL), range_end(ALL))) <= KEPT_INTERVALS + 1


def test_a_row_names_the_tenants_with_most_handler_time(world: World) -> None:
    users = {f"user{number}": number for number in range(100)}
    write(world, WORKER, Rollup({}, {"shop": users}))
    (interval,) = read(world)
    assert sorted(interval.rollup.tenants["shop"].values()) == list(range(100 - TENANTS_MAX, 100))
    assert rollups.busiest([interval, interval])[0] == (198, "shop", "user99")


def test_an_unreadable_row_is_skipped(world: World) -> None:
    write(world, WORKER, completed(3))
    write(world, OTHER, completed(4))
    (first, _), (second, _) = world.stored(range_begin(ALL), range_end(ALL))
    world.run(lambda tr: tr.set(first, b"\x01rubbish"))
    world.run(lambda tr: tr.set(second, b"\xff"))
    assert counted(read(world)) == []
    world.pass_us(2 * INTERVAL_US)
    assert sum_up(world)


def test_each_interval_has_its_own_counts(world: World) -> None:
    write(world, WORKER, completed(1))
    world.pass_us(INTERVAL_US)
    write(world, WORKER, completed(2))
    assert [count for _, count in counted(read(world))] == [1, 2]


def test_an_unbounded_number_of_kinds_fits_into_an_interval_and_is_counted(world: World) -> None:
    """As `kind=f"report-{id}"` makes them: each second the value was refused, and nothing was summed up any more."""
    keys = [world.zone.location.part.depth(f"a kind that nobody has a handler for {number}") for number in range(4_000)]
    world.run(lambda tr: [tr.set(key, ONE) for key in keys])
    world.pass_us(2 * INTERVAL_US)
    sum_up(world)
    (interval,) = read(world)
    assert interval.waiting is not None
    assert sum(interval.waiting.values()) == 4_000
    assert len(interval.waiting) == KINDS_MAX + 1


def test_a_concurrent_enqueue_does_not_make_the_summing_up_fail(world: World) -> None:
    world.enqueue("mail", priority=3)
    world.pass_us(2 * INTERVAL_US)
    urgent = new_item("mail", priority=0)
    enqueued = lambda tr: world.zone.enqueue(tr, urgent, now_us=world.now_us, item_id=bytes(16))  # noqa: E731
    summed = lambda tr: rollups.sum_up(tr, world.layout, now_us=world.now_us)  # noqa: E731
    assert not collides(world.db, enqueued, summed)
