"""Ids that stay taken after completion (`unique_for`), and how they, and results, expire.

When an item of such an id completes, a key is written that an enqueue of the id reads; not when it is cancelled or
dropped. A second key, in an index of the zone's part that is ordered by time, tells housekeeping when the first one
expires. Results expire the same way: their values begin with the time, too.
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
    unpack_bytes,
    unpack_int,
)
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.probes import probe
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.queue.items import EnqueueStatus

TIME_BYTES = 8  # Each value begins with them: until when it is kept.
EXPIRE_BYTES_MAX = 1_000_000  # Of values that one transaction reads and clears, but for its last reads.
_AT_ONCE = 32  # Values read side by side: results of 64 kB are two megabytes.

_RETENTION = ROOT + pack_int(RETENTION)


class IdState(NamedTuple):
    """The futures of what an enqueue reads of an id: its record, its dead letter, its retained id; None: not read."""

    present: Any
    dead_letter: Any = None
    retained_id: Any = None


def retain_id(tr: Transaction, location: ZoneLocation, item_id: bytes, until_us: int) -> None:
    """Keep the id of a completed item taken until `until_us`. Writes two keys, conflicts with an enqueue of the id."""
    key = location.keys.retained_id(item_id)
    tr.set(key, until_us.to_bytes(TIME_BYTES, "big"))
    tr.set(retention_key(location, key, until_us), b"")


def read_id_state(tr: Transaction, keys: ZoneKeys, item_id: bytes, *, is_given: bool) -> IdState:
    """Read with conflict whether an id is present; if a user gave it, also whether it is a dead letter or retained."""
    if not is_given:
        return IdState(tr.get(keys.item(item_id)))
    return IdState(tr.get(keys.item(item_id)), tr.get(keys.dead_letter(item_id)), tr.get(keys.retained_id(item_id)))


def status_of_id(asked: IdState, now_us: int) -> EnqueueStatus:
    """Return what becomes of an item that is to be enqueued, by what was read of its id."""
    present, dead_letter, retained_id = asked
    if present.value is not None:
        probe("an enqueue finds its id present")
        return EnqueueStatus.PRESENT
    if dead_letter is not None and dead_letter.value is not None:
        probe("an enqueue finds its id among the dead letters")
        return EnqueueStatus.DEAD_LETTER
    if retained_id is not None and retained_id.value is not None and int.from_bytes(retained_id.value, "big") > now_us:
        probe("an enqueue finds its id completed, and still taken")
        return EnqueueStatus.COMPLETED
    return EnqueueStatus.ENQUEUED


def expire(tr: Transaction, part: int, *, now_us: int, keys_max: int) -> int:
    """Clear up to `keys_max` ids and results of a part whose time has passed; return how many.

    Snapshot reads of the list; may run twice.

    An id that was completed again since has a later time in its value, and stays: the value is read with conflict. The
    time of a result is the first bytes of a long value. So it stops after `EXPIRE_BYTES_MAX` of values; one call per
    second keeps up with a megabyte of results a second.
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
            if until.value is not None and kept_until_us(until.value) < now_us:
                tr.clear(key)
            tr.clear(row_key)
        expired += len(some)
    return expired


def kept_until_us(value: bytes) -> int:
    """Return until when an id stays taken, or a result is kept, by its value."""
    return int.from_bytes(value[:TIME_BYTES], "big")


def _retained_key(row_key: bytes, at: int) -> bytes:
    """Return the key that an entry of the expiry index names, from its time at `at` on; of a damaged one itself."""
    until_us = unpack_int(row_key, at)
    key = b"" if until_us is None else unpack_bytes(row_key[until_us[1] :])
    return key if is_retained_key(key) else row_key


def retention_key(location: ZoneLocation, key: bytes, until_us: int) -> bytes:
    """Return the entry of the expiry index for `key` of a zone: a retained id or a result."""
    return _RETENTION + pack_int(location.part.part) + pack_int(until_us) + pack_bytes(key)
