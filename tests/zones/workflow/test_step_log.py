"""The step log at home, fences and tombstones at participants, and signals: each transaction by itself."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from fairlead.zones.errors import ItemGone, LeaseLost
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue import claims
from fairlead.zones.queue.items import pack_payload
from fairlead.zones.top_level import worker_sessions
from fairlead.zones.workflow import participants, signals, step_log
from fairlead.zones.workflow.participants import AskAgain, ForeignStep
from fairlead.zones.workflow.run_end import CLEANUP_KIND, end_run_op
from fairlead.zones.workflow.run_records import (
    ParticipantState,
    RunHead,
    StepEntry,
    StepKind,
    StepState,
    participant_key,
)
from fairlead.zones.workflow.step_log import Append, HeldRun, StepName, StoredRun
from fairlead.zones.workflow.suspension import AwaitedSignal, Wait, suspend_op
from tests.zones.world import BOB, LEASE_US, SECOND, World

RESERVE = StepName("reserve", 0)
RUN_ID = b"r" * 16


def entry(ordinal: int = 0, result: Any = None) -> StepEntry:
    return StepEntry(ordinal, StepKind.STEP, b"digest", StepState.DONE, 1, pack_payload(result))


def held_run(world: World, item_id: bytes) -> HeldRun:
    return HeldRun(world.zone.location, item_id, world.lease(item_id), item_id)


def append(world: World, held: HeldRun, added: Append) -> None:
    def body(tr: Any) -> None:
        record = run_one(step_log.check_held_op(tr, held))
        step_log.append(tr, held, record, RunHead(1, 0), added, head_changed=False)

    world.run(body)


def stored(world: World, run: bytes) -> StoredRun:
    found = StoredRun()
    assert not world.run(lambda tr: step_log.read_run(tr, world.zone.location, run, found))
    return found


def foreign(world: World, place: ParticipantState, *, lease_number: int = 1) -> ForeignStep:
    return ForeignStep(world.zone_of(BOB).location.keys.tenant, RUN_ID, lease_number, 0, RESERVE, place)


def asked(world: World) -> ParticipantState:
    keys = world.zone_of(BOB).location.keys.tenant
    return world.run(lambda tr: run_one(participants.ask_op(tr, world.layout, keys)))


def do_foreign_step(world: World, step: ForeignStep) -> StepEntry | None:
    def body(tr: Any) -> StepEntry | None:
        found = run_one(participants.begin_step_op(tr, world.layout, step))
        if found is None:
            participants.end_step(tr, step, entry())
        return found

    return world.run(body)


def clean_up(world: World) -> None:
    keys = world.zone_of(BOB).location.keys.tenant
    world.run(lambda tr: run_one(participants.clean_up_op(tr, world.layout, BOB, keys, RUN_ID, now_us=world.now_us)))


# --- At home ---


def test_what_is_appended_under_a_lease_is_read_by_the_next_attempt(world: World) -> None:
    held = held_run(world, world.enqueue())
    append(world, held, Append([(RESERVE, entry(result=7))], [(BOB, ParticipantState(0, 3))]))
    found = stored(world, held.run)
    assert found.head is not None
    assert found.entries[RESERVE].result == pack_payload(7)
    assert found.participants == {BOB: ParticipantState(0, 3)}


def test_who_has_lost_the_lease_cannot_append(world: World) -> None:
    held = held_run(world, world.enqueue())
    world.pass_us(LEASE_US)
    world.lease(held.item_id)
    with pytest.raises(LeaseLost):
        append(world, held, Append([(RESERVE, entry())]))
    assert stored(world, held.run) == StoredRun()


def test_a_late_commit_does_not_put_an_older_head_in_place_of_a_newer_one(world: World) -> None:
    """The result of a checkpoint's commit is unknown, and it is made again; another one follows."""
    held = held_run(world, world.enqueue())

    def begin_segment(tr: Any, segment: int) -> None:
        record = run_one(step_log.check_held_op(tr, held))
        step_log.append(tr, held, record, RunHead(1, 0, segment), Append(), head_changed=True)

    world.run(lambda tr: begin_segment(tr, 0))
    late = world.db.create_transaction()
    begin_segment(late, 1)
    for segment in (1, 2):
        world.run(partial(begin_segment, segment=segment))
    with pytest.raises(world.db.errors):
        late.commit().wait()
    head = stored(world, held.run).head
    assert head is not None
    assert head.segment == 2


def test_each_lease_has_a_number_that_is_higher_than_those_before(world: World) -> None:
    item_id = world.enqueue()
    for number in range(1, 4):
        world.lease(item_id)
        record = world.record(item_id)
        assert record is not None
        assert record.lease_number == number
        world.pass_us(LEASE_US)


