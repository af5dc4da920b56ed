"""The worker, from an item's arrival to its end (QuiCK section 6, Algorithm 3)."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from fairlead import TenantTransaction
from fairlead.actors.execution import runner
from fairlead.actors.execution.job import Job
from fairlead.actors.execution.retry import Retry
from fairlead.actors.handlers import PermanentError
from fairlead.simulation.world import Task, World
from fairlead.zones.layout import Tenant
from tests.actors.stage import ALICE, BOB, MS, SECOND, Stage
from tests.zones.faults import Fault


@pytest.fixture
def stage() -> Stage:
    return Stage()


def fails(job: Job) -> None:
    raise ValueError(f"no {job.payload}")


# --- Running ---


def test_an_item_is_run_and_completed(stage: Stage) -> None:
    seen: list[Any] = []
    worker = stage.worker([stage.handler("mail", lambda job: seen.append(job.payload))])
    stage.enqueue("mail", "hello")
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker) == {"completed": 1}
    assert (seen, stage.count()) == (["hello"], {})


def test_as_many_handlers_run_at_once_as_there_are_slots(stage: Stage) -> None:
    begun: list[int] = []

    def work(job: Job) -> None:
        begun.append(stage.now_us)
        stage.sleep_ms(100)

    worker = stage.worker([stage.handler("mail", work)], slots=2)
    for _ in range(4):
        stage.enqueue("mail")
    first_us = stage.now_us
    stage.place(worker, stage.lease(["mail"]))
    stage.settled(worker)
    assert [begin_us - first_us for begin_us in begun] == [0, 0, 100 * MS, 100 * MS]


def test_handlers_that_do_not_wait_need_no_slot_woken_for_each(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """To wake a thread takes longer than such a handler does."""
    worker = stage.worker([stage.handler("mail", lambda job: None)], slots=8)
    for _ in range(40):
        stage.enqueue("mail")
    refs = stage.lease(["mail"])
    stage.pass_ms(1)  # Until all slots wait.
    woken: list[str] = []
    wake = World.wake

    def note(world: World, task: Task, delay_us: int = 0) -> None:
        woken.append(task.name)
        wake(world, task, delay_us)

    monkeypatch.setattr(World, "wake", note)
    stage.place(worker, refs)
    assert stage.settled(worker) == {"completed": 40}
    assert woken.count("slot") <= 2


def test_a_long_payload_arrives_whole(stage: Stage) -> None:
    seen: list[bytes] = []
    worker = stage.worker([stage.handler("mail", lambda job: seen.append(job.payload))])
    stage.enqueue("mail", b"x" * 300_000)
    stage.place(worker, stage.lease(["mail"]))
    stage.settled(worker)
    assert seen == [b"x" * 300_000]


def test_a_message_that_comes_twice_is_run_once(stage: Stage) -> None:
    seen: list[Any] = []
    worker = stage.worker([stage.handler("mail", lambda job: seen.append(job.payload))])
    stage.enqueue("mail", 1)
    refs = stage.lease(["mail"])
    stage.place(worker, refs * 2)
    stage.place(worker, refs)
    stage.settled(worker)
    stage.place(worker, refs)
    stage.pass_ms(100)
    assert seen == [1]


def test_items_for_another_incarnation_of_a_worker_are_not_accepted(stage: Stage) -> None:
    """The worker was restarted. The manager reclaims the items, because the incarnation that had them has ended."""
    seen: list[Any] = []
    worker = stage.worker([stage.handler("mail", lambda job: seen.append(job.payload))])
    stage.enqueue("mail", 1)
    refs = stage.lease(["mail"])
    report = stage.place(worker, refs, incarnation=b"another incarnation")
    stage.pass_ms(100)
    assert (seen, report.held) == ([], 0)
    stage.place(worker, refs, incarnation=report.incarnation)
    assert stage.settled(worker) == {"completed": 1}


def test_an_item_whose_lease_expired_on_the_way_is_not_run(stage: Stage) -> None:
    """Algorithm 3: the worker double-checks the lease."""
    seen: list[Any] = []
    worker = stage.worker([stage.handler("mail", lambda job: seen.append(job.payload))])
    stage.enqueue("mail")
    (ref,) = stage.lease(["mail"])
    stage.pass_ms(10_000)
    report = stage.place(worker, [ref])
    stage.pass_ms(100)
    assert (seen, report.held) == ([], 0)


def test_an_item_that_is_cancelled_while_it_runs_is_lost_and_not_completed(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", lambda job: stage.sleep_ms(100))])
    item_id = stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.shard.transact(lambda tr: stage.shard.zone(ALICE).complete(tr.tr, item_id, now_us=tr.now_us))
    assert stage.settled(worker) == {"lost": 1}
    assert stage.count() == {}


def test_items_of_many_tenants_are_completed_in_few_commits(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", lambda job: None)], slots=16)
    tenants = [Tenant("shop", f"user {number}") for number in range(40)]
    refs = []
    for tenant in tenants:
        stage.enqueue("mail", tenant=tenant)
        refs += stage.lease(["mail"], tenant=tenant)
    before = stage.store.commits
    stage.place(worker, refs)
    assert stage.settled(worker)["completed"] == 40
    assert stage.store.commits - before <= 5


def test_a_handler_that_returns_a_coroutine_has_not_done_its_work(stage: Stage) -> None:
    """Before, the item was completed, and nothing of it had run."""

    async def send() -> None:
        raise AssertionError("nobody runs this")

    worker = stage.worker([stage.handler("mail", lambda job: send())])
    item_id = stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker) == {"retried": 1}
    record = stage.record(item_id)
    assert record is not None
    assert record.last_error.startswith("HandlerNotRun: the handler returned work instead of doing it")


# --- Failing ---


def test_a_failed_item_vests_again_after_its_backoff(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", fails, retry=Retry(backoff=4))])
    item_id = stage.enqueue("mail", 7)
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker) == {"retried": 1}
    record = stage.record(item_id)
    assert record is not None
    assert (record.error_count, record.last_error, record.lease_id) == (1, "ValueError: no 7", b"")
    assert 2 * SECOND <= record.vesting_us - stage.now_us + 10 * MS <= 4 * SECOND + 10 * MS


def test_a_job_has_the_number_of_its_attempt(stage: Stage) -> None:
    attempts: list[int] = []

    def flaky(job: Job) -> None:
        attempts.append(job.attempt)
        if job.attempt == 1:
            raise ValueError

    worker = stage.worker([stage.handler("mail", flaky, retry=Retry(backoff=1))])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.settled(worker)
    stage.pass_ms(1_000)
    stage.place(worker, stage.lease(["mail"]))
    stage.settled(worker)
    assert (attempts, stage.count()) == ([1, 2], {})


def test_in_line_retries_run_under_the_same_lease(stage: Stage) -> None:
    attempts: list[int] = []

    def flaky(job: Job) -> None:
        attempts.append(job.attempt)
        if len(attempts) < 3:
            raise ValueError

    worker = stage.worker([stage.handler("mail", flaky, retry=Retry(in_line=2))])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker) == {"completed": 1}
    assert attempts == [1, 1, 1]


def test_failed_in_line_retries_count_as_one_failure(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", fails, retry=Retry(in_line=2))])
    item_id = stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.settled(worker)
    record = stage.record(item_id)
    assert record is not None
    assert record.error_count == 1


@pytest.mark.parametrize("options", [{}, {"permanent": (KeyError,)}])
def test_an_item_with_a_permanent_error_becomes_a_dead_letter_with_its_traceback(stage: Stage, options: Any) -> None:
    attempts: list[int] = []

    def hopeless(job: Job) -> None:
        attempts.append(job.attempt)
        raise KeyError("no such order") if options else PermanentError("no such order")

    worker = stage.worker([stage.handler("mail", hopeless, retry=Retry(in_line=5), **options)])
    item_id = stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker) == {"dead_lettered": 1}
    (dead_letter,) = stage.dead_letters()
    assert (dead_letter.id, dead_letter.record.reason, dead_letter.record.item.error_count) == (item_id, "error", 1)
    assert "no such order" in dead_letter.record.error
    assert "in hopeless" in dead_letter.record.traceback
    assert (attempts, stage.count()) == ([1], {})


def test_an_item_that_failed_its_last_attempt_becomes_a_dead_letter(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", fails, retry=Retry(attempts=2, backoff=0.001))])
    item_id = stage.enqueue("mail")
    for _ in range(2):
        stage.place(worker, stage.lease(["mail"]))
        stage.settled(worker)
        stage.pass_ms(10)
    assert [(each.id, each.record.item.error_count) for each in stage.dead_letters()] == [(item_id, 2)]


def test_a_kind_may_drop_items_that_failed_for_good(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", fails, retry=Retry(attempts=1), drop=True)])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker) == {"dropped": 1}
    assert (stage.dead_letters(), stage.count()) == ([], {})


@pytest.mark.parametrize("leave", [lambda job: sys.exit(3), lambda job: exec("raise KeyboardInterrupt")])
def test_a_handler_that_exits_has_failed_and_its_slot_goes_on(stage: Stage, leave: Any) -> None:
    """Before, the slot ended without a log line, and the item was held until its timeout of an hour."""
    seen: list[str] = []
    worker = stage.worker([stage.handler("leave", leave), stage.handler("mail", lambda job: seen.append("ran"))],
                          slots=1)  # fmt: skip
    stage.enqueue("leave")
    stage.place(worker, stage.lease(["leave"]))
    assert stage.settled(worker, within_ms=1_000) == {"retried": 1}
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.settled(worker, within_ms=1_000)
    assert seen == ["ran"]


def test_an_item_whose_span_cannot_be_made_has_failed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's sampler runs where a span is made. Before, the item was completed without a run of its handler."""

    def broken(stored: object) -> None:
        raise RuntimeError("the sampler is broken")

    monkeypatch.setattr(runner, "passed_on", broken)
    seen: list[Any] = []
    worker = stage.worker([stage.handler("mail", lambda job: seen.append(job.payload))])
    item_id = stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    assert (stage.settled(worker), seen) == ({"retried": 1}, [])
    record = stage.record(item_id)
    assert record is not None
    assert record.last_error == "RuntimeError: the sampler is broken"


