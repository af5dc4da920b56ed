"""Commits of unknown result: what was written or enqueued is applied once."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

import pytest

from fairlead.zones.engines import Database
from fairlead.zones.engines.api.errors import (
    CLUSTER_VERSION_CHANGED,
    COMMIT_UNKNOWN_RESULT,
    NOT_COMMITTED,
    TRANSACTION_CANCELLED,
    TRANSACTION_TIMED_OUT,
    ResultUnknown,
    error_code,
)
from fairlead.zones.keyspace import RECEIPT, ROOT, ROOT_RANGE, pack_int, range_end
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.items import Enqueued, EnqueueStatus, new_item
from fairlead.zones.shard import Shard, open_shard
from fairlead.zones.tenant_transaction import ApplicationTransaction, TenantTransaction
from fairlead.zones.transaction_runner import (
    RECEIPT_BUCKETS,
    RECEIPT_LIFE_US,
    SEED_BYTES,
    Attempt,
    clear_receipts,
    new_seed,
    receipt_key,
)
from tests.clocks import ManualClock
from tests.zones.faults import Fault, FaultyDatabase, FaultyTransaction
from tests.zones.world import ALICE, NOBODYS, SECOND, World

RECEIPTS = (ROOT + pack_int(RECEIPT), range_end(ROOT + pack_int(RECEIPT)))
WRITES: dict[str, Callable[[ApplicationTransaction], object]] = {
    "set": lambda tr: tr.set(("key",), b""),
    "clear": lambda tr: tr.clear(("key",)),
    "clear_prefix": lambda tr: tr.clear_prefix(("key",)),
    "add": lambda tr: tr.add(("key",), 1),
    "enqueue": lambda tr: tr.enqueue("mail"),
    "raw": lambda tr: tr.raw.set(NOBODYS, b""),
}
T = TypeVar("T")
APPLIED = pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])


@pytest.fixture
def faulty(db: Database) -> FaultyDatabase:
    return FaultyDatabase(db)


@pytest.fixture
def world(faulty: FaultyDatabase, clock: ManualClock) -> World:
    return World(faulty, clock)


def enqueue(world: World, payload: Any = None) -> Enqueued:
    """Enqueue as an application does."""
    return world.shard.transact(lambda attempt: enqueue_in(world.shard, attempt, payload))


def enqueue_in(shard: Shard, attempt: Attempt, payload: Any = None) -> Enqueued:
    return TenantTransaction(shard, ALICE, attempt).enqueue("mail", payload)


def receipts(world: World) -> int:
    return len(world.stored(*RECEIPTS))


def test_the_ids_of_a_call_are_new_and_the_same_in_every_attempt(world: World, faulty: FaultyDatabase) -> None:
    drawn: list[list[bytes]] = []

    def body(attempt: Attempt) -> None:
        drawn.append([attempt.new_id() for _ in range(3)])
        attempt.tr.set(NOBODYS, b"")

    faulty.faults += [Fault(applied=False, code=NOT_COMMITTED), Fault(applied=False)]
    world.shard.transact(body)
    assert drawn[0] == drawn[1] == drawn[2]
    world.shard.transact(body)
    assert len(set(drawn[0] + drawn[3])) == 6
    assert {len(item_id) for item_id in drawn[0]} == {16}


def test_what_is_enqueued_later_lies_behind_what_was_enqueued_before(world: World) -> None:
    """So that items that run together lie together."""
    ids = []
    for _ in range(20):
        ids.append(enqueue(world).item_id)
        world.pass_us(20_000)
    assert ids == sorted(ids)


def test_calls_at_one_instant_draw_different_ids(world: World) -> None:
    assert len({enqueue(world).item_id for _ in range(100)}) == 100


def test_an_attempt_uses_one_time_throughout_and_the_next_attempt_a_later_one(
    world: World, faulty: FaultyDatabase
) -> None:
    times: list[tuple[int, int]] = []

    def body(attempt: Attempt) -> None:
        before = attempt.now_us
        world.pass_us(SECOND)
        times.append((before, attempt.now_us))
        attempt.tr.set(NOBODYS, b"")

    faulty.faults += [Fault(applied=False, code=NOT_COMMITTED)]
    world.shard.transact(body)
    assert all(before == after for before, after in times)
    assert times[1][0] >= times[0][0] + SECOND


@APPLIED
def test_an_enqueue_of_unknown_result_is_there_once(world: World, faulty: FaultyDatabase, applied: bool) -> None:
    faulty.faults += [Fault(applied=applied)]
    item_id, status = enqueue(world)
    assert status is EnqueueStatus.ENQUEUED
    assert world.vested_ids() == [item_id]
    assert world.count() == {"mail": 1}


@APPLIED
def test_an_item_that_ran_and_was_completed_before_the_retry_does_not_come_again(
    world: World, faulty: FaultyDatabase, applied: bool
) -> None:
    """It would run twice: its id is free again, and only the receipt proves that it was enqueued."""
    ran: list[bytes] = []

    def run_all() -> None:
        held = [(item.id, item.record.lease_id) for item in world.dequeue()]
        world.run(lambda tr: run_one(world.zone.complete_op(tr, held, now_us=world.now_us, ended=[])))
        ran.extend(item_id for item_id, _ in held)

    faulty.faults += [Fault(applied=applied, then=run_all)]
    item_id, _ = enqueue(world)
    run_all()
    assert ran == [item_id]
    assert world.count() == {}


def test_without_the_receipt_it_would_come_again(world: World, faulty: FaultyDatabase) -> None:
    """The story above, on a transaction of the user's own that keeps no receipt."""
    item, item_id = new_item("mail"), world.new_id()

    def complete() -> None:
        world.run(lambda tr: world.zone.complete(tr, item_id, now_us=world.now_us))

    faulty.faults += [Fault(applied=True, then=complete)]
    world.run(lambda tr: world.zone.enqueue(tr, item, item_id=item_id, now_us=world.now_us))
    assert world.vested_ids() == [item_id]


