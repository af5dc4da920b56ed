"""Two processes at one id in the same moment: they enqueue, cancel or retry its item, or move its tenant away.

A transaction that answers "free", "taken" or "dead letter" has read the reason with conflict. So the answer is still
true when the transaction commits.
"""

import pytest

from fairlead.actors.execution.acknowledgement import settle
from fairlead.actors.execution.retry_decision import RetryDecision
from fairlead.handle import EnqueuedHandle
from fairlead.zones.engines.api.errors import NOT_COMMITTED
from fairlead.zones.errors import NotADeadLetter, TenantMoved
from fairlead.zones.layout import item_id_of
from fairlead.zones.queue.items import EnqueueStatus
from fairlead.zones.records import OwnerRecord, encode
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.simulation.races.director import Role
from tests.simulation.races.missing_guards import TENANTS, Patch, read_by_snapshot
from tests.simulation.races.scene import Scene, held

# --- Enqueue against enqueue or cancel ---


def two_enqueue_one_id(scene: Scene) -> tuple[EnqueueStatus, Role[EnqueuedHandle]]:
    scene.has(lambda alice: alice.enqueue("mail"))  # The pointer exists, so only the id makes the two conflict.
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


def answered_present_and_cancelled(scene: Scene) -> tuple[EnqueueStatus, Role[EnqueueStatus]]:
    """An application may store the answer of an enqueue in the same transaction, so it must be true at the commit."""

    def enqueue_and_note(tr: TenantTransaction) -> EnqueueStatus:
        status = tr.enqueue("mail", item_id="order 7").status
        tr.set(("noted",), status.value.encode())
        return status

    scene.has(lambda alice: alice.enqueue("mail", item_id="order 7"))
    noting = scene.user("noting", lambda alice: alice.transact(enqueue_and_note))
    noting.runs_until_commit()
    scene.has(lambda alice: alice.cancel("order 7"))
    return noting.runs(), noting


def test_the_answer_that_an_item_is_present_is_true_when_its_transaction_commits() -> None:
    scene = Scene()
    status, noting = answered_present_and_cancelled(scene)
    assert (status, noting.refused) == (EnqueueStatus.ENQUEUED, [NOT_COMMITTED])
    assert item_id_of("order 7") in scene.zone.items


def test_without_the_conflict_on_its_key_the_answer_that_an_item_is_present_may_be_wrong(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, TENANTS)
    scene = Scene()
    assert answered_present_and_cancelled(scene)[0] is EnqueueStatus.PRESENT
    assert scene.zone.items == {}


# --- Retry of a dead letter ---


def two_operators_retry_one_item(scene: Scene) -> Role[None]:
    scene.has(lambda alice: alice.enqueue("mail", item_id="order 7"))
    (item,) = scene.leased()
    scene.role("worker", lambda shard: settle(shard, [], [RetryDecision(held(shard, item), None, "never", "")])).runs()
    first = scene.user("first", lambda alice: alice.retry_dead_letter("order 7"))
    second = scene.user("second", lambda alice: alice.retry_dead_letter("order 7"))
    second.runs_until_commit()
    first.runs()
    return second


def test_the_second_of_two_retries_of_one_dead_letter_raises_not_a_dead_letter() -> None:
    scene = Scene()
    second = two_operators_retry_one_item(scene)
    with pytest.raises(NotADeadLetter):
        second.runs()
    assert second.refused == [NOT_COMMITTED]
    scene.check_stored()


def test_without_the_conflict_on_the_dead_letter_a_retried_item_is_counted_twice(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, TENANTS)
    scene = Scene()
    two_operators_retry_one_item(scene).runs()
    assert (scene.count, len(scene.zone.items)) == (2, 1)


# --- A tenant that moves to another shard ---


def a_tenant_moves_away(scene: Scene) -> Role[EnqueuedHandle]:
    scene.has(lambda alice: alice.enqueue("mail"))
    enqueuer = scene.user("enqueuer", lambda alice: alice.enqueue("mail"))
    enqueuer.runs_until_commit()
    scene.plant(scene.location.keys.tenant.owner, encode(OwnerRecord(2, b"another shard's")))
    return enqueuer


def test_an_enqueue_while_its_tenant_moves_away_raises_tenant_moved() -> None:
    scene = Scene()
    enqueuer = a_tenant_moves_away(scene)
    with pytest.raises(TenantMoved):
        enqueuer.runs()
    assert (enqueuer.refused, scene.count) == ([NOT_COMMITTED], 1)


def test_without_the_conflict_on_ownership_an_item_stays_on_the_old_shard(monkeypatch: Patch) -> None:
    read_by_snapshot(monkeypatch, TENANTS)
    scene = Scene()
    a_tenant_moves_away(scene).runs()
    assert scene.count == 2
