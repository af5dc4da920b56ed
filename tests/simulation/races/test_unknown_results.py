"""Enqueues, plain writes, dequeues and leases whose commits have unknown results, and other commits before the retry.

After 1021 a commit was applied, was not applied, or may still be applied; 1031 only says that it took too long. A retry
first checks for traces of the first attempt: an enqueue for its receipt, a dequeue for items under its lease. A commit
that arrives after its retry is refused.
"""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from fairlead.actors.dispatch import pointer_batches
from fairlead.actors.execution import acknowledgement
from fairlead.actors.execution.job import Job
from fairlead.actors.handlers import handler_of
from fairlead.handle import EnqueuedHandle
from fairlead.zones.engines.api.errors import COMMIT_UNKNOWN_RESULT, NOT_COMMITTED, TRANSACTION_TIMED_OUT, StoreError
from fairlead.zones.probes import probes_into
from fairlead.zones.queue.items import EnqueueStatus
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.top_level.process_pointers import lease
from tests.simulation.races.director import Role, SentCommit
from tests.simulation.races.missing_guards import (
    TENANTS,
    Patch,
    check_for_nothing_applied,
    leave_no_receipts,
    planted,
    read_by_snapshot,
)
from tests.simulation.races.scene import ManagerRole, Scene, held, paid
from tests.simulation.stage import SECOND


@pytest.fixture
def met() -> Iterator[Counter[str]]:
    """Count the probes that the story reaches."""
    counter: Counter[str] = Counter()
    with probes_into(counter):
        yield counter


def run_and_complete(scene: Scene) -> None:
    """Let a worker do all vested items."""
    done = [held(scene.shard, item) for item in scene.leased()]
    assert done
    scene.play(lambda: acknowledgement.settle(scene.shard, done, []))
    assert scene.zone.items == {}


# --- Enqueue ---


def enqueued_and_completed_before_the_retry(scene: Scene) -> None:
    enqueuer = scene.user("enqueuer", lambda alice: alice.enqueue("mail"))
    commit = enqueuer.runs_until_commit()
    commit.arrives()
    run_and_complete(scene)
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)
    assert enqueuer.runs().status is EnqueueStatus.ENQUEUED


def test_an_item_that_completed_before_its_enqueue_is_retried_is_not_enqueued_again(met: Counter[str]) -> None:
    scene = Scene()
    enqueued_and_completed_before_the_retry(scene)
    assert met["a transaction of unknown result looks for its receipt"] == 1
    assert scene.zone.items == {}
    scene.check_stored()


def test_without_a_receipt_an_item_that_completed_is_enqueued_again(monkeypatch: Patch) -> None:
    leave_no_receipts(monkeypatch)
    scene = Scene()
    enqueued_and_completed_before_the_retry(scene)
    assert len(scene.zone.items) == 1


def applied_after_the_check(scene: Scene) -> Role[EnqueuedHandle]:
    """The first attempt is applied after the second has found no receipt; its item runs before the second commit."""
    enqueuer = scene.user("enqueuer", lambda alice: alice.enqueue("mail"))
    commit = enqueuer.runs_until_commit()
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)
    enqueuer.runs_until_commit()
    commit.arrives()
    run_and_complete(scene)
    enqueuer.runs()
    return enqueuer


def test_an_enqueue_that_is_applied_after_the_check_for_it_happens_once(met: Counter[str]) -> None:
    scene = Scene()
    assert applied_after_the_check(scene).refused == [NOT_COMMITTED]
    assert met["a transaction of unknown result is found applied by its own retry"] == 1
    assert scene.zone.items == {}
    scene.check_stored()


def test_without_the_check_in_each_retry_an_enqueue_that_is_applied_late_happens_twice() -> None:
    scene = Scene()
    with planted("a transaction is retried without a check whether it was applied meanwhile"):
        applied_after_the_check(scene)
    assert len(scene.zone.items) == 1


def test_without_a_receipt_an_enqueue_that_is_applied_late_happens_twice(monkeypatch: Patch) -> None:
    leave_no_receipts(monkeypatch)
    scene = Scene()
    applied_after_the_check(scene)
    assert len(scene.zone.items) == 1


