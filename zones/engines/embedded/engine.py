"""The embedded engine: a shard in a directory, shared by any number of processes on one machine (LMDB).

A transaction reads from an LMDB snapshot. A commit takes LMDB's write lock and checks the commit log for changes to
what the transaction read. It applies its writes in key order, and appends the keys it conflicts on to the log. It is
durable when LMDB's fsync returns. The log in the store decides; this process caches its newest entries decoded.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import weakref
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

from fairlead.zones.engines.api import database
from fairlead.zones.engines.api.clock import Clock
from fairlead.zones.engines.api.database import Limits
from fairlead.zones.engines.api.errors import FUTURE_VERSION, TRANSACTION_TOO_OLD, StoreError
from fairlead.zones.engines.embedded.commit_notifier import CommitNotifier, Listener
from fairlead.zones.engines.embedded.cross_process import CrossProcessCommit
from fairlead.zones.engines.embedded.group_commit import GroupCommit, QueuedCommit
from fairlead.zones.engines.embedded.lmdb_commit import SECTION_WAIT_S, LmdbCommits
from fairlead.zones.engines.embedded.lmdb_files import LmdbFiles
from fairlead.zones.engines.embedded.lmdb_snapshot import LmdbSnapshot
from fairlead.zones.engines.embedded.lock_watchdog import LockWatchdog
from fairlead.zones.engines.embedded.stored_log import StoredLog
from fairlead.zones.engines.embedded.write_lock import Stall
from fairlead.zones.engines.optimistic.commit import CommitRequest
from fairlead.zones.engines.optimistic.commit_log import WINDOW_US
from fairlead.zones.engines.optimistic.options import TRANSACTION_BYTES_MAX
from fairlead.zones.engines.optimistic.transaction import Transaction
from fairlead.zones.engines.optimistic.watches import Watches

LIMITS: Final = Limits(key_bytes_max=511, value_bytes_max=100_000, transaction_bytes_max=TRANSACTION_BYTES_MAX)

# A snapshot that its transaction neither uses nor ends is ended this long after its window has closed, so that a read
# that began within the window can finish.
GRACE_US: Final = 1_000_000


class EmbeddedDatabase:
    """An open store in a directory. All databases of one process and path share one environment."""

    errors: tuple[type[Exception], ...] = (StoreError,)
    results_can_be_unknown = False
    limits = LIMITS

    def __init__(self, url: str, path: str, clock: Clock, random_: random.Random) -> None:
        self.url = url
        self._clock = clock
        self._random = random_
        self._store = _acquire(Path(path), clock)
        self._release = weakref.finalize(self, _release, self._store)

    def create_transaction(self) -> Transaction:
        """Return a new, empty transaction."""
        return Transaction(self, self._store, self._clock, self._random)

    def commit_sequence(self) -> int | None:
        """Return the number of LMDB's last commit, of any process."""
        self._store.end_expired_snapshots(self._clock.now_us())
        return self._store.commit_sequence()

    def listener(self) -> Listener | None:
        """See `Database`."""
        return self._store.commit_notifier.listener()

    def exclusive_section(self) -> AbstractContextManager[object]:
        """See `Database`. A commit runs in the section too, except while it waits for other processes or the disk."""
        return self._store.exclusive_section(SECTION_WAIT_S)

    def burst(self, tr: database.Transaction) -> AbstractContextManager[database.Transaction]:
        """Return the transaction itself: a write wakes no thread."""
        return nullcontext(tr)

    def write_stall(self) -> Stall | None:
        """See `write_stall` of this folder."""
        return self._store.files.write_lock.find_stall(self._clock)

    def close(self) -> None:
        """Release the environment. It is closed with the last database of this process that uses it."""
        self._release()


