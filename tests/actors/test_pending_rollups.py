"""Pending rollups: each event is in the rollup of its own interval, until the store has that rollup."""

from __future__ import annotations

import msgspec

from fairlead.actors.execution.pending_rollups import PENDING_ROLLUPS_MAX, TENANTS_MAX, PendingRollups
from fairlead.actors.telemetry.outcome_counts import OutcomeCounts
from fairlead.zones.layout import Tenant
from fairlead.zones.reporting.rollups import INTERVAL_US
from tests.actors.stage import ALICE


class Counted:
    """Counts, and the rollups that are pending for them."""

    def __init__(self) -> None:
        self.outcomes = OutcomeCounts()
        self.rollups = PendingRollups(self.outcomes)

    def complete(self, interval: int, *, kind: str = "mail") -> None:
        """Count an item that completes in an interval."""
        self.rollups.begin(interval * INTERVAL_US)
        self.outcomes[kind].outcomes["completed"] += 1

    def rows(self, interval: int) -> dict[int, dict[str, int]]:
        """Return what is to be stored in an interval: completed items by interval and kind."""
        return {
            stored_in: {kind: rollup.completed for kind, rollup in row.kinds.items()}
            for stored_in, row in self.rollups.rows(interval * INTERVAL_US).items()
        }

    def store(self, interval: int) -> None:
        """Store what is to be stored in an interval."""
        self.rollups.note_stored(self.rollups.rows(interval * INTERVAL_US))


def test_a_rollup_is_what_was_counted_since_the_begin_of_its_interval() -> None:
    counted = Counted()
    counted.complete(7)
    counted.complete(7, kind="fax")
    counted.complete(8)
    assert counted.rows(8) == {7: {"mail": 1, "fax": 1}, 8: {"mail": 1}}


def test_what_is_counted_while_a_rollup_is_stored_goes_into_the_next_row_of_its_interval() -> None:
    counted = Counted()
    counted.complete(7)
    rows = counted.rollups.rows(7 * INTERVAL_US)
    counted.complete(7)
    counted.rollups.note_stored(rows)
    assert counted.rows(8) == {7: {"mail": 2}}
    counted.store(8)
    assert counted.rows(8) == {}


def test_an_interval_to_which_the_clock_is_set_back_keeps_what_was_done_in_it() -> None:
    counted = Counted()
    for interval in (7, 8, 7):
        counted.complete(interval)
    assert counted.rows(7) == {8: {"mail": 1}, 7: {"mail": 2}}


def test_a_rollup_that_may_be_in_its_sum_already_is_not_stored_again() -> None:
    """A row is deleted when it goes into the sum, so a second row of the interval would be added to that sum."""
    counted = Counted()
    counted.complete(7)
    counted.store(7)
    counted.complete(7)
    assert counted.rows(8) == {7: {"mail": 2}}
    assert counted.rows(9) == {}


def test_a_rollup_of_which_nothing_is_stored_is_stored_however_late() -> None:
    counted = Counted()
    counted.complete(7)
    assert counted.rows(9) == {7: {"mail": 1}}


def test_a_store_that_is_away_for_hours_does_not_fill_the_workers_memory() -> None:
    counted = Counted()
    for interval in range(3 * PENDING_ROLLUPS_MAX):
        counted.complete(interval)
    last = 3 * PENDING_ROLLUPS_MAX - 1
    assert list(counted.rows(last)) == list(range(last - PENDING_ROLLUPS_MAX + 1, last + 1))


def test_of_very_many_tenants_those_with_most_time_are_kept() -> None:
    rollups = PendingRollups(OutcomeCounts())
    rollups.begin(7 * INTERVAL_US)
    for number in range(3 * TENANTS_MAX):
        rollups.note_run(Tenant("shop", f"user{number}"), 1)
        rollups.note_run(ALICE, 5)
    row = rollups.rows(7 * INTERVAL_US)[7]
    assert row.tenants["shop"][ALICE.user] == 5 * 3 * TENANTS_MAX


def test_every_outcome_has_a_field_in_the_rollup() -> None:
    counted = Counted()
    counted.rollups.begin(7 * INTERVAL_US)
    for number, outcome in enumerate(counted.outcomes["mail"].outcomes, 1):
        counted.outcomes["mail"].outcomes[outcome] = number
    row = counted.rollups.rows(7 * INTERVAL_US)[7]
    found = msgspec.structs.asdict(row.kinds["mail"])
    assert found == {**counted.outcomes["mail"].outcomes, "run_us": 0}