@APPLIED
@pytest.mark.parametrize("code", [TRANSACTION_TIMED_OUT, TRANSACTION_CANCELLED, CLUSTER_VERSION_CHANGED])
def test_a_write_whose_commit_timed_out_succeeds_if_it_was_applied_and_fails_otherwise(
    world: World, faulty: FaultyDatabase, code: int, applied: bool
) -> None:
    faulty.faults += [Fault(applied=applied, code=code)]
    if applied:
        transact(world, lambda tr: tr.add(("balance",), 1))
    else:
        with pytest.raises(world.db.errors) as raised:
            transact(world, lambda tr: tr.add(("balance",), 1))
        assert error_code(raised.value) == code
    assert (transact(world, lambda tr: tr.get(("balance",))) is not None) == applied


@APPLIED
@pytest.mark.parametrize("code", [TRANSACTION_TIMED_OUT, TRANSACTION_CANCELLED, CLUSTER_VERSION_CHANGED])
def test_a_commit_that_timed_out_succeeds_if_it_was_applied_and_fails_otherwise(
    world: World, faulty: FaultyDatabase, code: int, applied: bool
) -> None:
    """It may still be on its way, so it is not tried again."""
    faulty.faults += [Fault(applied=applied, code=code)]
    if applied:
        assert enqueue(world).status is EnqueueStatus.ENQUEUED
    else:
        with pytest.raises(world.db.errors) as raised:
            enqueue(world)
        assert error_code(raised.value) == code
    assert len(world.vested_ids()) == applied


def test_a_commit_that_lands_while_its_retry_is_under_way_is_not_repeated(world: World, faulty: FaultyDatabase) -> None:
    """Its receipt is there before the retry commits; its item has been run and completed already."""
    expires_us = world.now_us + RECEIPT_LIFE_US
    ids: list[bytes] = []

    def body(attempt: Attempt) -> Enqueued:
        enqueued = enqueue_in(world.shard, attempt)
        ids.append(enqueued.item_id)
        if len(ids) == 2:
            world.set(receipt_key(enqueued.item_id[:SEED_BYTES], expires_us), b"")
        return enqueued

    faulty.faults += [Fault(applied=False)]
    assert world.shard.transact(body).item_id == ids[0]
    assert len(ids) == 2
    assert world.vested_ids() == []


def test_several_unknown_results_in_a_row_are_no_different(world: World, faulty: FaultyDatabase) -> None:
    faulty.faults += [Fault(applied=False), Fault(applied=False, code=NOT_COMMITTED), Fault(applied=True)]
    enqueue(world)
    assert world.count() == {"mail": 1}


def test_a_result_that_stays_unknown_is_reported_when_the_retries_are_used_up(
    world: World, faulty: FaultyDatabase
) -> None:
    faulty.faults += [Fault(applied=False)] * 3
    with pytest.raises(world.db.errors) as raised:
        world.shard.transact(lambda attempt: enqueue_in(world.shard, attempt), retries_max=2)
    assert error_code(raised.value) == COMMIT_UNKNOWN_RESULT


