"""A simulated fleet and a tenant with very many queue zones: another tenant has as many starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from fairlead.actors.execution.job import Job
from fairlead.actors.handlers import Registry, handler_of
from fairlead.actors.scanning.tenant_turns import TenantTurns
from fairlead.actors.settings import ConsumerSettings
from fairlead.simulation.actor import Actor
from fairlead.simulation.cluster import Cluster
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.plan import draw_plan
from fairlead.simulation.without_oracles import NoLog, NoOracles
from fairlead.simulation.world import World
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.items import new_item
from fairlead.zones.queue.periodic import Period
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt
from tests.simulation.test_fleets import CALM

SECOND = 1_000_000
ITEMS = 1_000  # Of each tenant.
COUNTED = 600  # Starts. Both tenants have more items all the time.
ROW_US = 5_000


class Shop:
    """Rows of two tenants. `started`: the tenant of each started row, in order."""

    def __init__(self) -> None:
        self.started: list[str] = []

    def registry(self, host: SimulatedHost) -> Registry:
        """See `Application`."""

        def row(job: Job) -> None:
            self.started.append(job.tenant.user)
            host.clock.sleep_us(ROW_US)

        return Registry({"row": handler_of("row", row)})

    def periods(self) -> Sequence[Period]:
        """See `Application`."""
        return ()


def first_starts(zones: int, *, has_commit_sequence: bool = True, slots: int = 16) -> Counter[str]:
    """Return the starts of each of two tenants among the first. Mallory's items are spread over `zones` zones."""
    world, shop = World(1, NoLog()), Shop()
    settings = ConsumerSettings(workers=1, slots=slots)
    chosen = {**CALM, "has_commit_sequence": has_commit_sequence}
    plan = draw_plan(world.random("plan"), shards=1, consumers=1, part_count=4, consumer=settings, **chosen)
    cluster = Cluster(world, plan, NoOracles(world, ["s0"]), shop)

    def enqueue(shard: Shard, user: str, name: str) -> None:
        zone = shard.zone(Tenant("shop", user), name)

        def body(attempt: Attempt) -> None:
            zone.enqueue(attempt.tr, new_item("row", None), item_id=attempt.new_id(), now_us=attempt.now_us)

        shard.transact(body)

    def produce(host: SimulatedHost) -> None:
        shard = cluster.open_shards(host)["s0"]
        for number in range(ITEMS):
            enqueue(shard, "mallory", f"z{number % zones}")
            enqueue(shard, "bob", "z0")

    try:
        Actor(world, cluster.add_node("p"), "p0", produce).start()
        world.run_until(world.now_us() + 60 * SECOND)
        cluster.add_consumers()
        world.run_until(world.now_us() + 30 * SECOND)
    finally:
        cluster.close()
    assert len(shop.started) == 2 * ITEMS
    return Counter(shop.started[:COUNTED])


@pytest.mark.parametrize("has_commit_sequence", [True, False])
@pytest.mark.parametrize("zones", [1, 20, ITEMS])
def test_each_of_two_tenants_has_half_of_the_starts_with_any_number_of_zones(
    zones: int, has_commit_sequence: bool
) -> None:
    """Before, bob had a tenth of the starts beside twenty zones, and nearly none beside thousands."""
    started = first_starts(zones, has_commit_sequence=has_commit_sequence)
    assert 0.4 * COUNTED < started["bob"] < 0.6 * COUNTED


@pytest.mark.long
def test_each_of_two_tenants_has_half_of_the_starts_of_a_single_slot() -> None:
    started = first_starts(20, slots=1)
    assert 0.4 * COUNTED < started["bob"] < 0.6 * COUNTED


def test_without_one_call_at_a_time_a_tenant_with_many_zones_has_more_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TenantTurns, "under_way", lambda self: frozenset())
    assert first_starts(ITEMS)["bob"] < 0.4 * COUNTED
