"""The common storage model over a shard of any engine: each access is a transaction of its own.

    prefix, key -> the version's length in two bytes, the version, the value

A commit whose result is unknown leaves no doubt. A transaction that writes also writes a receipt, by which its own
retry finds it applied (`zones.transaction_runner`). Only a cluster that does not answer at all leaves doubt. On
FoundationDB a receipt stays for ten minutes, until housekeeping of the shard's consumers clears it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fairlead.records.errors import CommitUnknown, RecordUnreadable
from fairlead.records.storage_model.record_store import Batch, ConditionalWrite
from fairlead.records.stored import Versioned
from fairlead.zones.engines import StoreUnavailable, StreamingMode, Transaction
from fairlead.zones.engines.api.errors import MAYBE_COMMITTED, ResultUnknown, error_code
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

VERSION_LENGTH_BYTES = 2
PIECE_RECORDS = 100  # that one transaction of a scan reads


class ShardStore:
    """A store of records in a shard.

    Args:
      prefix: how its keys begin, and no others of the shard; not empty.
    """

    def __init__(self, shard: Shard, prefix: bytes) -> None:
        assert prefix
        self._shard = shard
        self._prefix = prefix

    def get(self, key: bytes) -> Versioned | None:
        """See `RecordStore`. Reads 1 key; conflicts with nothing."""
        with self._errors(writes=False):
            stored = self._shard.transact(lambda attempt: attempt.tr.snapshot.get(self._prefix + key).value)
        return None if stored is None else self._unpacked(key, stored)

    def put_if(self, key: bytes, new: Versioned, expected: bytes | None) -> bool:
        """See `RecordStore`."""
        return self.batch([], [ConditionalWrite(key, new, expected)]).is_written

    def delete_if(self, key: bytes, expected: bytes) -> bool:
        """See `RecordStore`."""
        return self.batch([], [ConditionalWrite(key, None, expected)]).is_written

    def scan(self, begin: bytes, end: bytes) -> Iterator[tuple[bytes, Versioned]]:
        """See `RecordStore`. Reads 100 records in each transaction; conflicts with nothing."""
        at, stop = self._prefix + begin, self._prefix + end
        while at < stop:
            with self._errors(writes=False):
                piece = self._shard.transact(lambda attempt, at=at: self._piece(attempt, at, stop))  # type: ignore[misc]
            for key, stored in piece:
                yield key[len(self._prefix) :], self._unpacked(key[len(self._prefix) :], stored)
            if len(piece) < PIECE_RECORDS:
                return
            at = piece[-1][0] + b"\x00"

    def batch(self, reads: Sequence[bytes], writes: Sequence[ConditionalWrite]) -> Batch:
        """See `BatchingStore`."""
        assert len({each.key for each in writes}) == len(writes)
        with self._errors(writes=True):
            return self._shard.transact(lambda attempt: self._make(attempt, reads, writes))

    def _make(self, attempt: Attempt, reads: Sequence[bytes], writes: Sequence[ConditionalWrite]) -> Batch:
        """Make the accesses of a batch.

        Reads each key with conflict, and writes those of the writes; conflicts with every other write of one of them. A
        second run after a commit of unknown result finds the receipt of the first.
        """
        tr = attempt.tr
        read = [tr.get(self._prefix + key) for key in reads]
        present = [tr.get(self._prefix + each.key) for each in writes]
        found = [
            None if each.value is None else self._unpacked(key, each.value)
            for key, each in zip(reads, read, strict=True)
        ]
        versions = [
            None if each.value is None else self._unpacked(write.key, each.value).version
            for write, each in zip(writes, present, strict=True)
        ]
        attempt.has_read = True
        held = [version == each.expected for version, each in zip(versions, writes, strict=True)]
        done = Batch(found, held)
        if writes and done.is_written:
            attempt.needs_receipt = True
            self._write(tr, writes)
        return done

    def _write(self, tr: Transaction, writes: Sequence[ConditionalWrite]) -> None:
        for key, new, _ in writes:
            if new is None:
                tr.clear(self._prefix + key)
            else:
                length = len(new.version).to_bytes(VERSION_LENGTH_BYTES, "big")
                tr.set(self._prefix + key, length + new.version + new.value)

    def _piece(self, attempt: Attempt, begin: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        rows = attempt.tr.snapshot.get_range(begin, end, PIECE_RECORDS, False, StreamingMode.want_all)
        return [(row.key, row.value) for row in rows]

    def _unpacked(self, key: bytes, stored: bytes) -> Versioned:
        begin = VERSION_LENGTH_BYTES + int.from_bytes(stored[:VERSION_LENGTH_BYTES], "big")
        if not VERSION_LENGTH_BYTES <= begin <= len(stored):
            raise RecordUnreadable(key=key, newer=False)
        return Versioned(stored[VERSION_LENGTH_BYTES:begin], stored[begin:])

    @contextmanager
    def _errors(self, *, writes: bool) -> Iterator[None]:
        """Raise what `RecordStore` names for what the engine raises."""
        db = self._shard.db
        try:
            yield
        except ResultUnknown as error:
            raise CommitUnknown(store=db.url) from error
        except StoreUnavailable:
            raise
        except db.errors as error:
            if error_code(error) not in MAYBE_COMMITTED:
                raise
            if writes:
                raise CommitUnknown(store=db.url) from error
            raise StoreUnavailable(
                "the store does not answer", remedy="Try again later; nothing was read.", url=db.url
            ) from error
