"""What a consumer does once a second on each shard, besides finding work."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.actors.execution import submitted_handlers
from fairlead.actors.execution.submitted_handlers import SubmittedHandlers, keep_loading, pack_handler, submit
from fairlead.actors.handlers import Registry, handler_of
from fairlead.actors.housekeeping import housekeeping, late_pointers
from fairlead.actors.housekeeping.chore_schedule import WATCHED_REST_HEARTBEATS
from fairlead.actors.housekeeping.housekeeping import Housekeeping
from fairlead.actors.housekeeping.late_pointers import LatePointerScan
from fairlead.actors.runtime.actor_identity import Identity
from fairlead.actors.scanning.partitioning import HASH_SPACE, Partition, Session
from fairlead.zones.engines.api.errors import NOT_COMMITTED, VALUE_TOO_LARGE, StoreError
from fairlead.zones.keyspace import TIME_KEY, TenantKeys
from fairlead.zones.layout import Tenant, local_tenant
from fairlead.zones.pipelining import run_one
from fairlead.zones.policy import policies
from fairlead.zones.queue.dequeue_plan import Capacity
from fairlead.zones.queue.id_retention import retain_id
from fairlead.zones.queue.periodic import period
from fairlead.zones.records import HandlerRecord
from fairlead.zones.reporting import completion_log, rollups
from fairlead.zones.shard import Shard
from fairlead.zones.top_level import sessions
from fairlead.zones.top_level.depth import depth
from fairlead.zones.top_level.process_pointers import DequeueParams, process_pointers
from fairlead.zones.top_level.sessions import LIVE_US, SessionRecord
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow.floor import RAISE_US, RAISED_KEY
from fairlead.zones.workflow.locks import HOLD_KIND
from fairlead.zones.workflow.participants import clean_up_op
from tests.actors.stage import ALICE, LEASE_MS, MS, SECOND, SIGNING_KEY, Stage


@pytest.fixture
def stage() -> Stage:
    return Stage()


def identity(stage: Stage, name: bytes = b"mine----") -> Identity:
    return Identity(name, "host", 7, stage.now_us)


def within_ms(stage: Stage, at_most_ms: int, *, rounds: int = 1) -> int:
    """Return when a chore has been done that is due within this time, and where reads cost rests between two rounds."""
    return at_most_ms + (rounds * WATCHED_REST_HEARTBEATS * 1_000 if stage.shard.layout.is_watched else 0)


class RunningHousekeeping:
    """Housekeeping that runs, and the sessions that it has set."""

    def __init__(
        self,
        stage: Stage,
        *,
        shards: dict[str, Shard] | None = None,
        periods: Any = (),
        key: bytes = SIGNING_KEY,
        allow: bool = True,
    ) -> None:
        self.sessions: dict[str, Session | None] = {}
        self.full = False
        self.registry = Registry()
        self.registry.add(handler_of("mail", lambda job: None))
        self.submitted = SubmittedHandlers(self.registry, key=key, allow=allow)
        self.housekeeping = Housekeeping(
            stage.host, shards or stage.shards, identity(stage), periods, self.submitted, self, slots=32
        )
        self.running = stage.begin(self.housekeeping.run)
        stage.pass_ms(1)

    def set_session(self, shard_name: str, session: Session | None) -> None:
        """See `ScannerHandle`."""
        self.sessions[shard_name] = session

    def was_saturated(self) -> bool:
        """See `ScannerHandle`."""
        return self.full

    @property
    def fit(self) -> dict[str, bool]:
        """Where leases may be taken."""
        return {name: session is not None for name, session in self.sessions.items()}


def consumers(stage: Stage, shard: Shard | None = None) -> list[sessions.ListedSession]:
    return (shard or stage.shard).transact(lambda tr: sessions.listing(tr.tr, now_us=tr.now_us))


def shout(job: Any) -> None:
    """A handler that is submitted."""


# --- Heartbeats ---


def test_a_consumer_writes_heartbeats_with_its_kinds(stage: Stage) -> None:
    RunningHousekeeping(stage)
    stage.pass_ms(10_000)
    (found,) = consumers(stage)
    assert (found.consumer_id, found.live) == (b"mine----", True)
    assert (found.record.host, found.record.pid, found.record.kinds) == ("host", 7, ["mail"])
    assert found.record.slots == 32
    assert stage.now_us - found.record.heartbeat_us <= SECOND


def test_a_consumer_that_stops_ends_its_session(stage: Stage) -> None:
    keeping = RunningHousekeeping(stage)
    stage.do(keeping.housekeeping.stop)
    stage.wait_for(lambda: keeping.running.over_us is not None, within_ms=100)
    assert consumers(stage) == []


def test_sessions_that_expired_long_ago_are_cleared(stage: Stage) -> None:
    dead = SessionRecord("host", 8, [], stage.now_us, stage.now_us)
    stage.shard.transact(lambda tr: sessions.heartbeat(tr.tr, b"theirs--", dead))
    RunningHousekeeping(stage)
    stage.pass_ms(70_000)
    assert [each.consumer_id for each in consumers(stage)] == [b"mine----"]


# --- Sessions ---


def another_sends_heartbeat(stage: Stage, kinds: list[str]) -> None:
    """Write a heartbeat of another consumer, whose id comes after this one's."""
    alive = SessionRecord("host", 8, kinds, stage.now_us, stage.now_us)
    stage.shard.transact(lambda tr: sessions.heartbeat(tr.tr, b"theirs--", alive))


