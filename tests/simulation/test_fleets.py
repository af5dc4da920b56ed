"""Consumers of one shard under load: they seldom conflict over a pointer, and none is idle while another is full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from statistics import fmean
from typing import Any

import pytest

from fairlead.actors.handlers import Registry, handler_of
from fairlead.actors.scanning.manager_calls import Saturation
from fairlead.actors.settings import ConsumerSettings, Selection
from fairlead.simulation.actor import Actor
from fairlead.simulation.cluster import Cluster
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.plan import draw_plan
from fairlead.simulation.store import Latencies
from fairlead.simulation.without_oracles import NoLog, NoOracles
from fairlead.simulation.world import World
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.periodic import Period
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.transaction_runner import Attempt

CONSUMERS = 3
SLOTS = 16
OF_ONE_CONSUMER = SLOTS * 2_000 // 200  # Items of 200 ms in two seconds.
KNOWN_US = 2_500_000  # By then each has written two heartbeats, and knows all others.
CALM: dict[str, Any] = {
    "faults": (), "skew_us_max": 0, "yield_frac": 0.0, "has_commit_sequence": False, "call_us": 1_000,
    "latencies": Latencies(), "zones": ZoneSettings(),
}  # fmt: skip


class Mail:
    """One kind, whose handler takes `takes_us`."""

    def __init__(self, takes_us: int) -> None:
        self._takes_us = takes_us

    def registry(self, host: SimulatedHost) -> Registry:
        """See `Application`."""
        return Registry({"mail": handler_of("mail", lambda job: host.clock.sleep_us(self._takes_us))})

    def periods(self) -> Sequence[Period]:
        """See `Application`."""
        return ()


class Fleet:
    """Consumers with one way of selection, and a producer that runs `enqueue(shard, host)`."""

    def __init__(
        self, selection: Selection, mail: Mail, enqueue: Callable[[Shard, SimulatedHost], None], *, seed: int = 1
    ) -> None:
        self.world = World(seed, NoLog())
        settings = ConsumerSettings(selection=selection, workers=1, slots=SLOTS)
        plan = draw_plan(
            self.world.random("plan"), shards=1, consumers=CONSUMERS, part_count=4, consumer=settings, **CALM
        )
        self.cluster = cluster = Cluster(self.world, plan, NoOracles(self.world, ["s0"]), mail)
        cluster.add_consumers()
        self.pass_us(KNOWN_US)
        producer = Actor(
            self.world, cluster.add_node("p"), "p", lambda host: enqueue(cluster.open_shards(host)["s0"], host)
        )
        producer.start()

    def pass_us(self, duration_us: int) -> None:
        """Let the world go on."""
        self.world.run_until(self.world.now_us() + duration_us)

    def counts(self, role: str) -> Counter[str]:
        """Return the sum of the counts of the actors of a role."""
        actors = [actor for name, actor in self.cluster.actors.items() if f".{role}" in name]
        counts: list[dict[str, int]] = []
        self.cluster.operator.do(
            "ask", lambda: counts.extend(self.cluster.operator.ask(each, "counts")[0] for each in actors)
        )
        while len(counts) < len(actors):
            self.pass_us(1_000)
        return sum(map(Counter, counts), Counter())


def enqueue(shard: Shard, tenants: Sequence[Tenant]) -> None:
    """Enqueue an item for each of these tenants, in one transaction."""

    def body(attempt: Attempt) -> None:
        for tenant in tenants:
            TenantTransaction(shard, tenant, attempt).enqueue("mail")

    shard.transact(body)


# --- Many tenants ---


def missed_frac(selection: Selection) -> float:
    """Return the part of the handed over pointers that another consumer has leased, or is about to lease."""
    random = Random(1)

    def enqueue_for_some(shard: Shard, host: SimulatedHost) -> None:
        while True:
            enqueue(shard, [Tenant("shop", str(random.randrange(200))) for _ in range(4)])
            host.clock.sleep_us(10_000)

    fleet = Fleet(selection, Mail(50_000), enqueue_for_some)
    fleet.pass_us(2_500_000)
    counts = fleet.counts("scanner")
    fleet.cluster.close()
    assert counts["pointers"] > 500
    return (counts["missed_at_read"] + counts["missed_at_commit"]) / counts["pointers"]


def test_partitioned_consumers_hardly_ever_conflict_over_a_pointer() -> None:
    assert missed_frac("partitioned") < 0.01


def test_consumers_with_random_selection_often_conflict_over_a_pointer() -> None:
    """As in the paper, when there are few pointers. Without this, the test above would prove nothing."""
    assert missed_frac("in_order") > 0.05


# --- One tenant ---


def completed_of_one_tenant(seed: int = 1) -> int:
    """Return how many items of 200 ms are done in two seconds, for a single tenant with very many items."""

    def enqueue_many(shard: Shard, host: SimulatedHost) -> None:
        for _ in range(20):
            enqueue(shard, [Tenant("shop", "alice")] * 50)

    fleet = Fleet("partitioned", Mail(200_000), enqueue_many, seed=seed)
    fleet.pass_us(2_000_000)
    before = fleet.counts("worker")
    fleet.pass_us(2_000_000)
    done = fleet.counts("worker") - before
    fleet.cluster.close()
    return done["completed"]


def test_a_single_tenant_uses_the_slots_of_all_consumers() -> None:
    """The pointer belongs to one consumer, which leases one more item at each chance.

    The share of the others depends on the seed: all do 1.7 to 2.2 times the work of one consumer. So this is a mean.
    """
    assert fmean(completed_of_one_tenant(seed) for seed in range(1, 5)) > 1.85 * OF_ONE_CONSUMER


def test_without_reports_of_saturation_the_other_consumers_are_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Saturation, "since_last", lambda self, now_us: False)
    assert completed_of_one_tenant() < 1.1 * OF_ONE_CONSUMER
