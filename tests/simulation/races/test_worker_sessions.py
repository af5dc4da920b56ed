"""A worker's session, its claims, and a consumer that ends the session."""

from __future__ import annotations

import pytest

from fairlead.actors.execution import status_reporting
from fairlead.actors.execution.job import Job
from fairlead.actors.handlers import handler_of
from fairlead.zones.engines.api.errors import NOT_COMMITTED
from fairlead.zones.keyspace import ROOT, WORKER_SESSION, pack_int
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue import claims
from fairlead.zones.queue.items import Outcome
from fairlead.zones.shard import Shard
from fairlead.zones.top_level import worker_sessions
from fairlead.zones.top_level.worker_sessions import ALIVE, BEAT, CLAIM, OVER, SessionState
from fairlead.zones.transaction_runner import Attempt
from tests.simulation.mutations.mutation import mutation
from tests.simulation.races.missing_guards import Patch, planted, read_by_snapshot, read_ranges_by_snapshot
from tests.simulation.races.scene import Scene, WorkerRole
from tests.simulation.stage import ALICE, SECOND

CLAIMED_US = 4 * SECOND  # A third of a lease, and a moment.


@pytest.fixture(autouse=True)
def _no_worker_status(monkeypatch: Patch) -> None:
    """Let only the session inform the worker. It also finds lost items when it writes its status."""
    monkeypatch.setattr(status_reporting, "STATUS_US", 3600 * SECOND)


def key_of(sort: int) -> bytes:
    """Return the prefix of all keys of a sort."""
    return ROOT + pack_int(WORKER_SESSION) + pack_int(sort)


class LongMail:
    """A worker that has claimed a mail, whose handler runs for as long as it is not cancelled."""

    def __init__(self, scene: Scene, *, mails: int = 1) -> None:
        self.scene = scene
        self.cancelled = 0
        for _ in range(mails):
            scene.has(lambda alice: alice.enqueue("mail"))
        self.worker: WorkerRole = scene.worker([handler_of("mail", self._run)], scene.leased())
        self.worker.runs()
        scene.pass_us(CLAIMED_US)
        assert self.keys(CLAIM) == mails

    def _run(self, job: Job) -> None:
        while not job.cancelled:
            self.worker.host.clock.sleep_us(10_000)
        self.cancelled += 1

    def keys(self, sort: int) -> int:
        """Return how many keys of a sort there are."""
        return len(self.scene.replica.worker_sessions.get(sort, {}))

    @property
    def session_id(self) -> bytes:
        """The session that has not ended."""
        ((session_id,),) = self.scene.replica.worker_sessions[ALIVE]
        assert isinstance(session_id, bytes)
        return session_id

    def end(self, shard: Shard) -> bool:
        """End the session, as a consumer does that sees its present heartbeat for the fifth time."""
        session_id = self.session_id
        beat = self.scene.replica.worker_sessions[BEAT][session_id,]

        def body(attempt: Attempt) -> bool:
            return run_one(worker_sessions.end_session_op(attempt.tr, session_id, silent_since=beat))

        return shard.transact(body)

    def release(self, session_id: bytes) -> None:
        """Release the claims of an ended session."""
        shard = self.scene.shard
        self.scene.play(lambda: claims.release_all(shard.layout, shard.transact, session_id, now_us=self.scene.now_us))


# --- The end of a session, and a heartbeat ---


