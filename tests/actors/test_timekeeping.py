"""What a worker tells of itself: what runs, what it has done, how far its handlers are; and what it learns so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from actors.job import Job
from actors.timekeeping import TENANTS_MAX, SlotTally
from tests.actors.stage import ALICE, MS, Stage, held_item
from tests.zones.faults import Fault
from zones import series, timesheets
from zones.engines.errors import NOT_COMMITTED
from zones.errors import BadArgument
from zones.layout import Tenant
from zones.records import Progress
from zones.series import Slot
from zones.timesheets import Timesheet


@pytest.fixture
def stage() -> Stage:
    return Stage()


def sheets(stage: Stage) -> list[Timesheet]:
    return stage.shard.transact(lambda attempt: timesheets.read(attempt.tr, now_us=attempt.now_us))


def done(stage: Stage) -> list[Slot]:
    return stage.shard.transact(lambda attempt: series.read(attempt.tr, now_us=attempt.now_us))


def takes(stage: Stage, ms: int, *, at_first: Callable[[Job], object] = lambda job: None) -> Callable[[Job], None]:
    """Return a handler that takes so long, and listens."""

    def handle(job: Job) -> None:
        at_first(job)
        begun_us = stage.now_us
        while stage.now_us < begun_us + ms * MS and not job.cancelled:
            stage.sleep_ms(10)

    return handle


def test_an_item_that_runs_for_long_is_on_its_workers_sheet_until_it_ends(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", takes(stage, 5_000))])
    item_id = stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.pass_ms(2_500)
    (sheet,) = sheets(stage)
    (item,) = sheet.running
    assert (item.item_id, item.kind, item.tenant, item.attempt) == (item_id, "mail", ALICE, 1)
    assert (sheet.slots, sheet.busy) == (2, 1)
    assert stage.settled(worker) == {"completed": 1}
    stage.pass_ms(1_500)
    (sheet,) = sheets(stage)
    assert (sheet.running, sheet.busy) == ([], 0)


def test_what_became_of_items_is_counted_by_kind_with_the_time_that_it_took(stage: Stage) -> None:
    def fail(job: Job) -> None:
        raise RuntimeError("no")

    worker = stage.worker([stage.handler("mail", takes(stage, 300)), stage.handler("index", fail)])
    stage.enqueue("mail")
    stage.enqueue("index")
    stage.place(worker, stage.lease(["mail", "index"]))
    stage.settled(worker)
    stage.pass_ms(1_500)
    kinds = {kind: tally for slot in done(stage) for kind, tally in slot.tally.kinds.items()}
    assert (kinds["mail"].completed, kinds["index"].retried) == (1, 1)
    assert kinds["mail"].run_us >= 300 * MS
    ((run_us, *tenant),) = series.busiest(done(stage))
    assert tuple(tenant) == ALICE
    assert run_us >= 300 * MS


def test_a_worker_that_does_nothing_writes_nothing(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", takes(stage, 100))])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.settled(worker)
    stage.pass_ms(2_000)
    before = stage.store.commits
    stage.pass_ms(60_000)
    assert stage.store.commits == before


def test_a_worker_that_stops_leaves_a_sheet_on_which_nothing_runs(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", takes(stage, 30_000))])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.pass_ms(1_500)
    stage.do(lambda: worker.drain(0))
    stage.pass_ms(100)
    (sheet,) = sheets(stage)
    assert sheet.running == []


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
    stage.do(lambda: stage.shard.transact(
        lambda attempt: stage.shard.zone(ALICE).complete(attempt.tr, item_id, now_us=attempt.now_us)
    ))  # fmt: skip
    assert stage.settled(worker) == {"lost": 1}
    assert ended_us[0] - cancelled_us < 2_000 * MS


def test_progress_is_in_the_items_record_and_the_next_attempt_finds_it(stage: Stage) -> None:
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


def test_progress_is_written_once_a_second_however_often_it_is_told(stage: Stage) -> None:
    def handle(job: Job) -> None:
        for number in range(400):
            job.progress(number)
            stage.sleep_ms(10)

    worker = stage.worker([stage.handler("mail", handle)])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    before = stage.store.commits
    stage.settled(worker)
    assert stage.store.commits - before <= 4 * 2 + 2, "a sheet and the progress each second, an extension, the end"


@pytest.mark.parametrize("told", [(-1,), ("1",), (1, -1), (True,), (float("nan"),), (1, 2, b"note")])
def test_progress_that_is_none_is_refused(stage: Stage, told: tuple[object, ...]) -> None:
    refused: list[BadArgument] = []

    def handle(job: Job) -> None:
        try:
            job.progress(*told)  # type: ignore[arg-type]
        except BadArgument as error:
            refused.append(error)

    worker = stage.worker([stage.handler("mail", handle)])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker) == {"completed": 1}
    assert len(refused) == 1


def test_a_sheet_that_the_store_refuses_costs_no_item(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", takes(stage, 1_500))])
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.store.faults.append(Fault(applied=False, code=NOT_COMMITTED))
    assert stage.settled(worker) == {"completed": 1}


def test_of_very_many_tenants_those_that_take_most_time_are_remembered() -> None:
    tally, much, little = SlotTally(7), held_item(), held_item()
    much.took_us, little.took_us = 5, 1
    for number in range(3 * TENANTS_MAX):
        little.ref = little.ref._replace(tenant=Tenant("shop", f"user{number}"))
        tally.note(little, "completed")
        tally.note(much, "completed")
    stored = tally.stored()
    assert stored.tenants["shop"][ALICE.user] == 5 * 3 * TENANTS_MAX
    assert stored.kinds["mail"].completed == 6 * TENANTS_MAX
