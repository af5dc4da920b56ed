"""Graves: the buried items of a shard that somebody looks for, and what may become of many of them at once.

The shard's list of buried items is ordered by time and says each one's kind, so a search reads a bounded stretch of it,
and the records only of those whose key does not rule them out. It goes on where the last one stopped.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.errors import TenantMoved
from fairlead.zones.keyspace import pack_int
from fairlead.zones.layout import Layout, Place, Tenant
from fairlead.zones.pipelining import in_step
from fairlead.zones.queue import dead_letters
from fairlead.zones.queue.dead_letters import BuriedItem
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.queue.stored_item import check_owner
from fairlead.zones.records import BuriedRecord, decode

LOOKED_MAX = 500  # Graves that one transaction looks at: with their records up to 8 MB, mostly a tenth of it.
EXHUMED_MAX = 200  # Graves that one transaction empties.


class Sought(NamedTuple):
    """Which buried items are meant; None: whatever it is.

    `error`: text that the error contains, as it was raised. `before_us`: buried before then. `shard`: its name, for
    whoever goes from shard to shard; a search is in one.
    """

    kind: str | None = None
    tenant: Tenant | None = None
    zone: str | None = None
    error: str | None = None
    before_us: int | None = None
    shard: str | None = None

    def may_be(self, tenant: Tenant, zone: str, kind: str) -> bool:
        """Say whether an item of which the list tells this may be meant."""
        return (
            (self.kind is None or kind == self.kind)
            and (self.tenant is None or tenant == self.tenant)
            and (self.zone is None or zone == self.zone)
        )

    def is_meant(self, record: BuriedRecord) -> bool:
        """Say whether an item that may be meant is."""
        return self.error is None or self.error in record.error


class Unearthed(NamedTuple):
    """What a stretch of the list held. `next_key`: where to go on; None: that was all. `looked`: how many graves."""

    items: list[BuriedItem]
    next_key: bytes | None
    looked: int


def search(
    tr: Reader,
    layout: Layout,
    sought: Sought,
    *,
    items_max: int,
    next_key: bytes | None = None,
    latest_first: bool = False,
    looked_max: int = LOOKED_MAX,
) -> Unearthed:
    """Return the buried items that are meant, of the first `looked_max` graves from `next_key` on.

    Snapshot reads. One that a newer version wrote, or that is damaged, is passed over.
    """
    begin, end = dead_letters.grave_range()
    if sought.before_us is not None:
        end = begin + pack_int(max(0, sought.before_us))
    if next_key is not None:
        begin, end = (begin, min(end, next_key)) if latest_first else (max(begin, next_key), end)
    if begin >= end:
        return Unearthed([], None, 0)
    snapshot = tr.snapshot
    rows = list(snapshot.get_range(begin, end, limit=looked_max, reverse=latest_first, streaming_mode=WANT_ALL))
    reads = []
    for looked, row in enumerate(rows, start=1):
        grave = dead_letters.grave_of(row.key, layout)
        if grave is None:
            continue
        place, item_id = grave
        if sought.may_be(place.tenant, place.name, row.value.decode(errors="replace")):
            reads.append((looked, place, item_id, snapshot.get(place.keys.buried(item_id))))
    items = []
    for looked, place, item_id, read in reads:
        record = None if read.value is None else decode(BuriedRecord, read.value)
        if record is None or not sought.is_meant(record):
            continue
        items.append(BuriedItem(place.tenant, place.name, item_id, record))
        if len(items) == items_max:
            return Unearthed(items, _behind(rows[looked - 1].key, latest_first), looked)
    whole = len(rows) < looked_max
    return Unearthed(items, None if whole else _behind(rows[-1].key, latest_first), len(rows))


def revive_all(tr: Transaction, layout: Layout, items: Sequence[BuriedItem], *, now_us: int) -> list[BuriedItem]:
    """Put buried items back into their queues, due now, and wake their pointers; return those that were.

    Left out is what is not buried any more, or was buried anew, or whose tenant has left. Reads with conflict: the
    tenants' ownership, the buried records, the pointers as `pointers.look` says. May run twice.
    """
    revived = _still_buried(tr, layout, items)
    zones: dict[tuple[Tenant, str], QueueZone] = {}
    for place, item, record in revived:
        dead_letters.revive(tr, place, item.id, record, now_us=now_us)
        zones[place.tenant, place.name] = QueueZone(layout, place.tenant, place.name)
    in_step([zone.wake_steps(tr, earliest_us=now_us, now_us=now_us) for zone in zones.values()])
    return [item for _, item, _ in revived]


def discard_all(tr: Transaction, layout: Layout, items: Sequence[BuriedItem]) -> list[BuriedItem]:
    """Delete buried items for good; return those that were. Left out, and read with conflict: see `revive_all`."""
    discarded = _still_buried(tr, layout, items)
    for place, item, record in discarded:
        dead_letters.discard(tr, place, item.id, record)
    return [item for _, item, _ in discarded]


def _still_buried(
    tr: Transaction, layout: Layout, items: Sequence[BuriedItem]
) -> list[tuple[Place, BuriedItem, BuriedRecord]]:
    places = [layout.place(item.tenant, item.zone) for item in items]
    reads = [
        (tr.get(place.keys.tenant.owner), tr.get(place.keys.buried(item.id)))
        for place, item in zip(places, items, strict=True)
    ]
    found = []
    for place, item, (owner, stored) in zip(places, items, reads, strict=True):
        try:
            check_owner(layout, owner.value)
        except TenantMoved:
            continue
        record = None if stored.value is None else decode(BuriedRecord, stored.value)
        if record is not None and record.buried_us == item.record.buried_us:
            found.append((place, item, record))
    return found


def _behind(key: bytes, latest_first: bool) -> bytes:
    return key if latest_first else key + b"\x00"
