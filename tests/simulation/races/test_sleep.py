"""A pointer that falls asleep, against everybody who inserts something that vests earlier than it will wake.

Whoever sleeps reads the whole vesting index with conflict and declares a write of the pointer's guard; whoever inserts
declares a read of it. So of two at the same moment the second to commit is refused, and looks again.
"""

from collections.abc import Callable
from typing import Any

import pytest

from fairlead.zones.engines.api.errors import NOT_COMMITTED
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.queue import dead_letters
from fairlead.zones.queue.dequeue_plan import DequeuePlan
from fairlead.zones.records import PointerRecord
from fairlead.zones.shard import Shard
from fairlead.zones.top_level import pointers, process_pointers
from fairlead.zones.top_level.process_pointers import DequeueParams
from fairlead.zones.transaction_runner import Attempt
from tests.simulation.races.director import Role
from tests.simulation.races.missing_guards import Patch, declare_nothing, ignore_the_guard
from tests.simulation.races.scene import LEASE_US, SLACK_US, ManagerRole, Scene
from tests.simulation.stage import ALICE, SECOND

POINTER_LEASE_US = SECOND  # `pointer_lease_ms`

# --- Who inserts: each has its part of the story before the race, and returns the role of the race ---


def enqueues_another_priority(scene: Scene) -> Role[object]:
    scene.has(lambda alice: alice.enqueue("mail"))
    scene.leased()
    return scene.user("enqueuer", lambda alice: alice.enqueue("mail", priority=0))


def holds_an_item(scene: Scene, does: Callable[[Attempt, Shard, bytes, bytes], object]) -> Role[object]:
    scene.has(lambda alice: alice.enqueue("mail"))
    (item,) = scene.leased()
    return scene.role(
        "holder",
        lambda shard: shard.transact(lambda attempt: does(attempt, shard, item.id, item.record.lease_id)),
    )


def returns_it(scene: Scene) -> Role[object]:
    return holds_an_item(
        scene,
        lambda attempt, shard, item_id, lease_id: shard.zone(ALICE).requeue(
            attempt.tr, item_id, lease_id, delay_us=0, now_us=attempt.now_us
        ),
    )


def retries_in_a_second(scene: Scene) -> Role[object]:
    return holds_an_item(
        scene,
        lambda attempt, shard, item_id, lease_id: shard.zone(ALICE).requeue(
            attempt.tr, item_id, lease_id, delay_us=SECOND, now_us=attempt.now_us, error_count=1, error="no"
        ),
    )


def shortens_its_lease(scene: Scene) -> Role[object]:
    return holds_an_item(
        scene,
        lambda attempt, shard, item_id, lease_id: shard.zone(ALICE).extend_lease(
            attempt.tr, item_id, lease_id, lease_us=SECOND, now_us=attempt.now_us
        ),
    )


def retries_a_dead_letter(scene: Scene) -> Role[object]:
    item_id = scene.has(lambda alice: alice.enqueue("mail")).item_id
    dead_letter(scene, item_id)
    return scene.user("operator", lambda alice: alice.retry_dead_letter(item_id))


def dead_letter(scene: Scene, item_id: bytes) -> None:
    record = scene.zone.items[item_id]
    scene.play(
        lambda: scene.shard.transact(
            lambda attempt: dead_letters.move_to_dead_letters(
                attempt.tr,
                scene.location,
                item_id,
                record,
                reason="error",
                error="",
                traceback="",
                now_us=attempt.now_us,
            )
        )
    )


INSERTING = [enqueues_another_priority, returns_it, retries_in_a_second, shortens_its_lease, retries_a_dead_letter]
Inserting = Callable[[Scene], Role[object]]
each_way_to_insert = pytest.mark.parametrize("inserting", INSERTING, ids=lambda inserting: inserting.__name__)


# --- The pointer falls asleep first ---


def sleep_comes_first(scene: Scene, inserting: Inserting) -> Role[object]:
    inserter = inserting(scene)
    inserter.runs_until_commit()  # It saw the pointer awake.
    scene.manager().runs()
    assert scene.zone.pointer is not None
    assert scene.zone.pointer.vesting_us > scene.now_us + LEASE_US // 2
    inserter.runs()
    scene.check_stored()
    return inserter


@each_way_to_insert
def test_who_saw_the_pointer_awake_wakes_it_if_it_falls_asleep_at_that_moment(inserting: Inserting) -> None:
    scene = Scene()
    assert sleep_comes_first(scene, inserting).refused == [NOT_COMMITTED]
    assert scene.late_us <= SLACK_US


@each_way_to_insert
def test_without_the_write_that_a_sleep_declares_what_was_inserted_waits(
    inserting: Inserting, monkeypatch: Patch
) -> None:
    declare_nothing(monkeypatch, "add_write_conflict_key")
    scene = Scene()
    assert sleep_comes_first(scene, inserting).refused == []
    assert scene.late_us > SECOND


@each_way_to_insert
def test_without_the_conflict_on_the_guard_what_was_inserted_waits(inserting: Inserting, monkeypatch: Patch) -> None:
    ignore_the_guard(monkeypatch)
    scene = Scene()
    assert sleep_comes_first(scene, inserting).refused == []
    assert scene.late_us > SECOND


