"""A simulated cluster: shards, nodes, and consumers made of the product's own classes, unmodified."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from fairlead.actors.consumer import ClockedCoordinator, ScannerLoops, assign_workers, external_loops_of
from fairlead.actors.execution.submitted_handlers import SubmittedHandlers
from fairlead.actors.handlers import Registry
from fairlead.actors.housekeeping.housekeeping import Housekeeping
from fairlead.actors.manager import Manager
from fairlead.actors.runtime.actor_identity import Identity
from fairlead.actors.scanner import Scanner
from fairlead.actors.worker import Isolation, Worker
from fairlead.simulation.actor import Actor, Node
from fairlead.simulation.database import SimulatedDatabase
from fairlead.simulation.handler_runners import HandlerInterceptor, InstrumentedHandlers, SimulatedRunners
from fairlead.simulation.host import NodeClock, SimulatedHost
from fairlead.simulation.network import Network, SimulatedRemote
from fairlead.simulation.open_shards import OpenShards
from fairlead.simulation.operator import Operator
from fairlead.simulation.oracles.oracle import OracleSuite
from fairlead.simulation.plan import Plan
from fairlead.simulation.store import SimulatedStore
from fairlead.simulation.world import START_US, World
from fairlead.workflows.moves import move_handler
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.external.store import NO_EXTERNALS, ExternalStore
from fairlead.zones.moving.move_record import MOVE_KIND
from fairlead.zones.queue.periodic import Period
from fairlead.zones.shard import open_shard

ISOLATED = "isolated"  # the worker of each consumer that runs poison candidates
COORDINATOR = "coordinator"  # its name, and its node's

REOPENED_US = 100_000  # After which a process that cannot open its shards tries again.
RECYCLE_DRAIN_MS = 2_000  # As on the Ray host.


class Application(Protocol):
    """The application on the cluster: handlers and periodic items."""

    def registry(self, host: SimulatedHost) -> Registry:
        """Return the handlers of a process on `host`."""
        ...

    def periods(self) -> Sequence[Period]:
        """Return the periodic items."""
        ...


class Cluster:
    """The machines of a run and their actors.

    Attributes:
      external_kinds: the kinds of items in external stores.
      open_externals: returns the external stores by name, as a process on a host has them open.
    """

    def __init__(self, world: World, plan: Plan, suite: OracleSuite, application: Application) -> None:
        self.world = world
        self.plan = plan
        self.suite = suite
        self.application = application
        self.stores = {name: SimulatedStore(world, name, plan.latencies) for name in suite.shards}
        self.network = Network(world, world.random("network"), latency_us=plan.call_us)
        suite.attach(self.stores.values(), self.network)
        self.operator = Operator(world, self.network)
        self.handler_interceptors: list[HandlerInterceptor] = []
        self.nodes: list[Node] = []
        self.consumers: list[Node] = []
        self.actors: dict[str, Actor] = {}
        self.external_kinds: Sequence[str] = ()
        self.open_externals: Callable[[SimulatedHost], Mapping[str, ExternalStore]] = lambda host: NO_EXTERNALS
        self._databases = {
            name: SimulatedDatabase(store, has_commit_sequence=plan.has_commit_sequence, has_listener=plan.has_listener)
            for name, store in self.stores.items()
        }
        self._clocks: dict[str, NodeClock] = {}
        self._skews = world.random("clocks")

    def add_node(self, name: str) -> Node:
        """Add a machine with a clock that is off by at most `skew_us_max`."""
        most_us = self.plan.skew_us_max
        skew_us = self._skews.choice([-most_us, most_us, self._skews.randint(-most_us, most_us)])
        node = Node(self.world, name, skew_us=skew_us)
        self.nodes.append(node)
        self._clocks[name] = node.clock
        return node

    def add_consumers(self) -> None:
        """Add the coordinator and all consumers, and start them."""
        node = self.add_node(COORDINATOR)
        coordinator = self._add_actor(node, COORDINATOR, lambda host: ClockedCoordinator(host.clock))
        for number in range(self.plan.consumers):
            self._add_consumer(f"c{number}", coordinator)
        for actor in self.actors.values():
            actor.start()

    def clock_of(self, host_name: str) -> int:
        """Return the latest time that the clock of a host's node has shown."""
        return self._clocks[host_name.partition("#")[0].partition(".")[0]].highest_us()

    def time_of(self, actor_name: str) -> int:
        """Return what the clock of an actor's node shows."""
        return self.actors[actor_name].node.clock.now_us()

    def is_consumer(self, host_name: str) -> bool:
        """Whether a host belongs to a consumer or the coordinator."""
        return host_name.partition("#")[0] in self.actors

    def consumer_id(self, node_name: str) -> bytes:
        """Return the id under which the consumer on a node has its session."""
        return node_name.encode().ljust(16, b"-")

    def is_isolated(self, host_name: str) -> bool:
        """Whether a host is an isolated worker's."""
        return host_name.partition("#")[0].endswith(f".{ISOLATED}")

    def incarnation_of(self, actor_name: str) -> str | None:
        """Return the name of an actor's present host, None while it is dead."""
        host = self.actors[actor_name].host
        return None if host is None else host.name

    def heal(self) -> None:
        """Make all stores available, and end all pauses. Dead actors restart by themselves."""
        for store in self.stores.values():
            store.unavailable_until_us = 0
        for node in self.nodes:
            for actor in node.actors:
                if actor.host is not None:
                    actor.host.resume()

    def close(self) -> None:
        """Kill every host, so that this world leaves nothing in the process."""
        for node in self.nodes:
            for actor in node.actors:
                actor.kill("the end")
        self.operator.host.kill()

    def open_shards_once_there(self, host: SimulatedHost) -> OpenShards:
        """Open all shards for a process on `host`, again and again until all answer. Waits."""
        while True:
            try:
                return self.open_shards(host)
            except StoreError:
                self.world.sleep_us(REOPENED_US)

    def open_shards(self, host: SimulatedHost, databases: Mapping[str, SimulatedDatabase] | None = None) -> OpenShards:
        """Open all shards for a process on `host`, perhaps through the caller's own databases. Waits."""
        return OpenShards({
            name: open_shard(
                name,
                database,
                clock=host.clock,
                random=host.random,
                settings=self.plan.zones,
                part_count=self.plan.part_count,
                first_shards=self._databases,
            )
            for name, database in (databases or self._databases).items()
        })  # fmt: skip

    def _add_actor(self, node: Node, name: str, factory: Any, **how: Any) -> Actor:
        actor = Actor(self.world, node, name, factory, yield_frac=self.plan.yield_frac, **how)
        self.actors[name] = actor
        return actor

    def _add_consumer(self, name: str, coordinator: Actor) -> None:
        """Add one consumer, built like `fairlead.actors.consumer.Consumer`."""
        node, settings = self.add_node(name), self.plan.consumer
        identity = Identity(self.consumer_id(name), name, 1, START_US)

        def add_worker(role: str, isolation: Isolation) -> Actor:
            return self._add_actor(
                node,
                f"{name}.{role}",
                partial(self._make_worker, identity=identity, isolation=isolation),
                before_recycle=lambda worker: worker.drain(RECYCLE_DRAIN_MS),
                before_failure=lambda worker: worker.abandon(),
            )

        workers = [add_worker(f"worker{number}", Isolation.NONE) for number in range(settings.workers)]
        isolated = add_worker(ISOLATED, Isolation.PROCESS)
        managers = [
            self._add_actor(
                node,
                f"{name}.manager{index}",
                partial(
                    self._make_manager,
                    workers=[workers[number] for number in numbers],
                    isolated=isolated if index == 0 else None,
                    index=index,
                ),
            )
            for index, numbers in enumerate(assign_workers(settings.workers, settings.managers))
        ]
        factory = partial(self._make_scanner, managers=managers, coordinator=coordinator, identity=identity)
        self._add_actor(node, f"{name}.scanner", factory)
        self.consumers.append(node)

    def _make_worker(self, host: SimulatedHost, identity: Identity, isolation: Isolation) -> Worker:
        shards = self.open_shards(host)
        instrumented = InstrumentedHandlers(host, self.suite, self.handler_interceptors)
        handlers = self._handlers(instrumented.of(self._registry(host, shards)))
        settings, runners = self.plan.consumer, SimulatedRunners(host)
        externals = self.open_externals(host)
        worker = Worker(host, shards, handlers, settings, runners, identity, isolation, externals=externals)
        worker.start()
        return worker

    def _make_manager(
        self, host: SimulatedHost, workers: Sequence[Actor], isolated: Actor | None, index: int
    ) -> Manager:
        shards = self.open_shards(host)
        return Manager(
            host,
            shards,
            self._registry(host, shards),
            self.plan.consumer,
            [SimulatedRemote(self.network, host, worker) for worker in workers],
            isolated=None if isolated is None else SimulatedRemote(self.network, host, isolated),
            consumer_id=self.consumer_id(host.name.partition(".")[0]),
            index=index,
            count=self.plan.consumer.managers,
            externals=self.open_externals(host),
        )

    def _make_scanner(
        self, host: SimulatedHost, managers: Sequence[Actor], coordinator: Actor, identity: Identity
    ) -> ScannerLoops:
        shards = self.open_shards(host)
        scanner = Scanner(
            host,
            shards,
            self.plan.consumer,
            [SimulatedRemote(self.network, host, manager) for manager in managers],
            SimulatedRemote(self.network, host, coordinator),
            consumer=identity.consumer_id.hex(),
        )
        handlers = self._handlers(self._registry(host, shards))
        periods, slots = self.application.periods(), self.plan.consumer.all_slots
        housekeeping = Housekeeping(host, shards, identity, periods, handlers, scanner, slots=slots)
        externals = external_loops_of(host, self.open_externals(host), shards)
        return ScannerLoops(host, scanner, housekeeping, externals)

    def _registry(self, host: SimulatedHost, shards: OpenShards) -> Registry:
        """Return the application's handlers, and that of moves if tenants move; as `App.serve_system_kinds`."""
        registry = self.application.registry(host)
        if self.plan.moves and MOVE_KIND not in registry.handlers:
            registry.add(move_handler(shards.with_id, shards.__getitem__))
        return registry

    def _handlers(self, registry: Registry) -> SubmittedHandlers:
        return SubmittedHandlers(registry, key=b"", allow=False)
