"""A simulated fleet with items that must run isolated: they do not delay others, and others do not delay them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from fairlead.actors.execution.job import Job
from fairlead.actors.handlers import Registry, handler_of
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
from fairlead.zones.records import ItemRecord, decode, encode
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt
from tests.simulation.test_fleets import CALM

CONSUMERS = 2
SECOND = 1_000_000
LONG_US = 30 * SECOND
POISON_US = 3 * SECOND


class Shop:
    """Long reports, quick items, and items that end the process of any worker that is not isolated."""

    def __init__(self) -> None:
        self.cluster: Cluster | None = None
        self.running: list[tuple[str, str]] = []  # kind and host
        self.quick = 0

    def registry(self, host: SimulatedHost) -> Registry:
        """See `Application`."""

        def report(job: Job) -> None:
            self.running.append(("report", host.name))
            host.clock.sleep_us(LONG_US)

        def poison(job: Job) -> None:
            assert self.cluster is not None
            self.running.append(("poison", host.name))
            if not self.cluster.is_isolated(host.name):
                actor = self.cluster.actors[host.name.partition("#")[0]]
                self.cluster.world.after(0, lambda: actor.restart("an item exits", 100_000))
            host.clock.sleep_us(POISON_US)

        def quick(job: Job) -> None:
            self.quick += 1

        return Registry({each.__name__: handler_of(each.__name__, each) for each in (report, poison, quick)})

    def periods(self) -> Sequence[Period]:
        """See `Application`."""
        return ()


class Story:
    """A fleet, and the items that a test enqueues."""

    def __init__(self, *, workers: int = 2) -> None:
        self.world = World(1, NoLog())
        settings = ConsumerSettings(workers=workers)
        chosen = {**CALM, "has_commit_sequence": True}  # A lost watch would delay all for seconds.
        plan = draw_plan(
            self.world.random("plan"), shards=1, consumers=CONSUMERS, part_count=4, consumer=settings, **chosen
        )
        self.shop = Shop()
        self.cluster = self.shop.cluster = Cluster(self.world, plan, NoOracles(self.world, ["s0"]), self.shop)
        self.cluster.add_consumers()
        self.pass_us(3 * SECOND)
        self._node = self.cluster.add_node("p")
        self._producers = 0

    def pass_us(self, duration_us: int) -> None:
        """Let the world go on."""
        self.world.run_until(self.world.now_us() + duration_us)

    def enqueue(self, kind: str, count: int, *, expiries: int = 0) -> None:
        """Enqueue one item for each of `count` tenants, as if its lease had expired `expiries` times while it ran."""

        def produce(host: SimulatedHost) -> None:
            shard = self.cluster.open_shards(host)["s0"]
            for number in range(count):
                enqueue(shard, kind, Tenant("shop", f"{kind} {number}"), expiries)

        self._producers += 1
        Actor(self.world, self._node, f"p{self._producers}", produce).start()

    def started(self, kind: str) -> list[str]:
        """Return the hosts on which items of a kind have started."""
        return [host for each, host in self.shop.running if each == kind]


def enqueue(shard: Shard, kind: str, tenant: Tenant, expiries: int) -> None:
    zone = shard.zone(tenant)

    def body(attempt: Attempt) -> None:
        item_id = attempt.new_id()
        zone.enqueue(attempt.tr, new_item(kind, None), item_id=item_id, now_us=attempt.now_us)
        key = zone.location.keys.item(item_id)
        record = decode(ItemRecord, attempt.tr.get(key).value or b"")
        assert record is not None
        record.expiry_count = record.expired_count = expiries
        attempt.tr.set(key, encode(record))

    shard.transact(body)


@pytest.fixture
def story() -> Iterator[Story]:
    made = Story()
    yield made
    made.cluster.close()


def test_quick_items_start_within_a_second_while_poison_candidates_wait_and_long_items_run_everywhere(
    story: Story,
) -> None:
    """Before, quick items waited as long as the reports took, though nearly all slots were free."""
    story.enqueue("report", 2 * CONSUMERS)
    story.pass_us(2 * SECOND)
    assert len(story.started("report")) == 2 * CONSUMERS
    story.enqueue("poison", 3 * CONSUMERS, expiries=3)
    story.pass_us(2 * SECOND)
    story.enqueue("quick", 20)
    story.pass_us(SECOND)
    assert story.shop.quick == 20


def test_each_consumer_runs_one_poison_candidate_at_a_time_on_its_isolated_worker(story: Story) -> None:
    story.enqueue("poison", 3 * CONSUMERS, expiries=3)
    story.pass_us(2 * SECOND)
    assert sorted(story.started("poison")) == [f"c{number}.isolated#1" for number in range(CONSUMERS)]
    story.pass_us(2 * POISON_US + SECOND)
    assert len(story.started("poison")) == 3 * CONSUMERS, "all poison candidates run"


def test_an_item_that_kills_its_workers_is_isolated_after_its_fourth_death(
    story: Story,
) -> None:
    """One of the deaths may be another item's fault; three more are its own."""
    story.enqueue("poison", 1)
    story.pass_us(4 * SECOND)
    *deaths, isolated = story.started("poison")
    assert len(deaths) == 4
    assert story.cluster.is_isolated(isolated)
