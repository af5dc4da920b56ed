"""One tenant: its queues with their first items, its policy, its dead letters. And the search for tenants."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from fairlead.move_views import move_in_words
from fairlead.zones import tenant_search
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
SCANNED_PER_PAGE_MAX = 5_000  # Dead letters read for one page: mostly a tenth of a second, in ten transactions.


class QueueDetails(NamedTuple):
    """A queue of a tenant. `items`: the first, in the order in which they run; `waiting`: counts of all items by kind.

    `dead_letters`: some of its dead letters, by their ids; `dead_letters_whole`: whether these are all.
    """

    name: str
    waiting: dict[str, int]
    items: list[Item]
    dead_letters: list[DeadLetter]
    dead_letters_whole: bool

    @property
    def total(self) -> int:
        """How many items the queue has."""
        return sum(self.waiting.values())


class TenantDetails(NamedTuple):
    """A tenant. `whole`: whether `queues` are all of its queues. `moving`: where it moves, in words; empty: nowhere."""

    shard: str
    tenant: Tenant
    policy: TenantPolicy
    queues: list[QueueDetails]
    whole: bool
    moving: str
    now_us: int


def read_tenant(shard: Shard, tenant: Tenant) -> TenantDetails:
    """Return a tenant's queues and policy. Snapshot reads, except of its ownership.

    Raises:
      TenantMoved: another shard owns the tenant.
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
        moving, whole = move_in_words(tr, shard, tenant), len(names) <= QUEUES_MAX
        return TenantDetails(shard.name, tenant, policy, queues, whole, moving, attempt.now_us)

    return shard.transact(body)


class FoundTenants(NamedTuple):
    """Tenants whose names begin with a text. `whole`: whether these are all."""

    tenants: list[Tenant]
    whole: bool


def search_tenants(shard: Shard, text: str, *, tenants_max: int) -> FoundTenants:
    """Return the tenants of a shard whose names begin with `text`: `APP/USER`, an app, or a user.

    Snapshot reads, one for each name; see `find_tenants`.

    Raises:
      One of `shard.db.errors`: the shard cannot be read.
    """
    return FoundTenants(
        *shard.transact(lambda attempt: tenant_search.find_tenants(attempt.tr, text, tenants_max=tenants_max))
    )


class DeadLetterList(NamedTuple):
    """Matching dead letters of a shard, the latest first, of `scanned` ones that were read.

    `next_key`: where to continue; None: there are no more.
    """

    shard: str
    items: list[DeadLetter]
    next_key: bytes | None
    scanned: int


def find_dead_letters(
    shard: Shard, criteria: DeadLetterFilter, *, items_max: int, next_key: bytes | None = None
) -> DeadLetterList:
    """Return the latest matching dead letters, of the first `SCANNED_PER_PAGE_MAX` that are read.

    If there are `items_max`, a further one is searched for among as many again. So no next page is empty, unless this
    second search gave up. Snapshot reads, a stretch of dead letters in each transaction.

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
    for page in dead_letter_batches(
        shard, criteria, items_max=items_max, next_key=next_key, scanned_max=SCANNED_PER_PAGE_MAX
    ):
        items += page.items
        scanned += page.scanned
        next_key = page.next_key
    return DeadLetterList(shard.name, items, next_key, scanned)


def dead_letter_batches(
    shard: Shard,
    criteria: DeadLetterFilter,
    *,
    scanned_max: int,
    items_max: int | None = None,
    next_key: bytes | None = None,
) -> Iterator[DeadLetterPage]:
    """Yield matching dead letters, the latest first, one transaction after the other.

    Ends after `items_max` matching ones, and after `scanned_max` that were read. Snapshot reads.
    """
    found = scanned = 0
    while True:
        wanted = scanned_max if items_max is None else items_max - found
        page = _read_batch(
            shard, criteria, next_key, items_max=wanted, scanned_max=min(SCANNED_MAX, scanned_max - scanned)
        )
        found += len(page.items)
        scanned += page.scanned
        next_key = page.next_key
        yield page
        if next_key is None or scanned >= scanned_max or (items_max is not None and found >= items_max):
            return


def _read_batch(
    shard: Shard, criteria: DeadLetterFilter, next_key: bytes | None, *, items_max: int, scanned_max: int
) -> DeadLetterPage:
    def body(attempt: Attempt) -> DeadLetterPage:
        return search(
            attempt.tr, shard.layout, criteria, items_max=items_max, next_key=next_key, latest_first=True,
            scanned_max=scanned_max,
        )  # fmt: skip

    return shard.transact(body)