@pytest.mark.parametrize("code", [None, COMMIT_UNKNOWN_RESULT])
def test_a_transaction_that_is_applied_late_returns_the_result_of_the_applied_attempt(
    code: int | None,
) -> None:
    """Before, the caller got a time that is stored nowhere."""
    scene = Scene()

    def remind(tr: TenantTransaction) -> bytes:
        due = str(tr.now_us).encode()
        tr.set(("due",), due)
        tr.enqueue("mail")
        return due

    user = scene.user("user", lambda alice: alice.transact(remind))
    first = user.runs_until_commit()
    first.answer_arrives(COMMIT_UNKNOWN_RESULT)
    second = user.runs_until_commit()
    first.arrives()
    second.arrives()
    second.answer_arrives(code)
    assert user.runs() == scene.has(lambda alice: alice.transact(lambda tr: tr.get(("due",))))


def test_a_transaction_that_is_applied_late_is_not_repeated_although_its_retry_would_not_enqueue() -> None:
    """Before, only the last attempt decided whether to check for a receipt: the mail was both sent and given up."""
    scene = Scene()
    tries = iter(range(10))

    def send_or_give_up(tr: TenantTransaction) -> None:
        if next(tries) == 0:
            tr.enqueue("mail")
        else:
            tr.set(("given up",), b"")

    user = scene.user("user", lambda alice: alice.transact(send_or_give_up))
    commit = user.runs_until_commit()
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)
    user.runs_until_commit()
    commit.arrives()
    user.runs()
    assert len(scene.zone.items) == 1
    assert scene.has(lambda alice: alice.transact(lambda tr: tr.get(("given up",)))) is None


def paid_with_unknown_result(scene: Scene, *, applied: bool) -> int:
    """An application pays once, in a transaction that only writes. Return the number of payments."""
    user = scene.user("user", lambda alice: alice.transact(lambda tr: tr.add(("paid",), 1)))
    commit = user.runs_until_commit()
    if applied:
        commit.arrives()
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)
    user.runs()
    return paid(scene)


@pytest.mark.parametrize("applied", [True, False])
def test_a_transaction_that_only_writes_is_applied_once(applied: bool) -> None:
    """Before, this was true only for a transaction that enqueued. Others paid twice."""
    assert paid_with_unknown_result(Scene(), applied=applied) == 1


def test_without_a_receipt_a_transaction_that_only_writes_is_applied_twice(monkeypatch: Patch) -> None:
    leave_no_receipts(monkeypatch)
    assert paid_with_unknown_result(Scene(), applied=True) == 2


def test_one_that_only_writes_and_leaves_no_receipt_is_applied_twice() -> None:
    with planted("a transaction that only writes leaves no receipt"):
        assert paid_with_unknown_result(Scene(), applied=True) == 2


def test_a_transaction_that_is_applied_late_is_not_repeated_although_its_retry_would_write_nothing() -> None:
    scene = Scene()
    tries = iter(range(10))

    def pay_or_look(tr: TenantTransaction) -> str:
        if next(tries) == 0:
            tr.add(("paid",), 1)
            return "paid"
        return "looked"

    user = scene.user("user", lambda alice: alice.transact(pay_or_look))
    commit = user.runs_until_commit()
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)
    user.runs_until_commit()
    commit.arrives()
    assert user.runs() == "paid"
    assert paid(scene) == 1


def noted_with_unknown_result(scene: Scene) -> int:
    """A handler writes in a transaction that does not complete its item. Return the number of writes."""

    def note(job: Job) -> None:
        job.transact(lambda tr: tr.add(("paid",), 1))

    scene.has(lambda alice: alice.enqueue("note"))
    worker = scene.worker([handler_of("note", note)], scene.leased(kinds=["note"]))
    commit = worker.runs_until_commit(of="slot")
    commit.arrives()
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)
    worker.runs_until_idle()
    assert worker.counts == {"completed": 1}
    return paid(scene)


def test_a_handlers_writes_without_a_completion_are_applied_once() -> None:
    assert noted_with_unknown_result(Scene()) == 1


def test_without_a_receipt_a_handlers_writes_without_a_completion_are_applied_twice(
    monkeypatch: Patch,
) -> None:
    leave_no_receipts(monkeypatch)
    assert noted_with_unknown_result(Scene()) == 2


@pytest.mark.parametrize("enqueues_again", [True, False])
def test_a_transaction_that_arrives_after_its_retry_is_refused_although_its_item_was_present(
    enqueues_again: bool,
) -> None:
    """Before, neither attempt read a key that the other wrote, because the id was taken: the money was paid twice."""
    scene = Scene()
    scene.has(lambda alice: alice.enqueue("mail", item_id="order 7"))
    tries = iter(range(10))

    def pay(tr: TenantTransaction) -> None:
        tr.add(("paid",), 1)
        if next(tries) == 0 or enqueues_again:
            tr.enqueue("mail", item_id="order 7")

    user = scene.user("user", lambda alice: alice.transact(pay))
    first = user.runs_until_commit()
    first.answer_arrives(COMMIT_UNKNOWN_RESULT)
    user.runs()
    first.arrives()
    assert first.refusal == NOT_COMMITTED
    assert scene.has(lambda alice: alice.transact(lambda tr: tr.get(("paid",)))) == (1).to_bytes(8, "little")


