"""The standard workload: a shop whose producers enqueue, name, batch and cancel work, and whose handlers misbehave.

One tenant has many items, the others few. Each enqueue counts an order in the tenant's data in the same transaction.
Each exactly-once handler writes an effect in the transaction of its completion. Some worlds also have payments:
requests that write without a read, and handlers that write in transactions that do not complete their item. All are
checked commit by commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fairlead.actors.execution.job import Job
from fairlead.actors.execution.retry import Retry
from fairlead.actors.handlers import PermanentError, Registry, handler_of
from fairlead.simulation.actor import Actor
from fairlead.simulation.cluster import Cluster
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.oracles.answers import AnswersAreTrue
from fairlead.simulation.oracles.fairness import NoTenantWaitsTooLong
from fairlead.simulation.oracles.limits import KindsKeepToTheirLimits
from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.oracles.shop import (
    EffectsHappenOnce,
    OrdersAreKept,
    Payment,
    PaymentsHappenOnce,
    ShopLog,
    TicksComeOnce,
)
from fairlead.simulation.payer import Payer
from fairlead.simulation.plan import Plan
from fairlead.simulation.producer import KINDS, Producer, has_full_length
from fairlead.simulation.world import START_US, World
from fairlead.zones.queue.periodic import Period, period
from fairlead.zones.tenant_transaction import TenantTransaction

KNOWN_TO_ALL = frozenset(KINDS) - {"new"} | {"tick"}  # The version of only the first consumer handles the kind "new".
LIMITS = {"limited": 2}  # How many of a kind may run at once in a consumer.
TICK_MS = 2_000  # When the one tick comes that falls into a run.
_SOON = Retry(attempts=None, backoff=0.05, backoff_max=1)


class Shop:
    """The application. It is `finished` when every producer is done."""

    kinds = KNOWN_TO_ALL
    unlimited_kinds = KNOWN_TO_ALL - set(LIMITS)
    punctual = True

    def __init__(self, cluster_world: World) -> None:
        self._world = cluster_world
        self._producers: list[Producer | Payer] = []
        self._log = ShopLog()

    @property
    def finished(self) -> bool:
        """Whether all work has been enqueued."""
        return all(producer.done for producer in self._producers)

    def oracles(self, plan: Plan) -> list[Oracle]:
        """Return the oracles of this application only."""
        world = self._world
        oracles: list[Oracle] = [
            EffectsHappenOnce(world),
            OrdersAreKept(world, self._log.enqueued),
            PaymentsHappenOnce(world, self._log.payments),
            TicksComeOnce(world),
            AnswersAreTrue(world, self._log.answers),
        ]
        if plan.is_calm:
            oracles.append(KindsKeepToTheirLimits(world, LIMITS))
        if plan.clocks_agree:  # Else some consumers take no leases, and the number of the others is not known.
            oracles.append(NoTenantWaitsTooLong(world, plan, kinds=self.unlimited_kinds))
        return oracles

    def periods(self) -> Sequence[Period]:
        """See `Application`."""
        interval_s = 3600
        return [period("tick", interval_s, phase=(START_US // 1000 + TICK_MS) / 1000 % interval_s)]

    def start(self, cluster: Cluster) -> None:
        """Add the producers and start them, each on a machine of its own."""
        plan = cluster.plan
        for number in range(plan.producers):
            share = plan.items // plan.producers + (number < plan.items % plan.producers)
            producer = Producer(self._log, cluster, number, share)
            self._producers.append(producer)
            Actor(self._world, cluster.add_node(f"p{number}"), f"p{number}", producer.run).start()
        if plan.pays:
            payer = Payer(self._log, cluster)
            self._producers.append(payer)
            Actor(self._world, cluster.add_node("payer"), "payer", payer.run).start()

    # --- Handlers ---

    def registry(self, host: SimulatedHost) -> Registry:
        """See `Application`."""
        handlers = _Handlers(host, self._log.payments)
        registry = Registry()

        def add(kind: str, function: Callable[..., Any], **how: Any) -> None:
            registry.add(handler_of(kind, function, **how))

        add("plain", handlers.plain)
        add("long", handlers.long)
        add("flaky", handlers.flaky, retry=_SOON)
        add("effect", handlers.effect, transactional=True, retry=_SOON)
        add("chain", handlers.chain, transactional=True, retry=_SOON, timeout=0.4)
        add("fenced", handlers.fenced, retry=_SOON)
        add("limited", handlers.limited, max_running=LIMITS["limited"])
        add("slow", handlers.slow, timeout=0.4, retry=_SOON)
        add("broken", handlers.broken)
        add("dropped", handlers.broken, drop=True)
        add("noted", handlers.noted, retry=_SOON)
        add("tick", handlers.plain)
        if host.name.startswith("c0."):
            add("new", handlers.plain)
        return registry


class _Handlers:
    """The handlers of one process. It draws how long they take and when they fail."""

    def __init__(self, host: SimulatedHost, payments: list[Payment]) -> None:
        self._host = host
        self._payments = payments

    def plain(self, job: Job) -> None:
        if not has_full_length(job.payload):
            self._host.world.fail("a payload arrives as it was enqueued", f"{job} has {len(job.payload)} characters")
        self._work()

    def limited(self, job: Job) -> None:
        self._host.clock.sleep_us(int(self._host.random.expovariate(1 / 100_000)))

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
        tr.get(("effect", job.id))  # A transaction that reads can conflict with what happens while it hangs.
        tr.add(("effect", job.id), 1)
        tr.enqueue("effect", delay=self._host.random.choice([0, 0.2]))

    def fenced(self, job: Job) -> None:
        self._work()

        def apply(tr: TenantTransaction) -> None:
            tr.add(("effect", job.id), 1)
            job.complete_in(tr)

        job.transact(apply)

    def noted(self, job: Job) -> None:
        """Write in a transaction that does not complete the item. Each attempt writes its own key."""
        name = self._host.random.randbytes(8).hex()
        job.transact(lambda tr: tr.add(("payment", name), 1))
        self._payments.append(Payment(job.tenant, name))
        self._work()

    def slow(self, job: Job) -> None:
        self._host.clock.sleep_us(self._host.random.choice([10_000, 10_000, 600_000, 600_000, 600_000, 6_000_000]))

    def broken(self, job: Job) -> None:
        self._host.clock.sleep_us(int(self._host.random.expovariate(1 / 150_000)))
        raise PermanentError("as planned")

    def _work(self) -> None:
        self._host.clock.sleep_us(int(self._host.random.expovariate(1 / 20_000)))