def test_an_error_that_is_too_long_to_be_stored_is_shortened(stage: Stage) -> None:
    def verbose(job: Job) -> None:
        raise ValueError("\ud800" + "x" * 100_000 + "the end")

    worker = stage.worker([stage.handler("mail", verbose)])
    item_id = stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.settled(worker)
    record = stage.record(item_id)
    assert record is not None
    assert len(record.last_error) < 8_000
    assert record.last_error.endswith("the end")


def test_an_error_that_cannot_be_rendered_is_a_failure_like_any_other(stage: Stage) -> None:
    """Before, it ended the completer's loop, and with it the worker."""

    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    def odd(job: Job) -> None:
        raise Odd

    worker = stage.worker([stage.handler("mail", odd)])
    item_id = stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker) == {"retried": 1}
    record = stage.record(item_id)
    assert record is not None
    assert record.last_error.endswith("Odd: <exception str() failed>")


# --- Ends of several items ---


def test_a_lost_item_does_not_fail_the_rest_of_its_batch(stage: Stage) -> None:
    def work(job: Job) -> None:
        stage.sleep_ms(100)
        if job.payload == "fails":
            raise ValueError

    worker = stage.worker([stage.handler("mail", work)], slots=4)
    lost, done, failed = (stage.enqueue("mail", name) for name in ("lost", "done", "fails"))
    stage.place(worker, stage.lease(["mail"]))
    new_lease = stage.steal(lost)
    assert stage.settled(worker) == {"completed": 1, "retried": 1, "lost": 1}
    taken = stage.record(lost)
    assert taken is not None
    assert taken.lease_id == new_lease, "it has the new holder's lease, and is as it was"
    assert stage.record(done) is None
    assert stage.record(failed) is not None


