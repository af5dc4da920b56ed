"""What a worker must do for what it holds, as a table: who it is, what time it is, what is to be done."""

from __future__ import annotations

from dataclasses import fields

import pytest

from fairlead.actors.execution.deadlines import (
    TICK_US,
    TRANSACTION_LEASE_US,
    WAITING_US_MAX,
    DueWork,
    due_work,
    lease_at_start,
)
from fairlead.actors.execution.in_flight import HeldItem, Phase
from fairlead.actors.execution.job import STUCK_US
from tests.actors.stage import SECOND, held_item

LEASE_US = 9 * SECOND


def waiting(*, alone: bool = False, transactional: bool = False) -> HeldItem:
    return held_item(lease_us=LEASE_US, alone=alone, transactional=transactional)


def running(*, timeout: float = 60, transactional: bool = False, alone: bool = False) -> HeldItem:
    held = held_item(lease_us=LEASE_US, timeout=timeout, transactional=transactional, alone=alone)
    held.phase = Phase.RUNNING
    held.begin(0)
    return held


def finished() -> HeldItem:
    held = running()
    held.phase = Phase.FINISHED
    return held


def cancelled(held: HeldItem, at_us: int) -> HeldItem:
    held.cancel(at_us)
    return held


def committing(held: HeldItem, *, completes: bool = False) -> HeldItem:
    held.committing.in_progress, held.job.completing = True, completes
    return held


def extended(held: HeldItem, until_us: int) -> HeldItem:
    held.lease_until_us = until_us
    return held


def due_by(items: list[HeldItem], now_us: int, *, since_us: int = 0) -> DueWork:
    """Look at each tick; return what there is to do now."""
    for looked_us in range(since_us, now_us, TICK_US):
        due_work(items, now_us=looked_us, lease_us=LEASE_US)
    return due_work(items, now_us=now_us, lease_us=LEASE_US)


@pytest.mark.parametrize(
    "held, now_us, expected",
    [
        # A lease is extended once a third of it has passed.
        (running(), 0, None),
        (running(), 3 * SECOND - 1, None),
        (running(), 3 * SECOND, "extend"),
        (running(), 8 * SECOND, "extend"),
        (extended(running(), 15 * SECOND), 8 * SECOND, None),
        # One that ran out is lost, whatever else there was to do for it.
        (running(), 9 * SECOND, "lost"),
        (running(timeout=5), 9 * SECOND, "lost"),
        (waiting(), 9 * SECOND, "lost"),
        (waiting(alone=True), 9 * SECOND, "lost"),
        (running(transactional=True), 9 * SECOND, "lost"),
        # A handler has its timeout, and not a moment more.
        (running(timeout=2), 2 * SECOND - 1, None),
        (running(timeout=2), 2 * SECOND, "time_out"),
        (running(timeout=5), 5 * SECOND, "time_out"),
        (running(timeout=2, transactional=True), 2 * SECOND, "time_out"),
        # An open transaction is let alone: the extension would make it conflict.
        (running(transactional=True), 5 * SECOND, None),
        # What found no slot goes back.
        (waiting(), WAITING_US_MAX - 1, None),
        (waiting(), WAITING_US_MAX, "return_now"),
        (waiting(alone=True), WAITING_US_MAX, "return_now"),
        (waiting(transactional=True), WAITING_US_MAX, "return_now"),
        # The end of a finished item is being committed: nothing may collide with that.
        (finished(), 3 * SECOND, None),
        (finished(), 9 * SECOND, None),
        # One that was told to stop has a while to do so.
        (cancelled(running(), 0), STUCK_US - 1, None),
        (cancelled(running(), 0), STUCK_US, "stuck"),
        (cancelled(running(), 0), 60 * SECOND, "stuck"),
        (cancelled(finished(), SECOND), 60 * SECOND, None),
        # One that waits for a commit waits for the store, and is not to blame.
        (cancelled(committing(running()), SECOND), 60 * SECOND, None),
        # If that commit is its end, nothing may collide with it, as if the handler had returned.
        (committing(running(transactional=True)), 60 * SECOND, None),
        (committing(running(), completes=True), 60 * SECOND, None),
        (committing(running()), 3 * SECOND, "extend"),
        (committing(running()), 9 * SECOND, "lost"),
    ],
)  # fmt: skip
def test_each_item_has_at_most_one_chore(held: HeldItem, now_us: int, expected: str | None) -> None:
    work = due_by([held], now_us)
    found = [field.name for field in fields(DueWork) for each in getattr(work, field.name) if each is held]
    assert found == ([expected] if expected else [])


