"""What is stored of a record: the data record, which is the truth, and an index record for each alternate key.

Uniqorn section 2.2 writes a data record as [pk, g, v, aks, val], and an index record as [ak, pk, g, v].
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from fairlead.records.errors import RecordUnreadable
from fairlead.zones.records import is_newer, pack_value, unpacked

GENERATION_BYTES = 16  # Random: nothing orders generations.


class DataRecord(msgspec.Struct, array_like=True, frozen=True):
    """A data record; its primary key is that of its store.

    Attributes:
      generation: g, 16 random bytes of the creation.
      version: v, which grows with every change, also when the collection of garbage ends a write that is under way.
      keys: the alternate keys that the record has, packed; of a dummy those that its creator is about to take.
      writes: how often a user has written it; 0: it is a dummy.
      value: what the user has stored.
      unindexed: those of `keys` whose index records may be missing, because their shards did not answer. Such a record
        is marked; see `Protocol.repair_op`.
      violations: those of `unindexed` that another record had when this one was to be repaired.
    """

    generation: bytes
    version: int
    keys: tuple[bytes, ...]
    writes: int
    value: bytes
    unindexed: tuple[bytes, ...] = ()
    violations: tuple[bytes, ...] = ()

    @property
    def is_dummy(self) -> bool:
        """Whether a creator has inserted it, and has not finished. For users there is no such record."""
        return not self.writes

    @property
    def unrepaired(self) -> tuple[bytes, ...]:
        """The keys whose index records a repair is to insert."""
        return tuple(each for each in self.unindexed if each not in self.violations)

    def has(self, index_key: bytes) -> bool:
        """Say whether the record has an alternate key."""
        return not self.is_dummy and index_key in self.keys

    def is_as(self, other: "DataRecord") -> bool:
        """Say whether nobody has changed the record since `other` was read.

        A version tells of changes, but a restore brings an earlier one back: from there it grows to the same number
        again, with another content. So all of the record is compared.
        """
        return self == other

    def rewritten(self, keys: Sequence[bytes], value: bytes) -> "DataRecord":
        """Return the record with what a user has written to it. Keys that it keeps stay unindexed if they are."""
        return self._next(keys, self.writes + 1, value)

    def with_keys(self, keys: Sequence[bytes]) -> "DataRecord":
        """Return the record with other keys, and the next version. Keys that it keeps stay unindexed if they are."""
        return self._next(keys, self.writes, self.value)

    def _next(self, keys: Sequence[bytes], writes: int, value: bytes) -> "DataRecord":
        return DataRecord(
            self.generation,
            self.version + 1,
            tuple(keys),
            writes,
            value,
            tuple(each for each in self.unindexed if each in keys),
            tuple(each for each in self.violations if each in keys),
        )

    def with_unindexed(self, index_keys: Sequence[bytes]) -> "DataRecord":
        """Return the record with more keys whose index records may be missing."""
        return msgspec.structs.replace(self, unindexed=(*self.unindexed, *index_keys)) if index_keys else self

    def repaired(self, indexed: Collection[bytes], taken: Collection[bytes]) -> "DataRecord":
        """Return the record with the next version, once a repair has tried some of its keys."""
        unindexed = tuple(each for each in self.unindexed if each not in indexed)
        violations = tuple(each for each in unindexed if each in taken or each in self.violations)
        return msgspec.structs.replace(self, version=self.version + 1, unindexed=unindexed, violations=violations)

    def sharing(self, index_key: bytes) -> "DataRecord":
        """Return the record with the next version, once it is known that another record has one of its keys."""
        return msgspec.structs.replace(
            self,
            version=self.version + 1,
            unindexed=(*self.unindexed, index_key),
            violations=(*self.violations, index_key),
        )

    def begun_anew(self, generation: bytes, keys: tuple[bytes, ...]) -> "DataRecord":
        """Return the record with another generation, and other keys, all unindexed. `generation`: 16 random bytes."""
        return msgspec.structs.replace(self, generation=generation, version=1, keys=keys, unindexed=keys, violations=())

    def bumped(self) -> "DataRecord":
        """Return the record with the next version, which ends every write that has read this one."""
        return msgspec.structs.replace(self, version=self.version + 1)


class IndexRecord(msgspec.Struct, array_like=True, frozen=True):
    """An index record; the alternate key is its key. It is valid while the record that it names has the key.

    Attributes:
      key: the primary key.
      generation, version: of the data record when this was written.
    """

    key: str
    generation: bytes
    version: int


class Versioned(NamedTuple):
    """What a store of records holds under a key.

    Attributes:
      version: what a conditional write compares; equal versions of one key mean equal values.
      value: the record, packed.
    """

    version: bytes
    value: bytes


_data_decoder = msgspec.msgpack.Decoder(DataRecord)
_index_decoder = msgspec.msgpack.Decoder(IndexRecord)
_encoder = msgspec.msgpack.Encoder()


def version_of(record: DataRecord | IndexRecord) -> bytes:
    """Return what identifies this state of the record among all states of its key."""
    if isinstance(record, DataRecord):
        return _encoder.encode((record.generation, record.version))
    return _encoder.encode((record.key, record.generation, record.version))


def pack(record: DataRecord | IndexRecord) -> Versioned:
    """Return what is stored of a record."""
    return Versioned(version_of(record), pack_value(record))


def unpack_data(key: str, value: bytes) -> DataRecord:
    """Return the data record that is stored under `key`.

    Raises:
      RecordUnreadable: it cannot be read.
    """
    record = unpacked(_data_decoder, value)
    if record is None:
        raise RecordUnreadable(key=key, newer=is_newer(value))
    return record  # type: ignore[no-any-return]


def unpack_index(value: bytes) -> IndexRecord:
    """Return an index record that is stored.

    Raises:
      RecordUnreadable: it cannot be read.
    """
    record = unpacked(_index_decoder, value)
    if record is None:
        raise RecordUnreadable(what="an index record", newer=is_newer(value))
    return record  # type: ignore[no-any-return]
