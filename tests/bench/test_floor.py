"""The floor makes the writes of any durable queue, with keys and values about as long as the queue's own."""

from pathlib import Path

import pytest

from bench import floor
from bench.floor import Floor
from bench.harness import PAYLOAD, TENANT_APP, tenant_name
from fairlead import new_item
from fairlead.zones.layout import DEFAULT_ZONE, ShardLayout, Tenant
from fairlead.zones.records import ItemRecord, PointerRecord, encode
from fairlead.zones.settings import ZoneSettings

NOW_US = 1_800_000_000_000_000
KEYS_PER_ITEM = 2  # record and index; the count is one per zone
KEYS_PER_ZONE = 3  # count, pointer, pointer's index


def test_the_keys_of_items_are_as_long_in_the_floor_as_in_the_queue() -> None:
    layout = ShardLayout(shard_id=bytes(16), part_count=16, settings=ZoneSettings())
    place = layout.location(Tenant(TENANT_APP, tenant_name(7)), DEFAULT_ZONE)
    item_id, stamp, prefix = bytes(range(1, 17)), bytes(8), b"fl/db/bench/tenant-00007/zone/queue/"
    assert len(floor.record_key(prefix, item_id)) == len(place.keys.item(item_id))
    assert len(floor.index_key(prefix, stamp, item_id)) == len(place.keys.vest(100, NOW_US, item_id))
    assert len(floor.count_key(prefix)) == len(place.keys.count("noop"))


def test_a_pointer_of_the_floor_has_nearly_as_many_bytes_as_one_of_the_queue() -> None:
    """The floor's pointer has an id and a record of its own; the queue's pointer has keys with the name of its zone."""
    layout = ShardLayout(shard_id=bytes(16), part_count=16, settings=ZoneSettings())
    place = layout.location(Tenant(TENANT_APP, tenant_name(7)), DEFAULT_ZONE)
    record = encode(PointerRecord(NOW_US, NOW_US))
    ours = len(place.keys.pointer) + len(record) + len(place.part.vest(100, NOW_US, place.pointer_id))
    floors = len(floor.pointer_key(bytes(16))) + len(floor.POINTER) + len(floor.pointer_index_key(bytes(8), bytes(16)))
    assert (ours, floors) == (121, 122)


def test_the_values_of_the_floor_are_not_shorter_than_those_of_the_queue() -> None:
    item = new_item("noop", PAYLOAD)
    held = {"lease_id": bytes(16), "lease_us": 10_000_000, "session": bytes(8), "leased_us": NOW_US}
    leased = ItemRecord("noop", item.payload, 100, NOW_US, NOW_US, **held)  # type: ignore[arg-type]
    assert len(encode(leased)) <= len(floor.ITEM) == 304


@pytest.mark.parametrize("batch", [1, 100])
def test_the_floor_writes_every_key_of_every_item(tmp_path: Path, batch: int) -> None:
    store = Floor(tmp_path / "floor")
    store.write(0, 250, zones=100, batch=batch)
    assert store.entries() == 250 * KEYS_PER_ITEM + 100 * KEYS_PER_ZONE
    store.close()


def test_after_lease_and_complete_only_pointers_remain(tmp_path: Path) -> None:
    store = Floor(tmp_path / "floor")
    store.write(0, 250, zones=100, batch=100)
    assert store.lease_and_complete() == 250
    assert store.entries() == 100 * 2
    assert store.lease_and_complete() == 0
    store.close()
