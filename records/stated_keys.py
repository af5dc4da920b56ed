"""The keys that a stored value states, for a program that does not know the type of the value.

An index that was built beside users has noted where its field is in a packed value: by a name, or by a position if
values are packed as arrays. That is the field's *place*. A field that the type began with has none: since the first
record its writers have given each record its keys.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from fairlead.records.alternate_keys import Field, field_of, pack_lookup, pack_unique
from fairlead.records.definition import TypeRecord
from fairlead.records.stored import DataRecord
from fairlead.zones.errors import BadArgument

FieldPlace = str | int


def stated_key(field: Field, place: FieldPlace, key: str, packed: bytes) -> bytes | None:
    """Return the index key that a packed value states in a field; None: it states none. `key`: of its record.

    Raises:
      BadArgument: what the value states cannot be a key.
      UnknownNormalizer: see there.
    """
    value = _value_at(place, packed)
    if value is None:
        return None
    return pack_unique(field, value) if field.is_unique else pack_lookup(field, value, key)


def restated_keys(
    definition: TypeRecord, places: Mapping[str, FieldPlace], key: str, record: DataRecord
) -> tuple[bytes, ...]:
    """Return the keys that a record has to have by a definition, whatever it had when it was written.

    What cannot be a key is none: no writer could have written it since the index is there.

    Raises:
      UnknownNormalizer: see there.
    """
    keys: list[bytes] = []
    for name, field in definition.maintained().items():
        if name not in places:
            keys += [each for each in record.keys if field_of(each) == name]
            continue
        try:
            stated = stated_key(field, places[name], key, record.value)
        except BadArgument:
            continue
        keys += [] if stated is None else [stated]
    return tuple(keys)


def may_state(
    definition: TypeRecord, places: Mapping[str, FieldPlace], key: str, record: DataRecord, index_key: bytes
) -> bool:
    """Say whether a record's value may state an index key; True, too, if the place of the field is unknown."""
    field = definition.named(field_of(index_key))
    if field is None or field.name not in places:
        return field is not None
    try:
        return stated_key(field.field, places[field.name], key, record.value) == index_key
    except BadArgument:
        return False


def _value_at(place: FieldPlace, packed: bytes) -> Any:
    decoded = msgspec.msgpack.decode(packed)
    if isinstance(place, str):
        return decoded.get(place) if isinstance(decoded, dict) else None
    return decoded[place] if isinstance(decoded, list) and place < len(decoded) else None
