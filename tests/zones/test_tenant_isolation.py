"""A handler of one tenant against the keys of another: no use of its transaction reaches them."""

from __future__ import annotations

import uuid
from contextlib import suppress
from random import Random
from typing import Any

import fdb.tuple
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairlead.zones import engines
from fairlead.zones.engines import StoreError
from fairlead.zones.errors import QueueError
from fairlead.zones.keyspace import DEPTH, ROOT, ROOT_RANGE, TenantKeys, pack_int
from fairlead.zones.layout import Tenant, item_id_of
from fairlead.zones.records import Parent
from fairlead.zones.tenant_transaction import ApplicationTransaction, TenantTransaction
from fairlead.zones.workflow.locks import LockRequest, pack_lock
from tests.clocks import ManualClock
from tests.zones.world import NOBODYS, World

# Neighbours on either side, in name and in order: what begins alike, ends alike, or sorts next.
MINE = Tenant("shop", "alice")
OTHERS = [
    Tenant(app, user)
    for app, users in {
        "shop": ["alice2", "alic", "bob", "a", "alice\x01", "\U0010ffff"],
        "sho": ["palice"],
        "shopalice": ["x"],
        "shop\x01": ["alice"],
    }.items()
    for user in users
]

STAMP = fdb.tuple.Versionstamp(b"\xff" * 10, 7)
ELEMENTS = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**80), 2**80),
        st.floats(),
        st.binary(max_size=12),
        st.text(max_size=12),
        st.sampled_from(["alice2", "..", "\0", "\xff", "fl", "shop", b"\x00\xff", b"\xff" * 4, b"\x00", -1, 255, 256]),
        st.sampled_from([uuid.UUID(int=0), STAMP, fdb.tuple.Versionstamp(user_version=3), fdb.tuple.SingleFloat(1.5)]),
    ),
    lambda inner: st.tuples(inner) | st.tuples(inner, inner) | st.lists(inner, max_size=2),
    max_leaves=4,
)
KEYS = st.one_of(
    st.lists(ELEMENTS, max_size=3).map(tuple),
    st.sampled_from(
        [(), None, b"", b"\xff", "alice", 7, [], (TenantKeys(*OTHERS[0]).data,), ("\0" * 3,), (b"\0\xff\0",)]
    ),
)
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "get",
                "get by snapshot",
                "take a snapshot",
                "set",
                "clear",
                "add",
                "prefix",
                "range",
                "between",
                "backwards",
                "first",
                "enqueue",
                "complete",
                "signal",
                "cancel",
                "cancel_child",
                "require_unlocked",
                "take_lock",
                "release_lock",
            ]
        ),
        KEYS,
        st.binary(max_size=8),
    ),
    min_size=1,
    max_size=5,
)


def world() -> World:
    clock = ManualClock()
    made = World(engines.open("memory:", clock=clock, random=Random(1)), clock)
    for tenant in OTHERS:
        for key in (("own",), (), ("\xff",), (b"\xff" * 8,), (None,)):
            location = made.zone_of(tenant).location.keys.tenant.data
            made.set(location + fdb.tuple.pack(key), b"not yours")
        made.enqueue(zone=made.zone_of(tenant), item_id="an item of each")
    made.set(NOBODYS, b"nobody's")
    return made


