"""Claims: a long job's lease costs two writes, and ends with its worker's session."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.actors.dispatch import reclaim
from fairlead.actors.execution.claim_keeper import IDLE_HEARTBEATS
from fairlead.actors.execution.claims import renewed_after_us
from fairlead.actors.execution.job import Job
from fairlead.actors.worker import Worker
from fairlead.zones.engines.api.errors import COMMIT_UNKNOWN_RESULT, TRANSACTION_TIMED_OUT, StoreError
from fairlead.zones.keyspace import ROOT, WORKER_SESSION, pack_int, range_end
from fairlead.zones.maintenance.integrity import check_integrity
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.claims import release_all
from fairlead.zones.top_level import worker_sessions
from fairlead.zones.top_level.worker_sessions import ALIVE, BEAT, CLAIM, OVER, WorkerSession
from fairlead.zones.transaction_runner import Attempt
from tests.actors.stage import ALICE, LEASE_MS, SECOND, Stage
from tests.actors.test_housekeeping import RunningHousekeeping, consumers, within_ms
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


def count_calls(monkeypatch: pytest.MonkeyPatch, name: str) -> list[tuple[Any, ...]]:
    """Return the list to which each later call of a function of the worker sessions adds its arguments."""
    function, made = getattr(worker_sessions, name), list[tuple[Any, ...]]()

    def noted(*args: Any, **how: Any) -> Any:
        made.append(args)
        return function(*args, **how)

    monkeypatch.setattr(worker_sessions, name, noted)
    return made


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
    assert stage.settled(worker, within_ms=3_000_000, every_ms=1_000) == {"completed": 1}
    assert len(ends_us) == 1 + 4


def test_hundreds_of_jobs_of_ten_minutes_cost_two_writes_each(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = 300
    claimed = count_calls(monkeypatch, "add_claim")
    worker, _ = begin(stage, lambda job: stage.sleep_ms(599_000), payloads=jobs, slots=jobs)
    before = stage.store.commits
    stage.pass_ms(20_000)
    assert stage.store.commits - before < 20 * 2 + 10, "a worker status and a heartbeat each second"
    assert stage.settled(worker, within_ms=700_000, every_ms=1_000) == {"completed": jobs}
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


@pytest.mark.parametrize("completes_after_ms", [0, CLAIMED_MS])
def test_a_handler_that_has_completed_its_item_goes_on_without_a_claim(stage: Stage, completes_after_ms: int) -> None:
    noting = Noting(stage, takes_ms=40_000)

    def work(job: Job) -> None:
        stage.sleep_ms(completes_after_ms)
        job.transact(job.complete_in)
        noting(job)

    worker, _ = begin(stage, work)
    stage.pass_ms(20_000)
    end_sessions(stage)
    assert stage.settled(worker) == {"completed": 1}
    assert (noting.cancelled_ms, noting.over) == ([], [0])


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


@pytest.mark.parametrize("how", ["away", "full"])
def test_a_shard_that_refuses_for_a_minute_ends_its_own_claims_only(stage: Stage, how: str) -> None:
    noting = Noting(stage, takes_ms=90_000)
    other, other_shard = stage.open_shard("other")
    shards = {**stage.shards, "other": other_shard}
    worker = stage.worker([stage.handler("mail", noting)], shards=shards)
    kept, lost = stage.enqueue("mail"), stage.enqueue("mail", shard=other_shard)
    stage.place(worker, [*stage.lease(["mail"]), *stage.lease(["mail"], shard=other_shard)])
    stage.pass_ms(CLAIMED_MS)
    RunningHousekeeping(stage, shards=shards)
    setattr(other, how, True)
    stage.pass_ms(60_000)
    assert len(noting.cancelled_ms) == 1
    assert claim_of(stage, kept)
    setattr(other, how, False)
    stage.pass_ms(20_000)
    record = stage.record(lost, shard=other_shard)
    assert record is not None
    assert (record.claim, record.vesting_us <= stage.now_us) == (b"", True)
    assert noting.over == []
    stage.pass_ms(30_000)
    assert noting.over == [None]
    for shard in (stage.shard, other_shard):
        assert check_integrity(shard).findings == []


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


# --- Claims of unknown result ---


def claiming_one_more(stage: Stage, noting: Noting, worker: Worker) -> bytes:
    """Send a worker that has claims one more item, whose claim is due soon; return its id."""
    item_id = stage.enqueue("mail", 99)
    stage.place(worker, stage.lease(["mail"]))
    stage.pass_ms(LEASE_MS // 3 - 300)
    assert (noting.begun[-1], claim_of(stage, item_id)) == (99, b"")
    return item_id


def next_claim_is_lost(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, *, code: int = TRANSACTION_TIMED_OUT, then: Any
) -> None:
    """Let the next claim be committed, then let `then` happen, then let its worker learn that it does not know."""
    add_claim = worker_sessions.add_claim

    def planned(*args: Any, **how: Any) -> None:
        add_claim(*args, **how)
        monkeypatch.setattr(worker_sessions, "add_claim", add_claim)
        stage.store.faults.append(Fault(applied=True, code=code, then=then))

    monkeypatch.setattr(worker_sessions, "add_claim", planned)


def test_a_claim_that_was_made_without_an_answer_is_released_once_its_handler_is_cancelled(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another claim keeps the session, so the item would wait for the end of the claim's term."""
    noting, worker, _ = claiming(stage, slots=2)
    item_id = claiming_one_more(stage, noting, worker)
    next_claim_is_lost(stage, monkeypatch, then=lambda: refuse_claims(monkeypatch))
    stage.pass_ms(LEASE_MS)
    assert len(noting.cancelled_ms) == 1, "no claim was answered for a lease"
    stage.pass_ms(3_500)
    record = stage.record(item_id)
    assert record is not None
    assert (record.claim, record.vesting_us <= stage.now_us) == (b"", True)


