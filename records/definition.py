"""What a type of records is found by: stored on each shard, so that programs with other code maintain its indexes, too.

Each shard stores the whole definition. A writer reads it, with conflict, in the transaction that writes a record, and
the definition by which it has computed the record's keys must be the same. So once a shard says that an index is
maintained, nobody writes a record there without it.

    (ROOT, RECORD_TYPE, type)  -> `TypeRecord`
"""

from collections.abc import Iterable
from enum import IntEnum

import msgspec

from fairlead.records.alternate_keys import Field
from fairlead.records.errors import RecordUnreadable
from fairlead.zones.engines import Reader, Reads, Transaction
from fairlead.zones.keyspace import RECORD_TYPE, ROOT, pack_int, pack_text, range_end
from fairlead.zones.records import is_newer, pack_value, unpacked

_RECORD_TYPE = ROOT + pack_int(RECORD_TYPE)


class IndexState(IntEnum):
    """What users may do with an index.

    PENDING: all records are in it, but some have the value of another one: see `Records.violations`.
    """

    HIDDEN = 0
    READABLE = 1
    PENDING = 2


class FieldRecord(msgspec.Struct, array_like=True, frozen=True):
    """One field by which records of a type are found.

    Attributes:
      schema: odd while writers on this shard maintain the index; grows with each change.
      state: an `IndexState`.
    """

    name: str
    is_unique: bool
    normalizer: str
    schema: int
    state: int

    @property
    def field(self) -> Field:
        """The field, as keys are packed by it."""
        return Field(self.name, self.is_unique, self.normalizer)

    @property
    def is_maintained(self) -> bool:
        """Whether writers on this shard maintain the index."""
        return self.schema % 2 == 1


class TypeRecord(msgspec.Struct, array_like=True, frozen=True):
    """The definition of a type of records, as one shard has it."""

    fields: tuple[FieldRecord, ...]

    def maintained(self) -> dict[str, Field]:
        """Return the fields whose indexes writers maintain."""
        return {each.name: each.field for each in self.fields if each.is_maintained}

    def named(self, name: str) -> FieldRecord | None:
        """Return a field by its name."""
        return next((each for each in self.fields if each.name == name), None)

    @property
    def schema(self) -> tuple[tuple[str, int], ...]:
        """What a writer must agree about: the schema numbers of all fields."""
        return tuple((each.name, each.schema) for each in self.fields)


class SchemaChanged(Exception):
    """A shard maintains other indexes than those of the writer's keys, or has no definition; nothing was written there.

    The writer reads the definition anew, and begins again.
    """

    def __init__(self, shard: str) -> None:
        super().__init__(shard)
        self.shard = shard


_decoder = msgspec.msgpack.Decoder(TypeRecord)


def type_key(type_name: str) -> bytes:
    """Return the key of a type's definition."""
    return _RECORD_TYPE + pack_text(type_name)


def first_definition(fields: Iterable[Field]) -> TypeRecord:
    """Return the definition of a type that has no records yet: all its indexes are maintained, and complete."""
    return TypeRecord(
        tuple(
            FieldRecord(each.name, each.is_unique, each.normalizer, schema=1, state=IndexState.READABLE)
            for each in fields
        )
    )


def read_definition(tr: Reads, type_name: str) -> TypeRecord | None:
    """Return the definition that a shard stores, or None. Reads one key.

    Raises:
      RecordUnreadable: it cannot be read.
    """
    value = tr.get(type_key(type_name)).value
    if value is None:
        return None
    found = unpacked(_decoder, value)
    if found is None:
        raise RecordUnreadable(type=type_name, what="its definition", newer=is_newer(value))
    return found  # type: ignore[no-any-return]


def has_types(tr: Reader) -> bool:
    """Say whether a shard stores the definition of any type. One snapshot read."""
    return any(True for _ in tr.snapshot.get_range(_RECORD_TYPE, range_end(_RECORD_TYPE), limit=1))


def write_definition(tr: Transaction, type_name: str, definition: TypeRecord) -> None:
    """Store a definition on a shard. Writes one key; conflicts with all writes of such records on the shard."""
    tr.set(type_key(type_name), pack_value(definition))


def write_if_absent(tr: Transaction, type_name: str, definition: TypeRecord) -> TypeRecord:
    """Store a definition on a shard that has none; return what it stores then. May run twice."""
    found = read_definition(tr, type_name)
    if found is not None:
        return found
    write_definition(tr, type_name, definition)
    return definition


def require_schema(tr: Transaction, type_name: str, used: TypeRecord, *, shard: str) -> None:
    """See that a shard maintains the indexes for which a writer has computed keys. Reads one key, with conflict.

    Raises:
      SchemaChanged: it does not.
      RecordUnreadable: see `read_definition`.
    """
    found = read_definition(tr, type_name)
    if found is None or found.schema != used.schema:
        raise SchemaChanged(shard)
