"""A lookup on all shards misses no member that is there all the time, and every guard but one is needed for that."""

from dataclasses import replace

import pytest

from tests.protocol_models.exploration import explore
from tests.protocol_models.scatter import MISSED, SCENES, Guard, Scatter

REDUNDANT = (Guard.COUNTED_AT_SOURCE,)  # A member that is cleared was listed at another shard, which has counted.


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_with_all_guards_no_order_of_transactions_hides_the_member(scene: Scatter) -> None:
    found = explore(scene)
    assert found.violation is None, found.trace


@pytest.mark.parametrize("guard", [guard for guard in Guard if guard not in REDUNDANT], ids=lambda guard: guard.name)
def test_without_one_guard_an_order_of_transactions_hides_the_member(guard: Guard) -> None:
    found = explore(replace(SCENES["three shards"], without=(guard,)))
    assert found.violation == MISSED, found.trace


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
@pytest.mark.parametrize("guard", REDUNDANT, ids=lambda guard: guard.name)
def test_without_a_redundant_guard_no_order_of_transactions_hides_the_member(guard: Guard, scene: Scatter) -> None:
    found = explore(replace(scene, without=(guard,)))
    assert found.violation is None, found.trace
