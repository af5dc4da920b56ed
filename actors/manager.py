"""The manager: leases pointers, dequeues their items, hands them to workers (QuiCK section 6, Algorithm 2).

One transaction serves a batch of pointers, and one call carries its items to a worker. When a batch conflicts it is
halved and tried again, so one hot pointer cannot sink its neighbours; a single pointer that conflicts is leased in a
transaction of its own first. A manager never takes more than its workers have room for: what it leases starts soon.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from fairlead.actors.dispatch.batch_sizing import BatchSizer
from fairlead.actors.dispatch.concurrency_limiter import ConcurrencyLimiter, Usage
from fairlead.actors.dispatch.corruption_log import CorruptionLog
from fairlead.actors.dispatch.policy_refresh import REFRESH_S, PolicyRefresh
from fairlead.actors.dispatch.reclaim import RECLAIM_S, Reclaimer, return_items
from fairlead.actors.dispatch.serve_result import ServeResult
from fairlead.actors.dispatch.worker_pool import WorkerPool, capacity_for_kinds, held_of_kind, share_of
from fairlead.actors.handlers import Registry
from fairlead.actors.messages import UNKNOWN_SCAN, ScanInfo, ServeReply
from fairlead.actors.runtime.host import Host, Remote
from fairlead.actors.runtime.periodic_task import PeriodicTask
from fairlead.actors.runtime.rate_limited_log import RateLimitedLog
from fairlead.actors.settings import ConsumerSettings
from fairlead.actors.telemetry.counters import Reading
from fairlead.actors.telemetry.errors import error_type
from fairlead.zones.engines import Transaction
from fairlead.zones.engines.api.errors import (
    NOT_COMMITTED,
    TRANSACTION_TOO_LARGE,
    TRANSACTION_TOO_OLD,
    StoreFull,
    error_code,
)
from fairlead.zones.errors import OwnerUnreadable, TenantMoved
from fairlead.zones.pipelining import run_one
from fairlead.zones.policy.policies import NO_POLICIES, Policies, read_policies_op
from fairlead.zones.probes import probe
from fairlead.zones.queue.dequeue_plan import UNLIMITED, Capacity
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.shard import Shard
from fairlead.zones.top_level.pointers import PointerRef
from fairlead.zones.top_level.process_pointers import DequeueParams, PointerOutcome, PointerResult, lease, process_all
from fairlead.zones.transaction_runner import Attempt

log = logging.getLogger("fairlead.manager")

STORE_RETRY_S = 0.5
CAN_BE_HALVED = (NOT_COMMITTED, TRANSACTION_TOO_OLD, TRANSACTION_TOO_LARGE)
# Of pointers that cannot run here so many are left to others, and passed over in every scan. More are sent to sleep.
DEFERRED_MAX = 2_000
CAPACITY_WAIT_US = 1_000_000  # The longest that a call waits for a worker to have room.


class Manager:
    """One manager and its workers.

    `consumer_id`: whose manager it is. `index` of `count`: which share of the consumer's limits is this manager's.
    `isolated`: the consumer's worker for suspects, of which the first manager alone disposes; it may not live yet.
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
    ) -> None:
        self._host = host
        self._shards = shards
        self._registry = registry
        self._settings = settings
        self._consumer_id = consumer_id
        self._share = (index, count)
        self._lock = host.lock()
        self._changed = host.condition(self._lock)
        self._pool = WorkerPool(workers, self._lock, self._changed, isolated=isolated)
        self._batch_sizer = BatchSizer(dequeue_max=settings.dequeue_max)
        self._reserved: Counter[str] = Counter()  # how many of kinds with limits the calls under way may take
        self._reserved_poison_candidates = 0  # and how many suspects
        self._deferred_until_us: dict[bytes, int] = {}  # pointers that it has left to others, and until when
        self._counts: Counter[str] = Counter()
        self._policies = dict.fromkeys(shards, NO_POLICIES)  # as they were found last
        self._limiter = ConcurrencyLimiter(
            host, shards, self._lock, self._usage,
            holder=consumer_id + bytes([index]), lease_us=settings.lease_ms * 1000,
        )  # fmt: skip
        self._reclaimer = Reclaimer(shards, self._pool.members, self._lock, host.has_ended)
        policy_refresh = PolicyRefresh(
            shards, self._lock, runs_something=self._runs_something, refresh_shard=self._refresh_policies
        )
        self._periodic_tasks = (
            PeriodicTask(host, "freeing", self._lock, self._reclaim_orphans, pause_s=RECLAIM_S),
            PeriodicTask(host, "hearing", self._lock, policy_refresh.refresh, pause_s=REFRESH_S),
        )
        self._stopping = False
        self._refusal_log = RateLimitedLog(host.clock, log, "shard %s cannot be served; trying again: %s")
        self._corruption_log = CorruptionLog()
        self._counters = host.telemetry.counters
        self._spans = host.telemetry.spans
        host.telemetry.read_by(self._reading)

    def serve(self, shard_name: str, refs: Sequence[PointerRef], scan: ScanInfo = UNKNOWN_SCAN) -> ServeReply:
        """Serve pointers of a shard: lease what their zones hold, as far as workers have room, and hand it over.

        Waits up to a second for room. Pointers of more zones than get a part of the room are left as they are;
        the scanner will find them again.
        While the store refuses, that is said once, and each call waits a moment, so that the scanner slows down too.
        `scan`: the one that found them.
        """
        with self._lock:
            self._await_capacity()
            capacity, limited = self._reserve_capacity()
            reserved_poison_candidates = capacity.poison_candidates
            self._pool.ask_the_isolated()
            in_flight_limit = self._pool.in_flight_limit
        served = ServeResult()
        try:
            if capacity.items and not self._stopping:
                self._serve(self._shards[shard_name], refs, capacity, in_flight_limit, served, scan)
        finally:
            with self._lock:
                self._reserved.subtract(limited)
                self._reserved_poison_candidates -= reserved_poison_candidates
                self._counts.update(served.counts)
                served.record_metrics(self._counters, shard_name)
        if self._spans is not None and served.counts["items"]:
            self._spans.serve(
                shard_name,
                traces=served.traces,
                items=served.counts["items"],
                began_us=served.began_us,
                ended_us=served.ended_us,
                scan=scan.trace,
                failed_by=served.failed_by,
            )
        with self._lock:
            return served.reply(capacity=self._capacity_left())

    def _reading(self) -> Reading:
        """Return what telemetry counts."""
        with self._lock:
            return self._counters.read()

    def await_room(self) -> int:
        """Answer with how many items the workers can take, once it is more than none, or after a second."""
        with self._lock:
            self._await_capacity()
            return self._capacity_left()

    def counts(self) -> dict[str, int]:
        """Return what was served since the start, and the items on their way to workers now."""
        with self._lock:
            return {**self._counts, "on_the_way": self._pool.on_the_way}

    def stop(self) -> None:
        """Serve nothing any more. Further calls are answered after their second, so nobody asks again and again."""
        with self._lock:
            self._stopping = True
            self._limiter.stop()
            for task in self._periodic_tasks:
                task.stop()

    def _serve(
        self,
        shard: Shard,
        refs: Sequence[PointerRef],
        capacity: Capacity,
        in_flight_limit: int,
        served: ServeResult,
        scan: ScanInfo,
    ) -> None:
        chosen, tenants, batch_size = self._batch_sizer.choose(
            shard.name, refs, alone=scan.alone, capacity=capacity.items, in_flight_limit=in_flight_limit
        )
        served.began_us = self._host.clock.now_us()
        try:
            self._serve_batch(shard, chosen, capacity, batch_size.items_max, served, scan.version_at(served.began_us))
            served.tenants = tenants
            served_tenants = len(served.waited_us if scan.alone else served.served_tenants)
            self._batch_sizer.learn(shard.name, batch_size, served_tenants=served_tenants, items=served.counts["items"])
        except shard.db.errors as error:
            served.ended_us, served.failed_by = self._host.clock.now_us(), error_type(error)
            self._wait_for_store(shard, error)
        else:
            served.ended_us = self._host.clock.now_us()

    def _wait_for_store(self, shard: Shard, error: Exception) -> None:
        self._refusal_log.note(shard.name, error)
        with self._lock:
            if not self._stopping:
                self._changed.wait(STORE_RETRY_S)

    def _serve_batch(
        self,
        shard: Shard,
        refs: list[PointerRef],
        capacity: Capacity,
        items_max: int,
        served: ServeResult,
        version: int = 0,
    ) -> None:
        """Visit pointers together, and take up to `items_max` from each tenant; in halves where that cannot be."""
        lease_id = self._host.random.randbytes(16)
        moved = False
        try:
            results = self._process_pointers(shard, refs, capacity, items_max, lease_id, version)
        except TenantMoved as error:
            moved = True
            if isinstance(error, OwnerUnreadable) and len(refs) == 1:
                self._corruption_log.note_owner(shard.name, shard.layout, refs[0], error)
        except shard.db.errors as error:
            code = error_code(error)
            served.counts["conflicts"] += code == NOT_COMMITTED
            if version and code in (NOT_COMMITTED, TRANSACTION_TOO_OLD):
                probe("a visit at the read version of its scan conflicts, and is made at a new one")
                self._serve_batch(shard, refs, capacity, items_max, served)
                return
            full = isinstance(error, StoreFull)
            if (full or code == TRANSACTION_TOO_LARGE) and len(refs) == 1 and items_max > 1:
                self._serve_batch(shard, refs, capacity, items_max // 2, served)
                return
            if code not in CAN_BE_HALVED and not (full and len(refs) > 1):
                raise
        else:
            self._hand_over(shard, results, capacity, served)
            return
        if len(refs) > 1:
            probe("a batch of visits conflicts and is halved")
            half = len(refs) // 2
            self._serve_batch(shard, refs[:half], capacity, items_max, served)
            self._serve_batch(shard, refs[half:], capacity, items_max, served)
        elif moved:
            self._lease_moved(shard, refs[0], served)
        else:
            served.counts["missed_at_commit"] += 1
            self._serve_contended(shard, refs[0], capacity, items_max, served)

    def _serve_contended(
        self, shard: Shard, ref: PointerRef, capacity: Capacity, items_max: int, served: ServeResult
    ) -> None:
        probe("a contended pointer is leased first")
        try:
            results = self._process_leased_pointer(shard, ref, capacity, items_max)
        except TenantMoved:
            self._lease_moved(shard, ref, served)
        else:
            self._hand_over(shard, results, capacity, served)

    def _lease_moved(self, shard: Shard, ref: PointerRef, served: ServeResult) -> None:
        """Let nobody look at the pointer of a tenant that has moved before a lease on it ends."""
        served.counts["moved"] += 1
        self._lease(shard, ref)

    def _process_pointers(
        self,
        shard: Shard,
        refs: Sequence[PointerRef],
        capacity: Capacity,
        items_max: int,
        lease_id: bytes,
        version: int = 0,
    ) -> list[PointerResult]:
        """Visit pointers in one transaction. After an unknown result, items that carry `lease_id` are ours."""
        settings = self._settings
        results: list[PointerResult] = []
        known = found = self._policies[shard.name]

        def body(attempt: Attempt) -> list[PointerResult]:
            nonlocal results, found
            shard.relax_read_version(attempt.tr)
            if version:
                attempt.tr.set_read_version(version)
            params = DequeueParams(
                now_us=attempt.now_us,
                lease_id=lease_id,
                lease_us=settings.lease_ms * 1000,
                items_max=items_max,
                throttle_delay_us=settings.throttle_delay_ms * 1000,
                pause_recheck_us=settings.pause_recheck_ms * 1000,
                may_defer=self._may_defer(attempt.now_us),
                holder=self._consumer_id,
            )
            this_capacity = capacity.fresh()
            results, found = process_all(attempt.tr, shard.layout, refs, this_capacity, params, known)
            return results

        def applied(tr: Transaction) -> bool:
            for result in results:
                for item in result.items:
                    assert result.location is not None
                    value = tr.get(result.location.keys.item(item.id)).value
                    record = None if value is None else decode(ItemRecord, value)
                    if record is not None and record.lease_id == lease_id:
                        probe("a dequeue of unknown result is found applied")
                        return True
            return False

        try:
            return shard.transact(shard.in_exclusive_section(body), applied=applied, retries_max=0)
        finally:
            tightened = found.tighter_than(
                capacity.observed
            )  # when this call began; perhaps others have heard of it since
            for kind in tightened:
                capacity.exhaust(kind)
            if tightened or found is not known:
                self._apply_policies(shard, found)

    def _refresh_policies(self, shard: Shard) -> None:
        """Look whether the rules of a shard have changed."""
        known = self._policies[shard.name]
        found = shard.transact(lambda attempt: run_one(read_policies_op(attempt.tr, known)))
        if found is not known:
            self._apply_policies(shard, found)

    def _apply_policies(self, shard: Shard, found: Policies) -> None:
        with self._lock:
            self._policies[shard.name] = found
            self._limiter.apply_policies(found)

    def _may_defer(self, now_us: int) -> bool:
        """Say whether it may leave more pointers to others."""
        if len(self._deferred_until_us) >= DEFERRED_MAX:
            with self._lock:
                self._deferred_until_us = {each: us for each, us in self._deferred_until_us.items() if us > now_us}
        return len(self._deferred_until_us) < DEFERRED_MAX

    def _lease(self, shard: Shard, ref: PointerRef) -> bytes | None:
        """Take a lease on a pointer, and return its id; None if somebody else has it."""
        lease_id = self._host.random.randbytes(16)
        lease_us = self._settings.pointer_lease_ms * 1000

        def take(attempt: Attempt) -> bool:
            return lease(attempt.tr, shard.layout, ref, lease_id=lease_id, lease_us=lease_us, now_us=attempt.now_us)

        return lease_id if shard.transact(take) else None

    def _process_leased_pointer(
        self, shard: Shard, ref: PointerRef, capacity: Capacity, items_max: int
    ) -> list[PointerResult]:
        """Visit one contended pointer under a lease of its own, if it can be had."""
        lease_id = self._lease(shard, ref)
        if lease_id is None:
            return [PointerResult(ref, PointerOutcome.LEASED)]
        try:
            return self._process_pointers(shard, [ref], capacity, items_max, lease_id)
        except shard.db.errors as error:
            if error_code(error) not in CAN_BE_HALVED:
                raise
            probe("a visit conflicts although its pointer is leased")
            return []  # the lease runs out by itself

    def _hand_over(
        self, shard: Shard, results: Sequence[PointerResult], capacity: Capacity, served: ServeResult
    ) -> None:
        now_us = self._host.clock.now_us()
        for result in results:
            if result.unreadable:
                self._corruption_log.note(shard.name, result)
        refs = served.note(shard.name, results, capacity, now_us=now_us)
        with self._lock:
            self._deferred_until_us.update((each.id, each.until_us) for each in served.deferred)
            assignments, unassigned = self._pool.assign(refs)
            self._pool.met_poison_candidates = self._pool.met_poison_candidates or served.counts["suspects"] > 0
            taken = (
                Counter(ref.kind for assignment in assignments for ref in assignment.refs)
                if self._limiter.limited
                else Counter()
            )
            for kind in self._limiter.limited:
                self._limiter.spend(kind, taken[kind], more=any(kind in result.skipped_kinds for result in results))
            for task in self._periodic_tasks:
                task.begin()
        self._pool.place(assignments)
        if unassigned:
            probe("items are leased for workers of which all are dead by now")
            return_items(shard, unassigned)

    def _reclaim_orphans(self) -> None:
        """Free what dead workers had, and hear which of them are back: work that one can do needs no other's room."""
        self._reclaimer.reclaim_orphans()
        with self._lock:
            self._pool.ask_the_dead()

    def _await_capacity(self) -> None:
        """Wait up to a second until the crew has room. The lock is held."""
        limited = self._limiter.limited or any(handler.max_running is not None for handler in self._registry)
        if limited or not self._capacity_left():
            self._pool.ask()
        until_us = self._host.clock.now_us() + CAPACITY_WAIT_US
        while not self._capacity_left():
            left_us = min(until_us - self._host.clock.now_us(), CAPACITY_WAIT_US)  # A clock may be set back meanwhile.
            if left_us <= 0:
                break
            self._pool.ask_the_living()
            if not self._changed.wait(left_us / 1e6):
                break

    def _reserve_capacity(self) -> tuple[Capacity, dict[str, int]]:
        """Return the room of the crew, and how much of it is of kinds with limits. The lock is held.

        That much is granted to one call alone, until it has ended: two that run side by side would each use it all. Of
        other kinds too many cost a wait in the worker; of these, too many would run.
        """
        index, count = self._share
        limits = {handler.kind: share_of(handler.max_running, index=index, count=count) for handler in self._registry}
        kinds = capacity_for_kinds(self._pool.members, limits, UNLIMITED)
        for kind in self._limiter.limited & kinds.keys():
            kinds[kind] = min(kinds[kind], self._limiter.available(kind))
        counted = self._limiter.limited | {kind for kind, limit in limits.items() if limit is not None}
        limited = {kind: max(0, kinds[kind] - self._reserved[kind]) for kind in kinds.keys() & counted}
        self._reserved.update(limited)
        poison_candidates = max(0, self._pool.poison_candidate_capacity - self._reserved_poison_candidates)
        self._reserved_poison_candidates += poison_candidates
        return Capacity(
            self._capacity_left(), {**kinds, **limited}, self._limiter.observed, poison_candidates=poison_candidates
        ), limited

    def _usage(self, kind: str) -> Usage:
        """Return what is used of a kind, and ask the workers, so that what they say next is new. The lock is held."""
        self._pool.ask_the_living()
        return Usage(held_of_kind(self._pool.members, kind), self._reserved[kind])

    def _runs_something(self) -> bool:
        """Return whether a worker held anything when it was heard of last, and ask it. The lock is held."""
        self._pool.ask_the_living()
        return self._pool.runs_something

    def _capacity_left(self) -> int:
        """Return how many items the workers can take; none once the manager is stopped. The lock is held."""
        return 0 if self._stopping else self._pool.capacity
