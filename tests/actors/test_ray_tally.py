"""What a consumer says that it has done, although its actors die and begin to count anew."""

from __future__ import annotations

from fairlead.actors.runtime.ray_host.consumer import CumulativeCounts


def test_the_counts_of_actors_are_summed() -> None:
    tally = CumulativeCounts()
    tally.note(0, {"pid": 10, "completed": 3, "held": 1})
    tally.note(1, {"pid": 11, "completed": 4, "held": 2})
    tally.note(0, {"pid": 10, "completed": 5, "held": 0})
    assert tally.total() == {"completed": 9, "held": 2}


def test_what_an_actor_did_before_it_died_stays_counted_and_what_it_held_does_not() -> None:
    tally = CumulativeCounts()
    tally.note(0, {"pid": 10, "completed": 3, "held": 2})
    tally.note(0, {"pid": 12, "completed": 1, "held": 1})
    assert tally.total() == {"completed": 4, "held": 1}
