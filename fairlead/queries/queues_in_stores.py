"""The queues in external stores that have work: who waits there, and what is delayed.

A shard has the pointers of these queues, so it says which are first in line. The store counts what lies in them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from fairlead.queries.activity import PAYLOAD_BYTES_MAX
from fairlead.queries.per_shard import ShardResult, query_each_store
from fairlead.queries.queues import (
    DELAYED_MAX,
    DELAYED_OF_QUEUE_MAX,
    DelayedItem,
    DelayedItems,
    ExternalQueue,
    TenantWaiting,
    WaitingTenants,
)
from fairlead.zones.external.depth import Depth
from fairlead.zones.external.inspection import InspectedStore

T = TypeVar("T")

Depths = Mapping[ExternalQueue, Depth]


def query_depths(stores: Mapping[str, InspectedStore], found: Iterable[WaitingTenants]) -> list[ShardResult[Depths]]:
    """Return what the queues hold that lie in external stores. Asks each store once, and only those with queues."""
    return _query_stores(stores, (queue for each in found for queue in each.in_stores), _depths)


def tenants_everywhere(
    found: Sequence[WaitingTenants], depths: Sequence[ShardResult[Depths]], *, kind: str | None, now_us: int
) -> list[TenantWaiting]:
    """Return the tenants of several shards, with their items in external stores; with a `kind`, those with some of it.

    In no order.
    """
    rows = {(row.shard, row.tenant): row for each in found for row in each.tenants}
    for queue, depth in (pair for each in depths for pair in (each.found or {}).items()):
        key = (queue.shard, queue.queue.tenant)
        if depth.kinds:
            row = rows.get(key) or TenantWaiting(*key, {}, None, None)  # One with a policy is among the rows.
            rows[key] = _with_queue(row, depth, now_us)
    return [row for row in rows.values() if kind is None or row.waiting.get(kind)]


def query_delayed(
    stores: Mapping[str, InspectedStore], found: Iterable[DelayedItems], *, now_us: int
) -> list[ShardResult[DelayedItems]]:
    """Return the delayed items of external stores, of the queues that are served next. Asks each such store once."""
    read = partial(_delayed, now_us=now_us)
    return _query_stores(stores, (queue for each in found for queue in each.in_stores), read)


def _query_stores(
    stores: Mapping[str, InspectedStore],
    queues: Iterable[ExternalQueue],
    read: Callable[[Sequence[ExternalQueue], InspectedStore], T],
) -> list[ShardResult[T]]:
    by_store: dict[str, list[ExternalQueue]] = {}
    for queue in queues:
        by_store.setdefault(queue.store, []).append(queue)
    return [
        result
        for name, store in stores.items()
        if name in by_store
        for result in query_each_store({name: store}, partial(read, by_store[name]))
    ]


def _depths(queues: Sequence[ExternalQueue], store: InspectedStore) -> Depths:
    return dict(zip(queues, store.depth_of([each.queue for each in queues]), strict=True))


def _with_queue(row: TenantWaiting, depth: Depth, now_us: int) -> TenantWaiting:
    waiting = dict(row.waiting)
    for kind, items in depth.kinds.items():
        waiting[kind] = waiting.get(kind, 0) + items
    since_us = [row.oldest_us, None if depth.waits_us is None else now_us - depth.waits_us]
    oldest_us = min((each for each in since_us if each is not None), default=None)
    return row._replace(waiting=waiting, oldest_us=oldest_us, whole=row.whole and depth.whole)


def _delayed(queues: Sequence[ExternalQueue], store: InspectedStore, *, now_us: int) -> DelayedItems:
    by_queue = {each.queue: each for each in queues}
    found = store.delayed(
        list(by_queue),
        of_queue_max=DELAYED_OF_QUEUE_MAX,
        items_max=DELAYED_MAX,
        payload_bytes_max=PAYLOAD_BYTES_MAX,
        now_us=now_us,
    )
    items = [
        DelayedItem(by_queue[queue].shard, *queue, item.id, item.record, by_queue[queue].store) for queue, item in found
    ]
    most = max(Counter(queue for queue, _ in found).values(), default=0)
    return DelayedItems(items, len(items) < DELAYED_MAX and most < DELAYED_OF_QUEUE_MAX, [])
