"""Steps on another shard are executed once and undone completely, and every guard is needed for that."""

from dataclasses import replace

import pytest

from tests.protocol_models.exploration import explore
from tests.protocol_models.steps import LARGER_SCENES, SCENES, Guard, Steps

TWICE = "step 1 is executed twice"
NOT_UNDONE = "a step of an undone run is not undone"
DIFFERS = "the replay differs, with the same code"

VIOLATIONS = {
    Guard.HOME_FENCE: ("two attempts", DIFFERS),
    Guard.ENTRY_READ: ("two attempts", NOT_UNDONE),
    Guard.FENCE_READ: ("two attempts", NOT_UNDONE),
    Guard.TOMBSTONE: ("two attempts", TWICE),
    Guard.FLOOR_COMPARED: ("two attempts", TWICE),
    Guard.RECORDED_AFTER_ASKING: ("two attempts", TWICE),
    Guard.NO_CLOCK: ("two attempts", TWICE),
    Guard.RAISED_WITH_CLEARING: ("two attempts", TWICE),
    Guard.PARTICIPANT_FIRST: ("two attempts", "step 1 is executed after its run has ended"),
    Guard.READS_FIRST: ("two attempts", DIFFERS),
    Guard.FENCE_RAISED: ("two attempts", NOT_UNDONE),
    Guard.ERROR_IS_ENTRY: ("two attempts", NOT_UNDONE),
    Guard.RUN_ID: ("the name is enqueued again", DIFFERS),
    Guard.EPOCH: ("the participant moves", TWICE),
    Guard.HOME_CHECKED: ("the participant moves", TWICE),
}


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_with_all_guards_no_order_of_transactions_breaks_an_invariant(scene: Steps) -> None:
    found = explore(scene)
    assert found.violation is None, found.trace


@pytest.mark.long
@pytest.mark.parametrize("scene", LARGER_SCENES.values(), ids=LARGER_SCENES)
def test_with_all_guards_no_order_of_transactions_in_a_larger_scene_breaks_an_invariant(scene: Steps) -> None:
    found = explore(scene)
    assert found.violation is None, found.trace


@pytest.mark.parametrize("guard", Guard, ids=lambda guard: guard.name)
def test_without_one_guard_an_order_of_transactions_breaks_an_invariant(guard: Guard) -> None:
    scene, violation = VIOLATIONS[guard]
    found = explore(replace(SCENES[scene], without=(guard,)))
    assert found.violation == violation, found.trace
