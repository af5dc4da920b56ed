"""One tenant: its queues with their first items, its rule, and what of it is buried."""

from itertools import islice
from typing import NamedTuple

from zones.attempt import Attempt
from zones.buried import BuriedItem
from zones.graves import Sought, search
from zones.items import Item
from zones.keyspace import range_begin, range_end
from zones.layout import Tenant
from zones.records import BuriedRecord, TenantRule, decode
from zones.rules import tenant_rule, zone_names
from zones.shard import Shard

QUEUES_MAX = 20
ITEMS_MAX = 50  # Of each queue.
BURIED_MAX = 50  # Of each queue.
LATER_THAN_ANY_US = 1 << 62


class QueueSeen(NamedTuple):
    """A queue of a tenant. `items`: its first, in the order in which they will run; `waiting`: all of them by kind."""

    name: str
    waiting: dict[str, int]
    items: list[Item]
    buried: list[BuriedItem]

    @property
    def total(self) -> int:
        """How many items are in it."""
        return sum(self.waiting.values())


class TenantSeen(NamedTuple):
    """A tenant. `whole`: whether these are all of its queues."""

    shard: str
    tenant: Tenant
    rule: TenantRule
    queues: list[QueueSeen]
    whole: bool
    now_us: int


def look_at_tenant(shard: Shard, tenant: Tenant) -> TenantSeen:
    """Return what is stored of a tenant's queues. Snapshot reads, but for its ownership.

    Raises:
      TenantMoved: the tenant is another shard's.
      One of `shard.db.errors`: the shard cannot be read.
    """

    def body(attempt: Attempt) -> TenantSeen:
        tr, layout = attempt.tr, shard.layout
        rule = tenant_rule(tr, layout, tenant)
        keys = layout.place(tenant, "queue").keys.tenant
        names = list(islice(zone_names(tr, keys), QUEUES_MAX + 1))
        queues = []
        for name in names[:QUEUES_MAX]:
            zone = shard.zone(tenant, name)
            items = zone.peek(tr, items_max=ITEMS_MAX, now_us=LATER_THAN_ANY_US)
            queues.append(QueueSeen(name, zone.count(tr), items, _buried(attempt, shard, tenant, name)))
        return TenantSeen(shard.name, tenant, rule, queues, len(names) <= QUEUES_MAX, attempt.now_us)

    return shard.transact(body)


class BuriedSeen(NamedTuple):
    """Buried items of a shard that are meant, the latest first. `next_key`: where to go on; None: that was all."""

    shard: str
    items: list[BuriedItem]
    next_key: bytes | None
    looked: int


def look_at_buried(shard: Shard, sought: Sought, *, items_max: int, next_key: bytes | None = None) -> BuriedSeen:
    """Return the latest buried items that are meant, of some hundred graves.

    Raises:
      One of `shard.db.errors`: the shard cannot be read.
    """
    unearthed = shard.transact(
        lambda attempt: search(
            attempt.tr, shard.layout, sought, items_max=items_max, next_key=next_key, latest_first=True
        )
    )
    return BuriedSeen(shard.name, unearthed.items, unearthed.next_key, unearthed.looked)


def _buried(attempt: Attempt, shard: Shard, tenant: Tenant, zone: str) -> list[BuriedItem]:
    prefix = shard.layout.place(tenant, zone).keys.buried_prefix()
    rows = attempt.tr.snapshot.get_range(range_begin(prefix), range_end(prefix), limit=BURIED_MAX)
    found = []
    for row in rows:
        record = decode(BuriedRecord, row.value)
        item_id = row.key[len(prefix) + 1 : -1].replace(b"\x00\xff", b"\x00")
        if record is not None:
            found.append(BuriedItem(tenant, zone, item_id, record))
    return sorted(found, key=lambda each: -each.record.buried_us)
