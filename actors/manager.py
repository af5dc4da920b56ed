"""The manager: leases pointers, dequeues their items, and passes them to workers (QuiCK section 6, Algorithm 2).

One transaction processes a batch of pointers, and one call carries its items to a worker. A manager never takes more
items than its workers have capacity for: an item starts soon after it is leased.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from fairlead.actors.dispatch.batch_sizing import BatchSizer
from fairlead.actors.dispatch.concurrency_limiter import ConcurrencyLimiter
from fairlead.actors.dispatch.corruption_log import CorruptionLog
from fairlead.actors.dispatch.pointer_batches import PointerBatches, Results
from fairlead.actors.dispatch.policy_refresh import REFRESH_S, PolicyRefresh
from fairlead.actors.dispatch.reclaim import RECLAIM_S, Reclaimer, return_items
from fairlead.actors.dispatch.serve_result import ServeResult
from fairlead.actors.dispatch.worker_pool import ReservedCapacity, WorkerPool, share_of
from fairlead.actors.handlers import Registry
from fairlead.actors.messages import UNKNOWN_SCAN, ScanInfo, ServeReply
from fairlead.actors.runtime.host import Host, Remote
from fairlead.actors.runtime.periodic_task import PeriodicTask
from fairlead.actors.runtime.rate_limited_log import RateLimitedLog
from fairlead.actors.settings import ConsumerSettings
from fairlead.actors.telemetry.counters import Reading
from fairlead.actors.telemetry.errors import error_type
from fairlead.zones.external.store import NO_EXTERNALS, ExternalStore
from fairlead.zones.probes import probe
from fairlead.zones.queue.dequeue_plan import Capacity
from fairlead.zones.shard import Shard
from fairlead.zones.top_level.pointers import PointerRef

log = logging.getLogger("fairlead.manager")

STORE_RETRY_S = 0.5
CAPACITY_WAIT_US = 1_000_000  # The longest that a call waits for capacity of a worker.


class Manager:
    """One manager and its workers.

    `consumer_id`: whose manager it is. `index` of `count`: which share of the consumer's limits is this manager's.
    `isolated`: the consumer's worker for poison candidates, which only the first manager uses; it may not live yet.
    """

    def __init__(
        self,
        host: Host,
        shards: Mapping[str, Shard],
        registry: Registry,
        settings: ConsumerSettings,
        workers: Sequence[Remote],
        *,
        isolated: Remote | None = None,
        consumer_id: bytes,
        index: int = 0,
        count: int = 1,
        externals: Mapping[str, ExternalStore] = NO_EXTERNALS,
    ) -> None:
        self._host = host
        self._shards = shards
        self._lock = host.lock()
        self._changed = host.condition(self._lock)

        def limits() -> dict[str, int | None]:
            return {handler.kind: share_of(handler.max_running, index=index, count=count) for handler in registry}

        self._pool = WorkerPool(workers, self._lock, self._changed, limits=limits, isolated=isolated)
        self._batch_sizer = BatchSizer(dequeue_max=settings.dequeue_max)
        self._counts: Counter[str] = Counter()
        self._limiter = ConcurrencyLimiter(
            host, shards, self._lock, self._pool.usage,
            holder=consumer_id + bytes([index]), lease_us=settings.lease_ms * 1000,
        )  # fmt: skip
        self._externals = externals
        self._reclaimer = Reclaimer(shards, self._pool.members, self._lock, host.has_ended, externals)
        policies = PolicyRefresh(
            shards, self._lock, runs_something=self._pool.runs_something, apply=self._limiter.apply_policies
        )
        self._corruption_log = CorruptionLog()
        self._batches = PointerBatches(
            host, settings, self._lock, policies, self._corruption_log, consumer_id=consumer_id, externals=externals
        )
        self._periodic_tasks = (
            PeriodicTask(host, "reclaim", self._lock, self._reclaim_orphans, pause_s=RECLAIM_S),
            PeriodicTask(host, "policy refresh", self._lock, policies.refresh, pause_s=REFRESH_S),
        )
        self._stopping = False
        self._refusal_log = RateLimitedLog(host.clock, log, "shard %s cannot be served; trying again: %s")
        self._counters = host.telemetry.counters
        self._spans = host.telemetry.spans
        host.telemetry.read_by(self._reading)

    def serve(self, shard_name: str, refs: Sequence[PointerRef], scan: ScanInfo = UNKNOWN_SCAN) -> ServeReply:
        """Run Algorithm 2 for pointers of a shard that `scan` found, as far as the workers have capacity.

        Waits up to a second for capacity. If the pointers belong to more tenants than get a share of the capacity, some
        are left as they are; the scanner finds them again. While the store refuses, this is logged once, and each call
        waits a moment, so that the scanner slows down too.
        """
        served = ServeResult()
        with self._lock:
            self._await_capacity()
            reserved = self._pool.reserve(self._limiter)
            self._pool.ask_the_isolated()
        try:
            if reserved.capacity.items and not self._stopping:
                self._process(self._shards[shard_name], refs, reserved, served, scan)
        finally:
            with self._lock:
                self._pool.release(reserved)
                self._counts.update(served.counts)
                served.record_metrics(self._counters, shard_name)
        served.record_span(self._spans, shard_name, scan)
        with self._lock:
            return served.reply(capacity=self._capacity_left())

    def _process(
        self, shard: Shard, refs: Sequence[PointerRef], reserved: ReservedCapacity, served: ServeResult, scan: ScanInfo
    ) -> None:
        """Run Algorithm 2 for pointers, in transactions of many pointers (section 6).

        lines 1, 2     obtain the lease of p, or CONFLICT      `process_pointers.process_op`, or `lease` before it
        line 3         is_active                               whether the plan of `process_op` found an entry
        line 4         p_t                                     `PointerRecord.last_active_us`
        line 5         dequeue                                 `dequeue.plan_op`, `dequeue.apply_plan`
        line 6         pass the items to the workers pool      `_pass_to_workers`, after the commit
        lines 7 to 10  requeue p after vesting_delay           `process_pointers.delay_after`, `requeue_pointer_op`
        lines 11, 12   complete p if it is inactive            `process_pointers.requeue_pointer_op`
        line 13        SUCCESS                                 `PointerResult`
        """
        capacity, in_flight_limit = reserved.capacity, reserved.in_flight_limit
        batch = self._batch_sizer.choose(
            shard.name, refs, single_tenant=scan.single_tenant, capacity=capacity.items, in_flight_limit=in_flight_limit
        )
        served.began_us = self._host.clock.now_us()
        items_max, version = batch.batch_size.items_max, scan.version_at(served.began_us)
        try:
            # Lines 1 to 5 and 7 to 13 are one transaction of all pointers. Its commit obtains the leases of line 1.
            for results in self._batches.process(
                shard, batch.refs, capacity, items_max, served.counts, version=version
            ):
                self._pass_to_workers(shard, results, capacity, served)  # Line 6
            served.tenants = batch.tenants
            served_tenants = len(served.waited_us if scan.single_tenant else served.served_tenants)
            self._batch_sizer.learn(
                shard.name, batch.batch_size, served_tenants=served_tenants, items=served.counts["items"]
            )
        except shard.db.errors as error:
            served.ended_us, served.failed_by = self._host.clock.now_us(), error_type(error)
            self._wait_for_store(shard, error)
        else:
            served.ended_us = self._host.clock.now_us()

    def _pass_to_workers(self, shard: Shard, results: Results, capacity: Capacity, served: ServeResult) -> None:
        """Pass items to the workers pool, where each runs Algorithm 3 (line 6). They are leased and committed."""
        for result in results:
            self._corruption_log.note(shard.name, result)
        refs = served.note(shard.name, results, capacity, now_us=self._host.clock.now_us())
        with self._lock:
            self._batches.note_deferred(results)
            assignments, unassigned = self._pool.assign(refs)
            self._pool.met_poison_candidates |= served.counts["poison_candidates"] > 0
            self._limiter.spend_all(
                (ref.kind for each in assignments for ref in each.refs), [result.skipped_kinds for result in results]
            )
            for task in self._periodic_tasks:
                task.begin()
        self._pool.place(assignments)
        if unassigned:
            probe("items are leased for workers of which all are dead by now")
            return_items(shard, unassigned, self._externals)

    def await_capacity(self) -> int:
        """Return how many items the workers can take, once it is more than none, or after a second."""
        with self._lock:
            self._await_capacity()
            return self._capacity_left()

    def counts(self) -> dict[str, int]:
        """Return what was served since the start, and the items on their way to workers now."""
        with self._lock:
            return {**self._counts, "on_the_way": self._pool.on_the_way}

    def stop(self) -> None:
        """Process no more pointers. Further calls are answered after their second, so they are not repeated at once."""
        with self._lock:
            self._stopping = True
            self._limiter.stop()
            for task in self._periodic_tasks:
                task.stop()

    def _reading(self) -> Reading:
        """Return what telemetry counts."""
        with self._lock:
            return self._counters.read()

    def _wait_for_store(self, shard: Shard, error: Exception) -> None:
        self._refusal_log.note(shard.name, error)
        with self._lock:
            if not self._stopping:
                self._changed.wait(STORE_RETRY_S)

    def _reclaim_orphans(self) -> None:
        """Reclaim what dead workers had, and ask which of them live again."""
        self._reclaimer.reclaim_orphans()
        with self._lock:
            self._pool.ask_the_dead()

    def _await_capacity(self) -> None:
        """Wait up to a second until the workers have capacity. The lock is held."""
        if self._limiter.limited or self._pool.has_limits or not self._capacity_left():
            self._pool.ask()
        until_us = self._host.clock.now_us() + CAPACITY_WAIT_US
        while not self._capacity_left():
            left_us = min(until_us - self._host.clock.now_us(), CAPACITY_WAIT_US)  # A clock may be set back meanwhile.
            if left_us <= 0:
                break
            self._pool.ask_the_living()
            if not self._changed.wait(left_us / 1e6):
                break

    def _capacity_left(self) -> int:
        """Return how many items the workers can take; none once the manager is stopped. The lock is held."""
        return 0 if self._stopping else self._pool.capacity
