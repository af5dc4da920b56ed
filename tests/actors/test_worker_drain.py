"""How a worker drains, and what it does when a store refuses or an item cannot be run."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.actors.execution.job import Job
from fairlead.actors.execution.submitted_handlers import pack_handler, submit
from fairlead.actors.worker import DRAIN_FLUSH_US, Worker
from fairlead.zones.records import encode
from tests.actors.stage import ALICE, BOB, LEASE_MS, MS, SECOND, SIGNING_KEY, Outcome, Stage


@pytest.fixture
def stage() -> Stage:
    return Stage()


def working(stage: Stage, *, takes_ms: float, payloads: int, heeds_cancel: bool = True,
            **settings: Any) -> tuple[Worker, list[bytes]]:  # fmt: skip
    """Start a worker and send it items that take their time; return it and their ids."""

    def work(job: Job) -> None:
        assert isinstance(job.payload, int | bytes | None)
        until_us = stage.now_us + takes_ms * MS
        while stage.now_us < until_us and not (heeds_cancel and job.cancelled):
            stage.sleep_ms(10)

    worker = stage.worker([stage.handler("mail", work)], **settings)
    ids = [stage.enqueue("mail", number) for number in range(payloads)]
    stage.place(worker, stage.lease(["mail"]))
    return worker, ids


def drained(stage: Stage, worker: Worker, drain_ms: int) -> Outcome[dict[str, int]]:
    """Drain a worker; return its counts."""
    outcome = stage.begin(lambda: worker.drain(drain_ms))
    stage.wait_for(lambda: outcome.over_us is not None)
    return outcome


# --- Drain ---


def test_running_items_may_finish_and_waiting_items_are_returned_at_once(stage: Stage) -> None:
    worker, ids = working(stage, takes_ms=3_000, payloads=5, slots=2)
    stage.pass_ms(100)
    begun_us = stage.now_us
    draining = stage.begin(lambda: worker.drain(30_000))
    stage.pass_ms(20)
    for item_id in ids[2:]:
        record = stage.record(item_id)
        assert record is not None
        assert (record.lease_id, record.vesting_us <= stage.now_us) == (b"", True)
    stage.wait_for(lambda: draining.over_us is not None)
    assert draining.over_us is not None
    assert draining.over_us - begun_us < 3_100 * MS
    assert (draining.result["completed"], draining.result["returned"], draining.result["held"]) == (2, 3, 0)
    assert stage.count() == {"mail": 3}


def test_an_item_counts_in_its_kind_until_its_return_is_committed(stage: Stage) -> None:
    """Before, the manager leased another item meanwhile, and the kind was above its limit."""
    worker, _ = working(stage, takes_ms=3_000, payloads=3, slots=1)
    stage.pass_ms(100)
    seen: list[dict[str, int]] = []
    stage.store.on_commit(1, lambda: seen.append(worker.await_progress(-1).kinds))
    worker.begin_drain()
    stage.pass_ms(100)
    assert [*seen, worker.await_progress(-1).kinds] == [{"mail": 3}, {"mail": 1}]


def test_many_waiting_items_are_returned_in_one_commit(stage: Stage) -> None:
    worker, _ = working(stage, takes_ms=100_000, payloads=100, slots=1)
    before = stage.store.commits
    draining = stage.begin(lambda: worker.drain(0))
    stage.wait_for(lambda: draining.over_us is not None)
    assert draining.result["returned"] == 100
    assert stage.store.commits - before <= 3


def test_items_that_run_longer_than_the_grace_period_are_returned_and_logged(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    worker, ids = working(stage, takes_ms=60_000, payloads=1)
    stage.pass_ms(100)
    begun_us = stage.now_us
    outcome = drained(stage, worker, 2_000)
    assert outcome.over_us is not None
    assert 2_000 * MS <= outcome.over_us - begun_us < 2_100 * MS
    record = stage.record(ids[0])
    assert record is not None
    assert (record.lease_id, record.error_count, record.expiry_count) == (b"", 0, 0)
    assert outcome.result["returned"] == 1
    assert f"1 items still ran 2 s after the drain began, such as {ids[0].hex()} of kind mail" in caplog.text


def test_without_a_grace_period_every_item_is_returned(stage: Stage) -> None:
    worker, _ = working(stage, takes_ms=60_000, payloads=4, slots=2)
    stage.pass_ms(100)
    assert drained(stage, worker, 0).result["returned"] == 4
    assert stage.count() == {"mail": 4}


def test_leases_are_extended_while_a_worker_drains(stage: Stage) -> None:
    worker, _ = working(stage, takes_ms=25_000, payloads=1)
    assert drained(stage, worker, 60_000).result["completed"] == 1


def test_finished_items_are_committed_even_if_the_grace_period_is_over(stage: Stage) -> None:
    """Before, the drain did not wait for the commit, and the process ended in the middle of it."""
    worker, _ = working(stage, takes_ms=1_000, payloads=1)
    stage.pass_ms(500)
    stage.store.full = True
    stage.pass_ms(700)  # Finished, and not yet committed.
    draining = stage.begin(lambda: worker.drain(0))
    stage.pass_ms(400)
    stage.store.full = False
    stage.wait_for(lambda: draining.over_us is not None)
    assert draining.result["completed"] == 1
    assert stage.count() == {}


def test_a_drain_does_not_wait_for_ever_for_a_store_that_refuses(stage: Stage) -> None:
    worker, _ = working(stage, takes_ms=1_000, payloads=1)
    stage.store.full = True
    stage.pass_ms(2_000)
    begun_us = stage.now_us
    drained(stage, worker, 0)
    assert stage.now_us - begun_us < LEASE_MS * MS


@pytest.mark.parametrize("waits_for", ["what runs", "the store"])
def test_a_drain_takes_no_longer_because_the_clock_is_set_back(stage: Stage, waits_for: str) -> None:
    """Before, the grace period ended at a time by the clock. Set back by an hour, a drain took an hour longer."""
    worker, _ = working(stage, takes_ms=1_000 if waits_for == "the store" else 60_000, payloads=1)
    stage.store.full = waits_for == "the store"
    stage.pass_ms(2_000)
    begun_us = stage.world.now_us()
    draining = stage.begin(lambda: worker.drain(3_000))
    stage.pass_ms(500)
    stage.clock.jump(-3_600 * SECOND)
    stage.wait_for(lambda: draining.over_us is not None)
    assert stage.world.now_us() - begun_us < (3_000 + 3_000) * MS + 3 * DRAIN_FLUSH_US


def test_items_that_arrive_while_a_worker_drains_are_returned(stage: Stage) -> None:
    """They were on their way. Before, their leases had to expire."""
    worker, _ = working(stage, takes_ms=3_000, payloads=1)
    stage.begin(lambda: worker.drain(30_000))
    stage.pass_ms(10)
    late = stage.enqueue("mail")
    report = stage.place(worker, stage.lease(["mail"]))
    assert report.in_flight_limit == 0
    record = stage.record(late)
    assert record is not None
    assert (record.lease_id, record.expiry_count) == (b"", 0)


def test_a_drain_ends_as_soon_as_the_last_item_has_left(stage: Stage) -> None:
    """Before, it waited for its whole grace period unless the last item was settled."""
    worker, ids = working(stage, takes_ms=600_000, payloads=1, heeds_cancel=False)
    stage.pass_ms(100)
    stage.steal(ids[0])
    begun_us = stage.now_us
    outcome = drained(stage, worker, 60_000)
    assert outcome.over_us is not None
    assert outcome.over_us - begun_us < 15_000 * MS, "cancelled at the next extension, given up five seconds later"


def test_an_idle_worker_drains_at_once(stage: Stage) -> None:
    worker, _ = working(stage, takes_ms=1, payloads=0)
    begun_us = stage.now_us
    assert drained(stage, worker, 30_000).over_us == begun_us


def test_after_a_drain_no_loop_runs(stage: Stage) -> None:
    worker, _ = working(stage, takes_ms=100, payloads=3)
    drained(stage, worker, 30_000)
    stage.pass_ms(5_000)
    running = {task.name for task in stage.host._tasks}
    assert running <= {"supervisor"}, "every loop has ended"


# --- A store that refuses ---


def test_items_that_cannot_be_read_on_arrival_are_not_accepted(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    worker, _ = working(stage, takes_ms=10, payloads=0)
    stage.enqueue("mail", b"x" * 50_000)
    refs = stage.lease(["mail"])
    stage.store.away = True
    assert stage.place(worker, refs).held == 0
    assert stage.place(worker, refs).held == 0
    stage.store.away = False
    assert len(caplog.records) == 1, "logged once"
    assert stage.place(worker, refs).held == 1
    assert stage.settled(worker)["completed"] == 1


def test_a_transaction_that_the_store_refuses_is_no_failure_of_the_item(stage: Stage) -> None:
    """Otherwise an item of a kind with one attempt would become a dead letter because of a full disk."""
    from fairlead.actors.execution.retry import Retry

    worker = stage.worker([
        stage.handler("mail", lambda job, tr: tr.set(("done",), b"yes"), transactional=True, retry=Retry(attempts=1))
    ])  # fmt: skip
    item_id = stage.enqueue("mail")
    refs = stage.lease(["mail"])
    stage.store.full = True
    stage.place(worker, refs)
    stage.pass_ms(2_000)
    stage.store.full = False
    assert stage.settled(worker) == {"retried": 1}
    record = stage.record(item_id)
    assert record is not None
    assert (record.error_count, record.expiry_count) == (0, 0)
    assert stage.dead_letters() == []
    stage.pass_ms(1_000)
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker)["completed"] == 1


def test_a_shard_that_refuses_does_not_delay_another(stage: Stage) -> None:
    """Ends and extensions of one shard must not wait for those of another."""
    other_store, other = stage.open_shard("other")
    worker = stage.worker(
        [stage.handler("mail", lambda job: stage.sleep_ms(500)),
         stage.handler("long", lambda job: stage.sleep_ms(25_000)),
         stage.handler("slow", lambda job: stage.sleep_ms(60_000), timeout=1)],
        shards={"main": stage.shard, "other": other}, slots=8,
    )  # fmt: skip
    for kind in ("mail", "slow"):
        stage.enqueue(kind, shard=other)
    stage.place(worker, stage.lease(["mail", "slow"], shard=other))
    other_store.full = True
    for kind in ("mail", "long"):
        stage.enqueue(kind)
    stage.place(worker, stage.lease(["mail", "long"]))
    stage.pass_ms(1_500)
    assert stage.count() == {"long": 1}
    stage.pass_ms(25_000)
    assert stage.count() == {}
    assert stage.do(worker.counts)["completed"] == 2


# --- Items that cannot be run ---


def test_an_item_whose_payload_is_damaged_fails_by_itself(stage: Stage) -> None:
    """Before, all items of the same message were lost with it."""
    worker, _ = working(stage, takes_ms=10, payloads=0)
    damaged, sound = stage.enqueue("mail", 1), stage.enqueue("mail", 2)
    stage.change(damaged, payload=b"\xc1")
    stage.place(worker, stage.lease(["mail"]))
    counts = stage.settled(worker)
    assert counts["completed"] == 1
    assert stage.record(sound) is None
    record = stage.record(damaged)
    assert (record is None and len(stage.dead_letters()) == 1) or (record is not None and record.error_count == 1)


def test_an_item_of_a_tenant_that_has_moved_is_lost_and_the_others_complete(stage: Stage) -> None:
    """Before, it ended the completer's loop, and with it the worker."""
    from fairlead.zones.records import OwnerRecord

    worker, _ = working(stage, takes_ms=500, payloads=1)
    stage.enqueue("mail", tenant=BOB)
    stage.place(worker, stage.lease(["mail"], tenant=BOB))
    owner = OwnerRecord(1, b"another shard...")
    key = stage.shard.zone(ALICE).location.keys.tenant.owner
    stage.shard.transact(lambda attempt: attempt.tr.set(key, encode(owner)))
    assert stage.settled(worker) == {"completed": 1, "lost": 1}
    assert stage.count(BOB) == {}


# --- Submitted handlers ---


def shout(job: Job) -> None:
    job.transact(lambda tr: tr.set(("shouted",), job.payload.upper().encode()))


def test_a_handler_that_was_just_submitted_is_loaded_with_its_first_item(stage: Stage) -> None:
    """The manager may have loaded it a moment before the worker."""
    worker, _ = working(stage, takes_ms=1, payloads=0)
    submit(stage.shards, "shout", pack_handler("shout", shout), key=SIGNING_KEY)
    stage.enqueue("shout", "hello")
    stage.place(worker, stage.lease(["shout"]))
    assert stage.settled(worker)["completed"] == 1


def test_an_item_of_a_kind_that_the_worker_does_not_know_is_not_accepted(stage: Stage) -> None:
    worker, _ = working(stage, takes_ms=1, payloads=0)
    item_id = stage.enqueue("unknown")
    report = stage.place(worker, stage.lease(["unknown"]))
    assert report.held == 0
    assert stage.record(item_id) is not None
