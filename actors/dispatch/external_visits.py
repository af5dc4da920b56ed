"""Visits of external queues: the transactions, and what happens when one of them cannot commit (QuiCK section 6.1).

What a visit has leased in the store is leased, whether or not the shard's transaction commits. So the items are passed
on all the same, and their pointers stay as they were: another visit looks again. Only items of tenants with limits are
returned then, since nothing of them is counted.

A store that does not answer is left alone for a second, with its pointers. Pointers of other stores, and of the shard's
own queues, are served meanwhile.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from fairlead.actors.dispatch.policy_refresh import PolicyRefresh
from fairlead.actors.runtime.host import Host
from fairlead.actors.runtime.rate_limited_log import RateLimitedLog
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.engines.api.errors import NOT_COMMITTED, error_code
from fairlead.zones.errors import TenantLocked, TenantMoved
from fairlead.zones.external.cursors import Cursors
from fairlead.zones.external.names import external_zone
from fairlead.zones.external.store import ExternalStore, ItemLease
from fairlead.zones.external.visits import ExternalAway, visit_queues
from fairlead.zones.layout import ShardLayout, ZoneLocation
from fairlead.zones.ownership import check_owner
from fairlead.zones.probes import probe
from fairlead.zones.queue.dequeue_plan import Capacity
from fairlead.zones.shard import Shard
from fairlead.zones.top_level import pointers
from fairlead.zones.top_level.pointers import PointerRef
from fairlead.zones.top_level.process_pointers import Deferred, DequeueParams, PointerOutcome, PointerResult
from fairlead.zones.transaction_runner import Attempt

log = logging.getLogger("fairlead.manager")

AWAY_US = 1_000_000  # How long a store that does not answer is left alone.

Results = list[PointerResult]


class ExternalVisits:
    """Visits external queues for one manager, whose calls may run concurrently.

    Args:
      externals: the external stores by name.
      params: returns the parameters of a dequeue, from the time, a lease id, and how many items a tenant may give.
      leave_locked, drop_moved: what is done with the pointer of a tenant that is locked, or has moved.
    """

    def __init__(
        self,
        host: Host,
        externals: Mapping[str, ExternalStore],
        policies: PolicyRefresh,
        params: Callable[[int, bytes, int], DequeueParams],
        *,
        leave_locked: Callable[[PointerRef], PointerResult],
        drop_moved: Callable[[Shard, PointerRef, Counter[str]], None],
    ) -> None:
        self._host = host
        self._externals = externals
        self._policies = policies
        self._params = params
        self._leave_locked = leave_locked
        self._drop_moved = drop_moved
        self._away_until_us: dict[str, int] = {}
        self._cursors = {name: Cursors() for name in externals}
        self._refusals = RateLimitedLog(
            host.clock, log, "external store %s does not answer; its queues wait, others are served: %s"
        )

    def process(
        self,
        shard: Shard,
        name: str,
        refs: Sequence[PointerRef],
        capacity: Capacity,
        items_max: int,
        counts: Counter[str],
    ) -> Iterator[Results]:
        """Visit the queues of one store together, and yield the results of each transaction; see `PointerBatches`."""
        now_us = self._host.clock.now_us()
        store = self._externals.get(name)
        until_us = self._away_until_us.get(name)
        if store is None or (until_us is not None and 0 <= until_us - now_us <= AWAY_US):
            yield [self._defer(ref, now_us) for ref in refs]
            return
        if until_us is not None:
            # Others wait for what this call finds: a call may take as long as the store is silent.
            self._away_until_us[name] = now_us + AWAY_US
        try:
            yield self._transact(shard, name, store, refs, capacity, items_max, counts)
            self._away_until_us.pop(name, None)
        except ExternalAway as error:
            probe("a visit finds an external store away")
            self._refusals.note(name, error)
            self._away_until_us[name] = self._host.clock.now_us() + AWAY_US
            yield [self._defer(ref, self._host.clock.now_us()) for ref in refs]
        except (TenantLocked, TenantMoved) as refusal:
            if len(refs) > 1:
                half = len(refs) // 2
                yield from self.process(shard, name, refs[:half], capacity, items_max, counts)
                yield from self.process(shard, name, refs[half:], capacity, items_max, counts)
            elif isinstance(refusal, TenantLocked):
                yield [self._leave_locked(refs[0])]
            else:
                self._drop_moved(shard, refs[0], counts)

    def _transact(
        self,
        shard: Shard,
        name: str,
        store: ExternalStore,
        refs: Sequence[PointerRef],
        capacity: Capacity,
        items_max: int,
        counts: Counter[str],
    ) -> Results:
        """Run one visit. The lock of the embedded store's commits is not held meanwhile: the store may be slow."""
        lease_id = self._host.random.randbytes(16)
        results: Results = []
        known = found = self._policies.known(shard)
        cursors = self._cursors[name]

        def body(attempt: Attempt) -> Results:
            nonlocal results, found
            params = self._params(attempt.now_us, lease_id, items_max)
            results, found = visit_queues(
                attempt.tr, shard.layout, refs, capacity.fresh(), params, store, known, cursors
            )
            return results

        try:
            return shard.transact(body, retries_max=0, waits_for_locks=False)
        except shard.db.errors as error:
            if error_code(error) != NOT_COMMITTED and not any(result.items for result in results):
                raise
            counts["conflicts"] += 1
            counts["missed_at_commit"] += len(refs)
            return self._keep_leased(shard, store, results)
        finally:
            changed = found.limited_later_than(capacity.observed)
            for kind in changed:
                capacity.exhaust(kind)
            if changed or found is not known:
                self._policies.observe(shard, found)

    def _keep_leased(self, shard: Shard, store: ExternalStore, results: Results) -> Results:
        """Return what was leased although the shard did not commit, but for items of tenants with limits."""
        probe("a visit does not commit, and its items are leased all the same")
        kept = []
        for result in results:
            if not result.items or result.location is None:
                continue
            if shard.transact(lambda attempt, at=result.location: _is_limited(attempt, shard.layout, at)):  # type: ignore[misc]
                _return_leased(store, result)
            else:
                kept.append(PointerResult(result.ref, PointerOutcome.LEASED, result.location, result.items))
        return kept

    def _defer(self, ref: PointerRef, now_us: int) -> PointerResult:
        return PointerResult(ref, PointerOutcome.AWAY, deferred=Deferred(ref.id, ref.vesting_us, now_us + AWAY_US))


def by_store(layout: ShardLayout, refs: Sequence[PointerRef]) -> dict[str | None, list[PointerRef]]:
    """Return pointers by the name of their external store; None: those of the shard's own queues."""
    found: dict[str | None, list[PointerRef]] = {}
    for ref in refs:
        location = pointers.location_of(ref, layout)
        zone = None if location is None else external_zone(location.name)
        found.setdefault(None if zone is None else zone.store, []).append(ref)
    return found


def _is_limited(attempt: Attempt, layout: ShardLayout, location: ZoneLocation) -> bool:
    keys = location.keys.tenant
    try:
        return check_owner(attempt.tr, layout, keys, attempt.tr.get(keys.owner).value, writes=False).is_limited
    except (TenantLocked, TenantMoved):
        return True


def _return_leased(store: ExternalStore, result: PointerResult) -> None:
    held = [ItemLease(item.id, item.record.lease_id) for item in result.items]
    try:
        store.requeue(held, [None] * len(held), [None] * len(held))
    except StoreUnavailable:
        log.warning("an external store refuses; %d items that were leased there vest when their leases end", len(held))
