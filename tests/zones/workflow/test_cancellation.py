"""A cancelled item is deleted; the steps of a workflow are undone first, unless it is cancelled by force."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.zones.errors import ItemGone
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue import dead_letters
from fairlead.zones.records import encode
from fairlead.zones.workflow.cancellation import Cancellation, CancelOutcome, cancel_op, was_applied
from fairlead.zones.workflow.run_end import CLEANUP_KIND
from fairlead.zones.workflow.step_log import HeldRun
from tests.zones.workflow.runs import (
    begin_run,
    keys_of_run,
    move_to_dead_letters,
    send_signal,
    the_dead_letter,
    the_record,
)
from tests.zones.world import LEASE_US, SECOND, World


def cancel(world: World, item_id: bytes, *, force: bool = False) -> CancelOutcome:
    return cancelled(world, item_id, force=force).outcome


def cancelled(world: World, item_id: bytes, *, force: bool = False) -> Cancellation:
    return world.run(lambda tr: run_one(cancel_op(tr, world.zone, item_id, force=force, now_us=world.now_us)))


def is_applied(world: World, item_id: bytes, cancellation: Cancellation) -> bool:
    return world.run(lambda tr: was_applied(tr, world.zone.location, item_id, cancellation))


def begin_and_wait(world: World) -> HeldRun:
    """Begin a run, and let its item wait for a minute."""
    held = begin_run(world, world.enqueue())
    world.run(lambda tr: world.zone.requeue(tr, held.item_id, held.lease_id, delay_us=60 * SECOND, now_us=world.now_us))
    return held


@pytest.mark.parametrize("force", [False, True])
def test_an_item_without_recorded_steps_is_deleted(world: World, force: bool) -> None:
    waiting, leased, signalled = world.enqueue(), world.enqueue(), world.enqueue(delay=60)
    world.lease(leased)
    send_signal(world, signalled, "approved")
    for item_id in (waiting, leased, signalled):
        assert cancel(world, item_id, force=force) is CancelOutcome.DELETED
        assert world.record(item_id) is None
        assert keys_of_run(world, item_id) == []
        with pytest.raises(ItemGone):
            cancel(world, item_id, force=force)


def test_a_workflow_whose_head_is_lost_is_not_deleted_as_if_it_had_done_nothing(world: World) -> None:
    held = begin_and_wait(world)
    world.clear(held.head_key)
    assert cancel(world, held.item_id) is CancelOutcome.UNDOING
    assert cancel(world, held.item_id, force=True) is CancelOutcome.DELETED
    assert keys_of_run(world, held.run) == []


def test_a_workflow_that_waits_continues_at_once_to_undo_its_steps(world: World) -> None:
    held = begin_and_wait(world)
    stored = keys_of_run(world, held.run)
    assert cancel(world, held.item_id) is CancelOutcome.UNDOING
    assert the_record(world, held.item_id).cancelling
    assert world.vested_ids() == [held.item_id]
    assert world.pointer_delay_us() <= 0
    assert keys_of_run(world, held.run) == stored


def test_a_workflow_that_runs_keeps_its_lease_when_it_is_cancelled(world: World) -> None:
    held = begin_run(world, world.enqueue())
    before = the_record(world, held.item_id)
    assert cancel(world, held.item_id) is CancelOutcome.UNDOING
    after = the_record(world, held.item_id)
    assert after.cancelling
    assert (after.lease_id, after.vesting_us) == (before.lease_id, before.vesting_us)
    assert world.vested_ids() == []


def test_the_request_to_undo_stays_when_the_lease_expires(world: World) -> None:
    held = begin_run(world, world.enqueue())
    cancel(world, held.item_id)
    world.pass_us(LEASE_US)
    (leased,) = world.dequeue()
    assert leased.record.cancelling


def test_a_second_cancellation_of_a_workflow_changes_nothing(world: World) -> None:
    held = begin_and_wait(world)
    cancel(world, held.item_id)
    stored = world.everything()
    world.pass_us(SECOND)
    assert cancel(world, held.item_id) is CancelOutcome.UNDOING
    assert world.everything() == stored


def test_a_dead_letter_with_recorded_steps_returns_to_its_queue_to_undo_them(world: World) -> None:
    held = begin_run(world, world.enqueue())
    move_to_dead_letters(world, held.item_id)
    assert cancel(world, held.item_id) is CancelOutcome.UNDOING
    assert the_record(world, held.item_id).cancelling
    assert world.vested_ids() == [held.item_id]
    assert world.count() == {"mail": 1}
    assert world.run(lambda tr: list(dead_letters.listing(tr, world.layout, items_max=10))) == []
    assert world.pointer_delay_us() <= 0


def test_a_dead_letter_without_recorded_steps_is_cancelled_by_force_only(world: World) -> None:
    item_id = world.enqueue()
    move_to_dead_letters(world, item_id)
    with pytest.raises(ItemGone):
        cancel(world, item_id)
    the_dead_letter(world, item_id)
    assert cancel(world, item_id, force=True) is CancelOutcome.DELETED
    with pytest.raises(ItemGone):
        cancel(world, item_id, force=True)


@pytest.mark.parametrize("is_dead_letter", [False, True])
def test_a_workflow_that_is_cancelled_by_force_is_deleted_with_its_run(world: World, is_dead_letter: bool) -> None:
    held = begin_run(world, world.enqueue(), participates=True)
    if is_dead_letter:
        move_to_dead_letters(world, held.item_id)
    assert cancel(world, held.item_id, force=True) is CancelOutcome.DELETED
    assert len(keys_of_run(world, held.run)) == 1
    assert world.count() == {CLEANUP_KIND: 1}


# --- After an unknown result ---


def test_a_cancellation_that_was_not_applied_is_known_not_to_be(world: World) -> None:
    for held in (begin_and_wait(world), begin_run(world, world.enqueue())):
        of_item = Cancellation(CancelOutcome.UNDOING, cancelled(world, held.item_id).life)
        record = the_record(world, held.item_id)
        assert is_applied(world, held.item_id, of_item)
        record.cancelling = False
        world.set(world.zone.location.keys.item(held.item_id), encode(record))
        assert not is_applied(world, held.item_id, of_item)


@pytest.mark.parametrize("enqueues_again", [False, True])
def test_an_applied_cancellation_is_not_applied_to_a_later_item_of_the_name(world: World, enqueues_again: bool) -> None:
    item_id = world.enqueue(item_id="checkout-7", run=b"1" * 16)
    done = cancelled(world, item_id)
    if enqueues_again:
        world.enqueue(item_id="checkout-7", run=b"2" * 16)
    assert is_applied(world, item_id, done)


def test_a_cancellation_of_a_dead_letter_that_was_not_applied_is_known_not_to_be(world: World) -> None:
    held = begin_run(world, world.enqueue())
    move_to_dead_letters(world, held.item_id)

    def body(tr: Any) -> Cancellation:
        return run_one(cancel_op(tr, world.zone, held.item_id, force=False, now_us=world.now_us))

    tr = world.db.create_transaction()
    lost = body(tr)
    assert not is_applied(world, held.item_id, lost)
    assert is_applied(world, held.item_id, world.run(body))
