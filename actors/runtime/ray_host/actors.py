"""The actors of a consumer, each one process around its plain class, and how they start and end."""

import itertools
import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import Any, TypeVar, cast

import ray
from ray.exceptions import RayError, RayTaskError

from fairlead.actors.consumer import ClockedCoordinator, OpenResources, Resources, ScannerLoops, external_loops_of
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.job import Job
from fairlead.actors.execution.submitted_handlers import keep_loading
from fairlead.actors.housekeeping.housekeeping import Housekeeping
from fairlead.actors.manager import Manager
from fairlead.actors.messages import ItemRef, Report, ScanInfo, ServeReply
from fairlead.actors.runtime.actor_identity import Identity
from fairlead.actors.runtime.garbage_collection import collect_rarely
from fairlead.actors.runtime.host import Host
from fairlead.actors.runtime.ray_host.calls import RayRemote, called_with
from fairlead.actors.runtime.ray_host.restarts import restarting_supervisor
from fairlead.actors.runtime.ray_host.tasks import Tasks
from fairlead.actors.runtime.thread_host import HAND_OVER_S_MAX, PendingCalls, ThreadHost, ThreadRunners
from fairlead.actors.scanner import Scanner
from fairlead.actors.telemetry.counters import Reading
from fairlead.actors.telemetry.enqueue_counts import ENQUEUE_COUNTS, EnqueueCall
from fairlead.actors.telemetry.record_counts import RECORD_COUNTS
from fairlead.actors.worker import Isolation, Worker
from fairlead.zones.engines import Clock
from fairlead.zones.engines.api.progress import unsupervised
from fairlead.zones.top_level.pointers import PointerRef

log = logging.getLogger("fairlead.ray")

COORDINATOR = "coordinator-1"  # The number changes with its interface; old and new fleets then have one each.
RECYCLE_DRAIN_MS = 2_000
OPEN_RETRY_S = 1.0
RAYLET_LOOK_S = 2.0
REPORT_S_MAX = 1.0  # A task waits at most this long for a worker to take its progress.


class RayRunners(ThreadRunners):
    """Runs coroutines on one event loop of this process, and Ray remote functions as Ray tasks.

    `worker`: the handle of this actor, to which the tasks report their progress.
    """

    def __init__(self, host: Host, worker: Any, tasks: Tasks) -> None:
        super().__init__(host)
        self._worker = worker
        self._tasks = tasks
        self._jobs_by_number: dict[int, Job] = {}  # jobs that run as tasks, by number
        self._numbers = itertools.count()

    def run_remote(self, function: Any, held: HeldItem) -> Any:
        """See `Runners`. After its timeout the task is killed, on a thread of its own: the caller may hold a lock."""
        number, job = next(self._numbers), held.job
        self._jobs_by_number[number] = job
        job.report_progress_to(ProgressReporter(self._worker, number))
        try:
            reference = self._tasks.start(function, job)
            job.on_cancel(partial(self._host.spawn, "kill task", partial(_kill_task, reference, held)))
            return ray.get(reference)
        except RayTaskError as error:
            raise error.cause from error  # which holds the traceback of the task's process
        finally:
            del self._jobs_by_number[number]

    def record_progress(self, number: int, done: float, total: float | None, note: str) -> None:
        """Record the progress that a task reports, unless it has ended."""
        job = self._jobs_by_number.get(number)
        if job is not None:
            job.record_progress(done, total, note)


class ProgressReporter:
    """Reports the progress of a job in a Ray task to the worker that started the task. It is sent with the job.

    It waits for each message before it sends the next. So a handler that reports in each iteration of a loop is slowed
    to a thousand iterations a second, and does not flood the worker.
    """

    def __init__(self, worker: Any, number: int) -> None:
        self._worker = worker
        self._number = number
        self._last: Any = None

    def __call__(self, done: float, total: float | None, note: str) -> None:
        """Send it."""
        if self._last is not None:
            ray.wait([self._last], timeout=REPORT_S_MAX)
        self._last = self._worker.record_progress.remote(self._number, done, total, note)


class EnqueueReporter:
    """Reports the enqueues of a Ray task to the worker that started the task. It is sent with the task."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    def __call__(self, sent: Sequence[EnqueueCall]) -> None:
        """Send it, and wait until it has arrived: the task's process may end with the task."""
        ray.wait([self._worker.record_enqueues.remote(sent)], timeout=REPORT_S_MAX)


