"""The floor over FoundationDB: the loop of `bench.floor`, with its keys, values, batches and reads.

As over LMDB, one thread of one process runs one transaction after the other. A transaction has one read version and
sends its reads together: one item's count, a hundred counts, or those of 64 zones. So a transaction waits for its reads
once and for its commit once, with any batch. The connection is the engine's own, with the options of the queue. No read
version is cached or risky. A commit that fails ends the measurement.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from bench.floor import PlainLoop, count_key, prefix_of
from fairlead.zones.engines import Database, Transaction, transact

BEGIN, END = b"fl/", b"fl0"  # All keys of a floor. Those of a queue begin with another byte.


class FoundationFloor(PlainLoop):
    """The loop over a cluster. It begins empty, and `close` clears its keys."""

    def __init__(self, db: Database) -> None:
        super().__init__()
        self._db = db
        self._clear()

    def entries(self) -> int:
        """Return how many keys there are."""
        return transact(self._db, lambda tr: sum(1 for _ in tr.snapshot.get_range(BEGIN, END)))

    def close(self) -> None:
        """Clear the keys of this floor."""
        self._clear()

    def _clear(self) -> None:
        transact(self._db, lambda tr: tr.clear_range(BEGIN, END))

    @contextmanager
    def _transaction(self, zones: Iterable[int]) -> Iterator["_Writing"]:
        tr = self._db.create_transaction()
        yield _Writing(tr, zones)
        tr.commit().wait()


class _Writing:
    """A transaction of the binding with the method names of LMDB. It has sent the reads of its counts."""

    def __init__(self, tr: Transaction, zones: Iterable[int]) -> None:
        self.put = tr.set
        self.delete = tr.clear
        self._tr = tr
        keys = [count_key(prefix_of(zone)) for zone in zones]
        self._sent = dict(zip(keys, [tr.get(key) for key in keys], strict=True))

    def get(self, key: bytes, default: bytes) -> bytes:
        """Return a count. A count that was written in this transaction is read anew, without a wait."""
        sent = self._sent.pop(key) if key in self._sent else self._tr.get(key)
        value: bytes | None = sent.value
        return default if value is None else value
