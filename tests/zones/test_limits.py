"""No more items run or start than a fleet-wide limit allows, even if holders of grants die."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.zones.policy import limits, policies
from fairlead.zones.records import KindPolicy
from tests.zones.colliding import collides
from tests.zones.world import SECOND, World

LEASE_US = 10 * SECOND
APART_US = 10 * SECOND  # How far good clocks may be apart.


def slots(world: World, holder: bytes, wanted: int, maximum: int = 5, kind: str = "mail", *, held: int = 0) -> int:
    return world.run(lambda tr: take_slots(tr, holder, wanted, maximum, kind, held=held, now_us=world.now_us))


def take_slots(
    tr: Any, holder: bytes, wanted: int, maximum: int = 5, kind: str = "mail", *, held: int = 0, now_us: int
) -> int:
    return limits.take_slots(
        tr, kind, maximum, holder=holder, held=held, wanted=wanted, lease_us=LEASE_US, clocks_apart_us=APART_US,
        now_us=now_us
    )  # fmt: skip


def tokens(world: World, wanted: int, *, returned: int = 0, per_s: float = 10, burst: int = 10) -> int:
    policy = KindPolicy(per_s=per_s, burst=burst)
    return world.run(
        lambda tr: limits.take_tokens(
            tr, "mail", policy, wanted=wanted, returned=returned, clocks_apart_us=APART_US, now_us=world.now_us
        )
    )


def full(world: World, **limit: Any) -> bool:
    policy = KindPolicy(**limit)
    return world.run(lambda tr: limits.is_kind_full(tr, "mail", policy, clocks_apart_us=APART_US, now_us=world.now_us))


# --- Slots ---


def test_holders_together_have_no_more_slots_than_there_are(world: World) -> None:
    assert [slots(world, b"a", 3), slots(world, b"b", 3), slots(world, b"c", 3)] == [3, 2, 0]


def test_a_holder_that_wants_less_leaves_the_rest_to_others(world: World) -> None:
    slots(world, b"a", 5)
    assert slots(world, b"b", 5) == 0
    assert slots(world, b"a", 1) == 1
    assert slots(world, b"b", 5) == 4


def test_a_holder_that_wants_nothing_leaves_nothing_behind(world: World) -> None:
    before = world.everything()
    slots(world, b"a", 5)
    slots(world, b"a", 0)
    assert world.everything() == before


def test_the_slots_of_a_dead_holder_are_free_again_when_its_grant_expires(world: World) -> None:
    slots(world, b"a", 5)
    world.pass_us(LEASE_US - 1)
    assert slots(world, b"b", 5) == 0
    world.pass_us(1)
    assert slots(world, b"b", 5) == 5


def test_a_holder_that_renews_keeps_its_slots(world: World) -> None:
    slots(world, b"a", 5)
    world.pass_us(LEASE_US - 1)
    slots(world, b"a", 5)
    world.pass_us(LEASE_US - 1)
    assert slots(world, b"b", 1) == 0


def test_a_limit_that_was_lowered_is_kept_as_soon_as_holders_let_go(world: World) -> None:
    slots(world, b"a", 5)
    assert slots(world, b"b", 1, maximum=2) == 0
    assert slots(world, b"a", 5, maximum=2) == 2


def test_kinds_have_limits_of_their_own(world: World) -> None:
    slots(world, b"a", 5)
    assert slots(world, b"a", 5, kind="index") == 5


def test_what_a_holder_has_beyond_the_limit_counts_for_others_until_it_has_ended(world: World) -> None:
    assert slots(world, b"a", 4, held=4) == 4
    assert slots(world, b"b", 4, held=4) == 1
    assert slots(world, b"a", 4, held=2) == 1
    assert slots(world, b"b", 0, held=0) == 0
    assert slots(world, b"a", 9) == 5


@pytest.mark.parametrize("ahead_us", [3_600 * SECOND, 15 * 60 * SECOND, APART_US + 1])
def test_a_grant_by_a_clock_that_has_been_set_back_since_has_ended(world: World, ahead_us: int) -> None:
    world.pass_us(ahead_us)
    slots(world, b"a", 5)
    world.pass_us(-ahead_us)
    assert not full(world, max_running=5)
    assert slots(world, b"b", 5) == 5


def test_a_grant_by_a_good_clock_that_is_ahead_counts(world: World) -> None:
    world.pass_us(APART_US)
    slots(world, b"a", 5)
    world.pass_us(-APART_US)
    assert full(world, max_running=5)
    assert slots(world, b"b", 5) == 0


def test_a_long_grant_by_a_good_clock_counts_for_a_holder_whose_own_are_short(world: World) -> None:
    """Fleets that are started with different leases share a limit."""
    world.run(
        lambda tr: limits.take_slots(
            tr, "mail", 5, holder=b"a", held=0, wanted=5, lease_us=60 * LEASE_US, clocks_apart_us=APART_US,
            now_us=world.now_us
        )
    )  # fmt: skip
    assert slots(world, b"b", 5) == 0


def test_two_holders_that_take_the_last_slot_conflict(world: World) -> None:
    def take(holder: bytes) -> Any:
        return lambda tr: take_slots(tr, holder, 1, 1, now_us=world.now_us)

    assert collides(world.db, take(b"a"), take(b"b"))


# --- Tokens ---


def test_an_unused_bucket_is_full_and_fills_at_its_rate(world: World) -> None:
    assert [tokens(world, 25), tokens(world, 5)] == [10, 0]
    world.pass_us(SECOND // 2)
    assert tokens(world, 25) == 5
    world.pass_us(100 * SECOND)
    assert tokens(world, 25) == 10


def test_fractions_of_tokens_add_up(world: World) -> None:
    tokens(world, 10)
    taken = 0
    for _ in range(30):
        world.pass_us(SECOND // 30)
        taken += tokens(world, 1)
    assert 9 <= taken <= 10


def test_a_slow_rate_gives_one_token_now_and_then(world: World) -> None:
    assert [tokens(world, 5, per_s=0.1, burst=1), tokens(world, 5, per_s=0.1, burst=1)] == [1, 0]
    world.pass_us(9 * SECOND)
    assert tokens(world, 5, per_s=0.1, burst=1) == 0
    world.pass_us(SECOND)
    assert tokens(world, 5, per_s=0.1, burst=1) == 1


def test_tokens_that_were_not_used_come_back(world: World) -> None:
    tokens(world, 10)
    assert tokens(world, 0, returned=4) == 0
    assert tokens(world, 10) == 4


@pytest.mark.parametrize("ahead_us", [50 * 60 * SECOND, APART_US + 1])
def test_a_bucket_is_full_after_the_clock_was_set_back_and_fills_at_its_rate(world: World, ahead_us: int) -> None:
    world.pass_us(ahead_us)
    tokens(world, 10)
    world.pass_us(-ahead_us)
    assert not full(world, per_s=10.0, burst=10)
    assert [tokens(world, 25), tokens(world, 5)] == [10, 0]
    assert full(world, per_s=10.0, burst=10)
    world.pass_us(SECOND // 2)
    assert tokens(world, 25) == 5


def test_two_good_clocks_that_are_apart_fill_a_bucket_no_faster_than_one(world: World) -> None:
    tokens(world, 10)
    taken = 0
    for _ in range(10):
        world.pass_us(APART_US)
        taken += tokens(world, 1)
        world.pass_us(SECOND // 10 - APART_US)
        taken += tokens(world, 1)
    assert taken <= (APART_US + SECOND) // SECOND * 10


def test_a_clock_that_is_behind_neither_fills_nor_empties_a_bucket(world: World) -> None:
    tokens(world, 4)
    world.pass_us(-5 * SECOND)
    assert tokens(world, 10) == 6
    world.pass_us(5 * SECOND)
    assert tokens(world, 10) == 0


# --- The policy ---


def test_a_removed_limit_leaves_only_a_tombstone(world: World) -> None:
    world.run(
        lambda tr: policies.change_kind_policy(tr, "mail", now_us=world.now_us, max_running=3, per_s=5.0, burst=5)
    )
    slots(world, b"a", 1)
    tokens(world, 1)
    world.run(
        lambda tr: policies.change_kind_policy(tr, "mail", now_us=world.now_us, max_running=None, per_s=None, burst=1)
    )
    assert not world.run(policies.read_policies).kinds["mail"].restricts_anything
    assert len(world.everything()) == 3, "the shard's record, the version of its policies, and the tombstone"
