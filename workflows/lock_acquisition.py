"""Taking locks outside of workflows, one after the other, by tenant and key.

The locks of each tenant are held by one item, which a session of this process claims (`lock_keeper`). A lock that is
not free is waited for by a watch of the request.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from fairlead.workflows.held_locks import LockName
from fairlead.workflows.helping import AtHome, help_holders
from fairlead.workflows.lock_keeper import KeptHold, LockKeeper
from fairlead.zones.engines import Clock, StoreError
from fairlead.zones.engines.api.lost_watch import watch_error
from fairlead.zones.errors import Busy, LockLost
from fairlead.zones.pipelining import run_one
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow import holds, locks

log = logging.getLogger("fairlead.locks")


class AwaitedLock(NamedTuple):
    """A lock that is not free. `longest_us`: after so long the caller looks again; None: when the watch is ready."""

    watch: Any
    longest_us: int | None
    store_errors: tuple[type[Exception], ...]

    def is_lost(self) -> bool:
        """Whether the watch is ready because the store has lost it, or has granted none."""
        return bool(self.watch.is_ready()) and watch_error(self.watch, self.store_errors) is not None


class LockAcquisition:
    """Locks that are being taken. One call at a time: a task that was cancelled may still have one under way.

    Args:
      lock_keeper: keeps the locks that are taken.
      at_home: calls a function with the shard where a tenant lives.
      store_errors: returns the classes that the stores opened so far raise.
      wanted: the locks, in the order in which they are taken.
      process: the process, in words for people.
    """

    def __init__(
        self,
        lock_keeper: LockKeeper,
        at_home: AtHome,
        clock: Clock,
        store_errors: Callable[[], Collection[type[Exception]]],
        wanted: Sequence[LockName],
        *,
        shared: bool,
        process: str,
    ) -> None:
        self._keeper = lock_keeper
        self._at_home = at_home
        self._clock = clock
        self._store_errors = store_errors
        self._shared = shared
        self._process = process
        self._lock = lock_keeper.new_lock()
        self._is_given_up = False
        self.kept = [
            lock_keeper.new_hold(tenant, [each.packed for each in of_tenant])
            for tenant, of_tenant in groupby(wanted, lambda each: each.tenant)
        ]

    def go_on(self, *, may_wait: bool) -> AwaitedLock | None:
        """Take what is free; return the first lock that is not, or None: all are held.

        Raises:
          Busy: without `may_wait`, the first lock that is not free. The caller gives up.
          LockLost: this process was taken for dead while it waited.
          What the stores raise.
        """
        with self._lock:
            for kept in self.kept:
                while not self._is_given_up and (lock := self._take(kept, may_wait=may_wait)) is not None:
                    awaited = self._watch_request(kept, lock)
                    if awaited is not None:
                        return awaited
        return None

    def take_now(self) -> None:
        """Take the locks that are left, without a wait: the time is over. Raises: see `go_on`."""
        self.go_on(may_wait=False)

    def give_up(self) -> None:
        """Give up all locks and all places in line. If a store refuses, the session tries it again."""
        with self._lock:
            self._is_given_up = True
            for kept in reversed(self.kept):
                if not kept.must_release:
                    self._give_up(kept)

    def _give_up(self, kept: KeptHold) -> None:
        errors: tuple[type[Exception], ...] = (StoreError, *self._store_errors())
        try:
            self._keeper.release(kept)
        except LockLost:
            return
        except errors as error:
            log.info("a store refuses; a place in a line of locks is given up later: %s", error)

    def _take(self, kept: KeptHold, *, may_wait: bool) -> bytes | None:
        """Request the locks of one tenant up to the first that is not free; return that."""
        hold = kept.hold

        def take(attempt: Attempt, shard: Shard, session_id: bytes | None) -> bytes | None:
            tr, location, now_us = attempt.tr, hold.location(shard.layout), attempt.now_us
            if kept.is_stored:  # Perhaps by a claim under a session that was left: what is gone is lost.
                holds.check_held(tr, location, hold)
            if session_id is not None:
                run_one(
                    holds.begin_or_claim_op(
                        tr, location, hold, process=self._process, session_id=session_id, now_us=now_us
                    )
                )
            lock = holds.take_all(
                tr, location, hold, kept.locks, shared=self._shared, process=self._process, now_us=now_us
            )
            if lock is not None and not may_wait:
                holder = run_one(locks.holder_op(tr, location, lock, besides=hold.item_id))
                assert holder is not None, "a request waits for one that holds the lock"
                raise locks.busy(lock, holder, now_us=now_us)
            return lock

        def take_on(shard: Shard) -> bytes | None:
            if kept.is_stored:
                return shard.transact(partial(take, shard=shard, session_id=None))
            return self._keeper.claim(shard, kept, lambda attempt, session_id: take(attempt, shard, session_id))

        try:
            return self._at_home(hold.tenant, take_on)
        except Busy:
            if not kept.is_stored:
                kept.must_release = True
                self._keeper.forget(kept)
            raise

    def _watch_request(self, kept: KeptHold, lock: bytes) -> AwaitedLock | None:
        """Help the holders of a lock, and return a watch of the request; None: it waits no more."""
        hold, clock = kept.hold, self._clock
        from_us = help_holders(self._at_home, hold.tenant, lock, run=hold.item_id)

        def look(shard: Shard) -> AwaitedLock | None:
            grant = shard.transact(
                lambda attempt: holds.await_grant(attempt.tr, hold.location(shard.layout), hold, lock)
            )
            if grant is None:
                return None
            longest_us = None if from_us is None else max(holds.FINISH_AFTER_US, from_us - clock.now_us())
            return AwaitedLock(grant.watch, longest_us, shard.db.errors)

        return self._at_home(hold.tenant, look)
