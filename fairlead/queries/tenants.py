"""One tenant: its queues with their first items, its rule, and what of it is buried."""

from itertools import islice
from typing import NamedTuple

from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.policy.policies import tenant_policy, zone_names
from fairlead.zones.queue.dead_letter_search import SCANNED_MAX, DeadLetterFilter, DeadLetterPage, search
from fairlead.zones.queue.dead_letters import DeadLetter, in_zone
from fairlead.zones.queue.items import Item
from fairlead.zones.queue.queue_zone import LATER_THAN_ANY_US
from fairlead.zones.records import TenantPolicy
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

QUEUES_MAX = 20
ITEMS_MAX = 50  # Of each queue.
DEAD_LETTERS_MAX = 50  # Of each queue.
SCANNED_PER_PAGE_MAX = 5_000  # Looked at for one page: mostly a tenth of a second, and ten transactions.


class QueueDetails(NamedTuple):
    """A queue of a tenant. `items`: its first, in the order in which they will run; `waiting`: all of them by kind.

    `dead_letters`: some of its buried items, by their ids; `dead_letters_whole`: whether these are all.
    """

    name: str
    waiting: dict[str, int]
    items: list[Item]
    dead_letters: list[DeadLetter]
    dead_letters_whole: bool

    @property
    def total(self) -> int:
        """How many items are in it."""
        return sum(self.waiting.values())


class TenantDetails(NamedTuple):
    """A tenant. `whole`: whether these are all of its queues."""

    shard: str
    tenant: Tenant
    policy: TenantPolicy
    queues: list[QueueDetails]
    whole: bool
    now_us: int


def read_tenant(shard: Shard, tenant: Tenant) -> TenantDetails:
    """Return what is stored of a tenant's queues. Snapshot reads, but for its ownership.

    Raises:
      TenantMoved: the tenant is another shard's.
      One of `shard.db.errors`: the shard cannot be read.
    """

    def body(attempt: Attempt) -> TenantDetails:
        tr, layout = attempt.tr, shard.layout
        policy = tenant_policy(tr, layout, tenant)
        names = list(islice(zone_names(tr, TenantKeys(*tenant)), QUEUES_MAX + 1))
        queues = []
        for name in names[:QUEUES_MAX]:
            zone = shard.zone(tenant, name)
            items = zone.peek(tr, items_max=ITEMS_MAX, now_us=LATER_THAN_ANY_US)
            some, whole = in_zone(tr, zone.location, items_max=DEAD_LETTERS_MAX)
            latest_first = sorted(some, key=lambda each: -each.record.dead_lettered_us)
            queues.append(QueueDetails(name, zone.count(tr), items, latest_first, whole))
        return TenantDetails(shard.name, tenant, policy, queues, len(names) <= QUEUES_MAX, attempt.now_us)

    return shard.transact(body)


class DeadLetterList(NamedTuple):
    """Buried items of a shard that are meant, the latest first, of the graves that were `scanned`.

    `next_key`: where to go on; None: that was all.
    """

    shard: str
    items: list[DeadLetter]
    next_key: bytes | None
    scanned: int


def find_dead_letters(
    shard: Shard, criteria: DeadLetterFilter, *, items_max: int, next_key: bytes | None = None
) -> DeadLetterList:
    """Return the latest buried items that are meant, of the first `SCANNED_PER_PAGE_MAX` graves.

    If there are as many as asked for, one more is looked for among as many graves again, so that no page that goes on
    turns out empty; it does only where one gave up. Snapshot reads, a stretch of graves in each transaction.

    Raises:
      One of `shard.db.errors`: the shard cannot be read.
    """
    seen = _collect(shard, criteria, items_max=items_max, next_key=next_key)
    if seen.next_key is None or len(seen.items) < items_max:
        return seen
    behind = _collect(shard, criteria, items_max=1, next_key=seen.next_key)
    return seen if behind.items else seen._replace(next_key=behind.next_key, scanned=seen.scanned + behind.scanned)


def _collect(shard: Shard, criteria: DeadLetterFilter, *, items_max: int, next_key: bytes | None) -> DeadLetterList:
    items: list[DeadLetter] = []
    scanned = 0
    while True:
        scanned_max = min(SCANNED_MAX, SCANNED_PER_PAGE_MAX - scanned)
        unearthed = _read_batch(shard, criteria, next_key, items_max=items_max - len(items), scanned_max=scanned_max)
        items += unearthed.items
        scanned += unearthed.scanned
        next_key = unearthed.next_key
        if next_key is None or len(items) >= items_max or scanned >= SCANNED_PER_PAGE_MAX:
            return DeadLetterList(shard.name, items, next_key, scanned)


def _read_batch(
    shard: Shard, criteria: DeadLetterFilter, next_key: bytes | None, *, items_max: int, scanned_max: int
) -> DeadLetterPage:
    def body(attempt: Attempt) -> DeadLetterPage:
        return search(
            attempt.tr, shard.layout, criteria, items_max=items_max, next_key=next_key, latest_first=True,
            scanned_max=scanned_max,
        )  # fmt: skip

    return shard.transact(body)
