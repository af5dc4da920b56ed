"""A run is one life of an item: of a named item each enqueue begins a new one."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from fairlead.bulk_enqueue import enqueue_many
from fairlead.zones.layout import Tenant, item_id_of, local_tenant
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.items import new_item
from fairlead.zones.queue.periodic import Period, tick_op
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.transaction_runner import run
from tests.zones.world import ALICE, SECOND, World

CHECKOUT = item_id_of("checkout-7")


def enqueue_by_name(world: World) -> bytes:
    """Enqueue checkout-7 in a transaction of the tenant, complete it, and return its run."""
    run(
        world.db,
        lambda attempt: TenantTransaction(world.shard, ALICE, attempt).enqueue("mail", item_id="checkout-7"),
        clock=world.clock,
        random=Random(world.random.random()),
    )
    return run_that_ends(world)


def enqueue_in_bulk(world: World) -> bytes:
    enqueue_many([(Database(world.shard), new_item("mail", item_id="checkout-7"))])
    return run_that_ends(world)


class Database(NamedTuple):
    """The database of Alice, who never moves."""

    shard: Shard
    tenant: Tenant = ALICE

    def find(self) -> Shard:
        return self.shard


def run_that_ends(world: World) -> bytes:
    record = world.record(CHECKOUT)
    assert record is not None
    world.complete(CHECKOUT)
    return record.run_of(CHECKOUT)


def test_a_name_that_is_enqueued_again_is_another_run(world: World) -> None:
    runs = {enqueue_by_name(world), enqueue_in_bulk(world), enqueue_by_name(world), enqueue_in_bulk(world), CHECKOUT}
    assert len(runs) == 5
    assert {len(each) for each in runs} == {16}


def test_the_run_of_an_item_without_a_name_is_its_id(world: World) -> None:
    (made,) = enqueue_many([(Database(world.shard), new_item("mail"))])
    record = world.record(made.item_id)
    assert record is not None
    assert record.run is None
    assert record.run_of(made.item_id) == made.item_id


def test_a_periodic_item_has_the_run_that_its_tick_drew(world: World) -> None:
    minutely, zone = Period("mail", 60 * SECOND), world.zone_of(local_tenant("mail"))

    def tick() -> None:
        world.run(lambda tr: run_one(tick_op(tr, world.layout, minutely, run=b"r" * 16, now_us=world.now_us)))

    tick()
    world.pass_us(60 * SECOND)
    tick()
    (leased,) = world.dequeue(zone=zone)
    assert leased.record.run_of(leased.id) == b"r" * 16
