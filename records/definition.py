"""What a type of records is found by: stored on each shard, so that programs with other code maintain its indexes, too.

Each shard stores the whole definition. A writer reads it, with conflict, in the transaction that writes a record, and
the definition by which it has computed the record's keys must be the same. So once a shard says that an index is
maintained, nobody writes a record there without it.

    (ROOT, RECORD_TYPE, type)               -> `TypeRecord`
    (ROOT, RECORD_TYPE, type, COPY, shard)  -> empty; on the type's home: a shard that has, or is about to get, a copy
    (ROOT, RECORD_TYPE, type, CHANGE, field) -> on the type's home: the last change of an index, see `index_changes`
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from functools import lru_cache

import msgspec

from fairlead.records.alternate_keys import Field
from fairlead.records.errors import DefinitionDiffers, IndexUnavailable, RecordUnreadable
from fairlead.zones.engines import Reader, Reads, Transaction
from fairlead.zones.keyspace import (
    RECORD_TYPE,
    ROOT,
    pack_int,
    pack_text,
    range_begin,
    range_end,
    unpack_name,
)
from fairlead.zones.records import is_newer, pack_value, unpacked

COPY, CHANGE = 1, 2
TYPES_MAX = 1_000  # Listed.
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
      schema: odd while writers on this shard maintain the index; grows with each change, and is never used again.
      state: an `IndexState`.
      change: the number of whoever has changed this last, see `index_changes`: no earlier one changes it any more.
      violations: how many records were left without their value, because another record has it.
    """

    name: str
    is_unique: bool
    normalizer: str
    schema: int
    state: int
    change: int = 0
    violations: int = 0

    @property
    def field(self) -> Field:
        """The field, as keys are packed by it."""
        return Field(self.name, self.is_unique, self.normalizer)

    @property
    def is_maintained(self) -> bool:
        """Whether writers on this shard maintain the index."""
        return self.schema % 2 == 1


class TypeRecord(msgspec.Struct, array_like=True, frozen=True):
    """The definition of a type of records, as one shard has it.

    `in_tenants`: the records lie in tenants that programs name; False: in slots; None: an earlier version wrote it.
    """

    fields: tuple[FieldRecord, ...]
    in_tenants: bool | None = None

    def maintained(self) -> dict[str, Field]:
        """Return the fields whose indexes writers maintain."""
        return {each.name: each.field for each in self.fields if each.is_maintained}

    def named(self, name: str) -> FieldRecord | None:
        """Return a field by its name."""
        for each in self.fields:
            if each.name == name:
                return each
        return None

    def with_field(self, field: FieldRecord) -> "TypeRecord":
        """Return the definition with a field added, or replaced by its name."""
        if self.named(field.name) is None:
            return TypeRecord((*self.fields, field), self.in_tenants)
        fields = tuple(field if each.name == field.name else each for each in self.fields)
        return TypeRecord(fields, self.in_tenants)

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


def first_definition(fields: Iterable[Field], *, in_tenants: bool | None) -> TypeRecord:
    """Return the definition of a type that has no records yet: all its indexes are maintained, and complete."""
    return TypeRecord(
        tuple(
            FieldRecord(each.name, each.is_unique, each.normalizer, schema=1, state=IndexState.READABLE)
            for each in fields
        ),
        in_tenants,
    )


def check_place(stored: TypeRecord, type_name: str, *, in_tenants: bool | None) -> None:
    """See that a program looks for records where they lie. None, there or here: nothing is known, nothing is refused.

    Raises:
      DefinitionDiffers: they lie in slots, and the program names tenants; or the other way round.
    """
    if None not in (in_tenants, stored.in_tenants) and stored.in_tenants is not in_tenants:
        declared, there = ("a function" if each else "None" for each in (in_tenants, stored.in_tenants))
        raise DefinitionDiffers(type=type_name, argument="tenant", declared=declared, stored=there)


