"""Keys are packed by hand on the hot path; every function is held to what `fdb.tuple` packs."""

from __future__ import annotations

from random import Random

import fdb.tuple
from hypothesis import example, given
from hypothesis import strategies as st

from fairlead.zones import keyspace
from fairlead.zones.keyspace import (
    COUNT,
    DATA,
    DB,
    DEAD_LETTER,
    DEAD_LETTER_INDEX,
    DEPTH,
    GUARD,
    ITEM,
    META,
    META_KEY,
    OWNER,
    PAYLOAD,
    POINTER,
    RETAINED_ID,
    RETENTION,
    TIME,
    TIME_KEY,
    TOP,
    VEST,
    ZONE,
    IndexEntry,
    PartKeys,
    QueueKeys,
    TenantKeys,
    ZoneKeys,
    pack_bytes,
    pack_int,
    pack_text,
    range_begin,
    range_end,
)
from fairlead.zones.layout import ShardLayout, Tenant
from fairlead.zones.queue.dead_letters import dead_letter_index_key
from fairlead.zones.queue.id_retention import retention_key
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.top_level.worker_sessions import claim_key

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=30)
IDS = st.binary(min_size=16, max_size=16)
LATEST_US = 2**63 - 1
TIMES = st.integers(0, LATEST_US)
PRIORITIES = st.integers(0, 255)

LMDB_KEY_BYTES_MAX = 511
LONGEST_NAME = "x" * 96
WORST_ID = bytes(16)  # Every NUL of an id takes two bytes in a key.


def pack(*elements: object) -> bytes:
    packed: bytes = fdb.tuple.pack(("fl", *elements))
    return packed


@given(TIMES)
@example(0)
@example(255)
@example(256)
def test_a_number_is_packed_as_the_tuple_layer_packs_it(number: int) -> None:
    assert pack_int(number) == fdb.tuple.pack((number,))


@given(st.binary())
def test_bytes_are_packed_as_the_tuple_layer_packs_them(value: bytes) -> None:
    assert pack_bytes(value) == fdb.tuple.pack((value,))


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_is_packed_as_the_tuple_layer_packs_it(value: str) -> None:
    assert pack_text(value) == fdb.tuple.pack((value,))


@given(st.lists(st.one_of(st.binary(max_size=9), TIMES, NAMES), max_size=3))
def test_a_range_holds_exactly_the_longer_tuples(elements: list[object]) -> None:
    prefix: bytes = fdb.tuple.pack(tuple(elements))
    begin, end = range_begin(prefix), range_end(prefix)
    assert slice(begin, end) == fdb.tuple.range(tuple(elements))
    assert begin <= fdb.tuple.pack((*elements, None)) < end
    assert not begin <= prefix < end


@given(NAMES, NAMES, NAMES, IDS, NAMES)
@example("", "mail", "queue", WORST_ID, "mail")
def test_the_keys_of_a_queue_zone_are_tuples(app: str, user: str, zone: str, item_id: bytes, kind: str) -> None:
    tenant = TenantKeys(app, user)
    keys = ZoneKeys(tenant, zone)
    assert tenant.owner == pack(DB, app, user, OWNER)
    assert tenant.data == pack(DB, app, user, DATA)
    below = (DB, app, user, ZONE, zone)
    assert keys.prefix == pack(*below)
    assert keys.packed == fdb.tuple.pack((app, user, zone))
    assert keys.pointer == pack(*below, POINTER)
    assert keys.pointer_guard == pack(*below, GUARD)
    assert keys.item(item_id) == pack(*below, ITEM, item_id)
    assert keyspace.item_key(keys.packed, item_id) == keys.item(item_id)
    assert keys.count(kind) == pack(*below, COUNT, kind)
    assert keys.dead_letter(item_id) == pack(*below, DEAD_LETTER, item_id)
    assert keys.retained_id(item_id) == pack(*below, RETAINED_ID, item_id)
    assert keys.result(item_id) == pack(*below, keyspace.RESULT, item_id)
    assert keys.traceback(item_id) == pack(*below, keyspace.TRACEBACK, item_id)
    assert keys.payload_prefix(item_id) == pack(*below, PAYLOAD, item_id)
    assert keys.piece(item_id, 3) == pack(*below, PAYLOAD, item_id, 3)
    assert keys.count_prefix() == pack(*below, COUNT)
    assert keys.dead_letter_prefix() == pack(*below, DEAD_LETTER)
    assert dead_letter_index_key(
        ShardLayout(shard_id=b"", part_count=1, settings=ZoneSettings()).location(Tenant(app, user), zone), item_id, 7
    ) == pack(DEAD_LETTER_INDEX, 7, app, user, zone, item_id)
    location = ShardLayout(shard_id=b"", part_count=16, settings=ZoneSettings()).location(Tenant(app, user), zone)
    assert retention_key(location, keys.retained_id(item_id), 7) == pack(
        RETENTION, location.part.part, 7, keys.retained_id(item_id)
    )


@given(st.integers(0, 1023), PRIORITIES, TIMES, NAMES, NAMES, NAMES)
@example(0, 0, 0, "", "mail", "queue")
def test_the_keys_of_a_part_of_the_top_level_queue_are_tuples_that_name_the_zones(
    part: int, priority: int, vesting_us: int, app: str, user: str, zone: str
) -> None:
    keys, pointer_id = PartKeys(part), ZoneKeys(TenantKeys(app, user), zone).packed
    key = keys.vest(priority, vesting_us, pointer_id)
    assert key == pack(TOP, part, VEST, priority, vesting_us, app, user, zone)
    assert keys.entry(key) == IndexEntry(priority, vesting_us, pointer_id)
    assert keys.depth(user) == pack(DEPTH, part, user)