class EmbeddedStore:
    """Snapshots of, and commits to, one environment."""

    limits = LIMITS
    backoff_us = 2_000  # FoundationDB's is 10 ms, and its commits take several times as long.

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self.users = 0
        self._section_lock = threading.RLock()
        self.watches = Watches()
        self.files = LmdbFiles(path, first_version=max(1, clock.now_us()))
        self.log = StoredLog()
        self._lock_watchdog = LockWatchdog(self.files)
        self.cross_process = CrossProcessCommit(path, self._lock_watchdog.watched_wait)
        self.commit_notifier = CommitNotifier(path)
        self._commits = LmdbCommits(
            self.files, self.log, self.cross_process, self.exclusive_section, self._lock_watchdog.watched_wait
        )
        self.group = GroupCommit(self._commit_all, lambda request: request.call_back(self.watches))
        self._pause: object = None  # the token of a pause, while this store is paused
        self._holds_reads = False
        self._open_snapshots: dict[int, weakref.ref[LmdbSnapshot]] = {}
        self._serials = itertools.count()

    # --- For transactions ---

    def snapshot(self, clock: Clock) -> LmdbSnapshot:
        """Return the newest snapshot."""
        now_us = clock.now_us()
        if self._open_snapshots:
            self.end_expired_snapshots(now_us)
        serial = next(self._serials)
        snapshot = LmdbSnapshot(self.files, self.log, now_us, partial(self._open_snapshots.pop, serial, None))
        self._open_snapshots[serial] = weakref.ref(snapshot)
        return snapshot

    def snapshot_at(self, clock: Clock, version: int) -> LmdbSnapshot:
        """Return the newest snapshot if it is of `version`. LMDB opens no older ones (1007)."""
        snapshot = self.snapshot(clock)
        newest = snapshot.version()
        if newest == version:
            return snapshot
        snapshot.close()
        code = FUTURE_VERSION if version > newest else TRANSACTION_TOO_OLD
        raise StoreError(code, version=version, newest=newest)

    def submit(self, request: CommitRequest) -> QueuedCommit:
        """Queue a commit."""
        return self.group.submit(request)

    def exclusive_section(self, wait_s: float) -> _ExclusiveSection:
        """Return the exclusive section. After `wait_s` a thread goes on without it, so no wait is unlimited."""
        return _ExclusiveSection(self._section_lock, wait_s)

    def commit_sequence(self) -> int:
        """Return the number of LMDB's last commit."""
        return self.files.last_transaction()

    def end_expired_snapshots(self, now_us: int) -> None:
        """End the snapshots that are older than their window, so that a forgotten transaction pins no pages."""
        for serial, reference in list(self._open_snapshots.items()):
            snapshot = reference()
            if snapshot is None:
                self._open_snapshots.pop(serial, None)
            elif now_us - snapshot.opened_us > WINDOW_US + GRACE_US:
                snapshot.close()
            else:
                return  # They are in the order of their opening.

    def end_all_snapshots(self) -> None:
        """End all snapshots of this process, and wait for running reads of other threads.

        The caller must hold back new reads. Otherwise the wait might not end.
        """
        for reference in list(self._open_snapshots.values()):
            snapshot = reference()
            if snapshot is not None:
                snapshot.close()
        self._open_snapshots.clear()
        self.files.await_reads()

    def _commit_all(self, requests: list[CommitRequest]) -> None:
        """Commit queued requests, on the thread of the group's leader. It can be called again after an interruption."""
        group = [request for request in requests if request.begin()]
        if not group:
            return
        self.end_expired_snapshots(group[0].clock.now_us())
        made = answered = False
        try:
            self._commits.make(group)
            answered = True
        finally:
            if not answered:  # An interruption may have left the section locked.
                _release_if_held(self._section_lock)
        for request in group:
            outcome = request.outcome
            assert outcome is not None
            if isinstance(outcome, StoreError):
                request.fail(outcome)
            else:
                request.succeed(*outcome, self)
                made = True
        if made:
            self.commit_notifier.notify()

    # --- Closing and forking ---

    def close(self) -> None:
        """Close the environment; commits still queued fail with 1025."""
        try:
            self._stop()
            self.cross_process.close()
            self.commit_notifier.close()
            self.files.close()
        finally:
            self._resume()

    def before_fork(self) -> None:
        """Pause, and end all snapshots: see `LmdbFiles.close_inherited`."""
        self._stop()

    def after_fork_in_parent(self) -> None:
        """Resume."""
        self._resume()

    def _stop(self) -> None:
        """Finish the running commit and reads, hold back new ones, and end the snapshots."""
        self._pause = self.group.pause()
        self._holds_reads = self.files.hold_reads()
        self.end_all_snapshots()

    def _resume(self) -> None:
        if self._holds_reads:
            self._holds_reads = False
            self.files.resume_reads()
        if self._pause is not None:
            self.group.resume(self._pause)
            self._pause = None

    def after_fork_in_child(self) -> None:
        """Become a store of the child. Its first transaction opens the environment again."""
        self.group.reset()
        self.cross_process.reset()
        self.commit_notifier.reset()
        self.log.reset()
        self._section_lock = threading.RLock()
        self.watches = Watches()
        self._lock_watchdog.reset()
        self.files.close_inherited()


class _ExclusiveSection:
    """The exclusive section as a context. Not a generator, because each commit enters it twice."""

    __slots__ = ("_lock", "_wait_s")

    def __init__(self, lock: Any, wait_s: float) -> None:
        self._lock = lock
        self._wait_s = wait_s

    def __enter__(self) -> None:
        entered = False
        try:
            self._lock.acquire(timeout=self._wait_s)
            entered = True
        finally:
            if not entered:  # After an interruption the lock may be held or not.
                _release_if_held(self._lock)

    def __exit__(self, *_: object) -> None:
        _release_if_held(self._lock)


def _release_if_held(lock: Any) -> None:
    try:
        lock.release()
    except RuntimeError:  # This thread does not hold it.
        return


# --- One store per path and process ---

_stores: dict[Path, EmbeddedStore] = {}
# Reentrant: the garbage collector may release a database on a thread that holds this lock.
_stores_lock = threading.RLock()
_forking: list[EmbeddedStore] = []


def _acquire(path: Path, clock: Clock) -> EmbeddedStore:
    path = path.absolute().resolve()
    with _stores_lock:
        store = _stores.get(path)
        if store is not None:
            store.users += 1
            if store.files.is_current():
                return store
            store.users -= 1
        store = _stores[path] = EmbeddedStore(path, clock)
        store.users += 1
        return store


def _release(store: EmbeddedStore) -> None:
    with _stores_lock:
        store.users -= 1
        if store.users:
            return
        if _stores.get(store.path) is store:
            del _stores[store.path]
    store.close()


def _before_fork() -> None:
    _stores_lock.acquire()
    _forking[:] = _stores.values()
    for store in _forking:
        store.before_fork()


def _after_fork_in_parent() -> None:
    for store in _forking:
        store.after_fork_in_parent()
    _forking.clear()
    _stores_lock.release()


def _after_fork_in_child() -> None:
    for store in _forking:
        store.after_fork_in_child()
    _forking.clear()
    _stores_lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
