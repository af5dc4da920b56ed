"""The completion log: what has ended lately, so that a diagnosis can say how an item ended.

It covers an hour, and on busy shards the last 16 MB, which is some hundred thousand items. Nothing that must be correct
depends on it.

    (ROOT, COMPLETION_LOG, FRESH, part, ended_us, item id)  -> the ends of one commit, as it wrote them
    (ROOT, COMPLETION_LOG, PACKED, ended_us, item id, part) -> the ends of many commits, in one value
    (ROOT, COMPLETION_LOG)                                  -> how many bytes are packed; atomic add

An end costs its transaction a few dozen bytes and, whatever the number of items, one key. Ends are appended by time and
not filed by item, which would touch a page of its own for each item. So to find an item, `find` reads the whole log.
Housekeeping packs it, so that this is a search in few long values, a hundredth of a second at most. The part is that of
the commit's first zone: commits of busy parts do not all write at one place, and consumers pack their own parts.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

import msgspec

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.keyspace import COMPLETION_LOG, ROOT, pack_bytes, pack_int, range_begin, range_end, unpack_int
from fairlead.zones.layout import ShardLayout, Tenant, ZoneLocation
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.records import pack_value, unpacked

KEPT_US = 3_600_000_000  # An hour: long enough for a person who has just waited for the item.
PACKED_BYTES_MAX = 16_000_000
BLOCK_BYTES = 64_000  # Below FoundationDB's limit of a value.
PACK_ROWS_MAX = 2_000  # Fresh rows packed in one transaction,
PACK_BYTES_MAX = 1_000_000  # or some more bytes than this.
SETTLED_US = 1_000_000  # Commits with earlier times no longer arrive, and do not conflict with packing.
_ROW_BYTES = 16  # What the time and length of a row add to it.

_TOTAL_BYTES = 8
_TOTAL = ROOT + pack_int(COMPLETION_LOG)
_FRESH = _TOTAL + pack_int(1)
_PACKED = _TOTAL + pack_int(2)


class EndReason(IntEnum):
    """How an item ended."""

    COMPLETED = 0
    CANCELLED = 1  # by a caller that did not hold its lease
    DROPPED = 2  # it failed for good, and its kind says that such items are deleted


class EndedItem(NamedTuple):
    """One item that ended. `attempt`: its number, the last; `took_ms`: since it was leased for that."""

    item_id: bytes
    kind: str
    end_reason: int
    attempt: int
    took_ms: int


class EndedOfZone(NamedTuple):
    """Items of one queue zone that ended together."""

    app: str
    user: str
    zone: str
    items: list[EndedItem]


class Ended(NamedTuple):
    """An item that ended, where and when."""

    tenant: Tenant
    zone: str
    ended_us: int
    item: EndedItem

    def is_at(self, location: ZoneLocation) -> bool:
        """Say whether it was in a queue zone."""
        return (self.tenant, self.zone) == (location.tenant, location.name)


_commit_decoder = msgspec.msgpack.Decoder(list[EndedOfZone])
_block_decoder = msgspec.msgpack.Decoder(list[tuple[int, bytes]])  # the time, and the ends as the commit wrote them


def append(tr: Transaction, layout: ShardLayout, ended: Sequence[EndedOfZone], *, now_us: int) -> None:
    """Write the ends of items, in the transaction in which they end. A blind write; may run twice."""
    if not ended:
        return
    value = pack_value(ended)
    if len(value) <= BLOCK_BYTES:
        first = ended[0]
        part = layout.location(Tenant(first.app, first.user), first.zone).part.part
        tr.set(_FRESH + pack_int(part) + _name(now_us, first.items[0].item_id), value)
    else:
        for half in _halves(ended):
            append(tr, layout, half, now_us=now_us)


def ends_of(key: bytes, value: bytes) -> list[EndedOfZone]:
    """Return the ends that a commit wrote under `key`; none for any other key, and for an unreadable value."""
    ends: list[EndedOfZone] = (unpacked(_commit_decoder, value) or []) if key.startswith(_FRESH) else []
    return ends


def find(tr: Reader, item_id: bytes) -> list[Ended]:
    """Return how an item ended, the latest end first: its id may have been used again. Snapshot reads."""
    found: list[Ended] = []
    for row in tr.snapshot.get_range(range_begin(_FRESH), range_end(_FRESH), reverse=True, streaming_mode=WANT_ALL):
        if item_id in row.value:
            found += _ends_in(_time_of_fresh(row.key), row.value, item_id)
    for row in tr.snapshot.get_range(range_begin(_PACKED), range_end(_PACKED), reverse=True, streaming_mode=WANT_ALL):
        if item_id in row.value:
            for ended_us, value in reversed(unpacked(_block_decoder, row.value) or []):
                found += _ends_in(ended_us, value, item_id)
    return sorted(found, key=lambda each: -each.ended_us)


def end_reason_of(tr: Transaction, location: ZoneLocation, item_id: bytes) -> EndReason | None:
    """Return how an item of this zone ended last; None: unknown, or unknown to this version.

    Snapshot reads, as `find`.
    """
    return reason_of_last(each for each in find(tr, item_id) if each.is_at(location))


def reason_of_last(ends: Iterable[Ended]) -> EndReason | None:
    """Return how the first of some ends came about, the latest first; None: there is none, or it is unknown here."""
    last = next(iter(ends), None)
    return next((reason for reason in EndReason if last is not None and last.item.end_reason == reason), None)


def compact(tr: Transaction, parts: range, *, now_us: int) -> bool:
    """Pack fresh rows of some parts, and clear packed rows beyond the limits of age and size; say if it did anything.

    It handles a limited number of rows per call, and keeps up with some thousand commits a second. It conflicts with a
    concurrent call for the same parts, or one that clears, and never with a transaction that ends an item. On an idle
    shard it reads two keys.
    """
    total = int.from_bytes((tr.snapshot.get(_TOTAL).value or b"")[:_TOTAL_BYTES], "little")
    packed = 0
    for block in _blocks(tr, parts, now_us - SETTLED_US):
        value = pack_value([(row.ended_us, row.value) for row in block])
        tr.set(_PACKED + block[0].name, value)
        packed += len(value)
        for row in block:
            tr.add_read_conflict_key(row.key)
            tr.clear(row.key)
    cleared = _clear_oldest(tr, total + packed, now_us) if total + packed else 0
    if packed != cleared:
        tr.add(_TOTAL, ((packed - cleared) % 2**64).to_bytes(_TOTAL_BYTES, "little"))
    return bool(packed or cleared)


class _Fresh(NamedTuple):
    """The ends of one commit. `name`: the elements of its key, the part last: two tenants may use the same item id."""

    ended_us: int
    name: bytes
    key: bytes
    value: bytes


def _blocks(tr: Reader, parts: range, until_us: int) -> list[list[_Fresh]]:
    """Read fresh rows that ended before `until_us`, as many as one transaction packs, grouped by block."""
    begin, end = _FRESH + pack_int(parts.start), _FRESH + pack_int(parts.stop)
    read = 0
    rows: list[_Fresh] = []
    for row in tr.snapshot.get_range(begin, end, limit=PACK_ROWS_MAX):
        at = _end_of_part(row.key)
        name = row.key[at:] + row.key[len(_FRESH) : at]
        fresh = _Fresh(_time_of_fresh(row.key), name, row.key, row.value)
        if fresh.ended_us < until_us:
            rows.append(fresh)
            read += len(row.value)
        if read > PACK_BYTES_MAX:
            break
    blocks: list[list[_Fresh]] = []
    size = 0
    for fresh in sorted(rows):
        if not blocks or size + len(fresh.value) > BLOCK_BYTES:
            blocks.append([])
            size = 0
        blocks[-1].append(fresh)
        size += len(fresh.value) + _ROW_BYTES
    return blocks


def _clear_oldest(tr: Transaction, total: int, now_us: int) -> int:
    """Clear blocks, the oldest first, while they exceed the limits of size or age; return how many bytes.

    A damaged total may be less than what is cleared.
    """
    cleared = 0
    begin = range_begin(_PACKED)
    while True:
        row = next(iter(tr.get_range(begin, range_end(_PACKED), limit=1)), None)
        if row is None:
            return total  # The total counted more than there was.
        if total - cleared <= PACKED_BYTES_MAX and _time_of(row.key, _PACKED) > now_us - KEPT_US:
            break
        tr.clear(row.key)
        cleared += len(row.value)
        begin = row.key + b"\x00"
    return cleared


def _ends_in(ended_us: int, value: bytes, item_id: bytes) -> list[Ended]:
    """Return the ends of an item in the value of one commit. Unreadable values are skipped."""
    return [
        Ended(Tenant(each.app, each.user), each.zone, ended_us, item)
        for each in unpacked(_commit_decoder, value) or []
        for item in each.items
        if item.item_id == item_id
    ]


def _halves(ended: Sequence[EndedOfZone]) -> Iterator[Sequence[EndedOfZone]]:
    if len(ended) > 1:
        half = len(ended) // 2
        yield from (ended[:half], ended[half:])
    else:
        (zone,) = ended
        half = len(zone.items) // 2
        yield from ([zone._replace(items=zone.items[:half])], [zone._replace(items=zone.items[half:])])


def _end_of_part(key: bytes) -> int:
    """Return where the time begins in the key of a fresh row; in a damaged key where the part should be."""
    part = unpack_int(key, len(_FRESH))
    return len(_FRESH) if part is None else part[1]


def _time_of_fresh(key: bytes) -> int:
    """Return the time in the key of a fresh row; 0 in a damaged key."""
    found = unpack_int(key, _end_of_part(key))
    return 0 if found is None else found[0]


def _name(ended_us: int, item_id: bytes) -> bytes:
    return pack_int(ended_us) + pack_bytes(item_id)


def _time_of(key: bytes, prefix: bytes) -> int:
    """Return the time in a key; 0 in a damaged key, which is then the first to be cleared."""
    found = unpack_int(key, len(prefix))
    return 0 if found is None else found[0]
