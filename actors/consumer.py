"""A consumer: one scanner with its housekeeping, its managers, and their workers; usually one per machine.

`Consumer` runs the actors in threads of this process. `ray_host` builds the same tree of Ray actors.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import NamedTuple

from fairlead.actors.coordinator import Coordinator
from fairlead.actors.execution.submitted_handlers import SubmittedHandlers
from fairlead.actors.external_reader import ExternalReader
from fairlead.actors.external_upkeep import ExternalUpkeep
from fairlead.actors.housekeeping.housekeeping import Housekeeping
from fairlead.actors.manager import Manager
from fairlead.actors.runtime.actor_identity import Identity
from fairlead.actors.runtime.host import Host
from fairlead.actors.runtime.supervisor import ActorFailed
from fairlead.actors.runtime.thread_host import (
    HAND_OVER_S_MAX,
    PendingCalls,
    ThreadHost,
    ThreadRemote,
    ThreadRunners,
    thread_supervisor,
)
from fairlead.actors.scanner import Scanner
from fairlead.actors.settings import ConsumerSettings
from fairlead.actors.telemetry.counters import Reading
from fairlead.actors.telemetry.telemetry import Exports, Telemetry
from fairlead.actors.worker import Isolation, Worker
from fairlead.zones.durations import Duration, duration_us
from fairlead.zones.engines import Clock
from fairlead.zones.external.store import NO_EXTERNALS, ExternalStore
from fairlead.zones.queue.periodic import Period
from fairlead.zones.shard import Shard

log = logging.getLogger("fairlead.consumer")


@dataclass(frozen=True, slots=True)
class Resources:
    """What an actor works with: the open shards, handlers and settings, the time and randomness of its host.

    `exports`: where the telemetry of its process goes.
    """

    shards: Mapping[str, Shard]
    settings: ConsumerSettings
    periods: Sequence[Period]
    submitted: SubmittedHandlers  # its registry also holds the application's own handlers
    clock: Clock
    random: Random
    exports: Exports = field(default_factory=Exports)
    externals: Mapping[str, ExternalStore] = field(default_factory=lambda: NO_EXTERNALS)  # by name


OpenResources = Callable[[], Resources]  # Crosses to other processes by pickle, and runs in each.


def assign_workers(workers: int, managers: int) -> list[list[int]]:
    """Return which workers belong to which manager, evenly."""
    return [list(range(number, workers, managers)) for number in range(managers)]


class ClockedCoordinator:
    """A coordinator with a clock, which a host wraps as an actor."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._coordinator = Coordinator()

    def request(self, shard_id: str, consumer: str, handed_over: bool, wanted: bool, lease_us: int) -> bool:
        """See `Coordinator.request`."""
        return self._coordinator.request(
            shard_id, consumer, handed_over=handed_over, wanted=wanted, lease_us=lease_us, now_us=self._clock.now_us()
        )


class ExternalLoop(NamedTuple):
    """The loops of a consumer for one external store."""

    reader: ExternalReader
    upkeep: ExternalUpkeep


def external_loops_of(
    host: Host, externals: Mapping[str, ExternalStore], shards: Mapping[str, Shard]
) -> list[ExternalLoop]:
    """Return the loops for each external store."""
    found = []
    for name, store in externals.items():
        reader = ExternalReader(host, name, store, shards)
        found.append(ExternalLoop(reader, ExternalUpkeep(host, name, store, reader)))
    return found


class ScannerLoops:
    """A scanner, its housekeeping and its loops for external stores, running, which a host wraps as an actor."""

    def __init__(
        self, host: Host, scanner: Scanner, housekeeping: Housekeeping, externals: Sequence[ExternalLoop] = ()
    ) -> None:
        self._scanner = scanner
        self._housekeeping = housekeeping
        self._externals = externals
        self._tasks = [host.spawn("scanner", scanner.run), host.spawn("housekeeping", housekeeping.run)]
        for each in externals:
            self._tasks += [
                host.spawn("reader", each.reader.run),
                host.spawn("upkeep", each.upkeep.run),
                host.spawn("vacuum", each.upkeep.run_vacuum),
            ]

    def counts(self) -> dict[str, int]:
        """See `Scanner.counts`."""
        return self._scanner.counts()

    def begin_stop(self) -> None:
        """Ask both loops to end; do not wait for them."""
        self._scanner.stop()
        self._housekeeping.stop()
        for each in self._externals:
            each.reader.stop()
            each.upkeep.stop()

    def stop(self) -> None:
        """End both loops, and wait for them."""
        self.begin_stop()
        for task in self._tasks:
            task.join(5.0)


