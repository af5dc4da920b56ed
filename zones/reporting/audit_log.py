"""Deeds: what operators did to a shard, written down in the transaction that does it.

    (ROOT, DEED, number) -> deed record; numbers count up, and the last 10,000 are kept

Whoever asks "who has paused this, and when?" finds it in the store, whichever way it was done. What an application's
own program does in its course (a customer cancels an order) is no operator's deed, and is not written here.

Deeds are numbered, so that the oldest can be cleared without counting them: two operators at the same moment conflict,
and one of them tries again. A deed is found by its id: one that is repeated after a commit of unknown result, or that
goes on over many transactions, stays one.
"""

from typing import NamedTuple

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.keyspace import AUDIT_LOG, ROOT, pack_int, range_begin, range_end, unpack_int
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.records import AuditEntry, decode, encode

ID_BYTES = 16
ENTRIES_MAX = 10_000
LOOKED_BACK = 16  # As many deeds may come between two transactions of one deed, or between it and its repetition.

_PREFIX = ROOT + pack_int(AUDIT_LOG)


class NumberedEntry(NamedTuple):
    """A deed and its number on its shard."""

    number: int
    audit_entry: AuditEntry


def write(tr: Transaction, audit_entry: AuditEntry) -> None:
    """Write a deed down, in place of what was written of it before. Clears the one that is 10,000 older.

    Reads with conflict: the last 16 deeds. Writes 1 key and clears 1. May run twice.
    """
    number = 0
    for row in tr.get_range(range_begin(_PREFIX), range_end(_PREFIX), limit=LOOKED_BACK, reverse=True):
        found = _number(row.key)
        if found is None:
            continue
        number = max(number, found + 1)
        before = decode(AuditEntry, row.value)
        if before is not None and before.id == audit_entry.id:
            number = found
            break
    tr.set(_PREFIX + pack_int(number), encode(audit_entry))
    if number >= ENTRIES_MAX:
        tr.clear(_PREFIX + pack_int(number - ENTRIES_MAX))


def find(tr: Transaction, audit_entry_id: bytes) -> AuditEntry | None:
    """Return a deed of late: one of the last 16. Reads them with conflict."""
    for row in tr.get_range(range_begin(_PREFIX), range_end(_PREFIX), limit=LOOKED_BACK, reverse=True):
        audit_entry = decode(AuditEntry, row.value)
        if audit_entry is not None and audit_entry.id == audit_entry_id:
            return audit_entry
    return None


def latest(tr: Reader, *, entries_max: int, before: int | None = None) -> list[NumberedEntry]:
    """Return the last deeds, the latest first; of those numbered below `before` if that is given. Snapshot reads.

    One that a newer version wrote, or that is damaged, is passed over.
    """
    end = range_end(_PREFIX) if before is None else _PREFIX + pack_int(before)
    rows = tr.snapshot.get_range(range_begin(_PREFIX), end, limit=entries_max, reverse=True, streaming_mode=WANT_ALL)
    found = [(_number(row.key), decode(AuditEntry, row.value)) for row in rows]
    return [
        NumberedEntry(number, audit_entry)
        for number, audit_entry in found
        if number is not None and audit_entry is not None
    ]


def _number(key: bytes) -> int | None:
    """Return the number of a deed's key; None: it is damaged."""
    unpacked = unpack_int(key, len(_PREFIX))
    return unpacked[0] if unpacked is not None and unpacked[1] == len(key) else None
