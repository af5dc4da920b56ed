"""Transactions across shards are serializable, whoever stops at any time; and every guard is needed for that."""

from dataclasses import replace

import pytest

from tests.protocol_models.exploration import explore
from tests.protocol_models.spanning import MISINFORMED, SCENES, Guard, Spanning

NO_ORDER = "no serial order explains what was read"

VIOLATIONS = {
    Guard.READS_VALIDATED: ("write skew", NO_ORDER),
    Guard.SHARED_LOCK: ("write skew", NO_ORDER),
    Guard.DECISION_READ: ("two transfers", NO_ORDER),
    Guard.HOME_FIRST: ("forgotten decisions", MISINFORMED),
    Guard.ABORT_WRITTEN: ("two transfers", NO_ORDER),
    Guard.LOCK_SEEN: ("a transfer and plain transactions", NO_ORDER),
    Guard.CARRIED_OUT: ("forgotten decisions", NO_ORDER),
    Guard.RECEIPT: ("forgotten decisions", MISINFORMED),
    Guard.ALL_VALIDATED: ("two readers and plain transactions", NO_ORDER),
    Guard.READ_BEFORE: ("two readers and plain transactions", NO_ORDER),
}


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_with_all_guards_every_order_of_transactions_is_serializable(scene: Spanning) -> None:
    found = explore(scene)
    assert found.violation is None, found.trace


@pytest.mark.parametrize("guard", Guard, ids=lambda guard: guard.name)
def test_without_one_guard_an_order_of_transactions_is_not_serializable(guard: Guard) -> None:
    scene, violation = VIOLATIONS[guard]
    found = explore(replace(SCENES[scene], without=(guard,)))
    assert found.violation == violation, found.trace
