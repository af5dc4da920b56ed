"""Two processes have read one item: its holder, and a process that cancels or leases the item at that moment.

Each change of an item reads its record with conflict and compares the lease id. So the second commit is refused, and
its retry finds that the lease is lost.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from fairlead.actors.execution import acknowledgement
from fairlead.actors.execution.retry_decision import RetryDecision
from fairlead.zones.engines.api.errors import NOT_COMMITTED
from fairlead.zones.errors import ItemGone, LeaseLost
from fairlead.zones.queue.items import LeasedItem
from fairlead.zones.queue.lease_check import check_lease
from fairlead.zones.shard import Shard
from tests.simulation.races.director import Role
from tests.simulation.races.missing_guards import TENANTS, Patch, planted, read_by_snapshot
from tests.simulation.races.scene import ManagerRole, Scene, held, paid, pay, ref_of
from tests.simulation.stage import ALICE, SECOND

SHORT_LEASE_US = SECOND

# --- The actions of a holder ---

HolderAction = Callable[[Shard, LeasedItem], object]


def completes(shard: Shard, item: LeasedItem) -> object:
    return acknowledgement.settle(shard, [held(shard, item)], [])


def retries(shard: Shard, item: LeasedItem) -> object:
    return acknowledgement.settle(shard, [], [RetryDecision(held(shard, item), 60 * SECOND, "no", "")])


def dead_letters(shard: Shard, item: LeasedItem) -> object:
    return acknowledgement.settle(shard, [], [RetryDecision(held(shard, item), None, "never", "")])


def returns_it(shard: Shard, item: LeasedItem) -> object:
    return shard.transact(
        lambda attempt: shard.zone(ALICE).requeue(
            attempt.tr, item.id, item.record.lease_id, delay_us=0, now_us=attempt.now_us
        )
    )


def extends(shard: Shard, item: LeasedItem) -> object:
    return shard.transact(
        lambda attempt: shard.zone(ALICE).extend_lease(
            attempt.tr, item.id, item.record.lease_id, lease_us=60 * SECOND, now_us=attempt.now_us
        )
    )


each_action = pytest.mark.parametrize(
    "does", [completes, retries, dead_letters, returns_it, extends], ids=lambda does: does.__name__
)


def holder_of_an_item(scene: Scene, does: HolderAction) -> tuple[LeasedItem, Role[object]]:
    scene.has(lambda alice: alice.enqueue("mail"))
    (item,) = scene.leased(SHORT_LEASE_US)
    return item, scene.role("holder", lambda shard: does(shard, item))


# --- Cancelled ---


def an_item_is_cancelled(scene: Scene, does: HolderAction) -> Role[object]:
    item, holder = holder_of_an_item(scene, does)
    holder.runs_until_commit()
    scene.has(lambda alice: alice.cancel(item.id))
    try_to_run(holder)
    return holder


def try_to_run(role: Role[Any]) -> None:
    """Run a role to its end, even if it finds that the item is gone."""
    with suppress(LeaseLost, ItemGone):
        role.runs()


@each_action
def test_a_cancelled_item_stays_cancelled_whatever_its_holder_does_at_that_moment(does: HolderAction) -> None:
    scene = Scene()
    assert an_item_is_cancelled(scene, does).refused == [NOT_COMMITTED]
    assert (scene.zone.items, scene.zone.dead_lettered, scene.count) == ({}, {}, 0)
    scene.check_stored()


@each_action
def test_without_the_conflict_on_its_record_a_cancelled_item_is_restored_or_counted_twice(
    does: HolderAction, monkeypatch: Patch
) -> None:
    read_by_snapshot(monkeypatch, TENANTS)
    scene = Scene()
    assert an_item_is_cancelled(scene, does).refused == []
    assert scene.count != len(scene.zone.items)


def an_item_is_cancelled_while_it_is_dequeued(scene: Scene) -> ManagerRole:
    """A second item has vested, so the manager does not send the pointer to sleep and reads only the window."""
    item_id = scene.has(lambda alice: alice.enqueue("mail")).item_id
    scene.has(lambda alice: alice.enqueue("mail"))
    manager = scene.manager(dequeue_max=1)
    manager.runs_until_commit()
    scene.has(lambda alice: alice.cancel(item_id))
    manager.runs()
    return manager


def test_an_item_that_is_cancelled_while_it_is_dequeued_is_not_handed_over() -> None:
    scene = Scene()
    manager = an_item_is_cancelled_while_it_is_dequeued(scene)
    assert manager.refused == [NOT_COMMITTED]
    assert [ref.item_id for ref in manager.handed] == list(scene.zone.items), "the other one"
    scene.check_stored()


def test_without_the_conflict_on_its_record_an_item_survives_a_cancel_during_its_dequeue(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, TENANTS)
    scene = Scene()
    an_item_is_cancelled_while_it_is_dequeued(scene)
    assert (scene.count, len(scene.zone.items)) == (1, 2)


# --- Leased by another ---


def an_item_is_leased_by_another(scene: Scene, does: HolderAction) -> tuple[Role[object], ManagerRole]:
    """The lease has expired under a slow holder, and a manager leases the item."""
    _, holder = holder_of_an_item(scene, does)
    scene.pass_us(2 * SHORT_LEASE_US)
    holder.runs_until_commit()
    manager = scene.manager()
    manager.runs()
    try_to_run(holder)
    return holder, manager


def is_held_by(scene: Scene, manager: ManagerRole) -> bool:
    """Whether the item that the manager handed over is still under the manager's lease."""
    (ref,) = manager.handed
    record = scene.zone.items.get(ref.item_id)
    return record is not None and record.lease_id == ref.lease_id and record.vesting_us > scene.now_us


