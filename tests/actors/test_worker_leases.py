"""The worker and its leases: extensions, lost leases, timeouts, returns, and what follows from an expiry."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead import TenantTransaction
from fairlead.actors.execution import runner
from fairlead.actors.execution.job import Job
from fairlead.actors.execution.retry import Retry
from fairlead.actors.handlers import Handler
from fairlead.actors.runtime.host import Host
from fairlead.actors.worker import Isolation, Worker
from fairlead.zones.settings import ZoneSettings
from tests.actors.stage import ALICE, LEASE_MS, MS, SECOND, Stage
from tests.simulation.mutations.mutation import in_a_race
from tests.zones.faults import Fault


@pytest.fixture
def stage() -> Stage:
    return Stage()


class Noting:
    """A handler that takes its time and notes what happens. `heeds_cancel`: it stops when it is cancelled."""

    def __init__(self, stage: Stage, *, takes_ms: int, heeds_cancel: bool = True) -> None:
        self.begun: list[Any] = []
        self.over: list[Any] = []
        self.cancelled_ms: list[float] = []
        self._stage = stage
        self.takes_ms = takes_ms
        self._heeds_cancel = heeds_cancel

    def __call__(self, job: Job) -> None:
        begun_us = self._stage.now_us
        self.begun.append(job.payload)
        while self._stage.now_us < begun_us + self.takes_ms * MS:
            self._stage.sleep_ms(10)
            if job.cancelled and self._heeds_cancel:
                self.cancelled_ms.append((self._stage.now_us - begun_us) / MS)
                return
        self.over.append(job.payload)


def begin(stage: Stage, work: Any, *, payloads: int = 1, options: dict[str, Any] | None = None,
          **settings: Any) -> tuple[Worker, list[bytes]]:  # fmt: skip
    """Start a worker and send it items of one kind, `payloads` of them, numbered; return it and their ids."""
    worker = stage.worker([stage.handler("mail", work, **(options or {}))], **settings)
    ids = [stage.enqueue("mail", number) for number in range(payloads)]
    stage.place(worker, stage.lease(["mail"]))
    return worker, ids


# --- Extensions ---


def test_the_lease_of_a_long_handler_is_extended_again_and_again(stage: Stage) -> None:
    noting = Noting(stage, takes_ms=60_000)
    worker, (item_id,) = begin(stage, noting)
    for _ in range(55):
        stage.pass_ms(1_000)
        record = stage.record(item_id)
        assert record is not None
        assert record.vesting_us > stage.now_us + 5 * SECOND, "nobody else sees it"
    assert stage.settled(worker) == {"completed": 1}
    assert noting.over == [0]


def test_a_short_handler_costs_no_extension(stage: Stage) -> None:
    worker, _ = begin(stage, Noting(stage, takes_ms=900))
    before = stage.store.commits
    stage.settled(worker)
    assert stage.store.commits == before + 1


def test_leases_are_extended_many_at_a_time(stage: Stage) -> None:
    worker, ids = begin(stage, Noting(stage, takes_ms=5_000), payloads=50, slots=50)
    before = stage.store.commits
    stage.pass_ms(4_000)
    assert stage.store.commits - before <= 6, "two extensions, and a worker status every second"
    records = [stage.record(item_id) for item_id in ids]
    assert all(record is not None and record.vesting_us > stage.now_us + 8 * SECOND for record in records)
    assert stage.settled(worker) == {"completed": 50}


def test_an_item_that_another_worker_has_leased_is_cancelled_and_its_end_does_not_count(stage: Stage) -> None:
    noting = Noting(stage, takes_ms=30_000)
    worker, (item_id,) = begin(stage, noting)
    stage.pass_ms(100)
    new_lease = stage.steal(item_id)
    assert stage.settled(worker) == {"lost": 1}
    record = stage.record(item_id)
    assert record is not None
    assert (record.lease_id, record.error_count) == (new_lease, 0)
    (cancelled_ms,) = noting.cancelled_ms
    assert cancelled_ms < LEASE_MS / 2, "it was noticed at the next extension"


@pytest.mark.parametrize("gone", [False, True])
def test_a_transactional_handler_whose_item_another_worker_has_leased_has_not_failed(
    stage: Stage, caplog: pytest.LogCaptureFixture, gone: bool
) -> None:
    """This happens to every item of a worker that was stopped for a while, and goes on."""

    def work(job: Job, tr: TenantTransaction) -> None:
        new_lease = stage.steal(job.id)
        if gone:
            stage.shard.transact(
                lambda attempt: stage.shard.zone(ALICE).complete(
                    attempt.tr, job.id, now_us=stage.now_us, lease_id=new_lease
                )
            )

    worker, _ = begin(stage, work, options={"transactional": True})
    assert stage.settled(worker) == {"lost": 1}
    assert "failed" not in caplog.text


def test_a_transactional_handler_does_not_run_again_once_its_lease_has_expired(stage: Stage) -> None:
    """Its worker stood still, and goes on after a conflict of its commit. Another worker may run the item by then."""
    runs: list[int] = []

    def work(job: Job, tr: TenantTransaction) -> None:
        runs.append(job.attempt)
        stage.sleep_ms(20)  # The worker has just checked its deadlines, and does not check them again at once.

    worker = stage.worker([stage.handler("mail", work, transactional=True)])
    item_id = stage.enqueue("mail")
    refs = stage.lease(["mail"])
    stage.store.faults.append(Fault(applied=False, code=1020, then=lambda: stage.clock.jump(LEASE_MS * MS)))
    stage.place(worker, refs)
    assert stage.settled(worker) == {"lost": 1}
    record = stage.record(item_id)
    assert record is not None
    assert (runs, record.error_count) == ([1], 0)


def test_an_in_line_retry_does_not_begin_once_the_lease_has_expired(stage: Stage) -> None:
    runs: list[int] = []

    def stands_still(job: Job) -> None:
        runs.append(job.attempt)
        stage.clock.jump(LEASE_MS * MS)
        raise ValueError

    worker, _ = begin(stage, stands_still, options={"retry": Retry(in_line=5)})
    stage.settled(worker)
    assert runs == [1]


def test_a_handler_is_cancelled_when_its_lease_cannot_be_extended(stage: Stage) -> None:
    """A worker that cannot reach the store must assume that other workers run its items."""
    noting = Noting(stage, takes_ms=60_000)
    worker, _ = begin(stage, noting)
    stage.store.full = True
    stage.pass_ms(LEASE_MS + 500)
    (cancelled_ms,) = noting.cancelled_ms
    assert LEASE_MS - 200 <= cancelled_ms <= LEASE_MS + 200
    assert stage.settled(worker) == {"lost": 1}


def test_a_store_that_refuses_for_half_a_lease_costs_no_item(stage: Stage) -> None:
    """Two extensions may fail before a lease expires."""
    noting = Noting(stage, takes_ms=20_000)
    worker, _ = begin(stage, noting)
    stage.pass_ms(3_000)
    stage.store.full = True
    stage.pass_ms(5_000)
    stage.store.full = False
    assert stage.settled(worker) == {"completed": 1}


def test_finished_items_wait_for_a_store_that_refuses(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    worker, _ = begin(stage, Noting(stage, takes_ms=1_000), payloads=2)
    stage.store.full = True
    stage.pass_ms(8_000)
    stage.store.full = False
    assert stage.settled(worker) == {"completed": 2}
    assert stage.count() == {}
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "shard main refuses; leases that it does not extend in time will expire"
    ]


def test_finished_items_are_lost_if_the_store_refuses_for_too_long(stage: Stage) -> None:
    worker, (item_id,) = begin(stage, Noting(stage, takes_ms=1_000))
    stage.store.full = True
    stage.pass_ms(LEASE_MS + 2_000)
    stage.store.full = False
    assert stage.settled(worker) == {"lost": 1}
    record = stage.record(item_id)
    assert record is not None
    assert record.vesting_us < stage.now_us, "another worker may lease it"


# --- Timeouts ---


def test_a_handler_past_its_timeout_is_cancelled_and_its_item_is_retried(stage: Stage) -> None:
    noting = Noting(stage, takes_ms=60_000)
    worker, (item_id,) = begin(stage, noting, options={"timeout": 2, "retry": Retry(backoff=1)})
    assert stage.settled(worker) == {"timed_out": 1, "retried": 1}
    (cancelled_ms,) = noting.cancelled_ms
    assert 2_000 <= cancelled_ms <= 2_150
    record = stage.record(item_id)
    assert record is not None
    assert (record.error_count, record.lease_id) == (1, b"")
    assert record.last_error.startswith("JobTimeout: the handler ran past its timeout, kind='mail'")


def test_a_timeout_counts_as_an_attempt(stage: Stage) -> None:
    worker, _ = begin(stage, Noting(stage, takes_ms=60_000), options={"timeout": 2, "retry": Retry(attempts=1)})
    assert stage.settled(worker) == {"timed_out": 1, "dead_lettered": 1}
    (dead_letter,) = stage.dead_letters()
    assert "JobTimeout" in dead_letter.record.error


def test_a_timeout_does_not_count_the_time_of_the_lease_at_the_start(stage: Stage) -> None:
    """Before, an item could become a dead letter by its timeout although its handler had never begun."""
    handler = stage.handler("mail", lambda job, tr: None, transactional=True, timeout=1, retry=Retry(attempts=1))
    worker = stage.worker([handler])
    stage.enqueue("mail")
    refs = stage.lease(["mail"])
    stage.pass_ms(LEASE_MS - 5_000)  # The rest is too short for a transaction: the lease is extended first.
    stage.store.faults.append(Fault(applied=False, then=lambda: stage.sleep_ms(1_500)))
    stage.place(worker, refs)
    assert stage.settled(worker) == {"completed": 1}


def test_a_timeout_may_be_longer_than_the_lease(stage: Stage) -> None:
    noting = Noting(stage, takes_ms=60_000)
    worker, _ = begin(stage, noting, options={"timeout": 25})
    assert stage.settled(worker) == {"timed_out": 1, "retried": 1}
    assert 25_000 <= noting.cancelled_ms[0] <= 25_150


def test_a_clock_that_is_set_back_does_not_delay_a_timeout(stage: Stage) -> None:
    """Before, the handler ran until the clock had caught up, and nothing interrupted it."""
    noting = Noting(stage, takes_ms=900_000)
    worker, _ = begin(stage, noting, options={"timeout": 3})
    stage.pass_ms(1_000)
    begun_us = stage.now_us
    stage.clock.jump(-600 * SECOND)
    stage.wait_for(lambda: worker.counts().get("timed_out"), within_ms=3_000)
    assert 1_500 * MS <= stage.now_us + 600 * SECOND - begun_us <= 2_500 * MS


def a_refused_requeue(stage: Stage) -> tuple[dict[str, int], bytes | None]:
    """Let a transactional handler return at its timeout, while the store refuses the requeue.

    Return what became of the item, and what the handler has written.
    """

    def send(job: Job, tr: TenantTransaction) -> None:
        tr.set(("mail",), b"sent")
        stage.store.full = True
        while not job.cancelled:
            stage.sleep_ms(10)
        stage.sleep_ms(10)
        stage.store.full = False

    worker, _ = begin(stage, send, options={"transactional": True, "timeout": 1, "retry": Retry(attempts=1)})
    settled = stage.settled(worker)
    return settled, stage.shard.transact(lambda tr: TenantTransaction(stage.shard, ALICE, tr).get(("mail",)))


def test_a_transactional_handler_that_returns_after_its_timeout_has_no_effect(stage: Stage) -> None:
    """Before, it committed if it was faster than the requeue, and the log said that its item was given up."""
    settled, written = a_refused_requeue(stage)
    assert (settled, written) == ({"timed_out": 1, "lost": 1}, None)


def test_without_its_guard_a_transactional_handler_commits_after_its_timeout(stage: Stage) -> None:
    guard = (runner._run_transactional, "if held.timed_out:", "if False:")
    with in_a_race("a transactional handler past its timeout commits nothing", guard).planted():
        settled, written = a_refused_requeue(stage)
    assert (settled.get("completed"), written) == (1, b"sent")


def test_in_line_retries_end_with_the_timeout(stage: Stage) -> None:
    runs: list[int] = []

    def flaky(job: Job) -> None:
        runs.append(job.attempt)
        stage.sleep_ms(600)
        raise ValueError

    worker, _ = begin(stage, flaky, options={"timeout": 1, "retry": Retry(in_line=100)})
    assert stage.settled(worker) == {"timed_out": 1, "retried": 1}
    assert len(runs) == 2


def test_a_handler_that_ignores_its_cancellation_gets_its_slot_replaced(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    noting = Noting(stage, takes_ms=60_000, heeds_cancel=False)
    worker, _ = begin(stage, noting, options={"timeout": 1}, slots=2)
    assert stage.settled(worker, within_ms=8_000) == {"timed_out": 1, "retried": 1}
    assert "ignores job.cancelled" in caplog.text
    quick = [stage.enqueue("mail", number) for number in range(4)]
    refs = stage.lease(["mail"])
    noting.takes_ms = 1_000
    begun_us = stage.now_us
    stage.place(worker, refs)
    stage.settled(worker)
    assert stage.now_us - begun_us < 2_200 * MS, "two slots work"
    assert len(quick) == 4


def test_the_late_end_of_a_replaced_slot_changes_nothing(stage: Stage) -> None:
    noting = Noting(stage, takes_ms=30_000, heeds_cancel=False)
    worker, (item_id,) = begin(stage, noting, options={"timeout": 1, "retry": Retry(backoff=3600)})
    stage.settled(worker, within_ms=8_000)
    before = stage.record(item_id)
    stage.pass_ms(30_000)
    assert noting.over == [0]
    assert stage.record(item_id) == before
    assert stage.settled(worker) == {"timed_out": 1, "retried": 1}


def test_a_worker_whose_slots_were_all_replaced_restarts(stage: Stage) -> None:
    """Threads that ignore their cancellation never end; only a new process is without them."""
    begin(stage, Noting(stage, takes_ms=600_000, heeds_cancel=False), options={"timeout": 1}, payloads=2)
    stage.wait_for(lambda: stage.recycled, within_ms=10_000)
    assert stage.recycled == ["2 handlers ignored job.cancelled"]


# --- Returns ---


def test_an_item_that_finds_no_slot_is_returned_for_other_workers(stage: Stage) -> None:
    noting = Noting(stage, takes_ms=5_000)
    worker, ids = begin(stage, noting, payloads=3, slots=2)
    stage.pass_ms(800)
    record = stage.record(ids[2])
    assert record is not None
    assert (record.lease_id, record.error_count, record.expiry_count) == (b"", 0, 0)
    assert record.vesting_us <= stage.now_us
    assert stage.settled(worker) == {"completed": 2, "returned": 1}
    assert noting.begun == [0, 1]


def test_a_manager_gets_a_report_at_once_when_items_are_returned(stage: Stage) -> None:
    """Before, its question was answered only when an item had been settled, or after a second."""
    worker, _ = begin(stage, Noting(stage, takes_ms=5_000), payloads=3, slots=2)
    stage.pass_ms(400)
    begun_us = stage.now_us
    asked = stage.begin(lambda: worker.await_progress(0))
    stage.wait_for(lambda: asked.over_us is not None)
    assert asked.result.held == 2
    assert stage.now_us - begun_us < 300 * MS


# --- Lease expiries ---


def poison_candidate(stage: Stage, payload: object = None) -> bytes:
    """Enqueue an item whose workers have died three times in a row while it ran."""
    item_id = stage.enqueue("mail", payload)
    stage.change(item_id, expiry_count=3, expired_count=4)
    return item_id


def die(stage: Stage) -> None:
    """Let the worker's process die, and the leases of its items expire."""
    stage.host.kill()
    stage.host.dead = False
    stage.pass_ms(LEASE_MS)


