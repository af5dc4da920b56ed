"""Where visits go on, and when they look from the front of a queue again."""

from __future__ import annotations

import pytest

from fairlead.simulation.external.items import Transaction
from fairlead.zones.external import visits
from fairlead.zones.external.cursors import ENTRY_US, LOOKS_SHARE, PASSED_MIN, STOPS_MAX, Cursors
from fairlead.zones.external.store import Dequeued, LeasedRow, Queue, Stop, Want
from fairlead.zones.queue.items import new_item
from fairlead.zones.records import ItemRecord
from tests.simulation.mutations.mutation import in_a_race
from tests.zones.external.town import ALICE, LEASE_US, Town

NOW_US = 1_700_000_000_000_000
PASSED = 10 * PASSED_MIN
LOOK_AFTER_US = PASSED * ENTRY_US * LOOKS_SHARE
BOB = Queue(ALICE.tenant._replace(user="bob"), "queue")


def row(at_us: int, kind: str = "mail", priority: int = 100) -> LeasedRow:
    """Return an item that was leased."""
    return LeasedRow(ALICE, b"i" * 16, ItemRecord(kind, b"", priority, 0, 0), 0, had_expired=False, at_us=at_us)


def visited(cursors: Cursors, *rows: LeasedRow, passed: int = PASSED, now_us: int = NOW_US) -> None:
    """Note a visit of alice's queue."""
    want = Want(ALICE, 10, cursors.stops(ALICE, now_us=now_us, lease_us=LEASE_US))
    cursors.note([want], Dequeued(list(rows), passed), now_us=now_us, lease_us=LEASE_US)


def stops(cursors: Cursors, now_us: int = NOW_US + 1) -> set[Stop]:
    """Return from where on alice's queue is looked at."""
    return set(cursors.stops(ALICE, now_us=now_us, lease_us=LEASE_US))


def test_a_visit_that_passes_over_little_is_not_remembered() -> None:
    cursors = Cursors()
    visited(cursors, row(7), passed=PASSED_MIN - 1)
    assert not stops(cursors)


def test_the_next_visit_goes_on_behind_the_last_item_of_each_kind_and_priority() -> None:
    cursors = Cursors()
    visited(cursors, row(7), row(5), row(9, "call"), row(3, priority=1))
    assert stops(cursors) == {Stop("mail", 100, 7), Stop("call", 100, 9), Stop("mail", 1, 3)}
    visited(cursors, row(12), passed=0, now_us=NOW_US + 1)
    assert stops(cursors) == {Stop("mail", 100, 12), Stop("call", 100, 9), Stop("mail", 1, 3)}


def test_looks_from_the_front_take_a_twentieth_of_the_time() -> None:
    cursors = Cursors()
    visited(cursors, row(7))
    assert cursors.front_us(ALICE) == NOW_US + LOOK_AFTER_US
    assert stops(cursors, NOW_US + LOOK_AFTER_US - 1)
    assert not stops(cursors, NOW_US + LOOK_AFTER_US)


def test_a_queue_is_looked_at_from_the_front_once_in_the_time_of_a_lease() -> None:
    cursors = Cursors()
    visited(cursors, row(7), passed=1_000_000_000)
    assert cursors.front_us(ALICE) == NOW_US + LEASE_US
    assert not stops(cursors, NOW_US + LEASE_US)


def test_a_clock_that_was_set_back_makes_visits_look_from_the_front() -> None:
    cursors = Cursors()
    visited(cursors, row(7))
    assert not stops(cursors, NOW_US - 3600 * 1_000_000)


def test_a_kind_that_ended_is_still_known_after_a_look_from_the_front() -> None:
    cursors = Cursors()
    visited(cursors, row(7), row(9, "call"))
    later_us = NOW_US + LOOK_AFTER_US
    visited(cursors, row(12), now_us=later_us)
    assert stops(cursors, later_us + 1) == {Stop("mail", 100, 12), Stop("call", 100, 9)}


