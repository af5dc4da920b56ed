"""The application over an external store: its handlers work, fail, take long, or write where their items end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fairlead.actors.execution.job import Job
from fairlead.actors.execution.retry import Retry
from fairlead.actors.handlers import PermanentError, Registry, handler_of
from fairlead.simulation.actor import Actor
from fairlead.simulation.cluster import Cluster
from fairlead.simulation.external import statements
from fairlead.simulation.external.client import Session
from fairlead.simulation.external.server import StoreServer
from fairlead.simulation.external.users import KINDS, User, add
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.oracles.external import EFFECT
from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.plan import Plan
from fairlead.simulation.world import World
from fairlead.zones.external.store import Queue
from fairlead.zones.layout import ID_BYTES
from fairlead.zones.queue.items import new_item
from fairlead.zones.queue.periodic import Period

STORE = "pg"
LIMITS = {"limited": 2}
LONG_SHARES = (KINDS["long"], KINDS["long"], 12)  # Many claims are made where a third of the items take seconds.
_SOON = Retry(attempts=None, backoff=0.05, backoff_max=1)


class ExternalShop:
    """The application. It is `finished` when every user is done. See `fairlead.simulation.run.Workload`."""

    kinds = frozenset(KINDS)
    unlimited_kinds: frozenset[str] = frozenset()
    punctual = False

    def __init__(self, world: World) -> None:
        self.server = StoreServer(world)
        self._world = world
        self._kinds = {**KINDS, "long": world.random("long work").choice(LONG_SHARES)}
        self._users: list[User] = []

    @property
    def finished(self) -> bool:
        """Whether all work has been enqueued, and no transaction is open."""
        return all(user.done for user in self._users) and not self.server.table.open

    def oracles(self, plan: Plan) -> list[Oracle]:
        """See `Workload`. The world has them."""
        return []

    def periods(self) -> Sequence[Period]:
        """See `Application`."""
        return ()

    def start(self, cluster: Cluster) -> None:
        """Start the users, each on a machine of its own."""
        plan = cluster.plan
        for number in range(plan.producers):
            share = plan.items // plan.producers + (number < plan.items % plan.producers)
            user = User(self.server, number, share, kinds=self._kinds, tenants=plan.tenants, trouble_us=plan.trouble_us)
            self._users.append(user)
            Actor(self._world, cluster.add_node(f"p{number}"), f"p{number}", user.run).start()

    def registry(self, host: SimulatedHost) -> Registry:
        """See `Application`."""
        handlers = _Handlers(host)
        registry = Registry()

        def add_handler(kind: str, function: Callable[..., Any], **how: Any) -> None:
            registry.add(handler_of(kind, function, **how))

        add_handler("plain", handlers.plain)
        add_handler("long", handlers.long)
        add_handler("flaky", handlers.flaky, retry=_SOON)
        add_handler("effect", handlers.effect, transactional=True, store=STORE, retry=_SOON)
        add_handler("chain", handlers.chain, transactional=True, store=STORE, retry=_SOON)
        add_handler("limited", handlers.plain, max_running=LIMITS["limited"])
        add_handler("slow", handlers.slow, timeout=0.4, retry=_SOON)
        add_handler("broken", handlers.broken)
        add_handler("dropped", handlers.broken, drop=True)
        return registry


class _Handlers:
    """The handlers of one process. It draws how long they take and when they fail."""

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

    def effect(self, job: Job, session: Session) -> None:
        session.execute(partial(add, key=f"{EFFECT}{job.id.hex()}"))
        if self._host.random.random() < 0.3:
            self._work()
        if self._host.random.random() < 0.1:
            raise RuntimeError("drawn")

    def chain(self, job: Job, session: Session) -> None:
        """Write, and enqueue another item in the same transaction."""
        session.execute(partial(add, key=f"{EFFECT}{job.id.hex()}"))
        item_id = self._host.random.randbytes(ID_BYTES)
        queue, item = Queue(job.tenant, job.zone), new_item("effect", delay=self._host.random.choice([0, 0.2]))
        session.execute(partial(statements.enqueue, queue=queue, item_id=item_id, item=item))

    def slow(self, job: Job) -> None:
        self._host.clock.sleep_us(self._host.random.choice([10_000, 10_000, 600_000, 600_000, 6_000_000]))

    def broken(self, job: Job) -> None:
        self._work()
        raise PermanentError("as planned")

    def _work(self) -> None:
        self._host.clock.sleep_us(int(self._host.random.expovariate(1 / 20_000)))
