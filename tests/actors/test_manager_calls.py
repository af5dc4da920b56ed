"""A scanner is full if it waited for capacity for most of the time since that was asked last."""

from fairlead.actors.scanning.manager_calls import Saturation


def test_one_that_has_never_waited_is_not_full() -> None:
    assert not Saturation(100).since_last(200)


def test_waits_add_up_and_more_than_half_of_the_time_is_full() -> None:
    fullness = Saturation(0)
    for begin_us in (0, 50):
        fullness.wait(begin_us)
        fullness.end_wait(begin_us + 26)
    assert fullness.since_last(100)


def test_half_of_the_time_or_less_is_not() -> None:
    fullness = Saturation(0)
    fullness.wait(20)
    fullness.end_wait(70)
    assert not fullness.since_last(100)


def test_a_wait_that_lasts_counts_as_far_as_it_has_got_each_time() -> None:
    fullness = Saturation(0)
    fullness.wait(0)
    assert fullness.since_last(100)
    assert fullness.since_last(200)
    fullness.end_wait(210)
    assert not fullness.since_last(300)


def test_a_clock_that_steps_back_makes_no_scanner_full() -> None:
    fullness = Saturation(1_000)
    fullness.wait(1_000)
    assert not fullness.since_last(500)
    fullness.end_wait(400)
    assert not fullness.since_last(600)