def test_a_body_that_can_check_whether_it_was_applied_is_asked(world: World, faulty: FaultyDatabase) -> None:
    """A manager that dequeued finds its lease id on the items."""
    item_id = world.enqueue()
    lease_id = world.new_id()
    runs = 0

    def body(attempt: Attempt) -> bytes:
        nonlocal runs
        runs += 1
        leased = world.zone.obtain_lease(attempt.tr, item_id, lease_id=lease_id, lease_us=SECOND, now_us=attempt.now_us)
        return leased.record.lease_id

    def applied(tr: Any) -> bool:
        return lease_id in tr.get(world.zone.location.keys.item(item_id)).value

    faulty.faults += [Fault(applied=True)]
    assert world.shard.transact(body, applied=applied) == lease_id
    assert runs == 1


def test_a_transaction_that_enqueues_leaves_a_receipt_and_one_of_the_products_own_does_not(world: World) -> None:
    world.shard.transact(lambda attempt: attempt.tr.set(NOBODYS, b""))
    assert receipts(world) == 0
    enqueue(world)
    assert receipts(world) == 1


def transact(world: World, body: Callable[[ApplicationTransaction], T]) -> T:
    """Run a user's body, as `app.tenant(...).transact` does."""
    return world.shard.transact(lambda attempt: body(ApplicationTransaction(world.shard, ALICE, attempt)))


@pytest.mark.parametrize("name, write", WRITES.items(), ids=WRITES)
def test_each_write_of_a_users_transaction_leaves_a_receipt(
    world: World, name: str, write: Callable[[ApplicationTransaction], object]
) -> None:
    transact(world, write)
    assert receipts(world) == 1


def version_requests(world: World, monkeypatch: pytest.MonkeyPatch, body: Callable[[ApplicationTransaction], T]) -> int:
    """Run a user's body and return how often a read version was asked for besides the reads."""
    asked = 0
    getattr_of = FaultyTransaction.__getattr__

    def noting(self: FaultyTransaction, name: str) -> Any:
        nonlocal asked
        asked += name == "get_read_version"
        return getattr_of(self, name)

    monkeypatch.setattr(FaultyTransaction, "__getattr__", noting)
    transact(world, body)
    return asked