def require_readable(
    stored: TypeRecord, type_name: str, name: str, *, declared: Field | None, in_tenants: bool
) -> None:
    """See that a user may look for records by a field. `declared`: how the user's program declares it, if it does.

    Raises:
      DefinitionDiffers: the stored records are found by it in another way, or lie elsewhere.
      IndexUnavailable: the index is being built, is dropped, or has violations.
    """
    check_place(stored, type_name, in_tenants=in_tenants)
    found = stored.named(name)
    if found is None or found.state != IndexState.READABLE:
        state = "hidden" if found is None else IndexState(found.state).name.lower()
        more = {"violations": found.violations} if found is not None and found.violations else {}
        raise IndexUnavailable(field=name, state=state, **more)
    if declared is not None and found.field != declared:
        raise DefinitionDiffers(type=type_name, field=name, declared=declared.how, stored=found.field.how)


def read_definition(tr: Reads, type_name: str) -> TypeRecord | None:
    """Return the definition that a shard stores, or None. Reads one key.

    Raises:
      RecordUnreadable: it cannot be read.
    """
    return unpack_definition(type_name, tr.get(type_key(type_name)).value)


def unpack_definition(type_name: str, value: bytes | None) -> TypeRecord | None:
    """Return the definition that a value holds; None for no value.

    Raises:
      RecordUnreadable: it cannot be read.
    """
    return None if value is None else _unpacked(type_name, value)


@lru_cache(maxsize=256)  # By the bytes that were read, so it cannot be stale. Nearly all transactions read the same.
def _unpacked(type_name: str, value: bytes) -> TypeRecord:
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


def list_types(tr: Reader) -> Iterator[tuple[str, TypeRecord | None]]:
    """Yield the types that a shard knows, at most `TYPES_MAX`; None: the definition cannot be read. Snapshot reads."""
    begin = range_begin(_RECORD_TYPE)
    for _ in range(TYPES_MAX):
        row = next(iter(tr.snapshot.get_range(begin, range_end(_RECORD_TYPE), limit=1)), None)
        if row is None:
            return
        name = unpack_name(row.key, len(_RECORD_TYPE))
        if name is None:
            begin = row.key + b"\x00"
            continue
        yield name, unpacked(_decoder, row.value)
        begin = range_end(row.key)


def copy_definition(tr: Transaction, type_name: str, shard: str) -> TypeRecord | None:
    """Return the definition that the type's home stores, for a shard that is to get a copy; None: there is none.

    The shard is noted first. So whoever changes the definition here afterwards finds the shard, and changes it there.
    Reads one key, writes one. May run twice.
    """
    found = read_definition(tr, type_name)
    if found is not None:
        tr.set(_copies(type_name) + pack_text(shard), b"")
    return found


def list_copies(tr: Reader, type_name: str) -> list[str]:
    """Return the shards that have, or are about to get, a copy of the home's definition. Snapshot reads of a range."""
    prefix = _copies(type_name)
    rows = tr.snapshot.get_range(range_begin(prefix), range_end(prefix))
    return [name for row in rows if (name := unpack_name(row.key, len(prefix))) is not None]


def change_key(type_name: str, field: str) -> bytes:
    """Return the key of the last change of an index, on the type's home."""
    return changes_prefix(type_name) + pack_text(field)


def changes_prefix(type_name: str) -> bytes:
    """Return what the keys of the changes of a type's indexes begin with."""
    return type_key(type_name) + pack_int(CHANGE)


def _copies(type_name: str) -> bytes:
    return type_key(type_name) + pack_int(COPY)


def require_schema(tr: Transaction, type_name: str, used: TypeRecord, *, shard: str) -> None:
    """See that a shard maintains the indexes for which a writer has computed keys. Reads one key, with conflict.

    Raises:
      SchemaChanged: it does not.
      RecordUnreadable: see `read_definition`.
    """
    found = read_definition(tr, type_name)
    if found is not used and (found is None or found.schema != used.schema):
        raise SchemaChanged(shard)
