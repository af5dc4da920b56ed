"""Names in, keys out: the same in every process."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from zones.errors import BadArgument
from zones.layout import Layout, Tenant, check_name, local_tenant, named_tenant
from zones.placement import home
from zones.settings import ZoneSettings

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


def test_every_part_gets_its_share_of_the_pointers() -> None:
    layout = Layout(shard_id=b"s" * 16, part_count=4, settings=ZoneSettings())
    parts = [layout.place(tenant, "queue").part.part for tenant in TENANTS]
    assert all(400 < parts.count(part) < 600 for part in range(4))


def test_two_zones_of_one_tenant_have_two_pointers() -> None:
    layout = Layout(shard_id=b"s" * 16, part_count=4, settings=ZoneSettings())
    places = [layout.place(Tenant("shop", "alice"), zone) for zone in ("queue", "other")]
    assert places[0].pointer_id != places[1].pointer_id


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
        "from zones.layout import Layout, Tenant\n"
        "from zones.placement import home\n"
        "from zones.settings import ZoneSettings\n"
        "layout = Layout(shard_id=b'', part_count=16, settings=ZoneSettings())\n"
        "for user in ('alice', 'bob', 'zo\\u00eb'):\n"
        "    place = layout.place(Tenant('shop', user), 'queue')\n"
        "    print(home(place.tenant, ['blue', 'green', 'red']), place.part.part, place.pointer_id.hex())\n"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("0", "1", "2")
    }
    # What is stored depends on these: they must never change.
    assert said == {
        "red 13 f813f25a80de65ed4feaffbcc154542d\n"
        "blue 2 d3ffa3d327c45cb266282fd83dc09496\n"
        "green 5 1284fd33c97b1c75dd6296b1240333f4\n"
    }
