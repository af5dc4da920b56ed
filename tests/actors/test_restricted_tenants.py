"""A tenant that is locked, or has moved, holds up neither its neighbours in a batch nor, for long, its own items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlead.actors.dispatch.reclaim import reclaim, return_items
from fairlead.actors.execution.job import Job
from fairlead.actors.execution.returned_items import return_where_they_live
from fairlead.actors.handlers import PermanentError
from fairlead.actors.messages import ItemRef
from fairlead.actors.worker import Worker
from fairlead.zones.engines.api.errors import IO_ERROR
from fairlead.zones.errors import TenantMoved
from fairlead.zones.keyspace import TenantKeys, range_end
from fairlead.zones.layout import Tenant
from fairlead.zones.records import Lock, OwnerRecord, TransactionId, encode
from fairlead.zones.shard import Shard
from tests.actors.stage import ALICE, BOB, LEASE_MS, Stage
from tests.zones.faults import Fault, FaultyDatabase

CLAIMED_MS = LEASE_MS // 3 + 500  # By then each lease is a claim.


@pytest.fixture
def stage() -> Stage:
    return Stage()


def owner_key(tenant: Tenant) -> bytes:
    return TenantKeys(*tenant).owner


def lock(stage: Stage, tenant: Tenant) -> None:
    """Let a transaction across shards lock a tenant, whose home shard nobody knows."""
    held = Lock(TransactionId(stage.now_us, b"r" * 10, 1), b"another shard...", exclusive=True)
    locked = encode(OwnerRecord(0, stage.shard.layout.shard_id, locks=(held,)))
    stage.shard.transact(lambda attempt: attempt.tr.set(owner_key(tenant), locked))


def unlock(stage: Stage, tenant: Tenant) -> None:
    stage.shard.transact(lambda attempt: attempt.tr.clear(owner_key(tenant)))


def second_shard(stage: Stage) -> Shard:
    """Open another shard, to which tenants may move."""
    _, shard = stage.open_shard("other")
    by_id = {each.layout.shard_id.hex(): each for each in (stage.shard, shard)}

    def follow(moved: TenantMoved) -> Shard | None:
        return by_id.get(moved.owner or "")

    stage.shard.follow = shard.follow = follow
    stage.shards["other"] = shard
    return shard


def move(stage: Stage, tenant: Tenant, to: Shard) -> None:
    """Move a tenant in one moment."""
    begin = TenantKeys(*tenant).prefix
    rows = stage.shard.transact(lambda attempt: [(*row,) for row in attempt.tr.get_range(begin, range_end(begin))])
    owner = encode(OwnerRecord(1, to.layout.shard_id))

    def take(attempt: Any) -> None:
        for key, value in rows:
            attempt.tr.set(key, value)
        attempt.tr.set(owner_key(tenant), owner)

    def leave(attempt: Any) -> None:
        attempt.tr.clear_range(begin, range_end(begin))
        attempt.tr.set(owner_key(tenant), owner)

    to.transact(take)
    stage.shard.transact(leave)


def fails(job: Job) -> None:
    raise PermanentError("no")


def placed(stage: Stage, worker: Worker, kind: str = "mail") -> list[bytes]:
    """Place one item of each tenant; return their ids."""
    items = [stage.enqueue(kind, tenant=tenant) for tenant in (ALICE, BOB)]
    refs = [ref for tenant in (ALICE, BOB) for ref in stage.lease([kind], tenant=tenant)]
    for tenant in (ALICE,):
        lock(stage, tenant)
    stage.place(worker, refs)
    return items


# --- Locked ---


@pytest.mark.parametrize("handler", [lambda job: None, fails], ids=["completed", "failed"])
def test_the_end_of_an_item_does_not_wait_for_a_locked_tenant_of_another_one(
    stage: Stage, handler: Callable[[Job], None]
) -> None:
    worker = stage.worker([stage.handler("mail", handler)])
    alice, bob = placed(stage, worker)
    began_us = stage.now_us
    stage.wait_for(lambda: stage.record(bob, tenant=BOB) is None)
    assert stage.now_us - began_us < 100_000
    assert stage.record(alice) is not None
    unlock(stage, ALICE)
    began_us = stage.now_us
    stage.wait_for(lambda: stage.record(alice) is None)
    assert stage.now_us - began_us < 50_000
    assert "lost" not in stage.settled(worker)


def test_the_end_of_an_item_whose_tenant_stays_locked_is_lost_with_its_lease(stage: Stage) -> None:
    worker = stage.worker([stage.handler("mail", lambda job: None)])
    placed(stage, worker)
    assert stage.settled(worker) == {"completed": 1, "lost": 1}


def test_a_claim_is_made_though_the_tenant_of_another_one_is_locked(stage: Stage) -> None:
    def handle(job: Job) -> None:
        stage.sleep_ms(2 * LEASE_MS)

    worker = stage.worker([stage.handler("mail", handle)], slots=2)
    alice, bob = placed(stage, worker)
    stage.pass_ms(CLAIMED_MS)
    found = stage.record(bob, tenant=BOB)
    assert found is not None
    assert found.claim
    unlock(stage, ALICE)
    stage.pass_ms(500)
    found = stage.record(alice)
    assert found is not None
    assert found.claim
    assert stage.settled(worker) == {"completed": 2}


def test_items_are_returned_though_the_tenant_of_another_one_is_locked(stage: Stage) -> None:
    items = [stage.enqueue("mail", tenant=tenant) for tenant in (ALICE, BOB)]
    refs = [ref for tenant in (ALICE, BOB) for ref in stage.lease(["mail"], tenant=tenant)]
    lock(stage, ALICE)
    outcome = stage.begin(lambda: return_where_they_live(stage.shard, refs))
    stage.pass_ms(100)
    records = [stage.record(item, tenant=tenant) for item, tenant in zip(items, (ALICE, BOB), strict=True)]
    assert [record is not None and bool(record.lease_id) for record in records] == [True, False]
    unlock(stage, ALICE)
    stage.wait_for(lambda: outcome.over_us is not None)
    record = stage.record(items[0])
    assert record is not None
    assert not record.lease_id


# --- Moved ---


@pytest.mark.parametrize("handler", [lambda job: None, fails], ids=["completed", "failed"])
def test_the_end_of_an_item_follows_its_tenant(stage: Stage, handler: Callable[[Job], None]) -> None:
    other = second_shard(stage)

    def handle(job: Job) -> None:
        if job.tenant == ALICE:
            move(stage, ALICE, other)
        handler(job)

    worker = stage.worker([stage.handler("mail", handle)])
    items = [stage.enqueue("mail", tenant=tenant) for tenant in (ALICE, BOB)]
    stage.place(worker, [ref for tenant in (ALICE, BOB) for ref in stage.lease(["mail"], tenant=tenant)])
    ended = "completed" if handler is not fails else "dead_lettered"
    assert stage.settled(worker) == {ended: 2}
    assert stage.record(items[0], shard=other) is None


def test_a_failed_item_of_a_tenant_that_has_moved_waits_for_its_retry_there(stage: Stage) -> None:
    other = second_shard(stage)

    def handle(job: Job) -> None:
        move(stage, ALICE, other)
        raise LookupError("not now")

    worker = stage.worker([stage.handler("mail", handle)])
    item = stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker) == {"retried": 1}
    record = stage.record(item, shard=other)
    assert record is not None
    assert (record.error_count, record.lease_id) == (1, b"")


def test_a_lease_of_a_tenant_that_has_moved_is_claimed_there(stage: Stage) -> None:
    other = second_shard(stage)

    def handle(job: Job) -> None:
        move(stage, ALICE, other)
        stage.sleep_ms(3 * LEASE_MS)

    worker = stage.worker([stage.handler("mail", handle)])
    item = stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.pass_ms(CLAIMED_MS)
    record = stage.record(item, shard=other)
    assert record is not None
    assert record.claim
    assert stage.settled(worker) == {"completed": 1}
    assert stage.record(item, shard=other) is None


def test_a_claim_of_a_tenant_that_has_moved_is_claimed_again_there(stage: Stage) -> None:
    """The mover makes it a plain lease, and the worker looks for the item once it does not find it any more."""
    other = second_shard(stage)
    moves: list[bool] = []

    def handle(job: Job) -> None:
        stage.sleep_ms(CLAIMED_MS)
        move(stage, ALICE, other)
        moves.append(True)
        stage.sleep_ms(3 * LEASE_MS)
        assert not job.cancelled

    worker = stage.worker([stage.handler("mail", handle)])
    item = stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    assert stage.settled(worker) == {"completed": 1}
    assert (moves, stage.record(item, shard=other)) == ([True], None)


def test_a_handler_that_begins_after_a_move_gets_its_lease_there(stage: Stage) -> None:
    other = second_shard(stage)
    pay = stage.handler("pay", lambda job, tr: tr.set(("paid",), b"1"), transactional=True)
    worker = stage.worker([pay, stage.handler("mail", lambda job: move(stage, ALICE, other))], slots=1)
    stage.enqueue("mail", tenant=BOB)
    item = stage.enqueue("pay")
    refs = [*stage.lease(["mail"], tenant=BOB), *stage.lease(["pay"])]
    stage.pass_ms(LEASE_MS - 4_000)  # Too little is left for a transaction.
    stage.place(worker, refs)
    assert stage.settled(worker) == {"completed": 2}
    assert stage.record(item, shard=other) is None


def test_items_are_returned_where_their_tenant_lives_now(stage: Stage) -> None:
    other = second_shard(stage)
    item = stage.enqueue("mail")
    refs = stage.lease(["mail"])
    move(stage, ALICE, other)
    stage.do(lambda: return_where_they_live(stage.shard, refs))
    record = stage.record(item, shard=other)
    assert record is not None
    assert not record.lease_id


def test_what_a_dead_worker_held_vests_at_once_where_its_tenant_lives_now(stage: Stage) -> None:
    """Before, it vested when its lease ended: after ten minutes if it had been claimed before the move."""
    other = second_shard(stage)
    item = stage.enqueue("mail")
    refs = stage.lease(["mail"])
    move(stage, ALICE, other)
    stage.do(lambda: reclaim(stage.shards, refs))
    record = stage.record(item, shard=other)
    assert record is not None
    assert record.vesting_us <= stage.now_us
    assert record.died == 1


class OtherEnginesError(Exception):
    """What another engine raises: no error of the engine from which a tenant has moved away."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def refuse(shard: Shard) -> None:
    """Let a shard, of another engine, refuse each commit."""
    refusing = FaultyDatabase(shard.db)
    refusing.errors = (OtherEnginesError,)
    refusing.faults.extend(Fault(applied=False, code=IO_ERROR) for _ in range(99))
    shard.db = refusing