def isolated(stage: Stage, *handlers: Handler, isolation: Isolation = Isolation.PROCESS) -> Worker:
    return stage.worker(handlers, isolation=isolation)


def test_in_isolation_items_run_one_after_the_other(stage: Stage) -> None:
    """Each may have killed workers. So no other item may be lost with it, or be taken for the cause."""
    noting = Noting(stage, takes_ms=100)
    worker = isolated(stage, stage.handler("mail", noting))
    for number in range(2):
        poison_candidate(stage, number)
        stage.place(worker, stage.lease(["mail"]))
    stage.pass_ms(90)
    assert noting.begun == [0]
    assert stage.settled(worker) == {"completed": 2}
    assert noting.begun == [0, 1]


def test_an_item_whose_lease_expires_while_it_runs_isolated_becomes_a_dead_letter(stage: Stage) -> None:
    worker = isolated(stage, stage.handler("mail", Noting(stage, takes_ms=60_000)))
    item_id = poison_candidate(stage)
    stage.place(worker, stage.lease(["mail"]))
    stage.pass_ms(100)
    record = stage.record(item_id)
    assert record is not None
    assert (record.started, record.ran_isolated) == (True, True), "noted before its handler started"
    die(stage)
    assert stage.lease(["mail"]) == []
    (dead_letter,) = stage.dead_letters()
    assert (dead_letter.id, dead_letter.record.reason) == (item_id, "lapsed")
    assert dead_letter.record.item.expired_count == 5, "the last expiry counts, too"


