"""The transactions that take a snapshot, and that drop one. Neither touches any of the tenant's keys."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.errors import Restoring, SnapshotGone, TooManySnapshots
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import ShardLayout
from fairlead.zones.ownership import check_owner
from fairlead.zones.probes import probe
from fairlead.zones.records import OwnerRecord, RestoreRecord, SnapshotRecord, TenantSnapshots
from fairlead.zones.snapshots.snapshot_list import (
    SNAPSHOTS_MAX,
    kept,
    owner_to_change,
    snapshots_of,
    with_dropped,
    write_list,
)

NUMBER_BYTES = 8


class Listing(NamedTuple):
    """The snapshots of a tenant that are kept, oldest first; how many are dropped and not gone; a restore under way."""

    kept: list[SnapshotRecord]
    dropped: int
    restore: RestoreRecord | None


def take(
    tr: Transaction, layout: ShardLayout, keys: TenantKeys, *, now_us: int, kept_us: int | None
) -> tuple[int, TenantSnapshots]:
    """Take a snapshot of a tenant's own keys as this transaction sees them; return its number, and the new list.

    `kept_us`: after how long housekeeping drops it; None: never. Writes of this transaction that came before are part
    of the snapshot. Those that come after must be copied, by the new list.

    Reads with conflict: the ownership record, the last number. Writes both, and the list of housekeeping. Not safe to
    run twice: the attempt needs a receipt.

    Raises:
      TenantMoved, TenantLocked, TenantFrozen, Restoring: see `owner_to_change`; nothing is written.
      TooManySnapshots: there are `SNAPSHOTS_MAX`, counting those whose copies are not merged yet.
    """
    read, last = tr.get(keys.owner), tr.get(keys.snapshots)
    owner = owner_to_change(tr, layout, keys, read)
    refuse_while_restoring(keys, owner)
    before = owner.snapshots
    listed = () if before is None else before.listed
    if len(listed) >= SNAPSHOTS_MAX:
        app, user = keys.names
        raise TooManySnapshots(app=app, user=user, kept=len(kept(before)), snapshots_max=SNAPSHOTS_MAX)
    number = next_number(tr, keys, last.value, listed)
    taken = SnapshotRecord(number, now_us, 0 if kept_us is None else now_us + kept_us)
    after = TenantSnapshots((*listed, taken))
    write_list(tr, keys, owner, after)
    return number, after


def next_number(tr: Transaction, keys: TenantKeys, last: bytes | None, listed: Sequence[SnapshotRecord]) -> int:
    """Return the next number of the tenant's sequence, and write it. `last`: what is stored, read with conflict.

    It is above all that are listed, even if what is stored was lost.
    """
    number = max([int.from_bytes(last or b"", "big"), *(each.number for each in listed)]) + 1
    tr.set(keys.snapshots, number.to_bytes(NUMBER_BYTES, "big"))
    return number


def drop(tr: Transaction, layout: ShardLayout, keys: TenantKeys, numbers: set[int], *, now_us: int) -> None:
    """Drop snapshots: nobody reads at them any more. Their copies are merged afterwards, see `merging`.

    Reads with conflict: the ownership record. Writes it, and the list of housekeeping. May run twice: snapshots that
    are dropped already stay so.

    Raises:
      TenantMoved, TenantLocked, TenantFrozen, Restoring: see `owner_to_change`; nothing is written.
      SnapshotGone: one of them is not listed.
    """
    owner = owner_to_change(tr, layout, keys, tr.get(keys.owner))
    refuse_while_restoring(keys, owner)
    listed = () if owner.snapshots is None else owner.snapshots.listed
    gone = numbers - {each.number for each in listed}
    if gone:
        app, user = keys.names
        raise SnapshotGone(app=app, user=user, snapshot=min(gone))
    assert owner.snapshots is not None
    new = numbers & {each.number for each in kept(owner.snapshots)}
    if new:
        write_list(tr, keys, owner, with_dropped(owner.snapshots, new, now_us))
    else:
        probe("a snapshot is dropped that has been dropped already")


def refuse_while_restoring(keys: TenantKeys, owner: OwnerRecord) -> None:
    """See that a tenant is not being restored.

    Raises:
      Restoring: it is.
    """
    if owner.snapshots is not None and owner.snapshots.restore is not None:
        app, user = keys.names
        raise Restoring(app=app, user=user, snapshot=owner.snapshots.restore.number)


def list_snapshots(tr: Reader, layout: ShardLayout, keys: TenantKeys) -> Listing:
    """Return the snapshots of a tenant. One snapshot read.

    Raises:
      TenantMoved, TenantLocked: see `check_owner`. A shared lock is passed.
    """
    value = tr.snapshot.get(keys.owner).value
    check_owner(tr, layout, keys, value, writes=False)
    snapshots = snapshots_of(value)
    if snapshots is None:
        return Listing([], 0, None)
    found = kept(snapshots)
    return Listing(found, len(snapshots.listed) - len(found), snapshots.restore)


def without_restore(snapshots: TenantSnapshots) -> TenantSnapshots:
    """Return the list without its restore."""
    return msgspec.structs.replace(snapshots, restore=None)
