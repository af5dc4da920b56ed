"""No order of the transactions of two executors and a cleanup does a step twice; without a guard, one does."""

import pytest

from tests.simulation.mutations.mutation import Mutation
from tests.simulation.mutations.workflows import IN_RACES, STEPS
from tests.workflows.orders.scene import WorkflowScene
from tests.workflows.orders.schedule import explore

SMALL = {
    "two executors": WorkflowScene(),
    "with a step at home": WorkflowScene(has_home_step=True),
    "the run is undone": WorkflowScene(fails=True),
    "a transaction across shards": WorkflowScene(spans=True),
    "a transaction across shards is undone": WorkflowScene(spans=True, fails=True),
}
LARGER = {
    "FLOOR is raised": WorkflowScene(floor_raises=1),
    "the run is cancelled": WorkflowScene(cancels=True),
    "the run is undone, and FLOOR is raised": WorkflowScene(fails=True, floor_raises=1),
    "FLOOR is raised twice": WorkflowScene(floor_raises=2, has_home_step=True),
    "a transaction across shards is cancelled": WorkflowScene(spans=True, cancels=True),
}


# Where the removal of a guard shows; some guards need commits of unknown result, or tenants that move.
FOUND_IN = {
    "a commit of a workflow at home does not compare the lease": WorkflowScene(has_home_step=True),
    "a step on another shard reads its fence by snapshot": WorkflowScene(cancels=True),
    "a cleanup leaves no tombstone": WorkflowScene(),
    "a step on another shard does not compare FLOOR": WorkflowScene(floor_raises=1),
    "a clock that is ahead stands in for FLOOR": WorkflowScene(floor_raises=1),
    "tombstones are cleared, and FLOOR is not raised": WorkflowScene(floor_raises=1),
    "an executor that has asked again does not record the answer at home": WorkflowScene(floor_raises=1),
    "home does not record a participant before the first step there": WorkflowScene(),
    "a new attempt does not raise the fences at participants": WorkflowScene(cancels=True),
}


@pytest.mark.parametrize("scene", SMALL.values(), ids=SMALL)
def test_no_order_of_transactions_breaks_an_invariant(scene: WorkflowScene) -> None:
    found = explore(scene.begin)
    assert found.violation is None, found
    assert found.orders > 90


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("scene", LARGER.values(), ids=LARGER)
def test_no_order_of_transactions_in_a_larger_scene_breaks_an_invariant(scene: WorkflowScene) -> None:
    found = explore(scene.begin)
    assert found.violation is None, found


@pytest.mark.parametrize(
    "mutation",
    [
        pytest.param(each, marks=pytest.mark.long if FOUND_IN[each.title].cancels else ())
        for each in (*STEPS, *IN_RACES)
        if each.title in FOUND_IN
    ],
    ids=str,
)
def test_without_a_guard_an_order_of_transactions_breaks_an_invariant(mutation: Mutation) -> None:
    with mutation.planted():
        found = explore(FOUND_IN[mutation.title].begin)
    assert found.violation is not None


def test_every_guard_that_orders_show_is_planted() -> None:
    assert set(FOUND_IN) <= {each.title for each in (*STEPS, *IN_RACES)}
