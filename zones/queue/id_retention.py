"""Ids that stay taken after completion (`unique_for`), and how they, and results, are forgotten.

An item of such an id that completes leaves a key behind that an enqueue of the id reads; one that is cancelled or
dropped does not. A second key, in a list of the zone's part that is ordered by time, tells housekeeping when the first
may go. So it is with results: their values begin with the time, too.
"""

from typing import Any, NamedTuple

from fairlead.zones.engines import Transaction
from fairlead.zones.keyspace import (
    RETENTION,
    ROOT,
    ZoneKeys,
    is_retained_key,
    pack_bytes,
    pack_int,
    range_end,
    unpack_bytes,
    unpack_int,
)
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.probes import probe
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.queue.items import EnqueueStatus

TIME_BYTES = 8  # With these each value begins: until when it is kept.
EXPIRE_BYTES_MAX = 1_000_000  # Of values read in one transaction that forgets, or one more reading than these.
_AT_ONCE = 32  # Values read side by side: results of 64 kB are two megabytes.

_RETENTION = ROOT + pack_int(RETENTION)


class IdState(NamedTuple):
    """The futures of what an enqueue reads of an id: its record, its buried record, its done key; None: not read."""

    present: Any
    dead_letter: Any = None
    retained_id: Any = None


def retain_id(tr: Transaction, location: ZoneLocation, item_id: bytes, until_us: int) -> None:
    """Keep the id of a completed item taken until `until_us`. Writes two keys, conflicts with an enqueue of the id."""
    key = location.keys.retained_id(item_id)
    tr.set(key, until_us.to_bytes(TIME_BYTES, "big"))
    tr.set(retention_key(location, key, until_us), b"")


def read_id_state(tr: Transaction, keys: ZoneKeys, item_id: bytes, *, is_given: bool) -> IdState:
    """Read with conflict whether an id is there; of one that a user gave, also whether it is buried or kept taken."""
    if not is_given:
        return IdState(tr.get(keys.item(item_id)))
    return IdState(tr.get(keys.item(item_id)), tr.get(keys.dead_letter(item_id)), tr.get(keys.retained_id(item_id)))


def status_of_id(asked: IdState, now_us: int) -> EnqueueStatus:
    """Return what becomes of an item that is to be enqueued, by what was asked of its id."""
    present, dead_letter, retained_id = asked
    if present.value is not None:
        probe("an enqueue finds its id present")
        return EnqueueStatus.PRESENT
    if dead_letter is not None and dead_letter.value is not None:
        probe("an enqueue finds its id buried")
        return EnqueueStatus.DEAD_LETTER
    if retained_id is not None and retained_id.value is not None and int.from_bytes(retained_id.value, "big") > now_us:
        probe("an enqueue finds its id completed, and still taken")
        return EnqueueStatus.COMPLETED
    return EnqueueStatus.ENQUEUED


def expire(tr: Transaction, part: int, *, now_us: int, keys_max: int) -> int:
    """Clear up to `keys_max` ids and results of a part whose time has passed; return how many.

    Snapshot reads of the list; may run twice.

    An id that was completed again in between has a later time of its own, and stays taken by the key it wrote last
    only if that is later: the value is read with conflict. A result is long, and its time is its first bytes: it stops
    after `EXPIRE_BYTES_MAX` of values, and who calls every second keeps up with a megabyte of results a second.
    """
    begin = _RETENTION + pack_int(part)
    rows = list(tr.snapshot.get_range(begin, begin + pack_int(now_us), limit=keys_max, streaming_mode=WANT_ALL))
    expired = size = 0
    while expired < len(rows) and size < EXPIRE_BYTES_MAX:
        some = [(row.key, _retained_key(row.key, len(begin))) for row in rows[expired : expired + _AT_ONCE]]
        reads = [tr.get(key) for _, key in some]
        for (row_key, key), until in zip(some, reads, strict=True):
            probe("an id that was kept taken is free again")
            size += len(until.value or b"")
            if until.value is not None and int.from_bytes(until.value[:TIME_BYTES], "big") < now_us:
                tr.clear(key)
            tr.clear(row_key)
        expired += len(some)
    return expired


def _retained_key(row_key: bytes, at: int) -> bytes:
    """Return which key a key of the list of what to forget names, from its time at `at` on; a damaged one itself."""
    until_us = unpack_int(row_key, at)
    key = b"" if until_us is None else unpack_bytes(row_key[until_us[1] :])
    return key if is_retained_key(key) else row_key


def retention_key(location: ZoneLocation, key: bytes, until_us: int) -> bytes:
    """Return the key that says when `key` of a zone, which keeps an id taken or a result, may go."""
    return _RETENTION + pack_int(location.part.part) + pack_int(until_us) + pack_bytes(key)


def retention_range() -> tuple[bytes, bytes]:
    """Return begin and end of the keys that say what to forget when."""
    return _RETENTION, range_end(_RETENTION)
