"""Enqueue: which keys it writes, in which order, and what it returns for an id that is taken."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.zones.errors import BadArgument
from fairlead.zones.layout import item_id_of, local_tenant
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.dead_letters import discard, move_to_dead_letters, read, retry_dead_letter
from fairlead.zones.queue.items import EnqueueStatus, Item, new_item, unpack_payload
from fairlead.zones.queue.stored_item import read_payload
from fairlead.zones.reporting import completion_log
from tests.zones.world import ALICE, ANY, BOB, MS, SECOND, World

ENQUEUED, PRESENT = EnqueueStatus.ENQUEUED, EnqueueStatus.PRESENT
DEAD_LETTER, COMPLETED = EnqueueStatus.DEAD_LETTER, EnqueueStatus.COMPLETED


def peeked(world: World, **how: Any) -> list[Item]:
    return world.run(lambda tr: world.zone.peek(tr, items_max=100, now_us=world.now_us, **how))


def cancel(world: World, item_id: bytes) -> None:
    world.run(lambda tr: world.zone.complete(tr, item_id, now_us=world.now_us))


def make_dead_letter(world: World, item_id: bytes) -> None:
    record = world.record(item_id)
    assert record is not None
    world.run(
        lambda tr: move_to_dead_letters(
            tr, world.zone.location, item_id, record, reason="error", error="no", traceback="", now_us=world.now_us
        )
    )


def test_peek_shows_an_enqueued_item_with_all_its_fields(world: World) -> None:
    item_id = world.enqueue("mail", {"to": "bob"}, priority=7, trace={"traceparent": "00-1-2-01"})
    ((found_id, record),) = peeked(world)
    assert found_id == item_id
    assert unpack_payload(record.payload) == {"to": "bob"}
    assert (record.kind, record.priority, record.trace) == ("mail", 7, {"traceparent": "00-1-2-01"})
    assert record.vesting_us == record.enqueued_us == world.now_us
    assert (record.lease_id, record.error_count, record.expiry_count) == (b"", 0, 0)


def test_items_come_by_priority_and_then_by_vesting_time(world: World) -> None:
    late = world.enqueue(priority=5)
    world.pass_us(1)
    later = world.enqueue(priority=5)
    last = world.enqueue(priority=255)
    middle = world.enqueue()
    first = world.enqueue(priority=0)
    assert world.vested_ids() == [first, late, later, middle, last]


def test_a_delayed_item_is_hidden_until_the_very_microsecond_that_it_vests(world: World) -> None:
    item_id = world.enqueue(delay=1.5)
    world.pass_us(1_500 * MS - 1)
    assert world.vested_ids() == []
    world.pass_us(1)
    assert world.vested_ids() == [item_id]


def test_delayed_items_of_one_priority_do_not_hide_vested_ones_of_the_next(world: World) -> None:
    """The reader seeks from priority to priority."""
    world.enqueue(priority=0, delay=1)
    high = world.enqueue(priority=1)
    world.enqueue(priority=1, delay=1)
    world.enqueue(priority=40, delay=1)
    low = world.enqueue(priority=255)
    world.enqueue(priority=255, delay=1)
    assert world.vested_ids() == [high, low]


def test_peek_shows_what_a_predicate_picks(world: World) -> None:
    world.enqueue("mail")
    wanted = world.enqueue("index")
    world.enqueue("mail")
    assert [item.id for item in peeked(world, predicate=lambda record: record.kind == "index")] == [wanted]


def test_peek_shows_no_more_than_it_was_asked_for(world: World) -> None:
    ids = [world.enqueue() for _ in range(4)]
    shown = world.run(lambda tr: world.zone.peek_ids(tr, items_max=3, now_us=world.now_us))
    assert len(shown) == 3
    assert set(shown) < set(ids)


@pytest.mark.parametrize("items_max", [0, -1, 100_001])
def test_peek_of_an_absurd_number_is_refused(world: World, items_max: int) -> None:
    with pytest.raises(BadArgument):
        world.run(lambda tr: world.zone.peek(tr, items_max=items_max, now_us=world.now_us))


def test_min_vesting_time_is_that_of_the_earliest_item_of_any_priority(world: World) -> None:
    assert world.run(world.zone.min_vesting_us) is None
    world.enqueue(priority=0, delay=3)
    world.enqueue(priority=255, delay=1)
    world.enqueue(priority=9, delay=2)
    assert world.run(world.zone.min_vesting_us) == world.now_us + SECOND


def test_a_zone_is_empty_until_something_is_in_it_delayed_or_not(world: World) -> None:
    assert world.run(world.zone.is_empty)
    item_id = world.enqueue(delay=60)
    assert not world.run(world.zone.is_empty)
    cancel(world, item_id)
    assert world.run(world.zone.is_empty)


def test_tenants_and_zones_do_not_see_each_others_items(world: World) -> None:
    zones = [world.zone_of(ALICE), world.zone_of(ALICE, "other"), world.zone_of(BOB), world.zone_of(local_tenant("x"))]
    ids = [world.enqueue(zone=zone) for zone in zones]
    for zone, item_id in zip(zones, ids, strict=True):
        assert [leased.id for leased in world.dequeue(zone=zone)] == [item_id]


# --- Ids ---


def test_a_second_enqueue_of_a_present_id_changes_nothing_and_reports_it(world: World) -> None:
    first = world.try_enqueue(payload="first", item_id="invoice-7")
    assert first == (item_id_of("invoice-7"), ENQUEUED)
    assert world.try_enqueue(payload="second", item_id="invoice-7", priority=0) == (first.item_id, PRESENT)
    ((_, record),) = peeked(world)
    assert (unpack_payload(record.payload), record.priority) == ("first", 100)
    assert record.given_id == "invoice-7"
    assert world.count() == {"mail": 1}


def test_an_id_that_is_leased_or_delayed_is_present(world: World) -> None:
    world.enqueue(item_id="leased")
    world.dequeue()
    world.enqueue(item_id="delayed", delay=1)
    assert world.try_enqueue(item_id="leased").status is PRESENT
    assert world.try_enqueue(item_id="delayed").status is PRESENT


def test_the_id_of_a_dead_letter_stays_taken_until_it_is_discarded(world: World) -> None:
    item_id = world.enqueue(item_id="invoice-7")
    make_dead_letter(world, item_id)
    assert world.try_enqueue(item_id="invoice-7").status is DEAD_LETTER
    dead_letter = world.run(lambda tr: read(tr, world.zone.location, item_id))
    assert dead_letter is not None
    world.run(lambda tr: discard(tr, world.zone.location, item_id, dead_letter, now_us=world.now_us))
    assert world.try_enqueue(item_id="invoice-7").status is ENQUEUED


def test_the_id_of_a_retried_dead_letter_is_present(world: World) -> None:
    item_id = world.enqueue(item_id="invoice-7")
    make_dead_letter(world, item_id)
    dead_letter = world.run(lambda tr: read(tr, world.zone.location, item_id))
    assert dead_letter is not None
    world.run(lambda tr: retry_dead_letter(tr, world.zone.location, item_id, dead_letter, now_us=world.now_us))
    assert world.try_enqueue(item_id="invoice-7").status is PRESENT


def test_a_completed_id_is_free_again(world: World) -> None:
    world.complete(world.enqueue(item_id="invoice-7"))
    assert world.try_enqueue(item_id="invoice-7").status is ENQUEUED


def test_a_completed_id_is_retained_for_as_long_as_its_enqueuer_asked(world: World) -> None:
    item_id = world.enqueue(item_id="invoice-7", unique_for=60)
    world.pass_us(3 * SECOND)
    world.complete(item_id)
    world.pass_us(60 * SECOND - 1)
    assert world.try_enqueue(item_id="invoice-7").status is COMPLETED
    assert world.count() == {}
    world.pass_us(1)
    assert world.try_enqueue(item_id="invoice-7").status is ENQUEUED


def test_the_id_of_an_item_that_was_cancelled_is_free_at_once(world: World) -> None:
    """Cancel it and enqueue it again: this is how an item is rescheduled."""
    item_id = world.enqueue(item_id="remind-9", unique_for=60, delay=3600)
    cancel(world, item_id)
    assert world.of_items() == []
    assert world.try_enqueue(item_id="remind-9").status is ENQUEUED


def test_the_id_of_an_item_that_was_cancelled_while_it_ran_is_free_at_once(world: World) -> None:
    item_id = world.enqueue(item_id="remind-9", unique_for=60)
    world.lease(item_id)
    cancel(world, item_id)
    assert world.try_enqueue(item_id="remind-9").status is ENQUEUED


def test_the_id_of_an_item_that_was_dropped_is_free_at_once(world: World) -> None:
    """It has failed for good, and its kind keeps no dead letters."""
    item_id = world.enqueue(item_id="remind-9", unique_for=60)
    held = [(item_id, world.lease(item_id))]
    world.run(
        lambda tr: run_one(
            world.zone.complete_op(tr, held, now_us=world.now_us, ended=[], end_reason=completion_log.EndReason.DROPPED)
        )
    )
    assert world.try_enqueue(item_id="remind-9").status is ENQUEUED


def test_retained_ids_expire_and_leave_nothing_behind(world: World) -> None:
    for number in range(3):
        world.complete(world.enqueue(item_id=f"invoice-{number}", unique_for=1))
    world.pass_us(SECOND)
    assert world.expire(2) == 0
    world.pass_us(1)
    assert len(world.of_items()) == 3
    assert [world.expire(2) for _ in range(3)] == [2, 1, 0]
    assert world.of_items() == []


def test_an_id_that_was_completed_again_does_not_expire_early(world: World) -> None:
    world.complete(world.enqueue(item_id="invoice-7", unique_for=1))
    world.pass_us(2 * SECOND)
    world.complete(world.enqueue(item_id="invoice-7", unique_for=60))
    assert world.expire() == 1
    assert world.try_enqueue(item_id="invoice-7").status is COMPLETED


# --- Batches ---


def test_a_batch_returns_a_result_for_each_item(world: World) -> None:
    present, dead_letter = world.enqueue(item_id="present"), world.enqueue(item_id="dead letter")
    make_dead_letter(world, dead_letter)
    items = [new_item("mail", item_id=name) for name in ("present", "new", "dead letter")]
    batch = [(item_id_of(item.given_id or ""), item) for item in items]
    results = world.run(lambda tr: run_one(world.zone.enqueue_op(tr, batch, now_us=world.now_us)))
    assert [status for _, status in results] == [PRESENT, ENQUEUED, DEAD_LETTER]
    assert world.vested_ids() == sorted([present, item_id_of("new")])
    assert world.count() == {"mail": 2}


def test_an_id_that_comes_twice_in_one_batch_is_enqueued_once(world: World) -> None:
    """Both reads are sent before either is written; without care the count would say two."""
    items = [new_item("mail", number, item_id="invoice-7") for number in range(2)]
    batch = [(item_id_of("invoice-7"), item) for item in items]
    results = world.run(lambda tr: run_one(world.zone.enqueue_op(tr, batch, now_us=world.now_us)))
    assert [status for _, status in results] == [ENQUEUED, PRESENT]
    assert world.count() == {"mail": 1}
    ((_, record),) = peeked(world)
    assert unpack_payload(record.payload) == 0


def test_a_batch_is_counted_by_kind(world: World) -> None:
    world.enqueue_all([new_item("mail"), new_item("index"), new_item("mail", delay=0.009)])
    assert world.count() == {"mail": 2, "index": 1}


def test_two_enqueues_in_one_transaction_see_each_other(world: World) -> None:
    item = new_item("mail", item_id="invoice-7")

    def twice(tr: Any) -> list[EnqueueStatus]:
        item_id = item_id_of("invoice-7")
        return [world.zone.enqueue(tr, item, item_id=item_id, now_us=world.now_us).status for _ in range(2)]

    assert world.run(twice) == [ENQUEUED, PRESENT]
    assert world.count() == {"mail": 1}
    assert len(world.dequeue(kinds=ANY)) == 1


def test_an_id_that_is_not_sixteen_bytes_is_refused(world: World) -> None:
    with pytest.raises(BadArgument):
        world.run(lambda tr: world.zone.enqueue(tr, new_item("mail"), item_id=b"short", now_us=world.now_us))


# --- Long payloads ---


@pytest.mark.parametrize("length", [8_000, 8_192, 8_193, 90_000, 90_001, 500_000, 999_990])
def test_a_long_payload_is_kept_in_pieces_and_read_back_whole(world: World, length: int) -> None:
    payload = bytes(index % 251 for index in range(length))
    item_id = world.enqueue(payload=payload)
    (leased,) = world.dequeue()
    packed = world.run(lambda tr: read_payload(tr, world.zone.location, item_id, leased.record))
    assert unpack_payload(packed) == payload
    cancel(world, item_id)
    assert world.of_items() == []


def test_a_lease_does_not_rewrite_a_long_payload(world: World) -> None:
    world.enqueue(payload=bytes(100_000))
    tr = world.db.create_transaction()
    lease_id = world.new_id()
    assert tr.get(b"").value is None
    before = tr.get_approximate_size().wait()
    world.zone.obtain_lease(tr, world.vested_ids()[0], lease_id=lease_id, lease_us=SECOND, now_us=world.now_us)
    assert tr.get_approximate_size().wait() - before < 2_000
