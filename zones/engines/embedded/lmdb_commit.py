"""Commits to an LMDB environment: checked against the commit log, applied in key order, logged, made durable.

A group goes into one LMDB transaction, with what other processes have handed in (`flat_combining`); if that fails, each
of the group goes into one of its own.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Final, NamedTuple

import lmdb

from fairlead.zones.engines.api.errors import COMMIT_UNKNOWN_RESULT, NOT_COMMITTED, StoreError
from fairlead.zones.engines.embedded.cross_process.flat_combining import CrossProcessCommit
from fairlead.zones.engines.embedded.lmdb_files import LmdbFiles, end_broken
from fairlead.zones.engines.embedded.stored_log import VERSION_GAP, StoredLog
from fairlead.zones.engines.optimistic.commit import CommitRequest, Outcome, version_stamp
from fairlead.zones.engines.optimistic.reserved_keys import EMPTY_KEY
from fairlead.zones.engines.optimistic.writes import Mutations

SECTION_WAIT_S: Final = 0.02  # Some bodies of 128 visits, which take seven milliseconds each.
SECTION_WAIT_LOCKED_S: Final = 0.002  # Other processes wait as well.


class _PendingCommit(NamedTuple):
    """What a commit of LMDB comes to for a group, if LMDB gets to its end."""

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
        """Share `exclusive_section` with this process's long bodies; wait under `watched_wait` (`LockWatchdog`)."""
        self._files = files
        self._log = log
        self._cross_process = cross_process
        self._exclusive_section = exclusive_section
        self._watched_wait = watched_wait
        self._pending_commit: _PendingCommit | None = None

    def make(self, group: Sequence[CommitRequest]) -> None:
        """Make commits, or have them made by another process; each has its `outcome` then.

        An exception that is raised in this thread may end it anywhere. Called again, it goes on: no commit is made
        twice.
        """
        try:
            self._settle_interrupted()
            group = [request for request in group if request.outcome is None]
            if group:
                self._make(group)
        finally:
            self._cross_process.step_down()

    def _make(self, group: Sequence[CommitRequest]) -> None:
        # One that has a mark was being handed in when this thread was interrupted. The log tells what came of that.
        if not any(request.commit_id for request in group):
            try:
                outcomes = self._cross_process.submit(group, self._last_version)
            except StoreError as error:  # It was closed before anything was handed in.
                outcomes = [error] * len(group)
            if outcomes is not None:
                _set_outcomes(group, outcomes)
                return
        self._commit(group, combined=True)

    def _settle_interrupted(self) -> None:
        """Note the outcomes of a commit that LMDB has made, after which this thread was interrupted."""
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
        """Commit a group in one LMDB transaction; if that fails, each on its own, so that none fails for another.

        `combined`: with what other processes want committed.
        """
        try:
            self._try_group_growing_map(group, combined)
        except lmdb.Error as error:
            self._after_failure(group, combined, error)
        except StoreError as error:
            # Of one that was handed in, nobody has looked yet whether another process made it.
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
        """Check, apply and log each request in turn, and commit them together; nothing is kept if this raises."""
        log = self._log
        with self._exclusive_section(SECTION_WAIT_S):
            pass  # Let the body under way end now: while this thread has the write lock, other processes wait.
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
                # What the calls that failed still hold of it; the last reference aborts it: see `end_broken`.
                traceback.clear_frames(sys.exc_info()[2])
                del txn
        for batch, answer in zip(batches, answers, strict=True):
            self._cross_process.answer(batch, answer)
        self._cross_process.step_down()

    def _begin_write(self) -> lmdb.Transaction[bytes]:
        """Take the write lock; who waits for it is watched."""
        if self._files.write_lock.is_free():
            # One that is taken at this very moment, by a process that is stopped at this very moment, goes unwatched
            # here; the next process that wants to write finds it taken.
            return self._files.begin_write()
        with self._watched_wait():
            return self._files.begin_write()

    def _try_request(self, txn: lmdb.Transaction[bytes], request: CommitRequest) -> Outcome:
        log = self._log
        if request.commit_id:
            try:
                made = log.find(txn, request.commit_id, request.floor)
            except StoreError as error:  # This process slept for seconds over it.
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
    """Whether LMDB was told to commit or abort a write transaction, and has done so."""
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
        # In key order through one cursor: LMDB then finds most places on the page it has at hand.
        txn.cursor().putmulti(values)


def _clear_range(txn: lmdb.Transaction[bytes], begin: bytes, end: bytes) -> None:
    if not begin:
        txn.delete(EMPTY_KEY)
    cursor = txn.cursor()
    found = cursor.set_range(begin) if begin else cursor.first()
    while found and cursor.key() < end:
        # The cursor is then on the next pair, or past the last: without a key.
        found = cursor.delete() and bool(cursor.key())


def _unknown(error: Exception) -> StoreError:
    return StoreError(COMMIT_UNKNOWN_RESULT, cause=str(error))
