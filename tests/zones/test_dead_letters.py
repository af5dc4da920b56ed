"""Dead letters: kept with their errors until an operator retries or discards them."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.zones.errors import TenantMoved
from fairlead.zones.layout import local_tenant
from fairlead.zones.queue.dead_letters import (
    DeadLetter,
    dead_letter_index_range,
    discard,
    listing,
    move_to_dead_letters,
    read,
    retry_dead_letter,
)
from fairlead.zones.queue.items import unpack_payload
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.queue.stored_item import read_payload
from fairlead.zones.records import FORMAT, DeadLetterRecord, ItemRecord, OwnerRecord, encode
from tests.zones.world import ALICE, BOB, SECOND, World


def dead_letter_item(world: World, item_id: bytes, *, zone: QueueZone | None = None, **why: Any) -> None:
    record = world.record(item_id, zone=zone)
    assert record is not None
    why = {"reason": "error", "error": "ValueError: no", "traceback": "Traceback ..."} | why
    world.run(
        lambda tr: move_to_dead_letters(tr, (zone or world.zone).location, item_id, record, now_us=world.now_us, **why)
    )


def read_dead_lettered(world: World, item_id: bytes) -> DeadLetterRecord:
    dead_letter = world.run(lambda tr: read(tr, world.zone.location, item_id))
    assert dead_letter is not None
    return dead_letter


def shown(world: World, items_max: int = 100) -> list[DeadLetter]:
    return world.run(lambda tr: list(listing(tr, world.layout, items_max=items_max)))


def test_a_dead_letter_is_out_of_the_queue_and_holds_its_error(world: World) -> None:
    item_id = world.enqueue(payload={"order": 7})
    world.lease(item_id)
    dead_letter_item(world, item_id)
    assert world.record(item_id) is None
    assert world.count() == {}
    world.pass_us(100 * SECOND)
    assert world.dequeue() == []
    dead_letter = read_dead_lettered(world, item_id)
    assert (dead_letter.reason, dead_letter.error, dead_letter.traceback) == (
        "error",
        "ValueError: no",
        "Traceback ...",
    )
    assert unpack_payload(dead_letter.item.payload) == {"order": 7}
    assert dead_letter.item.lease_id == b""


def test_the_dead_letters_of_all_tenants_are_listed_oldest_first(world: World) -> None:
    expected = []
    for tenant in (BOB, ALICE, local_tenant("reindex")):
        zone = world.zone_of(tenant, "other")
        item_id = world.enqueue(zone=zone)
        dead_letter_item(world, item_id, zone=zone)
        expected.append((tenant, "other", item_id))
        world.pass_us(1)
    assert [item[:3] for item in shown(world)] == expected
    assert [item[:3] for item in shown(world, 2)] == expected[:2]


def test_a_dead_letter_that_a_newer_version_wrote_is_not_listed(world: World) -> None:
    newer, readable = world.enqueue(), world.enqueue()
    for item_id in (newer, readable):
        dead_letter_item(world, item_id)
    world.set(world.zone.location.keys.dead_letter(newer), bytes([FORMAT + 1]))
    assert [item.id for item in shown(world)] == [readable]


def test_from_when_an_item_can_run_is_known_through_delay_and_retry(world: World) -> None:
    """`give_up_after` counts from then."""
    item_id, plain = world.enqueue(delay=1), world.enqueue()
    enqueued_us = world.now_us
    found = world.record(item_id), world.record(plain)
    assert [record.runnable_us for record in found if record] == [enqueued_us + SECOND, enqueued_us]
    world.pass_us(2 * SECOND)
    dead_letter_item(world, item_id)
    world.pass_us(SECOND)
    dead_letter = read_dead_lettered(world, item_id)
    world.run(lambda tr: retry_dead_letter(tr, world.zone.location, item_id, dead_letter, now_us=world.now_us))
    record = world.record(item_id)
    assert record is not None
    assert (record.runnable_us, record.enqueued_us) == (world.now_us, enqueued_us)


def test_a_retried_dead_letter_is_due_now_and_its_errors_and_expiries_are_reset(world: World) -> None:
    item_id = world.enqueue(priority=3, delay=60)
    record = world.record(item_id)
    assert record is not None
    record.error_count, record.expiry_count, record.ran_isolated = 4, 2, True
    world.run(
        lambda tr: move_to_dead_letters(
            tr, world.zone.location, item_id, record, reason="expired", error="", traceback="", now_us=world.now_us
        )
    )
    world.pass_us(SECOND)
    dead_letter = read_dead_lettered(world, item_id)
    world.run(lambda tr: retry_dead_letter(tr, world.zone.location, item_id, dead_letter, now_us=world.now_us))
    (item,) = world.dequeue()
    assert item.id == item_id
    assert not item.isolated
    assert not item.record.ran_isolated
    assert (item.record.error_count, item.record.expiry_count, item.record.priority) == (0, 0, 3)
    assert world.count() == {"mail": 1}
    assert world.stored(*dead_letter_index_range()) == []


def test_a_long_payload_is_kept_through_burial_and_retry_and_goes_with_discarding(world: World) -> None:
    payload = bytes(200_000)
    item_id = world.enqueue(payload=payload)
    dead_letter_item(world, item_id)
    dead_letter = read_dead_lettered(world, item_id)
    assert kept_payload(world, item_id, dead_letter.item) == payload
    world.run(lambda tr: retry_dead_letter(tr, world.zone.location, item_id, dead_letter, now_us=world.now_us))
    record = world.record(item_id)
    assert record is not None
    assert kept_payload(world, item_id, record) == payload
    dead_letter_item(world, item_id)
    dead_letter = read_dead_lettered(world, item_id)
    world.run(lambda tr: discard(tr, world.zone.location, item_id, dead_letter, now_us=world.now_us))
    assert world.of_items() == []
    assert world.stored(*dead_letter_index_range()) == []


def kept_payload(world: World, item_id: bytes, record: ItemRecord) -> Any:
    return unpack_payload(world.run(lambda tr: read_payload(tr, world.zone.location, item_id, record)))


def test_long_errors_and_tracebacks_keep_their_beginning_and_their_end(world: World) -> None:
    item_id = world.enqueue()
    dead_letter_item(world, item_id, error="first" + "x" * 100_000 + "last", traceback="T" * 100_000)
    error = read_dead_lettered(world, item_id).error
    assert error.startswith("first")
    assert error.endswith("last")
    assert "left out" in error
    assert len(error) < 3_000


def test_the_dead_letter_of_a_tenant_that_has_moved_is_not_opened(world: World) -> None:
    """Retried here, an item would stay in a shard that does not own its tenant."""
    item_id = world.enqueue()
    location = world.zone.location
    moved = encode(OwnerRecord(1, b"another shard..."))
    world.run(lambda tr: tr.set(location.keys.tenant.owner, moved))
    with pytest.raises(TenantMoved):
        world.run(lambda tr: read(tr, location, item_id))
