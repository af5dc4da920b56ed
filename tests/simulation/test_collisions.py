"""Consumers under load: how often two of them want the same pointer, by the way in which they select."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from actors.handlers import Registry, handler_of
from actors.settings import ConsumerSettings
from simulation.actor import Actor
from simulation.cluster import Cluster
from simulation.host import SimulatedHost
from simulation.plan import draw_plan
from simulation.store import Latencies
from simulation.unwatched import NoLog, Unwatched
from simulation.world import START_US, World
from zones.attempt import Attempt
from zones.layout import Tenant
from zones.periodic import Period
from zones.settings import ZoneSettings
from zones.tenant_transaction import TenantTransaction

PER_S = 400
TENANTS = 200
ITEM_US = 50_000
CONSUMERS = 3
KNOWN_US = 2_500_000  # By then each has beaten twice, and knows all others.
COUNTED_US = 2_500_000
COUNTED = ("pointers", "missed_at_read", "missed_at_commit")


class Mail:
    """One kind, whose handler takes a while."""

    def registry(self, host: SimulatedHost) -> Registry:
        """See `Application`."""
        return Registry({"mail": handler_of("mail", lambda job: host.clock.sleep_us(ITEM_US))})

    def periods(self) -> Sequence[Period]:
        """See `Application`."""
        return ()


def enqueue(cluster: Cluster, host: SimulatedHost) -> None:
    """Enqueue one item for each of a few tenants at a time, as often as it takes."""
    (shard,), random = cluster.open_shards(host).values(), Random(1)
    while True:
        tenants = [Tenant("shop", f"{random.randrange(TENANTS)}") for _ in range(4)]

        def body(attempt: Attempt, tenants: Sequence[Tenant] = tuple(tenants)) -> None:
            for tenant in tenants:
                TenantTransaction(shard, tenant, attempt).enqueue("mail")

        shard.transact(body)
        host.clock.sleep_us(len(tenants) * 1_000_000 // PER_S)


def missed_frac(selection: str) -> float:
    """Return which part of the pointers that scanners hand over another consumer has, or is about to take."""
    world = World(1, NoLog())
    settings = ConsumerSettings(selection=selection, workers=1, slots=16)
    calm = {"faults": (), "skew_us_max": 0, "yield_frac": 0.0, "tells_changes": False, "latencies": Latencies()}
    plan = draw_plan(
        world.random("plan"),
        shards=1,
        consumers=CONSUMERS,
        part_count=4,
        consumer=settings,
        zones=ZoneSettings(),
        **calm,
    )
    cluster = Cluster(world, plan, Unwatched(world, ["s0"]), Mail())
    cluster.add_consumers()
    producer = Actor(world, cluster.add_node("p0"), "p0", lambda host: enqueue(cluster, host))
    producer.start()
    world.run_until(START_US + KNOWN_US)
    before = counts_of(cluster)
    world.run_until(world.now_us() + COUNTED_US)
    counts = counts_of(cluster) - before
    cluster.close()
    assert counts["pointers"] > PER_S
    return (counts["missed_at_read"] + counts["missed_at_commit"]) / counts["pointers"]


def counts_of(cluster: Cluster) -> Counter[str]:
    """Return what the scanners have counted, in all."""
    counts: Counter[str] = Counter()
    answered = 0

    def ask() -> None:
        nonlocal answered
        for number in range(CONSUMERS):
            told, error = cluster.operator.ask(cluster.actors[f"c{number}.scanner"], "counts")
            assert error is None
            counts.update({name: told.get(name, 0) for name in COUNTED})
            answered += 1

    cluster.operator.do("ask", ask)
    while answered < CONSUMERS:
        cluster.world.run_until(cluster.world.now_us() + 1_000)
    return counts


def test_consumers_with_parts_of_their_own_hardly_ever_want_the_same_pointer() -> None:
    assert missed_frac("own_parts") < 0.01


def test_at_random_but_for_the_one_in_order_they_often_do() -> None:
    """As in the paper, with so little to choose from. Else the test above would show nothing."""
    assert missed_frac("in_order") > 0.05
