"""One tenant: its queues with their first items, its rule, and what of it is buried."""

from itertools import islice
from typing import NamedTuple

from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.policy.policies import tenant_rule, zone_names
from fairlead.zones.queue.dead_letter_search import LOOKED_MAX, Sought, Unearthed, search
from fairlead.zones.queue.dead_letters import BuriedItem, in_zone
from fairlead.zones.queue.items import Item
from fairlead.zones.queue.queue_zone import LATER_THAN_ANY_US
from fairlead.zones.records import TenantRule
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

QUEUES_MAX = 20
ITEMS_MAX = 50  # Of each queue.
BURIED_MAX = 50  # Of each queue.
GRAVES_MAX = 5_000  # Looked at for one page: mostly a tenth of a second, and ten transactions.


class QueueSeen(NamedTuple):
    """A queue of a tenant. `items`: its first, in the order in which they will run; `waiting`: all of them by kind.

    `dead_letters`: some of its buried items, by their ids; `dead_letters_whole`: whether these are all.
    """

    name: str
    waiting: dict[str, int]
    items: list[Item]
    dead_letters: list[BuriedItem]
    dead_letters_whole: bool

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
        names = list(islice(zone_names(tr, TenantKeys(*tenant)), QUEUES_MAX + 1))
        queues = []
        for name in names[:QUEUES_MAX]:
            zone = shard.zone(tenant, name)
            items = zone.peek(tr, items_max=ITEMS_MAX, now_us=LATER_THAN_ANY_US)
            some, whole = in_zone(tr, zone.place, items_max=BURIED_MAX)
            latest_first = sorted(some, key=lambda each: -each.record.buried_us)
            queues.append(QueueSeen(name, zone.count(tr), items, latest_first, whole))
        return TenantSeen(shard.name, tenant, rule, queues, len(names) <= QUEUES_MAX, attempt.now_us)

    return shard.transact(body)


class BuriedSeen(NamedTuple):
    """Buried items of a shard that are meant, the latest first, of the graves that were `scanned`.

    `next_key`: where to go on; None: that was all.
    """

    shard: str
    items: list[BuriedItem]
    next_key: bytes | None
    scanned: int


def look_at_buried(shard: Shard, sought: Sought, *, items_max: int, next_key: bytes | None = None) -> BuriedSeen:
    """Return the latest buried items that are meant, of the first `GRAVES_MAX` graves.

    If there are as many as asked for, one more is looked for among as many graves again, so that no page that goes on
    turns out empty; it does only where one gave up. Snapshot reads, a stretch of graves in each transaction.

    Raises:
      One of `shard.db.errors`: the shard cannot be read.
    """
    seen = _unearth(shard, sought, items_max=items_max, next_key=next_key)
    if seen.next_key is None or len(seen.items) < items_max:
        return seen
    behind = _unearth(shard, sought, items_max=1, next_key=seen.next_key)
    return seen if behind.items else seen._replace(next_key=behind.next_key, scanned=seen.scanned + behind.scanned)


def _unearth(shard: Shard, sought: Sought, *, items_max: int, next_key: bytes | None) -> BuriedSeen:
    items: list[BuriedItem] = []
    looked = 0
    while True:
        looked_max = min(LOOKED_MAX, GRAVES_MAX - looked)
        unearthed = _stretch(shard, sought, next_key, items_max=items_max - len(items), looked_max=looked_max)
        items += unearthed.items
        looked += unearthed.looked
        next_key = unearthed.next_key
        if next_key is None or len(items) >= items_max or looked >= GRAVES_MAX:
            return BuriedSeen(shard.name, items, next_key, looked)


def _stretch(shard: Shard, sought: Sought, next_key: bytes | None, *, items_max: int, looked_max: int) -> Unearthed:
    def body(attempt: Attempt) -> Unearthed:
        return search(
            attempt.tr, shard.layout, sought, items_max=items_max, next_key=next_key, latest_first=True,
            looked_max=looked_max,
        )  # fmt: skip

    return shard.transact(body)
