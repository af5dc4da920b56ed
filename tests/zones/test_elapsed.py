"""How long something has lasted, by a clock that may step meanwhile."""

from fairlead.zones.elapsed import LOOK_US_MAX, Elapsed


def test_time_adds_up_from_look_to_look() -> None:
    elapsed = Elapsed(100)
    assert [elapsed.by(now_us) for now_us in (100, 150, 150, 300)] == [0, 50, 50, 200]


def test_a_clock_that_is_set_back_takes_nothing_away_and_goes_on_from_there() -> None:
    elapsed = Elapsed(1_000)
    assert [elapsed.by(now_us) for now_us in (1_100, 0, 50)] == [100, 100, 150]


def test_a_clock_that_is_set_ahead_adds_no_more_than_a_late_look() -> None:
    elapsed = Elapsed(0)
    assert elapsed.by(3_600_000_000) == LOOK_US_MAX
    assert elapsed.by(3_600_000_001) == LOOK_US_MAX + 1