def _kill_task(reference: Any, held: HeldItem) -> None:
    """Kill the task of an item. If Ray cannot, log it and let the task run; its result is ignored.

    An error of Ray does not fail this worker.
    """
    try:
        with unsupervised():  # Ray's head may be out of reach for long.
            ray.cancel(reference, force=True)
    except (RayError, TypeError, ValueError) as error:  # The last two: Ray cannot cancel this kind of reference.
        log.warning(
            "a Ray task cannot be killed and goes on, kind=%s item=%s: %s: %s",
            held.ref.kind, held.ref.item_id.hex(), type(error).__name__, error,
        )  # fmt: skip


Begin = TypeVar("Begin", bound=Callable[..., None])


def _exit_if_it_fails(begin: Begin) -> Begin:
    """Let a failing constructor of an actor end the process after a moment, so that Ray starts another.

    Ray never restarts an actor whose constructor raises, whatever `max_restarts` says. An unreachable store, or a
    thread that cannot be started, would cost the fleet that worker for good.
    """

    @wraps(begin)
    def begin_or_exit(*args: Any, **options: Any) -> None:
        try:
            begin(*args, **options)
        except BaseException:
            log.exception("this actor cannot start; trying again")
            threading.Event().wait(OPEN_RETRY_S)
            os._exit(1)

    return cast(Begin, begin_or_exit)


class WorkerActor:
    """A `Worker` with a process of its own."""

    @_exit_if_it_fails
    def __init__(
        self, open_resources: OpenResources, name: str, identity: Identity, isolation: Isolation = Isolation.NONE
    ) -> None:
        os.environ["RAY_TASK_MAX_RETRIES"] = "0"  # A handler's retries are counted in the store only.
        resources = _open(open_resources)
        self._exports = resources.exports
        self.supervisor = supervisor = restarting_supervisor(resources.clock, self._abandon)
        self._telemetry = resources.exports.telemetry(name, supervisor.fail)
        host = ThreadHost(
            clock=resources.clock,
            random=resources.random,
            supervisor=supervisor,
            telemetry=self._telemetry,
            on_recycle=self._recycle,
        )
        here = replace(identity, pid=os.getpid())
        this = ray.get_runtime_context().current_actor
        runners = RayRunners(host, this, Tasks(resources.exports.process_setup(), EnqueueReporter(this)))
        self._worker = Worker(
            host, resources.shards, resources.submitted, resources.settings, runners, here, isolation,
            externals=resources.externals,
        )  # fmt: skip
        self._runners = runners
        self._worker.start()
        host.spawn("loading", partial(keep_loading, host, resources.submitted, resources.shards))
        _drain_on_sigterm(lambda: self.drain(resources.settings.drain_ms))

    @called_with(list[ItemRef], bytes)
    def place(self, refs: Sequence[ItemRef], incarnation: bytes) -> Report:
        return self._worker.place(refs, incarnation)

    @called_with(int)
    def await_progress(self, seen: int) -> Report:
        return self._worker.await_progress(seen)

    def counts(self) -> dict[str, int]:
        return {**self._worker.counts(), "pid": os.getpid()}

    def reading(self) -> Reading:
        return self._telemetry.read() + ENQUEUE_COUNTS.read() + RECORD_COUNTS.read()

    def begin_drain(self) -> None:
        self._worker.begin_drain()

    def drain(self, drain_ms: int) -> dict[str, int]:
        counts = self._worker.drain(drain_ms)
        self._exports.close()
        return counts

    def record_progress(self, number: int, done: float, total: float | None, note: str) -> None:
        self._runners.record_progress(number, done, total, note)

    def record_enqueues(self, sent: Sequence[EnqueueCall]) -> None:
        for each in sent:
            ENQUEUE_COUNTS.add(each)

    def _abandon(self) -> None:
        self._worker.abandon()

    def _recycle(self, reason: str) -> None:
        log.error("this worker restarts: %s", reason)

        def leave() -> None:
            try:
                self.drain(RECYCLE_DRAIN_MS)
            finally:
                os._exit(1)  # blocked threads would delay an ordinary exit

        threading.Thread(target=leave, daemon=True).start()


