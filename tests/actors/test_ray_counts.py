"""The counts of a Ray consumer include those of actors that have died."""

from __future__ import annotations

from fairlead.actors.runtime.ray_host.consumer import CumulativeCounts


def test_the_counts_of_actors_are_summed() -> None:
    counts = CumulativeCounts()
    counts.note(0, {"pid": 10, "completed": 3, "held": 1})
    counts.note(1, {"pid": 11, "completed": 4, "held": 2})
    counts.note(0, {"pid": 10, "completed": 5, "held": 0})
    assert counts.total() == {"completed": 9, "held": 2}


def test_the_outcomes_of_a_dead_actor_stay_counted_and_its_held_items_do_not() -> None:
    counts = CumulativeCounts()
    counts.note(0, {"pid": 10, "completed": 3, "held": 2})
    counts.note(0, {"pid": 12, "completed": 1, "held": 1})
    assert counts.total() == {"completed": 4, "held": 1}
