"""Damage to a live store: what is damaged waits for a person, and everything beside it goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlead.zones import submitted_handlers
from fairlead.zones.keyspace import (
    COMPLETION_LOG,
    DEAD_LETTER_INDEX,
    HANDLER,
    PAUSED_POINTER,
    POLICY,
    RETENTION,
    ROLLUP,
    ROOT,
    WORKER_STATUS,
    TenantKeys,
    ZoneKeys,
    pack_int,
    range_begin,
)
from fairlead.zones.maintenance.integrity import check_integrity
from fairlead.zones.policy.limits import take_tokens
from fairlead.zones.policy.policies import (
    read_policies,
    set_tenant_policy,
    tenants_with_policies,
    wake_paused_pointers,
    zone_names,
)
from fairlead.zones.queue import dead_letters
from fairlead.zones.queue.dequeue_plan import Admission
from fairlead.zones.queue.id_retention import EXPIRE_BYTES_MAX, retention_key
from fairlead.zones.queue.items import new_item
from fairlead.zones.records import FORMAT, KindPolicy, TenantPolicy
from fairlead.zones.reporting import completion_log, diagnosis, rollups, worker_status
from fairlead.zones.top_level.process_pointers import PointerOutcome
from tests.zones.corrupting import populated, world_of
from tests.zones.world import ALICE, BOB, PART_COUNT, SECOND, World

DAMAGED = bytes([FORMAT]) + b"\xc1"
NEWER = bytes([FORMAT + 1]) + b"what it means only they know"


def ran(world: World) -> int:
    """Process all vested pointers, and return how many items were leased."""
    return sum(len(result.items) for result in world.process())


def test_a_damaged_item_holds_up_neither_its_own_tenant_nor_another(world: World) -> None:
    damaged = world.enqueue()
    world.enqueue_all([new_item("mail")] * 3)
    world.enqueue(zone=world.zone_of(BOB))
    world.set(world.zone.location.keys.item(damaged), DAMAGED)
    results = world.process()
    assert sorted(len(result.items) for result in results) == [1, 3]
    assert sum(result.unreadable for result in results) == 1


@pytest.mark.parametrize("kind", [b"\xff\xfe", b"index", b""])
def test_an_index_entry_of_another_kind_than_its_item_is_passed_over(world: World, kind: bytes) -> None:
    """Either of the two may be damaged, and an item must not run in the handler of another kind."""
    item_id = world.enqueue("mail")
    record = world.record(item_id)
    assert record is not None
    world.set(world.zone.location.keys.vest(record.priority, record.vesting_us, item_id), kind)
    world.enqueue("mail")
    assert ran(world) == 1
    assert world.record(item_id) == record


def test_a_place_to_go_on_from_that_is_damaged_leads_into_no_other_queue(world: World) -> None:
    world.enqueue(zone=world.zone_of(BOB))
    world.enqueue_all([new_item("fax")] * 600)
    elsewhere = world.zone_of(BOB).location.keys.vest_priority(0)
    for cursor in (elsewhere, ROOT, b"\xff", world.zone.location.keys.vest_prefix + b"\xff"):
        found = world.dequeued(kinds={"mail": 1}, cursor=cursor, best_skipped=Admission.UNKNOWN)
        assert found.items == []


def test_a_damaged_pointer_is_replaced_when_it_is_processed(world: World) -> None:
    world.enqueue()
    world.set(world.zone.location.keys.pointer, DAMAGED)
    assert ran(world) == 1
    assert world.pointer() is not None
    world.enqueue()
    assert ran(world) == 1


def test_a_damaged_pointer_is_replaced_by_the_next_enqueue_too(world: World) -> None:
    """The entry that led to it may be damaged as well; then no scan finds it."""
    world.enqueue()
    pointer = world.pointer()
    assert pointer is not None
    location = world.zone.location
    world.clear(location.part.vest(pointer.priority, pointer.vesting_us, location.pointer_id))
    world.set(location.keys.pointer, DAMAGED)
    world.enqueue()
    assert ran(world) == 2


def test_a_pointer_that_a_newer_version_wrote_is_not_changed(world: World) -> None:
    world.enqueue()
    world.set(world.zone.location.keys.pointer, NEWER)
    world.enqueue()
    (result,) = world.process()
    assert result.outcome is PointerOutcome.UNREADABLE
    assert dict(world.stored(world.zone.location.keys.pointer, world.zone.location.keys.pointer + b"\0")) == {
        world.zone.location.keys.pointer: NEWER
    }


PAUSED_POINTERS, KIND_POLICIES = ROOT + pack_int(PAUSED_POINTER), ROOT + pack_int(POLICY) + pack_int(2)
TENANT_POLICIES, DEAD_LETTERS = ROOT + pack_int(POLICY) + pack_int(3), ROOT + pack_int(DEAD_LETTER_INDEX)
RETENTIONS, HANDLERS = ROOT + pack_int(RETENTION), ROOT + pack_int(HANDLER)
FRESH, PACKED = ROOT + pack_int(COMPLETION_LOG) + pack_int(1), ROOT + pack_int(COMPLETION_LOG) + pack_int(2)
ALICES = TenantKeys("shop", "alice")


@pytest.mark.parametrize("rest", [b"", b"\x01", b"\x02\xff\x00", b"\x02shop", b"\x14", b"\x1b\x01"])
@pytest.mark.parametrize(
    ("prefix", "read"),
    [
        (
            PAUSED_POINTERS,
            lambda world: world.run(lambda tr: wake_paused_pointers(tr, world.layout, now_us=world.now_us)),
        ),
        (KIND_POLICIES, lambda world: world.run(read_policies)),
        (TENANT_POLICIES, lambda world: world.run(lambda tr: tenants_with_policies(tr, tenants_max=9))),
        (DEAD_LETTERS, lambda world: world.run(lambda tr: list(dead_letters.listing(tr, world.layout, items_max=9)))),
        (DEAD_LETTERS, lambda world: world.run(lambda tr: diagnosis.whereabouts(tr, world.layout, bytes(16)))),
        (RETENTIONS, lambda world: world.expire(9)),
        (HANDLERS, lambda world: world.run(submitted_handlers.listing)),
        (FRESH, lambda world: world.run(lambda tr: completion_log.compact(tr, range(PART_COUNT), now_us=world.now_us))),
        (
            PACKED,
            lambda world: world.run(lambda tr: completion_log.compact(tr, range(PART_COUNT), now_us=world.now_us)),
        ),
        (ALICES.in_flight_prefix, World.process),
        (ALICES.zones, lambda world: world.run(lambda tr: list(zone_names(tr, ALICES)))),
        (ZoneKeys(ALICES, "queue").count_prefix(), World.count),
    ],
    ids=[
        "paused pointers",
        "kinds",
        "tenants",
        "dead letters",
        "whereabouts",
        "retention",
        "handlers",
        "fresh",
        "packed",
        "in-flight markers",
        "zones",
        "counts",
    ],
)
def test_a_damaged_key_of_a_list_is_skipped(
    world: World, prefix: bytes, read: Callable[[World], Any], rest: bytes
) -> None:
    """It raised in every reader of the list: a dequeue, the housekeeping of the fleet, or a command."""
    world.enqueue()
    world.run(lambda tr: set_tenant_policy(tr, world.layout, ALICE, TenantPolicy(max_running=3), now_us=world.now_us))
    if prefix + rest != ROOT:
        world.set(range_begin(prefix) + rest, b"")
        world.set(prefix + rest, b"what it said")
    read(world)


def test_a_retention_entry_names_a_retained_id_and_no_other_key(world: World) -> None:
    """A damaged key may name any other: a pointer's place in the queue has no value, which is no time in the future."""
    world.enqueue()
    before = world.everything()
    for key, _ in before:
        world.set(retention_key(world.zone.location, key, world.now_us - 1), b"")
    world.expire(99)
    assert world.everything() == before


