"""Two processes create, wake, process, delete or clear one pointer at the same moment.

Each of them writes the pointer's record or its index entry, or declares a write conflict on its guard. Each has read
with conflict what it writes. So the second commit is refused, and its retry finds the work of the first.
"""

from collections.abc import Callable
from typing import Any

import pytest

from fairlead.handle import EnqueuedHandle
from fairlead.simulation.database import LatentTransaction
from fairlead.tenant_database import TenantDatabase
from fairlead.zones.engines.api.errors import NOT_COMMITTED
from fairlead.zones.layout import item_id_of
from fairlead.zones.queue.items import Enqueued, new_item
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.top_level import process_pointers
from fairlead.zones.top_level.pointers import PointerRef
from tests.simulation.races.director import Role
from tests.simulation.races.missing_guards import (
    ALICES,
    TENANTS,
    TOP_LEVEL,
    Patch,
    declare_nothing,
    ignore_the_guard,
    planted,
    read_by_snapshot,
    read_ranges_by_snapshot,
)
from tests.simulation.races.scene import SLACK_US, ManagerRole, Scene
from tests.simulation.stage import SECOND

HOUR_S = 3600
DELETES_AT_ONCE = ZoneSettings(min_inactive_ms=0)

# --- Created by two ---


def two_enqueue_into_a_new_zone(scene: Scene) -> Role[EnqueuedHandle]:
    late = scene.user("late", lambda alice: alice.enqueue("mail", delay=10))
    soon = scene.user("soon", lambda alice: alice.enqueue("mail"))
    late.runs_until_commit()
    soon.runs_until_commit()
    soon.runs()
    late.runs()
    return late


def test_the_second_of_two_that_create_one_pointer_finds_the_pointer_of_the_first() -> None:
    scene = Scene()
    assert two_enqueue_into_a_new_zone(scene).refused == [NOT_COMMITTED]
    assert scene.late_us <= SLACK_US
    scene.check_stored()


def test_without_the_conflict_on_the_guard_the_second_overwrites_the_pointer(monkeypatch: Patch) -> None:
    ignore_the_guard(monkeypatch)
    scene = Scene()
    assert two_enqueue_into_a_new_zone(scene).refused == []
    assert scene.late_us > SECOND
    assert len(scene.pointer_entries) == 2


# --- Woken by two, and woken while it is processed ---


def two_wake_one_pointer(scene: Scene) -> Role[EnqueuedHandle]:
    scene.has(lambda alice: alice.enqueue("mail", delay=20))
    in_a_while = scene.user("in a while", lambda alice: alice.enqueue("mail", delay=10))
    now = scene.user("now", lambda alice: alice.enqueue("mail"))
    in_a_while.runs_until_commit()
    now.runs()
    in_a_while.runs()
    return in_a_while


def test_of_two_wake_ups_of_one_pointer_the_later_does_not_undo_the_earlier() -> None:
    scene = Scene()
    assert two_wake_one_pointer(scene).refused == [NOT_COMMITTED]
    assert scene.late_us <= SLACK_US
    scene.check_stored()


def test_without_the_conflict_of_a_wake_up_the_later_undoes_the_earlier(monkeypatch: Patch) -> None:
    declare_nothing(monkeypatch, "add_read_conflict_key")
    scene = Scene()
    assert two_wake_one_pointer(scene).refused == []
    assert scene.late_us > SECOND


def a_pointer_is_woken_and_processed(scene: Scene) -> Role[EnqueuedHandle]:
    """The pointer has vested by the manager's clock. By the enqueuer's clock, which is behind, it still sleeps."""
    scene.has(lambda alice: alice.enqueue("mail", delay=1))
    ahead = scene.manager(skew_us=SECOND)
    enqueuer = scene.user("enqueuer", lambda alice: alice.enqueue("mail"))
    enqueuer.runs_until_commit()
    ahead.runs()
    enqueuer.runs()
    return enqueuer


def test_a_wake_up_of_a_pointer_that_is_processed_at_that_moment_conflicts_and_retries() -> None:
    scene = Scene()
    assert a_pointer_is_woken_and_processed(scene).refused[:1] == [NOT_COMMITTED]
    assert scene.late_us <= SLACK_US
    scene.check_stored()


def test_without_both_conflicts_of_a_wake_up_the_pointer_has_two_entries(monkeypatch: Patch) -> None:
    """The manager sends the pointer to sleep, so the declared write conflict guards here, too."""
    declare_nothing(monkeypatch, "add_read_conflict_key", "add_write_conflict_key")
    scene = Scene()
    assert a_pointer_is_woken_and_processed(scene).refused == []
    assert len(scene.pointer_entries) == 2


# --- Deleted ---


def leave_an_idle_pointer(scene: Scene) -> None:
    item_id = scene.has(lambda alice: alice.enqueue("mail")).item_id
    scene.has(lambda alice: alice.cancel(item_id))


def deletion_comes_first(scene: Scene) -> Role[EnqueuedHandle]:
    leave_an_idle_pointer(scene)
    enqueuer = scene.user("enqueuer", lambda alice: alice.enqueue("mail"))
    enqueuer.runs_until_commit()
    scene.manager().runs()
    assert scene.zone.pointer is None
    enqueuer.runs()
    return enqueuer


