"""Actors in Ray: the host of production. The only module that imports Ray.

A consumer is a tree of Ray actors on one node: a scanner, its managers, and each manager's workers; inside each lives
the same plain class as in threads. The coordinator is one named, detached actor for the whole cluster. Actors take no
CPUs from Ray's scheduler, restart for ever, and are never asked to repeat a call: what a call was to do is in the
store, and comes back by itself.
"""

import logging
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import ray
import ray._private.worker as ray_worker
from ray.exceptions import RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors.consumer import ClockedCoordinator, Opening, ScannerLoops, deal_workers
from actors.holdings import Held
from actors.host import ActorDied
from actors.housekeeping import Housekeeping, Identity
from actors.manager import Manager
from actors.messages import ItemRef, Report, Served
from actors.scanner import Scanner
from actors.submitted import keep_loading
from actors.thread_host import ThreadHost, ThreadRunners
from actors.worker import Worker
from zones.engines import Clock
from zones.pointers import PointerRef

log = logging.getLogger("fairlead.ray")

NAMESPACE = "fairlead"
COORDINATOR = "coordinator-1"  # The number changes with what it answers; old and new fleets then have one each.
CALLS_AT_ONCE = 6  # Two batches, two long questions, and room for counts and a drain.
RECYCLE_DRAIN_MS = 2_000
STOP_GRACE_S = 10.0
OBJECT_STORE_BYTES = 100 * 2**20  # Calls carry their arguments with them; the object store stays all but empty.


class RayRemote:
    """A Ray actor, called by message, found by its name.

    Names, not handles: a handle among the arguments of an actor's constructor is an object that must outlive it, or the
    actor cannot be restarted.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._handle: Any = None

    def call(self, method: str, *args: Any, done: Callable[[Any, Exception | None], None]) -> None:
        """See `Remote`. `done` runs on a thread of Ray's."""
        if self._handle is None:
            self._handle = ray.get_actor(self._name, NAMESPACE)
        reference = getattr(self._handle, method).remote(*args)
        reference.future().add_done_callback(partial(_tell, method, done))


def _tell(method: str, done: Callable[[Any, Exception | None], None], future: Any) -> None:
    error = future.exception()
    if error is None:
        done(future.result(), None)
    elif isinstance(error, RayTaskError):
        done(None, error.cause)
    else:
        done(None, ActorDied(method=method, reason=type(error).__name__))


class RayRunners(ThreadRunners):
    """Runs coroutines on one event loop of this process, and Ray remote functions as Ray tasks."""

    def run_remote(self, function: Any, held: Held) -> None:
        """See `Runners`. Past its timeout the task is killed."""
        reference = function.remote(held.job)
        held.job.on_cancel(lambda: ray.cancel(reference, force=True))
        try:
            ray.get(reference)
        except RayTaskError as error:
            raise error.cause from None


class WorkerActor:
    """A `Worker` with a process of its own."""

    def __init__(self, opening: Opening) -> None:
        opened = opening()
        host = ThreadHost(clock=opened.clock, random=opened.random, on_recycle=self._recycle)
        self._worker = Worker(host, opened.shards, opened.submitted, opened.settings, RayRunners())
        self._worker.start()
        host.spawn("loading", partial(keep_loading, host, opened.submitted, opened.shards))

    def place(self, refs: Sequence[ItemRef]) -> Report:
        return self._worker.place(refs)

    def await_progress(self, seen: int) -> Report:
        return self._worker.await_progress(seen)

    def counts(self) -> dict[str, int]:
        return {**self._worker.counts(), "pid": os.getpid()}

    def drain(self, drain_ms: int) -> dict[str, int]:
        return self._worker.drain(drain_ms)

    def _recycle(self, reason: str) -> None:
        log.error("this worker starts anew: %s", reason)

        def leave() -> None:
            self._worker.drain(RECYCLE_DRAIN_MS)
            os._exit(1)  # the threads that do not listen would hold up any politer end

        threading.Thread(target=leave, daemon=True).start()


class ManagerActor:
    """A `Manager` with a process of its own."""

    def __init__(self, opening: Opening, workers: Sequence[str], index: int, count: int) -> None:
        opened = opening()
        host = ThreadHost(clock=opened.clock, random=opened.random)
        host.spawn("loading", partial(keep_loading, host, opened.submitted, opened.shards))
        self._manager = Manager(
            host,
            opened.shards,
            opened.submitted.registry,
            opened.settings,
            [RayRemote(worker) for worker in workers],
            index=index,
            count=count,
        )

    def serve(self, shard_name: str, refs: Sequence[PointerRef]) -> Served:
        return self._manager.serve(shard_name, refs)

    def await_room(self) -> int:
        return self._manager.await_room()

    def counts(self) -> dict[str, int]:
        return {**self._manager.counts(), "pid": os.getpid()}

    def stop(self) -> None:
        self._manager.stop()


class ScannerActor:
    """A `Scanner` and its housekeeping with a process of their own."""

    def __init__(self, opening: Opening, managers: Sequence[str], identity: Identity) -> None:
        opened = opening()
        host = ThreadHost(clock=opened.clock, random=opened.random)
        scanner = Scanner(
            host,
            opened.shards,
            opened.settings,
            [RayRemote(manager) for manager in managers],
            RayRemote(COORDINATOR),
            consumer=identity.consumer_id.hex(),
        )
        housekeeping = Housekeeping(host, opened.shards, identity, opened.periods, opened.submitted, scanner.set_fit)
        self._loops = ScannerLoops(host, scanner, housekeeping)

    def counts(self) -> dict[str, int]:
        return {**self._loops.counts(), "pid": os.getpid()}

    def stop(self) -> None:
        self._loops.stop()


