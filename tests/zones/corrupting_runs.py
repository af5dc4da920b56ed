"""Runs of workflows in a store that is to be damaged, and every action on what is stored of them."""

# ruff: noqa: B023 - what a loop yields is done before it goes on

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fairlead.zones.layout import ZoneLocation, item_id_of
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue import dead_letters
from fairlead.zones.queue.items import pack_payload
from fairlead.zones.records import ItemRecord, Parent
from fairlead.zones.workflow import children, participants, run_end, signals, step_log, suspension, undone_end
from fairlead.zones.workflow.cancellation import cancel_op
from fairlead.zones.workflow.children import ChildResult, ChildState, Report
from fairlead.zones.workflow.floor import RAISE_US, raise_daily
from fairlead.zones.workflow.participants import AskAgain, ForeignStep
from fairlead.zones.workflow.run_records import (
    RunHead,
    StepEntry,
    StepKind,
    StepState,
    encode,
    entry_key,
)
from fairlead.zones.workflow.step_log import HeldRun, StepName, StoredRun
from fairlead.zones.workflow.suspension import AwaitedChild, AwaitedSignal, Wait
from tests.zones.workflow.runs import RESERVE, begin_run, move_to_dead_letters, send_signal
from tests.zones.world import ALICE, BOB, SECOND, World

LIVE, DEAD, ENDED, CLEANED = (letter * 16 for letter in (b"l", b"d", b"e", b"c"))  # Runs.
ITEM, DEAD_ITEM, ENDED_ITEM = (item_id_of(name) for name in ("live run", "dead run", "ended run"))
ENTRY = StepEntry(0, StepKind.STEP, b"digest", StepState.DONE, 1, pack_payload(7))
LATER = StepName("later", 0)


def begin_runs(world: World) -> None:
    """Leave behind what workflows leave: a run that goes on, a dead letter, one that has ended, two tombstones."""
    keys = world.zone_of(BOB).location.keys.tenant
    held = begin_run(world, world.enqueue(item_id="live run", run=LIVE), participates=True)
    for name, payload in (("approved", {"by": 7}), ("approved", None)):
        send_signal(world, ITEM, name, payload)
    world.complete(world.enqueue("index", parent=Parent(*ALICE, "queue", ITEM, LIVE, "index", 0)))
    begin_run(world, world.enqueue(item_id="dead run", run=DEAD), participates=True)
    move_to_dead_letters(world, DEAD_ITEM)
    ended = begin_run(world, world.enqueue(item_id="ended run", run=ENDED), participates=True)
    world.run(lambda tr: world.zone.complete(tr, ENDED_ITEM, now_us=world.now_us, lease_id=ended.lease_id))
    world.run(lambda tr: run_one(participants.clean_up_op(tr, world.layout, BOB, keys, b"1" * 16, now_us=world.now_us)))
    world.run(lambda tr: raise_daily(tr, now_us=world.now_us, tombstones_max=9))
    world.run(lambda tr: run_one(participants.clean_up_op(tr, world.layout, BOB, keys, CLEANED, now_us=world.now_us)))
    for run in (LIVE, DEAD, ENDED):
        world.set(entry_key(keys, run, 0, *RESERVE), encode(ENTRY))
    for run in (LIVE, ENDED):
        world.set(keys.fence(run), (1).to_bytes(8, "big"))
    assert held.run == LIVE