def test_a_commit_of_unknown_result_completes_each_item_once(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", lambda job: None)], slots=4)
    for _ in range(3):
        stage.enqueue("mail")
    refs = stage.lease(["mail"])
    stage.store.faults.append(Fault(applied=True))
    stage.place(worker, refs)
    assert stage.settled(worker)["completed"] == 3
    assert stage.count() == {}


def test_completions_and_failures_of_one_zone_share_a_transaction(stage: Stage) -> None:
    def work(job: Job) -> None:
        if job.payload % 2:
            raise ValueError

    worker = stage.worker([stage.handler("mail", work)], slots=8)
    for number in range(8):
        stage.enqueue("mail", number)
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker) == {"completed": 4, "retried": 4}
    assert stage.count() == {"mail": 4}


# --- Completing in a transaction of the handler's own ---


def test_a_handler_may_complete_its_item_in_its_own_transaction(stage: Stage) -> None:
    def work(job: Job) -> None:
        def body(tr: TenantTransaction) -> None:
            tr.set(("sent",), b"yes")
            job.complete_in(tr)

        job.transact(body)

    worker = stage.worker([stage.handler("mail", work)])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker) == {"completed": 1}
    assert stage.count() == {}


def test_a_handler_that_completes_its_item_and_fails_before_the_commit_is_retried(stage: Stage) -> None:
    """Before, the worker took it for completed, and the item's lease had to expire."""

    def work(job: Job) -> None:
        def body(tr: TenantTransaction) -> None:
            job.complete_in(tr)
            raise ValueError("afterthought")

        job.transact(body)

    worker = stage.worker([stage.handler("mail", work)])
    item_id = stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker) == {"retried": 1}
    record = stage.record(item_id)
    assert record is not None
    assert (record.error_count, record.expiry_count) == (1, 0)


