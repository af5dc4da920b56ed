"""One transaction of the memory and embedded engines: optimistic, with FoundationDB's semantics step by step.

It reads from a snapshot, buffers its writes, and records the keys of the store that its reads depend on. At commit it
submits both to the store. The two engines differ only behind `Store` and `Snapshot`. The transaction has layers, each
in a file: `transaction_state`, `reading`, `writing`, and in this file commit, retry, watches and versionstamps.

Sources: FoundationDB 7.3, `ReadYourWrites.actor.cpp` and `NativeAPI.actor.cpp`, and answers recorded from a cluster.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from fairlead.zones.engines.api.clock import Clock
from fairlead.zones.engines.api.database import Database, Future
from fairlead.zones.engines.api.errors import (
    FUTURE_VERSION,
    NO_COMMIT_VERSION,
    RETRYABLE,
    TRANSACTION_CANCELLED,
    TRANSACTION_TOO_LARGE,
    TRANSACTION_TOO_OLD,
    WATCHES_DISABLED,
    StoreError,
    TransactionTooLong,
)
from fairlead.zones.engines.optimistic.commit import NO_VERSION, CommitRequest, Store
from fairlead.zones.engines.optimistic.commit_log import ReadSet
from fairlead.zones.engines.optimistic.futures import ReadyFuture
from fairlead.zones.engines.optimistic.options import PersistentOptions, TransactionOptions
from fairlead.zones.engines.optimistic.watches import Versionstamp, Watch
from fairlead.zones.engines.optimistic.writing import Writing

_BACKOFF_OLD_US: Final = 10_000  # Its FUTURE_VERSION_RETRY_DELAY, after 1007 and 1009.


class Transaction(Writing):
    """A transaction with the binding's API, as `fairlead.zones.engines.api.database.Transaction` describes it.

    One thread at a time may use it. It keeps its database open.

    Attributes:
      db: the database that it was created by.
    """

    __slots__ = ("_backoff_us", "_random", "_request", "_retries", "_stamps", "db")

    def __init__(self, db: Database, store: Store, clock: Clock, random_: random.Random) -> None:
        super().__init__(store, clock)
        self.db = db
        self._random = random_
        self._retries = 0
        self._backoff_us = self._store.backoff_us
        self._clear()

    def _clear(self) -> None:
        self._clear_state()
        self._clear_reads()
        self._clear_writes()
        self._stamps: list[Versionstamp] = []
        self._request: CommitRequest | None = None

    @property
    def options(self) -> TransactionOptions:
        """The setters of this transaction's options."""
        return TransactionOptions(self)

    # --- Commit ---

    def commit(self) -> Future:
        """Start the commit, and return its future.

        A transaction that wrote nothing and declared no write conflict commits always, however old. Afterwards the
        transaction is of no use until `reset` (2017).

        Raises, when waited for:
          StoreError: 1020 if something that it read has changed, 1007 if it read too long ago, 2101 if it is larger
            than the size limit, 1031, 1025, or what an earlier step left behind.
        """
        try:
            self._check_usable()
        except StoreError as error:
            return ReadyFuture(None, error)
        self._commit_started = True
        self._not_usable()
        try:
            request = self._request_to_commit()
        except StoreError as error:
            self._fail_waiting(error)
            return ReadyFuture(None, error)
        finally:
            self._close_snapshot()
        if request is None:
            return self._commit_without_writes()
        self._request = request
        return self._store.submit(request)

    def _request_to_commit(self) -> CommitRequest | None:
        """Return the request for the store; None if there is nothing to write."""
        if self._read_error is not None:
            raise self._read_error
        writes = self._writes
        if not writes:
            return None
        size_bytes_max = self.persistent_options.size_bytes_max
        if self._size_bytes_at_most() > size_bytes_max and (size_bytes := self._size_bytes()) > size_bytes_max:
            raise StoreError(TRANSACTION_TOO_LARGE, bytes=size_bytes, bytes_max=size_bytes_max)
        reads = read_version = None
        if self._reads:
            read_version = self._set_version
            if self._snapshot is not None:
                if self._now_us() > self._window_ends_us:
                    raise TransactionTooLong
                read_version = self._snapshot.version()
            if read_version is not None:  # Otherwise it declared conflicts and read nothing: there is no "since".
                reads = ReadSet(self._reads)
        return CommitRequest(self.clock, reads, read_version, writes, self._watches, self._stamps)

    def _commit_without_writes(self) -> Future:
        for stamp in self._stamps:
            stamp.fail(StoreError(NO_COMMIT_VERSION))
        for watch in self._watches:
            watch.arm(self._store)
            watch.is_ready()  # Another commit may have come before it was armed.
        self._watches, self._stamps = [], []
        return ReadyFuture(None)

    def _size_bytes(self) -> int:
        return self._reads.size_bytes() + self._writes.size_bytes()

    def _size_bytes_at_most(self) -> int:
        return self._reads.size_bytes() + self._writes.size_bytes_at_most()

    # --- Results of the commit ---

    def get_committed_version(self) -> int:
        """Return the version of the commit, -1 before it or if nothing was written."""
        return NO_VERSION if self._request is None else self._request.committed_version

    def get_versionstamp(self) -> Versionstamp:
        """Return a future of the ten bytes that this transaction's commit will stamp with; ask before the commit."""
        stamp = Versionstamp()
        try:
            self._check_usable()
            self._stamps.append(stamp)
        except StoreError as error:
            stamp.fail(error)
        return stamp

    def get_approximate_size(self) -> ReadyFuture[int]:
        """Return a future of the bytes that the commit would count against the size limit."""
        try:
            self._check_usable()
        except StoreError as error:
            return ReadyFuture(0, error)
        return ReadyFuture(self._size_bytes())

    def watch(self, key: bytes) -> Watch:
        """Return a future that is ready once `key` has another value than this transaction sees.

        Adds a read conflict on `key`. It starts to watch at the commit; until then, whatever ends the transaction
        makes it fail.
        """
        try:
            self._check_usable()
            if self._own_writes_disabled:
                raise StoreError(WATCHES_DISABLED)
            seen = self.read_key(key, False).value
        except StoreError as error:
            failed = Watch(self, key, None)
            failed.fail(error)
            return failed
        watch = Watch(self, key, seen)
        self._watches.append(watch)
        self._plain_writes = False
        return watch

    # --- Retry and end ---

    def on_error(self, error: Exception | int) -> Future:
        """Reset after a retryable error, and return a future that waits for the backoff before the next attempt.

        Any other error is raised by that future, and the transaction is cancelled.
        """
        if isinstance(error, int):
            error = StoreError(error)
        if not isinstance(error, StoreError):
            raise error  # As the binding does: it is no error of the store.
        if self._ended is not None:
            return ReadyFuture(None, self._ended)
        hit_limit = 0 <= self.persistent_options.retry_limit <= self._retries
        self._retries += 1
        if hit_limit or error.code not in RETRYABLE:
            self._end(StoreError(TRANSACTION_CANCELLED))
            return ReadyFuture(None, error)
        delay_max_us = self.persistent_options.retry_delay_max_ms * 1_000
        if error.code in (TRANSACTION_TOO_OLD, FUTURE_VERSION):
            delay_us = min(_BACKOFF_OLD_US, delay_max_us)
        else:
            delay_us = int(self._backoff_us * self._random.random())
            self._backoff_us = min(self._backoff_us * 2, delay_max_us)
        self._abandon(StoreError(TRANSACTION_CANCELLED))
        self._clear()
        return Delay(self.clock, self._now_us() + delay_us)

    def cancel(self) -> None:
        """End the transaction: every later step fails with 1025, until `reset`."""
        self._end(StoreError(TRANSACTION_CANCELLED))

    def reset(self) -> None:
        """Return it to its initial state. Options, retries and the time of the timeout start over too."""
        self._abandon(StoreError(TRANSACTION_CANCELLED))
        self.persistent_options = PersistentOptions()
        self._retries = 0
        self._backoff_us = self._store.backoff_us
        self._created_us = self._now_us()
        self._clear()

    def _abandon(self, error: StoreError) -> None:
        """Release the snapshot, and a commit that has not begun; fail its watches and stamps."""
        self._close_snapshot()
        if self._request is None or self._request.withdraw(error):
            self._fail_waiting(error)

    def _fail_waiting(self, error: StoreError) -> None:
        for waiting in (*self._watches, *self._stamps):
            waiting.fail(error)
        self._watches, self._stamps = [], []


class Delay:
    """The future of `on_error`: ready when the backoff has passed."""

    __slots__ = ("_clock", "_until_us")

    def __init__(self, clock: Clock, until_us: int) -> None:
        self._clock = clock
        self._until_us = until_us

    def is_ready(self) -> bool:
        """Return whether the backoff has passed."""
        return self._clock.now_us() >= self._until_us

    def wait(self) -> None:
        """Sleep on the clock until then."""
        left_us = self._until_us - self._clock.now_us()
        if left_us > 0:
            self._clock.sleep_us(left_us)

    def on_ready(self, callback: Callable[[Any], None]) -> None:
        """Wait, and call `callback(self)`."""
        self.wait()
        callback(self)
