"""The end of a child job is reported to its parent's run: once, by whatever ends it, and it wakes the parent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlead.zones.errors import PayloadDamaged
from fairlead.zones.layout import Tenant
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue import stored_item
from fairlead.zones.queue.items import pack_payload, unpack_payload
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.queue.stored_item import read_payload
from fairlead.zones.records import Parent, encode
from fairlead.zones.reporting.completion_log import EndReason
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.transaction_runner import run
from fairlead.zones.workflow.children import (
    DELIVERY_KIND,
    WAKE_SPACING_US,
    ChildResult,
    ChildState,
    child_result_key,
    child_result_op,
    child_wait_name,
    deliver_report_op,
    report_all,
    report_dead_letters,
    report_of,
)
from fairlead.zones.workflow.run_records import RunHead
from fairlead.zones.workflow.step_log import HeldRun, check_held_op
from fairlead.zones.workflow.undone_end import CANCELLED, end_undone_op
from tests.zones.workflow.runs import begin_run, keys_of_run, move_to_dead_letters, the_dead_letter, the_record
from tests.zones.world import ALICE, BOB, LEASE_US, MS, SECOND, World

NAME = "index"


def parent_of(world: World, held: HeldRun, occurrence: int = 0) -> Parent:
    return Parent(*ALICE, world.zone.location.name, held.item_id, held.run, NAME, occurrence)


def begin_parent(world: World) -> HeldRun:
    return begin_run(world, world.enqueue())


def wait_for_children(world: World, held: HeldRun, *occurrences: int) -> None:
    """Requeue the parent as a suspension does: it waits a minute for its children."""

    def body(tr: Any) -> None:
        record = run_one(check_held_op(tr, held))
        record.lease_id, record.waits_for = b"", tuple(child_wait_name(NAME, each) for each in occurrences)
        stored_item.move(tr, held.location, held.item_id, record, world.now_us + 60 * SECOND)

    world.run(body)


def enqueue_child(world: World, parent: Parent, *, zone: QueueZone | None = None) -> bytes:
    return world.enqueue("index", parent=parent, zone=zone)


def report(world: World, held: HeldRun, occurrence: int = 0) -> ChildResult | None:
    return world.run(lambda tr: run_one(child_result_op(tr, held.location, held.run, NAME, occurrence)))


def complete(world: World, child: bytes) -> None:
    world.complete(child)


def cancel(world: World, child: bytes) -> None:
    world.run(lambda tr: world.zone.complete(tr, child, now_us=world.now_us))


def drop(world: World, child: bytes) -> None:
    holding, reason = [(child, world.lease(child))], EndReason.DROPPED
    world.run(lambda tr: run_one(world.zone.complete_op(tr, holding, now_us=world.now_us, ended=[], end_reason=reason)))


def fail(world: World, child: bytes) -> None:
    moved = the_record(world, child)
    move_to_dead_letters(world, child)
    moved.last_error = the_dead_letter(world, child).error
    world.run(lambda tr: report_dead_letters(tr, world.zone.location, [(child, moved)], now_us=world.now_us))


End = Callable[[World, bytes], None]
WAYS_TO_END = [
    (complete, ChildState.COMPLETED, ""),
    (cancel, ChildState.CANCELLED, ""),
    (drop, ChildState.DROPPED, ""),
    (fail, ChildState.FAILED, "ValueError: no"),
]


# --- In one tenant ---


@pytest.mark.parametrize("end, state, error", WAYS_TO_END)
def test_each_end_of_a_child_is_reported_and_wakes_its_parent(
    world: World, end: End, state: ChildState, error: str
) -> None:
    held = begin_parent(world)
    wait_for_children(world, held, 0)
    child = enqueue_child(world, parent_of(world, held))
    assert report(world, held) is None
    end(world, child)
    assert report(world, held) == ChildResult(state, b"", error, world.now_us)
    assert world.vested_ids() == [held.item_id]
    assert world.pointer_delay_us() <= 0


def test_a_child_that_ends_before_its_parent_waits_is_found(world: World) -> None:
    held = begin_parent(world)
    lease_id = the_record(world, held.item_id).lease_id
    complete(world, enqueue_child(world, parent_of(world, held)))
    assert report(world, held) is not None
    assert the_record(world, held.item_id).lease_id == lease_id
    assert world.vested_ids() == []


def test_a_parent_that_does_not_wait_for_the_child_is_not_woken(world: World) -> None:
    held = begin_parent(world)
    wait_for_children(world, held, 1)
    complete(world, enqueue_child(world, parent_of(world, held)))
    assert report(world, held) is not None
    assert world.vested_ids() == []


def test_the_result_of_a_child_reaches_its_parent_although_its_kind_keeps_none(world: World) -> None:
    held = begin_parent(world)
    child = enqueue_child(world, parent_of(world, held))
    lease_id = world.lease(child)
    run(
        world.db,
        lambda attempt: TenantTransaction(world.shard, ALICE, attempt).complete(child, lease_id=lease_id, result=[7]),
        clock=world.clock,
        random=world.random,
    )
    assert report(world, held) == ChildResult(ChildState.COMPLETED, pack_payload([7]), "", world.now_us)
    assert world.get(world.zone.location.keys.result(child)) is None


def test_the_first_report_on_a_child_counts(world: World) -> None:
    held = begin_parent(world)
    parent = parent_of(world, held)
    first, second = enqueue_child(world, parent), enqueue_child(world, parent)
    cancel(world, first)
    complete(world, second)
    found = report(world, held)
    assert found is not None
    assert found.state == ChildState.CANCELLED


def test_a_child_of_a_run_that_has_ended_reports_nothing(world: World) -> None:
    held = begin_parent(world)
    child = enqueue_child(world, parent_of(world, held))
    world.run(lambda tr: world.zone.complete(tr, held.item_id, now_us=world.now_us, lease_id=held.lease_id))
    complete(world, child)
    assert keys_of_run(world, held.run) == []


def test_a_child_does_not_report_to_a_later_run_of_its_parents_name(world: World) -> None:
    first = begin_run(world, world.enqueue(item_id="checkout-7", run=b"1" * 16))
    child = enqueue_child(world, parent_of(world, first))
    world.run(lambda tr: world.zone.complete(tr, first.item_id, now_us=world.now_us, lease_id=first.lease_id))
    second = begin_run(world, world.enqueue(item_id="checkout-7", run=b"2" * 16))
    complete(world, child)
    assert report(world, first) is None
    assert report(world, second) is None


def test_a_report_to_a_dead_letter_is_kept_for_its_retry(world: World) -> None:
    held = begin_parent(world)
    child = enqueue_child(world, parent_of(world, held))
    move_to_dead_letters(world, held.item_id)
    complete(world, child)
    assert report(world, held) is not None
    assert world.count() == {}


def test_a_child_and_its_parent_that_end_in_one_transaction_leave_nothing(world: World) -> None:
    held = begin_parent(world)
    child = enqueue_child(world, parent_of(world, held))
    holding = [(child, world.lease(child)), (held.item_id, held.lease_id)]
    world.run(lambda tr: run_one(world.zone.complete_op(tr, holding, now_us=world.now_us, ended=[])))
    assert keys_of_run(world, held.run) == []
    assert world.count() == {}


def test_a_report_that_commits_while_its_parent_suspends_is_not_missed(world: World) -> None:
    held = begin_parent(world)
    child = enqueue_child(world, parent_of(world, held))
    found: list[ChildResult | None] = []

    def body(tr: Any) -> None:
        record = run_one(check_held_op(tr, held))
        found.append(run_one(child_result_op(tr, held.location, held.run, NAME, 0)))
        if found == [None]:
            complete(world, child)
        record.waits_for = (child_wait_name(NAME, 0),)
        stored_item.move(tr, held.location, held.item_id, record, world.now_us + 60 * SECOND)

    world.run(body)
    assert len(found) == 2
    assert found[1] is not None


def test_a_child_that_is_poison_reports_that_it_failed(world: World) -> None:
    held = begin_parent(world)
    wait_for_children(world, held, 0)
    child = enqueue_child(world, parent_of(world, held))
    lease_id = world.lease(child)
    holding = [(child, lease_id)]
    world.run(
        lambda tr: run_one(
            world.zone.extend_op(tr, holding, lease_us=LEASE_US, now_us=world.now_us, started=True, ran_isolated=True)
        )
    )
    world.pass_us(LEASE_US)
    (result,) = world.process()
    assert [item_id for item_id, _ in result.dead_letters] == [child]
    found = report(world, held)
    assert found is not None
    assert found.state == ChildState.FAILED
    assert "died or stalled" in found.error
    assert world.vested_ids() == [held.item_id]
    assert world.pointer_delay_us() <= 0


@pytest.mark.parametrize(
    "reason, drop, state, error",
    [
        (CANCELLED, False, ChildState.CANCELLED, ""),
        ("ValueError: no", True, ChildState.DROPPED, "ValueError: no"),
        ("ValueError: no", False, ChildState.FAILED, "ValueError: no"),
    ],
)
def test_a_child_that_was_undone_reports_why(
    world: World, reason: str, drop: bool, state: ChildState, error: str
) -> None:
    held = begin_parent(world)
    child = begin_run(world, enqueue_child(world, parent_of(world, held)))
    head = RunHead(1, 0, undo_reason=reason, undo_error=error)

    def body(tr: Any) -> None:
        record = run_one(check_held_op(tr, child))
        operation = end_undone_op(
            tr, world.zone, child.item_id, record, head, drop=drop, new_run=b"n" * 16, now_us=world.now_us
        )
        run_one(operation)

    world.run(body)
    found = report(world, held)
    assert found is not None
    assert (found.state, found.error) == (state, error)


# --- Several children ---


def test_a_parent_of_many_children_starts_at_most_every_50_ms(world: World) -> None:
    held = begin_parent(world)
    wait_for_children(world, held, 0, 1, 2)
    children = [enqueue_child(world, parent_of(world, held, each)) for each in range(3)]
    world.pass_us(20 * MS)
    complete(world, children[0])
    complete(world, children[1])
    assert world.vested_ids() == [children[2]]
    world.pass_us(WAKE_SPACING_US - 20 * MS)
    assert set(world.vested_ids()) == {children[2], held.item_id}
    again = HeldRun(held.location, held.item_id, world.lease(held.item_id), held.run)
    wait_for_children(world, again, 2)
    complete(world, children[2])
    assert world.vested_ids() == [held.item_id]


def test_a_parent_of_many_children_is_woken_at_once_if_it_has_waited_long(world: World) -> None:
    held = begin_parent(world)
    wait_for_children(world, held, 0, 1)
    child = enqueue_child(world, parent_of(world, held))
    world.pass_us(SECOND)
    complete(world, child)
    assert world.vested_ids() == [held.item_id]


# --- In another tenant ---


def deliveries(world: World) -> list[Any]:
    """Return the payloads of the delivery items in Bob's queue."""
    zone = world.zone_of(BOB)

    def body(tr: Any) -> list[Any]:
        found = zone.peek(tr, items_max=10, now_us=world.now_us)
        return [
            unpack_payload(read_payload(tr, zone.location, each.id, each.record))
            for each in found
            if each.record.kind == DELIVERY_KIND
        ]

    return world.run(body)


