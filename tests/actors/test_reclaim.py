"""Freeing: what a dead worker held vests at once, as far as anybody can know that it is dead."""

from __future__ import annotations

import logging

import pytest

from fairlead.actors.dispatch.pool_member import Member, OrphanedItems
from fairlead.actors.dispatch.reclaim import RECLAIM_S, Reclaimer, reclaim
from fairlead.actors.messages import ItemRef
from fairlead.actors.runtime.periodic_task import PeriodicTask
from fairlead.simulation.external import statements
from fairlead.simulation.external.calls import ItemsAtOnce
from fairlead.zones.external.names import Queue, place_for, pointer_zone
from fairlead.zones.external.store import ItemLease, Want
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.items import new_item
from tests.actors.stage import ALICE, BOB, LEASE_MS, SECOND, Stage, report
from tests.simulation.mutations.mutation import in_a_race

LIFE = "worker#1"
QUEUE, ITEM_ID, LEASE_ID = Queue(ALICE, "queue"), b"i" * 16, b"l" * 16


@pytest.fixture
def stage() -> Stage:
    return Stage()


def leased(stage: Stage, count: int = 1) -> OrphanedItems:
    """Return what a worker took: so many of Alice's items, and one of Bob's."""
    for number in range(count):
        stage.enqueue("mail", number)
    stage.enqueue("mail", "bob's", tenant=BOB)
    return [*stage.lease(["mail"]), *stage.lease(["mail"], tenant=BOB)]


def watched(stage: Stage, *left: OrphanedItems) -> PeriodicTask:
    """Watch over workers that have taken `left`: each some items."""
    members = []
    for items in left:
        member = Member()
        member.update(report(incarnation=LIFE.encode()))
        member.send(items)
        members.append(member)
    lock = stage.host.lock()
    reclaimer = Reclaimer(stage.shards, members, lock, stage.host.has_ended)
    watch = PeriodicTask(stage.host, "reclaim", lock, reclaimer.reclaim_orphans, pause_s=RECLAIM_S)
    stage.do(watch.begin)
    return watch


def vests_in_us(stage: Stage, item_id: bytes, tenant: Tenant = ALICE) -> int:
    record = stage.record(item_id, tenant=tenant)
    assert record is not None
    return record.vesting_us - stage.now_us


def test_what_a_dead_worker_held_vests_at_once_and_so_do_its_pointers(stage: Stage) -> None:
    left = leased(stage, 3)
    reclaim(stage.shards, left)
    stage.pass_ms(1)
    again = [ref for tenant in (ALICE, BOB) for ref in stage.lease(["mail"], tenant=tenant)]
    assert sorted(ref.item_id for ref in again) == sorted(ref.item_id for ref in left)
    assert len(stage.pointers()) == 2


def test_a_reclaimed_item_counts_a_lease_expiry(stage: Stage) -> None:
    left = leased(stage)
    reclaim(stage.shards, left)
    stage.pass_ms(1)
    stage.lease(["mail"])
    record = stage.record(left[0].item_id)
    assert record is not None
    assert (record.expired_count, record.expiry_count, record.error_count) == (1, 0, 0), (
        "nobody wrote that it had started"
    )


def test_items_that_were_completed_or_leased_again_are_not_reclaimed(stage: Stage) -> None:
    left = leased(stage, 2)
    done, taken, _ = left
    stage.shard.transact(
        lambda attempt: stage.shard.zone(ALICE).complete(
            attempt.tr, done.item_id, now_us=attempt.now_us, lease_id=done.lease_id
        )
    )
    stage.steal(taken.item_id)
    reclaim(stage.shards, left)
    assert stage.record(done.item_id) is None
    assert vests_in_us(stage, taken.item_id) > 9 * SECOND


def test_items_whose_reclaim_the_store_refuses_vest_when_their_leases_expire(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    left = leased(stage)
    stage.store.full = True
    with caplog.at_level(logging.WARNING):
        reclaim(stage.shards, left)
    assert "shard main refuses; the items that a dead worker held there vest when their leases expire" in caplog.text
    stage.store.full = False
    stage.pass_ms(LEASE_MS)
    assert len(stage.lease(["mail"])) == 1


# --- The watch ---


def test_a_worker_keeps_what_it_has_until_it_is_seen_to_be_dead(stage: Stage) -> None:
    left = leased(stage)
    watched(stage, left)
    stage.pass_ms(3_000)
    assert vests_in_us(stage, left[0].item_id) > 6 * SECOND
    stage.world.ended_incarnations.add(LIFE)
    stage.pass_ms(300)
    assert vests_in_us(stage, left[0].item_id) <= 0


def test_a_watch_that_was_stopped_frees_nothing(stage: Stage) -> None:
    left = leased(stage)
    stage.do(watched(stage, left).stop)
    stage.world.ended_incarnations.add(LIFE)
    stage.pass_ms(1_000)
    assert vests_in_us(stage, left[0].item_id) > 8 * SECOND


def test_a_shard_that_is_away_does_not_delay_what_several_dead_workers_held_on_another(stage: Stage) -> None:
    """Only the end of their sessions asks it."""
    one, another = leased(stage), leased(stage)
    other, shard = stage.open_shard("other")
    stage.shards = {"other": shard, **stage.shards}
    watched(stage, one, another)
    other.silent = True
    stage.world.ended_incarnations.add(LIFE)
    stage.pass_ms(300)
    assert [vests_in_us(stage, ref.item_id, ref.tenant) <= 0 for ref in (*one, *another)] == [True] * 4


# --- In an external store ---


def vests_after_the_roll_back() -> list[bool]:
    """Say whether the lease has ended after each of three looks; a dead worker's transaction is rolled back between."""
    stage = Stage()
    store = ItemsAtOnce(stage.clock.now_us)
    user = store.begin()
    store.enqueue(user, QUEUE, ITEM_ID, new_item("mail"))
    store.commit(user)
    (leased,) = store.dequeue([Want(QUEUE, 1)], {"mail": 1}, lease_id=LEASE_ID, lease_us=60 * SECOND, now_us=0).rows
    member = Member()
    member.update(report(incarnation=LIFE.encode()))
    place = place_for("main", pointer_zone("pg", "queue"))
    member.send([ItemRef(place, ALICE, "queue", leased.id, LEASE_ID, "mail", False)])
    reclaimer = Reclaimer(stage.shards, [member], stage.host.lock(), stage.host.has_ended, {"pg": store})
    handler = store.begin()
    assert statements.hold(handler, ItemLease(ITEM_ID, LEASE_ID))
    stage.world.ended_incarnations.add(LIFE)
    ended = []
    for end in (lambda: None, lambda: store.roll_back(handler), lambda: None):
        end()
        stage.do(reclaimer.reclaim_orphans)
        ended.append(store.items[ITEM_ID].leased_until_us - stage.now_us <= 1)
    return ended


def test_an_item_that_a_dead_workers_transaction_has_locked_vests_once_that_is_rolled_back() -> None:
    assert vests_after_the_roll_back() == [False, True, True]


def test_without_another_try_it_waits_for_the_end_of_its_lease() -> None:
    bug = Reclaimer.reclaim_orphans, "self._locked += reclaim(", "reclaim("
    with in_a_race("a manager reclaims each item once", bug).planted():
        assert vests_after_the_roll_back() == [False, False, False]
