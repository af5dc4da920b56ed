"""A claim ends with its worker's session, and its item is completed once; the guards are needed for that."""

from dataclasses import replace

import pytest

from tests.protocol_models.exploration import explore
from tests.protocol_models.sessions import SCENES, Guard, Sessions

NOT_LISTED = "a claim's session is not listed: only the claim's term ends it"
CONTINUES = "a worker with a heartbeat continues an item that it has lost"

VIOLATIONS = {
    (Guard.LEASE,): ("delete and move", "an item is completed by a worker that does not hold it"),
    (Guard.ALIVE,): ("delete and move", NOT_LISTED),
    (Guard.ONE_TRANSACTION,): ("delete and move", "a claim has no key: only its term ends it"),
    (Guard.CONDITIONAL_HEARTBEAT,): ("delete and move", CONTINUES),
    (Guard.HEARTBEAT_READ,): ("delete and move", "a session is ended although a heartbeat has committed"),
    (Guard.END_FIRST,): ("two workers, two items", CONTINUES),
    (Guard.NOTICE,): ("delete and move", CONTINUES),
    (Guard.LISTED_UNTIL_EMPTY,): ("delete and move", NOT_LISTED),
    (Guard.OWNER_COMPARED, Guard.KEY_CLEARED): (
        "delete and move",
        "a release frees an item that another worker holds",
    ),
}
# One of the first two suffices. Without the third, the next lease takes the claim over,
# or the end of its session releases it.
REDUNDANT = (Guard.OWNER_COMPARED, Guard.KEY_CLEARED, Guard.FREED_CLAIM)
FEWEST_STATES = "three workers, one item"  # Of the scenes; the others are explored by the long form.


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_with_all_guards_no_order_of_transactions_breaks_an_invariant(scene: Sessions) -> None:
    found = explore(scene)
    assert found.violation is None, found.trace


@pytest.mark.parametrize("guards", VIOLATIONS, ids=lambda guards: "-".join(guard.name for guard in guards))
def test_without_these_guards_an_order_of_transactions_breaks_an_invariant(guards: tuple[Guard, ...]) -> None:
    scene, violation = VIOLATIONS[guards]
    found = explore(replace(SCENES[scene], without=guards))
    assert found.violation == violation, found.trace


@pytest.mark.parametrize(
    "scene", [name if name == FEWEST_STATES else pytest.param(name, marks=pytest.mark.long) for name in SCENES]
)
@pytest.mark.parametrize("guard", REDUNDANT, ids=lambda guard: guard.name)
def test_without_one_redundant_guard_no_order_of_transactions_breaks_an_invariant(guard: Guard, scene: str) -> None:
    found = explore(replace(SCENES[scene], without=(guard,)))
    assert found.violation is None, found.trace


def test_every_guard_is_either_needed_or_redundant() -> None:
    needed = {guards[0] for guards in VIOLATIONS if len(guards) == 1}
    assert needed.isdisjoint(REDUNDANT)
    assert needed.union(REDUNDANT) == set(Guard)
