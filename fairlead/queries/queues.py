"""The queues of a shard that have work: the first ones in line, their counts, and their delayed items.

The top-level queue lists the queues with work in the order of their turns. The counts and first entries are read of a
bounded number of them. Of a queue in an external store, the shard has the pointer only: see `queues_in_stores`.
"""

from collections.abc import Iterable, Sequence
from heapq import nsmallest
from itertools import islice
from typing import NamedTuple

from fairlead.zones.engines import Reader
from fairlead.zones.external.names import Queue, external_zone
from fairlead.zones.keyspace import IndexEntry, QueueKeys, TenantKeys
from fairlead.zones.layout import ShardLayout, Tenant, ZoneLocation
from fairlead.zones.pipelining import Operation, run_together
from fairlead.zones.policy.policies import tenants_with_policies, zone_names
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.records import POINTER_PRIORITY, ItemRecord, TenantPolicy, decode
from fairlead.zones.shard import Shard
from fairlead.zones.top_level.depth import oldest_of
from fairlead.zones.top_level.pointers import PointerRef, location_of
from fairlead.zones.transaction_runner import Attempt

QUEUES_MAX = 1_000  # Read on each shard: the first ones in line.
TENANTS_WITH_POLICY_MAX = 100  # Tenants with a policy are read as well.
QUEUES_OF_TENANT_MAX = 20  # Of each of those. A tenant may have thousands, and each name is a read of its own.
DELAYED_QUEUES_MAX = 300  # Read for delayed items: so many that sleep, and so many that do not.
DELAYED_OF_QUEUE_MAX = 20
DELAYED_MAX = 200


class ActiveQueues(NamedTuple):
    """Queues with work. `whole`: whether these are all."""

    refs: Sequence[PointerRef]
    whole: bool


class ExternalQueue(NamedTuple):
    """A queue in an external store whose pointer a shard has."""

    shard: str
    store: str
    queue: Queue


class TenantWaiting(NamedTuple):
    """A tenant with items in the queues that were read.

    `waiting`: counts of its items by kind, with delayed and leased ones. `oldest_us`: since when its oldest due item
    waits; None: no item is due. `whole`: whether all its items in these queues were counted.
    """

    shard: str
    tenant: Tenant
    waiting: dict[str, int]
    oldest_us: int | None
    policy: TenantPolicy | None
    whole: bool = True

    @property
    def total(self) -> int:
        """How many items the tenant has in these queues."""
        return sum(self.waiting.values())


class WaitingTenants(NamedTuple):
    """The tenants of a shard with items in the queues that were read, most items first.

    `left_out`: how many more tenants have items in these queues. `queues`: how many queues were read; `whole`: whether
    these are all with work. `in_stores`: those of them that lie in external stores, whose items are not counted here;
    the tenants of these are listed in any case, if they have a policy or items on the shard.
    """

    tenants: list[TenantWaiting]
    left_out: int
    queues: int
    whole: bool
    in_stores: list[ExternalQueue]


class DelayedItem(NamedTuple):
    """An item that is delayed. `store`: the external store in which it lies; None: it lies on its shard."""

    shard: str
    tenant: Tenant
    zone: str
    id: bytes
    record: ItemRecord
    store: str | None = None


class DelayedItems(NamedTuple):
    """The delayed items of a shard, the next to vest first.

    `whole`: whether these are all. `in_stores`: the queues in external stores that are served next.
    """

    items: list[DelayedItem]
    whole: bool
    in_stores: list[ExternalQueue]


