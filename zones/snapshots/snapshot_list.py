"""The list of a tenant's snapshots, in its ownership record: pure decisions, and how the record is written.

Snapshots are listed oldest first. One that is dropped stays listed until its copies are merged into the snapshot before
it, its elder.
"""

import msgspec

from fairlead.zones.engines import Transaction
from fairlead.zones.engines.api.database import ValueFuture
from fairlead.zones.errors import OwnerUnreadable, Restoring, SnapshotGone
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import ShardLayout
from fairlead.zones.ownership import check_owner
from fairlead.zones.probes import probe
from fairlead.zones.records import RESTRICTED_FORMAT, OwnerRecord, SnapshotRecord, TenantSnapshots, decode, encode
from fairlead.zones.snapshots.snapshot_keys import work_key

SNAPSHOTS_MAX = 16  # A read at the oldest one reads as many keys, and one more. Dropped ones count until they are gone.
# So long the process that drops or restores is left alone; then housekeeping takes part in its work.
PATIENCE_US = 5_000_000


def snapshots_of(value: bytes | None) -> TenantSnapshots | None:
    """Return the snapshots of a tenant, by its ownership record, which can be read; None: it has none."""
    if value is None or value[0] != RESTRICTED_FORMAT:
        return None
    owner = decode(OwnerRecord, value)
    return None if owner is None else owner.snapshots


def usable_snapshots(keys: TenantKeys, value: bytes | None) -> TenantSnapshots | None:
    """Return the snapshots of a tenant, as `snapshots_of` does, and see that it is not being restored.

    Raises:
      Restoring: it is.
    """
    snapshots = snapshots_of(value)
    if snapshots is not None and snapshots.restore is not None:
        probe("a transaction on a tenant meets its restore")
        app, user = keys.names
        raise Restoring(app=app, user=user, snapshot=snapshots.restore.number)
    return snapshots


def kept(snapshots: TenantSnapshots | None) -> list[SnapshotRecord]:
    """Return the snapshots that are not dropped, oldest first."""
    return [] if snapshots is None else [each for each in snapshots.listed if not each.dropped_us]


def copied_to(snapshots: TenantSnapshots) -> list[int]:
    """Return the snapshots in any of which a key's copy suffices, oldest first; a new copy goes to the first of them.

    That is the newest one that is kept, and those after it, which are dropped, but not merged into it yet. Empty: none
    is kept, and nothing need be copied.
    """
    numbers: list[int] = []
    for each in reversed(snapshots.listed):
        numbers.insert(0, each.number)
        if not each.dropped_us:
            return numbers
    return []


def numbers_from(keys: TenantKeys, snapshots: TenantSnapshots | None, number: int) -> list[int]:
    """Return the snapshots whose copies a read at a snapshot looks through: it, and all later ones, oldest first.

    Raises:
      SnapshotGone: there is no such snapshot.
    """
    if all(each.number != number for each in kept(snapshots)):
        app, user = keys.names
        raise SnapshotGone(app=app, user=user, snapshot=number)
    assert snapshots is not None
    looked_through = [each for each in snapshots.listed if each.number >= number]
    if any(each.dropped_us for each in looked_through):
        probe("a read at a snapshot looks through a dropped one")
    return [each.number for each in looked_through]


def with_dropped(snapshots: TenantSnapshots, numbers: set[int], now_us: int) -> TenantSnapshots:
    """Return the list with some of the snapshots dropped."""
    listed = tuple(
        msgspec.structs.replace(each, dropped_us=max(now_us, 1)) if each.number in numbers else each
        for each in snapshots.listed
    )
    return msgspec.structs.replace(snapshots, listed=listed)


def without(snapshots: TenantSnapshots, number: int) -> TenantSnapshots | None:
    """Return the list without a snapshot whose copies are gone; None: it was the last one."""
    listed = tuple(each for each in snapshots.listed if each.number != number)
    return msgspec.structs.replace(snapshots, listed=listed) if listed else None


def due_us(snapshots: TenantSnapshots | None) -> int | None:
    """Return from when on housekeeping has something to do about a tenant's snapshots; None: nothing."""
    if snapshots is None:
        return None
    due = [each.dropped_us + PATIENCE_US for each in snapshots.listed if each.dropped_us]
    due += [each.expires_us for each in kept(snapshots) if each.expires_us]
    if snapshots.restore is not None:  # Nothing else is done meanwhile.
        return snapshots.restore.begun_us + PATIENCE_US
    return min(due, default=None)


def owner_to_change(tr: Transaction, layout: ShardLayout, keys: TenantKeys, read: ValueFuture) -> OwnerRecord:
    """Return the ownership record of a tenant whose list is to change. `read`: the record, read with conflict in `tr`.

    Raises:
      TenantMoved, TenantLocked, TenantFrozen, TenantMoving: see `check_owner`.
    """
    value = read.value
    check_owner(tr, layout, keys, value)
    owner = OwnerRecord(0, layout.shard_id) if value is None else decode(OwnerRecord, value)
    if owner is None:  # `check_owner` has decoded it.
        raise OwnerUnreadable
    return owner


def list_work(tr: Transaction, keys: TenantKeys, before: TenantSnapshots | None, after: TenantSnapshots | None) -> None:
    """List a tenant for housekeeping by when something is due about its snapshots, and no more by when it was."""
    due_before, due_after = due_us(before), due_us(after)
    if due_before is not None and due_before != due_after:
        tr.clear(work_key(due_before, keys))
    if due_after is not None and due_before != due_after:
        tr.set(work_key(due_after, keys), b"")


def write_list(tr: Transaction, keys: TenantKeys, owner: OwnerRecord, snapshots: TenantSnapshots | None) -> None:
    """Write a new list into the ownership record, and list the tenant for housekeeping when that is due.

    `owner`: as `owner_to_change` returned it. Writes the record and at most two keys of the list of housekeeping.
    """
    list_work(tr, keys, owner.snapshots, snapshots)
    owner.snapshots = snapshots
    if owner.says_nothing:
        tr.clear(keys.owner)
    else:
        tr.set(keys.owner, encode(owner))
