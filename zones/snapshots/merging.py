"""Merging: a dropped snapshot's copies go to its elder, the snapshot before it, piece by piece.

A copy at the dropped snapshot is what the key held at the elder, too, if there is no copy at the elder. Without an
elder nobody needs the copies. Reads at the elder look through the dropped snapshot until it is gone, so they find the
same before, between and after any of the pieces.
"""

from itertools import takewhile

from fairlead.zones.engines import KeyValue, Transaction
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import ShardLayout
from fairlead.zones.probes import probe
from fairlead.zones.snapshots.snapshot_keys import copies_prefix, copies_range
from fairlead.zones.snapshots.snapshot_list import owner_to_change, without, write_list
from fairlead.zones.snapshots.taking import refuse_while_restoring

PIECE_ROWS = 500
PIECE_BYTES = 1_000_000


def merge_piece(tr: Transaction, layout: ShardLayout, keys: TenantKeys) -> bool:
    """Merge a piece of the oldest dropped snapshot; say whether there is more to merge, of this or another one.

    Reads with conflict: the ownership record, copies of the dropped snapshot, and those of the same keys at its elder.
    Writes and clears copies; with the last piece, the record and the list of housekeeping. May run twice, and at the
    same time in several processes.

    Raises:
      TenantMoved, TenantLocked, TenantFrozen, Restoring: see `owner_to_change`; nothing is written.
    """
    owner = owner_to_change(tr, layout, keys, tr.get(keys.owner))
    refuse_while_restoring(keys, owner)
    listed = () if owner.snapshots is None else owner.snapshots.listed
    elders = [each.number for each in takewhile(lambda each: not each.dropped_us, listed)]
    if len(elders) == len(listed):
        return False
    number = listed[len(elders)].number
    rows, is_last = _rows(tr, keys, number)
    if elders:
        probe("copies of a dropped snapshot go to an older one")
        _move(tr, rows, copies_prefix(keys, number), copies_prefix(keys, elders[-1]))
    if rows:
        begin, _ = copies_range(keys, number)
        tr.clear_range(begin, rows[-1].key + b"\x00")
    if not is_last:
        return True
    assert owner.snapshots is not None
    remaining = without(owner.snapshots, number)
    write_list(tr, keys, owner, remaining)
    return remaining is not None and any(each.dropped_us for each in remaining.listed)


def _rows(tr: Transaction, keys: TenantKeys, number: int) -> tuple[list[KeyValue], bool]:
    """Return the first copies of a snapshot, and whether they are all."""
    begin, end = copies_range(keys, number)
    rows: list[KeyValue] = []
    size = 0
    for row in tr.get_range(begin, end, limit=PIECE_ROWS):
        rows.append(row)
        size += len(row.key) + len(row.value)
        if size >= PIECE_BYTES:
            return rows, False
    return rows, len(rows) < PIECE_ROWS


def _move(tr: Transaction, rows: list[KeyValue], source: bytes, target: bytes) -> None:
    """Set copies at the target that it does not have."""
    there = [tr.get(target + row.key[len(source) :]) for row in rows]
    for row, read in zip(rows, there, strict=True):
        if not read.present():
            tr.set(target + row.key[len(source) :], row.value)
