"""The standard workload: a shop whose producers enqueue, name, batch and cancel work, and whose handlers misbehave.

Most tenants are light, one is heavy. Each enqueue writes an order into the tenant's data in the same transaction; each
exactly-once handler writes an effect in the transaction of its completion. Both are checked commit by commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from actors.handlers import PermanentError, Registry, handler_of
from actors.job import Job
from actors.retry import Retry
from simulation.actor import Actor
from simulation.cluster import Cluster
from simulation.host import SimulatedHost
from simulation.oracles.oracle import Oracle
from simulation.shadow import Meaning, ShardShadow, unpacked
from simulation.world import World
from zones.attempt import Attempt
from zones.engines.errors import StoreError
from zones.errors import ItemGone
from zones.items import EnqueueStatus
from zones.layout import Tenant, local_tenant
from zones.periodic import Period
from zones.placement import home
from zones.shard import Shard
from zones.tenant_transaction import TenantTransaction

KINDS = {
    "plain": 27, "long": 3, "flaky": 15, "effect": 20, "fenced": 10, "chain": 5, "limited": 10, "slow": 3, "broken": 3,
    "dropped": 4,
}  # fmt: skip
EXACTLY_ONCE = frozenset({"effect", "fenced", "chain"})
_SOON = Retry(attempts=None, backoff_ms=50, backoff_max_ms=1_000)


class Shop:
    """The application. `finished` once every producer has had its say."""

    def __init__(self, cluster_world: World) -> None:
        self._world = cluster_world
        self._producers: list[Producer] = []
        self.acknowledged: list[tuple[str, bytes]] = []  # items whose enqueue was answered: shard and id

    @property
    def finished(self) -> bool:
        """Whether all work has been enqueued."""
        return all(producer.done for producer in self._producers)

    def oracles(self) -> list[Oracle]:
        """Return the checks that only this application can make."""
        return [EffectsHappenOnce(self._world), OrdersAreKept(self._world, self.acknowledged)]

    def periods(self) -> Sequence[Period]:
        """See `Application`."""
        return ()

    def start(self, cluster: Cluster) -> None:
        """Add the producers and start them, each on a machine of its own."""
        plan = cluster.plan
        for number in range(plan.producers):
            share = plan.items // plan.producers + (number < plan.items % plan.producers)
            producer = Producer(self, cluster, number, share)
            self._producers.append(producer)
            Actor(self._world, cluster.add_node(f"p{number}"), f"p{number}", producer.run).start()

    # --- Handlers ---

    def registry(self, host: SimulatedHost) -> Registry:
        """See `Application`."""
        draws = _Draws(host)
        registry = Registry()

        def add(kind: str, function: Callable[..., Any], **how: Any) -> None:
            registry.add(handler_of(kind, function, **how))

        add("plain", draws.plain)
        add("long", draws.long)
        add("flaky", draws.flaky, retry=_SOON)
        add("effect", draws.effect, transactional=True, retry=_SOON)
        add("chain", draws.chain, transactional=True, retry=_SOON)
        add("fenced", draws.fenced, retry=_SOON)
        add("limited", draws.plain, max_running=2)
        add("slow", draws.slow, timeout=0.4, retry=_SOON)
        add("broken", draws.broken)
        add("dropped", draws.broken, drop=True)
        return registry


class _Draws:
    """The handlers, as one process runs them: how long they take and when they fail is drawn there."""

    def __init__(self, host: SimulatedHost) -> None:
        self._host = host

    def plain(self, job: Job) -> None:
        self._work()

    def long(self, job: Job) -> None:
        self._host.clock.sleep_us(self._host.random.choice([1_000_000, 3_000_000]))

    def flaky(self, job: Job) -> None:
        self._work()
        if self._host.random.random() < 0.4:
            raise RuntimeError("drawn")

    def effect(self, job: Job, tr: TenantTransaction) -> None:
        tr.add(("effect", job.id), 1)
        if self._host.random.random() < 0.3:
            self._work()
        if self._host.random.random() < 0.1:
            raise RuntimeError("drawn")

    def chain(self, job: Job, tr: TenantTransaction) -> None:
        tr.add(("effect", job.id), 1)
        tr.enqueue("effect", delay_ms=self._host.random.choice([0, 200]))

    def fenced(self, job: Job) -> None:
        self._work()

        def apply(tr: TenantTransaction) -> None:
            tr.add(("effect", job.id), 1)
            job.complete_in(tr)

        job.transact(apply)

    def slow(self, job: Job) -> None:
        self._host.clock.sleep_us(self._host.random.choice([10_000, 10_000, 600_000, 600_000, 600_000, 6_000_000]))

    def broken(self, job: Job) -> None:
        raise PermanentError("as planned")

    def _work(self) -> None:
        self._host.clock.sleep_us(int(self._host.random.expovariate(1 / 20_000)))


class Producer:
    """One producer process: enqueues its share of items within the time of trouble, and cancels a few.

    If its machine fails, it goes on with the rest when it is back; what was on its way may or may not have happened.
    """

    def __init__(self, shop: Shop, cluster: Cluster, number: int, share: int) -> None:
        self._shop = shop
        self._cluster = cluster
        self._pause_us = cluster.plan.trouble_us / max(1, share)
        self._left = share
        self.done = False
        self._random: Random = cluster.world.random(f"producer {number}")
        self._orders = 0
        self._number = number
        self._known: list[tuple[Tenant, Shard, bytes]] = []

    def run(self, host: SimulatedHost) -> None:
        """Enqueue the share, spread over the time of trouble."""
        shards = self._cluster.open_shards(host)
        while self._left > 0:
            size = min(self._left, self._random.choice([1, 1, 1, 4]))
            host.clock.sleep_us(int(self._random.expovariate(1 / (self._pause_us * size))))
            self._left -= size
            try:
                self._enqueue(shards, size)
                if self._known and self._random.random() < 0.05:
                    self._cancel()
            except StoreError as error:
                host.world.note(f"is told {error.code}, and does not know what became of it")
        self.done = True

    def _enqueue(self, shards: dict[str, Shard], size: int) -> None:
        """Enqueue some items of one tenant in one transaction, with an order that names it."""
        tenant = self._tenant()
        shard = shards[home(tenant, list(shards))]
        self._orders += 1
        order = f"{self._number}/{self._orders}"
        items = [self._item() for _ in range(size)]

        def body(attempt: Attempt) -> list[Any]:
            tr = TenantTransaction(shard, tenant, attempt)
            tr.set(("order", order), b"")
            return [tr.enqueue(kind, order, **how) for kind, how in items]

        for enqueued in shard.transact(body):
            if enqueued.status is EnqueueStatus.ENQUEUED:
                self._shop.acknowledged.append((shard.name, enqueued.item_id))
                self._known.append((tenant, shard, enqueued.item_id))

    def _cancel(self) -> None:
        tenant, shard, item_id = self._random.choice(self._known)

        def body(attempt: Attempt) -> None:
            shard.zone(tenant).complete(attempt.tr, item_id, now_us=attempt.now_us)

        try:
            shard.transact(body)
        except ItemGone:
            self._cluster.world.note(f"finds {item_id.hex()} gone")

    def _tenant(self) -> Tenant:
        if self._random.random() < 0.05:
            return local_tenant("plain")
        number = 0 if self._random.random() < 0.4 else self._random.randrange(self._cluster.plan.tenants)
        return Tenant("shop", f"t{number}")

    def _item(self) -> tuple[str, dict[str, Any]]:
        draw = self._random
        kind = draw.choices(list(KINDS), list(KINDS.values()))[0]
        how: dict[str, Any] = {
            "priority": draw.choice([0, 100, 100, 100, 255]),
            "delay_ms": draw.choice([0, 0, 0, 1, 300, 2_000]),
        }
        if draw.random() < 0.1:
            how["item_id"] = f"named {draw.randrange(3)}"
            how["unique_ms"] = draw.choice([0, 1_000])
        return kind, how


class EffectsHappenOnce(Oracle):
    """The effect of an exactly-once handler is there if and only if its item left its queue in the same commit."""

    promise = "transactional effects happen exactly once"

    def on_commit(self, meaning: Meaning) -> None:
        """See `Oracle`."""
        if meaning.by.startswith("p"):
            return  # a producer may cancel
        effects = {path[5] for path in map(unpacked, meaning.data) if path[4] == "effect"}
        gone = {
            change.item.item_id
            for change in meaning.items
            if change.before is not None
            and change.after is None
            and change.buried is None
            and change.before.kind in EXACTLY_ONCE
        }
        if effects != gone:
            only = sorted(item_id.hex() for item_id in effects ^ gone)
            self.broken(f"{meaning.by} commits an effect or a completion without the other: {only}")


class OrdersAreKept(Oracle):
    """An order is written once, and what a producer was told is enqueued was enqueued."""

    promise = "a transaction that enqueues happens once, and what was acknowledged is there"

    def __init__(self, world: World, acknowledged: list[tuple[str, bytes]]) -> None:
        super().__init__(world)
        self._acknowledged = acknowledged
        self._orders: set[bytes] = set()
        self._enqueued: set[tuple[str, bytes]] = set()

    def on_commit(self, meaning: Meaning) -> None:
        """See `Oracle`."""
        for change in meaning.items:
            if change.before is None and change.after is not None:
                self._enqueued.add((meaning.shard.name, change.item.item_id))
        for key in meaning.data:
            if unpacked(key)[4] == "order":
                if key in self._orders:
                    self.broken(f"{meaning.by} writes {unpacked(key)} twice")
                self._orders.add(key)

    def at_end(self, shards: Sequence[ShardShadow]) -> None:
        """See `Oracle`."""
        for shard, item_id in self._acknowledged:
            if (shard, item_id) not in self._enqueued:
                self.broken(f"{item_id.hex()} was acknowledged on {shard} and never was there")
