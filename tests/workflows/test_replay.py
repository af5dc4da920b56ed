"""Replay by tables: which step a call is, and when the code differs from what is recorded."""

from __future__ import annotations

import pytest

from fairlead.workflows.replay import ConcurrentSteps, Replay, StepsDiffer, side_by_side
from fairlead.zones.workflow.run_records import StepEntry, StepKind, StepState
from fairlead.zones.workflow.step_log import StepName


def recorded(*names: str) -> dict[StepName, StepEntry]:
    """Return entries of steps that were done in this order; a name that comes twice is a second occurrence."""
    steps: dict[StepName, StepEntry] = {}
    for ordinal, name in enumerate(names):
        steps[StepName(name, names[:ordinal].count(name))] = StepEntry(ordinal, StepKind.STEP, b"d", StepState.DONE, 0)
    return steps


def play(replay: Replay, *names: str) -> list[bool]:
    """Do steps one after the other; return for each whether it is recorded."""
    found = []
    for name in names:
        step, entry = replay.begin(name, b"d")
        if entry is None:
            replay.check_new(step)
        replay.end(step)
        found.append(entry is not None)
    return found


def test_recorded_steps_are_found_and_the_next_one_is_new() -> None:
    assert play(Replay(recorded("a", "b", "a")), "a", "b", "a", "a") == [True, True, True, False]


def test_the_order_of_recorded_steps_does_not_matter() -> None:
    assert play(Replay(recorded("a", "b")), "b", "a", "c") == [True, True, False]


def test_a_new_step_before_recorded_ones_differs_and_both_lists_are_shown() -> None:
    with pytest.raises(StepsDiffer) as caught:
        play(Replay(recorded("a", "b", "c")), "a", "x")
    assert caught.value.fields["first_difference"] == "x is new, and b, c were not reached"
    assert caught.value.fields["not_reached"] == ["b", "c"]
    assert (caught.value.fields["recorded"], caught.value.fields["now"]) == (["a", "b", "c"], ["a", "x"])


def test_newer_code_may_do_new_steps() -> None:
    assert play(Replay(recorded("a", "b"), may_differ=True), "a", "x", "b") == [True, False, True]


def test_a_recorded_step_with_other_arguments_differs_in_newer_code_too() -> None:
    replay = Replay(recorded("a"), may_differ=True)
    with pytest.raises(StepsDiffer, match="a has other arguments"):
        replay.begin("a", b"other")


@pytest.mark.parametrize("before", [0, 1, 40])
def test_a_recorded_step_with_other_arguments_is_the_one_that_is_marked(before: int) -> None:
    names = [*(f"before {number}" for number in range(before)), "ship", "mail"]
    replay = Replay(recorded(*names))
    play(replay, *names[:before])
    with pytest.raises(StepsDiffer) as caught:
        replay.begin("ship", b"other")
    marked = [line.split() for line in side_by_side(caught.value) if line.startswith(">")]
    assert marked == [[">", "ship", "ship"]]


def test_recorded_steps_that_are_never_reached_are_told() -> None:
    replay = Replay(recorded("a", "b", "b"))
    play(replay, "a", "b")
    assert replay.not_reached() == [StepName("b", 1)]


def test_two_steps_of_one_name_at_once_are_refused() -> None:
    replay = Replay({})
    replay.begin("a", b"d")
    with pytest.raises(ConcurrentSteps):
        replay.begin("a", b"d")


def test_an_undo_that_is_recorded_is_no_step_that_the_code_must_reach() -> None:
    undo = StepEntry(1, StepKind.UNDO, b"", StepState.DONE, 1)
    replay = Replay({**recorded("a"), StepName("undo a", 0): undo})
    replay.begin("a", b"d")
    replay.check_end()
    assert not replay.is_behind


def test_an_end_before_a_recorded_step_calls_for_no_undo() -> None:
    replay = Replay(recorded("a", "b"))
    replay.begin("a", b"d")
    with pytest.raises(StepsDiffer, match="the workflow has ended, and b was not reached"):
        replay.check_end()


def test_of_many_steps_that_were_not_reached_the_first_are_named() -> None:
    replay = Replay(recorded(*"abcdefg"))
    with pytest.raises(StepsDiffer, match="a, b, c, d, e and 2 more were not reached"):
        replay.check_end()
