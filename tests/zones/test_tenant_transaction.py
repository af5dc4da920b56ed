"""What a user's function gets: the tenant's own keys and queue, and no accidental access to others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fdb.tuple
import pytest

from fairlead.zones.engines import Database
from fairlead.zones.engines.api.errors import NOT_COMMITTED
from fairlead.zones.errors import BadArgument, PayloadNotData
from fairlead.zones.layout import Tenant, item_id_of
from fairlead.zones.queue.items import Enqueued, EnqueueStatus, NewItem, new_item, unpack_payload
from fairlead.zones.tenant_transaction import ApplicationTransaction, Key
from tests.clocks import ManualClock
from tests.zones.colliding import collides
from tests.zones.faults import Fault, FaultyDatabase
from tests.zones.world import ALICE, BOB, NOBODYS, World


def transact(world: World, body: Callable[[ApplicationTransaction], Any], tenant: Tenant = ALICE, **how: Any) -> Any:
    """Run a user's function as an application does."""
    return world.shard.transact(lambda attempt: body(ApplicationTransaction(world.shard, tenant, attempt, **how)))


def set_all(world: World, pairs: dict[Key, bytes], tenant: Tenant = ALICE) -> None:
    def body(tr: ApplicationTransaction) -> None:
        for key, value in pairs.items():
            tr.set(key, value)

    transact(world, body, tenant)


def rows(world: World, prefix: tuple[Any, ...] = (), tenant: Tenant = ALICE, **how: Any) -> list[Any]:
    return list(transact(world, lambda tr: list(tr.get_range(prefix, **how)), tenant))


def test_what_was_set_is_read_back_by_its_tenant_and_by_nobody_else(world: World) -> None:
    transact(world, lambda tr: tr.set(("order", 7), b"paid"))
    assert transact(world, lambda tr: tr.get(("order", 7))) == b"paid"
    assert transact(world, lambda tr: tr.get(("order", 8))) is None
    assert transact(world, lambda tr: tr.get(("order", 7)), BOB) is None


def test_keys_are_tuples_below_the_tenants_prefix_as_any_tool_packs_them(world: World) -> None:
    transact(world, lambda tr: tr.set(("order", 7, ("nested", None)), b"paid"))
    ((key, value),) = world.stored(world.zone.location.keys.tenant.data, world.zone.location.keys.tenant.data + b"\xff")
    assert fdb.tuple.unpack(key) == ("fl", 2, "shop", "alice", 1, "order", 7, ("nested", None))
    assert value == b"paid"


def test_a_range_comes_in_the_order_of_its_tuples(world: World) -> None:
    keys: list[Key] = [("order", 1), ("order", 2, "line"), ("order", 300), ("orders",), (b"order", 1), (1.5,), (-7,)]
    set_all(world, {key: str(key).encode() for key in keys})
    assert [key for key, _ in rows(world)] == [(b"order", 1), *keys[:4], (-7,), (1.5,)]
    assert rows(world, ("order",)) == [(key, str(key).encode()) for key in keys[:3]]
    assert [key for key, _ in rows(world, ("order",), reverse=True, limit=2)] == [("order", 300), ("order", 2, "line")]


def test_clearing_a_prefix_spares_its_neighbours(world: World) -> None:
    set_all(world, dict.fromkeys([("a",), ("a", 1), ("a", 2, 3), ("b", 1)], b""))
    transact(world, lambda tr: tr.clear_prefix(("a",)))
    assert [key for key, _ in rows(world)] == [("a",), ("b", 1)]
    transact(world, lambda tr: tr.clear(("a",)))
    transact(world, lambda tr: tr.clear_prefix())
    assert rows(world) == []


def test_clearing_all_of_a_tenants_data_spares_its_queue_and_other_tenants(world: World) -> None:
    item_id = world.enqueue()
    for tenant in (ALICE, BOB):
        transact(world, lambda tr: tr.set(("a",), b""), tenant)
    transact(world, lambda tr: tr.clear_prefix())
    assert rows(world) == []
    assert rows(world, tenant=BOB) == [(("a",), b"")]
    assert world.vested_ids() == [item_id]


