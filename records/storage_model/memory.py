"""The common storage model in memory: its specification, and the store of tests that enumerate orders."""

from collections.abc import Iterator, Sequence
from threading import Lock

from fairlead.records.storage_model.record_store import Batch, ConditionalWrite
from fairlead.records.stored import Versioned


class MemoryStore:
    """A store of records in the memory of one process.

    Attributes:
      rows: the records by their keys, for tests.
    """

    def __init__(self) -> None:
        self.rows: dict[bytes, Versioned] = {}
        self._lock = Lock()

    def get(self, key: bytes) -> Versioned | None:
        """See `RecordStore`."""
        return self.rows.get(key)

    def put_if(self, key: bytes, new: Versioned, expected: bytes | None) -> bool:
        """See `RecordStore`."""
        return self.batch([], [ConditionalWrite(key, new, expected)]).is_written

    def delete_if(self, key: bytes, expected: bytes) -> bool:
        """See `RecordStore`."""
        return self.batch([], [ConditionalWrite(key, None, expected)]).is_written

    def scan(self, begin: bytes, end: bytes) -> Iterator[tuple[bytes, Versioned]]:
        """See `RecordStore`."""
        with self._lock:
            rows = sorted(self.rows.items())
        return ((key, row) for key, row in rows if begin <= key < end)

    def batch(self, reads: Sequence[bytes], writes: Sequence[ConditionalWrite]) -> Batch:
        """See `BatchingStore`."""
        with self._lock:
            found = [self.rows.get(key) for key in reads]
            done = Batch(found, [self._version(each.key) == each.expected for each in writes])
            for each in writes if done.is_written else ():
                if each.new is None:
                    self.rows.pop(each.key, None)
                else:
                    self.rows[each.key] = each.new
        return done

    def _version(self, key: bytes) -> bytes | None:
        found = self.rows.get(key)
        return None if found is None else found.version