@pytest.mark.parametrize("total", [b"\xff" * 40, b"\x01", b""])
def test_a_damaged_total_of_completions_stops_no_housekeeping(world: World, total: bytes) -> None:
    """One that was too small made a negative number of bytes, which ended the housekeeping thread."""
    for _ in range(2):
        world.run(lambda tr: world.zone.complete(tr, world.enqueue(), now_us=world.now_us))
        world.pass_us(9_000_000)
        world.run(lambda tr: completion_log.compact(tr, range(PART_COUNT), now_us=world.now_us))
        world.set(ROOT + pack_int(COMPLETION_LOG), total)
        world.pass_us(2 * completion_log.KEPT_US)
    world.run(lambda tr: completion_log.compact(tr, range(PART_COUNT), now_us=world.now_us))


@pytest.mark.parametrize("value", [b"\xff" * 12, b"", b"\x05", b"\xe1", bytes(7) + b"\x80", b"\xff" * 7 + b"\x7f"])
def test_a_damaged_count_is_repaired(world: World, value: bytes) -> None:
    world.enqueue()
    for key in (world.zone.location.keys.count("mail"), world.zone.location.part.depth("mail")):
        world.set(key, value)
        world.count()
        check_integrity(world.shard, repair=True)
    assert world.count() == {"mail": 1}
    assert check_integrity(world.shard).findings == []