def test_a_handler_that_completes_its_item_and_then_fails_has_completed_it(stage: Stage) -> None:
    def work(job: Job) -> None:
        job.transact(job.complete_in)
        raise ValueError("afterwards")

    worker = stage.worker([stage.handler("mail", work)])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker) == {"completed": 1}
    assert stage.count() == {}


def test_a_handler_that_completed_its_item_is_not_cancelled_for_a_lost_item(stage: Stage) -> None:
    """The worker still extends leases; it must not take an item that is gone for a lost one."""
    cancelled: list[bool] = []

    def work(job: Job) -> None:
        job.transact(job.complete_in)
        stage.sleep_ms(30_000)
        cancelled.append(job.cancelled)

    worker = stage.worker([stage.handler("mail", work)])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker) == {"completed": 1}
    assert cancelled == [False]


# --- Transactional handlers ---


def counting(job: Job, tr: TenantTransaction) -> None:
    tr.add(("done",), 1)


def done(stage: Stage, tenant: Tenant = ALICE) -> int:
    """Return how often `counting` took effect."""

    def body(tr: Any) -> int:
        value = TenantTransaction(stage.shard, tenant, tr).get(("done",))
        return 0 if value is None else int.from_bytes(value, "little")

    return stage.shard.transact(body)


def test_a_transactional_handler_and_its_completion_happen_together(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", counting, transactional=True)])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker) == {"completed": 1}
    assert (done(stage), stage.count()) == (1, {})


@pytest.mark.parametrize("fault", [Fault(applied=False, code=1020), Fault(applied=False), Fault(applied=True)])
def test_a_transactional_handler_takes_effect_once_whatever_the_result_of_the_commit(
    stage: Stage, fault: Fault
) -> None:
    worker = stage.worker([stage.handler("mail", counting, transactional=True)])
    stage.enqueue("mail")
    refs = stage.lease(["mail"])
    stage.store.faults.append(Fault(fault.applied, fault.code))
    stage.place(worker, refs)
    assert stage.settled(worker) == {"completed": 1}
    assert (done(stage), stage.count()) == (1, {})


def test_a_transactional_handler_that_fails_has_no_effect(stage: Stage) -> None:
    def fails_late(job: Job, tr: TenantTransaction) -> None:
        tr.add(("done",), 1)
        raise ValueError

    worker = stage.worker([stage.handler("mail", fails_late, transactional=True)])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker) == {"retried": 1}
    assert done(stage) == 0


