"""Silence: which worker sessions a consumer takes for dead, by looks a second apart."""

from __future__ import annotations

from fairlead.zones.top_level.silence import LOOK_APART_US_MAX, Silence
from tests.zones.world import MS, SECOND

ANNA, BERT = b"anna", b"bert"


def looks(silence: Silence, *beats: bytes, begin_us: int = 0, apart_us: int = SECOND) -> list[bool]:
    """Look at Anna once per beat; return whether each look found her silent."""
    return [
        silence.note({ANNA: beat}, now_us=begin_us + number * apart_us) == [ANNA] for number, beat in enumerate(beats)
    ]


def test_a_session_is_silent_at_the_fifth_look_that_sees_the_same_beat() -> None:
    assert looks(Silence(), b"1", b"1", b"1", b"1", b"1", b"1") == [False] * 4 + [True, True]


def test_a_beat_in_between_begins_the_count_anew() -> None:
    assert looks(Silence(), b"1", b"1", b"1", b"1", b"2", b"2", b"2", b"2", b"2") == [False] * 8 + [True]


def test_sessions_are_counted_apart() -> None:
    silence = Silence()
    for number in range(4):
        assert silence.note({ANNA: b"1", BERT: bytes([number])}, now_us=number * SECOND) == []
    assert silence.note({ANNA: b"1", BERT: b"4"}, now_us=4 * SECOND) == [ANNA]


def test_a_store_that_was_away_ends_no_session() -> None:
    silence = Silence()
    looks(silence, *[b"1"] * 4)
    silence.note_failure()
    assert looks(silence, *[b"1"] * 4, begin_us=4 * SECOND) == [False] * 4


def test_a_consumer_that_stood_still_begins_anew() -> None:
    """The worker's machine may be the same, and may have stood still, too."""
    silence = Silence()
    looks(silence, *[b"1"] * 4)
    begin_us = 3 * SECOND + LOOK_APART_US_MAX + 1
    assert looks(silence, *[b"1"] * 4, begin_us=begin_us) == [False] * 4
    assert looks(silence, b"1", begin_us=begin_us + 4 * SECOND) == [True]


def test_a_clock_that_is_set_back_or_ahead_ends_no_session() -> None:
    for step_us in (-3_600 * SECOND, 3_600 * SECOND):
        silence = Silence()
        looks(silence, *[b"1"] * 4, begin_us=10_000 * SECOND)
        assert looks(silence, *[b"1"] * 4, begin_us=10_004 * SECOND + step_us) == [False] * 4


def test_looks_that_follow_each_other_too_fast_count_once() -> None:
    assert True not in looks(Silence(), *[b"1"] * 20, apart_us=100 * MS)


def test_a_session_that_has_ended_is_forgotten() -> None:
    silence = Silence()
    looks(silence, *[b"1"] * 4)
    silence.note({}, now_us=4 * SECOND)
    assert looks(silence, b"1", begin_us=5 * SECOND) == [False]
