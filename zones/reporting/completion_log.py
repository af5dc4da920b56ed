"""Completions: what has ended lately, so that somebody who asks for an item learns that it ran and did not vanish.

Kept for an hour, and of busy shards the last 16 MB, some hundred thousand items. Nothing that must be true hangs on it.

    (ROOT, HISTORY, FRESH, part, ended_us, item id)  -> one commit's ends, as they were written with them
    (ROOT, HISTORY, PACKED, ended_us, item id, part) -> many commits' ends, in one value
    (ROOT, HISTORY)                                  -> how many bytes are packed; atomic add

An end costs the transaction that brings it about a few dozen bytes and, whatever their number, one key: it is appended
by time, not filed by item, which would touch a page of its own for each. So to look for an item is to look through all
of them; housekeeping packs them, so that this is a search in few long values, a hundredth of a second at most. The part
is that of the commit's first zone: commits of busy parts do not all write at one place, and consumers pack their own.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

import msgspec

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.keyspace import COMPLETION_LOG, ROOT, pack_bytes, pack_int, range_begin, range_end, unpack_int
from fairlead.zones.layout import ShardLayout, Tenant, ZoneLocation
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.records import pack_value, unpacked

KEPT_US = 3_600_000_000  # An hour: long enough to answer "what became of it" to a person who has just waited for it.
PACKED_BYTES_MAX = 16_000_000
BLOCK_BYTES = 64_000  # Below FoundationDB's limit of a value.
PACK_ROWS_MAX = 2_000  # Fresh ones packed in one transaction,
PACK_BYTES_MAX = 1_000_000  # or some more bytes than this.
SETTLED_US = 1_000_000  # Commits of times longer ago do not come any more, and conflict with nobody who packs.
_ROW_BYTES = 16  # What a row's time and length add to it.

_TOTAL_BYTES = 8
_TOTAL = ROOT + pack_int(COMPLETION_LOG)
_FRESH = _TOTAL + pack_int(1)
_PACKED = _TOTAL + pack_int(2)


class EndReason(IntEnum):
    """How an item ended."""

    COMPLETED = 0
    CANCELLED = 1  # by somebody who did not hold it
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


_commit_decoder = msgspec.msgpack.Decoder(list[EndedOfZone])
_block_decoder = msgspec.msgpack.Decoder(list[tuple[int, bytes]])  # when, and the commit's ends as they were written


def append(tr: Transaction, layout: ShardLayout, ended: Sequence[EndedOfZone], *, now_us: int) -> None:
    """Write down, in the transaction in which they end, what items end. A blind write; may run twice."""
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
    """Return the ends that a commit wrote under `key`; of any other key, and of what is unreadable, none."""
    ends: list[EndedOfZone] = (unpacked(_commit_decoder, value) or []) if key.startswith(_FRESH) else []
    return ends


def find(tr: Reader, item_id: bytes) -> list[Ended]:
    """Return how an item ended, the last time first: its name may have been given again. Snapshot reads."""
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
    """Return how an item of this zone ended, the last time; None: that is not known, or not to this version.

    Snapshot reads, as `find`.
    """
    ended = [
        each.item.end_reason
        for each in find(tr, item_id)
        if (each.tenant, each.zone) == (location.tenant, location.name)
    ]
    return next((end_reason for end_reason in EndReason if ended[:1] == [end_reason]), None)


def compact(tr: Transaction, parts: range, *, now_us: int) -> bool:
    """Pack what is fresh in some parts, and clear what is too old or too much of all; say if there was any.

    A little at a time: it keeps up with some thousand commits a second. Conflicts with whoever packs the same parts, or
    clears, at the same time, and with nobody who ends something. An idle shard is asked two keys.
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
    """One commit's ends. `name`: what its key says, the part last: two tenants may give their items the same name."""

    ended_us: int
    name: bytes
    key: bytes
    value: bytes


def _blocks(tr: Reader, parts: range, until_us: int) -> list[list[_Fresh]]:
    """Read what ended until then and is fresh, as far as one transaction packs it, by the block that it goes into."""
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
    """Clear blocks, the oldest first, while they are too many or too old; return how many bytes that were.

    A total that is damaged may be less than what is cleared.
    """
    cleared = 0
    begin = range_begin(_PACKED)
    while True:
        row = next(iter(tr.get_range(begin, range_end(_PACKED), limit=1)), None)
        if row is None:
            return total  # What is counted beyond what was there.
        if total - cleared <= PACKED_BYTES_MAX and _time_of(row.key, _PACKED) > now_us - KEPT_US:
            break
        tr.clear(row.key)
        cleared += len(row.value)
        begin = row.key + b"\x00"
    return cleared


def _ends_in(ended_us: int, value: bytes, item_id: bytes) -> list[Ended]:
    """Return the ends of an item in what one commit wrote. What is unreadable is passed over."""
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
    """Return where the time begins in the key of what is fresh; in a damaged one where the part should be."""
    part = unpack_int(key, len(_FRESH))
    return len(_FRESH) if part is None else part[1]


def _time_of_fresh(key: bytes) -> int:
    """Return the time that a key of what is fresh names; of a damaged one the earliest."""
    found = unpack_int(key, _end_of_part(key))
    return 0 if found is None else found[0]


def _name(ended_us: int, item_id: bytes) -> bytes:
    return pack_int(ended_us) + pack_bytes(item_id)


def _time_of(key: bytes, prefix: bytes) -> int:
    """Return the time that a key names; of a damaged one the earliest, so that it is the first to be forgotten."""
    found = unpack_int(key, len(prefix))
    return 0 if found is None else found[0]
