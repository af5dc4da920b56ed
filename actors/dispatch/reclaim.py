"""Reclaim: the items that a worker held, or was sent, vest as soon as the worker is dead, not when their leases end.

A failed call proves little: its worker may be slow or unreachable, and still run its items. A worker without calls
fails no call. So a manager checks now and then whether its workers' incarnations have ended, which it can do on the
same machine (`Host.has_ended`). Otherwise, or if the manager is dead, the items vest when their leases expire.

A reclaimed item keeps its lease id, so the next lease of it counts a lease expiry. The worker's sessions are ended, and
their claims released, which finds items that were sent long ago. Items that were leased for workers
that are all dead by then are returned instead: no worker received them.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from fairlead.actors.dispatch.pool_member import Member, OrphanedItems
from fairlead.actors.execution.external_items import return_external_items
from fairlead.actors.execution.in_flight import by_place
from fairlead.actors.execution.returned_items import change_where_they_live, return_where_they_live
from fairlead.actors.execution.zone_by_zone import Refusal, zone_by_zone
from fairlead.actors.messages import ItemRef
from fairlead.actors.runtime.host import Lock
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.errors import TenantBusy
from fairlead.zones.external.names import store_of
from fairlead.zones.external.store import NO_EXTERNALS, ExternalStore, ItemLease
from fairlead.zones.pipelining import run_one
from fairlead.zones.probes import probe
from fairlead.zones.queue.claims import release_all
from fairlead.zones.queue.items import Outcome
from fairlead.zones.shard import Shard
from fairlead.zones.top_level import worker_sessions
from fairlead.zones.transaction_runner import Attempt

log = logging.getLogger("fairlead.manager")

RECLAIM_S = 0.25  # Between two checks of the workers. One costs a tenth of a millisecond.
RECLAIM_MAX = 256  # Items in one transaction.
RECLAIMED_LEASE_US = 1
NOT_RECLAIMED = "%s refuses; the items that a dead worker held there vest when their leases expire: %s"


class Reclaimer:
    """Reclaims the items of one manager's dead workers. `has_ended`: see `Host`. `lock`: what guards `members`."""

    def __init__(
        self,
        shards: Mapping[str, Shard],
        members: Sequence[Member],
        lock: Lock,
        has_ended: Callable[[bytes], bool],
        externals: Mapping[str, ExternalStore] = NO_EXTERNALS,
    ) -> None:
        self._shards = shards
        self._externals = externals
        self._members = members
        self._lock = lock
        self._has_ended = has_ended
        self._locked: OrphanedItems = []  # Of ended incarnations; their transactions still held the rows.

    def reclaim_orphans(self) -> None:
        """Reclaim what ended incarnations of workers held, or were sent."""
        self._locked = reclaim(self._shards, self._locked, self._externals)
        with self._lock:
            incarnations = [incarnation for member in self._members for incarnation in member.incarnations]
        ended = {incarnation: self._has_ended(incarnation) for incarnation in incarnations}
        with self._lock:
            orphans = [each for member in self._members for each in member.take_orphans(ended)]
        for _, refs in orphans:
            self._locked += reclaim(self._shards, refs, self._externals)
        for incarnation, _ in orphans:  # Last: this asks every shard, and one that is away delays the others.
            end_sessions(self._shards, incarnation, self._externals)


def reclaim(
    shards: Mapping[str, Shard], orphans: OrphanedItems, externals: Mapping[str, ExternalStore] = NO_EXTERNALS
) -> OrphanedItems:
    """Let the items of a dead worker vest now; return those that its transaction has locked in an external store.

    The server rolls that transaction back once it notices that the worker is gone.

    Items that were completed, or leased by another worker since, stay as they are. An item whose tenant has moved vests
    where the tenant lives. If the store refuses, or a tenant stays locked, their leases expire.
    """
    locked: OrphanedItems = []
    if orphans:
        probe("the items of a dead worker are reclaimed")
    for name, refs in by_place(orphans).items():
        store = store_of(name)
        if store is not None:
            locked += _reclaim_external(store, externals[store], refs)
            continue
        shard = shards[name]
        try:
            reclaimed = sum(
                _reclaim(shard, refs[begin : begin + RECLAIM_MAX]) for begin in range(0, len(refs), RECLAIM_MAX)
            )
        except TenantBusy as error:
            log.warning(NOT_RECLAIMED, f"shard {name}", error)
        except shard.db.errors as error:
            log.warning(NOT_RECLAIMED, f"shard {name}", error)
        else:
            log.info("a worker died; %d items that it held on shard %s vest now", reclaimed, name)
    return locked


