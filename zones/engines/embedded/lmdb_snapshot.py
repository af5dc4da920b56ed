"""A snapshot of an embedded store: an LMDB read transaction, and its errors once it has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import lmdb

from fairlead.zones.engines.api.database import Pair
from fairlead.zones.engines.api.errors import TRANSACTION_TOO_OLD, StoreError
from fairlead.zones.engines.embedded.lmdb_files import LmdbFiles
from fairlead.zones.engines.embedded.stored_log import StoredLog
from fairlead.zones.engines.optimistic.reserved_keys import EMPTY_KEY


class LmdbSnapshot:
    """An LMDB read transaction."""

    __slots__ = ("__weakref__", "_ended", "_files", "_log", "_txn", "get", "opened_us")

    errors: tuple[type[Exception], ...] = (lmdb.Error,)

    def __init__(self, files: LmdbFiles, log: StoredLog, opened_us: int, ended: Callable[[], object]) -> None:
        """Open the newest snapshot. `ended` is called once when it ends, but not if it is dropped before."""
        txn = files.begin_read()
        self._files = files
        self._log = log
        self._txn: lmdb.Transaction[bytes] = txn
        self._ended = ended
        self.opened_us = opened_us
        self.get: Callable[[bytes], bytes | None]
        self.get = txn.get  # LMDB's own method: a read goes through nothing else.

    def get_after_error(self, key: bytes, error: Exception) -> bytes | None:
        """Return what `get` should have returned. LMDB refuses the empty key, and every key of an ended snapshot."""
        if isinstance(error, lmdb.BadValsizeError):
            try:
                value: bytes | None = None if key else self._txn.get(EMPTY_KEY)
            except lmdb.Error as ended:
                raise self._reason(ended) from None
            return value
        raise self._reason(error)

    def version(self) -> int:
        """Return the version of the last commit in it."""
        try:
            return self._log.version(self._txn)
        except lmdb.Error as error:
            raise self._reason(error) from None

    def scan(self, begin: bytes, end: bytes, reverse: bool) -> Iterator[Pair]:
        """Yield the pairs of [begin, end) in order."""
        try:
            if reverse:
                yield from self._scan_back(begin, end)
                return
            cursor = self._txn.cursor()
            if begin:
                found = cursor.set_range(begin)
            else:
                yield from self._empty_key()
                found = cursor.first()
            if found:
                for pair in cursor.iternext():
                    if pair[0] >= end:
                        return
                    yield pair
        except lmdb.Error as error:
            raise self._reason(error) from None

    def close(self) -> None:
        """Drop the reference to the LMDB transaction. It ends now, or with the read of another thread.

        `abort` would end the transaction during that read, and LMDB would read freed memory.
        """
        if self._txn is not _ENDED:
            self._txn = _ENDED
            self.get = _ENDED.get
            self._ended()

    def _scan_back(self, begin: bytes, end: bytes) -> Iterator[Pair]:
        cursor = self._txn.cursor()
        if cursor.prev() if cursor.set_range(end) else cursor.last():
            for pair in cursor.iterprev():
                if pair[0] < begin:
                    return
                yield pair
        if not begin:
            yield from self._empty_key()

    def _empty_key(self) -> Iterator[Pair]:
        value = self._txn.get(EMPTY_KEY)
        if value is not None:
            yield b"", value

    def _reason(self, error: Exception) -> StoreError:
        # LMDB's errors for a transaction that has ended: by its window, a growth of the map, a fork, or a close.
        if type(error) in (lmdb.Error, lmdb.BadTxnError, lmdb.InvalidParameterError, lmdb.BadRslotError):
            return StoreError(TRANSACTION_TOO_OLD)
        return self._files.unavailable(error)


class _Ended:
    """Stands in for the LMDB transaction of a snapshot that has ended."""

    def get(self, *_: object, **__: object) -> bytes | None:
        raise lmdb.Error("the snapshot has ended")

    cursor = get
    id = get


_ENDED = cast("lmdb.Transaction[bytes]", _Ended())