def test_an_item_whose_lease_expires_in_a_shared_process_does_not_become_a_dead_letter(stage: Stage) -> None:
    """In threads another item may have ended the process."""
    worker = isolated(stage, stage.handler("mail", Noting(stage, takes_ms=60_000)), isolation=Isolation.SHARED)
    item_id = poison_candidate(stage)
    stage.place(worker, stage.lease(["mail"]))
    stage.pass_ms(100)
    record = stage.record(item_id)
    assert record is not None
    assert (record.started, record.ran_isolated) == (True, False)
    die(stage)
    assert [ref.item_id for ref in stage.lease(["mail"])] == [item_id]
    record = stage.record(item_id)
    assert record is not None
    assert record.expiry_count == 4


def test_the_expiry_of_a_waiting_poison_candidate_does_not_count_against_it(stage: Stage) -> None:
    """This item cannot have killed the worker."""
    worker = isolated(stage, stage.handler("mail", Noting(stage, takes_ms=60_000)))
    poison_candidate(stage, "first")
    stage.place(worker, stage.lease(["mail"]))
    second = poison_candidate(stage, "second")
    stage.place(worker, stage.lease(["mail"]))
    stage.pass_ms(100)
    die(stage)
    assert second in [ref.item_id for ref in stage.lease(["mail"])]
    record = stage.record(second)
    assert record is not None
    assert (record.expiry_count, record.expired_count) == (3, 5)