def test_the_places_are_forgotten_once_little_is_passed_over() -> None:
    cursors = Cursors()
    visited(cursors, row(7))
    visited(cursors, row(12), passed=0, now_us=NOW_US + LOOK_AFTER_US)
    assert cursors.front_us(ALICE) is None


def test_a_queue_of_very_many_kinds_is_looked_at_from_the_front() -> None:
    cursors = Cursors()
    visited(cursors, *(row(7, f"kind {number}") for number in range(STOPS_MAX + 1)))
    assert not stops(cursors)


def test_another_queue_is_not_touched() -> None:
    cursors = Cursors()
    visited(cursors, row(7))
    assert cursors.stops(BOB, now_us=NOW_US + 1, lease_us=LEASE_US) == ()


# --- Visits ---


LATE = b"late".rjust(16, b".")


def drained(entries_left: int = PASSED) -> tuple[Town, Transaction]:
    """A queue whose ended items left many entries behind, and an open transaction that enqueued an item before them."""
    town = Town()
    town.items.table.entries_left = entries_left
    late = town.items.begin()
    town.items.enqueue(late, ALICE, LATE, new_item("mail"))
    for name in ("first", "second"):
        town.clock.advance_us(2_000_000)
        town.produce(name)
        town.read()
        assert len(town.visit()) == 1
        town.end_leased()
    town.clock.advance_us(20_000)
    return town, late


def test_what_comes_behind_the_place_is_taken_at_once() -> None:
    town, _ = drained()
    town.produce("third")
    town.read()
    assert len(town.visit()) == 1


def slept_until_us(*, commits: bool) -> tuple[int, int]:
    """Return until when the pointer of a queue sleeps that seems empty, and when it is looked at from the front.

    `commits`: whether an item waits before the place where visits go on, which they do not know.
    """
    town, late = drained()
    if commits:
        town.items.commit(late)
    town.produce("third")
    town.read()
    town.visit()
    town.end_leased()
    assert town.visit() == []
    pointer, front_us = town.pointer, town.cursors.front_us(ALICE)
    assert pointer is not None
    assert front_us is not None
    return pointer.vesting_us, front_us


@pytest.mark.parametrize("commits", [False, True])
def test_a_pointer_sleeps_no_longer_than_until_the_next_look_from_the_front(commits: bool) -> None:
    until_us, front_us = slept_until_us(commits=commits)
    assert until_us == front_us


def test_without_the_bound_a_pointer_sleeps_on() -> None:
    bug = (visits._plan, "if visit.looks_again_us is not None:", "if False:")
    with in_a_race("a pointer sleeps past the next look from the front", bug).planted():
        until_us, front_us = slept_until_us(commits=True)
    assert until_us > front_us


def test_an_item_that_was_committed_late_is_taken_by_the_next_look_from_the_front() -> None:
    town, late = drained()
    town.items.commit(late)
    town.read()
    assert town.visit() == []
    town.clock.advance_us(LOOK_AFTER_US)
    assert town.visit() == [LATE]


def is_deleted(visits: int = 20) -> bool:
    """Whether the pointer of an empty queue is deleted whose ended items keep very many entries.

    Looks from the front are as far apart as a pointer is active without work, or further.
    """
    town, late = drained(entries_left=1_000 * PASSED)
    town.items.roll_back(late)
    town.produce("third")
    town.read()
    town.visit()
    town.end_leased()
    for _ in range(visits):
        pointer = town.pointer
        if pointer is None:
            return True
        town.clock.advance_us(max(1, pointer.vesting_us - town.clock.now_us()))
        assert town.visit() == []
    return False


def test_an_empty_queue_loses_its_pointer_while_the_entries_of_its_ended_items_stay() -> None:
    assert is_deleted()


def test_if_a_look_from_the_front_counts_as_work_the_pointer_stays() -> None:
    bug = (visits._plan, "is_idle = not visit.taken and remaining is None and not soonest", "is_idle = False")
    with in_a_race("a look from the front counts as work", bug).planted():
        assert not is_deleted()
