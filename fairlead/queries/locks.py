"""Locks of workflows: who holds them, since when, and how many wait; and the lock that a workflow waits for.

No index lists the locks of a shard: they lie below their tenants. So a bounded number of tenants is read.
"""

from collections.abc import Collection, Iterable
from functools import partial
from itertools import groupby
from typing import NamedTuple

from fairlead.queries.per_shard import query_home
from fairlead.shards import Shards
from fairlead.zones.engines import Reader
from fairlead.zones.external.names import store_of_participant
from fairlead.zones.keyspace import DB, ROOT, TenantKeys, pack_int, range_begin, range_end, tenant_prefix
from fairlead.zones.layout import Tenant
from fairlead.zones.ownership import check_owner
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.tuples import elements_of
from fairlead.zones.workflow.locks import LockRequest, all_requests, first_requests, requests_of_run, shown_lock

TENANTS_READ_MAX = 2_000  # Of a shard, if none is named: two reads each.
REQUESTS_READ_MAX = 5_000  # Of a tenant.
_TENANTS = ROOT + pack_int(DB)


class LockState(NamedTuple):
    """A lock that is held. `key`: as people write it. `holders`: several if they share it."""

    tenant: Tenant
    key: str
    holders: list[LockRequest]
    waiting: int


class LockList(NamedTuple):
    """Locks of a shard, or of a tenant. `whole`: there are no others."""

    locks: list[LockState]
    whole: bool


class AwaitedLock(NamedTuple):
    """A lock that a workflow waits for. `holder`: the first that holds it; None: it was just released."""

    tenant: Tenant
    key: str
    asked_us: int
    holder: LockRequest | None


def list_locks(shard: Shard, tenant: Tenant | None) -> LockList:
    """Return the locks of a tenant, or of the first tenants of a shard. Snapshot reads of one transaction.

    Raises:
      TenantMoved: another shard owns the tenant.
    """

    def body(attempt: Attempt) -> LockList:
        if tenant is None:
            return _of_tenants(attempt.tr)
        keys = TenantKeys(*tenant)
        check_owner(attempt.tr, shard.layout, keys, attempt.tr.snapshot.get(keys.owner).value, writes=False)
        return _of_tenant(attempt.tr, tenant)

    return shard.transact(body)


def awaited_lock(shards: Shards, tenants: Iterable[Tenant], run: bytes, signals: Collection[str]) -> AwaitedLock | None:
    """Return the lock that a run waits for by one of some signals; None: it is not found.

    `tenants`: the home of the run, and its participants. Snapshot reads, one transaction for each. An external store
    has no locks.
    """
    for tenant in tenants:
        if store_of_participant(tenant) is not None:
            continue
        found = query_home(shards, tenant, partial(_awaited, tenant=tenant, run=run, signals=signals)).found
        if found is not None:
            return found
    return None


def _awaited(shard: Shard, *, tenant: Tenant, run: bytes, signals: Collection[str]) -> AwaitedLock | None:
    def body(attempt: Attempt) -> AwaitedLock | None:
        keys = TenantKeys(*tenant)
        for lock, _, request in requests_of_run(attempt.tr, keys, run):
            if request is not None and request.signal in signals:
                first = [each.request for each in first_requests(attempt.tr, keys, lock, requests_max=1)]
                holder = next((each for each in first if each is not None and each.held_us is not None), None)
                return AwaitedLock(tenant, shown_lock(lock), request.asked_us, None if request == holder else holder)
        return None

    return shard.transact(body)


def _of_tenants(tr: Reader) -> LockList:
    begin, end = range_begin(_TENANTS), range_end(_TENANTS)
    locks: list[LockState] = []
    whole = True
    for _ in range(TENANTS_READ_MAX):
        row = next(iter(tr.snapshot.get_range(begin, end, limit=1)), None)
        if row is None:
            return LockList(locks, whole)
        match elements_of(row.key):
            case (_, _, str(app), str(user), *_) if "\0" not in app + user:
                found = _of_tenant(tr, Tenant(app, user))
                locks += found.locks
                whole = whole and found.whole
                begin = range_end(tenant_prefix(row.key))
            case _:  # The key is damaged.
                begin = row.key + b"\x00"
    return LockList(locks, False)


def _of_tenant(tr: Reader, tenant: Tenant) -> LockList:
    requests = list(all_requests(tr, TenantKeys(*tenant), requests_max=REQUESTS_READ_MAX))
    locks = []
    for lock, line in groupby(requests, lambda each: each.lock):
        known = [each.request for each in line if each.request is not None]
        holders = [request for request in known if request.held_us is not None]
        locks.append(LockState(tenant, shown_lock(lock), holders, len(known) - len(holders)))
    return LockList(locks, len(requests) < REQUESTS_READ_MAX)
