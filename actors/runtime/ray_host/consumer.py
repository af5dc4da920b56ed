"""A consumer of Ray actors on this node: started, counted, drained."""

import logging
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fairlead.actors.consumer import OpenResources, assign_workers
from fairlead.actors.runtime.actor_identity import Identity
from fairlead.actors.runtime.ray_host.actors import (
    COORDINATOR,
    CoordinatorActor,
    ManagerActor,
    ScannerActor,
    WorkerActor,
)
from fairlead.actors.runtime.ray_host.calls import NAMESPACE
from fairlead.actors.runtime.supervisor import ActorFailed
from fairlead.actors.runtime.thread_host import thread_supervisor
from fairlead.actors.telemetry.counters import Reading
from fairlead.actors.worker import Isolation
from fairlead.zones.durations import Duration, duration_us
from fairlead.zones.engines.api.progress import report_loop_progress
from fairlead.zones.errors import QueueError

log = logging.getLogger("fairlead.ray")

CALLS_AT_ONCE = 6  # Two batches, two long calls for progress, counts, and a drain.
STOP_GRACE_S = 10.0
START_S_MAX = 120.0
LOOK_S = 2.0  # Between two checks of the node and the managers. Ray needs some fifteen seconds to find a node dead.
ISOLATED = "isolated"
GAUGES = ("held", "pointers_held")  # Counts of the present state, not of events.


class FleetNotStarted(QueueError):
    """The actors did not start.

    Do: read their logs, in `/tmp/ray/session_latest/logs`; on a cluster, check that every node can import the
    application and reach its stores.
    """

    message = "the actors did not start"


class CumulativeCounts:
    """Sums the counts of actors over their restarts. Each incarnation counts from zero, in a new process."""

    def __init__(self) -> None:
        self._latest: dict[int, tuple[int, dict[str, int]]] = {}  # by actor: process id, and its latest counts
        self._past: Counter[str] = Counter()

    def note(self, actor: int, counts: dict[str, int]) -> None:
        """Take an actor's counts, its process id (`pid`) among them."""
        pid, counted = counts["pid"], {name: value for name, value in counts.items() if name != "pid"}
        last = self._latest.get(actor)
        if last is not None and last[0] != pid:
            self._past.update({name: value for name, value in last[1].items() if name not in GAUGES})
        self._latest[actor] = pid, counted

    def total(self) -> dict[str, int]:
        """Return the sums."""
        total = Counter(self._past)
        for _, counted in self._latest.values():
            total.update(counted)
        return dict(total)


