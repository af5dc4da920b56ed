"""An index that is built or dropped beside writers is complete while it is readable; and every guard is needed."""

from dataclasses import replace

import pytest

from tests.protocol_models.exploration import explore
from tests.protocol_models.online_index import MISSED, MISSING, SCENES, Guard, OnlineIndex


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_with_all_guards_a_readable_index_is_complete_in_every_order(scene: OnlineIndex) -> None:
    found = explore(scene)
    assert found.violation is None, found.trace
    assert found.state_count > 100


@pytest.mark.parametrize("guard", Guard, ids=lambda guard: guard.name)
def test_without_one_guard_some_order_violates_that(guard: Guard) -> None:
    found = [explore(replace(scene, without=(guard,))).violation for scene in SCENES.values()]
    assert {MISSED, MISSING} & set(found)
