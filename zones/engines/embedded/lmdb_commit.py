"""Commits to an LMDB environment: checked against the commit log, applied in key order, logged, made durable.

A group goes into one LMDB transaction, with the requests of other processes (`cross_process`). If this transaction
fails, each commit of the group gets a transaction of its own.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Final, NamedTuple

import lmdb

from fairlead.zones.engines.api.errors import COMMIT_UNKNOWN_RESULT, NOT_COMMITTED, StoreError
from fairlead.zones.engines.embedded.cross_process import CrossProcessCommit
from fairlead.zones.engines.embedded.lmdb_files import LmdbFiles, end_broken
from fairlead.zones.engines.embedded.stored_log import VERSION_GAP, StoredLog
from fairlead.zones.engines.optimistic.commit import CommitRequest, Outcome, version_stamp
from fairlead.zones.engines.optimistic.reserved_keys import EMPTY_KEY
from fairlead.zones.engines.optimistic.writes import Mutations

SECTION_WAIT_S: Final = 0.02  # Some bodies that process 128 pointers, which take seven milliseconds each.
SECTION_WAIT_LOCKED_S: Final = 0.002  # Other processes wait as well.


class _PendingCommit(NamedTuple):
    """The outcomes that a group gets if LMDB completes this commit."""

    txn: lmdb.Transaction[bytes]
    group: Sequence[CommitRequest]
    outcomes: list[Outcome]


class LmdbCommits:
    """The commits of this process to one environment, on one thread at a time."""

    def __init__(
        self,
        files: LmdbFiles,
        log: StoredLog,
        cross_process: CrossProcessCommit,
        exclusive_section: Callable[[float], AbstractContextManager[None]],
        watched_wait: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """Share `exclusive_section` with the long bodies of this process. `watched_wait`: see `LockWatchdog`."""
        self._files = files
        self._log = log
        self._cross_process = cross_process
        self._exclusive_section = exclusive_section
        self._watched_wait = watched_wait
        self._pending_commit: _PendingCommit | None = None

    def make(self, group: Sequence[CommitRequest]) -> None:
        """Make commits, or let another process make them. Each then has its `outcome`.

        A signal handler's exception may end this call anywhere. Called again, it continues, and makes no commit twice.
        """
        try:
            self._settle_interrupted()
            group = [request for request in group if request.outcome is None]
            if group:
                self._make(group)
        finally:
            self._cross_process.step_down()

    def _make(self, group: Sequence[CommitRequest]) -> None:
        # A request with a commit id was being submitted when this thread was interrupted. The log shows its outcome.
        if not any(request.commit_id for request in group):
            try:
                outcomes = self._cross_process.submit(group, self._last_version)
            except StoreError as error:  # The store was closed before anything was submitted.
                outcomes = [error] * len(group)
            if outcomes is not None:
                _set_outcomes(group, outcomes)
                return
        self._commit(group, combined=True)

    def _settle_interrupted(self) -> None:
        """Set the outcomes of a commit that LMDB had completed when this thread was interrupted."""
        pending_commit = self._pending_commit
        if pending_commit is not None:
            if _has_ended(pending_commit.txn):
                _set_outcomes(pending_commit.group, pending_commit.outcomes)
            self._pending_commit = None

    def _last_version(self) -> int:
        """Return the version of the last commit of any process."""
        txn = self._files.begin_read()
        version = self._log.version(txn)
        txn.abort()
        return version

    def _commit(self, group: Sequence[CommitRequest], *, combined: bool) -> None:
        """Commit a group in one LMDB transaction. If it fails, commit each alone, so that none fails for another.

        `combined`: with the requests of other processes.
        """
        try:
            self._try_group_growing_map(group, combined)
        except lmdb.Error as error:
            self._after_failure(group, combined, error)
        except StoreError as error:
            # A submitted request has a commit id. It is unknown whether another process made its commit.
            _set_outcomes(group, [_unknown(error) if request.commit_id else error for request in group])

    def _after_failure(self, group: Sequence[CommitRequest], combined: bool, error: lmdb.Error) -> None:
        if self._files.has_panicked():
            # LMDB failed while it wrote the root: the commit may be on disk or not.
            self._files.reopen()
            _set_outcomes(group, [_unknown(error)] * len(group))
        elif len(group) > 1 or combined:
            for request in group:
                self._commit([request], combined=False)
        else:
            _set_outcomes(group, [self._files.unavailable(error)])

    def _try_group_growing_map(self, group: Sequence[CommitRequest], combined: bool) -> None:
        while True:
            with suppress(lmdb.MapFullError):
                self._try_group(group, combined)
                return
            self._files.grow()

    def _try_group(self, group: Sequence[CommitRequest], combined: bool) -> None:
        """Check, apply and log each request in turn, and commit them together. If this raises, nothing is stored."""
        log = self._log
        with self._exclusive_section(SECTION_WAIT_S):
            pass  # Let the running body end first: while this thread holds the write lock, other processes wait.
        txn = self._begin_write()
        finished = False
        try:
            with self._exclusive_section(SECTION_WAIT_LOCKED_S):
                log.begin(txn)
                last_before = log.last
                self._cross_process.withdraw()
                outcomes = [self._try_request(txn, request) for request in group]
                batches = self._cross_process.batches(group[0].clock) if combined else []
                answers = [[self._try_request(txn, request) for request in batch.requests] for batch in batches]
                nothing_written = log.last == last_before
                if log.is_due_for_pruning() and not nothing_written:
                    log.prune(txn, group[0].clock.now_us())
                    self._files.clear_dead_readers()
            number = txn.id()
            self._pending_commit = _PendingCommit(txn, group, outcomes)
            try:
                txn.commit()  # Without writes, this only ends the transaction: its number is used again.
            except lmdb.Error:
                self._pending_commit = None
                raise
            log.committed(number - 1 if nothing_written else number)
            _set_outcomes(group, outcomes)
            self._pending_commit = None
            finished = True
        finally:
            if not finished:
                end_broken(txn)
                # The frames of the failed calls still refer to it, and its last reference aborts it: see `end_broken`.
                traceback.clear_frames(sys.exc_info()[2])
                del txn
        for batch, answer in zip(batches, answers, strict=True):
            self._cross_process.answer(batch, answer)
        self._cross_process.step_down()

    def _begin_write(self) -> lmdb.Transaction[bytes]:
        """Take the write lock. A wait for it is watched."""
        if self._files.write_lock.is_free():
            # A process may take the lock at this very moment, and be stopped. Then this wait is not watched, but the
            # waits of later writers are.
            return self._files.begin_write()
        with self._watched_wait():
            return self._files.begin_write()

    def _try_request(self, txn: lmdb.Transaction[bytes], request: CommitRequest) -> Outcome:
        log = self._log
        if request.commit_id:
            try:
                made = log.find(txn, request.commit_id, request.floor)
            except StoreError as error:  # This process slept for seconds, and the log is pruned.
                return _unknown(error)
            if made is not None:
                return made, request.writes.touched()
        if request.reads is not None:
            assert request.read_version is not None
            try:
                if log.changed(txn, request.reads, request.read_version):
                    return StoreError(NOT_COMMITTED)
            except StoreError as error:
                return error
        now_us = request.clock.now_us()
        version = max(log.last + VERSION_GAP, now_us)
        stamp = version_stamp(version)
        writes = request.writes
        stored = txn.get if b"" not in writes.entries else lambda key: txn.get(key or EMPTY_KEY)
        mutations = writes.mutations(stored, stamp)
        _apply(txn, mutations)
        points, ranges = writes.conflict_keys(stamp)
        log.append(txn, version, [*points, request.commit_id] if request.commit_id else points, ranges, now_us)
        return version, mutations


def _set_outcomes(group: Sequence[CommitRequest], outcomes: Sequence[Outcome]) -> None:
    for request, outcome in zip(group, outcomes, strict=True):
        request.outcome = outcome


def _has_ended(txn: lmdb.Transaction[bytes]) -> bool:
    """Return whether LMDB has committed or aborted a write transaction."""
    try:
        txn.id()
    except lmdb.Error:
        return True
    return False


def _apply(txn: lmdb.Transaction[bytes], mutations: Mutations) -> None:
    ranges, cleared, values = mutations
    for begin, end in ranges:
        _clear_range(txn, begin, end)
    for key in cleared:
        if key:
            txn.delete(key)
        else:
            txn.delete(EMPTY_KEY)
    if values:
        if not values[0][0]:
            txn.put(EMPTY_KEY, values[0][1])
            values = values[1:]
        # In key order through one cursor: LMDB then finds most keys on the page of the key before.
        txn.cursor().putmulti(values)


def _clear_range(txn: lmdb.Transaction[bytes], begin: bytes, end: bytes) -> None:
    if not begin:
        txn.delete(EMPTY_KEY)
    cursor = txn.cursor()
    found = cursor.set_range(begin) if begin else cursor.first()
    while found and cursor.key() < end:
        # The cursor is now on the next pair, or past the last one and has no key.
        found = cursor.delete() and bool(cursor.key())


def _unknown(error: Exception) -> StoreError:
    return StoreError(COMMIT_UNKNOWN_RESULT, cause=str(error))
