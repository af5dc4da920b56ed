"""Every oracle finds the bug it is there for: planted in the product, in memory, one at a time."""

from collections.abc import Sequence
from typing import Any

import pytest

from actors.settings import ConsumerSettings
from simulation.database import LatentTransaction, SimulatedDatabase
from simulation.run import run
from simulation.world import Violation
from zones import pointers, stored_item
from zones.items import Outcome
from zones.keyspace import PartKeys
from zones.queue_zone import QueueZone
from zones.vesting import read_vested

SEEDS = 25
TROUBLE = ("unknown results", "pauses", "late calls")
SHORT_LEASES = ConsumerSettings(lease_ms=500, slots=4)
CROWDED: dict[str, Any] = {"tenants": 2, "items": 100, "trouble_us": 2_000_000}

Patch = pytest.MonkeyPatch


def first_violation(seeds: Sequence[int] = range(SEEDS), **chosen: Any) -> Violation:
    """Run seed after seed until an oracle speaks."""
    for seed in seeds:
        report = run(seed, **chosen)
        if report.violations:
            return report.violations[0]
    raise AssertionError(f"no oracle found the planted bug in {len(seeds)} seeds")


def test_a_pointer_that_is_not_woken_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(pointers, "wake", lambda *_, **__: None)
    assert first_violation().oracle == "a zone with work has a pointer that vests in time"


def test_a_sleep_that_a_concurrent_enqueue_cannot_see_is_found(monkeypatch: Patch) -> None:
    """The write conflict that "sleep" declares on the pointer index is what an enqueue of another priority meets."""
    monkeypatch.setattr(LatentTransaction, "add_write_conflict_key", lambda self, key: None)
    assert first_violation(**CROWDED).oracle == "a zone with work has a pointer that vests in time"


def test_a_completion_without_the_lease_check_is_found(monkeypatch: Patch) -> None:
    checked = QueueZone.complete_steps

    def unchecked(self: QueueZone, tr: Any, held: Any, **how: Any) -> Any:
        return checked(self, tr, [(item_id, None) for item_id, _ in held], **how)

    monkeypatch.setattr(QueueZone, "complete_steps", unchecked)
    found = first_violation(faults=TROUBLE, consumer=SHORT_LEASES)
    assert found.oracle in ("no item is held by two live leases", "every enqueued item runs or is cancelled")


def test_a_lease_that_is_never_extended_is_found(monkeypatch: Patch) -> None:
    def not_extended(self: QueueZone, tr: Any, held: Any, **how: Any) -> Any:
        yield
        return [Outcome.DONE] * len(held)

    monkeypatch.setattr(QueueZone, "extend_steps", not_extended)
    found = first_violation(faults=(), consumer=SHORT_LEASES, skew_us_max=0)
    assert found.oracle == "without a fault that explains it, no lease runs out"


def test_a_dequeue_that_takes_over_leases_before_they_end_is_found(monkeypatch: Patch) -> None:
    """As a clock would that runs two seconds ahead and does not notice."""

    def early(tr: Any, keys: Any, *, now_us: int, **how: Any) -> Any:
        return read_vested(tr, keys, now_us=now_us + 2_000_000, **how)

    monkeypatch.setattr("zones.dequeue.read_vested", early)
    assert first_violation(faults=()).oracle == "no item is held by two live leases"


def test_an_index_entry_that_is_left_behind_is_found(monkeypatch: Patch) -> None:
    def remove(tr: Any, place: Any, item_id: bytes, record: Any, *, keep_payload: bool = False) -> None:
        tr.clear(place.keys.item(item_id))

    monkeypatch.setattr(stored_item, "remove", remove)
    assert first_violation().oracle == "the index names every record exactly once"


def test_a_count_that_is_changed_twice_is_found(monkeypatch: Patch) -> None:
    once = stored_item.change_count

    def twice(tr: Any, place: Any, kind: str, change: int) -> None:
        once(tr, place, kind, change)
        once(tr, place, kind, change)

    monkeypatch.setattr(stored_item, "change_count", twice)
    assert first_violation().oracle == "the counts equal the items"


def test_an_enqueue_that_is_repeated_after_an_unknown_result_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(SimulatedDatabase, "results_can_be_unknown", False)
    found = first_violation(faults=("unknown results",))
    assert found.oracle in (
        "an item that was enqueued once does not come again",
        "a transaction that enqueues happens once, and what was acknowledged is there",
    )


def test_an_effect_that_commits_without_its_completion_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(QueueZone, "complete", lambda self, *_, **__: None)
    assert first_violation(faults=()).oracle == "transactional effects happen exactly once"


def test_a_pointer_that_stays_behind_an_empty_zone_is_found(monkeypatch: Patch) -> None:
    def move(tr: Any, place: Any, pointer: Any) -> None:
        pointers.move(tr, place.part, place.pointer_id, pointer, pointer.vesting_us + 60_000_000)

    monkeypatch.setattr(pointers, "delete", move)
    assert first_violation(faults=()).oracle == "nothing is left behind"


def test_a_shard_that_nobody_scans_is_found(monkeypatch: Patch) -> None:
    def scan(tr: Any, part: PartKeys, **_: Any) -> Any:
        yield
        return [], None

    monkeypatch.setattr("actors.selection.scan", scan)
    found = first_violation(faults=(), items=20, drain_us_max=5_000_000)
    assert found.oracle == "everything drains after the faults"


def test_an_actor_that_asks_a_dead_one_again_at_once_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr("actors.scanner.DEAD_WAIT_US", 0)
    found = first_violation(faults=("kills", "node kills"), call_us=100)
    assert found.oracle == "no actor calls another again and again"


def test_an_error_that_the_product_only_logs_is_found(monkeypatch: Patch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise TypeError("planted")

    monkeypatch.setattr("actors.manager.visit_steps", broken)
    assert first_violation(faults=()).oracle == "no call fails by a bug"