# --- At a participant ---


def test_a_step_on_another_shard_is_done_once(world: World) -> None:
    step = foreign(world, asked(world))
    assert do_foreign_step(world, step) is None
    assert do_foreign_step(world, step) == entry()


def test_a_fence_is_not_raised_where_a_tombstone_may_have_been(world: World) -> None:
    """Nobody would clear it. While there is a fence, there was none."""
    place, keys = asked(world), world.zone_of(BOB).location.keys.tenant

    def raises(number: int, asked_before: ParticipantState) -> bool:
        return world.run(
            lambda tr: run_one(participants.raise_fence_op(tr, world.layout, keys, RUN_ID, number, asked_before))
        )

    earlier = ParticipantState(place.epoch, place.floor + 1)
    assert not raises(2, earlier)
    assert world.get(keys.fence(RUN_ID)) is None
    assert raises(2, place)
    assert raises(3, earlier)


def test_an_attempt_below_the_fence_cannot_act(world: World) -> None:
    place, keys = asked(world), world.zone_of(BOB).location.keys.tenant
    world.run(lambda tr: run_one(participants.raise_fence_op(tr, world.layout, keys, RUN_ID, 2, place)))
    with pytest.raises(LeaseLost):
        do_foreign_step(world, foreign(world, place, lease_number=1))
    assert do_foreign_step(world, foreign(world, place, lease_number=2)) is None


def test_a_late_step_of_a_run_that_has_ended_does_nothing_before_its_tombstone_is_cleared(world: World) -> None:
    step = foreign(world, asked(world))
    clean_up(world)
    with pytest.raises(LeaseLost):
        do_foreign_step(world, step)


def test_a_late_step_of_a_run_that_has_ended_asks_again_once_its_tombstone_is_cleared(world: World) -> None:
    step = foreign(world, asked(world))
    clean_up(world)
    assert not world.run(lambda tr: participants.raise_floor(tr, tombstones_max=10))
    with pytest.raises(AskAgain):
        do_foreign_step(world, step)
    assert asked(world) == ParticipantState(0, 1)


def test_the_floor_is_not_raised_while_there_is_no_tombstone(world: World) -> None:
    assert not world.run(lambda tr: participants.raise_floor(tr, tombstones_max=10))
    assert asked(world) == ParticipantState(0, 0)


def test_tombstones_that_do_not_fit_one_transaction_are_cleared_by_the_next(world: World) -> None:
    keys = world.zone_of(BOB).location.keys.tenant
    for number in range(3):
        run = bytes([number]) * 16
        world.run(
            lambda tr, run=run: run_one(  # type: ignore[misc]
                participants.clean_up_op(tr, world.layout, BOB, keys, run, now_us=world.now_us)
            )
        )
    assert world.run(lambda tr: participants.raise_floor(tr, tombstones_max=2))
    assert not world.run(lambda tr: participants.raise_floor(tr, tombstones_max=2))
    assert [world.run(lambda tr, n=n: tr.get(keys.fence(bytes([n]) * 16)).value) for n in range(3)] == [None] * 3  # type: ignore[misc]


# --- Signals ---


def send(world: World, item_id: bytes, name: str, *payloads: Any) -> None:
    def body(tr: Any) -> None:
        for number, payload in enumerate(payloads):
            run_one(
                signals.send_op(
                    tr, world.zone.location, item_id, name, pack_payload(payload), number=number, now_us=world.now_us
                )
            )

    world.run(body)


def take(world: World, run: bytes, name: str) -> bytes | None:
    def body(tr: Any) -> bytes | None:
        found = run_one(signals.first_op(tr, world.zone.location, run, name))
        if found is None:
            return None
        tr.clear(found.key)
        return found.payload

    return world.run(body)


def test_signals_are_taken_in_the_order_of_their_commits(world: World) -> None:
    item_id = world.enqueue()
    send(world, item_id, "approved", 1)
    send(world, item_id, "approved", 2, 3)
    send(world, item_id, "denied", 4)
    assert [take(world, item_id, "approved") for _ in range(4)] == [*map(pack_payload, (1, 2, 3)), None]


def test_a_signal_to_an_item_that_is_not_there_is_refused(world: World) -> None:
    with pytest.raises(ItemGone):
        send(world, b"x" * 16, "approved", 1)


def test_a_signal_leaves_a_delayed_item_that_does_not_wait_for_it_where_it_is(world: World) -> None:
    item_id = world.enqueue(delay=60)
    send(world, item_id, "approved", 1)
    assert world.vested_ids() == []


# --- Waiting ---


def suspend(world: World, held: HeldRun, *names: str, for_us: int = 60 * SECOND) -> list[str]:
    return world.run(lambda tr: suspended(tr, world, held, *names, for_us=for_us))


