"""No order of the transactions of two transactions across shards breaks an invariant; without a guard, one does."""

import pytest

from tests.protocol_models.spanning import Guard
from tests.simulation.mutations.mutation import Mutation
from tests.simulation.mutations.spanning import GUARDS, SPANNING
from tests.workflows.orders.schedule import explore
from tests.zones.spanning.orders.scene import SpanningScene

SMALL = {
    "a transfer, and a plain transaction at its home": SpanningScene(("transfer 0 1",), plain=(0,)),
    "a transfer, and a plain transaction at its participant": SpanningScene(("transfer 0 1",), plain=(1,)),
    "a transfer, and housekeeping": SpanningScene(("transfer 0 1",), plain=(1,), settles=(1,), patience=0),
    "writes without reads, and an abort that is forgotten": SpanningScene(
        ("send 0 1",), plain=(1,), forgets=(0,), attempts=2
    ),
    "an audit and a transfer": SpanningScene(("audit 0 1", "transfer 0 1"), patience=0),
    "an audit and two plain transactions": SpanningScene(("audit 0 1",), plain=(0, 1), patience=0),
    "two withdrawals": SpanningScene(("withdraw 0 1", "withdraw 1 0"), patience=0),
    "two transfers": SpanningScene(("transfer 0 1", "transfer 1 0"), patience=0),
    "two withdrawals and a plain transaction, each tried once": SpanningScene(
        ("withdraw 0 1", "withdraw 1 0"), plain=(1,), attempts=1
    ),
    "two transfers and a plain transaction, each tried once": SpanningScene(
        ("transfer 0 1", "transfer 1 0"), plain=(1,), attempts=1
    ),
}
LARGER = {
    "two withdrawals that lose patience": SpanningScene(("withdraw 0 1", "withdraw 1 0")),
    "two transfers and a plain transaction, each tried twice": SpanningScene(
        ("transfer 0 1", "transfer 1 0"), plain=(1,), attempts=2, patience=0, reads_at_once=True
    ),
    "two transfers and a plain transaction, whose answers are late": SpanningScene(
        ("transfer 0 1", "transfer 1 0"), plain=(1,), attempts=1, answers_late=True
    ),
}
LATE_ANSWERS = SpanningScene(("send 0 1",), plain=(1,), forgets=(0,), reads_at_once=True, answers_late=True)
# Where the removal of a guard shows. Others need commits of unknown result, or decisions that are forgotten early.
FOUND_IN = {
    GUARDS[Guard.READS_VALIDATED].title: SMALL["a transfer, and a plain transaction at its participant"],
    GUARDS[Guard.SHARED_LOCK].title: SMALL["two withdrawals"],
    GUARDS[Guard.DECISION_READ].title: SMALL["a transfer, and a plain transaction at its participant"],
    GUARDS[Guard.HOME_FIRST].title: LATE_ANSWERS,
    GUARDS[Guard.ABORT_WRITTEN].title: SMALL["a transfer, and a plain transaction at its participant"],
    GUARDS[Guard.LOCK_SEEN].title: SMALL["a transfer, and a plain transaction at its participant"],
    GUARDS[Guard.ALL_VALIDATED].title: SMALL["an audit and a transfer"],
    "two processes apply a transaction across shards at once": SMALL[
        "writes without reads, and an abort that is forgotten"
    ],
}


@pytest.mark.parametrize("scene", SMALL.values(), ids=SMALL)
def test_no_order_of_transactions_breaks_an_invariant(scene: SpanningScene) -> None:
    found = explore(scene.begin)
    assert found.violation is None, found
    assert found.orders > 5


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("scene", LARGER.values(), ids=LARGER)
def test_no_order_of_transactions_in_a_larger_scene_breaks_an_invariant(scene: SpanningScene) -> None:
    found = explore(scene.begin)
    assert found.violation is None, found


@pytest.mark.long
@pytest.mark.parametrize("mutation", [each for each in SPANNING if each.title in FOUND_IN], ids=str)
def test_without_a_guard_an_order_of_transactions_breaks_an_invariant(mutation: Mutation) -> None:
    with mutation.planted():
        found = explore(FOUND_IN[mutation.title].begin)
    assert found.violation is not None


def test_every_guard_that_orders_show_is_planted() -> None:
    assert set(FOUND_IN) <= {each.title for each in SPANNING}