def enqueued_by_id_and_again(scene: Scene) -> SentCommit:
    """The enqueue raises an error because it took too long, and the application enqueues the same id again."""
    scene.has(lambda alice: alice.enqueue("mail"))  # The pointer exists, so only the id can refuse the late commit.
    enqueuer = scene.user("enqueuer", lambda alice: alice.enqueue("mail", item_id="order 7"))
    commit = enqueuer.runs_until_commit()
    commit.answer_arrives(TRANSACTION_TIMED_OUT)
    with pytest.raises(StoreError) as raised:
        enqueuer.runs()
    assert raised.value.code == TRANSACTION_TIMED_OUT
    assert scene.has(lambda alice: alice.enqueue("mail", item_id="order 7")).status is EnqueueStatus.ENQUEUED
    commit.arrives()
    return commit


def test_an_enqueue_by_id_that_arrives_after_its_retry_is_refused() -> None:
    scene = Scene()
    assert enqueued_by_id_and_again(scene).refusal == NOT_COMMITTED
    scene.check_stored()


def test_without_the_conflict_on_its_key_an_item_whose_enqueue_arrives_late_is_counted_twice(
    monkeypatch: Patch,
) -> None:
    read_by_snapshot(monkeypatch, TENANTS)
    scene = Scene()
    assert enqueued_by_id_and_again(scene).refusal is None
    assert (scene.count, len(scene.zone.items)) == (3, 2)


# --- Dequeue ---


def dequeued_with_unknown_result(scene: Scene, *, applied: bool) -> ManagerRole:
    scene.has(lambda alice: alice.enqueue("mail"))
    role = scene.manager()
    commit = role.runs_until_commit()
    if applied:
        commit.arrives()
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)
    role.runs()
    return role


def test_items_with_the_lease_id_of_an_unknown_dequeue_are_handed_over(met: Counter[str]) -> None:
    scene = Scene()
    (ref,) = dequeued_with_unknown_result(scene, applied=True).handed
    assert scene.zone.items[ref.item_id].lease_id == ref.lease_id
    assert met["a dequeue of unknown result is found applied"] == 1


def test_items_of_a_lost_dequeue_are_leased_by_the_next_manager() -> None:
    scene = Scene()
    assert dequeued_with_unknown_result(scene, applied=False).handed == []
    next_manager = scene.manager("next manager")
    next_manager.runs()
    assert len(next_manager.handed) == 1
    assert scene.zone.items[next_manager.handed[0].item_id].expiry_count == 0


def test_without_a_check_of_the_leases_the_items_of_an_unknown_dequeue_wait_for_lease_expiry(
    monkeypatch: Patch,
) -> None:
    check_for_nothing_applied(monkeypatch)
    scene = Scene()
    assert dequeued_with_unknown_result(scene, applied=True).handed == []
    (record,) = scene.zone.items.values()
    assert record.vesting_us > scene.now_us + SECOND, "the item cannot run before that"


def pointer_leased_with_unknown_result(scene: Scene) -> ManagerRole:
    """The first transaction conflicts, so the manager leases the pointer. The result of that commit is unknown."""
    scene.has(lambda alice: alice.enqueue("mail"))
    role = scene.manager()
    role.runs_until_commit()
    scene.has(lambda alice: alice.enqueue("mail", priority=0))
    commit = role.runs_until_commit()
    commit.arrives()
    assert scene.zone.pointer is not None
    assert scene.zone.pointer.lease_id
    commit.answer_arrives(COMMIT_UNKNOWN_RESULT)
    role.runs()
    return role


def test_a_pointer_with_the_lease_id_of_an_unknown_commit_is_processed() -> None:
    scene = Scene()
    assert len(pointer_leased_with_unknown_result(scene).handed) == 2
    scene.check_stored()


def test_without_the_same_lease_id_in_every_attempt_a_manager_finds_the_pointer_leased_by_another(
    monkeypatch: Patch,
) -> None:
    fresh = Random(1)

    def leased_anew(*args: Any, lease_id: bytes, **how: Any) -> bool:
        return lease(*args, lease_id=fresh.randbytes(16), **how)

    monkeypatch.setattr(pointer_batches, "lease", leased_anew)
    assert pointer_leased_with_unknown_result(Scene()).handed == []
