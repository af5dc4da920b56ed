"""The rows of a tenant, as a move sees them: which are copied, which count items, which are named elsewhere."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from fairlead.zones.engines import KeyValue, Reader, transact
from fairlead.zones.external.names import external_zone
from fairlead.zones.keyspace import (
    COUNT,
    DEAD_LETTER,
    GUARD,
    MARK,
    POINTER,
    RESULT,
    RETAINED_ID,
    ZONE,
    TenantKeys,
    pack_int,
    range_begin,
    range_end,
    unpack_bytes,
    unpack_int,
    unpack_name,
    unpack_names,
)
from fairlead.zones.layout import ShardLayout, Tenant, ZoneLocation
from fairlead.zones.open_shard import OpenShard
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.queue.stored_item import number_of

_ZONE, _MARK = pack_int(ZONE), pack_int(MARK)
ZONES_AT_ONCE = 200  # Whose counts one transaction reads.
_NOT_COPIED = tuple(map(pack_int, (POINTER, GUARD)))  # Each shard makes its own pointers of the zones that it holds.


class ZoneRow(NamedTuple):
    """A key of a queue zone: the zone's name, which sort of key it is, and the rest of the key."""

    zone: str
    sort: int
    rest: bytes


def parse_zone_row(keys: TenantKeys, key: bytes) -> ZoneRow | None:
    """Return what a key of a tenant's queue zone is; None: it is none, or it is damaged."""
    at = len(keys.prefix)
    if key[at : at + len(_ZONE)] != _ZONE:
        return None
    named = unpack_names(key, at + len(_ZONE), 1)
    sort = None if named is None else unpack_int(key, named[1])
    if named is None or sort is None:
        return None
    return ZoneRow(named[0][0], sort[0], key[sort[1] :])


def is_copied(keys: TenantKeys, key: bytes) -> bool:
    """Say whether a move copies a key: all but the ownership record, the marks, and pointers of zones with items here.

    The pointer of a queue in an external store is copied: nothing else of the tenant's rows says that it is needed.
    """
    at = len(keys.prefix)
    if not key.startswith(_ZONE, at):
        return key != keys.owner and not key.startswith(keys.marks)
    sort_at = key.find(b"\x00", at + len(_ZONE)) + 1  # Behind the zone's name. A key is parsed only if it is a pointer.
    if not key.startswith(_NOT_COPIED, sort_at):
        return True
    row = parse_zone_row(keys, key)
    return row is None or is_external_pointer(row)


def is_external_pointer(row: ZoneRow) -> bool:
    """Say whether a row is the pointer of a queue in an external store."""
    return row.sort == POINTER and external_zone(row.zone) is not None


def copied_ranges(keys: TenantKeys) -> list[tuple[bytes, bytes]]:
    """Return the ranges that hold all that is copied: below the tenant, without the ownership record and the marks."""
    after_marks = range_end(keys.marks)
    return [
        (range_begin(keys.prefix), keys.owner),
        (keys.owner + b"\x00", keys.marks),
        (after_marks, range_end(keys.prefix)),
    ]


class ZoneCounts:
    """How many items of each kind each zone of a tenant has: the counts as they were copied.

    A shard's depths and pointers are made of it. A count that is copied again replaces the earlier one.
    """

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._keys = TenantKeys(*tenant)
        self._counts: dict[bytes, int] = {}

    def replace(self, begin: bytes, end: bytes, rows: Iterable[KeyValue]) -> None:
        """Note what a range holds now."""
        if end == begin + b"\x00":
            self._counts.pop(begin, None)
        else:
            for key in [key for key in self._counts if begin <= key < end]:
                del self._counts[key]
        for row in rows:
            parsed = parse_zone_row(self._keys, row.key)
            if parsed is not None and parsed.sort == COUNT:
                self._counts[row.key] = number_of(row.value)

    def depths(self, layout: ShardLayout) -> Mapping[bytes, int]:
        """Return how many items the tenant adds to each count of a part of a shard, by its key."""
        sums: dict[bytes, int] = {}
        for key, count in self._counts.items():
            parsed = parse_zone_row(self._keys, key)
            kind = None if parsed is None else unpack_name(parsed.rest, 0)
            if parsed is not None and kind is not None and count:
                depth_key = layout.location(self._tenant, parsed.zone).part.depth(kind)
                sums[depth_key] = sums.get(depth_key, 0) + count
        return sums

    def busy_zones(self, layout: ShardLayout) -> list[ZoneLocation]:
        """Return where the zones lie on a shard that hold items, and so need a pointer."""
        names: dict[str, None] = {}
        for key, count in self._counts.items():
            parsed = parse_zone_row(self._keys, key)
            if count and parsed is not None:
                names[parsed.zone] = None
        return [layout.location(self._tenant, name) for name in names]


def read_counts(tr: Reader, keys: TenantKeys, *, begin: bytes = b"", zones_max: int) -> tuple[list[KeyValue], bytes]:
    """Return the counts of up to so many zones from a key on, and the key to go on from; empty: that was all.

    Snapshot reads: two for each zone.
    """
    prefix = keys.zones
    begin, end = begin or range_begin(prefix), range_end(prefix)
    found: list[KeyValue] = []
    for _ in range(zones_max):
        row = next(iter(tr.snapshot.get_range(begin, end, limit=1)), None)
        if row is None:
            return found, b""
        named = unpack_names(row.key, len(prefix), 1)
        if named is None:
            begin = row.key + b"\x00"
            continue
        zone = row.key[: named[1]]
        counts = zone + pack_int(COUNT)
        found += tr.snapshot.get_range(range_begin(counts), range_end(counts), streaming_mode=WANT_ALL)
        begin = range_end(zone)
    return found, begin


def dead_letter_id(row: ZoneRow) -> bytes | None:
    """Return the id of a dead letter; None: the key is none of one."""
    return unpack_bytes(row.rest) if row.sort == DEAD_LETTER and row.rest else None


def expires(row: ZoneRow) -> bool:
    """Say whether a key is listed among those that expire."""
    return row.sort in (RETAINED_ID, RESULT)


def read_zone_counts(shard: OpenShard, tenant: Tenant, look_up: Callable[[], None] = lambda: None) -> ZoneCounts:
    """Read how many items each zone of a tenant has. `look_up`: called between the transactions."""
    zone_counts, keys = ZoneCounts(tenant), TenantKeys(*tenant)
    begin, more = b"", True
    while more:
        counts, begin = transact(shard.db, partial(read_counts, keys=keys, begin=begin, zones_max=ZONES_AT_ONCE))
        for row in counts:
            zone_counts.replace(row.key, row.key + b"\x00", [row])
        more = bool(begin)
        look_up()
    return zone_counts
