"""Upkeep: housekeeping drops snapshots that have expired, and goes on with drops and restores that were left.

A list of the shard says which tenants are due, and from when on. A process that drops or restores works alone for five
seconds; then housekeeping takes part. Both may work at the same time.
"""

import logging
from typing import NamedTuple

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.errors import OwnerUnreadable, Restoring, TenantBusy, TenantMoved
from fairlead.zones.keyspace import TenantKeys, pack_int
from fairlead.zones.probes import probe
from fairlead.zones.records import RestoreRecord
from fairlead.zones.shard import Shard
from fairlead.zones.snapshots.merging import merge_piece
from fairlead.zones.snapshots.restoring import restore_piece
from fairlead.zones.snapshots.snapshot_keys import WORK_PREFIX, listed_work, work_key
from fairlead.zones.snapshots.snapshot_list import due_us, kept, owner_to_change, snapshots_of, with_dropped, write_list

log = logging.getLogger("fairlead.snapshots")

TENANTS_MAX = 100  # Of one look: the next one takes the rest.
PIECES_MAX = 20  # Of one tenant at one look. A piece takes some milliseconds.


class DueTenant(NamedTuple):
    """A tenant that is due."""

    due_us: int
    keys: TenantKeys


class SnapshotUpkeep:
    """The upkeep of one shard by one process. It remembers where in a restore it is."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._cursors: dict[tuple[bytes, int], bytes] = {}  # by tenant and restore

    def look(self, *, now_us: int) -> int:
        """Do what is due; return of how many tenants. One snapshot read of a list, and some transactions for each.

        A tenant that is locked, or frozen by a move, stays on the list, and is tried again at the next look.
        """
        found = self._shard.transact(lambda attempt: due_tenants(attempt.tr, now_us=now_us))
        for due in found:
            try:
                self._tend(due, now_us)
            except (TenantBusy, OwnerUnreadable, Restoring) as error:
                log.info("the snapshots of %s are looked at later: %s", "/".join(due.keys.names), error)
            except TenantMoved:
                self._unlist(due)
        return len(found)

    def _tend(self, due: DueTenant, now_us: int) -> None:
        """Do what is due about one tenant, or some of it."""
        keys = due.keys
        restore = self._shard.transact(lambda attempt: expire(attempt.tr, self._shard, due, now_us=now_us))
        for _ in range(PIECES_MAX):
            if restore is not None:
                has_more = self._restore(keys, restore)
            else:
                has_more = self._shard.transact(lambda attempt: merge_piece(attempt.tr, self._shard.layout, keys))
            if not has_more:
                return

    def _unlist(self, due: DueTenant) -> None:
        """Clear the entry of a tenant that another shard owns."""
        self._shard.transact(lambda attempt: attempt.tr.clear(work_key(*due)))

    def _restore(self, keys: TenantKeys, restore: RestoreRecord) -> bool:
        place = keys.packed, restore.id
        cursor = self._cursors.get(place)
        limits, layout = self._shard.db.limits, self._shard.layout
        probe("housekeeping goes on with a restore")
        cursor = self._shard.transact(
            lambda attempt: restore_piece(attempt.tr, layout, keys, restore.id, cursor, limits=limits)
        )
        if cursor is None:
            self._cursors.pop(place, None)
            return False
        self._cursors[place] = cursor
        return True


def due_tenants(tr: Reader, *, now_us: int) -> list[DueTenant]:
    """Return tenants that are due by now, at most `TENANTS_MAX`. Snapshot reads; damaged keys are passed over."""
    end = WORK_PREFIX + pack_int(now_us + 1)
    rows = tr.snapshot.get_range(WORK_PREFIX + b"\x00", end, limit=TENANTS_MAX)
    return [DueTenant(*found) for row in rows if (found := listed_work(row.key)) is not None]


def expire(tr: Transaction, shard: Shard, due: DueTenant, *, now_us: int) -> RestoreRecord | None:
    """Drop the snapshots of a tenant that have expired; return its restore, if one is under way: then drop none.

    Reads with conflict: the ownership record. Writes it and the list of housekeeping, if something has expired; clears
    a wrong entry of that list. May run twice.

    Raises:
      TenantMoved, TenantLocked, TenantFrozen: see `owner_to_change`.
    """
    keys = due.keys
    read = tr.get(keys.owner)
    if due_us(snapshots_of(read.value)) != due.due_us:
        tr.clear(work_key(*due))  # Left by a backup that was taken in pieces, or by damage.
    owner = owner_to_change(tr, shard.layout, keys, read)
    if owner.snapshots is None or owner.snapshots.restore is not None:
        return None if owner.snapshots is None else owner.snapshots.restore
    expired = {each.number for each in kept(owner.snapshots) if 0 < each.expires_us <= now_us}
    if expired:
        probe("a snapshot expires")
        write_list(tr, keys, owner, with_dropped(owner.snapshots, expired, now_us))
    return None
