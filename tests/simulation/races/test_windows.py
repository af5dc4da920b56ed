"""A queue zone full of items that no consumer can run, and an item that can run behind or in front of them.

A dequeue reads a bounded window at the front, and a second window from the cursor, where the last dequeue stopped.
"""

from typing import Any

import pytest

from fairlead.zones.pipelining import Operation
from fairlead.zones.queue import dequeue
from fairlead.zones.queue.dequeue import IndexScan, plan_op
from fairlead.zones.queue.dequeue_plan import FRONT, Capacity, Cursor, DequeuePlan
from fairlead.zones.top_level import process_pointers
from tests.simulation.races.missing_guards import Patch
from tests.simulation.races.scene import Scene
from tests.simulation.stage import SECOND

WINDOW_KEYS = 4
FAXES = 5 * WINDOW_KEYS
CALLS_MAX = 10


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: Patch) -> None:
    """Let a few items fill a window."""
    monkeypatch.setattr(dequeue, "WINDOW_KEYS", WINDOW_KEYS)


def zone_full_of_faxes() -> Scene:
    scene = Scene()
    for _ in range(FAXES):
        scene.has(lambda alice: alice.enqueue("fax", priority=50))
    return scene


def calls_until_a_mail(scene: Scene) -> int:
    """Return how many calls of a manager it takes until a mail is handed over; `CALLS_MAX` if none is."""
    for calls in range(1, CALLS_MAX):
        manager = scene.manager(kinds=["mail"])
        manager.runs()
        if manager.handed:
            return calls
        scene.pass_us(SECOND // 5)
    return CALLS_MAX


def test_an_item_is_found_behind_a_window_full_of_items_that_cannot_run() -> None:
    scene = zone_full_of_faxes()
    scene.has(lambda alice: alice.enqueue("mail"))
    assert 2 < calls_until_a_mail(scene) <= 1 + FAXES // WINDOW_KEYS


def test_without_the_cursor_of_the_last_scan_the_item_is_never_found(monkeypatch: Patch) -> None:
    def without_cursor(
        tr: Any, index_scan: IndexScan, capacity: Capacity, quantum: Any, _: Cursor, *, lease_us: int
    ) -> Operation[DequeuePlan]:
        return plan_op(tr, index_scan, capacity, quantum, FRONT, lease_us=lease_us)

    monkeypatch.setattr(process_pointers, "plan_op", without_cursor)
    scene = zone_full_of_faxes()
    scene.has(lambda alice: alice.enqueue("mail"))
    assert calls_until_a_mail(scene) == CALLS_MAX


def a_mail_comes_in_front_of_the_cursor(scene: Scene) -> int:
    """The cursor is far in the zone when a mail of an earlier priority is enqueued."""
    scene.manager(kinds=["mail"]).runs()
    scene.pass_us(SECOND // 5)
    manager = scene.manager(kinds=["mail"])
    manager.runs_until_commit()
    scene.has(lambda alice: alice.enqueue("mail", priority=0))
    manager.runs()
    assert (manager.handed, manager.refused) == ([], [])
    scene.pass_us(SECOND // 5)
    return calls_until_a_mail(scene)


def test_an_item_that_is_enqueued_far_in_front_of_the_cursor_is_found_at_once() -> None:
    assert a_mail_comes_in_front_of_the_cursor(zone_full_of_faxes()) == 1


def test_without_the_window_at_the_front_the_item_waits_until_the_cursor_comes_round(monkeypatch: Patch) -> None:
    class OnwardOnly(IndexScan):
        def read_entries_op(self, tr: Any, cursor: Cursor) -> Operation[None]:
            if self.entries.second_begin is None:
                self._window = self._reader(cursor.key)
                self.entries.second_begin = 0
            return super().read_entries_op(tr, cursor)

    monkeypatch.setattr(process_pointers, "IndexScan", OnwardOnly)
    assert a_mail_comes_in_front_of_the_cursor(zone_full_of_faxes()) > 1
