"""Slots: each transition of an item happens once, and the first of two that exclude each other decides."""

from __future__ import annotations

import pytest

from fairlead.actors.execution.deadlines import TICK_US
from fairlead.actors.execution.failed_attempt import Failure, failure_of
from fairlead.actors.execution.in_flight import HeldItem, Phase
from fairlead.actors.execution.job import STUCK_US
from fairlead.actors.execution.slots import Slots
from tests.actors.stage import MS, SECOND, Stage, held_item

LEASE_US = 10 * SECOND


@pytest.fixture
def stage() -> Stage:
    return Stage()


def slots_with(stage: Stage, *items: HeldItem, count: int = 2) -> Slots:
    """Return slots that have accepted items."""
    slots = Slots(stage.host, count=count, isolates=False)
    stage.do(lambda: slots.accept(items))
    return slots


def held(stage: Stage, number: int = 0, *, timeout: float = 60) -> HeldItem:
    return held_item(number, now_us=stage.now_us, lease_us=LEASE_US, timeout=timeout)


def start(stage: Stage, slots: Slots) -> HeldItem:
    """Let the next item start, and its handler begin."""
    item = stage.do(slots.take)
    assert item is not None
    item.begin(stage.now_us)
    return item


def failure(stage: Stage, item: HeldItem) -> Failure:
    return failure_of(ValueError("no"), item.handler, item.ref.item_id, stage.clock)


def test_an_item_that_has_finished_cannot_be_lost(stage: Stage) -> None:
    """Only its completer has it: the commit finds out whether the lease still stands."""
    slots = slots_with(stage, held(stage))
    item = start(stage, slots)
    stage.do(lambda: slots.finish(item))
    assert stage.do(lambda: slots.lose([item])) == []
    assert not item.job.cancelled


def test_an_item_is_lost_once(stage: Stage) -> None:
    """An extension and a worker status may both find that another worker has leased it."""
    slots = slots_with(stage, held(stage))
    item = start(stage, slots)
    assert stage.do(lambda: slots.lose([item])) == [item]
    assert stage.do(lambda: slots.lose([item])) == []
    assert item.job.cancelled


def test_an_item_that_is_lost_while_it_waits_does_not_start(stage: Stage) -> None:
    first, second = held(stage, 1), held(stage, 2)
    slots = slots_with(stage, first, second)
    stage.do(lambda: slots.lose([first]))
    assert start(stage, slots) is second


def test_an_error_after_the_timeout_does_not_count(stage: Stage) -> None:
    slots = slots_with(stage, held(stage, timeout=1))
    item = start(stage, slots)
    stage.pass_ms(1_000)
    assert stage.do(lambda: slots.take_due_work(LEASE_US)).time_out == [item]
    assert not stage.do(lambda: slots.fail(item, failure(stage, item)))
    assert (item.failure, item.timed_out) == (None, True)


def test_an_error_before_the_timeout_counts_although_a_hook_runs_on(stage: Stage) -> None:
    slots = slots_with(stage, held(stage, timeout=1))
    item = start(stage, slots)
    assert stage.do(lambda: slots.fail(item, failure(stage, item)))
    stage.pass_ms(1_000)
    stage.do(lambda: slots.take_due_work(LEASE_US))
    assert item.failure is not None
    assert item.failure.text == "ValueError: no"


def test_a_given_up_item_does_not_finish_and_its_old_slot_starts_nothing(stage: Stage) -> None:
    slots = slots_with(stage, held(stage, 1), count=1)
    item = start(stage, slots)
    stage.do(lambda: slots.lose([item]))
    for _ in range(0, STUCK_US, TICK_US):
        assert not stage.do(lambda: slots.take_due_work(LEASE_US)).stuck
        stage.pass_ms(TICK_US / MS)
    assert stage.do(lambda: slots.take_due_work(LEASE_US)).stuck == [item]
    stage.do(lambda: slots.accept([held(stage, 2)]))
    assert stage.do(lambda: slots.finish(item)) is None
    assert item.phase is Phase.GIVEN_UP


def test_a_slot_gets_its_next_item_when_it_hands_in_the_one_before(stage: Stage) -> None:
    first, second = held(stage, 1), held(stage, 2)
    slots = slots_with(stage, first, second, count=1)
    start(stage, slots)
    assert stage.do(lambda: slots.finish(first)) is second
    assert (first.phase, second.phase) == (Phase.FINISHED, Phase.RUNNING)
    assert stage.do(lambda: slots.finish(second)) is None, "nothing waits"


def test_a_drain_waits_for_returns_of_items_that_are_not_held_any_more(stage: Stage) -> None:
    slots = slots_with(stage, held(stage))
    waiting = stage.do(slots.begin_drain)
    assert len(slots) == 0
    draining = stage.begin(lambda: slots.await_empty(SECOND))
    stage.pass_ms(400)
    assert draining.over_us is None
    stage.do(lambda: slots.end_return(waiting))
    stage.wait_for(lambda: draining.over_us is not None)
    assert draining.result == pytest.approx(600 * MS, abs=10 * MS)


def test_items_that_arrive_after_the_begin_of_a_drain_are_not_accepted(stage: Stage) -> None:
    slots = slots_with(stage)
    stage.do(slots.begin_drain)
    assert stage.do(lambda: slots.accept([held(stage)])) is None
    assert len(slots) == 0


def test_an_idle_slot_ends_when_the_worker_stops(stage: Stage) -> None:
    slots = slots_with(stage)
    taking = stage.begin(slots.take)
    stage.pass_ms(1)
    assert taking.over_us is None
    stage.do(slots.stop)
    stage.wait_for(lambda: taking.over_us is not None)
    assert taking.result is None