class ManagerActor:
    """A `Manager` with a process of its own."""

    @_exit_if_it_fails
    def __init__(
        self,
        open_resources: OpenResources,
        name: str,
        workers: Sequence[str],
        isolated: str | None,
        consumer_id: bytes,
        index: int,
        count: int,
    ) -> None:
        resources = _open(open_resources)
        self._exports = resources.exports
        self.supervisor = supervisor = restarting_supervisor(resources.clock)
        self._telemetry = resources.exports.telemetry(name, supervisor.fail)
        host = ThreadHost(
            clock=resources.clock,
            random=resources.random,
            supervisor=supervisor,
            telemetry=self._telemetry,
        )
        host.spawn("loading", partial(keep_loading, host, resources.submitted, resources.shards))
        self._pending_calls = PendingCalls()
        self._manager = Manager(
            host,
            resources.shards,
            resources.submitted.registry,
            resources.settings,
            [RayRemote(worker, supervisor, self._pending_calls) for worker in workers],
            isolated=None if isolated is None else RayRemote(isolated, supervisor, self._pending_calls),
            consumer_id=consumer_id,
            index=index,
            count=count,
            externals=resources.externals,
        )
        _drain_on_sigterm(self.stop)

    @called_with(str, list[PointerRef], ScanInfo)
    def serve(self, shard_name: str, refs: Sequence[PointerRef], scan: ScanInfo) -> ServeReply:
        self._pending_calls.begin("serve")
        try:
            return self._manager.serve(shard_name, refs, scan)
        finally:
            self._pending_calls.end("serve")

    @called_with()
    def await_capacity(self) -> int:
        return self._manager.await_capacity()

    def counts(self) -> dict[str, int]:
        return {**self._manager.counts(), "pid": os.getpid()}

    def reading(self) -> Reading:
        return self._telemetry.read()

    def stop(self) -> None:
        """Serve nothing more, and wait until the workers have the items that are being leased."""
        self._manager.stop()
        if not self._pending_calls.wait_for("serve", "place", timeout_s=HAND_OVER_S_MAX):
            log.warning("this manager is still leasing items; leases of items that it sends now may expire")
        self._exports.close()


class ScannerActor:
    """A `Scanner` and its housekeeping with a process of their own."""

    @_exit_if_it_fails
    def __init__(self, open_resources: OpenResources, managers: Sequence[str], identity: Identity) -> None:
        resources = _open(open_resources)
        self._exports = resources.exports
        supervisor = restarting_supervisor(resources.clock)
        host = ThreadHost(
            clock=resources.clock,
            random=resources.random,
            supervisor=supervisor,
            telemetry=resources.exports.telemetry("scanner", supervisor.fail),
        )
        scanner = Scanner(
            host,
            resources.shards,
            resources.settings,
            [RayRemote(manager, supervisor) for manager in managers],
            RayRemote(COORDINATOR, supervisor),
            consumer=identity.consumer_id.hex(),
        )
        slots = resources.settings.all_slots
        housekeeping = Housekeeping(
            host, resources.shards, identity, resources.periods, resources.submitted, scanner, slots=slots
        )
        self._loops = ScannerLoops(
            host, scanner, housekeeping, external_loops_of(host, resources.externals, resources.shards)
        )
        _drain_on_sigterm(self.stop)

    def counts(self) -> dict[str, int]:
        return {**self._loops.counts(), "pid": os.getpid()}

    def stop(self) -> None:
        self._loops.stop()
        self._exports.close()


class CoordinatorActor:
    """The `Coordinator` of the cluster with a process of its own."""

    @_exit_if_it_fails
    def __init__(self, clock: Clock) -> None:
        _end_with_raylet()
        self.supervisor = restarting_supervisor(clock)
        self._coordinator = ClockedCoordinator(clock)

    @called_with(str, str, bool, bool, int)
    def request(self, shard_id: str, consumer: str, handed_over: bool, wanted: bool, lease_us: int) -> bool:
        return self._coordinator.request(shard_id, consumer, handed_over, wanted, lease_us)

    def pid(self) -> int:
        return os.getpid()


def _open(open_resources: OpenResources) -> Resources:
    """Open the resources of an actor."""
    _end_with_raylet()
    resources = open_resources()
    collect_rarely()
    return resources


def _end_with_raylet() -> None:
    """End this process soon after its parent, the raylet of its node, has died.

    Ray then considers its actors dead and calls to them fail. Without this they would continue to send heartbeats.
    """
    raylet = os.getppid()

    def watch() -> None:
        pause = threading.Event()
        while os.getppid() == raylet:
            pause.wait(RAYLET_LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, name="raylet watch", daemon=True).start()


def _drain_on_sigterm(drain: Callable[[], object]) -> None:
    """Let a SIGTERM drain this actor before its process ends. Ray's own handler would end it at once.

    Ray then restarts the actor if the fleet goes on. On a machine that shuts down Ray's daemon gets the signal too, and
    restarts nothing. `fairlead run` drains a fleet itself, and ends its actors without a restart.
    """

    def leave() -> None:
        try:
            drain()
        finally:
            os._exit(1)  # after an ordinary exit Ray would not restart the actor

    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=leave, daemon=True).start())