def complete_for_bob(world: World, child: bytes) -> None:
    zone = world.zone_of(BOB)
    world.run(lambda tr: zone.complete(tr, child, now_us=world.now_us))


def test_a_child_of_another_tenant_is_reported_by_a_delivery_item_in_its_own_zone(world: World) -> None:
    held = begin_parent(world)
    wait_for_children(world, held, 0)
    child = enqueue_child(world, parent_of(world, held), zone=world.zone_of(BOB))
    complete_for_bob(world, child)
    assert report(world, held) is None
    (payload,) = deliveries(world)
    for _ in range(2):  # A delivery may run twice.
        delivered = report_of(payload)
        assert Tenant(delivered.parent.app, delivered.parent.user) == ALICE
        world.run(lambda tr: run_one(deliver_report_op(tr, world.layout, report_of(payload), now_us=world.now_us)))
    assert report(world, held) == ChildResult(ChildState.CANCELLED, b"", "", world.now_us)
    assert world.vested_ids() == [held.item_id]


def test_a_result_of_any_bytes_survives_its_delivery(world: World) -> None:
    held = begin_parent(world)
    child = enqueue_child(world, parent_of(world, held), zone=world.zone_of(BOB))
    zone, packed = world.zone_of(BOB), pack_payload(bytes(range(256)) * 200)

    def body(tr: Any) -> None:
        children: list[Any] = []
        zone.complete(tr, child, now_us=world.now_us, children=children)
        report_all(tr, [each._replace(result=packed) for each in children], now_us=world.now_us)

    world.run(body)
    (payload,) = deliveries(world)
    assert report_of(payload).child.result == packed


@pytest.mark.parametrize("payload", [None, {}, {"parent": [], "child": []}, {"parent": 1, "child": [9, b"", "", 0]}])
def test_a_payload_that_is_no_report_is_refused(payload: Any) -> None:
    with pytest.raises(PayloadDamaged):
        report_of(payload)


def test_a_child_ends_although_its_parent_cannot_be_read(world: World) -> None:
    held = begin_parent(world)
    child = enqueue_child(world, parent_of(world, held))
    key, value = held.location.keys.item(held.item_id), encode(the_record(world, held.item_id))
    world.set(key, b"\x02" + value[1:])
    complete(world, child)
    assert world.record(child) is None
    assert world.count() == {"mail": 1, DELIVERY_KIND: 1}
    assert world.get(child_result_key(held.location.keys.tenant, held.run, NAME, 0)) is None