def own(keeping: RunningHousekeeping) -> tuple[float, float]:
    """Return where a consumer's own stretch begins and ends, in parts."""
    session = keeping.sessions["main"]
    assert session is not None
    return session.partition.begin / HASH_SPACE, session.partition.end / HASH_SPACE


def test_the_only_consumer_owns_the_whole_queue_from_its_first_heartbeat_on(stage: Stage) -> None:
    assert own(RunningHousekeeping(stage)) == (0, 2)


def test_it_divides_the_queue_with_another_for_as_long_as_that_sends_heartbeats(stage: Stage) -> None:
    keeping = RunningHousekeeping(stage)
    for _ in range(8):
        another_sends_heartbeat(stage, ["mail"])
        stage.pass_ms(1_000)
    assert own(keeping) == (0, 1)
    stage.pass_ms(4_000)
    assert own(keeping) == (0, 1)
    stage.pass_ms(2_100)
    assert own(keeping) == (0, 2)


def test_it_does_not_divide_the_queue_with_a_consumer_of_other_kinds(stage: Stage) -> None:
    """The other would skip the items that only this one can run."""
    keeping = RunningHousekeeping(stage)
    another_sends_heartbeat(stage, ["fax"])
    stage.pass_ms(1_000)
    assert own(keeping) == (0, 2)


@pytest.mark.parametrize("full", [False, True])
def test_it_reports_that_it_is_full_and_reads_which_others_are_unless_it_is_too(stage: Stage, full: bool) -> None:
    keeping = RunningHousekeeping(stage)
    keeping.full = full
    alive = SessionRecord("host", 8, ["mail"], stage.now_us, stage.now_us, full=True)
    stage.shard.transact(lambda tr: sessions.heartbeat(tr.tr, b"theirs--", alive))
    stage.pass_ms(1_000)
    assert [each.record.full for each in consumers(stage)] == [full, True]
    session = keeping.sessions["main"]
    assert session is not None
    assert session.full == (() if full else (Partition(HASH_SPACE, 2 * HASH_SPACE),))