def test_concurrent_adds_do_not_conflict_and_none_is_lost(world: World) -> None:
    def adds(amount: int) -> Callable[[Any], object]:
        location = world.zone.location.keys.tenant.data + fdb.tuple.pack(("total",))
        return lambda tr: tr.add(location, amount.to_bytes(8, "little", signed=True))

    assert not collides(world.db, adds(5), adds(-2))
    transact(world, lambda tr: tr.add(("total",), -1))
    value = transact(world, lambda tr: tr.get(("total",)))
    assert int.from_bytes(value, "little", signed=True) == 2


@pytest.mark.parametrize(
    "key",
    [(), "order", b"order", ["order"], None, 7, ({"a": 1},), (object,), (("nested", {1}),), ("\ud800",)],
    ids=repr,
)
def test_a_key_that_is_no_tuple_of_data_is_refused(world: World, key: Any) -> None:
    for use in (
        lambda tr: tr.get(key),
        lambda tr: tr.set(key, b""),
        lambda tr: tr.clear(key),
        lambda tr: tr.add(key, 1),
    ):
        with pytest.raises(BadArgument) as refused:
            transact(world, use)
        assert refused.value.fields["argument"] == "key"


@pytest.mark.parametrize("prefix", ["order", b"order", None, ({},)], ids=repr)
def test_a_prefix_that_is_no_tuple_of_data_is_refused(world: World, prefix: Any) -> None:
    with pytest.raises(BadArgument):
        rows(world, prefix)
    with pytest.raises(BadArgument):
        transact(world, lambda tr: tr.clear_prefix(prefix))


@pytest.mark.parametrize("amount", [2**63, -(2**63) - 1, 1.5, "1"])
def test_an_amount_that_is_no_64_bit_number_is_refused(world: World, amount: Any) -> None:
    with pytest.raises(BadArgument) as refused:
        transact(world, lambda tr: tr.add(("total",), amount))
    assert refused.value.fields["argument"] == "amount"


def test_no_key_reaches_another_tenants_data(world: World) -> None:
    """Not even one made of what lies between two tenants' prefixes."""
    transact(world, lambda tr: tr.set(("secret",), b"bob's"), BOB)
    theirs = world.zone_of(BOB).location.keys.tenant.data
    mine = world.zone.location.keys.tenant.data
    keys: list[Key] = [("..", "bob"), (theirs[len(mine) :],), (theirs,), (None,), (b"\xff" * 40,)]
    for key in keys:
        assert rows(world, key) == []
        set_all(world, {key: b"mine"})
    assert rows(world, tenant=BOB) == [(("secret",), b"bob's")]
    assert all(key.startswith(mine) for key, value in world.everything() if value == b"mine")


def test_reads_conflict_unless_they_are_snapshot_reads(world: World) -> None:
    def reads(snapshot: bool) -> Callable[[Any], object]:
        """The user's read and a write, on a bare transaction."""
        key = world.zone.location.keys.tenant.data + fdb.tuple.pack(("a",))

        def body(tr: Any) -> None:
            (tr.snapshot if snapshot else tr).get(key).wait()
            tr.set(NOBODYS, b"")

        return body

    def writes(tr: Any) -> None:
        tr.set(world.zone.location.keys.tenant.data + fdb.tuple.pack(("a",)), b"1")

    assert collides(world.db, writes, reads(snapshot=False))
    assert not collides(world.db, writes, reads(snapshot=True))
    transact(world, lambda tr: tr.get(("a",), snapshot=True))
    assert rows(world, snapshot=True) == [(("a",), b"1")]


# --- Work in the same transaction ---


def test_data_and_work_are_both_there_or_neither(world: World) -> None:
    def place_order(tr: ApplicationTransaction) -> Enqueued:
        tr.set(("order", 7), b"paid")
        return tr.enqueue("mail", {"order": 7}, priority=3, delay=0.005)

    def fail(tr: ApplicationTransaction) -> None:
        place_order(tr)
        raise RuntimeError("the user's own")

    with pytest.raises(RuntimeError):
        transact(world, fail)
    assert (rows(world), world.count()) == ([], {})
    item_id, status = transact(world, place_order)
    assert status is EnqueueStatus.ENQUEUED
    assert rows(world) == [(("order", 7), b"paid")]
    record = world.record(item_id)
    assert record is not None
    assert unpack_payload(record.payload) == {"order": 7}
    assert (record.priority, record.trace) == (3, None)
    assert record.vesting_us == world.now_us + 5_000


