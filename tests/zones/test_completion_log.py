"""The completion log covers an hour, in few long values, and is bounded."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.zones.engines import Transaction
from fairlead.zones.errors import ItemGone
from fairlead.zones.keyspace import COMPLETION_LOG, ROOT, pack_int, range_begin, range_end
from fairlead.zones.layout import Tenant
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.items import new_item
from fairlead.zones.reporting import completion_log
from fairlead.zones.reporting.completion_log import BLOCK_BYTES, KEPT_US, EndedItem, EndedOfZone, EndReason
from tests.zones.colliding import collides
from tests.zones.world import ALICE, BOB, LEASE_US, PART_COUNT, SECOND, World

TOTAL = ROOT + pack_int(COMPLETION_LOG)


def ended(world: World, item_id: bytes) -> list[completion_log.Ended]:
    return world.run(lambda tr: completion_log.find(tr, item_id))


def complete(world: World, item_id: bytes, lease_id: bytes | None = None) -> None:
    world.run(lambda tr: world.zone.complete(tr, item_id, now_us=world.now_us, lease_id=lease_id))


def compact(world: World) -> None:
    world.run(lambda tr: completion_log.compact(tr, range(PART_COUNT), now_us=world.now_us))


def kept(world: World) -> list[tuple[bytes, bytes]]:
    """The pairs of the log, without its size."""
    return world.stored(range_begin(TOTAL), range_end(TOTAL))


def note(world: World, *item_ids: bytes, kind: str = "mail") -> None:
    items = [EndedItem(item_id, kind, EndReason.COMPLETED, 1, 5) for item_id in item_ids]
    world.run(
        lambda tr: completion_log.append(tr, world.layout, [EndedOfZone(*ALICE, "queue", items)], now_us=world.now_us)
    )


def test_the_log_says_when_where_and_in_which_attempt_an_item_was_completed(world: World) -> None:
    item_id = world.enqueue()
    world.dequeue()
    world.pass_us(LEASE_US)
    (item,) = world.dequeue()
    world.pass_us(3_000)
    complete(world, item_id, item.record.lease_id)
    (found,) = ended(world, item_id)
    assert found == (ALICE, "queue", world.now_us, (item_id, "mail", EndReason.COMPLETED, 2, 3))


def test_the_log_says_that_an_item_was_cancelled(world: World) -> None:
    item_id = world.enqueue()
    complete(world, item_id)
    assert [each.item.end_reason for each in ended(world, item_id)] == [EndReason.CANCELLED]


def test_an_item_that_did_not_exist_is_not_logged(world: World) -> None:
    with pytest.raises(ItemGone):
        complete(world, b"nobody's item id")
    assert kept(world) == []


def test_items_that_end_in_one_transaction_cost_one_key(world: World) -> None:
    for zone in (world.zone, world.zone_of(BOB)):
        world.enqueue_all([new_item("mail")] * 10, zone=zone)

    def body(tr: Transaction) -> None:
        ended: list[EndedOfZone] = []
        for zone in (world.zone, world.zone_of(BOB)):
            held = [(item_id, None) for item_id in zone.peek_ids(tr, items_max=100, now_us=world.now_us)]
            run_one(zone.complete_op(tr, held, now_us=world.now_us, ended=ended))
        completion_log.append(tr, world.layout, ended, now_us=world.now_us)

    world.run(body)
    assert len(kept(world)) == 1


def test_more_than_a_value_holds_is_split(world: World) -> None:
    item_ids = [world.new_id() for _ in range(1_000)]
    note(world, *item_ids, kind="k" * 96)
    assert len(kept(world)) > 1
    assert all(len(value) <= BLOCK_BYTES for _, value in kept(world))
    assert all(len(ended(world, item_id)) == 1 for item_id in (item_ids[0], item_ids[500], item_ids[-1]))


def test_an_id_that_ended_twice_is_found_twice_the_latest_first(world: World) -> None:
    for _ in range(2):
        item_id = world.enqueue(item_id="order")
        complete(world, item_id)
        world.pass_us(2 * SECOND)
        compact(world)
    first, second = ended(world, item_id)
    assert first.ended_us > second.ended_us


# --- Packing ---


def test_ends_are_packed_after_a_moment_and_still_found(world: World) -> None:
    item_ids = [world.new_id() for _ in range(50)]
    for item_id in item_ids:
        note(world, item_id)
        world.pass_us(1_000)
    compact(world)
    assert len(kept(world)) == 50, "commits of these times may still come"
    world.pass_us(SECOND)
    compact(world)
    assert len(kept(world)) == 1
    assert [len(ended(world, item_id)) for item_id in item_ids] == [1] * 50


def test_packing_does_not_conflict_with_what_ends_meanwhile(world: World) -> None:
    note(world, world.new_id())
    world.pass_us(2 * SECOND)

    def end(tr: Transaction) -> None:
        items = [EndedItem(world.new_id(), "mail", EndReason.COMPLETED, 1, 5)]
        completion_log.append(tr, world.layout, [EndedOfZone(*ALICE, "queue", items)], now_us=world.now_us)

    assert not collides(world.db, end, lambda tr: completion_log.compact(tr, range(PART_COUNT), now_us=world.now_us))


def test_concurrent_packing_of_one_part_conflicts(world: World) -> None:
    note(world, world.new_id())
    world.pass_us(2 * SECOND)

    def pack(tr: Transaction) -> None:
        completion_log.compact(tr, range(PART_COUNT), now_us=world.now_us)

    assert collides(world.db, pack, pack)


def in_part(world: World, part: int) -> Tenant:
    """Return a tenant whose queue lies in a part."""
    tenants = (Tenant("shop", f"user {number}") for number in range(100))
    return next(tenant for tenant in tenants if world.zone_of(tenant).location.part.part == part)


def note_of(world: World, tenant: Tenant, item_id: bytes) -> None:
    ended = [EndedOfZone(*tenant, "queue", [EndedItem(item_id, "mail", EndReason.COMPLETED, 1, 5)])]
    world.run(lambda tr: completion_log.append(tr, world.layout, ended, now_us=world.now_us))


def test_what_ends_in_two_parts_at_one_moment_is_not_written_side_by_side(world: World) -> None:
    """All commits of a shard appended to one place, which is one server of a cluster."""
    keys: list[set[bytes]] = []
    for part in (0, 1):
        for _ in range(3):
            note_of(world, in_part(world, part), world.new_id())
        keys.append({key for key, _ in kept(world)} - {key for some in keys for key in some})
    assert max(keys[0]) < min(keys[1])


def test_consumers_pack_their_own_parts_without_conflict_and_all_ends_are_found_by_time(world: World) -> None:
    item_id, tenants = world.new_id(), [in_part(world, part) for part in (0, 1)]
    for tenant in (*tenants, *tenants):  # One that ended is named anew elsewhere.
        note_of(world, tenant, item_id)
        world.pass_us(SECOND)
    in_order = [each.ended_us for each in ended(world, item_id)]
    assert in_order == sorted(in_order, reverse=True)
    note_of(world, in_part(world, 0), world.new_id())
    world.pass_us(2 * SECOND)
    compact(world)
    for tenant in tenants:
        note_of(world, tenant, item_id)
    world.pass_us(2 * SECOND)

    def pack(part: int) -> Any:
        return lambda tr: completion_log.compact(tr, range(part, part + 1), now_us=world.now_us)

    assert not collides(world.db, pack(0), pack(1))
    found = ended(world, item_id)
    assert len(found) == 6
    assert [each.ended_us for each in found] == sorted((each.ended_us for each in found), reverse=True)
    total = dict(world.stored(TOTAL, TOTAL + b"\x00"))[TOTAL]
    packed = world.stored(TOTAL + pack_int(2), range_end(TOTAL + pack_int(2)))
    assert int.from_bytes(total, "little") == sum(len(value) for _, value in packed)


def test_ends_of_an_hour_ago_are_cleared(world: World) -> None:
    first, second = world.new_id(), world.new_id()
    note(world, first)
    world.pass_us(2 * SECOND)
    compact(world)
    world.pass_us(KEPT_US - 2 * SECOND)
    note(world, second)
    world.pass_us(2 * SECOND)
    compact(world)
    assert (ended(world, first), len(ended(world, second))) == ([], 1)


def test_the_log_is_bounded_and_the_oldest_ends_are_cleared_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion_log, "PACKED_BYTES_MAX", 100_000)
    first = world.new_id()
    note(world, first)
    for _ in range(10):
        world.pass_us(2 * SECOND)
        last = world.new_id()
        note(world, last, *(world.new_id() for _ in range(1_000)))
        world.pass_us(2 * SECOND)
        compact(world)
    assert sum(len(value) for _, value in kept(world)) < 200_000
    assert (ended(world, first), len(ended(world, last))) == ([], 1)


def test_values_of_a_newer_version_are_skipped(world: World) -> None:
    item_id = world.new_id()
    note(world, item_id)
    ((key, value),) = kept(world)
    world.set(key, b"\x02" + value)
    assert ended(world, item_id) == []
    world.set(key, b"\x01\xc1" + item_id)
    assert ended(world, item_id) == []
