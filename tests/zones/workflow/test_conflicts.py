"""Transactions of two executors, or of an executor and a sender, that overlap: the later commit must conflict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.items import pack_payload
from fairlead.zones.workflow import participants, signals, step_log
from fairlead.zones.workflow.participants import AskAgain, ForeignStep
from fairlead.zones.workflow.run_records import ParticipantState, RunHead, StepEntry, StepKind, StepState
from fairlead.zones.workflow.step_log import Append, HeldRun, StepName
from fairlead.zones.workflow.suspension import AwaitedSignal, Wait, suspend_op
from tests.zones.workflow.runs import begin_run
from tests.zones.world import BOB, SECOND, World

SHIP = StepName("ship", 0)
RUN_ID = b"r" * 16
ENTRY = StepEntry(1, StepKind.STEP, b"digest", StepState.DONE, 1, pack_payload(None))

Body = Callable[[Any], object]


def conflicts(world: World, late: Body, early: Body) -> bool:
    """Run `late` up to its commit, then all of `early`; say whether the commit of `late` conflicts."""
    tr = world.db.create_transaction()
    late(tr)
    world.run(early)
    try:
        tr.commit().wait()
    except world.db.errors:
        return True
    return False


def home_step(held: HeldRun) -> Body:
    def body(tr: Any) -> None:
        record = run_one(step_log.check_held_op(tr, held))
        assert tr.get(held.entry_key(0, SHIP)).value is None
        step_log.append(tr, held, record, RunHead(1, 0), Append([(SHIP, ENTRY)]), head_changed=False)

    return body


def foreign_step(world: World, place: ParticipantState) -> Body:
    step = ForeignStep(world.zone_of(BOB).location.keys.tenant, RUN_ID, 1, 0, SHIP, place)

    def body(tr: Any) -> None:
        assert run_one(participants.begin_step_op(tr, world.layout, step)) is None
        participants.end_step(tr, step, ENTRY)

    return body


def asked(world: World) -> ParticipantState:
    keys = world.zone_of(BOB).location.keys.tenant
    return world.run(lambda tr: run_one(participants.ask_op(tr, world.layout, keys)))


def suspension(world: World, held: HeldRun) -> Body:
    def body(tr: Any) -> None:
        record = run_one(step_log.check_held_op(tr, held))
        wait = Wait([AwaitedSignal("go")], world.now_us + 60 * SECOND)
        head = RunHead(1, 0)
        run_one(suspend_op(tr, held, record, head, wait, Append(), head_changed=False, now_us=world.now_us))

    return body


def signal(world: World, held: HeldRun) -> Body:
    def body(tr: Any) -> None:
        run_one(
            signals.send_op(tr, held.location, held.item_id, "go", pack_payload(None), number=0, now_us=world.now_us)
        )

    return body


def test_a_step_at_home_that_an_earlier_commit_of_unknown_result_has_done(world: World) -> None:
    held = begin_run(world, world.enqueue())
    assert conflicts(world, home_step(held), home_step(held))


def test_a_step_on_another_shard_that_an_earlier_commit_of_unknown_result_has_done(world: World) -> None:
    place = asked(world)
    assert conflicts(world, foreign_step(world, place), foreign_step(world, place))


def test_a_step_on_another_shard_whose_fence_is_raised_before_it_commits(world: World) -> None:
    place, keys = asked(world), world.zone_of(BOB).location.keys.tenant
    raised: Body = lambda tr: run_one(participants.raise_fence_op(tr, world.layout, keys, RUN_ID, 2, place))  # noqa: E731
    assert conflicts(world, foreign_step(world, place), raised)


@pytest.mark.parametrize("place", [ParticipantState(1, 0), ParticipantState(0, 1)])
def test_a_step_on_another_shard_asks_again_if_the_epoch_or_the_floor_is_another(
    world: World, place: ParticipantState
) -> None:
    with pytest.raises(AskAgain):
        world.run(foreign_step(world, place))


def test_a_signal_that_commits_before_the_suspension_of_its_run(world: World) -> None:
    """Keys of the run are stored already, so the signal does not write the record."""
    held = begin_run(world, world.enqueue())
    assert conflicts(world, suspension(world, held), signal(world, held))


def test_a_signal_to_a_run_that_is_suspended_before_it_commits(world: World) -> None:
    held = begin_run(world, world.enqueue())
    assert conflicts(world, signal(world, held), suspension(world, held))
