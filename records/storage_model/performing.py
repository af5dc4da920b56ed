"""Carries out accesses of the protocol on stores of the common storage model: data stores and index stores.

They may be of different kinds (Uniqorn section 2: a hybrid system), and any number. A key lies in the store that its
hash names.
"""

from collections.abc import Sequence
from concurrent.futures import Executor, wait
from hashlib import blake2b
from itertools import islice
from typing import Any

from fairlead.records.accesses import (
    Access,
    DeleteIndex,
    DeleteRecord,
    IndexAccess,
    ListIndex,
    LookedUp,
    LookUp,
    ReadIndex,
    ReadRecord,
    WriteIndex,
    WriteRecord,
)
from fairlead.records.alternate_keys import field_of, value_part
from fairlead.records.errors import IndexUnavailable, RecordError
from fairlead.records.storage_model.record_store import RecordStore
from fairlead.records.stored import DataRecord, IndexRecord, pack, unpack_data, unpack_index, version_of
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.keyspace import pack_text, range_begin, range_end

Answer = DataRecord | IndexRecord | LookedUp | list[str] | bool | None


class ModelStores:
    """The data shards and the index shards of one type of records."""

    def __init__(self, data: Sequence[RecordStore], index: Sequence[RecordStore]) -> None:
        self._data = data
        self._index = index

    def perform(self, accesses: Sequence[Access]) -> list[Any]:
        """Make accesses one after the other; return their answers, those that are a `RecordError`, too.

        Raises:
          StoreUnavailable: a data store does not answer.
        """
        return [self._answer_or_error(access) for access in accesses]

    def perform_in_parallel(self, threads: Executor, accesses: Sequence[Access]) -> list[Any]:
        """Make accesses at once, each in a thread; return and raise what `perform` does, once all have ended.

        None goes on after this returns: an operation that gives up removes what its accesses have written.
        """
        if len(accesses) == 1:
            return self.perform(accesses)
        made = [threads.submit(self._answer_or_error, access) for access in accesses]
        wait(made)
        return [each.result() for each in made]

    def _answer_or_error(self, access: Access) -> Any:
        try:
            return self.answer(access)
        except RecordError as error:
            return error

    def answer(self, access: Access) -> Answer:
        """Make one access; return its answer.

        Raises:
          IndexUnavailable: the store of an index record does not answer.
          StoreUnavailable: the store of a data record does not.
          CommitUnknown: see `RecordStore`.
        """
        if isinstance(access, ReadRecord | WriteRecord | DeleteRecord):
            return self._answer_of_data(access)
        assert isinstance(access, IndexAccess), f"the common storage model has no {type(access).__name__}"
        try:
            return self._answer_of_index(access)
        except StoreUnavailable as error:
            key = access.value_part if isinstance(access, ListIndex) else access.index_key
            raise IndexUnavailable(field=field_of(key), reason=error.reason) from error

    def _answer_of_data(self, access: ReadRecord | WriteRecord | DeleteRecord) -> DataRecord | bool | None:
        key = access.key.encode()
        store = self.data_store(access.key)
        match access:
            case ReadRecord():
                found = store.get(key)
                return None if found is None else unpack_data(access.key, found.value)
            case WriteRecord(_, expected, record):
                return store.put_if(key, pack(record), None if expected is None else version_of(expected))
            case DeleteRecord(_, expected, _):
                return store.delete_if(key, version_of(expected))

    def _answer_of_index(self, access: IndexAccess) -> IndexRecord | LookedUp | list[str] | bool | None:
        if isinstance(access, ListIndex):
            return self._listed(access.value_part, access.after, access.limit)
        store = self.index_store(access.index_key)
        match access:
            case ReadIndex(key):
                found = store.get(key)
                return None if found is None else unpack_index(found.value)
            case LookUp(key):
                found = store.get(key)
                return None if found is None else LookedUp(unpack_index(found.value).key)
            case WriteIndex(key, expected, entry):
                return store.put_if(key, pack(entry), None if expected is None else version_of(expected))
            case DeleteIndex(key, expected):
                return store.delete_if(key, version_of(expected))

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
