"""Runs of workflows as the tests of this folder need them: begun, with signals, with participants."""

from __future__ import annotations

from typing import Any

from fairlead.zones.keyspace import range_end
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue import dead_letters
from fairlead.zones.queue.items import pack_payload
from fairlead.zones.records import DeadLetterRecord, ItemRecord
from fairlead.zones.workflow import signals, step_log
from fairlead.zones.workflow.run_records import ParticipantState, RunHead, StepEntry, StepKind, StepState
from fairlead.zones.workflow.step_log import Append, HeldRun, StepName
from tests.zones.world import BOB, World

RESERVE = StepName("reserve", 0)


def begin_run(world: World, item_id: bytes, *, participates: bool = False) -> HeldRun:
    """Lease an item, and record the first step of its run; with a participant."""
    record = world.record(item_id)
    assert record is not None
    held = HeldRun(world.zone.location, item_id, world.lease(item_id), record.run_of(item_id))
    places = [(BOB, ParticipantState(0, 0))] if participates else []
    entry = StepEntry(0, StepKind.STEP, b"digest", StepState.DONE, 1, pack_payload(7))

    def body(tr: Any) -> None:
        leased = run_one(step_log.check_held_op(tr, held))
        head = RunHead(1, 0, has_participants=participates)
        step_log.append(tr, held, leased, head, Append([(RESERVE, entry)], places), head_changed=False)

    world.run(body)
    return held


def send_signal(world: World, item_id: bytes, name: str, payload: Any = None) -> None:
    """Send a signal to the run of an item of Alice's."""
    operation = signals.send_op
    location, packed = world.zone.location, pack_payload(payload)
    world.run(lambda tr: run_one(operation(tr, location, item_id, name, packed, number=0, now_us=world.now_us)))


def move_to_dead_letters(world: World, item_id: bytes, *, error: str = "ValueError: no") -> None:
    """Move an item of Alice's to the dead letters."""
    record = world.record(item_id)
    assert record is not None
    location = world.zone.location
    world.run(
        lambda tr: dead_letters.move_to_dead_letters(
            tr, location, item_id, the_record(world, item_id), reason="error", error=error, traceback="",
            now_us=world.now_us,
        )
    )  # fmt: skip


def the_record(world: World, item_id: bytes) -> ItemRecord:
    """Return the record of an item of Alice's, which is there."""
    record = world.record(item_id)
    assert record is not None
    return record


def the_dead_letter(world: World, item_id: bytes) -> DeadLetterRecord:
    """Return a dead letter of Alice's, which is there."""
    found = world.run(lambda tr: dead_letters.read(tr, world.zone.location, item_id))
    assert found is not None
    return found


def keys_of_run(world: World, run: bytes) -> list[bytes]:
    """Return all keys that are stored of a run of Alice's."""
    keys = world.zone.location.keys.tenant
    prefixes = [keys.step_log(run), keys.signals(run), keys.child_results(run)]
    return [key for prefix in prefixes for key, _ in world.stored(prefix, range_end(prefix))]
