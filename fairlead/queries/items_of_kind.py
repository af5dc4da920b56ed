"""The items of a kind on a shard, in all queues: each read page by page, so that any number of them may be there.

A pointer leads to every queue with items, asleep or not. Counts tell which parts and queues have items of the kind. An
item that moves in its queue meanwhile may come twice, or not at all.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from fairlead.zones.engines import Reader
from fairlead.zones.keyspace import PartKeys
from fairlead.zones.layout import ShardLayout, ZoneLocation
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.queue.stored_item import number_of
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

POINTERS_PAGE = 1_000
ITEMS_PAGE = 200


class ItemOfKind(NamedTuple):
    """Where an item lies."""

    location: ZoneLocation
    item_id: bytes


def items_of_kind(shard: Shard, kind: str) -> Iterator[ItemOfKind]:
    """Yield the items of a kind. Snapshot reads; nothing is written.

    Raises:
      One of `shard.db.errors`: the shard cannot be read.
    """
    for part in shard.layout.parts:
        begin = part.vest_priority(0) if shard.transact(partial(_part_has, part=part, kind=kind)) else b""
        while begin:
            queues, begin = shard.transact(
                partial(_page_of_queues, layout=shard.layout, part=part, kind=kind, begin=begin)
            )
            for location in queues:
                yield from _items_of_queue(shard, location, kind)


def _items_of_queue(shard: Shard, location: ZoneLocation, kind: str) -> Iterator[ItemOfKind]:
    begin = location.keys.vest_priority(0)
    while begin:
        ids, begin = shard.transact(partial(_page_of_items, location=location, kind=kind, begin=begin))
        yield from (ItemOfKind(location, item_id) for item_id in ids)


def _part_has(attempt: Attempt, *, part: PartKeys, kind: str) -> bool:
    return _is_above_0(attempt.tr, part.depth(kind))


def _page_of_queues(
    attempt: Attempt, *, layout: ShardLayout, part: PartKeys, kind: str, begin: bytes
) -> tuple[list[ZoneLocation], bytes]:
    """Return queues with items of the kind, and where the next page begins, empty at the end."""
    reader: Reader = attempt.tr
    rows = list(reader.snapshot.get_range(begin, part.vest_end(), limit=POINTERS_PAGE, streaming_mode=WANT_ALL))
    entries = [entry for row in rows if (entry := part.entry(row.key)) is not None]
    found = [location for entry in entries if (location := layout.location_of(entry.id)) is not None]
    counts = [reader.snapshot.get(location.keys.count(kind)) for location in found]
    queues = [each for each, read in zip(found, counts, strict=True) if read.value and number_of(read.value) > 0]
    return queues, rows[-1].key + b"\0" if len(rows) == POINTERS_PAGE else b""


def _page_of_items(attempt: Attempt, *, location: ZoneLocation, kind: str, begin: bytes) -> tuple[list[bytes], bytes]:
    """Return the ids of items of the kind, and where the next page begins, empty at the end."""
    reader: Reader = attempt.tr
    keys = location.keys
    rows = list(reader.snapshot.get_range(begin, keys.vest_end(), limit=ITEMS_PAGE, streaming_mode=WANT_ALL))
    ids = [entry.id for row in rows if (entry := keys.entry(row.key)) is not None]
    reads = [(item_id, reader.snapshot.get(keys.item(item_id))) for item_id in ids]
    records = [(item_id, decode(ItemRecord, read.value)) for item_id, read in reads if read.value is not None]
    found = [item_id for item_id, record in records if record is not None and record.kind == kind]
    return found, rows[-1].key + b"\0" if len(rows) == ITEMS_PAGE else b""


def _is_above_0(tr: Reader, key: bytes) -> bool:
    value = tr.snapshot.get(key).value
    return value is not None and number_of(value) > 0
