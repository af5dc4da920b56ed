"""Completions, payments, returns, cancels and discards whose commit has an unknown result.

After 1021 the commit was applied or was not; after 1031 it may arrive later than its retry. An item that is gone under
the holder's own lease was completed by the holder. An item with a chosen id may be gone, and enqueued again. A commit
that arrives late is refused.
"""

from contextlib import suppress
from typing import Any

import pytest

from fairlead import tenant_database
from fairlead.actors.execution import acknowledgement
from fairlead.actors.execution.job import Job
from fairlead.actors.execution.retry_decision import RetryDecision
from fairlead.actors.handlers import handler_of
from fairlead.zones.engines.api.errors import (
    COMMIT_UNKNOWN_RESULT,
    NOT_COMMITTED,
    TRANSACTION_TIMED_OUT,
    TRANSACTION_TOO_OLD,
)
from fairlead.zones.errors import LeaseLost
from fairlead.zones.layout import item_id_of
from fairlead.zones.queue.items import EnqueueStatus
from fairlead.zones.queue.lease_check import check_lease
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.workflow import cancellation
from tests.simulation.races.director import Role, SentCommit
from tests.simulation.races.missing_guards import TENANTS, Patch, leave_no_receipts, read_by_snapshot
from tests.simulation.races.scene import MAIL, Scene, WorkerRole, held, paid
from tests.simulation.stage import ALICE, SECOND

WINDOW_US = 5 * SECOND  # of a transaction


# --- Completion and return ---


def returned_with_unknown_result(scene: Scene) -> bool:
    """Another manager leases the item before the return is retried. Return whether the manager's lease is in force."""
    scene.has(lambda alice: alice.enqueue("mail"))
    (item,) = scene.leased()
    zone, lease_id = scene.shard.zone(ALICE), item.record.lease_id
    holder = scene.role(
        "holder",
        lambda shard: shard.transact(
            lambda attempt: zone.requeue(attempt.tr, item.id, lease_id, delay_us=0, now_us=attempt.now_us)
        ),
    )
    commit = holder.runs_until_commit()
    commit.arrives()
    another = scene.manager()
    another.runs()
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)
    with suppress(LeaseLost):
        holder.runs()
    (ref,) = another.handed
    return scene.zone.items[item.id].lease_id == ref.lease_id


def test_an_item_that_was_returned_and_leased_by_another_is_not_returned_again() -> None:
    assert returned_with_unknown_result(Scene())


def test_without_the_comparison_of_leases_a_return_is_applied_twice(monkeypatch: Patch) -> None:
    held_by = check_lease
    monkeypatch.setattr("fairlead.zones.queue.lease_check.check_lease", lambda value, lease_id: held_by(value, None))
    assert not returned_with_unknown_result(Scene())


def completed_with_unknown_result(scene: Scene) -> WorkerRole:
    scene.has(lambda alice: alice.enqueue("mail"))
    worker = scene.worker([MAIL], scene.leased())
    commit = worker.runs_until_commit(of="completer")
    commit.arrives()
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)
    worker.runs_until_idle()
    return worker


def test_an_item_that_is_gone_after_an_unknown_completion_is_completed() -> None:
    scene = Scene()
    worker = completed_with_unknown_result(scene)
    assert (worker.counts, scene.count) == ({"completed": 1}, 0)
    scene.check_stored()


def test_without_counting_a_missing_item_as_its_own_completion_a_worker_counts_it_as_lost(monkeypatch: Patch) -> None:
    settle_once = acknowledgement._settle_once

    def doubting(*args: Any, gone_is_completed: bool) -> acknowledgement.Settlement:
        return settle_once(*args, gone_is_completed=False)

    monkeypatch.setattr(acknowledgement, "_settle_once", doubting)
    assert completed_with_unknown_result(Scene()).counts == {"lost": 1}


def paid_with_unknown_result(scene: Scene) -> tuple[int, int]:
    """Return how often the handler began, and the number of payments."""
    attempts = 0

    def pay(job: Job, tr: TenantTransaction) -> None:
        nonlocal attempts
        attempts += 1
        tr.add(("paid",), 1)

    scene.has(lambda alice: alice.enqueue("pay"))
    worker = scene.worker([handler_of("pay", pay, transactional=True)], scene.leased(kinds=["pay"]))
    commit = worker.runs_until_commit(of="slot")
    commit.arrives()
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)
    worker.runs_until_idle()
    return attempts, paid(scene)


def test_the_receipt_shows_that_a_commit_of_unknown_result_was_applied() -> None:
    assert paid_with_unknown_result(Scene()) == (1, 1)


def test_without_a_receipt_a_handler_runs_again_in_vain(monkeypatch: Patch) -> None:
    """The effects still happen once: the second attempt finds no item to complete."""
    leave_no_receipts(monkeypatch)
    assert paid_with_unknown_result(Scene()) == (2, 1)


