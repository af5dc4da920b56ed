"""Portions: as many zones as there are, or fewer of them and more of each, by what was found there."""

from __future__ import annotations

import pytest

from fairlead.actors.dispatch.batch_sizing import SHARE_MAX, BatchSize, BatchSizer

MANY = 2_000  # Items that workers want to hold if they are short.


@pytest.fixture
def batch_sizer() -> BatchSizer:
    return BatchSizer(dequeue_max=64)


def found(
    batch_sizer: BatchSizer, items: int, *, pointers: int = 128, capacity: int = 512, in_flight_limit: int = MANY
) -> BatchSize:
    """Let a call visit all that it may, and find so many items in each zone; return the portions of the next."""
    batch_size = batch_sizer.size_batch("main", pointers, capacity=capacity, in_flight_limit=in_flight_limit)
    taken = batch_size.shares * min(items, batch_size.items_max)
    batch_sizer.learn("main", batch_size, served_tenants=batch_size.shares, items=taken)
    return batch_sizer.size_batch("main", pointers, capacity=capacity, in_flight_limit=in_flight_limit)


def test_at_first_all_zones_share_the_capacity(batch_sizer: BatchSizer) -> None:
    assert batch_sizer.size_batch("main", 128, capacity=512, in_flight_limit=MANY) == (128, 4)


def test_of_zones_that_all_give_what_they_are_asked_for_fewer_are_asked_for_twice_as_much(
    batch_sizer: BatchSizer,
) -> None:
    assert found(batch_sizer, 100) == (64, 8)
    assert found(batch_sizer, 100) == (32, SHARE_MAX)
    assert found(batch_sizer, 100) == (32, SHARE_MAX), "and no more than that"


def deep(batch_sizer: BatchSizer) -> BatchSizer:
    """Let two calls find zones that are long."""
    found(batch_sizer, 100)
    found(batch_sizer, 100)
    return batch_sizer


def test_once_they_have_fewer_items_all_are_processed_again(batch_sizer: BatchSizer) -> None:
    assert found(deep(batch_sizer), 3) == (128, 4)


def test_little_capacity_goes_to_few_zones_that_can_use_it_up(batch_sizer: BatchSizer) -> None:
    found(batch_sizer, 3)
    assert batch_sizer.size_batch("main", 128, capacity=300, in_flight_limit=MANY) == (100, 3)


def test_zones_with_few_items_are_all_processed(batch_sizer: BatchSizer) -> None:
    assert found(batch_sizer, 2) == (128, 4)


def test_of_long_items_a_share_stays_one_so_that_no_tenant_waits_for_another(
    batch_sizer: BatchSizer,
) -> None:
    assert found(batch_sizer, 100, pointers=51, capacity=72, in_flight_limit=72) == (51, 1)


def test_no_portion_is_larger_than_a_tenant_may_take(batch_sizer: BatchSizer) -> None:
    assert found(BatchSizer(dequeue_max=2), 100) == (128, 2)


def test_few_zones_give_as_much_as_there_is_capacity_for_up_to_their_turn(batch_sizer: BatchSizer) -> None:
    assert found(batch_sizer, 100, pointers=3) == (3, 64)


def test_with_less_capacity_than_a_share_one_zone_is_processed(batch_sizer: BatchSizer) -> None:
    deep(batch_sizer)
    assert batch_sizer.size_batch("main", 128, capacity=5, in_flight_limit=MANY) == (1, 5)


def test_each_shard_is_judged_by_itself(batch_sizer: BatchSizer) -> None:
    deep(batch_sizer)
    assert batch_sizer.size_batch("other", 128, capacity=512, in_flight_limit=MANY) == (128, 4)


def test_a_call_that_had_no_zone_to_itself_says_nothing_of_them(batch_sizer: BatchSizer) -> None:
    deep(batch_sizer)
    batch_sizer.learn("main", BatchSize(32, 16), served_tenants=0, items=0)
    assert batch_sizer.size_batch("main", 128, capacity=512, in_flight_limit=MANY) == (32, 16)


def test_no_capacity_or_no_pointers_make_no_portions(batch_sizer: BatchSizer) -> None:
    assert batch_sizer.size_batch("main", 0, capacity=10, in_flight_limit=10) == (0, 10)
    assert batch_sizer.size_batch("main", 10, capacity=0, in_flight_limit=10) == (0, 0)
