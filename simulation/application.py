"""A user's application as the workload: its handlers, unmodified, in the same worlds and under the same oracles.

Its requests come from two processes, which are killed and restarted like others. The commits of an interrupted request
may or may not be applied. Its checks read the stores once all work is done.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from random import Random
from traceback import extract_tb
from typing import Any, Protocol

from fairlead.actors.handlers import Registry
from fairlead.simulation.actor import Actor
from fairlead.simulation.cluster import Cluster
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.machine import Machine
from fairlead.simulation.oracles.oracle import HandlerRun, Oracle
from fairlead.simulation.plan import Plan
from fairlead.simulation.reduction import NO_REDUCTION, Reduction
from fairlead.simulation.replica import ParsedCommit, ShardReplica, unpack_key
from fairlead.simulation.run import Simulation
from fairlead.simulation.trial import STEP_US, Report
from fairlead.simulation.world import START_US, Killed, World
from fairlead.zones import keyspace
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.periodic import Period

DRAIN_US_MAX = 600_000_000  # Ten minutes: enough for retries with the backoffs of production.
CHECK_US_MAX = 60_000_000
_COMMIT = re.compile(r"\d+ world s\d+ (commits|refuses) ")


class Code(Protocol):
    """The application, as `fairlead.app_simulation` adapts it.

    Attributes:
      requests: each does what one request to the application's service does.
      checks: each gets all tenants, and raises if their data is wrong.
    """

    @property
    def registry(self) -> Registry: ...

    @property
    def periods(self) -> Sequence[Period]: ...

    @property
    def requests(self) -> Sequence[Callable[[Random], object]]: ...

    @property
    def checks(self) -> Sequence[Callable[[Sequence[Tenant]], object]]: ...

    def on(self, machine: Machine) -> AbstractContextManager[None]:
        """Let the application find its clock, random numbers and stores on `machine` meanwhile."""
        ...


def run_application(seed: int, code: Code, reduction: Reduction = NO_REDUCTION) -> Report:
    """Run an application in the world of `seed`. Never raises a `Violation`: the report holds it.

    Its requests choose the tenants; `reduction.items` is the number of requests.
    """
    ran: Counter[str] = Counter()
    simulation = Simulation(
        seed,
        reduction,
        partial(ApplicationWorkload, code, ran),
        tenants=1,
        moves=False,
        snapshots=False,
        drain_us_max=DRAIN_US_MAX,
    )
    with code.on(Machine(simulation.cluster)):
        return replace(simulation.run(), ran=ran)


class ApplicationWorkload:
    """The application, its clients, and its checks. See `fairlead.simulation.run.Workload`."""

    unlimited_kinds: frozenset[str] = frozenset()  # No bound is known for the waits of its queues.
    punctual = False  # A transactional handler may take longer than its transaction, and its lease with it.

    def __init__(self, code: Code, ran: Counter[str], world: World) -> None:
        self._code = code
        self._ran = ran
        self._world = world
        self._periods = list(code.periods)
        self._clients: list[RequestClient] = []
        self._checks = UsersChecks(world, code.checks)
        self.kinds = frozenset(code.registry.handlers)

    @property
    def finished(self) -> bool:
        """Whether all requests have been made."""
        return all(client.done for client in self._clients)

    def registry(self, host: SimulatedHost) -> Registry:
        """See `Application`."""
        return self._code.registry

    def periods(self) -> Sequence[Period]:
        """See `Application`. The ticks end with the fault phase; otherwise the queues would never be empty."""
        return self._periods

    def oracles(self, plan: Plan) -> list[Oracle]:
        """Return the checks that only this application can make."""
        return [KindsHaveHandlers(self._world, self.kinds), HandlersRun(self._world, self._ran), self._checks]

    def start(self, cluster: Cluster) -> None:
        """Start the clients, each on a machine of its own."""
        plan = cluster.plan
        self._checks.cluster = cluster
        for number in range(plan.producers):
            share = plan.items // plan.producers + (number < plan.items % plan.producers)
            client = RequestClient(self._code.requests, self._world, number, share, plan.trouble_us)
            self._clients.append(client)
            Actor(self._world, cluster.add_node(f"p{number}"), f"p{number}", client.run).start()
        self._world.at(START_US + plan.trouble_us, self._periods.clear)


class RequestClient:
    """One process that makes its share of the requests during the fault phase, one after the other.

    After a failure of its machine it continues with the next request.
    """

    def __init__(
        self, requests: Sequence[Callable[[Random], object]], world: World, number: int, share: int, trouble_us: int
    ) -> None:
        self.done = False
        self._requests = requests
        self._world = world
        self._left = share
        self._pause_us = trouble_us / max(1, share)
        self._random = world.random(f"visitor {number}")

    def run(self, host: SimulatedHost) -> None:
        """Make the remaining requests."""
        while self._left > 0:
            host.clock.sleep_us(int(self._random.expovariate(1 / self._pause_us)))
            self._left -= 1
            request = self._random.choice(self._requests)
            self._world.note(f"requests {name_of(request)}")
            blame(self._world, "a request does not raise", request, self._random)
        self.done = True


class KindsHaveHandlers(Oracle):
    """Every enqueued item is of a kind that the application handles; any other would wait for ever."""

    promise = "what is enqueued has a handler"

    def __init__(self, world: World, kinds: frozenset[str]) -> None:
        super().__init__(world)
        self._kinds = kinds

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for change in parsed.items:
            if change.after is not None and change.after.kind not in self._kinds:
                self.report_violation(
                    f"{change.item} is of kind {change.after.kind!r}, and there are {sorted(self._kinds)}"
                )


class HandlersRun(Oracle):
    """An oracle without a promise: it counts the runs of handlers that return. Handlers without any were not tested."""

    def __init__(self, world: World, ran: Counter[str]) -> None:
        super().__init__(world)
        self._ran = ran

    def on_start(self, run: HandlerRun) -> None:
        """See `Oracle`."""
        self._ran[run.job.kind] += 0

    def on_end(self, run: HandlerRun) -> None:
        """See `Oracle`."""
        self._ran[run.job.kind] += run.returned


class UsersChecks(Oracle):
    """The application's own checks, once all work is done."""

    cluster: Cluster

    def __init__(self, world: World, checks: Sequence[Callable[[Sequence[Tenant]], object]]) -> None:
        super().__init__(world)
        self._checks = checks

    def at_end(self, shards: Sequence[ShardReplica]) -> None:
        """See `Oracle`. The checks read through transactions, so time passes."""
        tenants = sorted({tenant for shard in shards for tenant in _tenants_of(shard)})
        done = False

        def check() -> None:
            nonlocal done
            for each in self._checks:
                blame(self.world, f"check {name_of(each)}", each, tenants)
            done = True

        self.cluster.operator.do("the application's checks", check)
        end_us = self.world.now_us() + CHECK_US_MAX
        while not done and self.world.violation is None:
            if self.world.now_us() > end_us:
                self.world.fail("the application's checks come to an end", f"not within {CHECK_US_MAX / 1e6:.0f} s")
            self.world.run_until(self.world.now_us() + STEP_US)


