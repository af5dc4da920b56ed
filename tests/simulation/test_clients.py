"""The answers to clients of a queue zone have an order; with a planted bug they have none."""

from collections import Counter
from dataclasses import replace
from enum import Enum
from typing import Any

import pytest

from fairlead.simulation.campaign import run_seed
from fairlead.simulation.linearizability import client
from fairlead.simulation.linearizability.clients import PROMISE, Clients, check_clients
from fairlead.simulation.linearizability.history import Operation
from fairlead.zones.queue import dequeue, insertion, queue_zone, stored_item
from fairlead.zones.queue.dequeue import plan_op
from fairlead.zones.queue.dequeue_plan import DequeuePlan, Entries, UnfinishedPlan, plan
from fairlead.zones.queue.index_scan import read_first_of_each_priority
from fairlead.zones.queue.items import EnqueueStatus
from fairlead.zones.queue.queue_zone import QueueZone
from tests.simulation.races.missing_guards import leave_no_receipts

SEEDS = 200

Patch = pytest.MonkeyPatch


def seed_that_finds_the_bug() -> int:
    """Return the first seed whose history has no order."""
    for seed in range(SEEDS):
        for violation in check_clients(seed).violations:
            assert violation.oracle == PROMISE, violation
            return seed
    raise AssertionError(f"the planted bug left each of {SEEDS} histories an order")


def without_leases(name: str, monkeypatch: Patch) -> None:
    """Let an operation ignore its lease id."""
    checked = getattr(QueueZone, name)

    def unchecked(self: QueueZone, tr: Any, held: Any, **how: Any) -> Any:
        return checked(self, tr, [(item_id, None) for item_id, _ in held], **how)

    monkeypatch.setattr(QueueZone, name, unchecked)


class WithoutConflicts:
    """A transaction in which all reads are by snapshot."""

    def __init__(self, tr: Any) -> None:
        self._tr = tr

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tr.snapshot if name in ("get", "get_range") else self._tr, name)


def test_the_same_seed_gives_the_same_history() -> None:
    assert check_clients(5).events == check_clients(5).events


def outcome(operation: Operation) -> str:
    """Return the names of an operation and its answer, without numbers."""
    answer = operation.answer
    name = str(answer.value) if isinstance(answer, Enum) else type(answer).__name__ if answer else "nothing"
    return f"{type(operation.call).__name__}: {name}"


def test_clients_get_every_answer_that_a_zone_can_give() -> None:
    """A world with few events would prove little."""
    seen: Counter[str] = Counter()
    may_have_happened = 0
    for seed in range(120):
        clients = Clients(seed)
        clients.run()
        history = clients.recorder.history()
        seen.update(map(outcome, history))
        may_have_happened += sum(not operation.happened for operation in history)
    held = {
        f"{operation}: {answer}"
        for operation in ("Complete", "ExtendLease", "Requeue", "MoveToDeadLetters")
        for answer in ("done", "lease lost", "gone")
    }
    named = {f"Enqueue: {status.value}" for status in EnqueueStatus}
    others = {
        "PlanDequeue: tuple", "PlanDequeue: nothing", "CommitDequeue: done", "InOneTransaction: tuple",
        "ObtainLease: Item", "ObtainLease: NotVested", "ObtainLease: gone", "RetryDeadLetter: done",
        "RetryDeadLetter: no dead letter", "IsGone: bool", "IsGone: nothing",
        "IsEmpty: bool", "IsEmpty: nothing", "Count: dict", "Count: nothing", "MinVesting: int", "MinVesting: nothing",
        "Peek: tuple", "Peek: nothing",
    }  # fmt: skip
    assert set(seen) == held | named | others
    assert may_have_happened > 100


# --- Planted bugs ---


def test_an_enqueue_that_does_not_check_its_id_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(insertion, "status_of_id", lambda *_: EnqueueStatus.ENQUEUED)
    seed_that_finds_the_bug()


def test_an_enqueue_that_checks_its_id_by_snapshot_is_found(monkeypatch: Patch) -> None:
    operation = QueueZone.enqueue_op
    monkeypatch.setattr(
        QueueZone, "enqueue_op", lambda self, tr, *a, **how: operation(self, WithoutConflicts(tr), *a, **how)
    )
    seed_that_finds_the_bug()


def test_a_completion_under_a_lost_lease_is_found(monkeypatch: Patch) -> None:
    without_leases("complete_op", monkeypatch)
    seed_that_finds_the_bug()


def test_a_completion_that_reads_its_item_by_snapshot_is_found(monkeypatch: Patch) -> None:
    operation = QueueZone.complete_op
    monkeypatch.setattr(
        QueueZone, "complete_op", lambda self, tr, *a, **how: operation(self, WithoutConflicts(tr), *a, **how)
    )
    seed_that_finds_the_bug()


def test_a_requeue_under_a_lost_lease_is_found(monkeypatch: Patch) -> None:
    operation = QueueZone.requeue_op
    monkeypatch.setattr(
        QueueZone, "requeue_op", lambda self, tr, item_id, _, **how: operation(self, tr, item_id, None, **how)
    )
    seed_that_finds_the_bug()


def test_an_extension_of_a_lost_lease_is_found(monkeypatch: Patch) -> None:
    without_leases("extend_op", monkeypatch)
    seed_that_finds_the_bug()


def test_a_count_that_is_changed_twice_is_found(monkeypatch: Patch) -> None:
    once = stored_item.change_count

    def twice(*change: Any) -> None:
        once(*change)
        once(*change)

    monkeypatch.setattr(stored_item, "change_count", twice)
    seed_that_finds_the_bug()


def test_a_dequeue_that_reads_its_items_by_snapshot_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(queue_zone, "plan_op", lambda tr, *a, **how: plan_op(WithoutConflicts(tr), *a, **how))
    seed_that_finds_the_bug()


def test_a_dequeue_that_skips_an_item_is_found(monkeypatch: Patch) -> None:
    def passing_over_one(entries: Entries, *args: Any, **how: Any) -> DequeuePlan | UnfinishedPlan:
        return plan(replace(entries, vested=entries.vested[1:]), *args, **how)

    monkeypatch.setattr(dequeue, "plan", passing_over_one)
    seed_that_finds_the_bug()


def test_a_cancellation_that_reports_its_own_deletion_as_gone_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(client, "is_gone", lambda *_: False)
    seed_that_finds_the_bug()


def test_an_enqueue_that_is_repeated_without_a_receipt_is_found(monkeypatch: Patch) -> None:
    leave_no_receipts(monkeypatch)
    seed_that_finds_the_bug()


def test_an_id_that_is_not_retained_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(queue_zone, "retain_id", lambda *_: None)
    seed_that_finds_the_bug()


def test_a_min_vesting_of_the_first_priority_only_is_found(monkeypatch: Patch) -> None:
    def of_one(tr: Any, keys: Any) -> Any:
        return (yield from read_first_of_each_priority(tr, keys))[:1]

    monkeypatch.setattr(queue_zone, "read_first_of_each_priority", of_one)
    seed_that_finds_the_bug()


def test_a_campaign_reports_a_history_without_an_order(monkeypatch: Patch) -> None:
    monkeypatch.setattr(queue_zone, "retain_id", lambda *_: None)
    seed = seed_that_finds_the_bug()
    monkeypatch.setattr(
        "fairlead.simulation.campaign.WORLDS", (check_clients,)
    )  # The oracles of the shop would fail first.
    (broken,) = run_seed(seed).broken
    assert (broken.seed, broken.oracle) == (seed, PROMISE)
    assert "right would be" in broken.what
