"""Gives records that are there already a key of an index that is being built, beside writers of these records.

For each record the fill does what a writer does that changes nothing else: it inserts the index record, by way of a
collection if there is one of another record, and then gives the record its key. The last step is conditional on the
record as it was read. A record that has changed meanwhile is read anew: its writer has maintained the index.

If another record has the value, the record is left without the key. That is a violation: whoever fills notes it. But a
key that its record already has, unindexed, stays: a repair inserts its index record, or marks it as shared. Nobody else
would list the record again if the fill took the key away.

A user's version of the record stays. That of the protocol grows, as by a collection, and a writer tries once more.
"""

from collections.abc import Callable
from typing import NamedTuple

from fairlead.records.accesses import Op, ReadIndex, ReadRecord, WriteRecord, one
from fairlead.records.alternate_keys import field_of
from fairlead.records.errors import Interrupted, Taken
from fairlead.records.protocol import Protocol
from fairlead.records.stored import DataRecord, IndexRecord
from fairlead.zones.probes import probe

FILL_ATTEMPTS_MAX = 20  # Of one record, which writers and collections change meanwhile.

KeyOf = Callable[[DataRecord], bytes | None]


class Filled(NamedTuple):
    """What was done for one record.

    Attributes:
      is_filled: an index record was written.
      violation: the key that the record was left without, as another record has it; None: there is none.
    """

    is_filled: bool = False
    violation: bytes | None = None


def fill_op(protocol: Protocol, key: str, read: DataRecord | None, field: str, key_of: KeyOf) -> Op[Filled]:
    """Let a record have the key of a field that its value states, and no other key of this field.

    Args:
      read: the record as it was read; dummies are passed over, because their creators maintain the index.
      key_of: returns the index key of a record's value; None: its value states none, or the index is dropped.

    Raises:
      Interrupted: 20 attempts did not do.
      IndexUnavailable: a shard does not answer.
    """
    is_filled = False
    for _ in range(FILL_ATTEMPTS_MAX):
        if read is None or read.is_dummy:
            return Filled(is_filled)
        wanted = key_of(read)
        others = tuple(each for each in read.keys if field_of(each) != field)
        keys, violation = others, None
        if wanted is not None:
            try:
                is_filled = (yield from _claim_op(protocol, key, read, wanted)) or is_filled
                keys = (*others, wanted)
            except Taken:
                violation = wanted
            except Interrupted:
                read = yield from one(ReadRecord(key))
                continue
        if set(keys) == set(read.keys):
            return Filled(is_filled, violation)
        if (yield from one(WriteRecord(key, read, read.with_keys(keys)))):
            return Filled(is_filled, violation)
        read = yield from one(ReadRecord(key))
    raise Interrupted(key=key, reason="it changes all the time")


def _claim_op(protocol: Protocol, key: str, read: DataRecord, wanted: bytes) -> Op[bool]:
    """See that the index record of a key is the record's; return whether it was not.

    A record that has a key from before its index was dropped may have lost the index record to another one.
    """
    if wanted in read.unindexed:
        probe("the build of an index leaves a key to the repair of its record")
        return False
    if read.has(wanted):
        entry = yield from one(ReadIndex(wanted))
        if entry is not None and (entry.key, entry.generation) == (key, read.generation):
            return False
    yield from protocol.claim_op(wanted, IndexRecord(key, read.generation, read.version))
    return True
