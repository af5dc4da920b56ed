"""The memory engine: every version in memory, for this process only. Unit tests and the simulator use it.

A commit is a new root of an immutable tree. So reads take no lock, and see one version for any time.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from fairlead.zones.engines.api import database
from fairlead.zones.engines.api.clock import Clock
from fairlead.zones.engines.api.database import Limits, Pair
from fairlead.zones.engines.api.errors import FUTURE_VERSION, NOT_COMMITTED, TRANSACTION_TOO_OLD, StoreError
from fairlead.zones.engines.memory import sorted_map
from fairlead.zones.engines.optimistic.commit import AnsweredCommit, CommitRequest, version_stamp
from fairlead.zones.engines.optimistic.commit_log import WINDOW_US, LogEntry, entries_after
from fairlead.zones.engines.optimistic.options import TRANSACTION_BYTES_MAX
from fairlead.zones.engines.optimistic.transaction import Transaction
from fairlead.zones.engines.optimistic.watches import Watches
from fairlead.zones.engines.optimistic.writes import Mutations

LIMITS: Final = Limits(key_bytes_max=10_000, value_bytes_max=100_000, transaction_bytes_max=TRANSACTION_BYTES_MAX)

# Versions that `set_read_version` can reach. A transaction that has read keeps its own version alive.
VERSIONS_MAX: Final = 1_024


class MemoryDatabase:
    """A database that lives as long as this object."""

    errors: tuple[type[Exception], ...] = (StoreError,)
    results_can_be_unknown = False
    limits = LIMITS

    def __init__(self, url: str, clock: Clock, random_: random.Random) -> None:
        self.url = url
        self._clock = clock
        self._random = random_
        self._store = MemoryStore(max(1, clock.now_us()))

    def create_transaction(self) -> Transaction:
        """Return a new, empty transaction."""
        return Transaction(self, self._store, self._clock, self._random)

    def commit_sequence(self) -> int | None:
        """Return the version of the last commit."""
        return self._store.commit_sequence()

    def listener(self) -> None:
        """Return None: see `Database`."""

    def exclusive_section(self) -> AbstractContextManager[object]:
        """Return a context that does nothing."""
        return nullcontext()

    def burst(self, tr: database.Transaction) -> AbstractContextManager[database.Transaction]:
        """Return the transaction itself: a write wakes no thread."""
        return nullcontext(tr)

    def close(self) -> None:
        """Do nothing: the data is freed with the object."""


class MemoryStore:
    """The versions, and the log of recent commits."""

    limits = LIMITS
    backoff_us = 10_000  # FoundationDB's.

    def __init__(self, version: int) -> None:
        self.watches = Watches()
        self._lock = threading.Lock()
        self._newest: tuple[int, sorted_map.Map] = (version, sorted_map.EMPTY)
        self._versions: deque[tuple[int, sorted_map.Map]] = deque([self._newest], maxlen=VERSIONS_MAX)
        self._log: deque[LogEntry] = deque()
        self._floor = 0  # The newest version that was pruned from the log.

    def snapshot(self, clock: Clock) -> MemorySnapshot:
        """Return the newest version."""
        return MemorySnapshot(*self._newest, clock.now_us())

    def snapshot_at(self, clock: Clock, version: int) -> MemorySnapshot:
        """Return the store as it was at `version`."""
        newest = self._newest[0]
        if version > newest:
            raise StoreError(FUTURE_VERSION, version=version, newest=newest)
        if version < max(newest, clock.now_us()) - WINDOW_US and version != newest:
            raise StoreError(TRANSACTION_TOO_OLD, version=version)
        with self._lock:
            for kept, root in reversed(self._versions):
                if kept <= version:
                    return MemorySnapshot(version, root, clock.now_us())
        raise StoreError(TRANSACTION_TOO_OLD, version=version)

    def submit(self, request: CommitRequest) -> AnsweredCommit:
        """Commit at once."""
        if request.begin():
            try:
                with self._lock:
                    version, mutations = self._commit(request)
            except StoreError as error:
                request.fail(error)
            else:
                request.succeed(version, mutations, self)
            request.call_back(self.watches)
        return AnsweredCommit(request)

    def commit_sequence(self) -> int:
        """Return the version of the last commit."""
        return self._newest[0]

    def _commit(self, request: CommitRequest) -> tuple[int, Mutations]:
        newest, root = self._newest
        if request.reads is not None:
            assert request.read_version is not None
            if request.read_version < self._floor:
                raise StoreError(TRANSACTION_TOO_OLD, read_version=request.read_version, oldest=self._floor)
            if request.reads.changed_by_any(entries_after(reversed(self._log), request.read_version)):
                raise StoreError(NOT_COMMITTED)
        version = max(newest + 1, request.clock.now_us())
        stamp = version_stamp(version)
        mutations = request.writes.mutations(lambda key: sorted_map.get(root, key), stamp)
        changed = root
        for begin, end in mutations.ranges:
            changed = sorted_map.remove_range(changed, begin, end)
        changes: list[sorted_map.Change] = [*mutations.values]
        if mutations.cleared:
            changes = sorted([*changes, *((key, None) for key in mutations.cleared)])
        changed = sorted_map.update(changed, changes)
        self._newest = (version, changed)
        self._versions.append(self._newest)
        points, ranges = request.writes.conflict_keys(stamp)
        self._log.append(LogEntry(version, tuple(points), tuple(ranges)))
        self._prune(version - WINDOW_US)
        return version, mutations

    def _prune(self, oldest: int) -> None:
        while self._log[0].version < oldest:
            self._floor = self._log.popleft().version
        # The version that was newest at `oldest` can still be read at `oldest`.
        while len(self._versions) > 1 and self._versions[1][0] <= oldest:
            self._versions.popleft()


class MemorySnapshot:
    """One version of the store."""

    __slots__ = ("_root", "_version", "opened_us")

    errors: tuple[type[Exception], ...] = ()

    def __init__(self, version: int, root: sorted_map.Map, opened_us: int) -> None:
        self.opened_us = opened_us
        self._version = version
        self._root = root

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, or None."""
        return sorted_map.get(self._root, key)

    def get_after_error(self, key: bytes, error: Exception) -> bytes | None:
        """Never called: `get` does not fail."""
        raise error

    def version(self) -> int:
        """Return the version of the last commit in it."""
        return self._version

    def scan(self, begin: bytes, end: bytes, reverse: bool) -> Iterator[Pair]:
        """Yield the pairs of [begin, end) in order."""
        return sorted_map.scan(self._root, begin, end, reverse)

    def close(self) -> None:
        """Release the version."""
        self._root = sorted_map.EMPTY
