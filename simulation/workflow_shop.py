"""The workload of workflows: clients enqueue, signal and cancel workflows of random shape; a version is deployed.

Workflows run on two shards. Meanwhile FLOOR is raised often, and tenants move, or get new epochs, as moves would give
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from fairlead.actors.execution.job import Job
from fairlead.actors.execution.retry import Retry
from fairlead.actors.handlers import Registry, handler_of
from fairlead.simulation.actor import Actor
from fairlead.simulation.cluster import Cluster
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.lock_clients import LockClient, LockTroubles
from fairlead.simulation.open_shards import OpenShards
from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.oracles.process_locks import HoldersGoOn, NobodyComesBetween
from fairlead.simulation.oracles.spanning import ExchangesAreWhole
from fairlead.simulation.oracles.workflow_arrivals import NobodyWaitsBesideArrivals, SignalsAreTakenOnce
from fairlead.simulation.oracles.workflow_locks import LocksExclude, StepsAreDoneUnderTheirLocks
from fairlead.simulation.oracles.workflow_steps import CodeFits, EffectsKeepTheirKeys, StepsHappenOnce
from fairlead.simulation.plan import Plan
from fairlead.simulation.reduction import NO_REDUCTION, Reduction
from fairlead.simulation.run import Simulation
from fairlead.simulation.trial import Report
from fairlead.simulation.workflow_clients import Buyer, WakingClient
from fairlead.simulation.workflow_code import CHORE, KIND, WorkflowCode
from fairlead.simulation.workflow_ledger import WorkflowLedger
from fairlead.simulation.workflow_shapes import Shape, draw_shape
from fairlead.simulation.workflow_tenants import Neighbours, item_name_of, neighbours_of, tenant_of
from fairlead.simulation.workflow_upkeep import Upkeep
from fairlead.simulation.world import START_US, World
from fairlead.workflows.system_kinds import system_handlers, with_hold_handler
from fairlead.workflows.workflow_kind import WorkflowKind, workflow_handler
from fairlead.zones.errors import TenantMoved
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.periodic import Period
from fairlead.zones.shard import Shard
from fairlead.zones.workflow.children import DELIVERY_KIND
from fairlead.zones.workflow.locks import HOLD_KIND
from fairlead.zones.workflow.run_end import CLEANUP_KIND
from fairlead.zones.workflow.signals import SIGNAL_KIND

ITEMS = 24  # Workflows that clients enqueue. Each of them makes up to seven calls, and may have children.
TENANTS = 6
DRAIN_US_MAX = 300_000_000  # Cleanups and deliveries that failed are retried after up to a minute.
LOCKED_FRAC = 1 / 2  # How often processes hold locks outside of workflows.
LOCK_CLIENTS = 2
_SOON = Retry(attempts=None, backoff=0.05, backoff_max=1)


def run_workflows(seed: int, reduction: Reduction = NO_REDUCTION, **chosen: Any) -> Report:
    """Run workflows of random shape in the world of `seed`; see `fairlead.simulation.run.run`."""
    return Simulation(seed, reduction, WorkflowShop, **sizes_of_workflows(**chosen)).run()


def sizes_of_workflows(**chosen: Any) -> dict[str, Any]:
    """Return the fields of a plan that are not drawn, with `chosen` ones as given."""
    return {"items": ITEMS, "tenants": TENANTS, "drain_us_max": DRAIN_US_MAX, **chosen}


class WorkflowShop:
    """The application. It is `finished` when every client is done. See `fairlead.simulation.run.Workload`.

    Args:
      shape_of: returns the shape of an order; None: it is drawn.
    """

    kinds = frozenset({KIND, CHORE, CLEANUP_KIND, DELIVERY_KIND, SIGNAL_KIND, HOLD_KIND})
    unlimited_kinds: frozenset[str] = frozenset()  # No bound is known for the waits of its queues.
    punctual = True

    def __init__(self, world: World, shape_of: Callable[[str], Shape] | None = None) -> None:
        self._world = world
        self._clients: list[Buyer | LockClient] = []
        self._ledger = WorkflowLedger()
        self._random = world.random("workflows")
        self._shape_of = shape_of or lru_cache(maxsize=None)(self._draw_shape)
        self._deployed_us = START_US
        self._cluster: Cluster | None = None
        self._upkeep: Upkeep | None = None

    @property
    def finished(self) -> bool:
        """Whether all work has been enqueued."""
        return all(client.done for client in self._clients)

    def oracles(self, plan: Plan) -> list[Oracle]:
        """Return the oracles of this application only."""
        world, ledger = self._world, self._ledger
        return [
            StepsHappenOnce(world, ledger),
            EffectsKeepTheirKeys(world, ledger),
            CodeFits(world),
            NobodyWaitsBesideArrivals(world, plan.ahead_us_max),
            SignalsAreTakenOnce(world, ledger),
            LocksExclude(world),
            StepsAreDoneUnderTheirLocks(world),
            NobodyComesBetween(world),
            self._holders_go_on(plan),
            ExchangesAreWhole(world, ledger.exchanged),
        ]

    def _holders_go_on(self, plan: Plan) -> HoldersGoOn:
        """Return the oracle to which clients report what they have lost."""
        self._resume = HoldersGoOn(self._world, has_causes=plan.leases_may_run_out or plan.moves)
        return self._resume

    def periods(self) -> Sequence[Period]:
        """See `Application`."""
        return ()

    def start(self, cluster: Cluster) -> None:
        """Add the clients and start them, each on a machine of its own."""
        self._cluster = cluster
        plan = cluster.plan
        for number in range(plan.producers):
            share = plan.items // plan.producers + (number < plan.items % plan.producers)
            buyer = Buyer(self._ledger, cluster, number, share)
            self._clients.append(buyer)
            Actor(self._world, cluster.add_node(f"p{number}"), f"p{number}", buyer.run).start()
        waking = WakingClient(self._ledger, cluster)
        Actor(self._world, cluster.add_node("p.waking"), "p.waking", waking.run).start()
        if self._world.random("locks outside of workflows").random() < LOCKED_FRAC:
            self._add_lock_clients(cluster, self._resume)
        self._upkeep = Upkeep(self._ledger, cluster, self._random)
        self._upkeep.begin()
        if plan.leases_may_run_out and not plan.is_calm:
            self._deploy(cluster)

    def _add_lock_clients(self, cluster: Cluster, oracle: HoldersGoOn) -> None:
        actors = []
        for number in range(LOCK_CLIENTS):
            client = LockClient(cluster, oracle, number)
            self._clients.append(client)
            actors.append(Actor(self._world, cluster.add_node(f"pl{number}"), f"pl{number}", client.run))
            actors[-1].start()
        LockTroubles(cluster, actors, oracle).begin()

    def registry(self, host: SimulatedHost) -> Registry:
        """See `Application`."""
        version = 2 if self._world.now_us() >= self._deployed_us else 1
        assert self._upkeep is not None
        code = WorkflowCode(
            host,
            self._ledger,
            version=version,
            shape_of=self._shape_of,
            neighbours_of=self._neighbours_of,
            receiver_of=self._receiver_of,
            overtake=self._upkeep.overtake,
            answer=self._upkeep.answer,
        )
        home_of = _Homes(self._opened, host)
        runner = WorkflowKind(code.checkout, version=version, home_of=home_of, on_moved=home_of.note_moved)
        registry = Registry()
        registry.add(workflow_handler(KIND, runner, retry=_SOON))
        registry.add(handler_of(CHORE, _chore, retry=_SOON))
        for handler in system_handlers(home_of, home_of.note_moved):
            registry.add(handler)
        return with_hold_handler(registry)

    def _deploy(self, cluster: Cluster) -> None:
        """Deploy a new version at a drawn time, which ends one worker after the other; or do not."""
        self._deployed_us += self._random.choice([0, 1_000_000, 2_000_000, 3600_000_000])
        for actor in cluster.actors.values():
            if self._deployed_us > START_US and (".worker" in actor.name or ".isolated" in actor.name):
                late_us = self._random.randrange(1_000_000)
                self._world.at(self._deployed_us + late_us, partial(actor.restart, "a new version", 100_000))

    def _opened(self, host: SimulatedHost) -> OpenShards:
        assert self._cluster is not None
        return self._cluster.open_shards(host)

    def _draw_shape(self, order: str) -> Shape:
        return draw_shape(self._world.random(f"shape {order}"), order.count("."))

    def _neighbours_of(self, tenant: Tenant) -> Neighbours:
        assert self._cluster is not None
        return neighbours_of(tenant, list(self._cluster.stores))

    def _receiver_of(self, number: int) -> tuple[str, Tenant]:
        assert self._cluster is not None
        order = number % self._cluster.plan.items
        return item_name_of(order), tenant_of(order, self._cluster.plan)


class _Homes:
    """Where tenants live, as a process sees it. It opens the shards when it needs them for the first time."""

    def __init__(self, opened: Callable[[SimulatedHost], OpenShards], host: SimulatedHost) -> None:
        self._opened = opened
        self._host = host
        self._shards: OpenShards | None = None

    def __call__(self, tenant: Tenant) -> Shard:
        return self._opened_shards().home(tenant)

    def note_moved(self, moved: TenantMoved) -> bool:
        """See `OpenShards`."""
        return self._opened_shards().note_moved(moved)

    def _opened_shards(self) -> OpenShards:
        if self._shards is None:
            self._shards = self._opened(self._host)
        return self._shards


def _chore(job: Job) -> str:
    return f"chore {job.payload['order']}"
