"""How long pointers waited until they were leased, as counts that add up."""

from collections import Counter

import pytest

from fairlead.actors.dispatch.pickup_latency import bucket_bound_us, bucket_counts, buckets_in


@pytest.mark.parametrize("waited_us", [1, 63, 64, 999, 10_000, 105_000, 8_200_000, 10**10])
def test_a_bucket_is_three_per_cent_wide_at_most(waited_us: int) -> None:
    assert waited_us <= bucket_bound_us(waited_us) <= waited_us * (1 + 1 / 32)


def test_every_wait_of_a_bucket_falls_into_the_same_one() -> None:
    bound_us = bucket_bound_us(105_000)
    assert bucket_bound_us(bound_us) == bound_us
    assert bucket_bound_us(bound_us + 1) > bound_us


def test_a_clock_that_is_behind_makes_no_wait_below_zero() -> None:
    assert bucket_bound_us(-3) == bucket_bound_us(0) == 0


def test_counts_of_two_actors_add_up_to_the_waits_of_both() -> None:
    one, other = Counter({bucket_bound_us(50): 2}), Counter({bucket_bound_us(50): 1, bucket_bound_us(7_000): 4})
    counted = Counter({"items": 9, **bucket_counts(one)}) + Counter(bucket_counts(other))
    assert buckets_in(counted) == one + other
