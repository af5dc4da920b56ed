"""Portions: as many zones as there are, or fewer of them and more of each, by what was found there."""

from __future__ import annotations

import pytest

from fairlead.actors.dispatch.batch_sizing import PORTION_MAX, Portioner, Portions

MANY = 2_000  # Items that workers want to hold if they are short.


@pytest.fixture
def portioner() -> Portioner:
    return Portioner(dequeue_max=64)


def found(portioner: Portioner, items: int, *, pointers: int = 128, room: int = 512, capacity: int = MANY) -> Portions:
    """Let a call visit all that it may, and find so many items in each zone; return the portions of the next."""
    portions = portioner.portion_out("main", pointers, room=room, capacity=capacity)
    taken = portions.takers * min(items, portions.items_max)
    portioner.learn("main", portions, visited=portions.takers, items=taken)
    return portioner.portion_out("main", pointers, room=room, capacity=capacity)


def test_at_first_all_zones_share_the_room(portioner: Portioner) -> None:
    assert portioner.portion_out("main", 128, room=512, capacity=MANY) == (128, 4)


def test_of_zones_that_all_give_what_they_are_asked_for_fewer_are_asked_for_twice_as_much(portioner: Portioner) -> None:
    assert found(portioner, 100) == (64, 8)
    assert found(portioner, 100) == (32, PORTION_MAX)
    assert found(portioner, 100) == (32, PORTION_MAX), "and no more than that"


def deep(portioner: Portioner) -> Portioner:
    """Let two calls find zones that are long."""
    found(portioner, 100)
    found(portioner, 100)
    return portioner


def test_once_they_have_less_all_are_visited_again(portioner: Portioner) -> None:
    assert found(deep(portioner), 3) == (128, 4)


def test_little_room_goes_to_few_zones_that_can_use_it_up(portioner: Portioner) -> None:
    found(portioner, 3)
    assert portioner.portion_out("main", 128, room=300, capacity=MANY) == (100, 3)


def test_zones_with_few_items_are_all_visited(portioner: Portioner) -> None:
    assert found(portioner, 2) == (128, 4)


def test_where_items_are_long_a_portion_stays_one_item_so_that_nobody_waits_for_anothers(portioner: Portioner) -> None:
    assert found(portioner, 100, pointers=51, room=72, capacity=72) == (51, 1)


def test_no_portion_is_larger_than_a_tenant_may_take(portioner: Portioner) -> None:
    assert found(Portioner(dequeue_max=2), 100) == (128, 2)


def test_few_zones_give_as_much_as_there_is_room_for_up_to_their_turn(portioner: Portioner) -> None:
    assert found(portioner, 100, pointers=3) == (3, 64)


def test_with_less_room_than_a_portion_one_zone_is_visited(portioner: Portioner) -> None:
    deep(portioner)
    assert portioner.portion_out("main", 128, room=5, capacity=MANY) == (1, 5)


def test_each_shard_is_judged_by_itself(portioner: Portioner) -> None:
    deep(portioner)
    assert portioner.portion_out("other", 128, room=512, capacity=MANY) == (128, 4)


def test_a_call_that_had_no_zone_to_itself_says_nothing_of_them(portioner: Portioner) -> None:
    deep(portioner)
    portioner.learn("main", Portions(32, 16), visited=0, items=0)
    assert portioner.portion_out("main", 128, room=512, capacity=MANY) == (32, 16)


def test_no_room_or_no_pointers_make_no_portions(portioner: Portioner) -> None:
    assert portioner.portion_out("main", 0, room=10, capacity=10) == (0, 10)
    assert portioner.portion_out("main", 10, room=0, capacity=10) == (0, 0)
