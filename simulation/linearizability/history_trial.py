"""A trial whose processes call operations and record their answers, and the search for an order of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final, Generic, Protocol, TypeVar

from fairlead.actors.handlers import Registry
from fairlead.simulation.actor import Actor
from fairlead.simulation.cluster import Cluster
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.linearizability.counterexample import counterexample
from fairlead.simulation.linearizability.history import Model, Recorder
from fairlead.simulation.linearizability.search import Verdict, is_linearizable
from fairlead.simulation.oracles.oracle import OracleSuite
from fairlead.simulation.plan import Plan
from fairlead.simulation.reduction import Reduction
from fairlead.simulation.trial import STEP_US, Trial
from fairlead.simulation.world import START_US, Violation, World
from fairlead.zones.queue.periodic import Period

C = TypeVar("C")
S = TypeVar("S")

ENDED = "every client ends"
DECIDED = "every history is decided"
STEPS_MAX = 500_000  # Fifteen times the steps of the longest of thirty thousand histories; five seconds.
END_US = 180_000_000  # All processes end before this time, under any faults.
QUIET_US = 3_000_000  # After this time without faults no late commit is on its way.
FAULTS_OF_CLIENTS: Final = frozenset(
    {
        "conflicts",
        "unknown results",
        "late commits",
        "old transactions",
        "recoveries",
        "kills",
        "node kills",
        "pauses",
        "clock jumps",
    }
)  # Other faults disturb consumers, handlers, and calls between actors. Each client has its own machine.


class ClientProcess(Protocol):
    """A process of a trial. `done`: whether it has called all of its operations."""

    name: str
    done: bool

    def live(self, host: SimulatedHost) -> None:
        """Call operations. After a kill it continues with the next one."""
        ...


class HistoryTrial(Trial):
    """Processes with machines of their own, and their history. As an application of the cluster it has no handlers.

    Args:
      plan: of its faults those are left out that disturb no client.
    """

    def __init__(
        self,
        seed: int,
        reduction: Reduction,
        chosen: dict[str, Any],
        *,
        world: World,
        plan: Plan,
    ) -> None:
        plan = replace(plan, faults=tuple(name for name in plan.faults if name in FAULTS_OF_CLIENTS))
        self.suite = OracleSuite(world, [f"s{number}" for number in range(plan.shards)])
        cluster = Cluster(world, plan, self.suite, self)
        super().__init__(seed, reduction, chosen, world=world, plan=plan, cluster=cluster)
        self.recorder = Recorder(world.note)
        self._processes: list[ClientProcess] = []

    def registry(self, host: SimulatedHost) -> Registry:
        """See `Application`."""
        return Registry()

    def periods(self) -> Sequence[Period]:
        """See `Application`."""
        return ()

    def start(self, process: ClientProcess) -> None:
        """Start a process that `are_done` waits for."""
        self._processes.append(process)
        self.start_actor(process.name, process.live)

    def start_actor(self, name: str, live: Callable[[SimulatedHost], None]) -> Actor:
        """Start an actor on a machine of its own, and return it."""
        self.cluster.actors[name] = actor = Actor(self.world, self.cluster.add_node(name), name, live)
        actor.start()
        return actor

    def share(self, number: int) -> int:
        """How many of the plan's operations the producer of that number calls."""
        return self.plan.items // self.plan.producers + (number < self.plan.items % self.plan.producers)

    def are_done(self) -> bool:
        """Whether all processes have ended."""
        return all(process.done for process in self._processes)

    def run_until(self, promise: str, end_us: int, is_over: Callable[[], bool]) -> None:
        """Run until the condition holds. Raises a `Violation` of the promise if it does not by then."""
        while not is_over():
            if self.world.elapsed_us > end_us:
                raise Violation(promise, f"not after {end_us / 1e6} s")
            self.world.run_until(self.world.now_us() + STEP_US)

    def run_until_quiet(self) -> None:
        """Run until no commit can be late any more."""
        self.world.run_until(max(self.world.now_us(), START_US + self.plan.trouble_us) + QUIET_US)

    def check_history(self, promise: str, model: Model[S]) -> None:
        """Search for an order of the operations that have the answers of the model. Raises a `Violation`."""
        history = self.recorder.history()
        finding = is_linearizable(history, model, steps_max=STEPS_MAX)
        self.world.note(f"{len(history)} operations: {finding.verdict.value}, {finding.steps} steps")
        if finding.verdict is Verdict.UNDECIDED:
            raise Violation(DECIDED, f"{len(history)} operations took more than {STEPS_MAX:,} steps")
        if finding.verdict is Verdict.NOT_LINEARIZABLE:
            raise Violation(promise, counterexample(history, model, steps_max=STEPS_MAX))


class ThinkingProcess(Generic[C]):
    """A process that calls operations through a client, with a pause before each. See `ClientProcess`.

    Args:
      connect: returns the client on a host. Waits.
      call: calls one operation, or all that belong together.
      think_us: the mean pause.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[SimulatedHost], C],
        call: Callable[[C], object],
        *,
        operations: int,
        think_us: float,
        random: Random,
    ) -> None:
        self.name = name
        self.done = not operations
        self._connect = connect
        self._call = call
        self._left = operations
        self._think_us = think_us
        self._random = random

    def live(self, host: SimulatedHost) -> None:
        """See `ClientProcess`."""
        client = self._connect(host)
        while self._left:
            host.clock.sleep_us(int(self._random.expovariate(1 / self._think_us)))
            self._left -= 1
            self._call(client)
        self.done = True