class RayConsumer:
    """A consumer of Ray actors on this node. It starts when made; `stop` drains it.

    Ray must be connected (`connect`). `open_resources` runs in every actor: it opens the shards and loads the handlers.
    """

    def __init__(self, open_resources: OpenResources, identity: Identity) -> None:
        resources = open_resources()
        self._cumulative = CumulativeCounts()
        self._settings = resources.settings
        settings = resources.settings
        self._node_id = ray.get_runtime_context().get_node_id()
        node = NodeAffinitySchedulingStrategy(self._node_id, soft=False)
        stem = identity.consumer_id.hex()

        def start(kind: type, name: str, *args: Any) -> Any:
            placed = {"scheduling_strategy": node, "max_concurrency": CALLS_AT_ONCE}
            return _start(kind, {"name": f"{stem}-{name}", **placed}, *args)

        workers, managers = range(settings.workers), range(settings.managers)
        self._coordinator: Any = None
        if settings.selection == "in_order":
            options = {"name": COORDINATOR, "lifetime": "detached", "get_if_exists": True}
            self._coordinator = _start(CoordinatorActor, options, resources.clock)
        self._workers = [
            start(WorkerActor, f"worker-{number}", open_resources, f"worker-{number}", identity) for number in workers
        ]
        self._isolated: list[Any] = []  # one, once there are poison candidates
        self._start_isolated = lambda: start(
            WorkerActor, ISOLATED, open_resources, ISOLATED, identity, Isolation.PROCESS
        )
        self._managers = [
            start(
                ManagerActor,
                f"manager-{index}",
                open_resources,
                f"manager-{index}",
                [f"{stem}-worker-{number}" for number in numbers],
                f"{stem}-{ISOLATED}" if index == 0 else None,
                identity.consumer_id,
                index,
                settings.managers,
            )
            for index, numbers in enumerate(assign_workers(settings.workers, settings.managers))
        ]
        _await_start((*self._workers, *self._managers))
        names = [f"{stem}-manager-{index}" for index in managers]
        self._scanner = start(ScannerActor, "scanner", open_resources, names, identity)
        _await_start([self._scanner])
        self._node_is_alive = True
        self._stopping = threading.Event()
        self._supervisor = thread_supervisor(lambda reason: None)  # `check` raises.
        watch = self._supervisor.supervised("watch", self._watch)
        self._watching = threading.Thread(target=watch, name="watch", daemon=True)
        self._watching.start()

    def pids(self) -> dict[str, list[int]]:
        """Return the process ids of the actors by role. An actor that is being restarted has none."""
        found: dict[str, list[int]] = {}
        if self._coordinator is not None:
            found["coordinator"] = _answers([self._coordinator.pid.remote()])
        roles = {
            "scanner": [self._scanner],
            "manager": self._managers,
            "worker": self._workers,
            ISOLATED: self._isolated,
        }
        for role, members in roles.items():
            if members:  # There is an isolated worker only once there are poison candidates.
                found[role] = [counts["pid"] for counts in _answers([actor.counts.remote() for actor in members])]
        return found

    def counts(self) -> dict[str, int]:
        """Return the counts of the consumer, summed over its actors and their restarts.

        Events between the last call of this method and the death of an actor are missing, so call it regularly.
        """
        actors = (self._scanner, *self._all_workers)
        for number, counts in _answers_by_index([actor.counts.remote() for actor in actors]):
            self._cumulative.note(number, counts)
        return self._cumulative.total()

    def readings(self) -> dict[str, Reading]:
        """Return the telemetry of the actors by their names. An actor that does not answer in time is left out."""
        actors = {f"manager-{number}": actor for number, actor in enumerate(self._managers)}
        actors |= {f"worker-{number}": actor for number, actor in enumerate(self._workers)}
        actors |= dict(zip((ISOLATED,), self._isolated, strict=False))
        answers = _answers_by_index([actor.reading.remote() for actor in actors.values()])
        names = list(actors)
        return {names[index]: reading for index, reading in answers}

    def is_node_alive(self) -> bool:
        """Return whether Ray considered this node alive at the last check; if not, no actor lives. Never waits."""
        return self._node_is_alive

    def check(self) -> None:
        """Check the loops of this process. The processes of the actors check their own loops.

        Raises:
          ActorFailed: a loop died, or stalled.
        """
        if self._supervisor.failure is not None:
            raise ActorFailed(reason=self._supervisor.failure)

    def begin_drain(self) -> None:
        """See `Worker.begin_drain`: nothing new starts once this has returned.

        A worker that does not answer within two seconds is restarting or busy; `stop` drains it.
        """
        _answers([worker.begin_drain.remote() for worker in self._all_workers])

    def stop(self, *, drain: Duration | None = None) -> dict[str, int]:
        """Drain: start nothing new, let running items finish within `drain`, and return the others at once.

        A manager may be leasing items at that moment. It stops once the workers have these items. The workers drain
        meanwhile, and return items that still arrive.
        """
        wait_ms = self._settings.drain_ms if drain is None else duration_us("drain", drain) // 1000
        self.begin_drain()  # First: the scanner's loops may be waiting for a store.
        self._stopping.set()
        self._watching.join(STOP_GRACE_S)
        self._supervisor.stop()
        _answers([self._scanner.stop.remote()], STOP_GRACE_S)
        stops = [manager.stop.remote() for manager in self._managers]
        drains = [worker.drain.remote(wait_ms) for worker in self._all_workers]
        _answers([*stops, *drains], wait_ms / 1000 + STOP_GRACE_S)
        counts = self.counts()
        for actor in (self._scanner, *self._managers, *self._all_workers):
            ray.kill(actor, no_restart=True)
        return counts

    @property
    def _all_workers(self) -> list[Any]:
        return [*self._workers, *self._isolated]

    def _watch(self) -> None:
        """Check the node and the managers regularly. While Ray's head does not answer, this waits.

        Most fleets never meet a poison candidate. A fleet that has met one starts a process to run them isolated.
        """
        while not self._stopping.wait(LOOK_S):
            report_loop_progress(None)  # Ray's head may be out of reach for long.
            try:
                nodes = ray.nodes()
                if not self._isolated and self._met_poison_candidates():
                    log.info("poison candidates were met; an isolated worker is started for them")
                    self._isolated.append(self._start_isolated())
            except RayError as error:
                log.info("the cluster does not list its live nodes: %s", error)
            else:
                self._node_is_alive = any(node["NodeID"] == self._node_id and node["Alive"] for node in nodes)
            report_loop_progress(int(LOOK_S * 1e6))

    def _met_poison_candidates(self) -> bool:
        return any(
            counts.get("poison_candidates") for counts in _answers([each.counts.remote() for each in self._managers])
        )


def _start(kind: type, options: dict[str, Any], *args: Any) -> Any:
    actor: Any = ray.remote(kind)
    return actor.options(namespace=NAMESPACE, num_cpus=0, max_restarts=-1, max_task_retries=0, **options).remote(*args)


def _await_start(actors: Sequence[Any]) -> None:
    try:
        ray.get([actor.counts.remote() for actor in actors], timeout=START_S_MAX)
    except (GetTimeoutError, RayActorError) as error:
        raise FleetNotStarted(reason=str(error)[:500], within_s=START_S_MAX) from None


def _answers(references: Sequence[Any], timeout_s: float = 2.0) -> list[Any]:
    """Return the answers that come within `timeout_s`; an actor that is dead or being restarted gives none."""
    return [answer for _, answer in _answers_by_index(references, timeout_s)]


def _answers_by_index(references: Sequence[Any], timeout_s: float = 2.0) -> list[tuple[int, Any]]:
    ready, _ = ray.wait(list(references), num_returns=len(references), timeout=timeout_s)
    answers = []
    for index, reference in enumerate(references):
        try:
            if reference in ready:
                answers.append((index, ray.get(reference)))
        except RayActorError as error:
            log.info("an actor did not answer: %s", error)
    return answers
