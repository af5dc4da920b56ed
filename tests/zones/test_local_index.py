"""The local index of a shard: entries of all tenants, found by index, and packed as the tuple layer packs them."""

from __future__ import annotations

from random import Random
from typing import Any

import fdb.tuple
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairlead.zones import local_index
from fairlead.zones.engines import transact
from fairlead.zones.keyspace import DB, INDEXED, LOCAL_INDEX, TenantKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.local_index import (
    INDEX_BYTES_MAX,
    MEMBER_BYTES_MAX,
    MEMBER_NULS_MAX,
    Entry,
    Page,
    indexed_key,
    listing_key,
    local_key,
    parse_indexed_key,
    parse_local_key,
)
from fairlead.zones.pipelining import run_one
from tests.zones.test_keyspace import LMDB_KEY_BYTES_MAX, LONGEST_NAME, NAMES, pack
from tests.zones.world import ALICE, BOB, World

VALUES = st.one_of(
    st.binary(max_size=20),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
    st.integers(-(2**200), 2**200),
    st.tuples(st.binary(max_size=20)),
)
INDEXES = st.tuples(NAMES.filter(lambda name: len(name.encode()) < 32), VALUES)
MEMBERS = st.binary(min_size=1, max_size=MEMBER_NULS_MAX)
KEYS = TenantKeys(*ALICE)
ORDER_7: bytes = fdb.tuple.pack(("item", "order", 7))
ORDER_8: bytes = fdb.tuple.pack(("item", "order", 8))
CUSTOMER_7: bytes = fdb.tuple.pack(("item", "customer", 7))


@given(NAMES, NAMES, INDEXES, MEMBERS)
@example("a", "u", ("order", b"\x00\xff\x00"), bytes(MEMBER_NULS_MAX))
@example("a", "u", ("order", -(2**100)), b"\xff")
def test_the_two_keys_of_an_entry_are_tuples_and_are_read_back(
    app: str, user: str, index: tuple[Any, ...], member: bytes
) -> None:
    keys, packed = TenantKeys(app, user), fdb.tuple.pack(index)
    beside, listed = indexed_key(keys, packed, member), local_key(keys, packed, member)
    assert beside == pack(DB, app, user, INDEXED, index, member)
    assert listed == pack(LOCAL_INDEX, index, app, user, member)
    assert parse_indexed_key(keys, beside) == (packed, member)
    assert parse_local_key(listed) == Entry(Tenant(app, user), packed, member)
    assert listing_key(beside) == listed


def test_the_longest_keys_of_an_entry_fit_the_embedded_engine() -> None:
    keys = TenantKeys(LONGEST_NAME, LONGEST_NAME)
    index: bytes = fdb.tuple.pack(("x" * (INDEX_BYTES_MAX - 2),))
    member = bytes(MEMBER_NULS_MAX) + b"x" * (MEMBER_BYTES_MAX - MEMBER_NULS_MAX)
    local_index._check(index, member)
    for key in (indexed_key(keys, index, member), local_key(keys, index, member)):
        assert len(key) + 1 < LMDB_KEY_BYTES_MAX, "one byte for the end of a page"


@pytest.mark.parametrize(
    ("index", "member"),
    [
        (b"", b"a"),
        (fdb.tuple.pack(("x" * (INDEX_BYTES_MAX - 1),)), b"a"),
        (b"order", b"a"),
        (fdb.tuple.pack((None,)), b"a"),
        (ORDER_7, b""),
        (ORDER_7, b"x" * (MEMBER_BYTES_MAX + 1)),
        (ORDER_7, bytes(MEMBER_NULS_MAX + 1)),
    ],
)
def test_an_entry_that_may_have_too_long_a_key_or_cannot_be_read_back_is_refused(
    world: World, index: bytes, member: bytes
) -> None:
    with pytest.raises(AssertionError):
        world.run(lambda tr: local_index.add(tr, KEYS, index, member))


def test_a_damaged_key_is_parsed_as_none_or_as_what_it_says() -> None:
    random = Random(5)
    for _ in range(20_000):
        key = random.choice((indexed_key(KEYS, ORDER_7, b"member"), local_key(KEYS, ORDER_7, b"member")))
        at = random.randrange(4, len(key))
        damaged = random.choice(
            (key[:at], key[:at] + bytes([key[at] ^ 1 << random.randrange(8)]) + key[at + 1 :], key[:at] + b"\xff" * 9)
        )
        entry, beside = parse_local_key(damaged), parse_indexed_key(KEYS, damaged)
        assert entry is None or local_key(TenantKeys(*entry.tenant), entry.index_key, entry.member) == damaged
        assert beside is None or indexed_key(KEYS, *beside) == damaged


# --- What is found ---


def add(world: World, tenant: Tenant, index: bytes, member: bytes) -> None:
    world.run(lambda tr: local_index.add(tr, TenantKeys(*tenant), index, member))


def find(world: World, index: bytes, **how: Any) -> Page:
    return transact(world.db, lambda tr: run_one(local_index.find_op(tr, index, **{"entries_max": 9, **how})))


def test_entries_of_all_tenants_are_found_by_their_index(world: World) -> None:
    for tenant, index, member in ((ALICE, ORDER_7, b"1"), (BOB, ORDER_7, b"2"), (ALICE, ORDER_8, b"3")):
        add(world, tenant, index, member)
    assert find(world, ORDER_7) == Page([Entry(ALICE, ORDER_7, b"1"), Entry(BOB, ORDER_7, b"2")], None)
    assert find(world, CUSTOMER_7) == Page([], None)


def test_longer_indexes_are_found_by_how_they_begin(world: World) -> None:
    for index in (ORDER_7, ORDER_8, CUSTOMER_7):
        add(world, ALICE, index, b"1")
    found = find(world, fdb.tuple.pack(("item", "order")), longer=True)
    assert [entry.index_key for entry in found.entries] == [ORDER_7, ORDER_8]
    assert find(world, fdb.tuple.pack(("item", "order"))).entries == []


def test_pages_go_on_where_the_last_one_ended(world: World) -> None:
    members = [bytes([number]) for number in range(5)]
    for member in members:
        add(world, ALICE, ORDER_7, member)
    seen, next_key = [], None
    for _ in range(3):
        page = find(world, ORDER_7, entries_max=2, next_key=next_key)
        seen += [entry.member for entry in page.entries]
        next_key = page.next_key
    assert (seen, next_key) == (members, None)


def test_a_removed_entry_is_not_found_and_may_be_removed_again(world: World) -> None:
    add(world, ALICE, ORDER_7, b"1")
    before = world.everything()
    add(world, ALICE, ORDER_7, b"1")
    assert world.everything() == before
    for _ in range(2):
        world.run(lambda tr: local_index.remove(tr, KEYS, ORDER_7, b"1"))
        assert find(world, ORDER_7) == Page([], None)


def test_a_shard_counts_moves(world: World) -> None:
    def count() -> int:
        return transact(world.db, lambda tr: run_one(local_index.move_count_op(tr)))

    assert count() == 0
    for _ in range(2):
        world.run(local_index.count_move)
    assert count() == 2
