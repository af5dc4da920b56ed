"""A queue zone full of what nobody here can run, and what can run enqueued behind it, before it, in the midst of it.

A visit looks through a bounded window at the front and a second one from where the last visit stopped.
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
VISITS_MAX = 10


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: Patch) -> None:
    """Let a few items fill a window."""
    monkeypatch.setattr(dequeue, "WINDOW_KEYS", WINDOW_KEYS)


def zone_full_of_faxes() -> Scene:
    scene = Scene()
    for _ in range(FAXES):
        scene.has(lambda alice: alice.enqueue("fax", priority=50))
    return scene


def visits_until_a_mail(scene: Scene) -> int:
    """Return how many visits it takes until a mail is handed over; `VISITS_MAX` if none is."""
    for visits in range(1, VISITS_MAX):
        manager = scene.manager(kinds=["mail"])
        manager.runs()
        if manager.handed:
            return visits
        scene.pass_us(SECOND // 5)
    return VISITS_MAX


def test_what_can_run_is_found_behind_a_window_full_of_what_cannot() -> None:
    scene = zone_full_of_faxes()
    scene.has(lambda alice: alice.enqueue("mail"))
    assert 2 < visits_until_a_mail(scene) <= 1 + FAXES // WINDOW_KEYS


def test_without_going_on_from_where_the_last_visit_stopped_it_is_never_found(monkeypatch: Patch) -> None:
    def without_cursor(
        tr: Any, index_scan: IndexScan, capacity: Capacity, quantum: Any, _: Cursor, *, lease_us: int
    ) -> Operation[DequeuePlan]:
        return plan_op(tr, index_scan, capacity, quantum, FRONT, lease_us=lease_us)

    monkeypatch.setattr(process_pointers, "plan_op", without_cursor)
    scene = zone_full_of_faxes()
    scene.has(lambda alice: alice.enqueue("mail"))
    assert visits_until_a_mail(scene) == VISITS_MAX


def a_mail_comes_in_front_of_a_search(scene: Scene) -> int:
    """The search has gone far into the zone when something urgent is enqueued, in front of where it goes on."""
    scene.manager(kinds=["mail"]).runs()
    scene.pass_us(SECOND // 5)
    manager = scene.manager(kinds=["mail"])
    manager.runs_until_commit()
    scene.has(lambda alice: alice.enqueue("mail", priority=0))
    manager.runs()
    assert (manager.handed, manager.refused) == ([], [])
    scene.pass_us(SECOND // 5)
    return visits_until_a_mail(scene)


def test_what_is_enqueued_in_front_of_a_search_that_has_gone_far_is_found_at_once() -> None:
    assert a_mail_comes_in_front_of_a_search(zone_full_of_faxes()) == 1


def test_without_a_look_at_the_front_it_waits_until_the_search_comes_round(monkeypatch: Patch) -> None:
    class OnwardOnly(IndexScan):
        def read_entries_op(self, tr: Any, cursor: Cursor) -> Operation[None]:
            if self.entries.second_begin is None:
                self._window = self._reader(cursor.key)
                self.entries.second_begin = 0
            return super().read_entries_op(tr, cursor)

    monkeypatch.setattr(process_pointers, "IndexScan", OnwardOnly)
    assert a_mail_comes_in_front_of_a_search(zone_full_of_faxes()) > 1
