"""Claims: a long job's lease costs two writes, and ends with its worker's session."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.actors.dispatch import reclaim
from fairlead.actors.execution.claim_keeper import IDLE_HEARTBEATS, renewed_after_us
from fairlead.actors.execution.job import Job
from fairlead.actors.worker import Worker
from fairlead.zones.keyspace import ROOT, WORKER_SESSION, pack_int, range_end
from fairlead.zones.maintenance.integrity import check_integrity
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.claims import release_all
from fairlead.zones.top_level import worker_sessions
from fairlead.zones.top_level.worker_sessions import ALIVE, BEAT, CLAIM, OVER
from tests.actors.stage import ALICE, LEASE_MS, SECOND, Stage
from tests.actors.test_housekeeping import RunningHousekeeping, within_ms
from tests.actors.test_worker_leases import Noting, begin
from tests.zones.faults import Fault

TERM_US = 600 * SECOND
CLAIMED_MS = LEASE_MS // 3 + 500  # By then each lease is a claim.


@pytest.fixture
def stage() -> Stage:
    return Stage()


def session_keys(stage: Stage) -> dict[int, int]:
    """Return how many keys of each sort the worker sessions have."""
    prefix = ROOT + pack_int(WORKER_SESSION)
    found: dict[int, int] = {}
    for row in stage.shard.transact(lambda attempt: list(attempt.tr.get_range(prefix, range_end(prefix)))):
        sort = row.key[len(prefix) + 1]
        found[sort] = found.get(sort, 0) + 1
    return found


def beats(stage: Stage) -> dict[bytes, bytes]:
    """Return the last beat of each session."""
    return dict(stage.shard.transact(lambda attempt: run_one(worker_sessions.look_op(attempt.tr))).beats)


def end_sessions(stage: Stage) -> None:
    """End the sessions and release their claims, as a consumer does that has found them silent."""
    for session_id in beats(stage):
        stage.shard.transact(lambda attempt: run_one(worker_sessions.end_session_op(attempt.tr, session_id)))  # noqa: B023
        release_all(stage.shard.layout, stage.shard.transact, session_id, now_us=stage.now_us)


def claim_of(stage: Stage, item_id: bytes) -> bytes:
    record = stage.record(item_id)
    assert record is not None
    return record.claim


def claiming(stage: Stage, *, takes_ms: int = 60_000, **how: Any) -> tuple[Noting, Worker, list[bytes]]:
    """Start a worker whose items are claims by now."""
    noting = Noting(stage, takes_ms=takes_ms)
    worker, ids = begin(stage, noting, **how)
    stage.pass_ms(CLAIMED_MS)
    assert all(claim_of(stage, item_id) for item_id in ids)
    return noting, worker, ids


# --- Claims instead of extensions ---


def test_the_first_extension_of_a_lease_makes_it_a_claim(stage: Stage) -> None:
    _, worker, (item_id,) = claiming(stage, takes_ms=5_000)
    record = stage.record(item_id)
    assert record is not None
    assert list(beats(stage)) == [record.claim]
    assert record.vesting_us - stage.now_us > TERM_US - SECOND
    assert stage.settled(worker) == {"completed": 1}
    assert CLAIM not in session_keys(stage)


def test_a_job_of_ten_minutes_costs_two_writes_for_its_lease_and_one_more_for_each_nine_minutes(stage: Stage) -> None:
    ends_us = set()

    def work(job: Job) -> None:
        for _ in range(1_700):
            stage.sleep_ms(1_000)
            record = stage.record(job.id)
            assert record is not None
            ends_us.add(record.vesting_us)
            if stage.now_us - begun_us < TERM_US:
                assert len(ends_us) <= 3, "its dequeue, and two writes"

    begun_us = stage.now_us
    worker, _ = begin(stage, work)
    assert stage.settled(worker, within_ms=3_000_000) == {"completed": 1}
    assert len(ends_us) == 1 + 4


def test_a_thousand_jobs_of_ten_minutes_cost_two_writes_each(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = 1_000
    claimed = []
    add_claim = worker_sessions.add_claim

    def counted(*args: Any, **how: Any) -> None:
        claimed.append(args[2])
        add_claim(*args, **how)

    monkeypatch.setattr(worker_sessions, "add_claim", counted)
    worker, _ = begin(stage, lambda job: stage.sleep_ms(599_000), payloads=jobs, slots=jobs)
    before = stage.store.commits
    stage.pass_ms(20_000)
    assert stage.store.commits - before < 20 * 2 + 10, "a worker status and a heartbeat each second"
    assert stage.settled(worker, within_ms=700_000) == {"completed": jobs}
    assert len(claimed) == 2 * jobs


@pytest.mark.parametrize(
    ("term_s", "lease_s", "after_s"), [(600, 10, 540), (600, 60, 540), (600, 600, 200), (10, 10, 10 - 20 / 3)]
)
def test_a_claim_is_renewed_late_and_never_later_than_a_lease_would_be(
    term_s: int, lease_s: int, after_s: float
) -> None:
    assert renewed_after_us(term_s * SECOND, lease_s * SECOND) == pytest.approx(after_s * SECOND, abs=1)


def test_a_short_job_begins_no_session(stage: Stage) -> None:
    worker, _ = begin(stage, Noting(stage, takes_ms=LEASE_MS // 3 - 200), payloads=2)
    stage.settled(worker)
    stage.pass_ms(2_000)
    assert session_keys(stage) == {}


# --- Heartbeats ---


def test_a_session_has_a_heartbeat_each_second_for_all_of_its_claims(stage: Stage) -> None:
    claiming(stage, payloads=50, slots=50)
    seen: set[bytes] = set()
    for _ in range(100):
        stage.pass_ms(100)
        seen.update(beats(stage).values())
    assert 10 <= len(seen) <= 12
    assert session_keys(stage) == {ALIVE: 1, BEAT: 1, CLAIM: 50}


def test_a_session_ends_a_few_heartbeats_after_its_last_claim(stage: Stage) -> None:
    _, worker, _ = claiming(stage, takes_ms=5_000)
    stage.settled(worker)
    (before,) = beats(stage)
    stage.pass_ms((IDLE_HEARTBEATS + 4) * 1_000)
    assert session_keys(stage) == {}
    stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.pass_ms(CLAIMED_MS)
    (after,) = beats(stage)
    assert after != before


def test_a_handler_goes_on_while_the_store_is_away_for_less_than_a_lease(stage: Stage) -> None:
    noting, worker, _ = claiming(stage, takes_ms=30_000)
    stage.store.away = True
    stage.pass_ms(LEASE_MS - 1_500)
    stage.store.away = False
    assert stage.settled(worker) == {"completed": 1}
    assert noting.over == [0]


def test_a_handler_is_cancelled_when_no_heartbeat_is_answered_for_a_lease_and_its_item_vests_soon(
    stage: Stage,
) -> None:
    noting, worker, (item_id,) = claiming(stage)
    stage.store.full = True
    stage.pass_ms(LEASE_MS + 500)
    assert len(noting.cancelled_ms) == 1
    stage.store.full = False
    stage.pass_ms(3_500)
    record = stage.record(item_id)
    assert record is not None
    assert (record.claim, record.vesting_us <= stage.now_us) == (b"", True)
    assert stage.settled(worker) == {"lost": 1}
    assert check_integrity(stage.shard).findings == []


def test_a_claim_whose_end_the_store_refused_is_released(stage: Stage) -> None:
    """Otherwise its item would wait for the end of the claim's term, because the session goes on."""
    _, worker, ids = claiming(stage, takes_ms=8_000, payloads=1)
    stage.pass_ms(8_000 - CLAIMED_MS - 100)
    stage.store.full = True
    stage.pass_ms(LEASE_MS + 2_000)
    assert stage.settled(worker) == {"lost": 1}
    stage.store.full = False
    stage.pass_ms(3_500)
    record = stage.record(ids[0])
    assert record is not None
    assert (record.claim, record.vesting_us <= stage.now_us) == (b"", True)


