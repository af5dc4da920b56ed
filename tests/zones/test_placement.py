"""A shard stores its name, and with which shards its application began: among these each tenant has a first home."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from random import Random
from typing import Any

import pytest

from fairlead.zones import engines
from fairlead.zones.engines import Database, transact
from fairlead.zones.errors import ShardRefused, TenantMoved
from fairlead.zones.keyspace import PLACEMENT, ROOT, pack_int
from fairlead.zones.layout import Tenant, local_tenant
from fairlead.zones.maintenance.integrity import check_integrity
from fairlead.zones.placement import check_placement, home
from fairlead.zones.records import PlacementRecord
from fairlead.zones.shard import Shard, open_shard
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.clocks import ManualClock
from tests.zones.corrupting import left

KEY = ROOT + pack_int(PLACEMENT)
EU_AND_US = PlacementRecord("eu", ("eu", "us"))
TENANTS = [Tenant("shop", f"user {number}") for number in range(20)]


@pytest.fixture
def memory() -> Iterator[Database]:
    """An empty store: no engine matters here."""
    db = engines.open("memory:", clock=ManualClock(), random=Random(1))
    yield db
    db.close()


def opened(db: Database, name: str = "eu", first_shards: Collection[str] = ()) -> Shard:
    return open_shard(name, db, clock=ManualClock(), random=Random(1), first_shards=first_shards)


def test_a_shard_stores_its_name_and_the_first_shards_of_its_application_once(memory: Database) -> None:
    assert opened(memory, first_shards=("us", "eu")).layout.placement == EU_AND_US
    assert opened(memory, first_shards=("us", "eu", "asia")).layout.placement == EU_AND_US
    assert opened(memory).layout.placement == EU_AND_US


def test_who_does_not_know_the_other_shards_stores_nothing(memory: Database) -> None:
    assert opened(memory).layout.placement is None
    assert transact(memory, lambda tr: tr.get(KEY).value) is None


@pytest.mark.parametrize(
    ("value", "remedy"), [(b"\x02new", "upgrade"), (b"garbage", "damaged"), (b"\x01\x92\xa2eu\x90", "damaged")]
)
def test_a_shard_whose_placement_cannot_be_read_is_refused(memory: Database, value: bytes, remedy: str) -> None:
    opened(memory, first_shards=("eu", "us"))
    transact(memory, lambda tr: tr.set(KEY, value))
    with pytest.raises(ShardRefused, match=remedy):
        opened(memory, first_shards=("eu", "us"))
    assert transact(memory, lambda tr: tr.get(KEY).value) == value


def test_what_is_damaged_is_set_aside_by_a_tool_and_written_anew_by_the_application(memory: Database) -> None:
    opened(memory, first_shards=("eu", "us"))
    transact(memory, lambda tr: tr.set(KEY, b"garbage"))
    shard = opened(memory)
    assert left(check_integrity(shard, quarantine=True)) == []
    assert opened(memory, first_shards=("eu", "us")).layout.placement == EU_AND_US
    assert check_integrity(shard).healthy


def test_a_shard_fits_an_application_that_has_grown() -> None:
    check_placement(EU_AND_US, "eu", ("eu", "us", "asia"))


@pytest.mark.parametrize(("name", "names"), [("us", ("eu", "us")), ("asia", ("asia", "eu", "us"))])
def test_a_shard_under_another_name_is_refused(name: str, names: Collection[str]) -> None:
    with pytest.raises(ShardRefused, match="calls it eu"):
        check_placement(EU_AND_US, name, names)


@pytest.mark.parametrize("names", [("eu",), ("eu", "asia")])
def test_an_application_that_leaves_out_a_first_shard_is_refused(names: Collection[str]) -> None:
    with pytest.raises(ShardRefused, match="eu, us"):
        check_placement(EU_AND_US, "eu", names)


def test_the_only_shard_of_an_application_may_be_renamed() -> None:
    check_placement(PlacementRecord("main", ("main",)), "eu", ("eu",))
    with pytest.raises(ShardRefused, match="calls it main"):
        check_placement(PlacementRecord("main", ("main",)), "eu", ("eu", "us"))


def test_a_shard_that_was_added_later_is_refused_without_the_first_ones() -> None:
    """Before, it was taken for the only shard of its application, under whatever name."""
    for name in ("us", "eu"):
        with pytest.raises(ShardRefused):
            check_placement(PlacementRecord("us", ("eu",)), name, (name,))


def sent_to(shard: Shard, tenant: Tenant) -> Any:
    """Return where a shard sends a tenant without an ownership record; None: it serves the tenant."""
    try:
        shard.transact(lambda attempt: TenantTransaction(shard, tenant, attempt).enqueue("mail"))
    except TenantMoved as moved:
        return moved.fields["first_home"]
    return None


def test_a_tenant_without_a_record_is_served_by_its_first_home_only(memory: Database) -> None:
    shard = opened(memory, first_shards=("eu", "us"))
    sent = [sent_to(shard, tenant) for tenant in TENANTS]
    assert sent == [None if home(tenant, ("us", "eu")) == "eu" else "us" for tenant in TENANTS]
    assert set(sent) == {None, "us"}


def test_a_shard_that_was_added_later_is_no_tenants_first_home(memory: Database) -> None:
    shard = opened(memory, "asia", first_shards=("eu", "us"))
    assert [sent_to(shard, tenant) for tenant in TENANTS] == [home(tenant, ("us", "eu")) for tenant in TENANTS]


def test_local_items_live_on_every_shard(memory: Database) -> None:
    shard = opened(memory, "asia", first_shards=("eu", "us"))
    assert sent_to(shard, local_tenant("mail")) is None