def test_the_keys_that_a_shard_has_one_of_are_tuples() -> None:
    assert pack(META) == META_KEY
    assert pack(TIME) == TIME_KEY


@given(PRIORITIES, TIMES, IDS)
@example(0, 0, WORST_ID)
@example(255, LATEST_US, b"\xff" * 16)
def test_an_entry_of_a_vesting_index_is_read_back_from_its_key(priority: int, vesting_us: int, item_id: bytes) -> None:
    keys = ZoneKeys(TenantKeys("a", "u"), "z")
    key = keys.vest(priority, vesting_us, item_id)
    assert key == keys.prefix + fdb.tuple.pack((VEST, priority, vesting_us, item_id))
    assert keys.entry(key) == IndexEntry(priority, vesting_us, item_id)


@given(st.lists(st.tuples(PRIORITIES, TIMES, IDS)))
def test_keys_of_a_vesting_index_sort_by_priority_then_vesting_time(entries: list[tuple[int, int, bytes]]) -> None:
    keys = QueueKeys(b"")
    assert [keys.entry(key) for key in sorted(keys.vest(*entry) for entry in entries)] == sorted(entries)


@given(PRIORITIES, st.integers(0, LATEST_US), IDS)
def test_seeking_past_a_priority_skips_all_of_it_and_nothing_else(
    priority: int, vesting_us: int, item_id: bytes
) -> None:
    keys = QueueKeys(b"")
    key = keys.vest(priority, vesting_us, item_id)
    assert keys.vest_priority(priority) <= key < keys.vest_priority(priority + 1) <= keys.vest_end()


def test_no_subspace_number_is_used_twice() -> None:
    shard_wide = [META, DB, keyspace.RECEIPT, TOP, DEPTH, DEAD_LETTER_INDEX, RETENTION, TIME]
    shard_wide += [keyspace.HANDLER, keyspace.PERIODIC, keyspace.SESSION]
    of_tenant = [DATA, OWNER, ZONE]
    of_zone = [
        ITEM,
        VEST,
        COUNT,
        DEAD_LETTER,
        PAYLOAD,
        RETAINED_ID,
        POINTER,
        GUARD,
        keyspace.RESULT,
        keyspace.TRACEBACK,
    ]
    for numbers in (shard_wide, of_tenant, of_zone):
        assert len(set(numbers)) == len(numbers)
    assert not set(range(13, 20)) & set(shard_wide), "reserved for later steps"
    assert 5 not in shard_wide, "was given up, and is never reused"
    assert 3 not in of_zone, "was given up, and is never reused"


def test_the_longest_key_that_names_allow_fits_the_embedded_engine() -> None:
    tenant = TenantKeys(LONGEST_NAME, LONGEST_NAME)
    keys = ZoneKeys(tenant, LONGEST_NAME)
    location = ShardLayout(shard_id=b"", part_count=1024, settings=ZoneSettings()).location(
        Tenant(LONGEST_NAME, LONGEST_NAME), LONGEST_NAME
    )
    assert location.part.part > 255, "a number of two bytes"
    longest = {
        "item": keys.item(WORST_ID),
        "vest": keys.vest(255, LATEST_US, WORST_ID),
        "end of vest": keys.vest_end(),
        "count": keys.count(LONGEST_NAME),
        "dead letter": keys.dead_letter(WORST_ID),
        "piece": keys.piece(WORST_ID, 65_535),
        "done": keys.retained_id(WORST_ID),
        "traceback": keys.traceback(WORST_ID),
        "forget": retention_key(location, keys.retained_id(WORST_ID), LATEST_US),
        "list of dead letters": dead_letter_index_key(location, WORST_ID, LATEST_US),
        "pointer": keys.pointer_guard,
        "claim": claim_key(WORST_ID, location, WORST_ID),
        "end of the top-level queue": PartKeys(1023).vest(255, LATEST_US, keys.packed) + b"\x00",
        "depth": PartKeys(1023).depth(LONGEST_NAME),
    }
    assert max(map(len, longest.values())) < LMDB_KEY_BYTES_MAX, {name: len(key) for name, key in longest.items()}


def test_a_damaged_key_of_a_vesting_index_is_parsed_as_none_and_never_as_another() -> None:
    """Whatever is turned over, cut off or added: what can be taken apart is what the key says."""
    keys = ZoneKeys(TenantKeys("shop", "alice"), "queue")
    random = Random(5)
    for _ in range(20_000):
        key = keys.vest(random.choice((0, 3, 100, 255)), random.choice((0, 1, 1_700_000_000_000_000)), bytes(16))
        at = random.randrange(len(keys.vest_prefix), len(key))
        damaged = random.choice(
            (key[:at], key[:at] + bytes([key[at] ^ 1 << random.randrange(8)]) + key[at + 1 :], key[:at] + b"\xff" * 9)
        )
        entry = keys.entry(damaged)
        if entry is not None:
            assert entry.is_possible
            assert damaged.startswith(keys.vest(entry.priority, entry.vesting_us, b"")[:-2])