def test_a_transaction_that_only_writes_has_read_the_owner_and_asks_for_no_version(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a read version a late commit would not conflict with the receipt of the attempt after it."""
    assert version_requests(world, monkeypatch, lambda tr: tr.add(("key",), 1)) == 0


def test_an_enqueue_has_read_and_does_not_ask_for_a_read_version_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert version_requests(world, monkeypatch, lambda tr: tr.enqueue("mail")) == 0


def test_an_enqueue_after_raw_writes_asks_for_a_read_version(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read of what the transaction has cleared itself is answered without the store, and without a version."""

    def clear_all_and_enqueue(tr: ApplicationTransaction) -> None:
        tr.raw.clear_range(*ROOT_RANGE)
        tr.enqueue("mail")

    assert version_requests(world, monkeypatch, clear_all_and_enqueue) == 1


def test_a_users_transaction_that_only_reads_leaves_no_receipt(world: World) -> None:
    transact(world, lambda tr: (tr.get(("key",)), list(tr.get_range()), tr.zone()))
    assert receipts(world) == 0


@APPLIED
def test_a_counter_is_raised_once(world: World, faulty: FaultyDatabase, applied: bool) -> None:
    """Before, a transaction that enqueued nothing was applied twice."""
    faulty.faults += [Fault(applied=applied)]
    transact(world, lambda tr: tr.add(("balance",), 100))
    assert transact(world, lambda tr: tr.get(("balance",))) == (100).to_bytes(8, "little")


@APPLIED
def test_what_is_written_through_raw_is_applied_once(world: World, faulty: FaultyDatabase, applied: bool) -> None:
    faulty.faults += [Fault(applied=applied)]
    transact(world, lambda tr: tr.raw.add(NOBODYS, (1).to_bytes(8, "little")))
    assert world.run(lambda tr: tr.get(NOBODYS).value) == (1).to_bytes(8, "little")


@APPLIED
def test_a_write_does_not_undo_what_others_have_written_since(
    world: World, faulty: FaultyDatabase, applied: bool
) -> None:
    """A blind write has nothing to conflict with but its receipt."""

    def overwrite() -> None:
        transact(world, lambda tr: tr.set(("price",), b"the latest"))

    faulty.faults += [Fault(applied=applied, then=overwrite)]
    transact(world, lambda tr: tr.set(("price",), b"the first"))
    told_after = b"the latest" if applied else b"the first"
    assert transact(world, lambda tr: tr.get(("price",))) == told_after


@APPLIED
def test_a_versionstamp_is_given_once(world: World, faulty: FaultyDatabase, applied: bool) -> None:
    """The second attempt would give another one, and the place in the order that others have seen would be gone."""
    seen: list[bytes | None] = []

    def stamp(tr: ApplicationTransaction) -> None:
        tr.raw.set_versionstamped_value(NOBODYS, bytes(14))

    def look() -> None:
        seen.append(world.run(lambda tr: tr.get(NOBODYS).value))

    faulty.faults += [Fault(applied=applied, then=look)]
    transact(world, stamp)
    look()
    assert seen == ([seen[0]] * 2 if applied else [None, seen[1]])


@APPLIED
def test_a_body_that_wrote_and_would_not_write_again_returns_what_was_applied(
    world: World, faulty: FaultyDatabase, applied: bool
) -> None:
    tries = iter(["first", "second"])

    def body(tr: ApplicationTransaction) -> str:
        this = next(tries)
        if this == "first":
            tr.add(("balance",), 1)
        return this

    faulty.faults += [Fault(applied=applied)]
    assert transact(world, body) == ("first" if applied else "second")
    assert (transact(world, lambda tr: tr.get(("balance",))) is not None) == applied


def test_engines_that_always_know_their_results_keep_no_receipts(db: Database, clock: ManualClock) -> None:
    if db.results_can_be_unknown:
        pytest.skip("this engine's results can be unknown")
    world = World(db, clock)
    enqueue(world)
    assert receipts(world) == 0


def test_where_results_are_always_known_one_that_is_not_is_reported_and_the_body_does_not_run_again(
    world: World, faulty: FaultyDatabase
) -> None:
    """Before, a body that may have been applied was applied again, on an embedded store with a failing disk."""
    faulty.results_can_be_unknown = False
    faulty.faults += [Fault(applied=True)]
    with pytest.raises(ResultUnknown):
        transact(world, lambda tr: tr.add(("balance",), 1))
    assert transact(world, lambda tr: tr.get(("balance",))) == (1).to_bytes(8, "little")


def test_where_results_are_always_known_what_may_be_done_twice_is_tried_again(
    world: World, faulty: FaultyDatabase
) -> None:
    faulty.results_can_be_unknown = False
    faulty.faults += [Fault(applied=False)]
    world.shard.transact(lambda attempt: attempt.tr.set(NOBODYS, b"there"))
    assert world.run(lambda tr: tr.get(NOBODYS).value) == b"there"


def clear_all_receipts(world: World) -> None:
    """Do what housekeeping does, bucket by bucket."""
    for bucket in range(RECEIPT_BUCKETS):
        world.run(lambda tr, bucket=bucket: clear_receipts(tr, bucket, now_us=world.now_us))  # type: ignore[misc]


def test_receipts_of_the_same_moment_do_not_lie_in_one_list(world: World) -> None:
    """All commits would write at the end of it, which is one server of a cluster."""
    seeds = [new_seed(world.now_us, world.random) for _ in range(400)]
    keys = sorted(receipt_key(seed, world.now_us) for seed in seeds)
    heads = {key[: len(RECEIPTS[0]) + 2] for key in keys}
    assert len(heads) == RECEIPT_BUCKETS


def test_receipts_are_cleared_once_no_client_can_ask_for_them(world: World) -> None:
    for _ in range(3):
        enqueue(world)
    world.pass_us(RECEIPT_LIFE_US)
    enqueue(world)
    before = receipts(world)
    clear_all_receipts(world)
    assert receipts(world) == before, "not a microsecond early"
    world.pass_us(1)
    clear_all_receipts(world)
    assert receipts(world) == 1


@APPLIED
def test_a_shard_whose_creation_had_an_unknown_result_is_made_once(
    faulty: FaultyDatabase, clock: ManualClock, applied: bool
) -> None:
    faulty.faults += [Fault(applied=applied)]
    ids = {open_shard("s", faulty, clock=clock, random=Random(seed)).layout.shard_id for seed in range(3)}
    assert len(ids) == 1


@APPLIED
def test_a_settlement_of_unknown_result_counts_once(world: World, faulty: FaultyDatabase, applied: bool) -> None:
    """The counts are not idempotent; what makes them so is that the record was read with conflict."""
    first, second = world.enqueue(), world.enqueue()
    faulty.faults += [Fault(applied=applied)]
    world.shard.transact(
        lambda attempt: run_one(world.zone.complete_op(attempt.tr, [(first, None)], now_us=attempt.now_us, ended=[]))
    )
    assert world.vested_ids() == [second]
    assert world.count() == {"mail": 1}
