"""Records that were written while shards of their index records were away: how many there are, and which share a value.

A repair finds a value that another record has, too. It cannot say which record is to keep it: `resolve` is told.
"""

from collections.abc import Callable
from dataclasses import is_dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar, cast

import msgspec

from fairlead.records.alternate_keys import AlternateValue, Field, field_of, normalized
from fairlead.records.errors import IndexUnavailable, NoSuchRecord
from fairlead.records.on_shards.repairing import MARKED, VIOLATION, marks_index, marks_of
from fairlead.records.on_shards.scatter import Scatter
from fairlead.records.stored import DataRecord
from fairlead.records.values import Values, values_of
from fairlead.zones.errors import BadArgument

V = TypeVar("V")


class SharedValue(NamedTuple):
    """A value of a unique field that several records have. `keys`: their primary keys, in order."""

    field: str
    value: AlternateValue
    keys: tuple[str, ...]


class Repairs(Generic[V]):
    """What is to be repaired, or resolved, among the records of one type. All shards must answer."""

    def __init__(self, type_name: str, scatter: Scatter, values: Values[V]) -> None:
        self._type_name = type_name
        self._scatter = scatter
        self._values = values

    def count_marked(self) -> int:
        """Return how many records are marked; at most 10,000 of each shard are counted."""
        return len(self._marked(MARKED))

    def shared_values(self) -> list[SharedValue]:
        """Return the values of unique fields that a repair has found at another record, too, with all their records."""
        shared: dict[bytes, SharedValue] = {}
        for _, record in self._scatter.read(self._marked(VIOLATION)):
            for index_key in record.violations:
                if index_key not in shared:
                    holders = [key for key, _ in self._scatter.find_holders(index_key)]
                    value = self._value(record, field_of(index_key))
                    shared[index_key] = SharedValue(field_of(index_key), value, tuple(sorted(holders)))
        return sorted(shared.values(), key=lambda each: (each.field, str(each.value)))

    def holders(self, index_key: bytes, keep: str) -> list[str]:
        """Return the primary keys of the records that have a value, but for the one that is to keep it.

        Raises:
          NoSuchRecord: the record `keep` does not have it.
        """
        keys = [key for key, _ in self._scatter.find_holders(index_key)]
        if keep not in keys:
            raise NoSuchRecord(key=keep, field=field_of(index_key), reason="the record to keep does not have the value")
        return [key for key in keys if key != keep]

    def without(self, field: Field, wanted: AlternateValue) -> Callable[[V], V]:
        """Return a function that takes a value of a field out of a record's value, if it is there.

        The function raises:
          BadArgument: the field cannot be None.
        """

        def change(value: V) -> V:
            [has] = values_of(value, {field.name: field}).values()
            if has is None or normalized(field, has) != normalized(field, wanted):
                return value
            changed = _without(value, field.name)
            try:
                self._values.pack(changed)
            except BadArgument:
                allowed = "a field that may be None; give all records but one another value yourself, with `change`"
                raise BadArgument(argument=field.name, value=None, allowed=allowed) from None
            return changed

        return change

    def _marked(self, mark: int) -> list[str]:
        index = marks_index(self._type_name, mark)
        named = self._scatter.named_by(index)
        if named.away:
            raise IndexUnavailable(type=self._type_name, reason=named.missing, shards=named.away)
        marked = {key: marks_of(self._type_name, record) for key, record in self._scatter.read(named.keys)}
        return [key for key, indexes in marked.items() if index in indexes]  # Else an entry is left over.

    def _value(self, record: DataRecord, name: str) -> AlternateValue:
        value = self._values.unpack("", record.value)
        return cast(AlternateValue, values_of(value, {name: None})[name])


def _without(value: V, name: str) -> V:
    if isinstance(value, dict):
        return cast(V, {key: each for key, each in value.items() if key != name})
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **{name: None})
    assert is_dataclass(value)
    return cast(V, replace(cast(Any, value), **{name: None}))