def test_a_poison_candidate_that_waits_too_long_is_returned_as_a_candidate(stage: Stage) -> None:
    """Before, it was held for as long as the item before it ran."""
    worker = isolated(stage, stage.handler("mail", Noting(stage, takes_ms=60_000)))
    poison_candidate(stage, "first")
    stage.place(worker, stage.lease(["mail"]))
    second = poison_candidate(stage, "second")
    stage.place(worker, stage.lease(["mail"]))
    stage.pass_ms(800)
    record = stage.record(second)
    assert record is not None
    assert (record.lease_id, record.return_count, record.expiry_count) == (b"", 1, 3)


def test_an_item_whose_lease_expired_before_is_marked_as_started_before_its_handler_starts(stage: Stage) -> None:
    """An item without an expiry gets no mark: that would cost one more commit for each item."""
    worker = stage.worker([stage.handler("mail", Noting(stage, takes_ms=60_000))])
    never, once = stage.enqueue("mail", "never"), stage.enqueue("mail", "once")
    stage.change(once, expired_count=1)
    stage.place(worker, stage.lease(["mail"]))
    stage.pass_ms(100)
    found = [stage.record(item_id) for item_id in (never, once)]
    assert [record is not None and record.started for record in found] == [False, True]


@pytest.mark.parametrize("fails", [True, False])
def test_an_item_that_ends_by_itself_is_no_poison_candidate_any_more(stage: Stage, fails: bool) -> None:
    def work(job: Job) -> None:
        if fails:
            raise ValueError

    worker = isolated(stage, stage.handler("mail", work, retry=Retry(backoff=0.001)))
    item_id = poison_candidate(stage)
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker) == ({"retried": 1} if fails else {"completed": 1})
    record = stage.record(item_id)
    if fails:
        assert record is not None
        assert (record.expiry_count, record.ran_isolated, record.error_count) == (0, False, 1)
    else:
        assert record is None


def test_a_transactional_poison_candidate_runs_isolated(stage: Stage) -> None:
    def work(job: Job, tr: TenantTransaction) -> None:
        tr.add(("done",), 1)

    worker = isolated(stage, stage.handler("mail", work, transactional=True))
    poison_candidate(stage)
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker) == {"completed": 1}


def test_the_number_of_expiries_before_isolation_is_a_setting() -> None:
    stage = Stage(zones=ZoneSettings(expiries_before_isolation=1))
    item_id = stage.enqueue("mail")
    stage.change(item_id, expiry_count=1)
    assert [ref.isolated for ref in stage.lease(["mail"])] == [True]


def test_a_stage_is_a_host(stage: Stage) -> None:
    host: Host = stage.host
    assert host.clock.now_us() == stage.now_us
    assert stage.count(ALICE) == {}