def test_a_transactional_handler_whose_item_was_lost_has_no_effect(stage: Stage) -> None:
    def slow(job: Job, tr: TenantTransaction) -> None:
        tr.add(("done",), 1)
        stage.sleep_ms(1_000)

    worker = stage.worker([stage.handler("mail", slow, transactional=True)])
    item_id = stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.pass_ms(500)
    new_lease = stage.steal(item_id)
    assert stage.settled(worker) == {"lost": 1}
    record = stage.record(item_id)
    assert record is not None
    assert (done(stage), record.lease_id) == (0, new_lease)


def test_the_error_of_a_handler_longer_than_a_transaction_says_to_split_it(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", lambda job, tr: stage.sleep_ms(5_100), transactional=True)])
    item_id = stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker) == {"retried": 1}
    record = stage.record(item_id)
    assert record is not None
    assert record.last_error.startswith("TransactionalTooLong: a transactional handler ran past 5 s: split it")


def test_a_transactional_handler_whose_commit_takes_long_has_completed_and_is_not_stuck(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Before, the item was lost, and its slot replaced, as if the handler had ignored `job.cancelled`."""

    def writes(job: Job, tr: TenantTransaction) -> None:
        tr.set(("x",), b"1")
        stage.store.answer_late_us = 25 * SECOND

    worker = stage.worker([stage.handler("mail", writes, transactional=True)], slots=1)
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker) == {"completed": 1}
    assert "ignores" not in caplog.text
    assert stage.recycled == []


def test_a_transactional_handler_starts_with_a_lease_longer_than_its_transaction(stage: Stage) -> None:
    """Its item is not extended while the transaction is open: that would conflict."""
    worker = stage.worker(
        [stage.handler("mail", lambda job, tr: stage.sleep_ms(4_900), transactional=True)], slots=1, lease_ms=1_000
    )
    stage.enqueue("mail")
    refs = stage.lease(["mail"])
    stage.pass_ms(9_500)  # Of the ten seconds of a lease by `stage.lease`.
    stage.place(worker, refs)
    assert stage.settled(worker) == {"completed": 1}


def test_a_transactional_handler_that_lost_its_item_does_not_run_again_after_a_conflict(stage: Stage) -> None:
    """After its timeout the item is requeued. The open transaction conflicts with that."""
    runs: list[int] = []

    def slow(job: Job, tr: TenantTransaction) -> None:
        runs.append(job.attempt)
        stage.sleep_ms(2_000)

    worker = stage.worker([stage.handler("mail", slow, transactional=True, timeout=1)])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker) == {"retried": 1, "timed_out": 1}
    assert runs == [1]


# --- Reports to the manager ---


def test_a_report_counts_held_items_by_kind(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", lambda job: stage.sleep_ms(50), max_running=3)])
    stage.enqueue("mail")
    stage.enqueue("mail", tenant=BOB)
    refs = [*stage.lease(["mail"]), *stage.lease(["mail"], tenant=BOB)]
    assert stage.place(worker, refs).kinds == {"mail": 2}


def test_a_question_for_progress_is_answered_when_an_item_has_left(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", lambda job: stage.sleep_ms(300))])
    stage.enqueue("mail")
    seen = stage.place(worker, stage.lease(["mail"])).progress
    asked = stage.begin(lambda: worker.await_progress(seen))
    stage.pass_ms(290)
    assert asked.over_us is None
    stage.pass_ms(20)
    assert asked.result.progress == seen + 1


def test_a_question_for_progress_is_answered_at_once_if_items_have_left(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", lambda job: None)])
    stage.enqueue("mail")
    seen = stage.place(worker, stage.lease(["mail"])).progress
    stage.settled(worker)
    asked = stage.begin(lambda: worker.await_progress(seen))
    stage.pass_ms(0)
    assert asked.over_us is not None


def test_a_question_for_progress_is_answered_after_a_second_at_the_latest(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", lambda job: None)])
    begun_us = stage.now_us
    asked = stage.begin(lambda: worker.await_progress(0))
    stage.pass_ms(2_000)
    assert asked.over_us == begun_us + SECOND
