"""Keys of items: packed, limited, and in the local index from the enqueue to the end of the item."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.zones.engines import transact
from fairlead.zones.errors import BadArgument
from fairlead.zones.layout import local_tenant
from fairlead.zones.local_index import INDEX_BYTES_MAX, find_op
from fairlead.zones.maintenance.integrity import check_integrity
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue import dead_letters, item_keys
from fairlead.zones.queue.item_keys import IndexedItem, index_of, indexed_item, pack_key, unpack_key
from fairlead.zones.queue.items import new_item
from tests.zones.test_integrity import make_dead_letter
from tests.zones.test_store_calls import ENQUEUE_READS, ITEM_WRITTEN, calls
from tests.zones.world import World

LONG = "x" * 100


def found(world: World, key: bytes = pack_key("order", 7)) -> list[bytes]:
    """Return the ids of the items that the shard's index lists under a key, after a check of the shard."""
    assert check_integrity(world.shard).findings == []
    page = transact(world.db, lambda tr: run_one(find_op(tr, index_of(key), entries_max=9)))
    items = [indexed_item(entry.index_key, entry.member) for entry in page.entries]
    assert None not in items
    return [item.item_id for item in items if item is not None]


# --- Packing ---


@pytest.mark.parametrize("value", ["Ulm", b"\x00\xff", 0, 7, -7, 2**100, "ü" * 20])
def test_a_key_is_packed_and_read_back(value: Any) -> None:
    assert unpack_key(pack_key("order", value)) == ("order", value)


@pytest.mark.parametrize("value", [LONG, LONG.encode(), 256**90, "x" * 9_000])
def test_of_a_long_value_the_hash_is_kept(value: Any) -> None:
    assert unpack_key(pack_key("order", value)) == ("order", None)
    assert len(index_of(pack_key("x" * 32, value))) <= INDEX_BYTES_MAX


def test_a_damaged_key_is_shown_as_its_bytes_and_is_no_key() -> None:
    key = pack_key("order", "Ulm")
    assert item_keys.is_key(key)
    for damaged in (b"", key[:-1], key[1:], b"\x15" + key, key + b"\x00"):
        assert not item_keys.is_key(damaged), damaged
        assert unpack_key(damaged) in ((damaged.hex(), None), ("order", "Ulm"))


def test_values_of_two_types_are_different_keys() -> None:
    values: list[Any] = ["7", b"7", 7, LONG, LONG.encode()]
    assert len({pack_key("order", value) for value in values}) == len(values)


@pytest.mark.parametrize(
    "keys",
    [
        {"order": None},
        {"order": ""},
        {"order": b""},
        {"order": 1.5},
        {"order": True},
        {"order": [7]},
        {"order": "x" * 10_001},
        {"order": "\ud800"},
        {"": 7},
        {"x" * 33: 7},
        {"a\x00b": 7},
        {"\ud800": 7},
        {7: 7},
        {str(number): number for number in range(5)},
        [("order", 7)],
        "order",
    ],
)
def test_keys_that_cannot_be_keys_are_refused(keys: Any) -> None:
    with pytest.raises(BadArgument):
        new_item("mail", keys=keys)


def test_an_entry_names_the_item_and_its_zone() -> None:
    key = pack_key("order", 7)
    assert indexed_item(index_of(key), bytes(16) + b"queue") == IndexedItem("queue", bytes(16), key)
    assert indexed_item(b"\x02account\x00" + key, bytes(16) + b"queue") is None, "a record's"
    assert indexed_item(index_of(key), bytes(16)) is None


# --- From the enqueue to the end ---


def test_an_item_is_found_by_each_of_its_keys_until_it_completes(world: World) -> None:
    item_id = world.enqueue(keys={"order": 7, "city": "Ulm"})
    assert found(world) == found(world, pack_key("city", "Ulm")) == [item_id]
    assert found(world, pack_key("order", 8)) == []
    world.complete(item_id)
    assert found(world) == found(world, pack_key("city", "Ulm")) == []


def test_a_cancelled_item_is_not_found(world: World) -> None:
    item_id = world.enqueue(keys={"order": 7})
    world.run(lambda tr: world.zone.complete(tr, item_id, now_us=world.now_us))
    assert found(world) == []


def test_an_item_that_is_leased_and_returned_is_found(world: World) -> None:
    item_id = world.enqueue(keys={"order": 7})
    lease_id = world.lease(item_id)
    assert found(world) == [item_id]
    world.run(lambda tr: world.zone.requeue(tr, item_id, lease_id, delay_us=5, now_us=world.now_us, error_count=1))
    assert found(world) == [item_id]


def test_a_dead_letter_is_found_and_so_is_its_retry(world: World) -> None:
    item_id = world.enqueue(keys={"order": 7})
    make_dead_letter(world, item_id)
    assert found(world) == [item_id]

    def retry(tr: Any) -> None:
        location = world.zone.location
        record = dead_letters.read(tr, location, item_id)
        assert record is not None
        dead_letters.retry_dead_letter(tr, location, item_id, record, now_us=world.now_us)

    world.run(retry)
    assert found(world) == [item_id]
    world.complete(item_id)
    assert found(world) == []


def test_a_discarded_dead_letter_is_not_found(world: World) -> None:
    item_id = world.enqueue(keys={"order": 7})
    make_dead_letter(world, item_id)

    def discard(tr: Any) -> None:
        record = dead_letters.read(tr, world.zone.location, item_id)
        assert record is not None
        dead_letters.discard(tr, world.zone.location, item_id, record, now_us=world.now_us)

    world.run(discard)
    assert found(world) == []


def test_a_second_enqueue_of_a_name_changes_no_key(world: World) -> None:
    item_id = world.enqueue(item_id="a", keys={"order": 7})
    world.try_enqueue(item_id="a", keys={"order": 8})
    assert found(world) == [item_id]
    assert found(world, pack_key("order", 8)) == []


def test_a_local_item_is_found_on_its_shard(world: World) -> None:
    zone = world.zone_of(local_tenant("index"))
    item_id = world.enqueue(zone=zone, keys={"order": 7})
    assert found(world) == [item_id]


# --- What it costs ---


def enqueue_calls(world: World, **how: Any) -> dict[str, int]:
    world.enqueue()
    item_id = world.new_id()
    item = new_item("mail", **how)
    return calls(world, lambda tr: world.zone.enqueue(tr, item, item_id=item_id, now_us=world.now_us))


def test_an_enqueue_without_keys_costs_nothing_more(world: World) -> None:
    assert enqueue_calls(world) == {**ENQUEUE_READS, **ITEM_WRITTEN}


def test_an_enqueue_costs_two_writes_for_each_key_and_no_read(world: World) -> None:
    assert enqueue_calls(world, keys={"order": 7, "city": "Ulm"}) == {
        **ENQUEUE_READS,
        **ITEM_WRITTEN,
        "set": ITEM_WRITTEN["set"] + 4,
    }


@pytest.mark.parametrize("keys", [{}, {"order": 7}, {"order": 7, "city": "Ulm"}])
def test_a_completion_costs_two_clears_for_each_key_and_no_read(world: World, keys: dict[str, Any]) -> None:
    def complete_calls(**how: Any) -> dict[str, int]:
        item_id = world.enqueue(**how)
        lease_id = world.lease(item_id)
        return calls(world, lambda tr: world.zone.complete(tr, item_id, lease_id=lease_id, now_us=world.now_us))

    without = complete_calls()
    assert complete_calls(keys=keys) == {**without, "clear": without["clear"] + 2 * len(keys)}