def run_actions(world: World) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield everything that workers, senders and operators do to what is stored of runs."""
    there = world.zone_of(BOB).location
    for item_id, run in ((ITEM, LIVE), (DEAD_ITEM, DEAD)):
        yield "read run", lambda: _read(world, world.zone.location, run)
        yield "read participant", lambda: _read(world, there, run)
        yield "find", lambda: _find(world, run)
        yield "signal", lambda: _do(world, signals.send_op, world.zone.location, item_id, "approved", b"\xc0", number=0)
        yield "report", lambda: _report(world, item_id, run)
        yield "retry", lambda: _retry(world, item_id)
        yield "append", lambda: _append(world, item_id, run)
        yield "suspend", lambda: _append(world, item_id, run, suspends=True)
        yield "begin undo", lambda: _begin_undo(world, item_id)
    for run in (LIVE, DEAD, ENDED, CLEANED, b"n" * 16):
        for number in (1, 2):
            yield "ask", lambda: _at_participant(world, run, number, lambda *_: None)
            yield "step", lambda: _at_participant(world, run, number, _step)
            yield "raise fence", lambda: _at_participant(world, run, number, _raise_fence)
    yield "participants", lambda: world.run(lambda tr: run_end.participants_of(tr, world.zone.location, ENDED))
    for item_id in (ITEM, DEAD_ITEM):
        for force in (False, True):
            yield "cancel", lambda: _do(world, _cancel, item_id, force=force)
    for run in (LIVE, ENDED):
        yield (
            "clean up",
            lambda: world.run(
                lambda tr: run_one(
                    participants.clean_up_op(tr, world.layout, BOB, there.keys.tenant, run, now_us=world.now_us)
                )
            ),
        )
    for _ in range(3):
        yield "floor", lambda: world.run(lambda tr: raise_daily(tr, now_us=world.now_us + RAISE_US, tombstones_max=1))


def _do(world: World, operation: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    first = (world,) if operation is _cancel else ()
    return world.run(lambda tr: run_one(operation(*first, tr, *arguments, now_us=world.now_us, **options)))


def _cancel(world: World, tr: Any, item_id: bytes, *, force: bool, now_us: int) -> Any:
    return cancel_op(tr, world.zone, item_id, force=force, now_us=now_us)


def _read(world: World, location: ZoneLocation, run: bytes) -> StoredRun:
    stored = StoredRun()
    if location is world.zone.location:
        world.run(lambda tr: step_log.read_run(tr, location, run, stored))
    else:
        world.run(lambda tr: step_log.read_participant(tr, location.keys.tenant, run, stored))
    return stored


def _find(world: World, run: bytes) -> None:
    for awaited in (AwaitedSignal("approved"), AwaitedChild("index", 0)):
        world.run(lambda tr: run_one(suspension.find_op(tr, world.zone.location, run, [awaited])))


def _report(world: World, item_id: bytes, run: bytes) -> None:
    result = ChildResult(ChildState.COMPLETED, b"", "", world.now_us)
    report = Report(Parent(*ALICE, "queue", item_id, run, "index", 0), result)
    world.run(lambda tr: run_one(children.deliver_report_op(tr, world.layout, report, now_us=world.now_us)))


def _retry(world: World, item_id: bytes) -> None:
    def body(tr: Any) -> None:
        found = dead_letters.read(tr, world.zone.location, item_id)
        if found is not None:
            dead_letters.retry_dead_letter(tr, world.zone.location, item_id, found, now_us=world.now_us)

    world.run(body)


def _held(world: World, item_id: bytes) -> tuple[HeldRun, ItemRecord] | None:
    record = world.record(item_id)
    if record is None:
        return None
    if not record.lease_id:
        world.lease(item_id)
        record = world.record(item_id)
        assert record is not None
    return HeldRun(world.zone.location, item_id, record.lease_id, record.run_of(item_id)), record


def _append(world: World, item_id: bytes, run: bytes, *, suspends: bool = False) -> None:
    found = _held(world, item_id)
    if found is None:
        return
    held, stored = found[0], _read(world, world.zone.location, run)
    if stored.unreadable is not None:
        raise stored.unreadable
    head = stored.head or RunHead(1, 0)

    def body(tr: Any) -> None:
        record = run_one(step_log.check_held_op(tr, held))
        added = step_log.Append([(LATER, ENTRY)])
        if suspends:
            wait = Wait([AwaitedSignal("more")], world.now_us + SECOND)
            run_one(
                suspension.suspend_op(
                    tr, held, record, head, wait, added, head_changed=stored.head is None, now_us=world.now_us
                )
            )
        else:
            step_log.append(tr, held, record, head, added, head_changed=stored.head is None)

    world.run(body)


def _begin_undo(world: World, item_id: bytes) -> None:
    found = _held(world, item_id)
    if found is not None:
        location, record = world.zone.location, found[1]
        world.run(lambda tr: run_one(undone_end.begin_undo_op(tr, location, item_id, record, "no", "")))


def _at_participant(world: World, run: bytes, number: int, act: Callable[..., object]) -> None:
    keys = world.zone_of(BOB).location.keys.tenant

    def body(tr: Any) -> None:
        place = run_one(participants.ask_op(tr, world.layout, keys))
        act(world, tr, ForeignStep(keys, run, number, 0, LATER, place))

    world.run(body)


def _step(world: World, tr: Any, foreign: ForeignStep) -> None:
    try:
        if run_one(participants.begin_step_op(tr, world.layout, foreign)) is None:
            participants.end_step(tr, foreign, ENTRY)
    except AskAgain:
        raise AssertionError("it was asked in this transaction") from None


def _raise_fence(world: World, tr: Any, foreign: ForeignStep) -> None:
    run, number, place = foreign.run, foreign.lease_number, foreign.place
    run_one(participants.raise_fence_op(tr, world.layout, foreign.keys, run, number, place))