def test_a_worker_that_could_claim_some_items_under_a_new_session_loses_the_others(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    noting, _, ids = claiming(stage, payloads=40, slots=40)
    monkeypatch.setattr("fairlead.actors.execution.claim_keeper.CLAIM_MAX", 16)
    end_sessions(stage)
    refuse_claims(monkeypatch, but_first=16)
    stage.pass_ms(1_500)
    assert sum(bool(claim_of(stage, item_id)) for item_id in ids) == 16
    assert len(noting.cancelled_ms) == 24


def refuse_claims(monkeypatch: pytest.MonkeyPatch, *, but_first: int = 0) -> None:
    """Let the store answer no transaction that claims items, once so many are claimed."""
    left = but_first
    add_claim = worker_sessions.add_claim

    def refused(*args: Any, **how: Any) -> None:
        nonlocal left
        if not left:
            raise StoreError(TRANSACTION_TIMED_OUT)
        left -= 1
        add_claim(*args, **how)

    monkeypatch.setattr(worker_sessions, "add_claim", refused)


def test_a_session_that_began_without_an_answer_never_begins_a_second_time(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that still releases the claims of the first would release those of the second."""
    begun = count_calls(monkeypatch, "begin")
    noting = Noting(stage, takes_ms=60_000)
    begin(stage, noting)
    next_claim_is_lost(stage, monkeypatch, then=lambda: end_sessions(stage))
    stage.pass_ms(LEASE_MS)
    first, second = (args[1] for args in begun)
    assert first != second
    assert list(beats(stage)) == [second]
    assert noting.cancelled_ms == []


def test_a_session_that_one_attempt_began_does_not_begin_again_in_the_next(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = count_calls(monkeypatch, "begin")
    noting = Noting(stage, takes_ms=60_000)
    _, (item_id,) = begin(stage, noting)
    next_claim_is_lost(stage, monkeypatch, code=COMMIT_UNKNOWN_RESULT, then=lambda: end_sessions(stage))
    stage.pass_ms(LEASE_MS)
    first, second = (args[1] for args in begun)
    assert first != second
    assert (claim_of(stage, item_id), noting.cancelled_ms) == (second, [])


def answer_claims_late(stage: Stage, monkeypatch: pytest.MonkeyPatch, late_us: int) -> None:
    """Let the answer to each commit of claims be on its way for so long."""
    add_claim = worker_sessions.add_claim

    def answered_late(*args: Any, **how: Any) -> None:
        stage.store.answer_late_us = late_us
        add_claim(*args, **how)

    monkeypatch.setattr(worker_sessions, "add_claim", answered_late)


def test_a_notice_that_comes_before_the_answer_to_its_claim_is_not_lost(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.actors.execution.status_reporting.StatusReporter._write_all", lambda _: None)
    noting, worker, _ = claiming(stage, slots=2)
    item_id = claiming_one_more(stage, noting, worker)
    answer_claims_late(stage, monkeypatch, 3 * SECOND)
    stage.pass_ms(500)
    assert claim_of(stage, item_id)
    stage.shard.transact(lambda attempt: stage.shard.zone(ALICE).complete(attempt.tr, item_id, now_us=attempt.now_us))
    stage.pass_ms(1_500)
    assert len(noting.cancelled_ms) == 1


def test_a_claim_whose_answer_comes_late_is_not_made_twice(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_claims_late(stage, monkeypatch, SECOND)
    begin(stage, Noting(stage, takes_ms=60_000))
    stage.pass_ms(LEASE_MS // 3 - 300)
    before = stage.store.commits
    claimed = count_calls(monkeypatch, "add_claim")
    stage.pass_ms(5_000)
    assert len(claimed) == 1
    assert stage.store.commits - before <= 1 + 2 * 5, "a heartbeat and a worker status each second"


def test_a_session_does_not_end_while_a_claim_is_on_its_way(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a consumer releases the claim at once, and the item runs a second time."""
    noting, worker, _ = claiming(stage, takes_ms=4_500, slots=2)
    stage.settled(worker)
    (session_id,) = beats(stage)
    noting.takes_ms = 60_000
    item_id = claiming_one_more(stage, noting, worker)
    answer_claims_late(stage, monkeypatch, 5 * SECOND)
    stage.pass_ms(500)
    for _ in range(70):
        stage.pass_ms(100)
        assert claim_of(stage, item_id) == session_id
        assert list(beats(stage)) == [session_id]
    assert noting.cancelled_ms == []


def test_claims_under_a_new_session_are_made_some_at_a_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction with the records of a thousand items may be too large."""
    _, _, ids = claiming(stage, payloads=40, slots=40)
    monkeypatch.setattr("fairlead.actors.execution.claim_keeper.CLAIM_MAX", 16)
    begun, states = count_calls(monkeypatch, "begin"), count_calls(monkeypatch, "session_state_op")
    end_sessions(stage)
    stage.pass_ms(1_500)
    (session_id,) = beats(stage)
    assert {claim_of(stage, item_id) for item_id in ids} == {session_id}
    assert (len(begun), len(states)) == (1, 3)


def test_a_worker_that_stops_while_its_first_claim_is_on_its_way_ends_that_session(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, _ = begin(stage, Noting(stage, takes_ms=60_000, heeds_cancel=True))
    session_state_op = worker_sessions.session_state_op

    def slowly(*args: Any, **how: Any) -> Any:
        stage.sleep_ms(400)
        return session_state_op(*args, **how)

    monkeypatch.setattr(worker_sessions, "session_state_op", slowly)
    stage.pass_ms(LEASE_MS // 3 + 200)
    assert session_keys(stage) == {}
    stage.begin(lambda: [each.claim_keeper.stop() for each in worker._all_loops()])
    stage.pass_ms(1_000)
    assert ALIVE not in session_keys(stage)


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


@pytest.mark.parametrize("takes_ms", [60_000, 100])
def test_the_loop_of_an_abandoned_worker_ends_whether_it_has_claims_or_not(stage: Stage, takes_ms: int) -> None:
    worker, _ = begin(stage, Noting(stage, takes_ms=takes_ms))
    stage.pass_ms(CLAIMED_MS)
    (loops,) = worker._all_loops()
    stage.do(worker.abandon)
    begun_us = stage.now_us
    stage.do(lambda: loops.claim_keeper.await_end(5 * SECOND))
    assert stage.now_us - begun_us < 100_000


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


def test_a_consumer_sends_its_own_heartbeats_while_it_ends_many_sessions(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred workers died at once, and each transaction takes long."""
    session_ids = [bytes([number]) * 16 for number in range(100)]

    def begin_all(attempt: Attempt) -> None:
        for session_id in session_ids:
            worker_sessions.begin(attempt.tr, session_id, WorkerSession(b"dead", attempt.now_us), beat=session_id)

    def slowly(*args: Any, **how: Any) -> int:
        stage.sleep_ms(150)
        return release_all(*args, **how)

    monkeypatch.setattr("fairlead.actors.housekeeping.silent_sessions.release_all", slowly)
    stage.shard.transact(begin_all)
    RunningHousekeeping(stage)
    for _ in range(40):
        stage.pass_ms(1_000)
        assert [each.live for each in consumers(stage)] == [True]
    assert session_keys(stage) == {}


def test_shards_that_are_away_do_not_keep_the_claims_of_a_dead_worker_on_another(stage: Stage) -> None:
    """Each look at it comes four seconds after the one before."""
    _, _, (item_id,) = claiming(stage)
    away = [stage.open_shard(name) for name in ("first", "second", "third")]
    stage.host.kill()
    stage.host.dead = False
    for store, _ in away:
        store.silent = True
    RunningHousekeeping(stage, shards={**{shard.name: shard for _, shard in away}, **stage.shards})
    stage.pass_ms(25_000)
    assert claim_of(stage, item_id) == b""


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
