"""Carries out accesses of the protocol on stores of the common storage model: data stores and index stores.

They may be of different kinds (Uniqorn section 2: a hybrid system), and any number. A key lies in the store that its
hash names.
"""

from collections.abc import Sequence
from hashlib import blake2b
from itertools import islice
from typing import Any

from fairlead.records.accesses import (
    Access,
    DeleteIndex,
    DeleteRecord,
    ListIndex,
    ReadIndex,
    ReadRecord,
    WriteIndex,
    WriteRecord,
)
from fairlead.records.alternate_keys import value_part
from fairlead.records.storage_model.record_store import RecordStore
from fairlead.records.stored import DataRecord, IndexRecord, pack, unpack_data, unpack_index, version_of
from fairlead.zones.keyspace import pack_text, range_begin, range_end


class ModelStores:
    """The data shards and the index shards of one type of records."""

    def __init__(self, data: Sequence[RecordStore], index: Sequence[RecordStore]) -> None:
        self._data = data
        self._index = index

    def perform(self, accesses: Sequence[Access]) -> list[Any]:
        """Make accesses one after the other; return their answers."""
        return [self.answer(access) for access in accesses]

    def answer(self, access: Access) -> DataRecord | IndexRecord | list[str] | bool | None:
        """Make one access; return its answer."""
        match access:
            case ReadRecord(key):
                found = self.data_store(key).get(key.encode())
                return None if found is None else unpack_data(key, found.value)
            case WriteRecord(key, expected, record):
                version = None if expected is None else version_of(expected)
                return self.data_store(key).put_if(key.encode(), pack(record), version)
            case DeleteRecord(key, expected, _):
                return self.data_store(key).delete_if(key.encode(), version_of(expected))
            case ReadIndex(index_key, _):
                found = self.index_store(index_key).get(index_key)
                return None if found is None else unpack_index(found.value)
            case ListIndex(value_part, after, limit):
                return self._listed(value_part, after, limit)
            case WriteIndex(index_key, entry_expected, entry):
                version = None if entry_expected is None else version_of(entry_expected)
                return self.index_store(index_key).put_if(index_key, pack(entry), version)
            case DeleteIndex(index_key, entry_expected):
                return self.index_store(index_key).delete_if(index_key, version_of(entry_expected))
        raise AssertionError(f"the common storage model has no {type(access).__name__}")

    def data_store(self, key: str) -> RecordStore:
        """Return the store of a primary key."""
        return self._data[_place(key.encode(), len(self._data))]

    def index_store(self, index_key: bytes) -> RecordStore:
        """Return the store of an index key."""
        return self._index[_place(value_part(index_key), len(self._index))]

    def _listed(self, prefix: bytes, after: str, limit: int) -> list[str]:
        begin = prefix + pack_text(after) + b"\x00" if after else range_begin(prefix)
        rows = self.index_store(prefix).scan(begin, range_end(prefix))
        return [unpack_index(row.value).key for _, row in islice(rows, limit)]


def _place(key: bytes, count: int) -> int:
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big") % count