def end_sessions(
    shards: Mapping[str, Shard], incarnation: bytes, externals: Mapping[str, ExternalStore] = NO_EXTERNALS
) -> None:
    """End the sessions of a dead worker, and release their claims. If the store refuses, a consumer does it."""
    for name, shard in shards.items():
        try:
            for session_id in shard.transact(partial(_end_sessions, incarnation=incarnation)):
                released = release_all(shard.layout, shard.transact, session_id, now_us=shard.clock.now_us())
                log.info("the session of a dead worker on shard %s is ended; %d more items vest now", name, released)
        except shard.db.errors as error:
            log.warning("shard %s refuses; another consumer will end the session of a dead worker: %s", name, error)
    for name, store in externals.items():
        try:
            store.sessions.end_of_worker(incarnation)  # The upkeep of the store releases its claims.
        except StoreUnavailable as error:
            log.warning("external store %s refuses; the session of a dead worker will be found silent: %s", name, error)


def _end_sessions(attempt: Attempt, *, incarnation: bytes) -> list[bytes]:
    """End the sessions of a worker; return their ids. Reads all sessions by snapshot; see `end_session_op`."""
    session_ids = run_one(worker_sessions.sessions_of_op(attempt.tr, incarnation))
    for session_id in session_ids:
        probe("the session of a dead worker is ended by its manager")
        run_one(worker_sessions.end_session_op(attempt.tr, session_id))
    return session_ids


def _reclaim_external(name: str, store: ExternalStore, refs: Sequence[ItemRef]) -> list[ItemRef]:
    """Shorten the leases of items; return those that another transaction has locked."""
    held = [ItemLease(ref.item_id, ref.lease_id) for ref in refs]
    try:
        outcomes = store.extend(held, lease_us=RECLAIMED_LEASE_US)
    except StoreUnavailable as error:
        log.warning(NOT_RECLAIMED, f"external store {name}", error)
        return []
    reclaimed, locked = outcomes.count(Outcome.DONE), outcomes.count(None)
    if reclaimed or not locked:
        log.info("a worker died; %d items that it held in external store %s vest now", reclaimed, name)
    if locked:
        probe("a transaction of a dead worker still holds its item")
    return [ref for ref, outcome in zip(refs, outcomes, strict=True) if outcome is None]


def return_items(shard: Shard, refs: Sequence[ItemRef], externals: Mapping[str, ExternalStore] = NO_EXTERNALS) -> None:
    """Let leased items that no worker received vest now. If the store refuses, their leases expire."""
    for place, some in by_place(refs).items():
        store = store_of(place)
        if store is None:
            _return_to_shard(shard, some)
        else:
            _return_to_store(store, externals[store], some)


def _return_to_store(name: str, store: ExternalStore, refs: Sequence[ItemRef]) -> None:
    try:
        return_external_items(store, refs)
    except StoreUnavailable as error:
        log.warning(NOT_RECLAIMED, name, error)


def _return_to_shard(shard: Shard, refs: Sequence[ItemRef]) -> None:
    try:
        for begin in range(0, len(refs), RECLAIM_MAX):
            return_where_they_live(shard, refs[begin : begin + RECLAIM_MAX])
    except TenantBusy as error:
        _log_not_returned(shard, error)
    except shard.db.errors as error:
        _log_not_returned(shard, error)


def _log_not_returned(shard: Shard, error: Exception) -> None:
    log.warning(
        "shard %s refuses; the items leased there for dead workers vest when their leases expire: %s",
        shard.name,
        error,
    )


def _reclaim(shard: Shard, refs: Sequence[ItemRef]) -> int:
    """Shorten the leases of items, and return how many still had their lease; one transaction if nobody has moved."""
    reclaimed = 0

    def shorten_at(at: Shard, some: Sequence[ItemRef]) -> list[tuple[ItemRef, Refusal]]:
        nonlocal reclaimed

        def body(attempt: Attempt) -> list[Outcome | Refusal]:
            attempt.needs_receipt = True  # Each death counts once; a repetition would count it again.
            tr, now_us = attempt.tr, attempt.now_us
            return zone_by_zone(
                at,
                some,
                lambda zone, held: zone.extend_op(tr, held, lease_us=RECLAIMED_LEASE_US, now_us=now_us, died=True),
            )

        outcomes = at.transact(at.in_exclusive_section(body))
        reclaimed += outcomes.count(Outcome.DONE)
        return [(ref, each) for ref, each in zip(some, outcomes, strict=True) if not isinstance(each, Outcome)]

    change_where_they_live(shard, refs, shorten_at)
    return reclaimed
