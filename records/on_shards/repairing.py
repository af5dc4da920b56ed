"""Records that are marked: they were written while shards of their index records did not answer.

The transaction that marks a record enqueues the item that repairs it (`Protocol.repair_op`), which is tried until it is
done. The shard's own index names marked records, and among them those with a key that another record has:

    (type, "", MARKED)      member: the primary key
    (type, "", VIOLATION)   member: the primary key

No field has an empty name, so no index of a field begins so.

Restoring a tenant to a snapshot brings records back whose index records may be gone, or name others. The transaction
that begins it enqueues an item that marks all records of the tenant, once it is restored (`restored`). It deletes the
dummies among them.
"""

from fairlead.records.definition import has_types
from fairlead.records.on_shards.slots import SLOTS_APP
from fairlead.records.stored import DataRecord
from fairlead.zones import tuples
from fairlead.zones.engines import Transaction
from fairlead.zones.keyspace import TenantKeys, pack_int, pack_text, range_begin, range_end
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.items import NewItem, new_item
from fairlead.zones.shard import Shard
from fairlead.zones.snapshots.snapshot_keys import copies_prefix
from fairlead.zones.snapshots.snapshot_list import snapshots_of
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.transaction_runner import Attempt

REPAIR_KIND = "fairlead.records.repair"
RESTORED_KIND = "fairlead.records.restored"
MARKED, VIOLATION = 1, 2


def marks_index(type_name: str, mark: int) -> bytes:
    """Return the name of the entries of a shard's own index that name marked records. `mark`: which."""
    return pack_text(type_name) + pack_text("") + pack_int(mark)


def marks_of(type_name: str, record: DataRecord) -> set[bytes]:
    """Return the indexes of marks that name a record."""
    indexes = set()
    if record.unindexed:
        indexes.add(marks_index(type_name, MARKED))
    if record.violations:
        indexes.add(marks_index(type_name, VIOLATION))
    return indexes


def needs_item(found: DataRecord | None, record: DataRecord) -> bool:
    """Say whether a write must enqueue a repair: as long as a record is to be repaired, there is an item for it."""
    has_item = found is not None and found.generation == record.generation and bool(found.unrepaired)
    return bool(record.unrepaired) and not has_item


def repair_item(type_name: str, key: str) -> NewItem:
    """Return the item that repairs a record."""
    return new_item(REPAIR_KIND, {"type": type_name, "key": key})


def mark_once_restored(attempt: Attempt, shard: Shard, tenant: Tenant) -> None:
    """Have the records of a tenant marked that is about to be restored to a snapshot, if its shard has any types.

    A shard to which the tenant has moved may have none yet. There the tenant itself is looked at.

    Reads one key; without types also, with conflict, whether the tenant has records, and by snapshot whether it had
    some at a snapshot. Enqueues an item. May run twice: the item is safe to run twice.
    """
    if has_types(attempt.tr) or _has_or_had_records(attempt.tr, tenant):
        TenantTransaction(shard, tenant, attempt).enqueue_item(new_item(RESTORED_KIND, None))


def _has_or_had_records(tr: Transaction, tenant: Tenant) -> bool:
    """Whether a tenant has a record, or had one at any of its snapshots: a record that is gone since has a copy."""
    keys, table = TenantKeys(*tenant), tuples.pack((SLOTS_APP,))
    snapshots = snapshots_of(tr.snapshot.get(keys.owner).value)
    copies = [] if snapshots is None else [copies_prefix(keys, each.number) for each in snapshots.listed]
    pages = [tr.get_range(range_begin(keys.data + table), range_end(keys.data + table), limit=1)]
    pages += [tr.snapshot.get_range(range_begin(each + table), range_end(each + table), limit=1) for each in copies]
    return any(True for page in pages for _ in page)