def suspended(tr: Any, world: World, held: HeldRun, *names: str, for_us: int = 60 * SECOND) -> list[str]:
    record = run_one(step_log.check_held_op(tr, held))
    wait = Wait([AwaitedSignal(name) for name in names], world.now_us + for_us)
    operation = suspend_op(tr, held, record, RunHead(1, 0), wait, Append(), head_changed=False, now_us=world.now_us)
    return [each.name for each in run_one(operation)]


def test_a_run_that_waits_is_woken_by_its_signal_at_once(world: World) -> None:
    held = held_run(world, world.enqueue())
    assert suspend(world, held, "approved") == []
    send(world, held.item_id, "denied", 1)
    assert world.vested_ids() == []
    send(world, held.item_id, "approved", 2)
    assert world.vested_ids() == [held.item_id]
    pointer = world.pointer()
    assert pointer is not None
    assert pointer.vesting_us <= world.now_us


def test_a_run_whose_signal_has_arrived_does_not_wait(world: World) -> None:
    held = held_run(world, world.enqueue())
    send(world, held.item_id, "approved", 1)
    assert suspend(world, held, "approved") == ["approved"]
    record = world.record(held.item_id)
    assert record is not None
    assert record.lease_id == held.lease_id


def test_a_signal_that_commits_between_the_look_and_the_suspension_is_not_missed(world: World) -> None:
    held = held_run(world, world.enqueue())
    sent = False

    def body(tr: Any) -> list[str]:
        nonlocal sent
        found = suspended(tr, world, held, "approved")
        if not sent:
            sent = True
            send(world, held.item_id, "approved", 1)
        return found

    assert world.run(body) == ["approved"]


def test_who_has_lost_the_lease_cannot_suspend_the_run(world: World) -> None:
    held = held_run(world, world.enqueue())
    world.pass_us(LEASE_US)
    world.lease(held.item_id)
    with pytest.raises(LeaseLost):
        suspend(world, held, "approved")


def test_a_wait_ends_at_its_deadline(world: World) -> None:
    held = held_run(world, world.enqueue())
    suspend(world, held, "approved", for_us=2 * SECOND)
    world.pass_us(2 * SECOND - 1)
    assert world.vested_ids() == []
    world.pass_us(1)
    assert world.vested_ids() == [held.item_id]


def test_a_run_that_waits_is_no_claim_of_a_worker_any_more(world: World) -> None:
    """Otherwise it would be woken when the session of that worker ends."""
    held = held_run(world, world.enqueue())
    held_lease, session_id = [(held.item_id, held.lease_id)], bytes(16)
    world.run(
        lambda tr: run_one(claims.claim_op(tr, held.location, held_lease, session_id=session_id, now_us=world.now_us))
    )
    suspend(world, held, "approved")
    record = world.record(held.item_id)
    assert record is not None
    assert record.claim == b""
    assert world.run(lambda tr: run_one(worker_sessions.claimed_op(tr, world.layout, session_id, claims_max=1))) == []


# --- The end ---


def end(world: World, held: HeldRun) -> None:
    world.run(lambda tr: run_one(end_run_op(tr, held.location, held.run, now_us=world.now_us)))


def keys_of_run(world: World, held: HeldRun) -> list[bytes]:
    keys = held.location.keys.tenant
    prefixes = [keys.step_log(held.run), keys.signals(held.run), keys.child_results(held.run)]

    def body(tr: Any) -> list[bytes]:
        return [row.key for prefix in prefixes for row in tr.get_range(prefix, prefix + b"\xff")]

    return world.run(body)


def test_nothing_is_left_of_a_run_that_acted_at_home_only(world: World) -> None:
    held = held_run(world, world.enqueue())
    append(world, held, Append([(RESERVE, entry(result=7))]))
    send(world, held.item_id, "approved", 1)
    end(world, held)
    assert keys_of_run(world, held) == []
    assert world.count() == {"mail": 1}


def test_a_run_with_participants_leaves_their_names_to_a_cleanup_item(world: World) -> None:
    held = held_run(world, world.enqueue())

    def body(tr: Any) -> None:
        record = run_one(step_log.check_held_op(tr, held))
        head = RunHead(1, 0, has_participants=True)
        added = Append([(RESERVE, entry())], [(BOB, ParticipantState(0, 0))])
        step_log.append(tr, held, record, head, added, head_changed=True)

    world.run(body)
    send(world, held.item_id, "approved", 1)
    end(world, held)
    assert keys_of_run(world, held) == [participant_key(held.location.keys.tenant, held.run, BOB)]
    assert world.count() == {"mail": 1, CLEANUP_KIND: 1}
    end(world, held)
    assert world.count() == {"mail": 1, CLEANUP_KIND: 1}