def test_a_bucket_that_is_of_the_far_future_is_full(world: World) -> None:
    """With one bit of its time flipped, a kind would have started no item for thousands of years."""
    policy = KindPolicy(per_s=1.0, burst=3)
    terms = {"wanted": 3, "returned": 0, "clocks_apart_us": SECOND}
    later = world.now_us + 2**60
    world.run(lambda tr: take_tokens(tr, "mail", policy, now_us=later, **terms))
    assert world.run(lambda tr: take_tokens(tr, "mail", policy, now_us=world.now_us, **terms)) == 3


@pytest.mark.parametrize("number", [WORKER_STATUS, ROLLUP])
def test_a_damaged_worker_status_stops_no_housekeeping(number: int) -> None:
    """A text that is none raised UnicodeDecodeError in every consumer, once a second."""
    prefix = ROOT + pack_int(number)
    rows = [pair for pair in populated() if pair[0].startswith(prefix)]
    world = world_of([])
    world.pass_us(3 * rollups.INTERVAL_US)
    for key, value in rows:
        for at in range(1, len(value)):
            world.set(key, value[:at] + b"\xff" + value[at + 1 :])
            world.run(lambda tr: worker_status.clear_old(tr, now_us=world.now_us, keys_max=9))
            world.run(lambda tr: worker_status.read(tr, now_us=world.now_us))
            world.run(lambda tr: rollups.busiest(rollups.read(tr, now_us=world.now_us)))
            world.run(lambda tr: rollups.read_depths(tr, now_us=world.now_us))
        world.run(lambda tr: rollups.sum_up(tr, world.layout, now_us=world.now_us))


def test_expiring_results_are_read_a_megabyte_at_a_time(world: World) -> None:
    """A fleet that was away for an hour would read a hundred megabytes in each of its first seconds."""
    stale = world.now_us - 1
    for number in range(200):
        key = world.zone.location.keys.result(number.to_bytes(16, "big"))
        world.set(key, stale.to_bytes(8, "big") + bytes(60_000))
        world.set(retention_key(world.zone.location, key, stale), b"")
    expired = [world.expire(2_000) for _ in range(10)]
    assert max(expired) * 60_000 < 3 * EXPIRE_BYTES_MAX
    assert sum(expired) == 200, "and in the end all are"
