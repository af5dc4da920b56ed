"""The job that a handler gets, and how a handler completes its item in a transaction of its own."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from fairlead import TenantTransaction
from fairlead.actors.execution.job import Job, NoStoreHere
from fairlead.actors.execution.retry import Retry
from fairlead.actors.handlers import PermanentError
from fairlead.actors.messages import ItemRef
from fairlead.zones.errors import ItemGone, LeaseLost
from fairlead.zones.queue.dead_letters import retry_dead_letter
from tests.actors.stage import ALICE, LEASE_MS, Stage
from tests.zones.faults import Fault


@pytest.fixture
def stage() -> Stage:
    return Stage()


def job_of(stage: Stage, ref: ItemRef) -> Job:
    """Return an attempt at a leased item."""
    record = stage.record(ref.item_id)
    assert record is not None
    return Job(stage.shard, ref, record, record.payload)


def leased(stage: Stage, payload: Any = None) -> tuple[Job, bytes]:
    """Return an attempt at a new item, and its id."""
    item_id = stage.enqueue("mail", payload)
    (ref,) = stage.lease(["mail"])
    return job_of(stage, ref), item_id


def test_a_job_has_what_was_enqueued(stage: Stage) -> None:
    job, item_id = leased(stage, {"to": ["bob"]})
    assert (job.id, job.tenant, job.kind, job.payload) == (item_id, ALICE, "mail", {"to": ["bob"]})
    assert (job.attempt, job.enqueued_us, job.cancelled) == (1, stage.now_us, False)


def test_errors_and_lease_expiries_count_as_attempts(stage: Stage) -> None:
    item_id = stage.enqueue("mail")
    stage.change(item_id, error_count=2, expired_count=1)
    (ref,) = stage.lease(["mail"])
    assert job_of(stage, ref).attempt == 4


def test_the_number_of_an_attempt_grows_until_an_operator_retries_its_item(stage: Stage) -> None:
    attempts: list[int] = []

    def handle(job: Job) -> None:
        attempts.append(job.attempt)
        raise ValueError if len(attempts) < 3 else PermanentError("no")

    item_id = stage.enqueue("mail")
    stage.lease(["mail"])
    stage.pass_ms(LEASE_MS)  # Its lease expires.
    worker = stage.worker([stage.handler("mail", handle, retry=Retry(backoff=1))])
    for _ in range(3):
        stage.place(worker, stage.lease(["mail"]))
        stage.settled(worker)
        stage.pass_ms(10_000)
    assert attempts == [2, 3, 4]
    (dead_letter,) = stage.dead_letters()
    place = stage.shard.zone(ALICE).location
    stage.shard.transact(
        lambda attempt: retry_dead_letter(attempt.tr, place, item_id, dead_letter.record, now_us=attempt.now_us)
    )
    stage.place(worker, stage.lease(["mail"]))
    stage.settled(worker)
    assert attempts[-1] == 1


def test_effects_and_completion_commit_together(stage: Stage) -> None:
    job, item_id = leased(stage)

    def body(tr: TenantTransaction) -> None:
        tr.set(("sent",), b"yes")
        job.complete_in(tr)

    job.transact(body)
    assert job.completed
    assert stage.record(item_id) is None
    assert job.transact(lambda tr: tr.get(("sent",))) == b"yes"


def test_a_handlers_transaction_cannot_leave_its_tenant(stage: Stage) -> None:
    """It has no `raw`, which an application's own transactions have: a bug in a handler stays within its tenant."""
    given: list[type] = []
    job, _ = leased(stage)
    job.transact(lambda tr: given.append(type(tr)))
    stage.enqueue("pay")
    worker = stage.worker([stage.handler("pay", lambda job, tr: given.append(type(tr)), transactional=True)])
    stage.place(worker, stage.lease(["pay"]))
    stage.settled(worker)
    assert given == [TenantTransaction, TenantTransaction]


def test_a_completion_that_is_not_committed_does_not_count(stage: Stage) -> None:
    job, item_id = leased(stage)

    def body(tr: TenantTransaction) -> None:
        job.complete_in(tr)
        raise KeyError("afterthought")

    with pytest.raises(KeyError):
        job.transact(body)
    assert not job.completed
    assert stage.record(item_id) is not None


def test_a_body_that_runs_twice_completes_only_if_its_last_run_does(stage: Stage) -> None:
    """The first run completes the item and conflicts; the second does not complete it."""
    job, item_id = leased(stage)
    runs: list[str] = []

    def body(tr: TenantTransaction) -> None:
        runs.append("run")
        tr.set(("sent",), b"yes")
        if len(runs) == 1:
            job.complete_in(tr)

    stage.store.faults.append(Fault(applied=False, code=1020))
    stage.do(lambda: job.transact(body))
    assert len(runs) == 2
    assert not job.may_be_completed
    assert stage.record(item_id) is not None


def test_a_completion_of_unknown_result_is_recognised(stage: Stage) -> None:
    """Before, the body ran again, found its item gone, and the handler failed although it had completed."""
    job, item_id = leased(stage)
    runs: list[str] = []

    def body(tr: TenantTransaction) -> str:
        runs.append("run")
        tr.add(("sent",), 1)
        job.complete_in(tr)
        return "done"

    stage.store.faults.append(Fault(applied=True))
    assert stage.do(lambda: job.transact(body)) == "done"
    assert (job.completed, len(runs), stage.record(item_id)) == (True, 1, None)


def test_a_job_that_has_lost_its_item_commits_nothing(stage: Stage) -> None:
    job, item_id = leased(stage)
    stage.steal(item_id)

    def body(tr: TenantTransaction) -> None:
        tr.set(("sent",), b"yes")
        job.complete_in(tr)

    with pytest.raises(LeaseLost):
        job.transact(body)
    assert job.transact(lambda tr: tr.get(("sent",))) is None


def test_an_item_is_completed_once(stage: Stage) -> None:
    job, _ = leased(stage)
    job.transact(job.complete_in)
    with pytest.raises(ItemGone):
        job.transact(job.complete_in)


def test_a_job_crosses_to_another_process_as_data(stage: Stage) -> None:
    job, item_id = leased(stage, {"to": ["bob"]})
    job.on_cancel(lambda: None)
    copy = pickle.loads(pickle.dumps(job))
    assert (copy.id, copy.tenant, copy.payload, copy.lease_id) == (item_id, ALICE, {"to": ["bob"]}, job.lease_id)
    with pytest.raises(NoStoreHere):
        copy.transact(copy.complete_in)


def test_a_job_that_is_cancelled_before_it_can_be_interrupted_is_interrupted_at_once(stage: Stage) -> None:
    """The worker's other thread may be faster than the start of a coroutine."""
    job, _ = leased(stage)
    job.cancel()
    interrupts: list[str] = []
    job.on_cancel(lambda: interrupts.append("stop"))
    assert interrupts == ["stop"]


def test_a_job_shows_its_tenant(stage: Stage) -> None:
    job, item_id = leased(stage)
    assert repr(job) == f"<Job {item_id.hex()} 'mail' of shop/alice, attempt 1>"
