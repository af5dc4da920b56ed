"""Holds: processes that lock outside of workflows, the ends of their sessions, and those who help the holders."""

from __future__ import annotations

import pytest

from fairlead.zones.engines.api.errors import NOT_COMMITTED
from fairlead.zones.errors import LockLost
from fairlead.zones.keyspace import ROOT, WORKER_SESSION, pack_int
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue import claims
from fairlead.zones.queue.items import Outcome
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.top_level import worker_sessions
from fairlead.zones.top_level.worker_sessions import ALIVE, SessionState, WorkerSession
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow import holds
from fairlead.zones.workflow.holds import Hold
from fairlead.zones.workflow.locks import HOLD_KIND, LockRequest, pack_lock
from tests.simulation.races.missing_guards import ALICES, TENANTS, Patch, read_by_snapshot
from tests.simulation.races.scene import Scene
from tests.simulation.stage import ALICE, SECOND

LOCK = pack_lock(("account", 7))
SESSION, NEXT_SESSION = b"session".ljust(16), b"next".ljust(16)
HOLD = Hold(ALICE, b"hold".ljust(16), b"lease".ljust(16))
ENDED = "its session has ended"
ALIVE_KEYS = ROOT + pack_int(WORKER_SESSION) + pack_int(ALIVE)


def takes(shard: Shard, session_id: bytes = SESSION) -> str | None:
    """Take the lock as a process does under a session that has begun; return why it did not."""

    def body(attempt: Attempt) -> str | None:
        tr, now_us, location = attempt.tr, attempt.now_us, HOLD.location(shard.layout)
        state = run_one(worker_sessions.session_state_op(tr, session_id, begins=False))
        if state is SessionState.OVER:
            return ENDED
        run_one(holds.begin_or_claim_op(tr, location, HOLD, process="process", session_id=session_id, now_us=now_us))
        waits = holds.take_all(tr, location, HOLD, [LOCK], shared=False, process="process", now_us=now_us)
        return None if waits is None else "it waits"

    return shard.transact(body)


def with_session(*, holding: bool) -> Scene:
    """Return a scene in which the session of a process has begun, and perhaps holds the lock."""
    scene = Scene()

    def begin(attempt: Attempt) -> None:
        for session_id in (SESSION, NEXT_SESSION):
            session = WorkerSession(session_id, attempt.now_us)
            worker_sessions.begin(attempt.tr, session_id, session, beat=attempt.new_id())

    scene.play(lambda: scene.shard.transact(begin))
    if holding:
        assert scene.play(lambda: takes(scene.shard)) is None
    return scene


def session_ends(scene: Scene) -> None:
    """Do what a consumer does: end the session of the process, and release what it claims."""
    shard = scene.shard

    def end() -> None:
        shard.transact(lambda attempt: run_one(worker_sessions.end_session_op(attempt.tr, SESSION)))
        claims.release_all(shard.layout, shard.transact, SESSION, now_us=scene.now_us)

    scene.play(end)


def count(scene: Scene) -> int:
    """Return how many items there are."""
    return sum(scene.has(lambda alice: alice.count()).values())


# --- A hold that begins, and the end of its session ---


def session_ends_as_its_hold_begins() -> tuple[str | None, list[int], int]:
    """Return what the process is told, its refused commits, and how many holds are left."""
    scene = with_session(holding=False)
    process = scene.role("process", takes)
    process.runs_until_commit()
    session_ends(scene)
    return process.runs(), process.refused, count(scene)


def test_a_hold_that_begins_as_its_session_ends_is_not_begun() -> None:
    assert session_ends_as_its_hold_begins() == (ENDED, [NOT_COMMITTED], 0)


def test_without_the_conflict_on_its_session_a_hold_is_left_that_no_consumer_finds(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, ALIVE_KEYS)
    assert session_ends_as_its_hold_begins() == (None, [], 1)


# --- A transaction under a lock, and the end of the session ---


def writes_under_lock(shard: Shard) -> str:
    """Write a key as `transact(under=held)` does; return whether it was written."""

    def body(attempt: Attempt) -> None:
        holds.check_held(attempt.tr, HOLD.location(shard.layout), HOLD)
        TenantTransaction(shard, ALICE, attempt).set(("balance",), b"1")

    try:
        shard.transact(body)
    except LockLost:
        return "lost"
    return "written"


