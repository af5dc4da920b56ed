"""What is due for held items, as a table: an item, the time, and what has to be done."""

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


def waiting(*, isolated: bool = False, transactional: bool = False) -> HeldItem:
    return held_item(lease_us=LEASE_US, isolated=isolated, transactional=transactional)


def running(*, timeout: float = 60, transactional: bool = False, isolated: bool = False) -> HeldItem:
    held = held_item(lease_us=LEASE_US, timeout=timeout, transactional=transactional, isolated=isolated)
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
    """Ask at each tick; return what is due now."""
    for tick_us in range(since_us, now_us, TICK_US):
        due_work(items, now_us=tick_us, lease_us=LEASE_US)
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
        # An item whose lease has expired is lost, whatever else is due.
        (running(), 9 * SECOND, "lost"),
        (running(timeout=5), 9 * SECOND, "lost"),
        (waiting(), 9 * SECOND, "lost"),
        (waiting(isolated=True), 9 * SECOND, "lost"),
        (running(transactional=True), 9 * SECOND, "lost"),
        # A handler is timed out at its timeout exactly.
        (running(timeout=2), 2 * SECOND - 1, None),
        (running(timeout=2), 2 * SECOND, "time_out"),
        (running(timeout=5), 5 * SECOND, "time_out"),
        (running(timeout=2, transactional=True), 2 * SECOND, "time_out"),
        # No extension during an open transaction: they would conflict.
        (running(transactional=True), 5 * SECOND, None),
        # An item that found no slot is returned.
        (waiting(), WAITING_US_MAX - 1, None),
        (waiting(), WAITING_US_MAX, "return_now"),
        (waiting(isolated=True), WAITING_US_MAX, "return_now"),
        (waiting(transactional=True), WAITING_US_MAX, "return_now"),
        # The end of a finished item is being committed: nothing may conflict with that.
        (finished(), 3 * SECOND, None),
        (finished(), 9 * SECOND, None),
        # A cancelled handler has some time to end.
        (cancelled(running(), 0), STUCK_US - 1, None),
        (cancelled(running(), 0), STUCK_US, "stuck"),
        (cancelled(running(), 0), 60 * SECOND, "stuck"),
        (cancelled(finished(), SECOND), 60 * SECOND, None),
        # A handler that waits for a commit waits for the store, and is not stuck.
        (cancelled(committing(running()), SECOND), 60 * SECOND, None),
        # If that commit ends the item, nothing may conflict with it.
        (committing(running(transactional=True)), 60 * SECOND, None),
        (committing(running(), completes=True), 60 * SECOND, None),
        (committing(running()), 3 * SECOND, "extend"),
        (committing(running()), 9 * SECOND, "lost"),
    ],
)  # fmt: skip
def test_at_most_one_thing_is_due_for_an_item(held: HeldItem, now_us: int, expected: str | None) -> None:
    work = due_by([held], now_us)
    found = [field.name for field in fields(DueWork) for each in getattr(work, field.name) if each is held]
    assert found == ([expected] if expected else [])


def test_every_item_is_checked() -> None:
    items = [running(), running(timeout=2), finished(), waiting()]
    work = due_by(items, 4 * SECOND)
    assert (work.extend, work.time_out, work.return_now) == ([items[0]], [items[1]], [items[3]])


@pytest.mark.parametrize(
    "item, limit_us, what",
    [
        (running(timeout=2), 2 * SECOND, "time_out"),
        (waiting(), WAITING_US_MAX, "return_now"),
        (cancelled(running(), 0), STUCK_US, "stuck"),
    ],
)
def test_a_clock_that_is_set_back_does_not_delay_due_work(item: HeldItem, limit_us: int, what: str) -> None:
    """Before, a handler was not interrupted until the clock had caught up."""
    back_us = -600 * SECOND
    assert not getattr(due_by([item], limit_us // 2), what)
    assert not getattr(due_by([item], back_us + limit_us // 2 - 1, since_us=back_us), what)
    assert getattr(due_by([item], back_us + limit_us // 2, since_us=back_us + limit_us // 2), what) == [item]


def test_a_clock_that_is_set_ahead_does_not_end_a_timeout() -> None:
    held = extended(running(timeout=5), 60 * SECOND)
    assert not due_by([held], SECOND).time_out
    assert not due_by([held], 31 * SECOND, since_us=31 * SECOND).time_out
    assert due_by([held], 34 * SECOND, since_us=31 * SECOND).time_out == [held]


def test_two_extensions_may_fail_before_a_lease_expires() -> None:
    held = running()
    due = [now_us for now_us in range(0, LEASE_US, SECOND) if due_work([held], now_us=now_us, lease_us=LEASE_US).extend]
    assert due[0] == LEASE_US // 3
    assert LEASE_US - due[0] == 2 * LEASE_US // 3


def test_a_transactional_attempt_starts_with_a_lease_longer_than_its_transaction() -> None:
    held = waiting(transactional=True)
    assert lease_at_start(held, now_us=LEASE_US - TRANSACTION_LEASE_US, lease_us=LEASE_US) is None
    assert lease_at_start(held, now_us=LEASE_US - TRANSACTION_LEASE_US + 1, lease_us=LEASE_US) == LEASE_US
    assert lease_at_start(held, now_us=LEASE_US - 1, lease_us=2 * SECOND) == TRANSACTION_LEASE_US


def test_an_item_that_runs_isolated_is_marked_before_it_starts() -> None:
    """If its lease expires, the mark shows that it has killed the worker."""
    assert lease_at_start(waiting(isolated=True), now_us=0, lease_us=LEASE_US) == LEASE_US


def test_an_item_whose_lease_expired_before_is_marked_before_it_starts() -> None:
    """If its lease expires again, the mark shows that it may have killed the worker."""
    held = waiting()
    held.record.expired_count = 1
    assert lease_at_start(held, now_us=0, lease_us=LEASE_US) == LEASE_US


def test_any_other_item_starts_without_a_transaction_of_its_own() -> None:
    assert lease_at_start(waiting(), now_us=0, lease_us=LEASE_US) is None
