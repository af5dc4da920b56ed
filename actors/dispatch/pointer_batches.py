"""The transactions that process a batch of pointers, and what happens when one of them cannot commit.

A batch that conflicts is halved, and each half is tried again: one contended pointer must not hold up the others. A
single pointer that conflicts is leased first, in a transaction of its own. The pointer of a tenant that has moved to
another shard is deleted; if its ownership record cannot be read, the pointer is leased, so that no consumer looks at it
before the lease ends. The pointer of a tenant that is locked is left alone for some milliseconds.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from fairlead.actors.dispatch.corruption_log import CorruptionLog
from fairlead.actors.dispatch.external_visits import ExternalVisits, by_store
from fairlead.actors.dispatch.policy_refresh import PolicyRefresh
from fairlead.actors.runtime.host import Host, Lock
from fairlead.actors.settings import ConsumerSettings
from fairlead.zones.engines import Transaction
from fairlead.zones.engines.api.errors import (
    NOT_COMMITTED,
    TRANSACTION_TOO_LARGE,
    TRANSACTION_TOO_OLD,
    StoreFull,
    error_code,
)
from fairlead.zones.errors import OwnerUnreadable, TenantLocked, TenantMoved
from fairlead.zones.external.store import NO_EXTERNALS, ExternalStore
from fairlead.zones.probes import probe
from fairlead.zones.queue.dequeue_plan import Capacity
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.shard import Shard
from fairlead.zones.top_level.pointers import PointerRef
from fairlead.zones.top_level.process_pointers import (
    Deferred,
    DequeueParams,
    PointerOutcome,
    PointerResult,
    drop_moved,
    lease,
    process_pointers,
)
from fairlead.zones.transaction_runner import Attempt

CAN_BE_HALVED = (NOT_COMMITTED, TRANSACTION_TOO_OLD, TRANSACTION_TOO_LARGE)
# So many pointers that cannot run here are left to other consumers, and passed over by every scan. Others sleep.
DEFERRED_MAX = 2_000
LOCKED_RECHECK_US = 10_000  # A transaction across shards holds its locks for a few commits.

Results = list[PointerResult]


class PointerBatches:
    """Processes batches of pointers for one manager, whose calls may run concurrently.

    `lock`: the manager's. `consumer_id`: the manager's consumer. `policies`: as they were found last; what a batch
    finds is observed there.
    """

    def __init__(
        self,
        host: Host,
        settings: ConsumerSettings,
        lock: Lock,
        policies: PolicyRefresh,
        corruption_log: CorruptionLog,
        *,
        consumer_id: bytes,
        externals: Mapping[str, ExternalStore] = NO_EXTERNALS,
    ) -> None:
        self._host = host
        self._settings = settings
        self._lock = lock
        self._policies = policies
        self._corruption_log = corruption_log
        self._consumer_id = consumer_id
        self._external = ExternalVisits(
            host, externals, policies, self._params, leave_locked=self._leave_locked, drop_moved=self._drop_moved
        )
        self._deferred_until_us: dict[bytes, int] = {}  # pointers that it has left to others, and until when

    def process(
        self,
        shard: Shard,
        refs: Sequence[PointerRef],
        capacity: Capacity,
        items_max: int,
        counts: Counter[str],
        *,
        version: int = 0,
    ) -> Iterator[Results]:
        """Process pointers together, and yield the results of each transaction once it is committed.

        The caller takes the items of one result out of `capacity` before it asks for the next.

        Args:
          items_max: how many items each tenant may give.
          counts: `conflicts`, `missed_at_commit` and `moved` are added to it.
          version: the read version to use; 0: a new one.
        """
        for store, some in by_store(shard.layout, refs).items():
            if store is None:
                yield from self._process(shard, some, capacity, items_max, counts, version=version)
            else:
                yield from self._external.process(shard, store, some, capacity, items_max, counts)

    def _process(
        self,
        shard: Shard,
        refs: Sequence[PointerRef],
        capacity: Capacity,
        items_max: int,
        counts: Counter[str],
        *,
        version: int = 0,
    ) -> Iterator[Results]:
        lease_id = self._host.random.randbytes(16)
        moved = locked = False
        try:
            results = self._transact(shard, refs, capacity, items_max, lease_id, version)
        except TenantLocked:
            locked = True
        except TenantMoved as error:
            moved = True
            if isinstance(error, OwnerUnreadable) and len(refs) == 1:
                self._corruption_log.note_owner(shard.name, shard.layout, refs[0], error)
        except shard.db.errors as error:
            code = error_code(error)
            counts["conflicts"] += code == NOT_COMMITTED
            if version and code in (NOT_COMMITTED, TRANSACTION_TOO_OLD):
                probe("a batch at the read version of its scan conflicts, and is tried at a new one")
                yield from self._process(shard, refs, capacity, items_max, counts)
                return
            full = isinstance(error, StoreFull)
            if (full or code == TRANSACTION_TOO_LARGE) and len(refs) == 1 and items_max > 1:
                yield from self._process(shard, refs, capacity, items_max // 2, counts)
                return
            if code not in CAN_BE_HALVED and not (full and len(refs) > 1):
                raise
        else:
            yield results
            return
        if len(refs) > 1:
            probe("a batch of pointers conflicts and is halved")
            half = len(refs) // 2
            yield from self._process(shard, refs[:half], capacity, items_max, counts)
            yield from self._process(shard, refs[half:], capacity, items_max, counts)
        elif locked:
            yield [self._leave_locked(refs[0])]
        elif moved:
            self._drop_moved(shard, refs[0], counts)
        else:
            counts["missed_at_commit"] += 1
            yield from self._process_contended(shard, refs[0], capacity, items_max, counts)

    def _process_contended(
        self, shard: Shard, ref: PointerRef, capacity: Capacity, items_max: int, counts: Counter[str]
    ) -> Iterator[Results]:
        probe("a contended pointer is leased first")
        try:
            results = self._process_leased(shard, ref, capacity, items_max)
        except TenantLocked:
            yield [self._leave_locked(ref)]
        except TenantMoved:
            self._drop_moved(shard, ref, counts)
        else:
            yield results

    def _process_leased(self, shard: Shard, ref: PointerRef, capacity: Capacity, items_max: int) -> Results:
        """Process one contended pointer under a written lease, if it can be had."""
        lease_id = self._lease(shard, ref)
        if lease_id is None:
            return [PointerResult(ref, PointerOutcome.LEASED)]
        try:
            return self._transact(shard, [ref], capacity, items_max, lease_id)
        except shard.db.errors as error:
            if error_code(error) not in CAN_BE_HALVED:
                raise
            probe("a batch conflicts although its pointer is leased")
            return []  # The lease ends by itself.

    def _leave_locked(self, ref: PointerRef) -> PointerResult:
        """Leave the pointer of a locked tenant alone until the transaction that locks it is likely to be over."""
        probe("a consumer finds a tenant locked by a transaction across shards")
        until_us = self._host.clock.now_us() + LOCKED_RECHECK_US
        return PointerResult(ref, PointerOutcome.LOCKED, deferred=Deferred(ref.id, ref.vesting_us, until_us))

    def _drop_moved(self, shard: Shard, ref: PointerRef, counts: Counter[str]) -> None:
        """Delete the pointer of a tenant that has moved; lease it if that cannot be said."""
        counts["moved"] += 1
        try:
            is_dropped = shard.transact(
                lambda attempt: drop_moved(attempt.tr, shard.layout, ref), waits_for_locks=False
            )
            if not is_dropped:
                self._lease(shard, ref)
        except (TenantLocked, TenantMoved):  # It has moved back meanwhile, or away again.
            return

    def _lease(self, shard: Shard, ref: PointerRef) -> bytes | None:
        """Take a lease on a pointer, and return its id; None if another consumer has it."""
        lease_id = self._host.random.randbytes(16)
        lease_us = self._settings.pointer_lease_ms * 1000

        def take(attempt: Attempt) -> bool:
            return lease(attempt.tr, shard.layout, ref, lease_id=lease_id, lease_us=lease_us, now_us=attempt.now_us)

        return lease_id if shard.transact(take, waits_for_locks=False) else None

    def _transact(
        self,
        shard: Shard,
        refs: Sequence[PointerRef],
        capacity: Capacity,
        items_max: int,
        lease_id: bytes,
        version: int = 0,
    ) -> Results:
        """Process pointers in one transaction. After an unknown result, items that carry `lease_id` are ours."""
        results: Results = []
        known = found = self._policies.known(shard)

        def body(attempt: Attempt) -> Results:
            nonlocal results, found
            shard.relax_read_version(attempt.tr)
            if version:
                attempt.tr.set_read_version(version)
            params = self._params(attempt.now_us, lease_id, items_max)
            results, found = process_pointers(attempt.tr, shard.layout, refs, capacity.fresh(), params, known)
            return results

        try:
            return shard.transact(
                shard.in_exclusive_section(body),
                applied=lambda tr: _has_lease(tr, results, lease_id),
                retries_max=0,
                waits_for_locks=False,
            )
        finally:
            changed = found.limited_later_than(capacity.observed)  # Observed when this call began, perhaps again since.
            for kind in changed:
                capacity.exhaust(kind)
            if changed or found is not known:
                self._policies.observe(shard, found)

    def _params(self, now_us: int, lease_id: bytes, items_max: int) -> DequeueParams:
        settings = self._settings
        return DequeueParams(
            now_us=now_us,
            lease_id=lease_id,
            lease_us=settings.lease_ms * 1000,
            items_max=items_max,
            throttle_delay_us=settings.throttle_delay_ms * 1000,
            pause_recheck_us=settings.pause_recheck_ms * 1000,
            may_defer=self._may_defer(now_us),
            holder=self._consumer_id,
        )

    def note_deferred(self, results: Sequence[PointerResult]) -> None:
        """Count the pointers that were left to other consumers. The manager's lock is held."""
        deferred = [result.deferred for result in results if result.deferred is not None]
        self._deferred_until_us.update((each.id, each.until_us) for each in deferred)

    def _may_defer(self, now_us: int) -> bool:
        """Say whether it may leave more pointers to other consumers."""
        if len(self._deferred_until_us) >= DEFERRED_MAX:
            with self._lock:
                self._deferred_until_us = {each: us for each, us in self._deferred_until_us.items() if us > now_us}
        return len(self._deferred_until_us) < DEFERRED_MAX


def _has_lease(tr: Transaction, results: Sequence[PointerResult], lease_id: bytes) -> bool:
    """Say whether a transaction of unknown result has leased items."""
    for result in results:
        for item in result.items:
            assert result.location is not None
            value = tr.get(result.location.keys.item(item.id)).value
            record = None if value is None else decode(ItemRecord, value)
            if record is not None and record.lease_id == lease_id:
                probe("a dequeue of unknown result is found applied")
                return True
    return False