def do(tr: TenantTransaction, action: str, key: Any, value: bytes) -> Any:
    """Do one thing that a handler can do with its transaction, and return what it sees."""
    match action:
        case "get":
            return tr.get(key)
        case "get by snapshot":
            return tr.get(key, snapshot=True)
        case "take a snapshot":
            return tr.snapshot(keep=len(value))
        case "set":
            return tr.set(key, value)
        case "clear":
            return tr.clear(key)
        case "add":
            return tr.add(key, 5)
        case "between":
            return list(tr.get_between(key, (b"\xff" * 3,)))
        case "prefix":
            return tr.clear_prefix(key)
        case "range":
            return list(tr.get_range(key))
        case "backwards":
            return list(tr.get_range(key, reverse=True, limit=3))
        case "first":
            return list(tr.get_range(key, limit=1, snapshot=True))
        case "enqueue":
            name = key[0] if isinstance(key, tuple) and key else key
            return tr.enqueue(name, item_id=value or None, zone=name)
        case "signal":
            return tr.signal(value if key == () else THEIRS, "go", key)
        case "cancel":
            return tr.cancel(THEIRS)
        case "cancel_child":
            return tr.cancel_child(THEIRS, Parent(*OTHERS[0], "queue", THEIRS, THEIRS, "call", 0), zone="queue")
        case "require_unlocked":
            return tr.require_unlocked(key)
        case "take_lock":
            of_another = LockRequest(*OTHERS[0], "queue", THEIRS, value or THEIRS, "mail", False, "go", 0)
            return tr.take_lock(pack_lock(key), of_another)
        case "release_lock":
            return tr.release_lock(pack_lock(key), value or THEIRS)
        case _:
            return tr.complete(THEIRS, lease_id=value, result=key, keep_result=1)


THEIRS = item_id_of("an item of each")
WORLD = world()
PREFIX = TenantKeys(*MINE).prefix


def of_others() -> list[tuple[bytes, bytes]]:
    """Return all of the store but what is this tenant's own, what says that it has work, and depths of all together."""
    named, depths = TenantKeys(*MINE).packed, ROOT + pack_int(DEPTH)
    return [
        (key, value)
        for key, value in WORLD.stored(b"", b"\xff")
        if not key.startswith((PREFIX, depths)) and named not in key
    ]


BEFORE = of_others()


@settings(max_examples=400)
@given(ACTIONS)
@example([("prefix", (), b""), ("range", (), b"")])
@example([("set", ("\0",), b""), ("clear", (b"\xff",), b""), ("add", ((),), b"")])
@example([("enqueue", ("queue\0",), b"")])
def test_no_key_that_a_handler_can_name_reaches_another_tenants(actions: list[tuple[str, Any, bytes]]) -> None:
    seen: list[Any] = []

    def body(attempt: Any) -> None:
        tr = TenantTransaction(WORLD.shard, MINE, attempt)
        for action in actions:
            try:
                seen.append(do(tr, *action))
            except QueueError:
                continue

    with suppress(StoreError):  # Of a value that is no counter, or a key that is too long.
        WORLD.shard.transact(body)
    assert "not yours" not in repr(seen)
    assert "nobody's" not in repr(seen)
    assert of_others() == BEFORE
    WORLD.run(lambda tr: tr.clear_range(PREFIX, PREFIX + b"\xff"))


def test_only_an_applications_own_transaction_has_raw() -> None:
    with pytest.raises(AttributeError):
        WORLD.shard.transact(lambda attempt: TenantTransaction(WORLD.shard, MINE, attempt).raw)  # type: ignore[attr-defined]
    seen = WORLD.shard.transact(
        lambda attempt: [
            row.value for row in ApplicationTransaction(WORLD.shard, MINE, attempt).raw.get_range(*ROOT_RANGE)
        ]
    )
    assert b"not yours" in seen
    assert "reaches all keys of the shard" in (ApplicationTransaction.raw.__doc__ or "")


def test_a_handler_is_given_nothing_that_is_not_attacked_here() -> None:
    """No key selectors, no atomic operations but `add`, no ranges but those below a tuple."""
    public = {name for name in dir(TenantTransaction) if not name.startswith("_")}
    keyed = {"get", "set", "clear", "clear_prefix", "add", "get_range", "get_between"}
    queued = {"enqueue", "enqueue_item", "complete", "signal", "cancel", "cancel_child"}
    locking = {"require_unlocked", "take_lock", "release_lock"}
    assert public == keyed | queued | locking | {"now_us", "snapshot", "tenant"}