def blame(world: World, promise: str, function: Callable[..., object], *args: Any) -> None:
    """Call a function of the application. Its error is a broken promise, unless it is the store's."""
    try:
        function(*args)
    except (Killed, KeyboardInterrupt):
        raise
    except StoreError as error:
        world.note(f"{name_of(function)} meets {error}")
    except BaseException as error:  # noqa: BLE001 - whatever it raises is what it has to say, exit() too
        *_, frame = extract_tb(error.__traceback__)
        said = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
        place = f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
        world.fail(promise, f"{said or frame.line} ({place})")


def without_commits(lines: Sequence[str]) -> list[str]:
    """Return the events that the author of an application knows: requests, handlers, faults, and their messages."""
    return [line for line in lines if not _COMMIT.match(line)]


def name_of(function: Callable[..., object]) -> str:
    """Return the name of a function."""
    return str(getattr(function, "__name__", function))


def _tenants_of(shard: ShardReplica) -> set[Tenant]:
    """Return the tenants that have keys or items, or had items, without the tenant of local items."""
    paths = map(unpack_key, shard.others)
    stored = {Tenant(path[1], path[2]) for path in paths if path[0] == keyspace.DB}
    return {tenant for tenant in stored | {name.tenant for name in shard.zones} if tenant.app}