def test_a_session_lasts_from_each_heartbeat_for_as_long_as_others_wait_for_the_next(stage: Stage) -> None:
    keeping = RunningHousekeeping(stage)
    stage.pass_ms(10_000)
    stage.store.away = True
    begun_us = stage.now_us
    stage.pass_ms(10_000)
    session = keeping.sessions["main"]
    assert session is not None
    assert LIVE_US - SECOND <= session.until_us - begun_us <= LIVE_US


# --- Clocks ---


def set_time(stage: Stage, ahead_us: int) -> None:
    stage.shard.transact(lambda tr: tr.tr.set(TIME_KEY, (stage.now_us + ahead_us).to_bytes(8, "little")))


def show_another(stage: Stage) -> None:
    alive = SessionRecord("host", 8, [], stage.now_us, stage.now_us)
    stage.shard.transact(lambda tr: sessions.heartbeat(tr.tr, b"theirs--", alive))


def test_a_consumer_with_a_good_clock_may_take_leases_from_the_first_heartbeat_on(stage: Stage) -> None:
    assert RunningHousekeeping(stage).fit == {"main": True}


def test_a_clock_step_is_logged_once_and_work_continues(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeping = RunningHousekeeping(stage)
    now_us = stage.host.clock.now_us
    for hours, step in ((1, "+3600.0 s, or this process stood still or waited for a store;"), (0, "-3600.0 s;")):
        caplog.clear()
        monkeypatch.setattr(stage.host.clock, "now_us", lambda hours=hours: now_us() + hours * 3_600 * SECOND)
        stage.pass_ms(5_000)
        (logged,) = [message for message in caplog.messages if "this machine's clock has stepped" in message]
        assert step in logged
    assert keeping.fit == {"main": True}


def test_a_consumer_whose_clock_is_off_takes_no_leases_and_logs_it_once(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    set_time(stage, 3_600 * SECOND)
    show_another(stage)
    keeping = RunningHousekeeping(stage)
    for second in range(10):
        if second % 3:  # Of two beats of this consumer there may be none of another's between.
            set_time(stage, 3_600 * SECOND)
        show_another(stage)
        stage.pass_ms(1_000)
    assert keeping.fit == {"main": False}
    assert sum("this machine's clock is more than" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize("beats", [10, 11, 12])  # The list of consumers is read at every third.
def test_a_wrong_clock_does_not_take_over_if_another_consumer_has_come_since(stage: Stage, beats: int) -> None:
    """Before, it took the time over, and its ticks were due in an hour: seed 71000105."""
    keeping = RunningHousekeeping(stage)
    stage.pass_ms(1_000 * beats)
    set_time(stage, -3_600 * SECOND)
    show_another(stage)
    stage.pass_ms(1_000)
    assert keeping.fit == {"main": False}


def test_a_consumer_takes_over_the_time_of_a_shard_that_stands_still(stage: Stage) -> None:
    """A fleet that was stopped yesterday left its time in the shard."""
    set_time(stage, -86_400 * SECOND)
    keeping = RunningHousekeeping(stage)
    stage.pass_ms(5_000)
    assert keeping.fit == {"main": True}


# --- Periodic items ---


def test_a_periodic_item_is_enqueued_at_its_ticks(stage: Stage) -> None:
    RunningHousekeeping(stage, periods=[period("sweep", 2)])
    stage.pass_ms(1_000)
    tenant = local_tenant("sweep")
    zone = stage.shard.zone(tenant)
    seen = 0
    for _ in range(10):
        stage.pass_ms(2_000)
        for ref in stage.lease(["sweep"], tenant=tenant):
            seen += 1
            item = ref.item_id
            stage.shard.transact(lambda tr, item=item: zone.complete(tr.tr, item, now_us=tr.now_us))  # type: ignore[misc]
    assert 9 <= seen <= 11


# --- Submitted handlers ---


def test_a_submitted_handler_is_loaded_within_seconds(stage: Stage) -> None:
    keeping = RunningHousekeeping(stage)
    submit(stage.shards, "shout", pack_handler("shout", shout), key=SIGNING_KEY)
    stage.pass_ms(5_000 if stage.shard.layout.is_watched else 2_000)
    assert "shout" in keeping.registry.handlers
    (found,) = consumers(stage)
    assert found.record.kinds == ["mail", "shout"]


def test_an_actor_without_housekeeping_loads_them_too(stage: Stage) -> None:
    submitted = SubmittedHandlers(Registry(), key=SIGNING_KEY, allow=True)
    stage.begin(lambda: keep_loading(stage.host, submitted, stage.shards))
    submit(stage.shards, "shout", pack_handler("shout", shout), key=SIGNING_KEY)
    stage.pass_ms(2_100)
    assert list(submitted.registry.handlers) == ["shout"]


def test_a_fleet_without_a_key_logs_once_that_it_ignores_them(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Housekeeping says so for all actors of its consumer; in Ray each has handlers of its own."""
    keeping = RunningHousekeeping(stage, key=b"")
    alone = SubmittedHandlers(Registry(), key=b"", allow=True)
    stage.begin(lambda: keep_loading(stage.host, alone, stage.shards))
    for version in range(3):
        submit(stage.shards, f"shout {version}", pack_handler("shout", shout), key=SIGNING_KEY)
        stage.pass_ms(3_000)
    assert [record.levelname for record in caplog.records if "no signing key" in record.getMessage()] == ["WARNING"]
    assert list(keeping.registry.handlers) == ["mail"]


def test_actors_load_submitted_handlers_again_after_a_store_was_away(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Before, the loop ended: a worker loaded no new handlers, and a consumer sent no heartbeats."""
    submitted = SubmittedHandlers(Registry(), key=SIGNING_KEY, allow=True)
    stage.begin(lambda: keep_loading(stage.host, submitted, stage.shards))
    keeping = RunningHousekeeping(stage)
    stage.store.away = True
    stage.pass_ms(10_000)
    stage.store.away = False
    submit(stage.shards, "shout", pack_handler("shout", shout), key=SIGNING_KEY)
    stage.pass_ms(3_100)
    assert list(submitted.registry.handlers) == ["shout"]
    assert "shout" in keeping.registry.handlers
    assert [found.live for found in consumers(stage)] == [True]
    assert len([record for record in caplog.records if record.levelname != "INFO"]) <= 2, "logged once each"


def test_a_slow_import_ends_no_session(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, it was imported between two heartbeats: the consumer's parts went to others, or the fleet failed."""
    unpacked = submitted_handlers._unpacked

    def slowly(record: HandlerRecord) -> Any:
        stage.host.clock.sleep_us(60 * SECOND)
        return unpacked(record)

    monkeypatch.setattr(submitted_handlers, "_unpacked", slowly)
    keeping = RunningHousekeeping(stage)
    submit(stage.shards, "shout", pack_handler("shout", shout), key=SIGNING_KEY)
    for _ in range(50):
        stage.pass_ms(1_000)
        assert [found.live for found in consumers(stage)] == [True]
        assert list(keeping.registry.handlers) == ["mail"]
    stage.pass_ms(20_000)
    assert list(keeping.registry.handlers) == ["mail", "shout"]
    assert stage.host.supervisor.failure is None


def test_an_unknown_kind_is_logged_once(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """A misspelt kind was accepted everywhere, and the fleet logged nothing."""
    RunningHousekeeping(stage)
    stage.enqueue("mial")
    stage.enqueue("mail")
    stage.pass_ms(within_ms(stage, 40_000, rounds=6))
    messages = [
        (each.levelname, each.getMessage()) for each in caplog.records if "no live consumer" in each.getMessage()
    ]
    logged = "shard main: items of kind mial wait, and no live consumer has a handler for it; nearest: mail"
    assert messages == [("WARNING", logged)]


def test_a_lock_that_a_process_holds_is_no_item_of_an_unknown_kind(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Each worker ends holds, but no session lists their kind, which no user has named."""
    RunningHousekeeping(stage)
    stage.enqueue(HOLD_KIND)
    stage.pass_ms(within_ms(stage, 40_000, rounds=6))
    assert stage.shard.transact(lambda attempt: depth(attempt.tr, stage.shard.layout)).kinds == {HOLD_KIND: 1}
    assert "no live consumer" not in caplog.text


# --- Stores ---


def test_a_shard_that_is_away_does_not_delay_heartbeats_on_others(stage: Stage) -> None:
    store, other = stage.open_shard("other")
    store.away = True
    keeping = RunningHousekeeping(stage, shards={"other": other, "main": stage.shard})
    stage.pass_ms(5_000)
    assert keeping.fit == {"main": True}
    assert stage.now_us - consumers(stage)[0].record.heartbeat_us <= SECOND + 10 * MS
    store.away = False
    stage.pass_ms(1_100)
    assert keeping.fit == {"main": True, "other": True}


def test_a_cluster_that_does_not_answer_ends_no_session_on_another(stage: Stage) -> None:
    """It refuses nothing: a request waits, and later requests wait for it."""
    store, other = stage.open_shard("other")
    keeping = RunningHousekeeping(stage, shards={"other": other, "main": stage.shard}, allow=True)
    stage.pass_ms(2_000)
    store.silent = True
    for _ in range(300):
        stage.pass_ms(100)
        session = keeping.sessions["main"]
        assert session is not None
        assert session.until_us > stage.now_us
    store.silent = False
    stage.pass_ms(5_100)
    assert stage.now_us - consumers(stage, other)[0].record.heartbeat_us <= SECOND + 10 * MS
    store.silent = True
    stage.do(keeping.housekeeping.stop)
    stage.wait_for(lambda: keeping.running.over_us is not None, within_ms=4_000)


# --- Kinds that go on after a pause ---


def test_pointers_that_an_interrupted_resume_left_asleep_are_woken_within_a_heartbeat(stage: Stage) -> None:
    """`fairlead resume` may be interrupted between the two."""
    stage.enqueue("mail")
    transact = stage.shard.transact
    transact(lambda attempt: policies.change_kind_policy(attempt.tr, "mail", now_us=attempt.now_us, paused=True))
    (ref,) = stage.pointers()
    terms = DequeueParams(stage.now_us, b"l" * 16, LEASE_MS * MS, 10, SECOND, SECOND)
    transact(lambda attempt: process_pointers(attempt.tr, stage.shard.layout, [ref], Capacity(10, {"mail": 10}), terms))
    RunningHousekeeping(stage)
    stage.pass_ms(2_000)
    assert stage.pointers() == []
    transact(lambda attempt: policies.change_kind_policy(attempt.tr, "mail", now_us=attempt.now_us, paused=False))
    stage.pass_ms(within_ms(stage, 1_100))
    assert len(stage.pointers()) == 1


# --- Clocks that were ahead ---


def test_pointers_that_a_clock_that_was_ahead_put_to_sleep_are_woken_within_seconds(stage: Stage) -> None:
    """Before, only a new enqueue to the same queue, or a repair, woke it."""
    for _ in range(2):
        stage.enqueue("mail")
    stage.clock.jump(3_600 * SECOND)
    transact = stage.shard.transact
    (ref,) = stage.pointers()
    terms = DequeueParams(stage.now_us, bytes(16), SECOND, 1, 1, 1)
    transact(lambda attempt: process_pointers(attempt.tr, stage.shard.layout, [ref], Capacity(10, {"mail": 10}), terms))
    stage.clock.jump(0)
    assert stage.pointers() == []
    RunningHousekeeping(stage)
    stage.pass_ms(20_000)
    assert stage.pointers() == [ref._replace(vesting_us=stage.pointers()[0].vesting_us)]


def test_pointers_that_oversleep_are_woken_in_seconds_beside_many_that_may_sleep_for_long(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, 64 entries of a part were read per heartbeat, and there may be thousands of tenants with delayed items.

    Here these are 240, and the limits the smaller.
    """
    for limit, entries in (("LATE_MAX", 2), ("URGENT_MAX", 10)):
        monkeypatch.setattr(late_pointers, limit, entries)
    monkeypatch.setattr(housekeeping, "HEARTBEAT_ENTRIES_MAX", 40)
    for number in range(240):
        stage.enqueue("mail", tenant=Tenant("shop", f"later {number}"), delay=10 * 24 * 3600)
    for number in [*range(20)] * 2:
        stage.enqueue("mail", tenant=Tenant("shop", f"now {number}"))
    stage.clock.jump(3_600 * SECOND)
    RunningHousekeeping(stage)
    refs, layout = stage.pointers(), stage.shard.layout
    terms = DequeueParams(stage.now_us, bytes(16), SECOND, 1, 1, 1)
    stage.shard.transact(
        lambda attempt: process_pointers(attempt.tr, layout, refs, Capacity(100, {"mail": 100}), terms)
    )
    stage.pass_ms(2_000)
    stage.clock.jump(0)
    assert stage.pointers() == []
    stage.pass_ms(15_000)
    assert len(stage.pointers()) == 20
    messages = [each.getMessage() for each in caplog.records if "queues to sleep for longer" in each.getMessage()]
    assert 1 <= len(messages) <= 12


def test_a_consumer_whose_clock_is_set_back_searches_all_its_parts() -> None:
    late = LatePointerScan()
    parts = range(3, 35)
    assert late.next_parts(parts) == [3, 4]
    late.make_urgent()
    assert sorted(late.next_parts(parts)) == list(parts)
    for part in parts:
        late.note(part, b"further" if part == 7 else b"", parts)
    assert late.next_parts(parts) == [7], "the others have been read"
    assert late.ends[7] == b"further"
    late.note(7, b"", parts)
    assert not late.is_urgent
    seen = [part for _ in range(16) for part in late.next_parts(parts)]
    assert sorted(seen) == list(parts)
    assert late.next_parts(range(0)) == []


# --- What goes wrong ---


def test_an_unexpected_error_ends_the_loop_and_reaches_its_supervisor(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, it was caught and logged each second, and the consumer counted as healthy."""

    def broken(*_: Any, **__: Any) -> None:
        raise OverflowError("can't convert negative int to unsigned")

    monkeypatch.setattr(completion_log, "compact", broken)
    keeping = RunningHousekeeping(stage)
    stage.pass_ms(100)
    assert isinstance(keeping.running.error, OverflowError)


def test_a_period_of_a_damaged_tenant_stops_no_other_and_no_heartbeat(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    damaged, sound = local_tenant("damaged"), local_tenant("sound")
    stage.shard.transact(lambda attempt: attempt.tr.set(TenantKeys(*damaged).owner, b"\x63"))
    keeping = RunningHousekeeping(stage, periods=[period(each, 2) for each in ("damaged", "sound")])
    stage.pass_ms(10_000)
    assert stage.count(sound)["sound"] >= 4
    assert keeping.fit == {"main": True}
    (found,) = consumers(stage)
    assert stage.now_us - found.record.heartbeat_us <= SECOND
    assert len([each for each in caplog.records if "tick of damaged" in each.message]) == 1


def test_a_completion_log_that_cannot_be_written_keeps_no_work_asleep(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> bool:
        raise StoreError(VALUE_TOO_LARGE)

    monkeypatch.setattr(rollups, "sum_up", refused)
    monkeypatch.setattr(housekeeping, "wake_paused_pointers", lambda tr, layout, *, now_us: tr.set(b"woken", b"") or 1)
    RunningHousekeeping(stage)
    stage.pass_ms(1_500)
    assert stage.shard.transact(lambda attempt: attempt.tr.get(b"woken").present())


def test_expiring_ids_that_conflicts_again_and_again_delays_no_heartbeat(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many consumers expire the same keys at the same time; it was part of the heartbeat's transaction."""

    def collides(*_: Any, **__: Any) -> int:
        raise StoreError(NOT_COMMITTED)

    monkeypatch.setattr(housekeeping, "expire", collides)
    keeping = RunningHousekeeping(stage)
    stage.pass_ms(10_000)
    assert keeping.fit == {"main": True}
    (found,) = consumers(stage)
    assert stage.now_us - found.record.heartbeat_us <= 2 * SECOND


def test_retained_ids_expire(stage: Stage) -> None:
    location = stage.shard.zone(ALICE).location
    until_us = stage.now_us + 2 * SECOND
    stage.shard.transact(lambda attempt: retain_id(attempt.tr, location, bytes(16), until_us))
    RunningHousekeeping(stage)
    key = location.keys.retained_id(bytes(16))
    stage.pass_ms(1_500)
    assert stage.shard.transact(lambda attempt: attempt.tr.get(key).present())
    stage.pass_ms(within_ms(stage, 3_000, rounds=stage.shard.layout.part_count))
    assert not stage.shard.transact(lambda attempt: attempt.tr.get(key).present())


def test_no_id_expires_by_a_clock_that_has_stepped_since_it_was_checked(stage: Stage) -> None:
    """Seed 4000102: an hour's step between the two expired retained ids."""
    location = stage.shard.zone(ALICE).location
    until_us = stage.now_us + 60 * SECOND
    stage.shard.transact(lambda attempt: retain_id(attempt.tr, location, bytes(16), until_us))
    keeping = RunningHousekeeping(stage)

    def step_ahead(shard_name: str, session: Session | None) -> None:
        stage.clock.jump(3_600 * SECOND)

    def step_back() -> bool:
        stage.clock.jump(0)
        return False

    keeping.set_session = step_ahead  # type: ignore[method-assign]
    keeping.was_saturated = step_back  # type: ignore[method-assign]
    stage.pass_ms(within_ms(stage, 3_000, rounds=stage.shard.layout.part_count))
    assert stage.shard.transact(lambda attempt: attempt.tr.get(location.keys.retained_id(bytes(16))).present())


def test_a_chore_that_a_store_refuses_for_long_is_logged_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While a disk was full there was a line per chore and second."""

    def refused(*_: Any, **__: Any) -> bool:
        raise StoreError(VALUE_TOO_LARGE)

    caplog.set_level("INFO")
    with monkeypatch.context() as patch:
        patch.setattr(rollups, "sum_up", refused)
        RunningHousekeeping(stage)
        stage.pass_ms(10_000)
    stage.pass_ms(2_000)
    monkeypatch.setattr(rollups, "sum_up", refused)
    stage.pass_ms(within_ms(stage, 5_000))
    assert len([each for each in caplog.records if "put off (summing up)" in each.message]) == 2, "once each time"


def test_tombstones_are_cleared_within_a_minute_once_the_day_is_over(stage: Stage) -> None:
    keys, run = stage.shard.zone(ALICE).location.keys.tenant, bytes(16)

    def end_a_run(attempt: Attempt) -> None:
        run_one(clean_up_op(attempt.tr, stage.shard.layout, ALICE, keys, run, now_us=attempt.now_us))

    def is_there() -> bool:
        return stage.shard.transact(lambda attempt: attempt.tr.get(keys.fence(run)).present())

    raised = (stage.now_us - RAISE_US + 90 * SECOND).to_bytes(8, "big")
    stage.shard.transact(lambda attempt: attempt.tr.set(RAISED_KEY, raised))
    stage.shard.transact(end_a_run)
    RunningHousekeeping(stage)
    stage.pass_ms(80_000)
    assert is_there()
    stage.pass_ms(70_000)
    assert not is_there()
