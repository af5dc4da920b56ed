"""How long pointers waited until they were leased, as counts that add up."""

from collections import Counter

import pytest

from fairlead.actors.dispatch.pickup_latency import counts_of, waits_in, within_us


@pytest.mark.parametrize("waited_us", [1, 63, 64, 999, 10_000, 105_000, 8_200_000, 10**10])
def test_a_bucket_is_three_per_cent_wide_at_most(waited_us: int) -> None:
    assert waited_us <= within_us(waited_us) <= waited_us * (1 + 1 / 32)


def test_every_wait_of_a_bucket_falls_into_the_same_one() -> None:
    bound_us = within_us(105_000)
    assert within_us(bound_us) == bound_us
    assert within_us(bound_us + 1) > bound_us


def test_a_clock_that_is_behind_makes_no_wait_below_zero() -> None:
    assert within_us(-3) == within_us(0) == 0


def test_counts_of_two_actors_add_up_to_the_waits_of_both() -> None:
    one, other = Counter({within_us(50): 2}), Counter({within_us(50): 1, within_us(7_000): 4})
    counted = Counter({"items": 9, **counts_of(one)}) + Counter(counts_of(other))
    assert waits_in(counted) == one + other
