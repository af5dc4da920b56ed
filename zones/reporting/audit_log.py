"""The audit log: what operators did to a shard, written in the transaction that does it.

    (ROOT, AUDIT_LOG, number) -> audit entry; numbers count up, and the last 10,000 entries are kept

It answers "who has paused this, and when?", whichever tool was used. Actions of an application's own program (a
customer cancels an order) are not written here.

Entries are numbered, so that the oldest can be cleared without counting them: if two operators act at the same moment,
their transactions conflict, and one is retried. An entry is found by its id. So an action that is repeated after a
commit of unknown result, or that takes many transactions, has one entry.
"""

from typing import NamedTuple

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.keyspace import AUDIT_LOG, ROOT, pack_int, range_begin, range_end, unpack_int
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.records import AuditEntry, decode, encode

ID_BYTES = 16
ENTRIES_MAX = 10_000
LOOKED_BACK = 16  # So many entries may come between two transactions of one action, or between it and its repetition.

_PREFIX = ROOT + pack_int(AUDIT_LOG)


class NumberedEntry(NamedTuple):
    """An entry and its number on its shard."""

    number: int
    audit_entry: AuditEntry


def write(tr: Transaction, audit_entry: AuditEntry) -> None:
    """Write an entry, in place of an earlier state of it. Clears the entry that is 10,000 older.

    Reads with conflict: the last 16 entries. Writes 1 key and clears 1. May run twice.
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
    """Return an entry by its id if it is one of the last 16. Reads them with conflict."""
    for row in tr.get_range(range_begin(_PREFIX), range_end(_PREFIX), limit=LOOKED_BACK, reverse=True):
        audit_entry = decode(AuditEntry, row.value)
        if audit_entry is not None and audit_entry.id == audit_entry_id:
            return audit_entry
    return None


def latest(tr: Reader, *, entries_max: int, before: int | None = None) -> list[NumberedEntry]:
    """Return the last entries, the latest first; those numbered below `before` if that is given. Snapshot reads.

    Entries that a newer version wrote, or that are damaged, are skipped.
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
    """Return the number in the key of an entry; None: it is damaged."""
    unpacked = unpack_int(key, len(_PREFIX))
    return unpacked[0] if unpacked is not None and unpacked[1] == len(key) else None
