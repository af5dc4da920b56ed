"""Records that are marked: they were written while shards of their index records did not answer.

The transaction that marks a record enqueues the item that repairs it (`Protocol.repair_op`), which is tried until it is
done. The shard's own index names marked records, and among them those with a key that another record has:

    (type, "", MARKED)      member: the primary key
    (type, "", VIOLATION)   member: the primary key

No field has an empty name, so no index of a field begins so.
"""

from fairlead.records.stored import DataRecord
from fairlead.zones.keyspace import pack_int, pack_text
from fairlead.zones.queue.items import NewItem, new_item

REPAIR_KIND = "fairlead.records.repair"
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
    return bool(record.unrepaired) and not (found is not None and found.unrepaired)


def repair_item(type_name: str, key: str) -> NewItem:
    """Return the item that repairs a record."""
    return new_item(REPAIR_KIND, {"type": type_name, "key": key})
