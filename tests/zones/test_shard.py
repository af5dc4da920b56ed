"""A shard is made once, with constants that its users can never change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import msgspec
import pytest

from fairlead.zones.engines import Database
from fairlead.zones.errors import BadArgument, ShardRefused
from fairlead.zones.keyspace import KEY_FORMAT, META_KEY
from fairlead.zones.records import FORMAT, ShardRecord, encode
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.shard import find_or_create, open_shard
from tests.clocks import ManualClock
from tests.zones.colliding import collides
from tests.zones.faults import FaultyDatabase
from tests.zones.world import ALICE, SECOND, World


def test_a_shard_keeps_its_id_and_its_number_of_parts(db: Database, clock: ManualClock) -> None:
    made = open_shard("s", db, clock=clock, random=Random(1), part_count=5)
    opened = open_shard("s", db, clock=clock, random=Random(2), part_count=9)
    assert opened.layout.shard_id == made.layout.shard_id
    assert (opened.layout.part_count, len(opened.layout.parts)) == (5, 5)


def test_a_body_in_the_exclusive_section_takes_the_time_after_it_has_entered(db: Database, clock: ManualClock) -> None:
    """Before, a lease could have ended by the time it was written."""

    class Slow(FaultyDatabase):
        @contextmanager
        def exclusive_section(self) -> Iterator[None]:
            clock.advance_us(SECOND)
            yield

    shard = open_shard("s", Slow(db), clock=clock, random=Random(1))
    asked_us = clock.now_us()
    assert shard.transact(shard.in_exclusive_section(lambda attempt: attempt.now_us)) == asked_us + SECOND


def test_of_two_processes_that_make_one_shard_one_conflicts_and_finds_the_others(
    db: Database, clock: ManualClock
) -> None:
    makers = [
        lambda tr, seed=seed: find_or_create(tr, "s", random=Random(seed), part_count=seed, now_us=clock.now_us())
        for seed in (1, 2)
    ]
    assert collides(db, *makers)
    assert open_shard("s", db, clock=clock, random=Random(3)).layout.part_count == 1


@pytest.mark.parametrize("part_count", [0, -1, 1_025])
def test_an_absurd_number_of_parts_is_refused(db: Database, clock: ManualClock, part_count: int) -> None:
    with pytest.raises(BadArgument):
        open_shard("s", db, clock=clock, random=Random(1), part_count=part_count)


def test_a_shard_that_a_newer_version_made_is_refused_and_left_as_it_is(db: Database, clock: ManualClock) -> None:
    world = World(db, clock)
    newer = bytes([FORMAT + 1]) + b"what it means only they know"
    world.set(META_KEY, newer)
    with pytest.raises(ShardRefused) as refused:
        open_shard("blue", db, clock=clock, random=Random(1))
    assert refused.value.fields["shard"] == "blue"
    assert "upgrade" in str(refused.value.fields["remedy"])
    assert world.run(lambda tr: tr.get(META_KEY).value) == newer


@pytest.mark.parametrize(
    "key_format, remedy", [(KEY_FORMAT - 1, "back it up with that"), (KEY_FORMAT + 1, "upgrade this program")]
)
def test_a_shard_whose_keys_lie_elsewhere_is_refused_and_left_as_it_is(
    db: Database, clock: ManualClock, key_format: int, remedy: str
) -> None:
    """Neither its pointers nor its items would be found."""
    world = World(db, clock)
    world.set(META_KEY, encode(ShardRecord(b"s" * 16, 4, clock.now_us(), key_format)))
    before = world.everything()
    with pytest.raises(ShardRefused, match=remedy):
        open_shard("blue", db, clock=clock, random=Random(1))
    assert world.everything() == before


def test_a_shard_made_before_there_was_a_number_for_where_its_keys_lie_is_refused(
    db: Database, clock: ManualClock
) -> None:
    world = World(db, clock)
    world.set(META_KEY, bytes([FORMAT]) + msgspec.msgpack.encode([b"s" * 16, 4, clock.now_us()]))
    with pytest.raises(ShardRefused, match="back it up with that"):
        open_shard("blue", db, clock=clock, random=Random(1))


def test_two_programs_that_open_one_shard_see_each_others_items(db: Database, clock: ManualClock) -> None:
    one, other = World(db, clock), World(db, clock)
    item_id = one.enqueue()
    assert [item.id for item in other.dequeue()] == [item_id]


def test_an_opened_shard_offers_its_tenants_zones_by_name(world: World) -> None:
    assert world.shard.zone(ALICE).location.name == "queue"
    assert world.shard.zone(ALICE, "other").location.name == "other"


@pytest.mark.parametrize(
    "setting, value",
    [
        ("wake_slack_ms", 0),
        ("max_sleep_ms", 99),
        ("max_skew_ms", 5.5),
        ("max_skew_ms", 2_999),
        ("expiries_before_isolation", 101),
    ],
)
def test_a_setting_outside_its_range_is_named(setting: str, value: float) -> None:
    with pytest.raises(BadArgument) as refused:
        ZoneSettings(**{setting: value})  # type: ignore[arg-type]
    assert refused.value.fields["argument"] == setting