def test_an_enqueue_that_read_a_pointer_deleted_at_that_moment_creates_it_again() -> None:
    scene = Scene(DELETES_AT_ONCE)
    assert deletion_comes_first(scene).refused == [NOT_COMMITTED]
    assert scene.late_us <= SLACK_US
    scene.check_stored()


def test_without_the_conflict_on_the_guard_an_item_has_no_pointer(monkeypatch: Patch) -> None:
    ignore_the_guard(monkeypatch)
    scene = Scene(DELETES_AT_ONCE)
    assert deletion_comes_first(scene).refused == []
    assert (scene.count, scene.zone.pointer) == (1, None)


def test_without_the_conflict_that_the_deletion_declares_an_item_has_no_pointer() -> None:
    scene = Scene(DELETES_AT_ONCE)
    with planted("the deletion of a pointer declares no write conflict on the guard"):
        assert deletion_comes_first(scene).refused == []
    assert (scene.count, scene.zone.pointer) == (1, None)


def deletion_comes_second(scene: Scene) -> ManagerRole:
    leave_an_idle_pointer(scene)
    manager = scene.manager()
    manager.runs_until_commit()
    scene.has(lambda alice: alice.enqueue("mail", delay=HOUR_S))
    manager.runs()
    return manager


def test_a_pointer_is_not_deleted_while_an_item_is_enqueued_even_if_the_item_vests_late() -> None:
    scene = Scene(DELETES_AT_ONCE)
    assert deletion_comes_second(scene).refused == [NOT_COMMITTED]
    assert scene.zone.pointer is not None
    scene.check_stored()


def test_without_the_conflicts_on_the_whole_zone_its_pointer_is_deleted(monkeypatch: Patch) -> None:
    """The vesting index and the item range are both read with conflict; one of them is enough."""
    read_ranges_by_snapshot(monkeypatch)
    monkeypatch.setattr(process_pointers, "conflict_before_first", lambda *_: None)
    scene = Scene(DELETES_AT_ONCE)
    assert deletion_comes_second(scene).refused == []
    assert (scene.count, scene.zone.pointer) == (1, None)


# --- Processed by two ---


def two_process_one_pointer(scene: Scene) -> tuple[ManagerRole, ManagerRole]:
    for _ in range(3):
        scene.has(lambda alice: alice.enqueue("mail"))
    first, second = scene.manager("first", dequeue_max=1), scene.manager("second", dequeue_max=1)
    first.runs_until_commit()
    second.runs_until_commit()
    first.runs()
    second.runs()
    return first, second


def test_the_second_of_two_managers_that_process_one_pointer_leases_another_item() -> None:
    scene = Scene()
    first, second = two_process_one_pointer(scene)
    assert second.refused == [NOT_COMMITTED]
    assert [len(role.handed) for role in (first, second)] == [1, 1]
    assert first.handed[0].item_id != second.handed[0].item_id
    scene.check_stored()


def test_without_the_conflicts_on_pointer_and_items_both_lease_the_same_item(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, TENANTS)
    scene = Scene()
    first, second = two_process_one_pointer(scene)
    assert second.refused == []
    assert first.handed[0].item_id == second.handed[0].item_id


def two_can_run_nothing(scene: Scene) -> ManagerRole:
    scene.has(lambda alice: alice.enqueue("fax"))
    first, second = scene.manager("first"), scene.manager("second")
    first.runs_until_commit()
    second.runs_until_commit()
    first.runs()
    second.runs()
    return second


def test_the_second_of_two_managers_that_send_one_pointer_to_sleep_is_refused() -> None:
    scene = Scene()
    assert two_can_run_nothing(scene).refused == [NOT_COMMITTED]
    scene.check_stored()


def test_without_the_conflict_on_the_pointer_it_has_two_entries(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, ALICES.pointer)
    scene = Scene()
    assert two_can_run_nothing(scene).refused == []
    assert len(scene.pointer_entries) == 2


def two_lease_one_contended_pointer(scene: Scene) -> tuple[ManagerRole, ManagerRole]:
    """An enqueue makes both managers conflict, so both lease the pointer before their retry."""
    scene.has(lambda alice: alice.enqueue("mail"))
    first, second = scene.manager("first"), scene.manager("second")
    first.runs_until_commit()
    second.runs_until_commit()
    scene.has(lambda alice: alice.enqueue("mail", priority=0))
    first.runs_until_commit()
    second.runs_until_commit()
    first.runs_until_commit()  # Its pointer lease is committed, and its dequeue is on its way.
    second.runs()
    first.runs()
    return first, second


def test_the_second_of_two_managers_that_lease_a_contended_pointer_is_refused() -> None:
    scene = Scene()
    first, second = two_lease_one_contended_pointer(scene)
    assert (first.refused, second.refused) == ([NOT_COMMITTED], [NOT_COMMITTED] * 2)
    assert (len(first.handed), second.handed) == (2, [])
    scene.check_stored()


