"""Leases: an item is hidden while somebody works on it, and only who holds it may say what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlead.zones.errors import BadArgument, ItemGone, ItemUnreadable, LeaseLost, NotVested, TenantMoved
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.dead_letters import discard, move_to_dead_letters, read, retry_dead_letter
from fairlead.zones.queue.items import Outcome
from fairlead.zones.records import FORMAT, OwnerRecord, encode
from fairlead.zones.settings import TEXT_BYTES_MAX
from tests.zones.world import LEASE_US, MS, SECOND, World

Operation = Callable[[World, bytes, bytes | None], None]


def complete(world: World, item_id: bytes, lease_id: bytes | None) -> None:
    world.run(lambda tr: world.zone.complete(tr, item_id, lease_id=lease_id, now_us=world.now_us))


def extend(world: World, item_id: bytes, lease_id: bytes | None, lease_us: int = LEASE_US) -> None:
    assert lease_id is not None
    world.run(lambda tr: world.zone.extend_lease(tr, item_id, lease_id, lease_us=lease_us, now_us=world.now_us))


def requeue(world: World, item_id: bytes, lease_id: bytes | None, **how: Any) -> None:
    how = {"delay_us": SECOND} | how
    world.run(lambda tr: world.zone.requeue(tr, item_id, lease_id, now_us=world.now_us, **how))


HOLDERS_OPERATIONS = pytest.mark.parametrize("operation", [complete, extend, requeue])


# --- Obtaining a lease ---


def test_a_leased_item_is_hidden_until_its_lease_ends(world: World) -> None:
    item_id = world.enqueue()
    world.lease(item_id)
    assert world.vested_ids() == []
    world.pass_us(LEASE_US - 1)
    assert world.vested_ids() == []
    world.pass_us(1)
    assert world.vested_ids() == [item_id]


def test_the_record_says_who_holds_it_and_for_how_long(world: World) -> None:
    item_id = world.enqueue()
    lease_id = world.lease(item_id)
    record = world.record(item_id)
    assert record is not None
    assert (record.lease_id, record.lease_us, record.vesting_us) == (lease_id, LEASE_US, world.now_us + LEASE_US)


def test_an_item_that_is_leased_or_delayed_cannot_be_leased_and_says_for_how_long(world: World) -> None:
    leased, delayed = world.enqueue(), world.enqueue(delay=0.25)
    world.lease(leased)
    for item_id, vests_in_ms in ((leased, LEASE_US // MS), (delayed, 250)):
        with pytest.raises(NotVested) as refused:
            world.lease(item_id)
        assert refused.value.fields == {"item": item_id.hex(), "vests_in_ms": vests_in_ms}


def test_what_is_not_there_cannot_be_leased(world: World) -> None:
    with pytest.raises(ItemGone):
        world.lease(world.new_id())


@pytest.mark.parametrize("lease_us", [0, -1, 600_000_001])
def test_a_lease_of_an_absurd_length_is_refused(world: World, lease_us: int) -> None:
    item_id = world.enqueue()
    with pytest.raises(BadArgument):
        world.lease(item_id, lease_us=lease_us)
    lease_id = world.lease(item_id)
    with pytest.raises(BadArgument):
        extend(world, item_id, lease_id, lease_us)


# --- Completing ---


def test_a_completed_item_is_gone_and_leaves_nothing_behind(world: World) -> None:
    item_id = world.enqueue()
    complete(world, item_id, world.lease(item_id))
    world.pass_us(LEASE_US)
    assert world.vested_ids() == []
    assert world.of_items() == []


@pytest.mark.parametrize("delay", [0, 60])
def test_without_a_lease_complete_cancels_the_item_for_any_holder(world: World, delay: float) -> None:
    item_id = world.enqueue(delay=delay)
    complete(world, item_id, None)
    assert world.record(item_id) is None
    held = world.enqueue()
    lease_id = world.lease(held)
    complete(world, held, None)
    with pytest.raises(ItemGone):
        complete(world, held, lease_id)


def test_an_expired_lease_may_still_complete_an_item_that_was_not_leased_again(world: World) -> None:
    item_id = world.enqueue()
    lease_id = world.lease(item_id)
    world.pass_us(10 * LEASE_US)
    complete(world, item_id, lease_id)
    assert world.record(item_id) is None


@HOLDERS_OPERATIONS
def test_once_another_leased_the_item_the_first_holder_gets_lease_lost(world: World, operation: Operation) -> None:
    item_id = world.enqueue()
    first = world.lease(item_id)
    world.pass_us(LEASE_US)
    second = world.lease(item_id)
    with pytest.raises(LeaseLost):
        operation(world, item_id, first)
    operation(world, item_id, second)


@HOLDERS_OPERATIONS
def test_a_lease_that_was_returned_is_lost(world: World, operation: Operation) -> None:
    item_id = world.enqueue()
    lease_id = world.lease(item_id)
    requeue(world, item_id, lease_id)
    with pytest.raises(LeaseLost):
        operation(world, item_id, lease_id)


@HOLDERS_OPERATIONS
def test_what_was_completed_is_gone(world: World, operation: Operation) -> None:
    item_id = world.enqueue()
    lease_id = world.lease(item_id)
    complete(world, item_id, lease_id)
    with pytest.raises(ItemGone):
        operation(world, item_id, lease_id)


@HOLDERS_OPERATIONS
def test_a_record_of_a_newer_version_is_kept_and_not_called_gone(world: World, operation: Operation) -> None:
    item_id = world.enqueue()
    key = world.zone.location.keys.item(item_id)
    newer = bytes([FORMAT + 1]) + b"what it means only they know"
    world.set(key, newer)
    with pytest.raises(ItemUnreadable):
        operation(world, item_id, world.new_id())
    with pytest.raises(ItemUnreadable):
        world.lease(item_id)
    assert world.run(lambda tr: tr.get(key).value) == newer
    assert world.count() == {"mail": 1}


def test_one_lost_item_never_fails_the_rest_of_a_batch(world: World) -> None:
    mine, lost, gone = world.enqueue(), world.enqueue(), world.new_id()
    mine_lease = world.lease(mine)
    world.lease(lost)
    held = [(lost, world.new_id()), (gone, world.new_id()), (mine, mine_lease)]
    expected = [Outcome.LEASE_LOST, Outcome.GONE, Outcome.DONE]
    extended = world.run(lambda tr: run_one(world.zone.extend_op(tr, held, lease_us=LEASE_US, now_us=world.now_us)))
    assert extended == expected
    assert world.run(lambda tr: run_one(world.zone.complete_op(tr, held, now_us=world.now_us, ended=[]))) == expected
    assert world.record(mine) is None
    assert world.record(lost) is not None
    assert world.count() == {"mail": 1}


# --- Extending ---


def test_an_extended_lease_ends_later(world: World) -> None:
    item_id = world.enqueue()
    lease_id = world.lease(item_id)
    world.pass_us(LEASE_US // 3)
    extend(world, item_id, lease_id)
    world.pass_us(LEASE_US - 1)
    assert world.vested_ids() == []
    world.pass_us(1)
    assert world.vested_ids() == [item_id]


def test_an_expired_lease_can_be_extended_if_the_item_was_not_leased_again(world: World) -> None:
    item_id = world.enqueue()
    lease_id = world.lease(item_id)
    world.pass_us(5 * LEASE_US)
    extend(world, item_id, lease_id)
    assert world.vested_ids() == []
    record = world.record(item_id)
    assert record is not None
    assert record.expiry_count == 0


def test_a_shorter_extend_shows_the_item_sooner_and_its_pointer_too(world: World) -> None:
    item_id = world.enqueue()
    world.process()
    (record,) = [world.record(item_id)]
    assert record is not None
    assert world.pointer_delay_us() == LEASE_US
    extend(world, item_id, record.lease_id, 2 * SECOND)
    assert world.pointer_delay_us() == 2 * SECOND
    world.pass_us(2 * SECOND)
    assert world.vested_ids() == [item_id]


# --- Requeueing ---


def test_a_requeued_item_vests_again_after_its_delay(world: World) -> None:
    item_id = world.enqueue()
    requeue(world, item_id, world.lease(item_id), delay_us=3 * SECOND)
    world.pass_us(3 * SECOND - 1)
    assert world.vested_ids() == []
    world.pass_us(1)
    assert world.vested_ids() == [item_id]


def test_a_failure_is_noted_and_a_return_is_not(world: World) -> None:
    item_id = world.enqueue()
    requeue(world, item_id, world.lease(item_id), delay_us=0, error_count=2, error="ValueError: no")
    requeue(world, item_id, world.lease(item_id), delay_us=0)
    record = world.record(item_id)
    assert record is not None
    assert (record.error_count, record.last_error, record.lease_id) == (2, "ValueError: no", b"")


def fail(world: World, item_id: bytes, traceback: str = "line 3, in send") -> None:
    requeue(
        world, item_id, world.lease(item_id), delay_us=0, error_count=1, error="ValueError: no", traceback=traceback
    )


def test_the_traceback_of_the_last_failure_is_kept_until_the_next_and_by_a_return(world: World) -> None:
    item_id = world.enqueue()
    key = world.zone.location.keys.traceback(item_id)
    fail(world, item_id, "line 3, in send")
    fail(world, item_id, "line 4, in send")
    requeue(world, item_id, world.lease(item_id), delay_us=0)
    assert world.get(key) == b"line 4, in send"
    fail(world, item_id, "")
    assert world.get(key) is None, "the last failure has none"


@pytest.mark.parametrize(
    "end", ["complete", "cancel", "dead_letter", "dead_letter and retry", "dead_letter and discard"]
)
def test_a_traceback_goes_with_its_item(world: World, end: str) -> None:
    """The dead letters record has one of its own."""
    item_id = world.enqueue(payload=bytes(20_000))
    fail(world, item_id)
    location = world.zone.location
    if end in ("complete", "cancel"):
        complete(world, item_id, world.lease(item_id) if end == "complete" else None)
    else:
        record = world.record(item_id)
        assert record is not None
        world.run(
            lambda tr: move_to_dead_letters(
                tr, location, item_id, record, reason="error", error="", traceback="", now_us=world.now_us
            )
        )
    assert world.get(location.keys.traceback(item_id)) is None
    if end.startswith("dead_letter and"):

        def decide(tr: Any) -> None:
            dead_letter = read(tr, location, item_id)
            assert dead_letter is not None
            discard(
                tr, location, item_id, dead_letter, now_us=world.now_us
            ) if end == "dead_letter and discard" else retry_dead_letter(
                tr, location, item_id, dead_letter, now_us=world.now_us
            )

        world.run(decide)
        assert world.get(location.keys.traceback(item_id)) is None


@pytest.mark.parametrize("error", ["x" * 200_000, "\U0001f355" * 2_001, "no file \udc80"], ids=["long", "wide", "odd"])
def test_any_error_text_can_be_stored(world: World, error: str) -> None:
    """An item whose failure could not be noted would expiry instead, and be taken for one that kills its workers."""
    item_id = world.enqueue()
    requeue(world, item_id, world.lease(item_id), error_count=1, error=error, traceback=error)
    record = world.record(item_id)
    assert record is not None
    assert 0 < len(record.last_error.encode()) <= TEXT_BYTES_MAX + 100
    assert 0 < len(world.get(world.zone.location.keys.traceback(item_id)) or b"") <= TEXT_BYTES_MAX + 100


def test_requeueing_wakes_the_pointer_that_sleeps_until_the_end_of_the_lease(world: World) -> None:
    item_id = world.enqueue()
    world.process()
    record = world.record(item_id)
    assert record is not None
    assert world.pointer_delay_us() == LEASE_US
    requeue(world, item_id, record.lease_id, delay_us=SECOND)
    assert world.pointer_delay_us() == SECOND


# --- A tenant that is not here ---


@pytest.mark.parametrize(
    "operation",
    [
        lambda world, held: world.enqueue(),
        lambda world, held: world.dequeue(),
        lambda world, held: world.lease(held[0]),
        lambda world, held: complete(world, *held),
        lambda world, held: extend(world, *held),
        lambda world, held: requeue(world, *held),
        lambda world, held: world.process(),
    ],
    ids=["enqueue", "dequeue", "obtain_lease", "complete", "extend", "requeue", "visit"],
)
def test_every_operation_on_a_tenant_that_moved_says_so_and_changes_nothing(
    world: World, operation: Callable[[World, tuple[bytes, bytes]], object]
) -> None:
    item_id = world.enqueue()
    lease_id = world.lease(item_id)
    world.enqueue()
    world.set(world.zone.location.keys.tenant.owner, encode(OwnerRecord(2, b"another shard's")))
    before = world.everything()
    with pytest.raises(TenantMoved, match="lives on another shard"):
        operation(world, (item_id, lease_id))
    assert world.everything() == before


def test_a_tenant_whose_ownership_names_this_shard_is_served(world: World) -> None:
    world.set(world.zone.location.keys.tenant.owner, encode(OwnerRecord(2, world.layout.shard_id)))
    world.enqueue()
    assert len(world.dequeue()) == 1
