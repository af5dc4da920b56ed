"""How people are stored as records: their fields, their keys, and their values.

A key is a number: modulo the number of fields, it is of the field of that number. The third field, the badge, is there
only if indexes change: the program does not declare it, and its index is built and dropped.
"""

from __future__ import annotations

import msgspec

from fairlead.records.alternate_keys import Field
from fairlead.records.stored import DataRecord
from fairlead.simulation.directory.model import Keys, Person

TYPE = "person"
FIELDS = tuple(Field(name, is_unique=True) for name in ("email", "phone", "badge"))
DECLARED = FIELDS[:2]
BADGE = FIELDS[2]
BADGE_PLACE = 2  # In a value.


def name_of(number: int) -> str:
    """Return the primary key of a person."""
    return f"p{number}"


def number_of(name: str) -> int:
    """Return the number of a person, by the primary key."""
    return int(name[1:])


def field_number(key: int, fields: int) -> int:
    """Return the number of the field of a key, in a directory of so many fields."""
    return key % fields


def values_of(keys: Keys, fields: int) -> dict[str, int]:
    """Return the values of fields that keys are, by the names of the fields."""
    return {FIELDS[field_number(key, fields)].name: key for key in keys}


def pack_person(tag: str, keys: Keys, fields: int) -> bytes:
    """Return the value of a record."""
    badge = values_of(keys, fields).get(BADGE.name)
    return msgspec.msgpack.encode((tag, keys) if len(DECLARED) == fields else (tag, keys, badge))


def person_of(record: DataRecord) -> Person:
    """Return what a record says of a person."""
    tag, keys, *_ = msgspec.msgpack.decode(record.value)
    return Person(tag, tuple(keys))