def test_without_the_conflict_on_the_pointer_both_lease_it_and_the_first_holder_gets_no_item(
    monkeypatch: Patch,
) -> None:
    read_by_snapshot(monkeypatch, ALICES.pointer)
    first, second = two_lease_one_contended_pointer(Scene())
    assert second.refused == [NOT_COMMITTED]
    assert (first.handed, len(second.handed)) == ([], 2)


# --- No conflict: a queue with enqueues all the time is dequeued all the time ---


def an_enqueue_and_a_dequeue(scene: Scene, *, dequeue_first: bool) -> list[int]:
    """Return the refusals of an enqueue and a dequeue after which items remain, which requeues the pointer to now."""
    for _ in range(2):
        scene.has(lambda alice: alice.enqueue("mail"))
    manager = scene.manager(dequeue_max=1)
    enqueuer = scene.user("enqueuer", lambda alice: alice.enqueue("mail", priority=0))
    roles: list[Role[Any]] = [manager, enqueuer] if dequeue_first else [enqueuer, manager]
    for role in roles:
        role.runs_until_commit()
    for role in roles:
        role.runs()
    return [code for role in roles for code in role.refused]


either_first = pytest.mark.parametrize("dequeue_first", [True, False], ids=["dequeue first", "enqueue first"])


@either_first
def test_an_enqueue_and_a_dequeue_after_which_items_remain_do_not_conflict(dequeue_first: bool) -> None:
    scene = Scene()
    assert an_enqueue_and_a_dequeue(scene, dequeue_first=dequeue_first) == []
    assert scene.late_us <= SLACK_US
    scene.check_stored()


@either_first
def test_without_snapshot_reads_they_conflict(dequeue_first: bool, monkeypatch: Patch) -> None:
    monkeypatch.setattr(LatentTransaction, "snapshot", property(lambda self: self))
    assert an_enqueue_and_a_dequeue(Scene(), dequeue_first=dequeue_first)[:1] == [NOT_COMMITTED]


# --- Cleared ---


def to_vest_at(vesting_us: int, **how: Any) -> Callable[[TenantDatabase], Enqueued]:
    """Return a function that enqueues an item with this vesting time."""

    def enqueue(tr: TenantTransaction) -> Enqueued:
        return tr.enqueue_item(new_item("mail", **how)._replace(delay_us=vesting_us - tr.now_us))

    return lambda alice: alice.transact(enqueue)


def a_dangling_pointer_entry_becomes_valid(scene: Scene) -> ManagerRole:
    """While a manager clears an entry without a pointer, the pointer is created with the entry's vesting time."""
    in_a_second_us = scene.now_us + SECOND
    part, pointer_id = scene.location.part, scene.location.pointer_id
    scene.plant(part.vest(100, in_a_second_us, pointer_id), b"")
    manager = scene.manager(ref=PointerRef(part.part, pointer_id, in_a_second_us, 100))
    manager.runs_until_commit()
    scene.user("enqueuer", to_vest_at(in_a_second_us)).runs()
    manager.runs()
    return manager


def test_a_dangling_entry_is_not_cleared_if_its_pointer_is_created_at_that_moment() -> None:
    scene = Scene()
    assert a_dangling_pointer_entry_becomes_valid(scene).refused == [NOT_COMMITTED]
    scene.check_stored()


def test_without_the_conflicts_of_the_clearing_the_pointer_has_no_entry(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, TOP_LEVEL, ALICES.pointer)
    scene = Scene()
    assert a_dangling_pointer_entry_becomes_valid(scene).refused == []
    assert scene.zone.pointer is not None
    assert scene.pointer_entries == set()


def a_dangling_item_entry_becomes_valid(scene: Scene) -> ManagerRole:
    """The same in a queue zone: the entry has vested by the clock of the manager, which is ahead."""
    in_a_second_us = scene.now_us + SECOND
    scene.plant(scene.location.keys.vest(0, in_a_second_us, item_id_of("order 7")), b"mail")
    for _ in range(2):  # More items than it leases, so that it does not read the whole index.
        scene.has(lambda alice: alice.enqueue("mail"))
    manager = scene.manager(skew_us=2 * SECOND, dequeue_max=1)
    manager.runs_until_commit()
    scene.user("enqueuer", to_vest_at(in_a_second_us, item_id="order 7", priority=0)).runs()
    manager.runs()
    return manager


def test_a_dangling_entry_is_not_cleared_if_its_item_is_enqueued_at_that_moment() -> None:
    scene = Scene()
    manager = a_dangling_item_entry_becomes_valid(scene)
    assert manager.refused == [NOT_COMMITTED]
    assert [ref.item_id for ref in manager.handed] == [item_id_of("order 7")]
    scene.check_stored()


def test_without_the_conflicts_of_the_clearing_the_item_has_no_entry(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, TENANTS)
    declare_nothing(monkeypatch, "add_read_conflict_key")
    scene = Scene()
    assert a_dangling_item_entry_becomes_valid(scene).refused == []
    assert item_id_of("order 7") in scene.zone.items
    assert item_id_of("order 7") not in {item_id for _, _, item_id in scene.zone.entries}
