"""Limits of tenants: how many of a tenant's items may run at once, and how many may start in a second.

    (ROOT, DB, app, user, IN_FLIGHT, zone, id) -> empty; in-flight marker of an item leased under a `max_running`
    (ROOT, DB, app, user, BUCKET)              -> the tenant's token bucket, see `limits`

Only dequeues of tenants with such a limit read and write these keys: other tenants pay nothing. An item that has ended
or was returned leaves its marker behind. The next dequeue finds by the item's record that the marker is stale, and
clears it. So, whatever happens to a worker, only leased items count.

The shard cannot know whether an item of an external store still runs. Its marker counts until a visit of that store has
asked there, and has cleared it (`settle_external_markers`). A visit leases first, and then writes the markers: if that
fails, the items are returned, and none of them has run.
"""

from collections.abc import Callable, Collection, Sequence

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.external.names import external_zone
from fairlead.zones.external.store import RunningState
from fairlead.zones.keyspace import TenantKeys, range_begin, range_end, unpack_bytes, unpack_names
from fairlead.zones.layout import Tenant, ZoneLocation
from fairlead.zones.pipelining import Operation
from fairlead.zones.policy import limits
from fairlead.zones.probes import probe
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.records import ItemRecord, TenantPolicy, decode

SPARE_MARKERS = 64  # Stale markers are cleared so many at a time, at least.


def allowed_op(
    tr: Transaction, location: ZoneLocation, policy: TenantPolicy, *, now_us: int, expired: Collection[bytes] = ()
) -> Operation[int]:
    """Return how many more items of a tenant that has a limit may be leased now, in any of its zones.

    `expired`: markers that do not count, see `settle_external_markers`.

    Reads with conflict: the markers, the bucket, and the records of marked items whose leases have expired. Reads by
    snapshot: the records of running items, so that an extension, a progress report or an end of one does not conflict
    with dequeues. Clears stale markers. The marker of an item with an expired lease stays, because its holder may still
    extend the lease. Two dequeues of one tenant conflict: only a dequeue starts an item, and it writes a marker.
    """
    left = []
    if policy.max_running is not None:
        running = yield from _in_flight_op(tr, location, policy.max_running, now_us, expired)
        left.append(policy.max_running - running)
    if policy.per_s is not None:
        bucket = tr.get(location.keys.tenant.bucket)
        yield
        apart_us = location.layout.settings.clocks_apart_us_max
        left.append(limits.tokens_in(bucket.value, policy, clocks_apart_us=apart_us, now_us=now_us))
    return max(0, min(left))


def is_tenant_full(tr: Reader, location: ZoneLocation, policy: TenantPolicy, *, now_us: int) -> bool:
    """Say whether no more of a tenant's items may run or start now. Snapshot reads; for diagnosis."""
    snapshot, keys = tr.snapshot, location.keys.tenant
    if policy.max_running is not None:
        begin, end = range_begin(keys.in_flight_prefix), range_end(keys.in_flight_prefix)
        rows = snapshot.get_range(begin, end, limit=policy.max_running + SPARE_MARKERS, streaming_mode=WANT_ALL)
        marked = [_marked_item(row.key, keys.in_flight_prefix) for row in rows]
        external = sum(external_zone(zone) is not None for zone, _ in marked)
        reads = [snapshot.get(_item_key(location, *each)) for each in marked]
        if external + sum(_is_leased(read.value, now_us) for read in reads) >= policy.max_running:
            return True
    if policy.per_s is None:
        return False
    apart_us = location.layout.settings.clocks_apart_us_max
    return not limits.tokens_in(snapshot.get(keys.bucket).value, policy, clocks_apart_us=apart_us, now_us=now_us)


def charge_limits(
    tr: Transaction, location: ZoneLocation, policy: TenantPolicy, item_ids: Sequence[bytes], *, now_us: int
) -> None:
    """Mark items that are leased now, and take their tokens; call `allowed_op` first, in the same transaction."""
    if policy.max_running is not None:
        for item_id in item_ids:
            tr.set(location.keys.tenant.in_flight(location.name, item_id), b"")
    if policy.per_s is not None and item_ids:
        key = location.keys.tenant.bucket
        apart_us = location.layout.settings.clocks_apart_us_max
        limits.take_out(tr, key, policy, tokens=len(item_ids), clocks_apart_us=apart_us, now_us=now_us)