def test_every_item_is_looked_at() -> None:
    items = [running(), running(timeout=2), finished(), waiting()]
    work = due_by(items, 4 * SECOND)
    assert (work.extend, work.time_out, work.return_now) == ([items[0]], [items[1]], [items[3]])


@pytest.mark.parametrize(
    "item, limit_us, chore",
    [
        (running(timeout=2), 2 * SECOND, "time_out"),
        (waiting(), WAITING_US_MAX, "return_now"),
        (cancelled(running(), 0), STUCK_US, "stuck"),
    ],
)
def test_a_clock_that_is_set_back_puts_off_no_chore_until_it_has_caught_up(
    item: HeldItem, limit_us: int, chore: str
) -> None:
    """Before, a handler was not interrupted for as long as the clock had been ahead."""
    back_us = -600 * SECOND
    assert not getattr(due_by([item], limit_us // 2), chore)
    assert not getattr(due_by([item], back_us + limit_us // 2 - 1, since_us=back_us), chore)
    assert getattr(due_by([item], back_us + limit_us // 2, since_us=back_us + limit_us // 2), chore) == [item]


def test_a_clock_that_is_set_ahead_ends_no_timeout_by_its_step() -> None:
    held = extended(running(timeout=5), 60 * SECOND)
    assert not due_by([held], SECOND).time_out
    assert not due_by([held], 31 * SECOND, since_us=31 * SECOND).time_out
    assert due_by([held], 34 * SECOND, since_us=31 * SECOND).time_out == [held]


def test_two_extensions_may_fail_before_a_lease_runs_out() -> None:
    held = running()
    due = [now_us for now_us in range(0, LEASE_US, SECOND) if due_work([held], now_us=now_us, lease_us=LEASE_US).extend]
    assert due[0] == LEASE_US // 3
    assert LEASE_US - due[0] == 2 * LEASE_US // 3


def test_a_transactional_attempt_starts_with_a_lease_that_outlives_its_transaction() -> None:
    held = waiting(transactional=True)
    assert lease_at_start(held, now_us=LEASE_US - TRANSACTION_LEASE_US, lease_us=LEASE_US) is None
    assert lease_at_start(held, now_us=LEASE_US - TRANSACTION_LEASE_US + 1, lease_us=LEASE_US) == LEASE_US
    assert lease_at_start(held, now_us=LEASE_US - 1, lease_us=2 * SECOND) == TRANSACTION_LEASE_US


def test_an_item_that_runs_alone_is_marked_so_before_it_starts() -> None:
    """Whoever finds the mark on an item that lapsed knows who killed the worker."""
    assert lease_at_start(waiting(alone=True), now_us=0, lease_us=LEASE_US) == LEASE_US


def test_that_an_item_begins_is_written_if_it_has_lapsed_before() -> None:
    """Whoever finds the mark on one that lapsed again knows that it may have killed the worker."""
    held = waiting()
    held.record.expired_count = 1
    assert lease_at_start(held, now_us=0, lease_us=LEASE_US) == LEASE_US


def test_any_other_item_starts_without_a_transaction_of_its_own() -> None:
    assert lease_at_start(waiting(), now_us=0, lease_us=LEASE_US) is None