@pytest.mark.parametrize("fails", [False, True])
def test_an_end_survives_the_refusal_of_another_engine_to_which_its_tenant_has_moved(stage: Stage, fails: bool) -> None:
    """Each shard's loops of a worker know what their own engine raises."""
    other = second_shard(stage)
    healthy = other.db

    def handle(job: Job) -> None:
        move(stage, ALICE, other)
        refuse(other)
        if fails:
            raise PermanentError("no")

    worker = stage.worker([stage.handler("mail", handle)])
    item = stage.enqueue("mail")
    stage.place(worker, stage.lease(["mail"]))
    stage.pass_ms(500)
    assert stage.record(item, shard=other) is not None
    other.db = healthy
    assert stage.settled(worker) == {"dead_lettered" if fails else "completed": 1}
    assert stage.record(item, shard=other) is None


def give_back(stage: Stage, refs: list[ItemRef]) -> None:
    return_where_they_live(stage.shard, refs)


def reclaim_all(stage: Stage, refs: list[ItemRef]) -> None:
    reclaim(stage.shards, refs)


def return_all(stage: Stage, refs: list[ItemRef]) -> None:
    return_items(stage.shard, refs)


@pytest.mark.parametrize("change", [give_back, reclaim_all, return_all])
def test_items_are_left_to_their_leases_if_another_engine_refuses(
    stage: Stage, change: Callable[[Stage, list[ItemRef]], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Before, the error ended the loop that returned them: the callers knew the errors of the old shard's engine."""
    other = second_shard(stage)
    items = [stage.enqueue("mail", tenant=tenant) for tenant in (ALICE, BOB)]
    refs = [ref for tenant in (ALICE, BOB) for ref in stage.lease(["mail"], tenant=tenant)]
    move(stage, ALICE, other)
    healthy = other.db
    refuse(other)
    stage.do(lambda: change(stage, refs))
    other.db = healthy
    record = stage.record(items[0], shard=other)
    assert record is not None
    assert record.lease_id
    bobs = stage.record(items[1], tenant=BOB)
    assert bobs is not None
    assert bobs.vesting_us <= stage.now_us
    assert "shard other refuses; the leases of 1 items that were to be returned there will expire" in caplog.text


def test_what_a_dead_worker_held_vests_once_its_tenant_is_unlocked(stage: Stage) -> None:
    item = stage.enqueue("mail")
    refs = stage.lease(["mail"])
    lock(stage, ALICE)
    stage.begin(lambda: reclaim(stage.shards, refs))
    stage.pass_ms(100)
    unlock(stage, ALICE)
    stage.pass_ms(100)
    record = stage.record(item)
    assert record is not None
    assert record.vesting_us <= stage.now_us