def transaction_under_a_lock_that_is_lost() -> tuple[str, list[int]]:
    scene = with_session(holding=True)
    process = scene.role("process", writes_under_lock)
    process.runs_until_commit()
    session_ends(scene)
    return process.runs(), process.refused


def test_a_transaction_under_a_lock_that_is_lost_before_its_commit_writes_nothing() -> None:
    assert transaction_under_a_lock_that_is_lost() == ("lost", [NOT_COMMITTED])


def test_without_the_conflict_on_the_hold_a_transaction_writes_under_a_lost_lock(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, ALICES.item(HOLD.item_id))
    assert transaction_under_a_lock_that_is_lost() == ("written", [])


# --- Who ends a hold that has vested, and its process, which claims it again ---


def request_of_hold() -> LockRequest:
    return LockRequest(*ALICE, "queue", HOLD.item_id, HOLD.item_id, HOLD_KIND, False, "", 0, 0, "process")


def hold_is_claimed_again_as_somebody_ends_it() -> tuple[bool, list[int], Outcome, int]:
    """Return whether the other one has ended it, its refused commits, how the claim went, and the holds left."""
    scene = with_session(holding=True)
    scene.pass_us(scene.shard.layout.settings.max_item_lease_ms * 1000 + 2 * SECOND)

    def finish(shard: Shard) -> bool:
        location = HOLD.location(shard.layout)
        return shard.transact(
            lambda attempt: holds.finish(attempt.tr, location, request_of_hold(), now_us=attempt.now_us) is None
        )

    def claim() -> Outcome:
        shard = scene.shard
        held = [(HOLD.item_id, HOLD.lease_id)]
        return shard.transact(
            lambda attempt: run_one(
                claims.claim_op(
                    attempt.tr, HOLD.location(shard.layout), held, session_id=NEXT_SESSION, now_us=attempt.now_us
                )
            )[0]
        )

    other = scene.role("other", finish)
    other.runs_until_commit()
    outcome = scene.play(claim)
    return other.runs(), other.refused, outcome, count(scene)


def test_a_hold_that_its_process_claims_again_is_not_ended_by_who_meets_its_lock() -> None:
    assert hold_is_claimed_again_as_somebody_ends_it() == (False, [NOT_COMMITTED], Outcome.DONE, 1)


def test_without_the_conflict_a_hold_is_ended_though_its_process_has_just_claimed_it(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, ALICES.item(HOLD.item_id))
    assert hold_is_claimed_again_as_somebody_ends_it() == (True, [], Outcome.DONE, 0)


# --- A workflow that is expedited, and a worker that leases it ---


def item_is_leased_as_somebody_expedites_it() -> tuple[bool, list[int], Scene]:
    """The item has failed, and backs off for a second; it is leased once that is over."""
    scene = Scene()
    scene.has(lambda alice: alice.enqueue("mail"))
    (leased,) = scene.leased()

    def fail(attempt: Attempt) -> None:
        queue = scene.shard.zone(ALICE)
        queue.requeue(
            attempt.tr, leased.id, leased.record.lease_id, delay_us=SECOND, now_us=attempt.now_us, error_count=1
        )

    scene.play(lambda: scene.shard.transact(fail))
    holder = LockRequest(*ALICE, "queue", leased.id, leased.id, "mail", False, "", 0, 0)

    def expedite(shard: Shard) -> bool:
        location = shard.layout.location(ALICE, "queue")
        return shard.transact(
            lambda attempt: run_one(holds.expedite_op(attempt.tr, location, holder, now_us=attempt.now_us))
        )

    other = scene.role("other", expedite)
    other.runs_until_commit()
    scene.pass_us(SECOND)
    assert len(scene.leased()) == 1
    return other.runs(), other.refused, scene


def test_an_item_that_is_leased_as_somebody_expedites_it_keeps_its_lease() -> None:
    expedited, refused, scene = item_is_leased_as_somebody_expedites_it()
    assert (expedited, refused) == (False, [NOT_COMMITTED])
    scene.check_stored()


def test_without_the_conflict_an_item_is_expedited_that_a_worker_has_just_leased(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, TENANTS)
    expedited, refused, scene = item_is_leased_as_somebody_expedites_it()
    assert (expedited, refused) == (True, [])
    with pytest.raises(AssertionError):
        scene.check_stored()