def active_queues(tr: Reader, layout: ShardLayout, *, queues_max: int, after_us: int = 0) -> ActiveQueues:
    """Return the queues whose pointers vest first, of those that vest after `after_us`. Snapshot reads."""
    each_max = max(64, 4 * queues_max // layout.part_count)
    reads = [
        (
            part,
            tr.snapshot.get_range(
                part.vest_after(POINTER_PRIORITY, after_us), part.vest_end(), limit=each_max, streaming_mode=WANT_ALL
            ),
        )
        for part in layout.parts
    ]
    found: list[PointerRef] = []
    whole = True
    for part, read in reads:
        rows = list(read)
        entries = [entry for row in rows if (entry := part.entry(row.key)) is not None]
        whole = whole and len(rows) < each_max
        found += [PointerRef(part.part, entry.id, entry.vesting_us, entry.priority) for entry in entries]
    first = nsmallest(queues_max, found, key=lambda ref: ref.vesting_us)
    return ActiveQueues(first, whole and len(found) <= queues_max)


def waiting_tenants(
    shard: Shard, *, more: Iterable[Tenant] = (), kind: str | None = None, tenants_max: int = 200
) -> WaitingTenants:
    """Return the tenants with most items in the queues that are first in line; with a `kind`, those with most of it.

    If there are more queues, the first few of each tenant with a policy, or in `more`, are read as well.
    Snapshot reads.

    Raises:
      One of `shard.db.errors`: the shard cannot be read.
    """

    def body(attempt: Attempt) -> WaitingTenants:
        tr, layout = attempt.tr, shard.layout
        found = active_queues(tr, layout, queues_max=QUEUES_MAX)
        with_policy = dict(tenants_with_policies(tr, tenants_max=TENANTS_WITH_POLICY_MAX))
        named = {*with_policy, *more}
        first_in_line = _locations(found.refs, layout)
        in_stores = external_queues(first_in_line, shard.name)
        locations = {(location.tenant, location.name): location for location in first_in_line}
        for tenant in () if found.whole else named:
            for location in _first_locations(tr, layout, tenant):
                locations[location.tenant, location.name] = location
        counts = run_together(
            shard.zone(location.tenant, location.name).count_op(tr) for location in locations.values()
        )
        by_tenant: dict[Tenant, list[tuple[ZoneLocation, dict[str, int]]]] = {tenant: [] for tenant in named}
        for location, count in zip(locations.values(), counts, strict=True):
            if count:
                by_tenant.setdefault(location.tenant, []).append((location, count))
        totals = {tenant: _total((c for _, c in queues), kind) for tenant, queues in by_tenant.items()}
        most = sorted(by_tenant.items(), key=lambda each: (-totals[each[0]], each[0]))
        also_in_stores = {each.queue.tenant for each in in_stores}
        if kind is not None:
            most = [each for each in most if totals[each[0]] or each[0] in also_in_stores]
        always = named | also_in_stores
        listed = most[:tenants_max] + [each for each in most[tenants_max:] if each[0] in always]
        tenants = [
            TenantWaiting(
                shard.name, tenant, _summed(count for _, count in queues),
                oldest_of(tr, [location for location, _ in queues], attempt.now_us), with_policy.get(tenant),
            )
            for tenant, queues in listed
        ]  # fmt: skip
        left_out = len(most) - len(listed)
        return WaitingTenants(tenants, left_out, len(locations), found.whole, in_stores)

    return shard.transact(body)


def delayed_items(shard: Shard) -> DelayedItems:
    """Return the delayed items, the next to vest first, of the queues that are served next, asleep or not.

    Raises:
      One of `shard.db.errors`: the shard cannot be read.
    """

    def body(attempt: Attempt) -> DelayedItems:
        tr, now_us, layout = attempt.tr, attempt.now_us, shard.layout
        awake = active_queues(tr, layout, queues_max=DELAYED_QUEUES_MAX)
        asleep = active_queues(tr, layout, queues_max=DELAYED_QUEUES_MAX, after_us=now_us)
        locations = {(each.tenant, each.name): each for each in _locations([*awake.refs, *asleep.refs], layout)}
        entries = run_together(_unvested_op(tr, location.keys, now_us=now_us) for location in locations.values())
        next_ones = nsmallest(
            2 * DELAYED_MAX,
            ((entry.vesting_us, entry.id, location) for location, some in zip(locations.values(), entries, strict=True)
             for entry in some),
            key=lambda each: each[:2],
        )  # fmt: skip
        reads = [
            (item_id, location, tr.snapshot.get(location.keys.item(item_id))) for _, item_id, location in next_ones
        ]
        items = []
        for item_id, location, read in reads:
            record = None if read.value is None else decode(ItemRecord, read.value)
            if record is not None and not record.lease_id:
                items.append(DelayedItem(shard.name, location.tenant, location.name, item_id, record))
        full = any(len(some) >= DELAYED_OF_QUEUE_MAX for some in entries) or len(next_ones) >= 2 * DELAYED_MAX
        whole = awake.whole and asleep.whole and not full and len(items) <= DELAYED_MAX
        return DelayedItems(items[:DELAYED_MAX], whole, external_queues(locations.values(), shard.name))

    return shard.transact(body)


def external_queues(locations: Iterable[ZoneLocation], shard: str) -> list[ExternalQueue]:
    """Return the queues in external stores of whose pointers a shard has these."""
    zones = ((location.tenant, external_zone(location.name)) for location in locations)
    return [ExternalQueue(shard, zone.store, Queue(tenant, zone.zone)) for tenant, zone in zones if zone is not None]


def _locations(refs: Iterable[PointerRef], layout: ShardLayout) -> list[ZoneLocation]:
    return [location for ref in refs if (location := location_of(ref, layout)) is not None]


def _first_locations(tr: Reader, layout: ShardLayout, tenant: Tenant) -> list[ZoneLocation]:
    names = islice(zone_names(tr, TenantKeys(*tenant)), QUEUES_OF_TENANT_MAX)
    return [layout.location(tenant, name) for name in names]


def _total(counts: Iterable[dict[str, int]], kind: str | None) -> int:
    return sum(sum(count.values()) if kind is None else count.get(kind, 0) for count in counts)


def _summed(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for count in counts:
        for kind, number in count.items():
            total[kind] = total.get(kind, 0) + number
    return total


def _unvested_op(tr: Reader, keys: QueueKeys, *, now_us: int) -> Operation[list[IndexEntry]]:
    """Read the first entries of a queue that have not vested, those of delayed and leased items. Snapshot reads."""
    found: list[IndexEntry] = []
    begin, end = keys.vest_priority(0), keys.vest_end()
    while len(found) < DELAYED_OF_QUEUE_MAX:
        size = DELAYED_OF_QUEUE_MAX - len(found)
        sent = tr.snapshot.get_range(begin, end, limit=size, streaming_mode=WANT_ALL)
        yield
        rows = list(sent)
        vested = None
        for row in rows:
            entry = keys.entry(row.key)
            if entry is None:
                continue
            if entry.vesting_us <= now_us:
                vested = entry
                break
            found.append(entry)
        if vested is not None:
            begin = keys.vest_after(vested.priority, now_us)
        elif len(rows) < size:
            break
        else:
            begin = rows[-1].key + b"\x00"
    return found
