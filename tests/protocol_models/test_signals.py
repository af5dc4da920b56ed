"""A workflow receives each signal once and never waits beside it, and every guard is needed for that."""

from dataclasses import replace

import pytest

from tests.protocol_models.exploration import explore
from tests.protocol_models.signals import SCENES, Guard, Signals

WAITS = "the workflow waits although its signal is stored"
TWICE = "a signal is received twice"
LEFT = "signals are left in the store"

VIOLATIONS = {
    Guard.SIGNALS_READ: ("two signals", WAITS),
    Guard.RECORD_READ: ("two signals", WAITS),
    Guard.WAKE_UP: ("two signals", WAITS),
    Guard.LEASE: ("two signals", "the item is suspended without its lease"),
    Guard.STAMP: ("two signals", "a confirmed signal is lost"),
    Guard.RECEIPT: ("two signals", TWICE),
    Guard.TAKEN_AND_RECORDED: ("two signals", TWICE),
    Guard.REFUSED: ("one signal", LEFT),
    Guard.CLEARED: ("one signal", LEFT),
}


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_with_all_guards_no_order_of_transactions_breaks_an_invariant(scene: Signals) -> None:
    found = explore(scene)
    assert found.violation is None, found.trace


@pytest.mark.parametrize("guard", Guard, ids=lambda guard: guard.name)
def test_without_one_guard_an_order_of_transactions_breaks_an_invariant(guard: Guard) -> None:
    scene, violation = VIOLATIONS[guard]
    found = explore(replace(SCENES[scene], without=(guard,)))
    assert found.violation == violation, found.trace
