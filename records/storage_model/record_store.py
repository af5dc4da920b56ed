"""What the protocol needs of a store (Uniqorn section 1, "Applicability"): a database with two abilities will do.

- Single-record read consistency: a read returns what was written last, never an older snapshot or a replica's state.
- Single-record conditional write: a write happens if and only if the record's version is the expected one.

Both are whole before they return: what one client was answered, every later call of any client sees.

Three outcomes, and no fourth: an answer; `StoreUnavailable`, and nothing was written; `CommitUnknown`, and it may have
been written, or may still be. A store that can tell after a broken commit answers instead. Whether one can is not a
matter of reading again: another writer may have written the same version, or have overwritten or deleted it.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from fairlead.records.stored import Versioned


class ConditionalWrite(NamedTuple):
    """A write of one record if its version is `expected`; None: if there is none. `new` None deletes it."""

    key: bytes
    new: Versioned | None
    expected: bytes | None


class Batch(NamedTuple):
    """The answer to a batch.

    Attributes:
      found: what each key to read held, before the writes.
      held: whether the condition of each write held. The writes were made if all of them did.
    """

    found: list[Versioned | None]
    held: list[bool]

    @property
    def is_written(self) -> bool:
        """Whether the writes were made."""
        return all(self.held)


class RecordStore(Protocol):
    """One shard of records. Keys and values are any bytes; versions are chosen by the writers. Safe for threads.

    How long a key and a value may be is the store's: at least 300 and 90,000 bytes, a version 200.
    """

    def get(self, key: bytes) -> Versioned | None:
        """Return what is stored under a key, or None.

        Raises:
          StoreUnavailable: the store does not answer.
        """
        ...

    def put_if(self, key: bytes, new: Versioned, expected: bytes | None) -> bool:
        """Write if the version is `expected`; None: if there is nothing. Return whether it was.

        Raises:
          StoreUnavailable: the store does not answer, or refuses; nothing was written.
          CommitUnknown: the store broke off in the commit, and cannot tell.
        """
        ...

    def delete_if(self, key: bytes, expected: bytes) -> bool:
        """Delete if the version is `expected`; return whether it was. Raises what `put_if` does."""
        ...

    def scan(self, begin: bytes, end: bytes) -> Iterator[tuple[bytes, Versioned]]:
        """Yield keys in order of their bytes, from `begin` to before `end`, with what is stored.

        Pieces are read one by one, so it is not one snapshot: each record is as it was at some moment of the scan, and
        one that is there all the while is yielded once. Raises what `get` does.
        """
        ...


class BatchingStore(RecordStore, Protocol):
    """A store that makes reads and conditional writes of several records in one transaction."""

    def batch(self, reads: Sequence[bytes], writes: Sequence[ConditionalWrite]) -> Batch:
        """Make reads, and all of the writes or none: they are made if all their conditions hold.

        It is one moment for everyone else: nobody sees some of the writes, and what is read is as it was when they were
        made, what is absent included. No two writes may have one key. Raises what `put_if` does.
        """
        ...