class Tracing:
    """An observer that stores a trace context with every item, and notes the results."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, EnqueueStatus]] = []

    def with_trace(self, item: NewItem) -> NewItem:
        return item._replace(trace={"traceparent": "00-1-2-01"})

    def on_enqueued(self, item: NewItem, enqueued: Enqueued) -> None:
        self.noted.append((item.kind, enqueued.status))


def test_an_observer_sees_what_is_enqueued_and_stores_a_trace_context_with_it(world: World) -> None:
    tracing = Tracing()

    def twice(tr: ApplicationTransaction) -> Enqueued:
        tr.enqueue("mail", item_id="order 7")
        return tr.enqueue("mail", item_id="order 7")

    record = world.record(transact(world, twice, enqueuer=tracing).item_id)
    assert record is not None
    assert record.trace == {"traceparent": "00-1-2-01"}
    assert tracing.noted == [("mail", EnqueueStatus.ENQUEUED), ("mail", EnqueueStatus.PRESENT)]


def test_several_items_of_one_transaction_have_ids_of_their_own(world: World) -> None:
    ids = transact(world, lambda tr: [tr.enqueue("mail", number).item_id for number in range(5)])
    assert len(set(ids)) == 5
    assert world.count() == {"mail": 5}


@pytest.mark.parametrize("fault", [Fault(applied=False, code=NOT_COMMITTED), Fault(applied=False), Fault(applied=True)])
def test_ids_survive_retries(db: Database, clock: ManualClock, fault: Fault) -> None:
    faulty = FaultyDatabase(db)
    world = World(faulty, clock)
    drawn: list[list[bytes]] = []

    def body(tr: ApplicationTransaction) -> None:
        drawn.append([tr.enqueue("mail").item_id, tr.enqueue("index", zone="other").item_id])

    faulty.faults.append(fault)
    transact(world, body)
    assert all(ids == drawn[0] for ids in drawn)
    assert world.vested_ids() == drawn[0][:1]
    assert [item.id for item in world.dequeue(zone=world.zone_of(ALICE, "other"))] == drawn[0][1:]


def test_an_item_of_a_given_id_is_enqueued_once(world: World) -> None:
    results = [transact(world, lambda tr: tr.enqueue("mail", item_id="invoice-7")) for _ in range(2)]
    assert [status for _, status in results] == [EnqueueStatus.ENQUEUED, EnqueueStatus.PRESENT]
    assert {item_id for item_id, _ in results} == {item_id_of("invoice-7")}


def test_a_refused_item_leaves_the_transaction_usable(world: World) -> None:
    def body(tr: ApplicationTransaction) -> None:
        with pytest.raises(PayloadNotData):
            tr.enqueue("mail", object())
        with pytest.raises(BadArgument):
            tr.enqueue("mail", zone="")
        tr.enqueue("mail", "fine")

    transact(world, body)
    assert world.count() == {"mail": 1}


def test_a_tenant_completes_its_item_together_with_the_effects(world: World) -> None:
    item_id = world.enqueue()
    lease_id = world.lease(item_id)

    def body(tr: ApplicationTransaction) -> None:
        tr.set(("done",), b"1")
        tr.zone().complete(tr.raw, item_id, lease_id=lease_id, now_us=tr.now_us)

    transact(world, body)
    assert rows(world) == [(("done",), b"1")]
    assert world.count() == {}


# --- A transaction of the user's own ---


def test_a_raw_transaction_of_the_users_own_enqueues_with_an_id(world: World) -> None:
    zone = world.shard.zone(ALICE)
    tr = world.db.create_transaction()
    tr.set(NOBODYS, b"1")
    item = new_item("mail", {"order": 7}, item_id="order-7")
    enqueued = zone.enqueue(tr, item, item_id=item_id_of("order-7"), now_us=world.now_us)
    assert enqueued == (item_id_of("order-7"), EnqueueStatus.ENQUEUED)
    tr.commit().wait()
    assert world.vested_ids() == [item_id_of("order-7")]
    assert len(world.scan()) == 1
    tr = world.db.create_transaction()
    again = zone.enqueue(tr, item, item_id=item_id_of("order-7"), now_us=world.now_us)
    tr.commit().wait()
    assert again.status is EnqueueStatus.PRESENT


def test_raw_reaches_the_whole_shard(world: World) -> None:
    transact(world, lambda tr: tr.raw.set(NOBODYS, b"1"))
    assert transact(world, lambda tr: tr.raw.get(NOBODYS).value) == b"1"
