"""Checks of tenants' snapshots: each copy belongs to one that is listed, and housekeeping knows when to look at them.

What a copy holds is a value of a user, so it cannot be checked.
"""

from collections.abc import Iterator
from functools import partial

from fairlead.zones.engines import KeyValue, Transaction
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import ShardLayout
from fairlead.zones.maintenance.integrity.findings import Problem
from fairlead.zones.maintenance.integrity.records import DAMAGED_RECORD, check_damaged_key
from fairlead.zones.maintenance.integrity.walk import Check
from fairlead.zones.pipelining import Operation
from fairlead.zones.records import OwnerRecord, TenantSnapshots, decode
from fairlead.zones.snapshots.snapshot_keys import copies_prefix, copies_range, listed_work, number_of_copy, work_key
from fairlead.zones.snapshots.snapshot_list import due_us
from fairlead.zones.snapshots.taking import NUMBER_BYTES

ORPHAN_COPIES = "copies belong to no snapshot of their tenant"
UNLISTED = "housekeeping does not know when to look at a tenant's snapshots"
WRONG_ENTRY = "housekeeping is told to look at snapshots when nothing is due"


def copy_checks(key: bytes, keys: TenantKeys, *, looked: set[bytes]) -> Iterator[Check]:
    """Yield the checks of a tenant's row in the subspace `SNAP`. `looked`: prefixes of copies that are checked."""
    if key == keys.snapshots:
        yield partial(_check_last_number, key=key)
        return
    found = number_of_copy(keys, key)
    if found is None or found[1] == len(key) or not key.startswith(copies_prefix(keys, found[0])):
        yield partial(check_damaged_key, key=key)
        return
    prefix = copies_prefix(keys, found[0])
    if prefix not in looked:
        looked.add(prefix)
        yield partial(_check_copies, key=key, keys=keys, number=found[0])


def check_listed(tr: Transaction, *, layout: ShardLayout, keys: TenantKeys) -> Operation[list[Problem]]:
    """Check that housekeeping will look at a tenant when something is due. A repair lists the tenant."""
    stored = tr.get(keys.owner)
    yield
    owner = None if stored.value is None else decode(OwnerRecord, stored.value)
    due = None if owner is None or owner.shard_id != layout.shard_id else due_us(owner.snapshots)
    if due is None:
        return []
    entry = work_key(due, keys)
    listed = tr.get(entry)
    yield
    return [] if listed.present() else [Problem(UNLISTED, keys.owner, mend=lambda tr: tr.set(entry, b""))]


def work_check(row: KeyValue) -> Check:
    """Return the check of a row of housekeeping's list. A repair clears what is damaged or wrong."""
    found = listed_work(row.key)
    if found is None:
        return partial(check_damaged_key, key=row.key, derived=True)
    return partial(_check_entry, key=row.key, due=found[0], keys=found[1])


def _check_last_number(tr: Transaction, *, key: bytes) -> Operation[list[Problem]]:
    """Check the last number. A repair clears it: the next one is above all that are listed."""
    stored = tr.get(key)
    yield
    if stored.value is None or len(stored.value) == NUMBER_BYTES:
        return []
    return [Problem(DAMAGED_RECORD, key, mend=lambda tr: tr.clear(key))]


def _check_copies(tr: Transaction, *, key: bytes, keys: TenantKeys, number: int) -> Operation[list[Problem]]:
    """Check that a snapshot with copies is listed. A repair clears the copies: nobody reads them."""
    stored, owner = tr.get(key), tr.get(keys.owner)
    yield
    if stored.value is None:
        return []
    if owner.value is not None:
        record = decode(OwnerRecord, owner.value)
        # Without a readable record nobody knows which snapshots there are.
        if record is None or _is_listed(record.snapshots, number):
            return []
    begin, end = copies_range(keys, number)
    return [Problem(ORPHAN_COPIES, key, mend=lambda tr: tr.clear_range(begin, end))]


def _is_listed(snapshots: TenantSnapshots | None, number: int) -> bool:
    return snapshots is not None and any(each.number == number for each in snapshots.listed)


def _check_entry(tr: Transaction, *, key: bytes, due: int, keys: TenantKeys) -> Operation[list[Problem]]:
    listed, stored = tr.get(key), tr.get(keys.owner)
    yield
    owner = None if stored.value is None else decode(OwnerRecord, stored.value)
    if not listed.present() or (stored.value is not None and owner is None):
        return []
    if owner is not None and due_us(owner.snapshots) == due:
        return []
    return [Problem(WRONG_ENTRY, key, mend=lambda tr: tr.clear(key))]
