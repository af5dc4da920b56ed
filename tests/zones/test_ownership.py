"""Every transaction on a tenant reads its ownership record with conflict, before anything else takes effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlead.zones.errors import OwnerUnreadable, TenantMoved
from fairlead.zones.records import OwnerRecord, encode
from fairlead.zones.tenant_transaction import ApplicationTransaction
from fairlead.zones.transaction_runner import Attempt
from tests.zones.colliding import collides
from tests.zones.world import ALICE, NOBODYS, World

Body = Callable[[ApplicationTransaction], Any]

READS: dict[str, Body] = {
    "get": lambda tr: tr.get(("order", 7)),
    "get by snapshot": lambda tr: tr.get(("order", 7), snapshot=True),
    "get_range": lambda tr: list(tr.get_range(("order",))),
    "get_range by snapshot": lambda tr: list(tr.get_range(("order",), snapshot=True)),
}
WRITES: dict[str, Body] = {
    "set": lambda tr: tr.set(("order", 8), b"open"),
    "clear": lambda tr: tr.clear(("order", 7)),
    "clear_prefix": lambda tr: tr.clear_prefix(("order",)),
    "add": lambda tr: tr.add(("count",), 1),
    "enqueue": lambda tr: tr.enqueue("mail"),
    "raw": lambda tr: tr.raw.set(NOBODYS, b"1"),
}
USES = {**READS, **WRITES}


def names(world: World, owner: bytes) -> None:
    """Let the ownership record of Alice be `owner`."""
    world.set(world.zone.location.keys.tenant.owner, owner)


def elsewhere() -> bytes:
    return encode(OwnerRecord(1, b"another shard's."))


@pytest.fixture
def order(world: World) -> None:
    world.shard.transact(lambda attempt: transaction(world, attempt).set(("order", 7), b"paid"))


def transaction(world: World, attempt: Attempt) -> ApplicationTransaction:
    return ApplicationTransaction(world.shard, ALICE, attempt)


@pytest.mark.usefixtures("order")
@pytest.mark.parametrize("use", USES)
def test_a_transaction_is_refused_where_the_tenant_does_not_live(world: World, use: str) -> None:
    names(world, elsewhere())
    before = world.stored(b"", b"\xff")
    with pytest.raises(TenantMoved):
        world.shard.transact(lambda attempt: USES[use](transaction(world, attempt)))
    assert world.stored(b"", b"\xff") == before


@pytest.mark.usefixtures("order")
@pytest.mark.parametrize("use", USES)
def test_a_body_that_swallows_the_refusal_is_refused_again(world: World, use: str) -> None:
    names(world, elsewhere())

    def body(attempt: Attempt) -> Any:
        tr = transaction(world, attempt)
        with pytest.raises(TenantMoved):
            USES[use](tr)
        return USES[use](tr)

    with pytest.raises(TenantMoved):
        world.shard.transact(body)


@pytest.mark.parametrize("use", USES)
def test_a_record_that_cannot_be_read_refuses_as_another_owner_does(world: World, use: str) -> None:
    names(world, b"garbage")
    with pytest.raises(OwnerUnreadable):
        world.shard.transact(lambda attempt: USES[use](transaction(world, attempt)))


@pytest.mark.usefixtures("order")
@pytest.mark.parametrize("use", USES)
def test_a_transaction_goes_on_under_a_record_that_names_its_shard(world: World, use: str) -> None:
    names(world, encode(OwnerRecord(3, world.layout.shard_id)))
    world.shard.transact(lambda attempt: USES[use](transaction(world, attempt)))


@pytest.mark.usefixtures("order")
@pytest.mark.parametrize("use", USES)
def test_a_transaction_that_writes_conflicts_with_a_change_of_the_record(world: World, use: str) -> None:
    owner = world.zone.location.keys.tenant.owner

    def uses_and_writes(tr: Any) -> None:
        attempt = Attempt(tr, bytes(12), world.now_us)
        USES[use](transaction(world, attempt))
        tr.set(NOBODYS, b"2")

    assert collides(world.db, lambda tr: tr.set(owner, elsewhere()), uses_and_writes)
