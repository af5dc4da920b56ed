"""One id, and two at the same moment: who enqueues it, cancels it, revives it, or moves its tenant away.

Who says that an id is free, taken or buried has read with conflict why; so it is still true when that commits.
"""

import pytest

from fairlead.actors.execution.acknowledgement import settle
from fairlead.actors.execution.retry_decision import RetryDecision
from fairlead.handle import EnqueuedHandle
from fairlead.tenant_database import NotADeadLetter
from fairlead.zones.engines.api.errors import NOT_COMMITTED
from fairlead.zones.errors import TenantMoved
from fairlead.zones.layout import item_id_of
from fairlead.zones.queue.items import EnqueueStatus
from fairlead.zones.records import OwnerRecord, encode
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.simulation.races.director import Role
from tests.simulation.races.missing_guards import TENANTS, Patch, read_by_snapshot
from tests.simulation.races.scene import Scene, held

# --- Enqueued, and enqueued or cancelled ---


def two_enqueue_one_id(scene: Scene) -> tuple[EnqueueStatus, Role[EnqueuedHandle]]:
    scene.has(lambda alice: alice.enqueue("mail"))  # The pointer is there: nothing else makes them conflict.
    first = scene.user("first", lambda alice: alice.enqueue("mail", item_id="order 7"))
    second = scene.user("second", lambda alice: alice.enqueue("mail", item_id="order 7"))
    second.runs_until_commit()
    first.runs()
    return second.runs().status, second


def test_of_two_enqueues_of_one_id_the_second_finds_it_present() -> None:
    scene = Scene()
    status, second = two_enqueue_one_id(scene)
    assert (status, second.refused) == (EnqueueStatus.PRESENT, [NOT_COMMITTED])
    scene.check_stored()


def test_without_the_conflict_on_its_key_one_item_is_counted_twice(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, TENANTS)
    scene = Scene()
    assert two_enqueue_one_id(scene)[0] is EnqueueStatus.ENQUEUED
    assert (scene.count, len(scene.zone.items)) == (3, 2)


def told_that_it_waits(scene: Scene) -> tuple[EnqueueStatus, Role[EnqueueStatus]]:
    """What an enqueue answers may be written down in the same transaction, so it must hold when that commits."""

    def enqueue_and_note(tr: TenantTransaction) -> EnqueueStatus:
        status = tr.enqueue("mail", item_id="order 7").status
        tr.set(("noted",), status.value.encode())
        return status

    scene.has(lambda alice: alice.enqueue("mail", item_id="order 7"))
    noting = scene.user("noting", lambda alice: alice.transact(enqueue_and_note))
    noting.runs_until_commit()
    scene.has(lambda alice: alice.cancel("order 7"))
    return noting.runs(), noting


def test_who_is_told_that_an_item_is_present_is_right_when_it_commits() -> None:
    scene = Scene()
    status, noting = told_that_it_waits(scene)
    assert (status, noting.refused) == (EnqueueStatus.ENQUEUED, [NOT_COMMITTED])
    assert item_id_of("order 7") in scene.zone.items


def test_without_the_conflict_on_its_key_who_is_told_that_an_item_is_present_may_be_wrong(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, TENANTS)
    scene = Scene()
    assert told_that_it_waits(scene)[0] is EnqueueStatus.PRESENT
    assert scene.zone.items == {}


# --- Revived ---


def two_revive_one_item(scene: Scene) -> Role[None]:
    scene.has(lambda alice: alice.enqueue("mail", item_id="order 7"))
    (item,) = scene.leased()
    scene.role("worker", lambda shard: settle(shard, [], [RetryDecision(held(shard, item), None, "never", "")])).runs()
    first = scene.user("first", lambda alice: alice.retry_dead_letter("order 7"))
    second = scene.user("second", lambda alice: alice.retry_dead_letter("order 7"))
    second.runs_until_commit()
    first.runs()
    return second


def test_of_two_operators_who_revive_one_item_the_second_is_told_that_it_is_not_buried() -> None:
    scene = Scene()
    second = two_revive_one_item(scene)
    with pytest.raises(NotADeadLetter):
        second.runs()
    assert second.refused == [NOT_COMMITTED]
    scene.check_stored()


def test_without_the_conflict_on_its_grave_a_revived_item_is_counted_twice(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, TENANTS)
    scene = Scene()
    two_revive_one_item(scene).runs()
    assert (scene.count, len(scene.zone.items)) == (2, 1)


# --- A tenant that moves away ---


def a_tenant_moves_away(scene: Scene) -> Role[EnqueuedHandle]:
    scene.has(lambda alice: alice.enqueue("mail"))
    enqueuer = scene.user("enqueuer", lambda alice: alice.enqueue("mail"))
    enqueuer.runs_until_commit()
    scene.plant(scene.location.keys.tenant.owner, encode(OwnerRecord(2, b"another shard's")))
    return enqueuer


def test_who_enqueues_while_its_tenant_moves_away_is_told_so() -> None:
    scene = Scene()
    enqueuer = a_tenant_moves_away(scene)
    with pytest.raises(TenantMoved):
        enqueuer.runs()
    assert (enqueuer.refused, scene.count) == ([NOT_COMMITTED], 1)


def test_without_the_conflict_on_ownership_an_item_is_left_behind(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, TENANTS)
    scene = Scene()
    a_tenant_moves_away(scene).runs()
    assert scene.count == 2
