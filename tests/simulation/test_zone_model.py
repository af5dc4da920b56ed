"""One model of a queue zone and three uses of it: each finds a bug that the others miss."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from fairlead.simulation.linearizability.clients import PROMISE, check_clients
from fairlead.simulation.oracles.consistency import CountsEqualItems
from fairlead.simulation.run import run
from fairlead.zones.queue import queue_zone, stored_item
from fairlead.zones.queue.index_scan import read_first_of_each_priority
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.top_level.part_writes import add_to_count
from tests.simulation.test_clients import WithoutConflicts
from tests.zones.test_zone_model import QueueZoneMachine

SMALL: dict[str, Any] = {"items": 20, "trouble_us": 500_000, "faults": ()}
CLIENT_SEEDS = 40

Patch = pytest.MonkeyPatch


def first_found_by_clients() -> str | None:
    """Return the promise that the first failing seed of the clients' histories breaks; None if no seed fails."""
    found = (violation.oracle for seed in range(CLIENT_SEEDS) for violation in check_clients(seed).violations)
    return next(found, None)


def test_histories_miss_a_stored_number_that_no_operation_answers(monkeypatch: Patch) -> None:
    """The depth of a shard's part is for operators: no client of a queue zone reads it."""

    def of_the_zone_only(tr: Any, location: Any, kind: str, change: int, parts: Any = None) -> None:
        add_to_count(tr, location.keys.count(kind), change)

    monkeypatch.setattr(stored_item, "change_count", of_the_zone_only)
    assert first_found_by_clients() is None
    assert [violation.oracle for violation in run(0, **SMALL).violations] == [CountsEqualItems.promise]


def test_oracles_miss_a_wrong_answer_that_changes_nothing(monkeypatch: Patch) -> None:
    def of_one_priority(tr: Any, keys: Any) -> Any:
        return (yield from read_first_of_each_priority(tr, keys))[:1]

    monkeypatch.setattr(queue_zone, "read_first_of_each_priority", of_one_priority)
    assert first_found_by_clients() == PROMISE
    assert not run(0, **SMALL).violations


def test_one_client_at_a_time_misses_a_conflict_that_is_not_declared(monkeypatch: Patch) -> None:
    """The stateful test has one client, so no other commit lies between its reads and its commit."""
    whole = QueueZone.complete_op
    monkeypatch.setattr(
        QueueZone, "complete_op", lambda self, tr, *a, **how: whole(self, WithoutConflicts(tr), *a, **how)
    )
    run_state_machine_as_test(QueueZoneMachine, settings=settings(max_examples=5, stateful_step_count=20))
    assert first_found_by_clients() == PROMISE
