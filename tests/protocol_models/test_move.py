"""A moving tenant loses nothing, and is found, whoever stops at any time; and every guard is needed for that."""

from dataclasses import replace

import pytest

from tests.protocol_models.exploration import explore
from tests.protocol_models.move import LARGER_SCENES, SCENES, Guard, Moving

LOST = "an acknowledged write is lost"
TWO_OWNERS = "two shards own the tenant"
NOT_FOUND = "the tenant is not found"
BACK = "the completed item is back"
NO_POINTER = "the item has no pointer"

VIOLATIONS = {
    (Guard.OWNER_READ,): ("a writer", LOST),
    (Guard.MARKS,): ("a writer", LOST),
    (Guard.COMPARED,): ("an item", BACK),
    (Guard.COPIED_FIRST,): ("a writer", LOST),
    (Guard.WRITERS_WAIT,): ("a writer", LOST),
    (Guard.READERS_WAIT,): ("a reader", "a reader misses what was acknowledged before it began"),
    (Guard.MOVER_AT_SOURCE,): ("a writer", LOST),
    (Guard.MOVER_AT_DESTINATION,): ("a writer", LOST),
    (Guard.CHUNK,): ("movers of unknown results", LOST),
    (Guard.INCOMING,): ("a writer", LOST),
    (Guard.CLOSED_FIRST,): ("a writer", TWO_OWNERS),
    (Guard.STAYS_CLOSED,): ("a rescuer", TWO_OWNERS),
    (Guard.NOT_TRIED,): ("movers of unknown results", TWO_OWNERS),
    (Guard.OWNED_FIRST,): ("a writer", "no shard owns the tenant"),
    (Guard.CLEARED_BY_EPOCH,): ("a writer of unknown result", LOST),
    (Guard.STUB_BY_EPOCH,): ("a stub, there and back", NOT_FOUND),
    (Guard.EPOCH_RAISED,): ("a second move", "an ended move refuses a later one"),
    (Guard.OWNS,): ("a stub", NOT_FOUND),
    (Guard.ABSENT,): ("a writer of unknown result", LOST),
    (Guard.RECEIPT,): ("a writer of unknown result", "a write is applied twice"),
    (Guard.ARRIVED,): ("visits", NO_POINTER),
    (Guard.EMPTIED, Guard.REPLACES): ("an item", BACK),
    (Guard.POINTER_LAST, Guard.VISIT_ASKS): ("visits", NO_POINTER),
}
# No scene needs one of them alone: what is cleared twice, and a pointer that is made late and not deleted early.
REDUNDANT = (Guard.EMPTIED, Guard.REPLACES, Guard.POINTER_LAST, Guard.VISIT_ASKS)
WITH_ITEMS = ("an item", "visits")


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_with_all_guards_no_order_of_transactions_breaks_an_invariant(scene: Moving) -> None:
    found = explore(scene)
    assert found.violation is None, found.trace


@pytest.mark.long
@pytest.mark.parametrize("scene", LARGER_SCENES.values(), ids=LARGER_SCENES)
def test_with_all_guards_no_order_of_transactions_in_a_larger_scene_breaks_an_invariant(scene: Moving) -> None:
    found = explore(scene)
    assert found.violation is None, found.trace


@pytest.mark.parametrize("guards", VIOLATIONS, ids=lambda guards: "-".join(guard.name for guard in guards))
def test_without_these_guards_an_order_of_transactions_breaks_an_invariant(guards: tuple[Guard, ...]) -> None:
    scene, violation = VIOLATIONS[guards]
    found = explore(replace(SCENES[scene], without=guards))
    assert found.violation == violation, found.trace


@pytest.mark.long
@pytest.mark.parametrize("scene", WITH_ITEMS)
@pytest.mark.parametrize("guard", REDUNDANT, ids=lambda guard: guard.name)
def test_without_one_redundant_guard_no_order_of_transactions_breaks_an_invariant(guard: Guard, scene: str) -> None:
    found = explore(replace(SCENES[scene], without=(guard,)))
    assert found.violation is None, found.trace


def test_every_guard_is_either_needed_or_redundant() -> None:
    needed = {guards[0] for guards in VIOLATIONS if len(guards) == 1}
    assert needed.isdisjoint(REDUNDANT)
    assert needed.union(REDUNDANT) == set(Guard)