def cancelled_before_the_retry(scene: Scene) -> tuple[WorkerRole, list[str]]:
    """The transaction in which a handler completes its item is lost with its answer; then the item is cancelled."""
    paid: list[str] = []

    def pay(job: Job) -> None:
        def apply(tr: TenantTransaction) -> None:
            tr.add(("paid",), 1)
            job.complete_in(tr)

        job.transact(apply)
        paid.append("acknowledged")

    item_id = scene.has(lambda alice: alice.enqueue("pay")).item_id
    worker = scene.worker([handler_of("pay", pay)], scene.leased(kinds=["pay"]))
    commit = worker.runs_until_commit(of="slot")
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)
    scene.has(lambda alice: alice.cancel(item_id))
    worker.runs_until_idle()
    return worker, paid


def test_a_lost_payment_is_not_acknowledged_because_its_item_was_cancelled_meanwhile() -> None:
    """Before, a missing item counted as a proof of the commit that would have completed it."""
    scene = Scene()
    worker, acknowledged = cancelled_before_the_retry(scene)
    assert (worker.counts, acknowledged) == ({"lost": 1}, [])
    assert scene.has(lambda alice: alice.transact(lambda tr: tr.get(("paid",)))) is None


def completed_again_before_it_arrives(scene: Scene, after_us: int) -> SentCommit:
    """The worker's commit took too long, and the worker retries while its lease is in force."""
    scene.has(lambda alice: alice.enqueue("mail"))
    worker = scene.worker([MAIL], scene.leased())
    commit = worker.runs_until_commit(of="completer")
    commit.answer_arrives(TRANSACTION_TIMED_OUT)
    worker.runs_until_idle()
    assert (worker.counts, scene.zone.items) == ({"completed": 1}, {})
    scene.pass_us(after_us)
    scene.plant(b"the log of commits", b"is pruned")
    commit.arrives()
    return commit


@pytest.mark.parametrize("after_us, code", [(0, NOT_COMMITTED), (2 * WINDOW_US, TRANSACTION_TOO_OLD)])
def test_a_completion_that_arrives_after_its_retry_is_refused(after_us: int, code: int) -> None:
    scene = Scene()
    assert completed_again_before_it_arrives(scene, after_us).refusal == code
    scene.check_stored()


def test_without_the_conflict_on_its_record_a_completion_that_arrives_late_is_counted_twice(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, TENANTS)
    scene = Scene()
    assert completed_again_before_it_arrives(scene, 0).refusal is None
    assert scene.count == -1


# --- Cancel and discard ---


def cancelled_and_enqueued_again(scene: Scene) -> Role[Any]:
    """Another item gets the id of the cancelled item before the cancel is retried."""
    scene.has(lambda alice: alice.enqueue("mail", item_id="order 7"))
    canceller = scene.user("canceller", lambda alice: alice.cancel("order 7"))
    commit = canceller.runs_until_commit()
    commit.arrives()
    assert scene.has(lambda alice: alice.enqueue("mail", item_id="order 7")).status is EnqueueStatus.ENQUEUED
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)
    canceller.runs()
    return canceller


def test_a_cancel_of_unknown_result_does_not_cancel_a_later_item_of_the_same_id() -> None:
    scene = Scene()
    cancelled_and_enqueued_again(scene)
    assert item_id_of("order 7") in scene.zone.items


def test_without_the_comparison_of_items_a_cancel_of_unknown_result_cancels_two(monkeypatch: Patch) -> None:
    monkeypatch.setattr(cancellation, "_identity_of", lambda found: None)
    scene = Scene()
    cancelled_and_enqueued_again(scene)
    assert scene.zone.items == {}


def discarded_and_dead_lettered_again(scene: Scene) -> None:
    """The same with a dead letter: another item of its id has become a dead letter meanwhile."""
    enqueue_and_dead_letter(scene)
    operator = scene.user("operator", lambda alice: alice.discard_dead_letter("order 7"))
    commit = operator.runs_until_commit()
    commit.arrives()
    enqueue_and_dead_letter(scene)
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)
    operator.runs()


def enqueue_and_dead_letter(scene: Scene) -> None:
    scene.has(lambda alice: alice.enqueue("mail", item_id="order 7"))
    never = [RetryDecision(held(scene.shard, item), None, "never", "") for item in scene.leased()]
    scene.play(lambda: acknowledgement.settle(scene.shard, [], never))


def test_a_discard_of_unknown_result_does_not_discard_a_later_dead_letter_of_the_same_id() -> None:
    scene = Scene()
    discarded_and_dead_lettered_again(scene)
    assert item_id_of("order 7") in scene.zone.dead_lettered


def test_without_the_comparison_of_dead_letters_a_discard_of_unknown_result_discards_two(monkeypatch: Patch) -> None:
    monkeypatch.setattr(tenant_database, "_is_same_dead_letter", lambda one, other: other is not None)
    scene = Scene()
    discarded_and_dead_lettered_again(scene)
    assert scene.zone.dead_lettered == {}