def settle_external_markers(
    tr: Transaction,
    location: ZoneLocation,
    policy: TenantPolicy,
    store: str,
    states: Callable[[Sequence[bytes]], Sequence[RunningState]],
) -> Collection[bytes]:
    """Clear the markers of a tenant's items in an external store that run no more; return those of expired leases.

    These do not count, but stay: a transaction that ends such an item may still be open. Reads with conflict: all
    markers of the tenant. So a visit conflicts that leases one of its items meanwhile. `states`: asks the store.
    """
    if policy.max_running is None:
        return ()
    prefix = location.keys.tenant.in_flight_prefix
    limit = policy.max_running + SPARE_MARKERS
    rows = tr.get_range(range_begin(prefix), range_end(prefix), limit=limit, streaming_mode=WANT_ALL)
    found = [(row.key, *_marked_item(row.key, prefix)) for row in rows]
    mine = [(key, item_id) for key, zone, item_id in found if (at := external_zone(zone)) and at.store == store]
    expired = []
    for (key, _), state in zip(mine, states([item_id for _, item_id in mine]) if mine else (), strict=True):
        if state is RunningState.ENDED:
            probe("the marker of an external item that runs no more is cleared")
            tr.clear(key)
        elif state is RunningState.EXPIRED:
            expired.append(key)
    return expired


def clear_tenant_limit_state(tr: Transaction, tenant: Tenant) -> None:
    """Clear the markers and the bucket of a limit that was removed. Writes only."""
    keys = TenantKeys(*tenant)
    tr.clear_range(range_begin(keys.in_flight_prefix), range_end(keys.in_flight_prefix))
    tr.clear(keys.bucket)


def _in_flight_op(
    tr: Transaction, location: ZoneLocation, max_running: int, now_us: int, expired: Collection[bytes]
) -> Operation[int]:
    """Count the running items; `max_running` if there are more markers than it reads, as after a limit was lowered."""
    prefix = location.keys.tenant.in_flight_prefix
    markers_max = max_running + SPARE_MARKERS
    rows = tr.get_range(range_begin(prefix), range_end(prefix), limit=markers_max, streaming_mode=WANT_ALL)
    yield
    markers = [(row.key, *_marked_item(row.key, prefix)) for row in rows]
    running = sum(external_zone(zone) is not None and key not in expired for key, zone, _ in markers)
    items = [(key, _item_key(location, zone, item_id)) for key, zone, item_id in markers if external_zone(zone) is None]
    reads = [tr.snapshot.get(item) for _, item in items]
    yield
    for (key, item), read in zip(items, reads, strict=True):
        if _is_leased(read.value, now_us):
            running += 1
            continue
        tr.add_read_conflict_key(item)  # Its holder may be extending an expired lease.
        record = None if read.value is None else decode(ItemRecord, read.value)
        if read.value is None or (record is not None and not record.lease_id):
            probe("a stale in-flight marker is cleared")
            tr.clear(key)
    return running if len(markers) < markers_max else max_running


def _marked_item(key: bytes, prefix: bytes) -> tuple[str, bytes]:
    """Return the zone and the id of the marked item; of a damaged marker names of no item."""
    found = unpack_names(key, len(prefix), 1)
    if found is None:
        return "", b""
    (zone,), end = found
    return zone, unpack_bytes(key[end:])


def _item_key(location: ZoneLocation, zone: str, item_id: bytes) -> bytes:
    return (location.layout.location(location.tenant, zone) if zone else location).keys.item(item_id)


def _is_leased(value: bytes | None, now_us: int) -> bool:
    """Say whether a marked item, stored as `value`, is leased; False if its record cannot be read."""
    record = None if value is None else decode(ItemRecord, value)
    return record is not None and bool(record.lease_id) and record.vesting_us > now_us