def a_heartbeat_comes_while_a_consumer_ends_the_session(mail: LongMail) -> tuple[bool, list[int]]:
    consumer = mail.scene.role("consumer", mail.end)
    consumer.runs_until_commit()
    mail.scene.pass_us(SECOND + SECOND // 10)
    return consumer.runs(), consumer.refused


def test_a_session_whose_heartbeat_comes_just_before_its_end_goes_on() -> None:
    mail = LongMail(Scene())
    assert a_heartbeat_comes_while_a_consumer_ends_the_session(mail) == (False, [NOT_COMMITTED])
    assert (mail.keys(ALIVE), mail.cancelled) == (1, 0)


def test_without_the_conflict_on_the_beat_a_session_ends_although_its_heart_beats(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, key_of(BEAT))
    mail = LongMail(Scene())
    assert a_heartbeat_comes_while_a_consumer_ends_the_session(mail) == (True, [])


def a_session_ends_while_its_heartbeat_is_on_its_way(mail: LongMail) -> list[int]:
    mail.worker.runs_until_commit(of="claim keeper")
    mail.scene.play(lambda: mail.end(mail.scene.shard))
    mail.worker.goes_on(SECOND // 2)
    return mail.worker.refused


def test_a_heartbeat_of_a_session_that_has_just_ended_fails_and_its_worker_claims_under_a_new_one() -> None:
    mail = LongMail(Scene())
    before = mail.session_id
    assert a_session_ends_while_its_heartbeat_is_on_its_way(mail) == [NOT_COMMITTED]
    assert mail.session_id != before
    assert (mail.keys(ALIVE), mail.keys(BEAT), mail.keys(CLAIM), mail.cancelled) == (1, 1, 1, 0)


def test_without_the_conflict_a_heartbeat_leaves_the_beat_of_an_ended_session(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, key_of(ALIVE))
    mail = LongMail(Scene())
    assert a_session_ends_while_its_heartbeat_is_on_its_way(mail) == []
    assert (mail.keys(ALIVE), mail.keys(BEAT)) == (0, 1)


def a_session_ends_between_two_heartbeats(mail: LongMail) -> None:
    mail.scene.play(lambda: mail.end(mail.scene.shard))
    mail.worker.goes_on(2 * SECOND)


def test_the_next_heartbeat_finds_that_its_session_has_ended_and_its_worker_claims_under_a_new_one() -> None:
    mail = LongMail(Scene())
    before = mail.session_id
    a_session_ends_between_two_heartbeats(mail)
    assert mail.session_id != before
    assert (mail.keys(BEAT), mail.keys(CLAIM), mail.cancelled) == (1, 1, 0)


def test_without_a_look_at_the_session_its_worker_goes_on_without_one() -> None:
    mail = LongMail(Scene())
    blind = mutation(
        "a heartbeat does not find out that its session has ended",
        (worker_sessions.heartbeat_op, "if alive.value is None:", "if False:"),
        found_by=[],
    )
    with blind.planted():
        a_session_ends_between_two_heartbeats(mail)
    assert (mail.keys(ALIVE), mail.keys(BEAT)) == (0, 1)


# --- The end of a session, and a claim ---


def a_session_ends_while_a_claim_is_on_its_way(mail: LongMail) -> tuple[SessionState | Outcome, list[int]]:
    """Its claims are all released before the claim arrives, and it is forgotten."""
    scene, session_id = mail.scene, mail.session_id
    scene.has(lambda alice: alice.enqueue("mail"))
    (item,) = scene.leased()
    held = [(item.id, item.record.lease_id)]

    def claim(attempt: Attempt) -> SessionState | Outcome:
        tr = attempt.tr
        state = run_one(worker_sessions.session_state_op(tr, session_id, begins=False))
        if state is SessionState.OVER:
            return state
        location = scene.shard.zone(ALICE).location
        return run_one(claims.claim_op(tr, location, held, session_id=session_id, now_us=attempt.now_us))[0]

    claimer = scene.role("claimer", lambda shard: shard.transact(claim))
    claimer.runs_until_commit()
    scene.play(lambda: mail.end(scene.shard))
    mail.release(session_id)
    return claimer.runs(), claimer.refused


def test_a_claim_that_comes_just_after_the_end_of_its_session_is_refused() -> None:
    mail = LongMail(Scene())
    answer = a_session_ends_while_a_claim_is_on_its_way(mail)
    assert answer == (SessionState.OVER, [NOT_COMMITTED])
    assert mail.keys(OVER) == 0


def test_without_the_conflict_on_the_session_nobody_releases_that_claim(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, key_of(ALIVE))
    mail = LongMail(Scene())
    session_id = mail.session_id
    assert a_session_ends_while_a_claim_is_on_its_way(mail) == (Outcome.DONE, [])
    left = [key for key in mail.scene.replica.worker_sessions[CLAIM] if key[0] == session_id]
    assert (len(left), mail.keys(OVER)) == (1, 0)


# --- Notices ---


def a_mail_is_cancelled_while_a_heartbeat_is_on_its_way(mail: LongMail) -> int:
    mail.worker.runs_until_commit(of="claim keeper")
    (item_id,) = mail.scene.zone.items
    mail.scene.has(lambda alice: alice.cancel(item_id))
    mail.worker.goes_on(3 * SECOND)
    return mail.cancelled


def test_a_notice_that_comes_while_a_heartbeat_is_on_its_way_is_read_by_the_next() -> None:
    mail = LongMail(Scene())
    assert a_mail_is_cancelled_while_a_heartbeat_is_on_its_way(mail) == 1


def test_without_a_notice_the_handler_of_a_cancelled_item_goes_on(monkeypatch: Patch) -> None:
    take_away = worker_sessions.take_away

    def silently(*args: object, **how: object) -> None:
        take_away(*args, **{**how, "notify": False})  # type: ignore[arg-type]

    monkeypatch.setattr(worker_sessions, "take_away", silently)
    mail = LongMail(Scene())
    assert a_mail_is_cancelled_while_a_heartbeat_is_on_its_way(mail) == 0


# --- A session without claims ---


def a_session_without_claims_ends_while_it_claims(mail: LongMail) -> int:
    """Return how many claims are left of a session that is not listed."""
    (item_id,) = mail.scene.zone.items
    session_id = mail.session_id
    mail.scene.has(lambda alice: alice.cancel(item_id))
    consumer = mail.scene.role("consumer", mail.end)
    consumer.runs_until_commit()
    mail.scene.plant(
        worker_sessions.claim_key(session_id, mail.scene.location, bytes(16)), b""
    )  # As by a claim that read the session before.
    consumer.runs()
    return mail.keys(CLAIM) - mail.keys(OVER)


def test_a_session_that_claims_while_it_ends_is_listed() -> None:
    assert a_session_without_claims_ends_while_it_claims(LongMail(Scene())) == 0


def test_without_the_conflict_on_its_claims_it_is_not_listed(monkeypatch: Patch) -> None:
    mail = LongMail(Scene())
    read_ranges_by_snapshot(monkeypatch)
    assert a_session_without_claims_ends_while_it_claims(mail) == 1


# --- Machines ---


def a_machine_fails(scene: Scene) -> tuple[int, int]:
    """Return when, and how many of its three items vest within ten seconds."""
    mail = LongMail(scene, mails=3)
    scene.housekeeper("another", kinds=["mail"]).goes_on(3 * SECOND)
    mail.worker.host.kill()
    failed_us = scene.now_us
    vested: list[int] = []
    while len(vested) < 3 and scene.now_us < failed_us + 10 * SECOND:
        scene.pass_us(SECOND // 10)
        vested = [record.vesting_us for record in scene.zone.items.values() if record.vesting_us <= scene.now_us]
    return failed_us, len(vested)


def test_without_the_end_of_its_session_the_items_of_a_machine_that_has_failed_wait() -> None:
    with planted("no consumer ends the session of a dead worker"):
        assert a_machine_fails(Scene())[1] == 0


def test_the_items_of_a_machine_that_has_failed_are_leased_again_within_seven_seconds() -> None:
    scene = Scene()
    failed_us, _ = a_machine_fails(scene)
    assert 4 * SECOND <= scene.now_us - failed_us <= 6 * SECOND
    assert scene.late_us <= 0
    assert len(scene.leased()) == 3
    assert scene.now_us - failed_us <= 7 * SECOND


def test_a_worker_that_was_paused_for_longer_stops_what_another_has_leased_and_keeps_the_rest() -> None:
    scene = Scene()
    mail = LongMail(scene, mails=2)
    scene.housekeeper("another", kinds=["mail"]).goes_on(3 * SECOND)
    mail.worker.host.paused_until_us = scene.now_us + 9 * SECOND
    scene.pass_us(8 * SECOND)
    assert [record.claim for record in scene.zone.items.values()] == [b"", b""]
    capacity_one = next(iter(scene.zone.items))
    scene.play(lambda: scene.shard.transact(lambda attempt: scene.shard.zone(ALICE).obtain_lease(
        attempt.tr, capacity_one, lease_id=attempt.new_id(), lease_us=10 * SECOND, now_us=attempt.now_us
    )))  # fmt: skip
    scene.pass_us(3 * SECOND)
    assert mail.cancelled == 1
    claimed = [record.claim for record in scene.zone.items.values()]
    assert sorted(claimed) == [b"", mail.session_id]
