"""What the protocol needs of a store (Uniqorn section 1, "Applicability"): a database with two abilities will do.

- Single-record read consistency: a read returns what was written last, never an older snapshot or a replica's state.
- Single-record conditional write: a write happens if and only if the record's version is the expected one.

A conditional write answers yes or no, also if the connection broke during the commit. A store that cannot tell raises
`CommitUnknown`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from fairlead.records.stored import Versioned


class Put(NamedTuple):
    """A conditional write: `new` replaces what has the version `expected`; None: what is absent. `new` None deletes."""

    key: bytes
    new: Versioned | None
    expected: bytes | None


class RecordStore(Protocol):
    """One shard of records. Keys and values are bytes; versions are chosen by the writers."""

    def get(self, key: bytes) -> Versioned | None:
        """Return what is stored under a key, or None.

        Raises:
          IndexUnavailable, or an error of the store: it does not answer.
        """
        ...

    def put_if(self, key: bytes, new: Versioned, expected: bytes | None) -> bool:
        """Write if the version is `expected`; None: if there is nothing. Return whether it was.

        Raises:
          CommitUnknown: the store cannot tell.
          An error of the store: it does not answer; nothing was written, or it will not be told.
        """
        ...

    def delete_if(self, key: bytes, expected: bytes) -> bool:
        """Delete if the version is `expected`; return whether it was. Raises what `put_if` does."""
        ...

    def scan(self, begin: bytes, end: bytes) -> Iterator[tuple[bytes, Versioned]]:
        """Yield keys in order, from `begin` to `end`, with what is stored. Not one snapshot: pieces read one by one."""
        ...


class BatchingStore(RecordStore, Protocol):
    """A store that makes several accesses in one transaction."""

    def batch(self, accesses: Sequence[bytes | Put]) -> list[Versioned | bool | None]:
        """Make reads (a key) and conditional writes; answer each as `get`, `put_if` or `delete_if` would, in order."""
        ...