# --- Claims that are taken away ---


def test_a_handler_whose_claimed_item_is_cancelled_stops_within_a_second(stage: Stage) -> None:
    noting, worker, (item_id, kept) = claiming(stage, payloads=2)
    stage.shard.transact(lambda attempt: stage.shard.zone(ALICE).complete(attempt.tr, item_id, now_us=attempt.now_us))
    stage.pass_ms(1_200)
    assert len(noting.cancelled_ms) == 1
    assert claim_of(stage, kept)
    assert stage.settled(worker) == {"completed": 1, "lost": 1}


def test_a_notice_that_a_commit_of_unknown_result_cleared_is_not_lost(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.actors.execution.status_reporting.StatusReporter._write_all", lambda _: None)
    noting, _, (item_id,) = claiming(stage)
    stage.shard.transact(lambda attempt: stage.shard.zone(ALICE).complete(attempt.tr, item_id, now_us=attempt.now_us))
    stage.store.faults.append(Fault(applied=True))
    stage.pass_ms(1_500)
    assert not stage.store.faults
    assert len(noting.cancelled_ms) == 1


def test_a_worker_whose_session_was_ended_goes_on_under_a_new_one_with_what_nobody_has_leased(stage: Stage) -> None:
    noting, worker, (taken, kept) = claiming(stage, payloads=2)
    (before,) = beats(stage)
    end_sessions(stage)
    stage.lease(["mail"], items_max=1)
    stage.pass_ms(1_500)
    (after,) = beats(stage)
    assert after != before
    lost, claimed = (taken, kept) if claim_of(stage, kept) else (kept, taken)
    assert (claim_of(stage, lost), claim_of(stage, claimed)) == (b"", after)
    assert len(noting.cancelled_ms) == 1
    assert stage.settled(worker) == {"completed": 1, "lost": 1}


def test_a_worker_whose_session_was_ended_loses_everything_if_the_store_refuses(stage: Stage) -> None:
    noting, _, _ = claiming(stage, payloads=2)
    end_sessions(stage)
    stage.store.full = True
    stage.pass_ms(1_500)
    assert len(noting.cancelled_ms) == 2


def test_a_claim_that_finds_its_session_ended_is_made_under_the_next(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.actors.execution.claim_keeper.HEARTBEAT_US", 3_600 * SECOND)
    noting, worker, (first,) = claiming(stage)
    later = stage.enqueue("mail", 1, priority=0)
    stage.place(worker, stage.lease(["mail"], items_max=1))
    end_sessions(stage)
    stage.pass_ms(CLAIMED_MS)
    (session_id,) = beats(stage)
    assert (claim_of(stage, first), claim_of(stage, later)) == (session_id, session_id)
    assert noting.cancelled_ms == []


# --- The end of a worker ---


def test_a_drain_gives_claims_back_at_once_and_ends_the_session_last(stage: Stage) -> None:
    _, worker, ids = claiming(stage, payloads=2)
    draining = stage.begin(lambda: worker.drain(1_000))
    stage.pass_ms(900)
    assert session_keys(stage) == {ALIVE: 1, BEAT: 1, CLAIM: 2}, "what runs may finish"
    stage.wait_for(lambda: draining.over_us is not None)
    assert session_keys(stage) == {}
    records = [stage.record(item_id) for item_id in ids]
    assert all(record is not None and record.lease_id == b"" for record in records)
    assert all(record is not None and record.vesting_us <= stage.now_us for record in records)


def test_a_worker_that_is_abandoned_gives_its_claims_back_and_ends_its_session(stage: Stage) -> None:
    _, worker, ids = claiming(stage, payloads=2)
    stage.do(worker.abandon)
    assert session_keys(stage) == {}
    assert [claim_of(stage, item_id) for item_id in ids] == [b"", b""]


def test_the_manager_of_a_dead_worker_ends_its_session_and_releases_claims_that_it_has_forgotten(
    stage: Stage,
) -> None:
    _, _, ids = claiming(stage, payloads=2)
    stage.host.kill()
    reclaim.end_sessions(stage.shards, stage.host.incarnation)
    assert session_keys(stage) == {}
    stage.host.dead = False
    assert sorted(ref.item_id for ref in stage.lease(["mail"])) == sorted(ids)


# --- Silence ---


def test_a_consumer_ends_the_session_of_a_dead_worker_and_its_items_vest_within_six_seconds(stage: Stage) -> None:
    _, _, ids = claiming(stage, payloads=3, slots=3)
    stage.host.kill()
    stage.host.dead = False
    RunningHousekeeping(stage)
    stage.pass_ms(3_500)
    assert all(claim_of(stage, item_id) for item_id in ids)
    stage.pass_ms(2_500)
    records = [stage.record(item_id) for item_id in ids]
    assert all(record is not None and record.vesting_us <= stage.now_us for record in records)
    assert [record is not None and bool(record.lease_id) for record in records] == [True] * 3
    stage.pass_ms(within_ms(stage, 2_000))
    assert session_keys(stage) == {}


def test_a_consumer_leaves_the_session_of_a_living_worker_alone(stage: Stage) -> None:
    noting, worker, _ = claiming(stage, takes_ms=120_000)
    RunningHousekeeping(stage)
    stage.pass_ms(100_000)
    assert len(beats(stage)) == 1
    assert stage.settled(worker) == {"completed": 1}
    assert noting.cancelled_ms == []


def test_a_store_that_was_away_ends_no_session(stage: Stage) -> None:
    """While it was away no worker could send a heartbeat."""
    _, worker, _ = claiming(stage, takes_ms=60_000)
    RunningHousekeeping(stage)
    (before,) = beats(stage)
    for _ in range(5):
        stage.pass_ms(3_000)
        stage.store.away = True
        stage.pass_ms(8_000)
        stage.store.away = False
    assert list(beats(stage)) == [before]
    stage.pass_ms(2_000)
    assert stage.settled(worker) == {"completed": 1}


def test_an_ended_session_with_claims_is_found_by_every_consumer(stage: Stage) -> None:
    """The consumer that has ended it may be dead."""
    _, _, (item_id,) = claiming(stage)
    stage.host.kill()
    stage.host.dead = False
    (session_id,) = beats(stage)
    stage.shard.transact(lambda attempt: run_one(worker_sessions.end_session_op(attempt.tr, session_id)))
    assert session_keys(stage) == {OVER: 1, CLAIM: 1}
    RunningHousekeeping(stage)
    stage.pass_ms(100)
    assert claim_of(stage, item_id) == b""
    assert session_keys(stage) == {}
