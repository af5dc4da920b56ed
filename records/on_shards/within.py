"""Records that are written within a transaction on the tenant where they lie: no index record is written there.

So a record may drop keys, and get none. The index records of dropped keys are deleted by an item, later.
"""

from collections.abc import Callable, Collection, Sequence

from fairlead.records.accesses import DeleteRecord, ReadRecord, WriteRecord
from fairlead.records.alternate_keys import field_of
from fairlead.records.errors import KeyAdded
from fairlead.records.on_shards.transaction import RecordTransaction
from fairlead.records.protocol import kept_or_new
from fairlead.records.stored import DataRecord


def put(
    here: RecordTransaction,
    key: str,
    value: bytes,
    keys: Sequence[bytes],
    *,
    keys_in: Callable[[bytes], Collection[bytes]],
    generation: bytes,
) -> None:
    """Write a record.

    Args:
      value: packed. `keys`: those that it states.
      keys_in: returns the keys that another packed value states.
      generation: of a new record, 16 random bytes.

    Raises:
      KeyAdded: the value states a key that the record does not have.
    """
    found = here.answer(ReadRecord(key))
    read = None if found is None or found.is_dummy else found
    if read is not None:  # A build has not come to the record yet, or lists it: what its value states is not new.
        keys = kept_or_new(read, keys, keys_in(read.value))
    added = [each for each in keys if read is None or not read.has(each)]
    if added:
        raise KeyAdded(key=key, fields=sorted({field_of(each) for each in added}))
    if read is None:
        here.answer(WriteRecord(key, found, DataRecord(generation, 1, (), 1, value)))
        return
    record = read.rewritten(keys, value)
    here.answer(WriteRecord(key, read, record))
    here.leave_dropped(key, read, [each for each in read.keys if each not in keys], record.version)


def remove(here: RecordTransaction, key: str) -> bool:
    """Delete a record; return whether there was one."""
    found = here.answer(ReadRecord(key))
    if found is None or found.is_dummy:
        return False
    here.answer(DeleteRecord(key, found))
    here.leave_dropped(key, found, found.keys, None)
    return True
