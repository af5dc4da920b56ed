"""Restoring: a tenant's keys get the values that they had at a snapshot, piece by piece, while nobody else reads them.

The ownership record says that the restore is under way, and to which snapshot. A piece writes as any transaction does:
it copies first what later snapshots need. It writes the keys that have a copy at the snapshot or later ones, and no
others. A copy that a piece makes is of such a key, and none changes what the snapshot holds. So any process can begin
the same restore from its first key again.
"""

import msgspec

from fairlead.zones.engines import Limits, Transaction
from fairlead.zones.errors import RestoreRefused, Restoring
from fairlead.zones.keyspace import FENCE, STEP_LOG, TenantKeys, pack_int, range_begin, range_end
from fairlead.zones.layout import ShardLayout
from fairlead.zones.probes import probe
from fairlead.zones.records import RestoreRecord
from fairlead.zones.snapshots.copying import CopyingWriter
from fairlead.zones.snapshots.reading import SnapshotReads
from fairlead.zones.snapshots.snapshot_list import numbers_from, owner_to_change, write_list
from fairlead.zones.snapshots.taking import next_number, without_restore
from fairlead.zones.tuples import elements_of
from fairlead.zones.workflow.run_records import END, FENCE_BYTES

RUNS_UNDER_WAY = "a workflow is under way that has recorded steps here, or is a dead letter"
_TOMBSTONE = END.to_bytes(FENCE_BYTES, "big")


def begin_restore(tr: Transaction, layout: ShardLayout, keys: TenantKeys, number: int, *, now_us: int) -> RestoreRecord:
    """Write that a tenant is being restored to a snapshot; return the restore. One that is under way goes on.

    Reads with conflict: the ownership record, the last number, the step logs and fences of the tenant. Writes the
    record, the last number, and the list of housekeeping. May run twice: the second run finds the restore under way.

    Raises:
      TenantMoved, TenantLocked, TenantFrozen: see `owner_to_change`; nothing is written.
      SnapshotGone: the tenant has no such snapshot.
      Restoring: it is being restored to another one.
      RestoreRefused: workflows are under way.
    """
    read, last = tr.get(keys.owner), tr.get(keys.snapshots)
    owner = owner_to_change(tr, layout, keys, read)
    numbers_from(keys, owner.snapshots, number)
    assert owner.snapshots is not None
    app, user = keys.names
    under_way = owner.snapshots.restore
    if under_way is not None:
        if under_way.number != number:
            raise Restoring(app=app, user=user, snapshot=under_way.number)
        probe("a restore that is under way goes on")
        return under_way
    run = _run_under_way(tr, keys)
    if run is not None:
        raise RestoreRefused(app=app, user=user, run=run, reason=RUNS_UNDER_WAY)
    begun = RestoreRecord(next_number(tr, keys, last.value, owner.snapshots.listed), number, now_us)
    write_list(tr, keys, owner, msgspec.structs.replace(owner.snapshots, restore=begun))
    return begun


def restore_piece(
    tr: Transaction, layout: ShardLayout, keys: TenantKeys, restore_id: int, cursor: bytes | None, *, limits: Limits
) -> bytes | None:
    """Restore the keys from `cursor` on, as many as one transaction may; return where to go on; None: it is done.

    With the last piece the restore ends. It is done, too, if another process has ended it.

    Reads with conflict: the ownership record, and which keys have copies; by snapshot: copies, and present values.
    Writes the tenant's keys that differ, and copies of them; see `CopyingWriter`. May run twice, and at the same time
    in several processes, each with a cursor of its own.

    Raises:
      TenantMoved, TenantLocked, TenantFrozen: see `owner_to_change`; nothing is written.
    """
    owner = owner_to_change(tr, layout, keys, tr.get(keys.owner))
    snapshots = owner.snapshots
    if snapshots is None or snapshots.restore is None or snapshots.restore.id != restore_id:
        probe("a restore was ended by another process")
        return None
    writer = CopyingWriter(tr, keys, snapshots, limits)
    reads = SnapshotReads(tr, layout, keys, snapshots.restore.number)
    changes, next_key = reads.changes(cursor or keys.data)
    for change in changes:
        if change.then is None:
            writer.clear(change.key)
        else:
            writer.set(change.key, change.then)
    if next_key is None:
        write_list(tr, keys, owner, without_restore(snapshots))
    else:
        probe("a restore takes several transactions")
    return next_key


def _run_under_way(tr: Transaction, keys: TenantKeys) -> str | None:
    """Return a run, in hex digits, that keeps steps or a fence of a run that has not ended; None: there is none."""
    logs, fences = keys.prefix + pack_int(STEP_LOG), keys.prefix + pack_int(FENCE)
    logged = tr.get_range(range_begin(logs), range_end(logs), limit=1)
    fenced = tr.get_range(range_begin(fences), range_end(fences))
    for row in logged:
        return _run_in(row.key[len(logs) :])
    for row in fenced:
        if row.value != _TOMBSTONE:
            return _run_in(row.key[len(fences) :])
    return None


def _run_in(elements: bytes) -> str:
    """Return the run by which packed elements of a key begin, in hex digits; all of them if the key is damaged."""
    match elements_of(elements):
        case (bytes(run), *_):
            return run.hex()
    return elements.hex()