class Consumer:
    """A consumer in threads of this process. It starts when made; `stop` drains it."""

    def __init__(self, resources: Resources, identity: Identity, coordinator: ClockedCoordinator | None = None) -> None:
        self._telemetry: dict[str, Telemetry] = {}
        self._failed = threading.Event()
        self._supervisor = supervisor = thread_supervisor(lambda reason: self._failed.set())

        def host_of(actor: str) -> ThreadHost:
            telemetry = self._telemetry[actor] = resources.exports.telemetry(actor, supervisor.fail)
            return ThreadHost(
                clock=resources.clock, random=resources.random, supervisor=supervisor, telemetry=telemetry
            )

        self._exports = resources.exports
        self._host = host = host_of("scanner")
        shards, registry, settings = resources.shards, resources.submitted.registry, resources.settings
        self._settings = settings
        worker_hosts = [host_of(f"worker-{number}").of_actor(number) for number in range(settings.workers)]
        self._workers = [_worker_of(each, resources, identity) for each in worker_hosts]
        isolated_host = host_of("isolated").of_actor(settings.workers)
        self._workers.append(_worker_of(isolated_host, resources, identity, Isolation.SHARED))
        for worker in self._workers:
            worker.start()
        self._pending_calls = PendingCalls()
        workers = [ThreadRemote(worker, "worker", supervisor, self._pending_calls) for worker in self._workers]
        self._managers = [
            Manager(
                host_of(f"manager-{index}"),
                shards,
                registry,
                settings,
                [workers[number] for number in numbers],
                isolated=workers[-1] if index == 0 else None,
                consumer_id=identity.consumer_id,
                index=index,
                count=settings.managers,
                externals=resources.externals,
            )
            for index, numbers in enumerate(assign_workers(settings.workers, settings.managers))
        ]
        managers = [ThreadRemote(manager, "manager", supervisor, self._pending_calls) for manager in self._managers]
        coordinating = ThreadRemote(coordinator or ClockedCoordinator(resources.clock), "coordinator", supervisor)
        self._remotes = [*workers, *managers, coordinating]
        scanner = Scanner(host, shards, settings, managers, coordinating, consumer=identity.consumer_id.hex())
        housekeeping = Housekeeping(
            host, shards, identity, resources.periods, resources.submitted, scanner, slots=settings.all_slots
        )
        self._loops = ScannerLoops(
            host, scanner, housekeeping, external_loops_of(host, resources.externals, resources.shards)
        )
        threading.Thread(target=self._await_failure, name="failure", daemon=True).start()

    def counts(self) -> dict[str, int]:
        """Return what the consumer has done since it started, summed over its actors."""
        total: Counter[str] = Counter()
        for counts in (self._loops.counts(), *(worker.counts() for worker in self._workers)):
            total.update(counts)
        return dict(total)

    def readings(self) -> dict[str, Reading]:
        """Return the telemetry counts of the actors, by their names."""
        return {actor: each.read() for actor, each in self._telemetry.items()}

    def check(self) -> None:
        """Return if every loop makes progress.

        Raises:
          ActorFailed: a loop died, or made no progress. The consumer takes no more items and has returned those that it
            held.
        """
        if self._supervisor.failure is not None:
            raise ActorFailed(reason=self._supervisor.failure)

    def _await_failure(self) -> None:
        """Once a loop has failed: take no more work, send no more heartbeats, and return the leased items.

        This process may be a user's own program: it goes on.
        """
        self._failed.wait()
        if self._supervisor.stopped:
            return
        self._loops.begin_stop()
        for manager in self._managers:
            manager.stop()
        for worker in self._workers:
            worker.abandon()

    def begin_drain(self) -> None:
        """See `Worker.begin_drain`: no item starts after this has returned."""
        for worker in self._workers:
            worker.begin_drain()

    def stop(self, *, drain: Duration | None = None) -> dict[str, int]:
        """Drain: start nothing new, let running items finish within `drain`, and return the others at once.

        A manager may be leasing items at that moment. It still hands them over, and the workers, which all drain at the
        same time, return them; this waits for it, up to `HAND_OVER_S_MAX`.
        """
        self.begin_drain()  # First: the scanner's loops may be waiting for a store.
        self._loops.stop()
        for manager in self._managers:
            manager.stop()
        wait_ms = self._settings.drain_ms if drain is None else duration_us("drain", drain) // 1000
        drains = [self._host.spawn("drain", partial(_drain, worker, wait_ms)) for worker in self._workers]
        for thread in drains:
            thread.join()
        if not self._pending_calls.wait_for("serve", "place", timeout_s=HAND_OVER_S_MAX):
            log.warning("a manager is still leasing items; those that it hands over now wait for their lease expiry")
        for remote in self._remotes:
            remote.close()
        self._supervisor.stop()
        self._failed.set()
        self._exports.close()
        return self.counts()


def _worker_of(
    host: ThreadHost, resources: Resources, identity: Identity, isolation: Isolation = Isolation.NONE
) -> Worker:
    return Worker(
        host,
        resources.shards,
        resources.submitted,
        resources.settings,
        ThreadRunners(host),
        identity,
        isolation,
        externals=resources.externals,
    )


def _drain(worker: Worker, drain_ms: int) -> None:
    worker.drain(drain_ms)
