"""Claims: long leases that end early if the session of their worker does."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from fairlead.zones import engines
from fairlead.zones.keyspace import ROOT, WORKER_SESSION, pack_int, range_end
from fairlead.zones.layout import Tenant
from fairlead.zones.maintenance.integrity import check_integrity
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue import claims
from fairlead.zones.queue.dead_letters import move_to_dead_letters
from fairlead.zones.queue.items import Outcome
from fairlead.zones.records import OwnerRecord, encode
from fairlead.zones.top_level import worker_sessions
from fairlead.zones.top_level.worker_sessions import SessionState, WorkerSession
from tests.clocks import ManualClock
from tests.zones.colliding import collides
from tests.zones.test_store_calls import calls
from tests.zones.world import ALICE, BOB, LEASE_US, SECOND, World

ANNA, BERT = b"a\x00nna's session.", b"bert's session.."
TERM_US = 600 * SECOND


# --- What workers and consumers do ---


def claim_body(world: World, session_id: bytes, held: list[tuple[bytes, bytes]], *, begins: bool) -> Any:
    beat = world.new_id()

    def body(tr: Any) -> list[Outcome] | SessionState:
        state = run_one(worker_sessions.session_state_op(tr, session_id, begins=begins))
        if state is SessionState.OVER:
            return state
        outcomes = run_one(claims.claim_op(tr, world.zone.location, held, session_id=session_id, now_us=world.now_us))
        if state is SessionState.NEW:
            worker_sessions.begin(tr, session_id, WorkerSession(session_id[:4], world.now_us), beat=beat)
        return outcomes

    return body


def claim(world: World, session_id: bytes, item_id: bytes, lease_id: bytes, *, begins: bool = True) -> Any:
    """Claim one item; return its outcome, or that the session is over."""
    answer = world.run(claim_body(world, session_id, [(item_id, lease_id)], begins=begins))
    return answer if isinstance(answer, SessionState) else answer[0]


def claimed(world: World, session_id: bytes = ANNA, *, begins: bool = True) -> tuple[bytes, bytes]:
    """Enqueue, lease and claim an item; return its id and its lease."""
    item_id = world.enqueue()
    lease_id = world.lease(item_id)
    assert claim(world, session_id, item_id, lease_id, begins=begins) is Outcome.DONE
    return item_id, lease_id


def heartbeat(world: World, session_id: bytes = ANNA) -> dict[bytes, bytes] | None:
    """Send a heartbeat; return the lost leases by item."""
    beat = world.new_id()
    notices = world.run(lambda tr: run_one(worker_sessions.heartbeat_op(tr, world.layout, session_id, beat=beat)))
    return None if notices is None else {item_id: lease_id for (_, item_id), lease_id in notices.items()}


def end(world: World, session_id: bytes = ANNA, *, silent_since: bytes | None = None) -> bool:
    return world.run(lambda tr: run_one(worker_sessions.end_session_op(tr, session_id, silent_since=silent_since)))


def release(world: World, session_id: bytes = ANNA, claims_max: int = 10) -> int:
    """Release one batch of claims; return how many."""
    return world.run(
        lambda tr: claims.release_ended(tr, world.layout, session_id, claims_max=claims_max, now_us=world.now_us)
    ).claims


def look(world: World) -> worker_sessions.Look:
    return world.run(lambda tr: run_one(worker_sessions.look_op(tr)))


def session_keys(world: World) -> dict[int, int]:
    """Return how many keys of each sort the sessions of the shard have."""
    prefix = ROOT + pack_int(WORKER_SESSION)
    found: dict[int, int] = {}
    for key, _ in world.stored(prefix, range_end(prefix)):
        sort = key[len(prefix) + 1]
        found[sort] = found.get(sort, 0) + 1
    return found


def cancel(world: World, item_id: bytes) -> None:
    world.run(lambda tr: world.zone.complete(tr, item_id, now_us=world.now_us))


@pytest.fixture(autouse=True)
def _healthy(world: World) -> Any:
    """After each story the integrity check finds nothing."""
    yield
    assert check_integrity(world.shard).findings == []


# --- Claims ---


def test_a_claim_is_a_lease_of_the_longest_term_and_has_a_key_in_the_session(world: World) -> None:
    item_id, lease_id = claimed(world)
    record = world.record(item_id)
    assert record is not None
    assert (record.claim, record.lease_id, record.lease_us) == (ANNA, lease_id, TERM_US)
    assert record.vesting_us == world.now_us + TERM_US
    assert session_keys(world) == {worker_sessions.ALIVE: 1, worker_sessions.BEAT: 1, worker_sessions.CLAIM: 1}
    world.pass_us(TERM_US - 1)
    assert world.vested_ids() == []


def test_the_holder_completes_requeues_and_fails_a_claimed_item_and_its_key_goes(world: World) -> None:
    for_completion, for_return, for_failure = claimed(world), claimed(world), claimed(world)
    world.run(lambda tr: world.zone.complete(tr, for_completion[0], lease_id=for_completion[1], now_us=world.now_us))
    world.run(lambda tr: world.zone.requeue(tr, *for_return, delay_us=0, now_us=world.now_us))
    make_dead_letter(world, for_failure[0])
    returned = world.record(for_return[0])
    assert returned is not None
    assert returned.claim == b""
    assert world.vested_ids() == [for_return[0]]
    assert session_keys(world) == {worker_sessions.ALIVE: 1, worker_sessions.BEAT: 1}
    assert heartbeat(world) == {}


def make_dead_letter(world: World, item_id: bytes) -> None:
    record = world.record(item_id)
    assert record is not None
    world.run(
        lambda tr: move_to_dead_letters(
            tr, world.zone.location, item_id, record, reason="error", error="", traceback="", now_us=world.now_us
        )
    )


def test_a_claim_is_renewed_under_the_same_session(world: World) -> None:
    item_id, lease_id = claimed(world)
    world.pass_us(540 * SECOND)
    assert claim(world, ANNA, item_id, lease_id, begins=False) is Outcome.DONE
    record = world.record(item_id)
    assert record is not None
    assert record.vesting_us == world.now_us + TERM_US
    assert session_keys(world)[worker_sessions.CLAIM] == 1


def test_what_is_lost_or_gone_is_not_claimed(world: World) -> None:
    lost, gone = world.enqueue(), world.enqueue()
    lost_lease, gone_lease = world.lease(lost), world.lease(gone)
    world.pass_us(LEASE_US)
    world.lease(lost)
    cancel(world, gone)
    held = [(lost, lost_lease), (gone, gone_lease)]
    outcomes = world.run(claim_body(world, ANNA, held, begins=True))
    assert outcomes == [Outcome.LEASE_LOST, Outcome.GONE]
    assert worker_sessions.CLAIM not in session_keys(world)


def test_a_claim_by_a_clock_that_was_set_back_wakes_the_pointer(world: World) -> None:
    item_id, lease_id = claimed(world)
    world.process()
    world.pass_us(-3_600 * SECOND)
    assert claim(world, ANNA, item_id, lease_id, begins=False) is Outcome.DONE
    assert world.pointer_delay_us() <= TERM_US


def test_an_item_that_is_claimed_under_a_new_session_leaves_the_old_one(world: World) -> None:
    item_id, lease_id = claimed(world)
    end(world)
    assert claim(world, BERT, item_id, lease_id) is Outcome.DONE
    assert release(world) == 0
    record = world.record(item_id)
    assert record is not None
    assert (record.claim, record.vesting_us) == (BERT, world.now_us + TERM_US)


# --- Sessions ---


def test_a_session_begins_with_its_first_claim_and_cannot_be_joined_once_it_has_ended(world: World) -> None:
    item_id, lease_id = claimed(world)
    assert end(world)
    for begins in (True, False):
        assert claim(world, ANNA, item_id, lease_id, begins=begins) is SessionState.OVER
    assert heartbeat(world) is None
    assert release(world) == 1
    assert release(world) == 0
    assert heartbeat(world) is None
    assert claim(world, ANNA, item_id, lease_id, begins=False) is SessionState.OVER


def test_an_attempt_whose_session_has_begun_joins_it(world: World) -> None:
    """The first attempt had an unknown result."""
    claimed(world, begins=True)
    claimed(world, begins=True)
    assert session_keys(world) == {worker_sessions.ALIVE: 1, worker_sessions.BEAT: 1, worker_sessions.CLAIM: 2}


def test_a_session_is_listed_with_its_last_beat(world: World) -> None:
    claimed(world)
    claimed(world, BERT)
    before = look(world)
    heartbeat(world)
    after = look(world)
    assert set(before.beats) == set(after.beats) == {ANNA, BERT}
    assert before.beats[ANNA] != after.beats[ANNA]
    assert before.beats[BERT] == after.beats[BERT]


def test_the_sessions_of_a_worker_are_found(world: World) -> None:
    claimed(world)
    claimed(world, BERT)
    assert world.run(lambda tr: run_one(worker_sessions.sessions_of_op(tr, ANNA[:4]))) == [ANNA]


def test_a_session_whose_heart_beats_is_not_ended_for_an_older_silence(world: World) -> None:
    claimed(world)
    silent_since = look(world).beats[ANNA]
    heartbeat(world)
    assert not end(world, silent_since=silent_since)
    assert end(world, silent_since=look(world).beats[ANNA])


def test_an_ended_session_is_listed_until_its_last_claim_is_released(world: World) -> None:
    items = [claimed(world)[0] for _ in range(3)]
    end(world)
    assert (look(world).beats, look(world).over) == ({}, [ANNA])
    assert release(world, claims_max=2) == 2
    assert look(world).over == [ANNA]
    assert release(world, claims_max=2) == 1
    assert release(world, claims_max=2) == 0
    assert look(world).over == []
    assert sorted(world.vested_ids()) == sorted(items)
    assert session_keys(world) == {}


def test_a_session_without_claims_ends_without_a_trace(world: World) -> None:
    item_id, _ = claimed(world)
    cancel(world, item_id)
    assert end(world)
    assert session_keys(world) == {}
    assert not end(world)


# --- Release ---


def test_a_released_item_vests_now_behind_an_awake_pointer_and_its_next_lease_counts_an_expiry(world: World) -> None:
    item_id, _ = claimed(world)
    world.process()  # The pointer sleeps as long as the claim may last.
    assert world.pointer_delay_us() > 60 * SECOND
    end(world)
    release(world)
    assert world.pointer_delay_us() <= 0
    assert world.vested_ids() == [item_id]
    (leased,) = world.dequeue()
    assert leased.had_expired
    assert (leased.record.expired_count, leased.record.claim) == (1, b"")


def test_a_release_leaves_what_is_another_sessions_and_what_is_leased_again(world: World) -> None:
    item_id, _ = claimed(world)
    world.pass_us(TERM_US)
    lease_id = world.lease(item_id)
    assert claim(world, BERT, item_id, lease_id) is Outcome.DONE
    world.set(worker_sessions.claim_key(ANNA, world.zone.location, item_id), b"")  # As if the takeover had left it.
    end(world)
    assert release(world) == 0
    record = world.record(item_id)
    assert record is not None
    assert (record.claim, record.lease_id) == (BERT, lease_id)
    assert record.vesting_us == world.now_us + TERM_US


def test_a_release_leaves_an_item_of_a_tenant_that_has_moved(world: World) -> None:
    item_id, _ = claimed(world)
    owner = world.zone.location.keys.tenant.owner
    end(world)
    world.set(owner, encode(OwnerRecord(2, b"another shard's")))
    assert release(world) == 0
    world.clear(owner)
    world.clear(world.zone.location.keys.item(item_id))
    check_integrity(world.shard, repair=True)
    assert session_keys(world) == {worker_sessions.OVER: 1}


def test_a_release_goes_past_what_cannot_be_read_and_a_later_one_releases_it(world: World) -> None:
    unreadable, readable = claimed(world)[0], claimed(world)[0]
    key = world.zone.location.keys.item(unreadable)
    value = world.get(key)
    assert value is not None
    world.set(key, b"\x02newer")
    end(world)
    begin, released = b"", 0
    while True:
        batch = world.run(
            lambda tr: claims.release_ended(tr, world.layout, ANNA, claims_max=1, now_us=world.now_us, begin=begin)  # noqa: B023
        )
        released += batch.claims
        if batch.next_key is None:
            break
        begin = batch.next_key
    assert released == 1
    assert look(world).over == [ANNA]
    world.set(key, value)
    assert release(world) == 1
    assert release(world) == 0
    assert sorted(world.vested_ids()) == sorted([unreadable, readable])
    assert session_keys(world) == {}


def test_a_worker_releases_single_claims_while_its_session_goes_on(world: World) -> None:
    dropped, kept, leased_anew = claimed(world), claimed(world), claimed(world)
    world.pass_us(TERM_US)
    new_lease = world.lease(leased_anew[0])
    for item_id, lease_id in (dropped, kept, (leased_anew[0], new_lease)):
        assert claim(world, ANNA, item_id, lease_id, begins=False) is Outcome.DONE
    items = [(world.zone.location, *each) for each in (dropped, leased_anew)]
    assert world.run(lambda tr: claims.release(tr, items, session_id=ANNA, now_us=world.now_us)) == 1
    assert world.vested_ids() == [dropped[0]]
    assert session_keys(world)[worker_sessions.CLAIM] == 2


def test_a_release_of_many_zones_wakes_the_pointer_of_each(world: World) -> None:
    places = [(tenant, name) for tenant in (ALICE, BOB, Tenant("shop", "carol")) for name in ("queue", "other")]
    for tenant, name in places:
        zone = world.zone_of(tenant, name)
        world.enqueue(zone=zone)
        (leased,) = world.dequeue(zone=zone)
        held = [(leased.id, leased.record.lease_id)]
        world.run(lambda tr: run_one(claims.claim_op(tr, zone.location, held, session_id=ANNA, now_us=world.now_us)))  # noqa: B023
    world.run(lambda tr: worker_sessions.begin(tr, ANNA, WorkerSession(b"anna", 0), beat=b"1"))
    world.process()
    end(world)
    assert release(world, claims_max=100) == len(places)
    assert all(world.pointer_delay_us(world.zone_of(*place)) <= 0 for place in places)


# --- Taken away ---


def leased_again(world: World, item_id: bytes) -> None:
    world.pass_us(TERM_US)
    world.lease(item_id)


def poisoned(world: World, item_id: bytes) -> None:
    record = world.record(item_id)
    assert record is not None
    record.ran_isolated = True
    world.set(world.zone.location.keys.item(item_id), encode(record))
    world.pass_us(TERM_US)
    assert world.dequeued().dead_letters == ["mail"]


@pytest.mark.parametrize("take", [cancel, leased_again, poisoned])
def test_a_worker_is_notified_once_that_its_claim_was_taken_away(
    world: World, take: Callable[[World, bytes], None]
) -> None:
    item_id, lease_id = claimed(world)
    take(world, item_id)
    claimed(world, begins=False)
    assert session_keys(world)[worker_sessions.CLAIM] == 1
    assert heartbeat(world) == {item_id: lease_id}
    assert heartbeat(world) == {}


def test_a_dead_workers_manager_frees_the_claim_with_the_lease(world: World) -> None:
    item_id, lease_id = claimed(world)
    world.run(
        lambda tr: run_one(world.zone.extend_op(tr, [(item_id, lease_id)], lease_us=1, now_us=world.now_us, died=True))
    )
    record = world.record(item_id)
    assert record is not None
    assert (record.claim, record.lease_id, record.died) == (b"", lease_id, 1)
    assert heartbeat(world) == {}
    assert worker_sessions.CLAIM not in session_keys(world)


def test_an_extension_leaves_a_claim_a_claim(world: World) -> None:
    item_id, lease_id = claimed(world)
    world.run(lambda tr: world.zone.extend_lease(tr, item_id, lease_id, lease_us=LEASE_US, now_us=world.now_us))
    end(world)
    assert release(world) == 1


# --- Conflicts ---


def ends_session(world: World) -> Any:
    beat = look(world).beats.get(ANNA, b"")
    return lambda tr: run_one(worker_sessions.end_session_op(tr, ANNA, silent_since=beat))


def beats(world: World) -> Any:
    beat = world.new_id()
    return lambda tr: run_one(worker_sessions.heartbeat_op(tr, world.layout, ANNA, beat=beat))


def claims_another(world: World) -> Any:
    item_id = world.enqueue()
    return claim_body(world, ANNA, [(item_id, world.lease(item_id))], begins=False)


@pytest.mark.parametrize(("first", "second"), [
    (beats, ends_session), (ends_session, beats),
    (ends_session, claims_another), (ends_session, ends_session),
])  # fmt: skip
def test_the_end_of_a_session_conflicts_with_its_heartbeats_and_claims(world: World, first: Any, second: Any) -> None:
    claimed(world)
    assert collides(world.db, first(world), second(world))


def test_the_end_of_a_session_without_claims_conflicts_with_a_claim(world: World) -> None:
    """Else the session would not be listed, and nobody would release the claim."""
    cancel(world, claimed(world)[0])
    assert collides(world.db, claims_another(world), ends_session(world))


def test_claims_and_heartbeats_of_a_session_do_not_conflict(world: World) -> None:
    claimed(world)
    assert not collides(world.db, claims_another(world), beats(world))
    assert not collides(world.db, beats(world), claims_another(world))
    assert not collides(world.db, claims_another(world), claims_another(world))


def test_a_notice_conflicts_with_the_heartbeat_that_would_miss_it(world: World) -> None:
    item_id, _ = claimed(world)
    assert collides(world.db, lambda tr: world.zone.complete(tr, item_id, now_us=world.now_us), beats(world))


def test_a_completion_reads_no_session(world: World) -> None:
    item_id, lease_id = claimed(world)

    def completes(tr: Any) -> None:
        world.zone.complete(tr, item_id, lease_id=lease_id, now_us=world.now_us)

    assert not collides(world.db, beats(world), completes)


def test_two_releases_of_one_session_release_each_claim_once(world: World) -> None:
    item_id, _ = claimed(world)
    end(world)

    def releases(tr: Any) -> Any:
        return claims.release_ended(tr, world.layout, ANNA, claims_max=10, now_us=world.now_us)

    assert collides(world.db, releases, releases)
    assert world.vested_ids() == [item_id]


# --- Store calls ---


@pytest.fixture
def memory_world(clock: ManualClock) -> World:
    """One engine is enough: the calls are counted above it."""
    return World(engines.open("memory:", clock=clock, random=Random(1)), clock)


def test_a_claim_writes_one_key_more_than_an_extension(memory_world: World) -> None:
    world = memory_world
    claimed(world)
    body = claims_another(world)
    assert calls(world, body) == {
        "get": 3,  # ALIVE, ownership, record
        "set": 3,  # record, index entry, CLAIM
        "clear": 1,  # old index entry
    }


def test_a_heartbeat_of_any_number_of_claims_writes_one_key(memory_world: World) -> None:
    for _ in range(3):
        claimed(memory_world)
    assert calls(memory_world, beats(memory_world)) == {"get": 1, "get_range": 1, "set": 1}


def test_the_end_of_a_claimed_item_clears_one_key_more(memory_world: World) -> None:
    world = memory_world
    plain = world.enqueue()
    plain_lease = world.lease(plain)
    item_id, lease_id = claimed(world)
    counted = [
        calls(world, lambda tr: world.zone.complete(tr, each, lease_id=lease, now_us=world.now_us))  # noqa: B023
        for each, lease in ((plain, plain_lease), (item_id, lease_id))
    ]
    assert counted[1] == {**counted[0], "clear": counted[0]["clear"] + 1}
