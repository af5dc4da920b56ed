"""What a worker writes about itself: what runs, what it has done, reported progress; and the check of its items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from fairlead.actors.execution.job import Job
from fairlead.actors.handlers import Form, Handler
from fairlead.zones.engines.api.errors import NOT_COMMITTED, TRANSACTION_TOO_LARGE
from fairlead.zones.errors import BadArgument
from fairlead.zones.records import Progress
from fairlead.zones.reporting import rollups, worker_status
from fairlead.zones.reporting.rollups import Interval
from fairlead.zones.reporting.worker_status import WorkerStatus
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.actors.stage import ALICE, MS, Stage
from tests.zones.faults import Fault


@pytest.fixture
def stage() -> Stage:
    return Stage()


def statuses(stage: Stage) -> list[WorkerStatus]:
    return stage.shard.transact(lambda attempt: worker_status.read(attempt.tr, now_us=attempt.now_us))


def done(stage: Stage) -> list[Interval]:
    return stage.shard.transact(lambda attempt: rollups.read(attempt.tr, now_us=attempt.now_us))


def sum_up(stage: Stage) -> None:
    stage.shard.transact(lambda attempt: rollups.sum_up(attempt.tr, stage.shard.layout, now_us=attempt.now_us))


def completed(stage: Stage) -> dict[str, int]:
    """Return how many items of each kind have completed, according to the rollups."""
    total: Counter[str] = Counter()
    for interval in done(stage):
        total.update({kind: rollup.completed for kind, rollup in interval.rollup.kinds.items()})
    return {kind: count for kind, count in total.items() if count}


def run_us(stage: Stage) -> int:
    """Return how long handlers have run, according to the rollups: the sums by kind and by tenant are equal."""
    intervals = done(stage)
    by_kind = sum(rollup.run_us for interval in intervals for rollup in interval.rollup.kinds.values())
    assert by_kind == sum(used for used, _, _ in rollups.busiest(intervals))
    return by_kind


def as_task(handler: Handler) -> Handler:
    """Return a handler as if its function were a Ray remote function: it gets a copy of its job."""
    return replace(handler, form=Form.REMOTE)


def cancel(stage: Stage, item_id: bytes, *, shard: Shard | None = None) -> None:
    """Cancel an item, as its enqueuer may, although a worker runs it."""
    at = shard or stage.shard
    zone = at.zone(ALICE)
    stage.do(lambda: at.transact(lambda attempt: zone.complete(attempt.tr, item_id, now_us=attempt.now_us)))


def takes(stage: Stage, ms: int, *, at_first: Callable[[Job], object] = lambda job: None) -> Callable[[Job], None]:
    """Return a handler that takes so long, and stops when it is cancelled."""

    def handle(job: Job) -> None:
        at_first(job)
        begun_us = stage.now_us
        while stage.now_us < begun_us + ms * MS and not job.cancelled:
            stage.sleep_ms(10)

    return handle


def test_a_long_item_is_in_its_workers_status_until_it_ends(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", takes(stage, 5_000))])
    item_id = stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.pass_ms(2_500)
    (status,) = statuses(stage)
    (item,) = status.running
    assert (item.item_id, item.kind, item.tenant, item.attempt) == (item_id, "mail", ALICE, 1)
    assert (status.slots, status.busy) == (2, 1)
    assert stage.settled(worker) == {"completed": 1}
    stage.pass_ms(1_500)
    (status,) = statuses(stage)
    assert (status.running, status.busy) == ([], 0)


def test_outcomes_and_run_times_are_counted_by_kind(stage: Stage) -> None:
    def fail(job: Job) -> None:
        raise RuntimeError("no")

    worker = stage.worker([stage.handler("mail", takes(stage, 300)), stage.handler("index", fail)])
    stage.enqueue("mail")
    stage.enqueue("index")
    stage.place(worker, stage.lease(["mail", "index"]))
    stage.settled(worker)
    stage.pass_ms(1_500)
    kinds = {kind: rollup for interval in done(stage) for kind, rollup in interval.rollup.kinds.items()}
    assert (kinds["mail"].completed, kinds["index"].retried) == (1, 1)
    assert kinds["mail"].run_us >= 300 * MS
    ((run_us, *tenant),) = rollups.busiest(done(stage))
    assert tuple(tenant) == ALICE
    assert run_us >= 300 * MS


def test_an_outcome_is_counted_once_while_its_worker_writes_again(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", takes(stage, 100)), stage.handler("index", takes(stage, 90_000))])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.settled(worker)
    stage.pass_ms(3_000)
    stage.enqueue("index")
    stage.place(worker, stage.lease(["index"]))
    for _ in range(6):
        stage.pass_ms(10_000)
        sum_up(stage)
    assert completed(stage) == {"mail": 1}


def test_an_outcome_after_idle_time_does_not_count_earlier_ones_again(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", takes(stage, 100))])
    for minute in range(1, 4):
        stage.enqueue("mail")
        stage.place(worker, stage.lease(["mail"]))
        stage.settled(worker)
        stage.pass_ms(60_000)
        sum_up(stage)
        assert completed(stage) == {"mail": minute}


def test_outcomes_are_counted_although_the_store_refuses_the_status_for_a_while(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", takes(stage, 100))])
    for _ in range(3):
        stage.enqueue("mail")
        stage.place(worker, stage.lease(["mail"]))
        stage.settled(worker)
        stage.store.full = True
        stage.pass_ms(12_000)
        stage.store.full = False
    stage.pass_ms(2_000)
    assert completed(stage) == {"mail": 3}, "the last one, too, although nothing has happened since"
    stage.pass_ms(30_000)
    sum_up(stage)
    assert completed(stage) == {"mail": 3}


def test_a_worker_writes_no_status_to_a_shard_of_which_it_holds_nothing(stage: Stage) -> None:
    store, other = stage.open_shard("other")
    shards = {"main": stage.shard, "other": other}
    worker = stage.worker([stage.handler("mail", takes(stage, 30_000))], shards=shards)
    gone_id = stage.enqueue("mail", shard=other)
    stage.place(worker, stage.lease(["mail"], shard=other))
    cancel(stage, gone_id, shard=other)
    stage.settled(worker)
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.pass_ms(2_000)
    before = store.commits
    stage.pass_ms(10_000)
    assert store.commits == before
    assert stage.do(worker.counts)["held"] == 1


def test_the_time_of_a_handler_that_ran_past_its_timeout_is_counted(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", takes(stage, 60_000), timeout=3)])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.settled(worker)
    stage.pass_ms(1_500)
    assert 3_000 * MS <= run_us(stage) < 3_500 * MS


def test_the_time_of_a_handler_that_lost_its_item_is_counted(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", takes(stage, 60_000))])
    item_id = stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.pass_ms(3_000)
    cancel(stage, item_id)
    stage.settled(worker)
    stage.pass_ms(1_500)
    assert 3_000 * MS <= run_us(stage) < 5_500 * MS


def test_the_time_of_a_handler_that_ignores_its_cancellation_counts_until_it_is_given_up(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", lambda job: stage.sleep_ms(20_000), timeout=3)])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.settled(worker)
    stage.pass_ms(30_000)
    assert (3_000 + 5_000) * MS <= run_us(stage) < 8_500 * MS


def test_a_worker_that_does_nothing_writes_nothing(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", takes(stage, 100))])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.settled(worker)
    stage.pass_ms(2_000)
    before = stage.store.commits
    stage.pass_ms(60_000)
    assert stage.store.commits == before


def test_in_the_last_status_of_a_worker_nothing_runs(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", takes(stage, 30_000))])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.pass_ms(1_500)
    stage.do(lambda: worker.drain(0))
    stage.pass_ms(100)
    (status,) = statuses(stage)
    assert status.running == []


def test_an_item_that_was_cancelled_is_interrupted_within_two_seconds(stage: Stage) -> None:
    ended_us: list[int] = []

    def handle(job: Job) -> None:
        takes(stage, 60_000)(job)
        ended_us.append(stage.now_us)

    worker = stage.worker([stage.handler("mail", handle)])
    item_id = stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.pass_ms(300)
    cancelled_us = stage.now_us
    cancel(stage, item_id)
    assert stage.settled(worker) == {"lost": 1}
    assert ended_us[0] - cancelled_us < 2_000 * MS


def test_a_ray_task_that_completes_its_item_may_go_on(stage: Stage) -> None:
    ended: list[bool] = []

    def handle(job: Job) -> None:
        takes(stage, 2_000)(job)
        shard = stage.shard
        shard.transact(lambda attempt: job.complete_in(TenantTransaction(shard, job.tenant, attempt)))
        takes(stage, 15_000)(job)
        ended.append(not job.cancelled)

    worker = stage.worker([as_task(stage.handler("mail", handle))])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker) == {"completed": 1}
    assert ended == [True]


def test_a_ray_task_whose_item_was_cancelled_is_stopped_within_two_seconds(stage: Stage) -> None:
    worker = stage.worker([as_task(stage.handler("mail", takes(stage, 60_000)))])
    item_id = stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.pass_ms(5_000)
    cancel(stage, item_id)
    assert stage.settled(worker, within_ms=2_000) == {"lost": 1}


def test_an_item_that_was_cancelled_while_it_waited_is_interrupted_within_two_seconds_of_its_start(
    stage: Stage,
) -> None:
    ran_us: list[int] = []

    def handle(job: Job) -> None:
        begun_us = stage.now_us
        takes(stage, 60_000)(job)
        ran_us.append(stage.now_us - begun_us)

    worker = stage.worker([stage.handler("first", takes(stage, 300)), stage.handler("mail", handle)], slots=1)
    item_id = [stage.enqueue("first"), stage.enqueue("mail")][1]
    stage.place(worker, stage.lease(["first", "mail"]))
    stage.pass_ms(100)
    cancel(stage, item_id)
    assert stage.settled(worker) == {"completed": 1, "lost": 1}
    assert ran_us[0] <= 2_000 * MS


def test_progress_is_stored_with_the_item_for_the_next_attempt(stage: Stage) -> None:
    found: list[Progress | None] = []

    def handle(job: Job) -> None:
        found.append(job.last_progress)
        if job.attempt == 1:
            job.progress(1, 3, "first of three")
            job.progress(2, 3, "second of three")
            stage.sleep_ms(1_500)
            raise RuntimeError("no")

    worker = stage.worker([stage.handler("mail", handle)])
    item_id = stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.settled(worker)
    record = stage.record(item_id)
    assert record is not None
    assert record.progress is not None
    assert (record.progress.done, record.progress.total, record.progress.note) == (2, 3, "second of three")
    stage.pass_ms(60_000)
    stage.place(worker, stage.lease(["mail"]))
    stage.settled(worker)
    assert found == [None, record.progress]


def test_progress_is_written_once_a_second_however_often_it_is_reported(stage: Stage) -> None:
    def handle(job: Job) -> None:
        for number in range(400):
            job.progress(number)
            stage.sleep_ms(10)

    worker = stage.worker([stage.handler("mail", handle)])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    before = stage.store.commits
    stage.settled(worker)
    assert stage.store.commits - before <= 4 * 2 + 2, "a status and the progress each second, an extension, the end"


class Number(float):
    """A number type of another library."""


@pytest.mark.parametrize(
    ("reported", "shown"),
    [
        ((1, 3, "read a\udcff.txt"), (1, 3, r"read a\udcff.txt")),
        ((1, 3, "\ud800" * 300), (1, 3, r"\ud800" * 33 + r"\u")),
        ((2**53, 2**53, ""), (2**53, 2**53, "")),
        ((Number(0.5), Number(2), ""), (0.5, 2, "")),
    ],
)
def test_unusual_progress_is_shown_and_hides_no_other_item_of_its_worker(
    stage: Stage, reported: tuple[float, float, str], shown: tuple[float, float, str]
) -> None:
    worker = stage.worker([
        stage.handler("odd", takes(stage, 5_000, at_first=lambda job: job.progress(*reported))),
        stage.handler("mail", takes(stage, 5_000)),
    ])  # fmt: skip
    odd_id, _ = stage.enqueue("odd"), stage.enqueue("mail")
    stage.place(worker, stage.lease(["odd", "mail"]))
    stage.pass_ms(2_500)
    ((odd, mail),) = [status.running for status in statuses(stage)]
    assert (odd.kind, mail.kind) == ("odd", "mail")
    assert odd.progress is not None
    assert (odd.progress.done, odd.progress.total, odd.progress.note) == shown
    record = stage.record(odd_id)
    assert record is not None
    assert record.progress == odd.progress


INVALID = [(-1,), ("1",), (1, -1), (True,), (float("nan"),), (float("inf"),), (2**64,), (1, 10**400), (1, 2, b"note")]


@pytest.mark.parametrize("reported", INVALID)
def test_invalid_progress_is_refused(stage: Stage, reported: tuple[object, ...]) -> None:
    refused: list[BadArgument] = []

    def handle(job: Job) -> None:
        try:
            job.progress(*reported)  # type: ignore[arg-type]
        except BadArgument as error:
            refused.append(error)

    worker = stage.worker([stage.handler("mail", handle)])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker) == {"completed": 1}
    assert len(refused) == 1


def test_progress_that_the_store_refuses_does_not_keep_a_cancelled_item_running(stage: Stage) -> None:
    """The status is the first commit, the progress the second."""
    worker = stage.worker([
        stage.handler("mail", takes(stage, 60_000)),
        stage.handler("index", takes(stage, 60_000, at_first=lambda job: job.progress(1))),
    ])  # fmt: skip
    item_id, _ = stage.enqueue("mail"), stage.enqueue("index")
    stage.place(worker, stage.lease(["mail", "index"]))
    stage.pass_ms(500)
    cancel(stage, item_id)
    refuse = lambda: stage.store.faults.append(Fault(applied=False, code=TRANSACTION_TOO_LARGE))  # noqa: E731
    stage.store.on_commit(2, refuse)
    stage.pass_ms(1_000)
    assert stage.do(worker.counts)["lost"] == 1


def test_a_status_that_the_store_refuses_costs_no_item(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", takes(stage, 1_500))])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.store.faults.append(Fault(applied=False, code=NOT_COMMITTED))
    assert stage.settled(worker) == {"completed": 1}
