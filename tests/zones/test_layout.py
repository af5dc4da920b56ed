"""Names in, keys out: the same in every process."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from fairlead.zones.errors import BadArgument
from fairlead.zones.layout import ShardLayout, Tenant, check_name, local_tenant, named_tenant
from fairlead.zones.placement import home
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.tuples import pack

SHARDS = ["blue", "green", "red"]
TENANTS = [Tenant("shop", f"user{number}") for number in range(2_000)]


@pytest.mark.parametrize("name", ["", 7, None, b"alice", "x" * 97, "é" * 49, "nul\0", "\ud800"])
def test_a_name_that_cannot_be_stored_is_refused(name: Any) -> None:
    with pytest.raises(BadArgument):
        check_name("user", name)


@pytest.mark.parametrize("name", ["a", "x" * 96, "é" * 48, "with space", "\x01", "\U0001f355"])
def test_any_other_name_is_allowed(name: str) -> None:
    assert check_name("user", name) == name


def test_no_tenant_can_have_the_name_of_the_local_items_of_a_kind() -> None:
    with pytest.raises(BadArgument):
        named_tenant(*local_tenant("reindex"))


@pytest.mark.parametrize("app", ["shop", "a/b", "a//b", "é", "a b"])
@pytest.mark.parametrize("user", ["alice", "b/c", "b//c", "x@y"])
def test_a_tenant_is_read_as_it_is_printed(app: str, user: str) -> None:
    tenant = Tenant(app, user)
    assert Tenant.parse(str(tenant)) == named_tenant(str(tenant)) == named_tenant(tenant) == named_tenant(app, user)


@pytest.mark.parametrize("text", ["", "shop", "/alice", "shop/", "a//b", 7, None])
def test_a_text_that_names_no_tenant_is_refused(text: Any) -> None:
    with pytest.raises(BadArgument):
        Tenant.parse(text)


def test_every_part_gets_its_share_of_the_pointers() -> None:
    layout = ShardLayout(shard_id=b"s" * 16, part_count=4, settings=ZoneSettings())
    parts = [layout.location(tenant, "queue").part.part for tenant in TENANTS]
    assert all(400 < parts.count(part) < 600 for part in range(4))


def test_two_zones_of_one_tenant_have_two_pointers() -> None:
    layout = ShardLayout(shard_id=b"s" * 16, part_count=4, settings=ZoneSettings())
    locations = [layout.location(Tenant("shop", "alice"), zone) for zone in ("queue", "other")]
    assert locations[0].pointer_id != locations[1].pointer_id


@pytest.mark.parametrize("tenant", [Tenant("shop", "zo\u00eb"), local_tenant("x" * 96), Tenant("x" * 96, "x" * 96)])
def test_the_id_of_a_pointer_says_which_zone_it_points_to(tenant: Tenant) -> None:
    layout = ShardLayout(shard_id=b"s" * 16, part_count=4, settings=ZoneSettings())
    for zone in ("queue", "x" * 96):
        location = layout.location(tenant, zone)
        assert layout.location_of(location.pointer_id) is location


@pytest.mark.parametrize(
    "elements",
    [("shop", "alice"), ("shop", "alice", "queue", "more"), ("shop", "alice", b"queue"), ("shop", "alice", 7),
     ("shop", "alice", "nul\0"), ("shop", "alice", "z" * 300), (b"\xff" * 16,)],
)  # fmt: skip
def test_no_other_tuple_is_the_id_of_a_pointer(elements: tuple[Any, ...]) -> None:
    layout = ShardLayout(shard_id=b"s" * 16, part_count=4, settings=ZoneSettings())
    packed = pack(elements)
    assert layout.location_of(packed) is None
    assert layout.location_of(packed[:-1]) is None


def test_adding_a_shard_moves_only_the_tenants_that_it_wins() -> None:
    before = {tenant: home(tenant, SHARDS) for tenant in TENANTS}
    after = {tenant: home(tenant, [*SHARDS, "new"]) for tenant in TENANTS}
    moved = [tenant for tenant in TENANTS if before[tenant] != after[tenant]]
    assert {after[tenant] for tenant in moved} == {"new"}
    assert 400 < len(moved) < 600


def test_the_order_in_which_shards_are_configured_does_not_matter() -> None:
    assert all(home(tenant, SHARDS) == home(tenant, SHARDS[::-1]) for tenant in TENANTS)


def test_tenants_spread_evenly_over_shards() -> None:
    homes = [home(tenant, SHARDS) for tenant in TENANTS]
    assert all(560 < homes.count(shard) < 780 for shard in SHARDS)


def test_every_process_agrees_where_a_tenant_lives_and_which_part_holds_its_pointer() -> None:
    program = (
        "from fairlead.zones.layout import ShardLayout, Tenant\n"
        "from fairlead.zones.placement import home\n"
        "from fairlead.zones.settings import ZoneSettings\n"
        "layout = ShardLayout(shard_id=b'', part_count=16, settings=ZoneSettings())\n"
        "for user in ('alice', 'bob', 'zo\\u00eb'):\n"
        "    location = layout.location(Tenant('shop', user), 'queue')\n"
        "    print(home(location.tenant, ['blue', 'green', 'red']), location.part.part, location.pointer_id)\n"
    )
    by_name = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("0", "1", "2")
    }
    # What is stored depends on these: they must never change.
    assert by_name == {
        "red 6 b'\\x02shop\\x00\\x02alice\\x00\\x02queue\\x00'\n"
        "blue 2 b'\\x02shop\\x00\\x02bob\\x00\\x02queue\\x00'\n"
        "green 5 b'\\x02shop\\x00\\x02zo\\xc3\\xab\\x00\\x02queue\\x00'\n"
    }