class CoordinatorActor:
    """The `Coordinator` of the cluster with a process of its own."""

    def __init__(self, clock: Clock) -> None:
        self._coordinator = ClockedCoordinator(clock)

    def request(self, shard_id: str, consumer: str, handed_over: bool, wanted: bool, lease_us: int) -> bool:
        return self._coordinator.request(shard_id, consumer, handed_over, wanted, lease_us)

    def pid(self) -> int:
        return os.getpid()


class RayConsumer:
    """A consumer of Ray actors on this node. It starts when made; `stop` drains it.

    Ray must be connected (`connect`). `opening` runs in every actor: it opens the shards and loads the handlers.
    """

    def __init__(self, opening: Opening, identity: Identity) -> None:
        opened = opening()
        self._settings = opened.settings
        settings = opened.settings
        node = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        stem = identity.consumer_id.hex()

        def start(kind: type, name: str, *args: Any) -> Any:
            placed = {"scheduling_strategy": node, "max_concurrency": CALLS_AT_ONCE}
            return _start(kind, {"name": f"{stem}-{name}", **placed}, *args)

        workers, managers = range(settings.workers), range(settings.managers)
        self._coordinator = _start(
            CoordinatorActor, {"name": COORDINATOR, "lifetime": "detached", "get_if_exists": True}, opened.clock
        )
        self._workers = [start(WorkerActor, f"worker-{number}", opening) for number in workers]
        self._managers = [
            start(
                ManagerActor,
                f"manager-{index}",
                opening,
                [f"{stem}-worker-{number}" for number in numbers],
                index,
                settings.managers,
            )
            for index, numbers in enumerate(deal_workers(settings.workers, settings.managers))
        ]
        ray.get([actor.counts.remote() for actor in (*self._workers, *self._managers)])
        names = [f"{stem}-manager-{index}" for index in managers]
        self._scanner = start(ScannerActor, "scanner", opening, names, identity)
        ray.get(self._scanner.counts.remote())

    def pids(self) -> dict[str, list[int]]:
        """Return the process ids of the actors by role. An actor that is being restarted has none."""
        found: dict[str, list[int]] = {"coordinator": _answers([self._coordinator.pid.remote()])}
        for role, actors in (("scanner", [self._scanner]), ("manager", self._managers), ("worker", self._workers)):
            found[role] = [counts["pid"] for counts in _answers([actor.counts.remote() for actor in actors])]
        return found

    def counts(self) -> dict[str, int]:
        """Return what the consumer has done, summed over its actors; one that was restarted counts from there."""
        total: Counter[str] = Counter()
        for counts in _answers([actor.counts.remote() for actor in (self._scanner, *self._workers)]):
            total.update({name: value for name, value in counts.items() if name != "pid"})
        return dict(total)

    def stop(self, drain_ms: int | None = None) -> dict[str, int]:
        """Drain: nothing new starts, what runs gets `drain_ms` to finish, the rest is given back at once."""
        wait_ms = self._settings.drain_ms if drain_ms is None else drain_ms
        _answers([self._scanner.stop.remote()], STOP_GRACE_S)
        _answers([manager.stop.remote() for manager in self._managers], STOP_GRACE_S)
        _answers([worker.drain.remote(wait_ms) for worker in self._workers], wait_ms / 1000 + STOP_GRACE_S)
        counts = self.counts()
        for actor in (self._scanner, *self._managers, *self._workers):
            ray.kill(actor, no_restart=True)
        return counts


def _start(kind: type, options: dict[str, Any], *args: Any) -> Any:
    actor: Any = ray.remote(kind)
    return actor.options(namespace=NAMESPACE, num_cpus=0, max_restarts=-1, max_task_retries=0, **options).remote(*args)


def _answers(references: Sequence[Any], timeout_s: float = 2.0) -> list[Any]:
    """Return the answers that come within `timeout_s`; an actor that is dead or being restarted gives none."""
    ready, _ = ray.wait(list(references), num_returns=len(references), timeout=timeout_s)
    answers = []
    for reference in ready:
        try:
            answers.append(ray.get(reference))
        except RayActorError as error:
            log.info("an actor did not answer: %s", error)
    return answers


def connect(address: str, *, show_output: bool = True) -> None:
    """Start a Ray cluster in this process ("local"), or join one ("auto", or the address of its head).

    Args:
      show_output: whether what handlers print in their actors appears here too.
    """
    options: dict[str, Any] = {}
    if address == "local":
        options = {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    ray.init(address=address, namespace=NAMESPACE, log_to_driver=show_output, logging_level=logging.ERROR, **options)
    _keep_notes_off_the_screen()
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():  # Ray puts its own in their place, which end the process at once.
            signal.signal(number, handler)


def _keep_notes_off_the_screen() -> None:
    """Send Ray's notes about dead processes to the log.

    Ray prints them to the driver's standard output, whatever `log_to_driver` says, between the lines of a program that
    is piped; and a worker's death, which they explain at length, is ordinary here. There is no public switch.
    """
    printing = ray_worker.print_to_stdstream

    def note(data: dict[str, Any], *args: Any, **options: Any) -> None:
        if data.get("pid") == "raylet":
            log.info("ray: %s", " ".join(data["lines"]))
        else:
            printing(data, *args, **options)

    ray_worker.print_to_stdstream = note


def disconnect() -> None:
    """Leave the cluster; one that `connect` started ends with this."""
    ray.shutdown()
