"""Checks of what a shard stores about types of records: definitions, copies of them, and changes of indexes.

The layer of records decodes these values. Here a value is readable if it is a packed list, as all of them are.
"""

from functools import partial
from typing import Any

import msgspec

from fairlead.zones.engines import KeyValue
from fairlead.zones.maintenance.integrity.records import check_damaged_key, check_value
from fairlead.zones.maintenance.integrity.walk import Check
from fairlead.zones.records import unpacked
from fairlead.zones.tuples import elements_of

_decoder = msgspec.msgpack.Decoder(list[Any])


def row_check(row: KeyValue) -> Check:
    """Return the check of a row in the subspace `RECORD_TYPE`."""
    match elements_of(row.key):
        case (_, _, str(_)) | (_, _, str(_), 2, str(_)):
            return partial(check_value, readable=_is_readable, key=row.key)
        case (_, _, str(_), 1, str(_)):
            return partial(check_value, readable=_is_empty, key=row.key, has_format=False)
    return partial(check_damaged_key, key=row.key)


def _is_readable(value: bytes) -> bool:
    return unpacked(_decoder, value) is not None


def _is_empty(value: bytes) -> bool:
    return not value
