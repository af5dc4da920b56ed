"""When a consumer looks for kinds that nobody handles."""

from fairlead.actors.housekeeping.unknown_kinds import LOOK_US, UnknownKinds


def test_a_shard_is_checked_a_while_after_the_first_call_and_then_periodically() -> None:
    kinds = UnknownKinds()
    asked_us = [0, LOOK_US - 1, LOOK_US, 2 * LOOK_US - 1, 2 * LOOK_US]
    assert [kinds.is_due("main", now_us) for now_us in asked_us] == [False, False, True, False, True]


def test_a_clock_that_is_set_back_delays_no_check() -> None:
    """Before, nobody was told of an unknown kind until the clock had caught up."""
    kinds = UnknownKinds()
    kinds.is_due("main", 600_000_000)
    assert kinds.is_due("main", 0)
    assert not kinds.is_due("main", LOOK_US - 1)
    assert kinds.is_due("main", LOOK_US)
