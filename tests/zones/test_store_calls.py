"""The exact store calls of each operation: one more call on these paths is a decision, not an accident."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from fairlead.zones import engines
from fairlead.zones.engines import Database
from fairlead.zones.layout import item_id_of
from fairlead.zones.pipelining import run_one
from fairlead.zones.policy.fair_share import FairShare
from fairlead.zones.queue.dead_letters import move_to_dead_letters, read, retry_dead_letter
from fairlead.zones.queue.dequeue import IndexScan, plan_op
from fairlead.zones.queue.dequeue_plan import Capacity
from fairlead.zones.queue.items import new_item
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.top_level.pointers import scan
from fairlead.zones.top_level.process_pointers import PointerOutcome, lease, process_pointers
from tests.clocks import ManualClock
from tests.zones.counting import CountingTransaction
from tests.zones.world import ALICE, ANY, LEASE_US, MS, SECOND, World


@pytest.fixture
def db(clock: ManualClock) -> Database:
    """One engine is enough: the calls are counted above it."""
    return engines.open("memory:", clock=clock, random=Random(1))


def calls(world: World, body: Any) -> dict[str, int]:
    """Run `body` in a transaction and return its store calls."""
    counting: list[CountingTransaction] = []

    def counted(tr: Any) -> None:
        counting.append(CountingTransaction(tr))
        body(counting[-1])

    world.run(counted)
    return dict(counting[-1].calls)


# --- Enqueue ---

ITEM_WRITTEN = {
    "set": 2,  # record, index entry
    "add": 2,  # the zone's count of the kind, the part's depth of the kind
}
ENQUEUE_READS = {
    "get": 1,  # ownership; nobody looks for an id that is new
    "snapshot_get": 1,  # the pointer's record
    "conflict": 1,  # read conflict on the pointer's guard
}


def test_enqueue_with_an_awake_pointer(world: World) -> None:
    world.enqueue()
    item_id = world.new_id()
    assert calls(world, lambda tr: world.zone.enqueue(tr, new_item("mail"), item_id=item_id, now_us=world.now_us)) == {
        **ENQUEUE_READS,
        **ITEM_WRITTEN,
    }


def test_enqueue_of_a_given_id_reads_dead_letters_and_retained_ids_too_and_clears_an_old_result(
    world: World,
) -> None:
    world.enqueue()
    item = new_item("mail", item_id="a")
    assert calls(world, lambda tr: world.zone.enqueue(tr, item, item_id=item_id_of("a"), now_us=world.now_us)) == {
        **ENQUEUE_READS,
        **ITEM_WRITTEN,
        "get": 4,
        "clear": 1,
    }


def test_enqueue_that_makes_the_pointer(world: World) -> None:
    item_id = world.new_id()
    assert calls(world, lambda tr: world.zone.enqueue(tr, new_item("mail"), item_id=item_id, now_us=world.now_us)) == {
        **ENQUEUE_READS,
        "set": 4,  # the item's 2; pointer record, its index entry
        "add": 2,
        "conflict": 2,  # read and write conflict on the pointer's guard
    }


def test_enqueue_that_wakes_the_pointer(world: World) -> None:
    world.enqueue(delay=60)
    item_id = world.new_id()
    assert calls(world, lambda tr: world.zone.enqueue(tr, new_item("mail"), item_id=item_id, now_us=world.now_us)) == {
        **ENQUEUE_READS,
        "set": 4,  # the item's 2; pointer record, its index entry
        "clear": 1,  # its old index entry
        "add": 2,
        "conflict": 2,  # read conflicts on the pointer's guard, and on its record
    }


def test_enqueue_of_what_is_present_writes_nothing(world: World) -> None:
    world.enqueue(item_id="a")
    item = new_item("mail", item_id="a")
    assert calls(world, lambda tr: world.zone.enqueue(tr, item, item_id=item_id_of("a"), now_us=world.now_us)) == {
        **ENQUEUE_READS,
        "get": 4,
    }


def test_a_batch_reads_the_zone_once_and_counts_once_per_kind(world: World) -> None:
    world.enqueue()
    batch = [(world.new_id(), new_item(kind)) for kind in ["mail"] * 60 + ["index"] * 40]
    assert calls(world, lambda tr: run_one(world.zone.enqueue_op(tr, batch, now_us=world.now_us))) == {
        "get": 1,  # ownership
        "snapshot_get": 1,
        "conflict": 1,
        "set": 200,
        "add": 4,  # zone and part, for two kinds
    }


def test_a_long_payload_adds_one_key_per_90_kb(world: World) -> None:
    world.enqueue()
    item, item_id = new_item("mail", bytes(200_000)), world.new_id()
    assert calls(world, lambda tr: world.zone.enqueue(tr, item, item_id=item_id, now_us=world.now_us)) == {
        **ENQUEUE_READS,
        "set": 5,  # record, index entry, 3 pieces
        "add": 2,
    }


# --- Visits ---

VISIT_READS = {
    "get": 2,  # pointer record, ownership; and one per item taken
    "snapshot_get_range": 1,  # the vesting index
}
POINTER_MOVED = {"set": 2, "clear": 1}  # record, new index entry; old index entry


def process(
    world: World, *, items_max: int = 10, found: PointerOutcome = PointerOutcome.SERVED, ref: Any = None
) -> dict[str, int]:
    """Count the calls for one pointer, without the calls per batch, which read the version of the policies."""
    ref, terms = ref or world.ref(), world.terms(items_max=items_max)

    def body(tr: Any) -> None:
        assert process_pointers(tr, world.layout, [ref], Capacity(100, ANY), terms)[0][0].outcome is found

    called = calls(world, body)
    assert called.pop("snapshot_get") == 1
    return called


@pytest.mark.parametrize("items", [1, 3])
def test_a_dequeue_that_takes_all_items_and_puts_the_pointer_to_sleep(world: World, items: int) -> None:
    world.enqueue_all([new_item("mail")] * items)
    assert process(world) == {
        "get": 2 + items,
        "snapshot_get_range": 1,
        "set": 2 * items + 2,  # per item record and index entry; the pointer's 2
        "clear": items + 1,  # the old index entries
        "conflict": 3,  # the index before and behind its first entry; the declared write on the guard
    }


def test_a_dequeue_that_leaves_items_does_not_read_how_long_to_sleep(world: World) -> None:
    world.enqueue_all([new_item("mail")] * 5)
    assert process(world, items_max=2) == {
        "get": 4,
        "snapshot_get_range": 1,
        "set": 6,
        "clear": 3,
    }


@pytest.mark.parametrize("priorities, ranges", [([100], 1), ([0, 100, 255], 1)])
def test_a_small_zone_is_read_at_once_however_many_priorities_it_has(
    world: World, priorities: list[int], ranges: int
) -> None:
    world.enqueue_all([new_item("mail", priority=priority, delay=1) for priority in priorities])
    ref = world.ref()
    world.run(lambda tr: tr.set(world.zone.location.part.vest(100, world.now_us, ref.id), b""))
    world.enqueue()
    assert process(world)["snapshot_get_range"] == ranges


def test_processing_the_pointer_of_an_empty_zone_that_waits_for_its_deletion(world: World) -> None:
    item_id = world.enqueue()
    world.run(lambda tr: world.zone.complete(tr, item_id, now_us=world.now_us))
    assert process(world) == {
        **VISIT_READS,
        **POINTER_MOVED,
        "conflict": 2,  # the whole index; the declared write on the guard
    }


def test_processing_that_deletes_the_pointer(world: World) -> None:
    item_id = world.enqueue()
    world.run(lambda tr: world.zone.complete(tr, item_id, now_us=world.now_us))
    world.pass_us(ZoneSettings().min_inactive_ms * MS)
    assert process(world, found=PointerOutcome.DELETED) == {
        **VISIT_READS,
        "get_range": 1,  # the whole item range
        "clear": 2,  # record, index entry
        "conflict": 2,  # the whole index; the declared write on the guard
    }


def test_processing_a_leased_pointer_reads_no_more_than_the_first_round(world: World) -> None:
    world.enqueue()
    ref = world.ref()
    process(world)
    assert process(world, ref=ref, found=PointerOutcome.LEASED) == {
        "get": 3,  # pointer record, ownership; whether the scan's entry still stands
        "snapshot_get_range": 1,
    }


def test_the_lease_of_a_contended_pointer(world: World) -> None:
    world.enqueue()
    ref = world.ref()
    assert calls(
        world,
        lambda tr: lease(tr, world.layout, ref, lease_id=b"l" * 16, lease_us=SECOND, now_us=world.now_us),
    ) == {"get": 2, **POINTER_MOVED}


def test_a_scan_reads_one_range_per_part(world: World) -> None:
    world.enqueue()
    assert calls(world, lambda tr: run_one(scan(tr, world.layout.parts[0], now_us=world.now_us, ids_max=1_000))) == {
        "snapshot_get_range": 1
    }


def test_a_scan_reads_one_range_of_a_part_whose_pointers_sleep(world: World) -> None:
    """All pointers have one priority: behind one that has not vested there is nothing to look for."""
    zones = [world.shard.zone(ALICE, f"zone-{each}") for each in range(60)]
    asleep = [zone for zone in zones if zone.location.part is world.layout.parts[0]]
    assert len(asleep) > 2
    for zone in asleep:
        world.enqueue_all([new_item("mail", delay=60)], zone=zone)
    assert calls(world, lambda tr: run_one(scan(tr, world.layout.parts[0], now_us=world.now_us, ids_max=1_000))) == {
        "snapshot_get_range": 1
    }


# --- Holders ---


def held(world: World, count: int = 1) -> list[tuple[bytes, bytes | None]]:
    world.enqueue_all([new_item("mail")] * count)
    return [(item.id, item.record.lease_id) for item in world.dequeue()]


def test_complete(world: World) -> None:
    ((item_id, lease_id),) = held(world)
    assert calls(world, lambda tr: world.zone.complete(tr, item_id, lease_id=lease_id, now_us=world.now_us)) == {
        "get": 2,  # ownership, record
        "clear": 2,  # record, index entry
        "add": 2,  # the zone's count, the part's depth
        "compare_and_clear": 2,  # the zone's count and the part's vanish at zero
        "set": 1,  # that it has ended
    }


def test_completing_many_items_of_a_zone_counts_once(world: World) -> None:
    items = held(world, 10)
    assert calls(world, lambda tr: run_one(world.zone.complete_op(tr, items, now_us=world.now_us, ended=[]))) == {
        "get": 11,
        "clear": 20,
        "add": 2,
        "compare_and_clear": 2,
    }


def test_completing_a_retained_id_writes_two_keys_more(world: World) -> None:
    item_id = world.enqueue(item_id="a", unique_for=1)
    lease_id = world.lease(item_id)
    completed = calls(world, lambda tr: world.zone.complete(tr, item_id, lease_id=lease_id, now_us=world.now_us))
    assert completed["set"] == 1 + 2


def test_extend(world: World) -> None:
    ((item_id, lease_id),) = held(world)
    assert lease_id is not None
    world.pass_us(SECOND)
    assert calls(
        world,
        lambda tr: world.zone.extend_lease(tr, item_id, lease_id, lease_us=LEASE_US, now_us=world.now_us),
    ) == {
        "get": 2,  # ownership, record
        "set": 2,  # record, index entry
        "clear": 1,  # old index entry
    }


def test_requeue_that_finds_the_pointer_awake_enough(world: World) -> None:
    ((item_id, lease_id),) = held(world)
    assert calls(world, lambda tr: world.zone.requeue(tr, item_id, lease_id, delay_us=SECOND, now_us=world.now_us)) == {
        "get": 2,  # ownership, record
        "snapshot_get": 1,  # the pointer's record, for it vests earlier than the lease would have ended
        "conflict": 1,  # read conflict on the pointer's guard
        "set": 2,
        "clear": 1,
    }


def test_requeue_beyond_the_end_of_the_lease_does_not_look_at_the_pointer(world: World) -> None:
    ((item_id, lease_id),) = held(world)
    assert calls(
        world,
        lambda tr: world.zone.requeue(tr, item_id, lease_id, delay_us=2 * LEASE_US, now_us=world.now_us),
    ) == {"get": 2, "set": 2, "clear": 1}


def test_requeue_after_a_failure_writes_its_traceback_too(world: World) -> None:
    ((item_id, lease_id),) = held(world)
    assert calls(
        world,
        lambda tr: world.zone.requeue(tr, item_id, lease_id, delay_us=2 * LEASE_US, now_us=world.now_us, error_count=1,
                                      error="ValueError: no", traceback="line 3, in send"),
    ) == {"get": 2, "set": 3, "clear": 1}  # fmt: skip


def test_obtain_lease(world: World) -> None:
    item_id = world.enqueue()
    assert calls(
        world,
        lambda tr: world.zone.obtain_lease(tr, item_id, lease_id=b"l" * 16, lease_us=LEASE_US, now_us=world.now_us),
    ) == {"get": 2, "set": 2, "clear": 1}


# --- Reading, and dead letters ---


def test_peek_and_count(world: World) -> None:
    world.enqueue_all([new_item("mail")] * 7)
    assert calls(world, lambda tr: world.zone.peek(tr, items_max=5, now_us=world.now_us)) == {
        "snapshot_get_range": 1,
        "snapshot_get": 5,  # the records
    }
    assert calls(world, lambda tr: world.zone.peek_ids(tr, items_max=5, now_us=world.now_us)) == {
        "snapshot_get_range": 1
    }
    assert calls(world, world.zone.count) == {"snapshot_get_range": 1}
    assert calls(world, world.zone.is_empty) == {"get_range": 1}


def test_dead_letter_and_retry(world: World) -> None:
    item_id = world.enqueue()
    location = world.zone.location

    def move_it(tr: Any) -> None:
        record = decode(ItemRecord, tr.get(location.keys.item(item_id)).value)
        assert record is not None
        move_to_dead_letters(tr, location, item_id, record, reason="error", error="", traceback="", now_us=world.now_us)

    def retry_it(tr: Any) -> None:
        dead_letter = read(tr, location, item_id)
        assert dead_letter is not None
        retry_dead_letter(tr, location, item_id, dead_letter, now_us=world.now_us)

    assert calls(world, move_it) == {
        "get": 1,  # the record, read by the caller
        "clear": 2,  # record, index entry
        "add": 2,
        "compare_and_clear": 2,
        "set": 2,  # dead letter record, the shard's list
    }
    assert calls(world, retry_it) == {
        "get": 2,  # ownership, the dead letter
        "clear": 2,  # dead letter record, the shard's list
        "set": 2,  # record, index entry
        "add": 2,
    }


def test_a_dequeue_past_a_thousand_items_that_cannot_run_reads_a_window_at_a_time(world: World) -> None:
    """However few it wants: each read is a round trip, and all zones of a batch wait for the slowest."""
    for _ in range(12):
        world.enqueue_all([new_item("index")] * 100)
    capacity = Capacity(1, {"mail": 1, "index": 0})

    def body(tr: Any) -> None:
        index_scan = IndexScan(world.zone.location, items_max=1, now_us=world.now_us)
        index_scan.send(tr)
        quantum = FairShare(tr, 1).join(world.zone.location, tr.get(world.zone.location.keys.tenant.owner))
        run_one(plan_op(tr, index_scan, capacity, quantum, lease_us=LEASE_US))

    assert calls(world, body)["snapshot_get_range"] <= 5