# --- What is inserted comes first ---


def sleep_comes_second(scene: Scene, inserting: Inserting) -> ManagerRole:
    inserter = inserting(scene)
    manager = scene.manager()
    manager.runs_until_commit()  # It has seen nothing that vests soon.
    inserter.runs()
    assert inserter.refused == []
    manager.runs()
    scene.check_stored()
    return manager


@each_way_to_insert
def test_who_falls_asleep_while_something_is_inserted_looks_again(inserting: Inserting) -> None:
    scene = Scene()
    assert sleep_comes_second(scene, inserting).refused == [NOT_COMMITTED]
    assert scene.late_us <= SLACK_US


@each_way_to_insert
def test_without_the_conflict_on_the_whole_index_what_was_inserted_waits(
    inserting: Inserting, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(process_pointers, "conflict_before_first", lambda *_: None)
    scene = Scene()
    assert sleep_comes_second(scene, inserting).refused == []
    assert scene.late_us > SECOND


# --- The pointer sleeps, and whoever inserts dies as soon as its commit has arrived ---


def inserter_dies(scene: Scene, inserting: Inserting) -> None:
    """QuiCK wakes the pointer in a second transaction, which then never comes."""
    inserter = inserting(scene)
    scene.manager().runs()
    inserter.runs_until_commit().arrives()
    scene.world.after(0, inserter.host.kill)
    scene.pass_us(SLACK_US)


@each_way_to_insert
def test_who_dies_right_after_its_commit_has_woken_the_sleeping_pointer(inserting: Inserting) -> None:
    scene = Scene()
    inserter_dies(scene, inserting)
    assert scene.late_us <= SLACK_US
    scene.check_stored()


@each_way_to_insert
def test_without_waking_in_the_same_transaction_what_was_inserted_waits(
    inserting: Inserting, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(pointers, "wake", lambda *_, **__: None)
    scene = Scene()
    inserter_dies(scene, inserting)
    assert scene.late_us > SECOND


# --- The sleep until the recheck: there is something that nobody here can run ---


def what_can_run_comes_behind_what_cannot(scene: Scene) -> ManagerRole:
    scene.has(lambda alice: alice.enqueue("fax"))
    manager = scene.manager(kinds=["mail"])
    manager.runs_until_commit()
    scene.user("enqueuer", lambda alice: alice.enqueue("mail")).runs()
    manager.runs()
    return manager


def test_what_can_run_does_not_wait_for_the_recheck_of_what_cannot() -> None:
    scene = Scene()
    manager = what_can_run_comes_behind_what_cannot(scene)
    assert manager.refused == [NOT_COMMITTED]
    assert [ref.kind for ref in manager.handed] == ["mail"]


def test_without_the_conflict_on_the_whole_index_what_can_run_waits_for_the_recheck(monkeypatch: Patch) -> None:
    declare_nothing(monkeypatch, "add_read_conflict_range")
    scene = Scene()
    manager = what_can_run_comes_behind_what_cannot(scene)
    assert manager.handed == []
    assert scene.late_us > SECOND


# --- A pointer under a lease of its own ---


def an_item_arrives_while_the_pointer_is_leased(scene: Scene) -> ManagerRole:
    """The visit is contended, so the manager leases the pointer first, and then looks into the zone."""
    scene.has(lambda alice: alice.enqueue("mail"))
    scene.leased()
    manager = scene.manager()
    manager.runs_until_commit()
    scene.user("enqueuer", lambda alice: alice.enqueue("mail", delay=5)).runs()
    manager.runs_until_commit()  # the lease
    manager.runs_until_commit()  # the visit under it
    assert scene.zone.pointer is not None
    assert scene.zone.pointer.lease_id
    late = scene.user("late enqueuer", lambda alice: alice.enqueue("mail", priority=0))
    late.runs()
    assert late.refused == []
    assert scene.zone.pointer.lease_id, "it leaves a pointer alone whose holder will look"
    manager.runs()
    return manager


def test_an_enqueue_that_left_a_leased_pointer_alone_neither_waits_nor_stands_in_the_holders_way() -> None:
    scene = Scene()
    manager = an_item_arrives_while_the_pointer_is_leased(scene)
    assert manager.refused == [NOT_COMMITTED], "only the visit before the lease"
    assert scene.late_us <= SLACK_US
    scene.pass_us(SLACK_US)
    next_manager = scene.manager("next manager")
    next_manager.runs()
    assert len(next_manager.handed) == 1


def test_if_a_visit_under_a_lease_could_send_the_pointer_to_sleep_what_it_did_not_see_would_wait(
    monkeypatch: Patch,
) -> None:
    def sleep(
        tr: Any, location: ZoneLocation, pointer: PointerRecord, plan: DequeuePlan, params: DequeueParams
    ) -> None:
        pointer.lease_id = b""
        pointers.move(tr, location, pointer, plan.first[0].vesting_us, now_us=params.now_us)

    monkeypatch.setattr(process_pointers, "_requeue_awake", sleep)
    scene = Scene()
    an_item_arrives_while_the_pointer_is_leased(scene)
    assert scene.late_us > POINTER_LEASE_US
