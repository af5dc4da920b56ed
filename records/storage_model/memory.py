"""The common storage model in memory: its specification, and the store of tests that enumerate orders."""

from collections.abc import Iterator

from fairlead.records.stored import Versioned


class MemoryStore:
    """A store of records in the memory of one process. One thread at a time."""

    def __init__(self) -> None:
        self.rows: dict[bytes, Versioned] = {}

    def get(self, key: bytes) -> Versioned | None:
        """See `RecordStore`."""
        return self.rows.get(key)

    def put_if(self, key: bytes, new: Versioned, expected: bytes | None) -> bool:
        """See `RecordStore`."""
        if self._version(key) != expected:
            return False
        self.rows[key] = new
        return True

    def delete_if(self, key: bytes, expected: bytes) -> bool:
        """See `RecordStore`."""
        if self._version(key) != expected:
            return False
        del self.rows[key]
        return True

    def scan(self, begin: bytes, end: bytes) -> Iterator[tuple[bytes, Versioned]]:
        """See `RecordStore`."""
        for key in sorted(self.rows):
            if begin <= key < end:
                yield key, self.rows[key]

    def _version(self, key: bytes) -> bytes | None:
        found = self.rows.get(key)
        return None if found is None else found.version
