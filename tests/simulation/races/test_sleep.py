"""A pointer falls asleep while another process inserts an entry that vests before the pointer wakes.

A sleep reads the whole vesting index with conflict and declares a write conflict on the pointer's guard. An insert
declares a read conflict on the guard. So the second of the two commits is refused and retried.
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

# --- The ways to insert: each prepares the story and returns the role of the race ---


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
    inserter.runs_until_commit()  # It has read the pointer awake.
    scene.manager().runs()
    assert scene.zone.pointer is not None
    assert scene.zone.pointer.vesting_us > scene.now_us + LEASE_US // 2
    inserter.runs()
    scene.check_stored()
    return inserter


@each_way_to_insert
def test_an_insert_that_read_the_pointer_awake_wakes_it_if_it_falls_asleep_at_that_moment(inserting: Inserting) -> None:
    scene = Scene()
    assert sleep_comes_first(scene, inserting).refused == [NOT_COMMITTED]
    assert scene.late_us <= SLACK_US


@each_way_to_insert
def test_without_the_write_conflict_of_a_sleep_the_inserted_entry_waits(
    inserting: Inserting, monkeypatch: Patch
) -> None:
    declare_nothing(monkeypatch, "add_write_conflict_key")
    scene = Scene()
    assert sleep_comes_first(scene, inserting).refused == []
    assert scene.late_us > SECOND


@each_way_to_insert
def test_without_the_conflict_on_the_guard_the_inserted_entry_waits(inserting: Inserting, monkeypatch: Patch) -> None:
    ignore_the_guard(monkeypatch)
    scene = Scene()
    assert sleep_comes_first(scene, inserting).refused == []
    assert scene.late_us > SECOND


# --- The insert comes first ---


def sleep_comes_second(scene: Scene, inserting: Inserting) -> ManagerRole:
    inserter = inserting(scene)
    manager = scene.manager()
    manager.runs_until_commit()  # It has read no entry that vests soon.
    inserter.runs()
    assert inserter.refused == []
    manager.runs()
    scene.check_stored()
    return manager


@each_way_to_insert
def test_a_sleep_during_an_insert_is_refused_and_retried(inserting: Inserting) -> None:
    scene = Scene()
    assert sleep_comes_second(scene, inserting).refused == [NOT_COMMITTED]
    assert scene.late_us <= SLACK_US


@each_way_to_insert
def test_without_the_conflict_on_the_whole_index_the_inserted_entry_waits(
    inserting: Inserting, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(process_pointers, "conflict_before_first", lambda *_: None)
    scene = Scene()
    assert sleep_comes_second(scene, inserting).refused == []
    assert scene.late_us > SECOND


# --- The pointer sleeps, and the inserter dies as soon as its commit has arrived ---


def inserter_dies(scene: Scene, inserting: Inserting) -> None:
    """QuiCK wakes the pointer in a second transaction, which would never come here."""
    inserter = inserting(scene)
    scene.manager().runs()
    inserter.runs_until_commit().arrives()
    scene.world.after(0, inserter.host.kill)
    scene.pass_us(SLACK_US)


@each_way_to_insert
def test_an_inserter_that_dies_right_after_its_commit_has_woken_the_pointer(inserting: Inserting) -> None:
    scene = Scene()
    inserter_dies(scene, inserting)
    assert scene.late_us <= SLACK_US
    scene.check_stored()


@each_way_to_insert
def test_without_the_wake_up_in_the_same_transaction_the_inserted_entry_waits(
    inserting: Inserting, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(pointers, "wake", lambda *_, **__: None)
    scene = Scene()
    inserter_dies(scene, inserting)
    assert scene.late_us > SECOND


# --- The sleep until the recheck: the zone has an item that no consumer can run ---


def a_mail_comes_behind_a_fax(scene: Scene) -> ManagerRole:
    scene.has(lambda alice: alice.enqueue("fax"))
    manager = scene.manager(kinds=["mail"])
    manager.runs_until_commit()
    scene.user("enqueuer", lambda alice: alice.enqueue("mail")).runs()
    manager.runs()
    return manager


def test_an_item_that_can_run_does_not_wait_for_the_recheck_of_one_that_cannot() -> None:
    scene = Scene()
    manager = a_mail_comes_behind_a_fax(scene)
    assert manager.refused == [NOT_COMMITTED]
    assert [ref.kind for ref in manager.handed] == ["mail"]


def test_without_the_conflict_on_the_whole_index_it_waits_for_the_recheck(monkeypatch: Patch) -> None:
    declare_nothing(monkeypatch, "add_read_conflict_range")
    scene = Scene()
    manager = a_mail_comes_behind_a_fax(scene)
    assert manager.handed == []
    assert scene.late_us > SECOND


# --- A pointer under a lease of its own ---


def an_item_arrives_while_the_pointer_is_leased(scene: Scene) -> ManagerRole:
    """The first transaction conflicts, so the manager leases the pointer, and reads the zone after that."""
    scene.has(lambda alice: alice.enqueue("mail"))
    scene.leased()
    manager = scene.manager()
    manager.runs_until_commit()
    scene.user("enqueuer", lambda alice: alice.enqueue("mail", delay=5)).runs()
    manager.runs_until_commit()  # the lease
    manager.runs_until_commit()  # the dequeue under the lease
    assert scene.zone.pointer is not None
    assert scene.zone.pointer.lease_id
    late = scene.user("late enqueuer", lambda alice: alice.enqueue("mail", priority=0))
    late.runs()
    assert late.refused == []
    assert scene.zone.pointer.lease_id, "an enqueue does not change a leased pointer, as its holder reads the zone"
    manager.runs()
    return manager


def test_an_enqueue_that_does_not_wake_a_leased_pointer_neither_waits_nor_conflicts_with_the_holder() -> None:
    scene = Scene()
    manager = an_item_arrives_while_the_pointer_is_leased(scene)
    assert manager.refused == [NOT_COMMITTED], "only the transaction before the lease"
    assert scene.late_us <= SLACK_US
    scene.pass_us(SLACK_US)
    next_manager = scene.manager("next manager")
    next_manager.runs()
    assert len(next_manager.handed) == 1


def test_if_the_holder_of_a_pointer_lease_could_send_the_pointer_to_sleep_the_item_would_wait(
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