@each_action
def test_a_late_holder_does_not_change_an_item_that_another_leases_at_that_moment(does: HolderAction) -> None:
    scene = Scene()
    holder, manager = an_item_is_leased_by_another(scene, does)
    assert holder.refused == [NOT_COMMITTED]
    assert is_held_by(scene, manager)
    scene.check_stored()


@each_action
def test_without_the_conflict_on_its_record_a_late_holder_changes_the_item(
    does: HolderAction, monkeypatch: Patch
) -> None:
    read_by_snapshot(monkeypatch, TENANTS)
    scene = Scene()
    holder, manager = an_item_is_leased_by_another(scene, does)
    assert holder.refused == []
    assert not is_held_by(scene, manager)


def test_a_late_holder_makes_a_dead_letter_of_an_item_that_another_holds() -> None:
    scene = Scene()
    with planted("an item that failed for good becomes a dead letter, or is dropped, although another holds it"):
        _, manager = an_item_is_leased_by_another(scene, dead_letters)
    assert not is_held_by(scene, manager)


@pytest.mark.parametrize("does", [completes, retries, returns_it], ids=lambda does: does.__name__)
def test_without_the_comparison_of_leases_a_late_holder_changes_the_item(
    does: HolderAction, monkeypatch: Patch
) -> None:
    """Dead-lettering has its own comparison; an extension under the wrong lease leaves the right lease in place."""
    held_by = check_lease
    monkeypatch.setattr("fairlead.zones.queue.lease_check.check_lease", lambda value, lease_id: held_by(value, None))
    scene = Scene()
    holder, manager = an_item_is_leased_by_another(scene, does)
    assert holder.refused == [NOT_COMMITTED]
    assert not is_held_by(scene, manager)


# --- Effects that commit with the completion ---


def effect_of_two_attempts(scene: Scene) -> tuple[int, list[int]]:
    """The slow attempt only has to commit when a second attempt, on another worker, does the work."""
    scene.has(lambda alice: alice.enqueue("mail"))
    (item,) = scene.leased(SHORT_LEASE_US)
    slow = scene.role("slow", lambda shard: pay(shard, ref_of(item)))
    slow.runs_until_commit()
    scene.pass_us(SHORT_LEASE_US)
    (again,) = scene.leased()
    scene.role("quick", lambda shard: pay(shard, ref_of(again))).runs()
    try_to_run(slow)
    return paid(scene), slow.refused


def test_of_two_attempts_at_one_item_the_effects_of_one_commit() -> None:
    assert effect_of_two_attempts(Scene()) == (1, [NOT_COMMITTED])


def test_without_the_conflict_on_its_record_the_effects_of_both_attempts_commit(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, TENANTS)
    assert effect_of_two_attempts(Scene()) == (2, [])
