"""Signals that users send: with a tenant's transaction, to its own workflows or to another tenant's."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

import pytest

from fairlead.zones.engines import Database
from fairlead.zones.engines.api.errors import NOT_COMMITTED
from fairlead.zones.errors import BadArgument, ItemGone, PayloadNotData, PayloadTooLarge
from fairlead.zones.layout import item_id_of
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.items import pack_payload, unpack_payload
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.transaction_runner import run
from fairlead.zones.workflow import signals
from fairlead.zones.workflow.signals import SIGNAL_BYTES_MAX, SIGNAL_KIND
from tests.clocks import ManualClock
from tests.zones.faults import Fault, FaultyDatabase
from tests.zones.workflow.runs import the_record
from tests.zones.world import ALICE, BOB, World

T = TypeVar("T")


def transact(world: World, body: Callable[[TenantTransaction], T]) -> T:
    """Run a transaction of Alice's."""
    return run(
        world.db,
        lambda attempt: body(TenantTransaction(world.shard, ALICE, attempt)),
        clock=world.clock,
        random=Random(1),
    )


def taken(world: World, run_id: bytes, name: str = "approved") -> list[Any]:
    """Take all signals of a name, and return their payloads."""

    def body(tr: Any) -> list[Any]:
        payloads = []
        while (found := run_one(signals.first_op(tr, world.zone.location, run_id, name))) is not None:
            tr.clear(found.key)
            payloads.append(unpack_payload(found.payload))
        return payloads

    return world.run(body)


def test_signals_arrive_with_the_transaction_that_sends_them_in_order(world: World) -> None:
    item_id = world.enqueue()

    def body(tr: TenantTransaction) -> None:
        tr.set(("order", 7), b"approved")
        for number in range(3):
            tr.signal(item_id, "approved", {"number": number})

    transact(world, body)
    assert taken(world, item_id) == [{"number": number} for number in range(3)]
    assert transact(world, lambda tr: tr.get(("order", 7))) == b"approved"


def test_a_transaction_that_fails_sends_nothing(world: World) -> None:
    item_id = world.enqueue()

    def body(tr: TenantTransaction) -> None:
        tr.signal(item_id, "approved")
        raise ValueError("changed my mind")

    with pytest.raises(ValueError, match="changed"):
        transact(world, body)
    assert taken(world, item_id) == []


def test_a_signal_finds_its_item_by_the_name_it_was_given(world: World) -> None:
    item_id = world.enqueue(item_id="checkout-7", run=b"r" * 16)
    transact(world, lambda tr: tr.signal("checkout-7", "approved", 1))
    transact(world, lambda tr: tr.signal(item_id, "approved", 2))
    assert taken(world, b"r" * 16) == [1, 2]


@pytest.mark.parametrize("fault", [Fault(applied=False, code=NOT_COMMITTED), Fault(applied=False), Fault(applied=True)])
def test_a_signal_of_unknown_result_arrives_once(db: Database, clock: ManualClock, fault: Fault) -> None:
    faulty = FaultyDatabase(db)
    world = World(faulty, clock)
    item_id = world.enqueue()
    faulty.faults.append(fault)
    transact(world, lambda tr: tr.signal(item_id, "approved", 1))
    assert taken(world, item_id) == [1]


def test_a_signal_to_nobody_is_refused(world: World) -> None:
    with pytest.raises(ItemGone):
        transact(world, lambda tr: tr.signal("checkout-7", "approved"))


@pytest.mark.parametrize(
    "arguments, error",
    [
        ((7, "approved"), BadArgument),
        ((b"x" * 16, ""), BadArgument),
        ((b"x" * 16, "a\0b"), BadArgument),
        ((b"x" * 16, "approved", object()), PayloadNotData),
        ((b"x" * 16, "approved", b"x" * SIGNAL_BYTES_MAX), PayloadTooLarge),
    ],
)
@pytest.mark.parametrize("to", [None, BOB])
def test_a_signal_outside_its_range_is_refused(world: World, arguments: Any, error: type, to: Any) -> None:
    with pytest.raises(error):
        transact(world, lambda tr: tr.signal(*arguments, to=to))
    assert world.count() == {}


def test_a_signal_may_be_64_000_bytes(world: World) -> None:
    item_id = world.enqueue()
    payload = b"x" * (SIGNAL_BYTES_MAX - len(pack_payload(b"x" * 60_000)) + 60_000)
    transact(world, lambda tr: tr.signal(item_id, "approved", payload))
    assert taken(world, item_id) == [payload]


@pytest.mark.parametrize("to", [BOB, "shop/bob"])
def test_a_signal_to_another_tenant_is_brought_by_an_item_of_the_sender(world: World, to: Any) -> None:
    transact(world, lambda tr: tr.signal("checkout-7", "approved", {"by": "alice"}, to=to, zone="orders"))
    (item_id,) = world.vested_ids()
    record = the_record(world, item_id)
    assert record.kind == SIGNAL_KIND
    assert unpack_payload(record.payload) == {
        "app": "shop",
        "user": "bob",
        "zone": "orders",
        "item": item_id_of("checkout-7"),
        "name": "approved",
        "payload": {"by": "alice"},
    }


def test_a_signal_that_names_its_own_tenant_needs_no_item(world: World) -> None:
    item_id = world.enqueue()
    transact(world, lambda tr: tr.signal(item_id, "approved", 1, to=ALICE))
    assert taken(world, item_id) == [1]
    assert world.count() == {"mail": 1}
