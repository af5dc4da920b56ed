"""`tenant.lock`: blocks outside of workflows that hold locks of tenants; `zones.workflow.holds` says what is stored.

The locks of each tenant are held by one item, which a session of this process claims (`fairlead.lock_keeper`). They are
taken one after the other, by tenant and key. A lock that is not free is waited for by a watch of the request.
"""

import asyncio
import logging
import os
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from functools import partial
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from fairlead.lock_keeper import KeptHold, LockKeeper
from fairlead.shards import Shards
from fairlead.watch_wait import UNWATCHED_POLL_US, Wait, await_change
from fairlead.workflows.errors import LockOrder, TooManyLocks
from fairlead.workflows.held_locks import LockName
from fairlead.workflows.helping import help_holders
from fairlead.workflows.locks import LOCKS_MAX, sorted_locks
from fairlead.zones.durations import Duration, duration_us
from fairlead.zones.engines import StoreError
from fairlead.zones.engines.api.lost_watch import watch_error
from fairlead.zones.errors import BadArgument, Busy, LockLost, QueueError
from fairlead.zones.layout import Tenant
from fairlead.zones.open_body import open_body, refuse_across_shards
from fairlead.zones.pipelining import run_one
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow import holds, locks
from fairlead.zones.workflow.holds import Hold
from fairlead.zones.workflow.locks import HOLD_KIND

log = logging.getLogger("fairlead.locks")

PROCESS_CHARACTERS_MAX = 120


class LockInTransaction(QueueError):
    """A lock was asked for in the body of a transaction, or of a step; nothing was changed.

    A body may run twice, and ends within seconds; a lock may be waited for much longer.

    Do: take the lock first, and begin the transaction in its block. In a workflow use `wf.lock`.
    """

    message = "a lock was asked for in the body of a transaction"


class HeldLock:
    """Locks that this process holds. Made by a block of `TenantDatabase.lock`."""

    def __init__(self, shards: Shards, kept: Sequence[KeptHold], names: Sequence[LockName]) -> None:
        self._shards = shards
        self._kept = list(kept)
        self._names = list(names)
        self._is_released = False

    @property
    def is_lost(self) -> bool:
        """Whether this process knows that it has lost one of them: it stood still, and was taken for dead.

        It may have lost one without knowing. A transaction that is `under` a lock finds out.
        """
        return any(kept.is_lost for kept in self._kept)

    @property
    def is_released(self) -> bool:
        """Whether they were released by this process."""
        return self._is_released

    def release(self) -> None:
        """Release all of them now, in one transaction for each tenant. A second call changes nothing.

        If a store refuses, the release is tried again once a second while this process lives.

        Raises:
          LockLost: one of them was lost; the others are released.
          What the store raises.
        """
        if self._is_released:
            return
        self._is_released = True
        with ExitStack() as releases:  # Also the others, if one fails; the last one first.
            for kept in self._kept:
                releases.callback(self._shards.locks.release, kept)

    async def arelease(self) -> None:
        """Release all of them as `release` does, and let the event loop go on meanwhile."""
        await self._shards.calls.run(self.release)

    def hold_of(self, tenant: Tenant) -> Hold:
        """Return the hold that a transaction on a tenant compares.

        Raises:
          BadArgument: they are released, or none is a lock of the tenant.
        """
        if self._is_released:
            raise BadArgument(argument="under", value=repr(self), allowed="a lock that is held; this one was released")
        for kept in self._kept:
            if kept.hold.tenant == tenant:
                return kept.hold
        raise BadArgument(argument="under", value=repr(self), allowed=f"a lock of the transaction's tenant, {tenant}")

    @property
    def names(self) -> Sequence[LockName]:
        """The locks, in the order in which they were taken."""
        return self._names

    def __repr__(self) -> str:
        return f"<HeldLock {', '.join(map(str, self._names))}>"


_held_here: ContextVar[tuple[HeldLock, ...]] = ContextVar("locks held by this thread or task", default=())


class TenantLock:
    """A `with` or `async with` block that holds locks; see `TenantDatabase.lock`. Used by one thread or task."""

    def __init__(self, shards: Shards, wanted: Sequence[LockName], *, wait_us: int, shared: bool) -> None:
        self._shards = shards
        self._wanted = wanted
        self._wait_us = wait_us
        self._shared = shared
        self._held: HeldLock | None = None

    def __enter__(self) -> HeldLock:
        taking = self._begin()
        wait = Wait(self._wait_us, self._shards.clock)
        with ExitStack() as on_error:
            on_error.callback(taking.give_up)
            while (awaited := taking.go_on(may_wait=self._wait_us > 0)) is not None:
                changed = await_change(awaited.watch.is_ready, wait, longest_us=awaited.longest_us)
                if changed and awaited.is_lost():
                    changed = wait.sleep(UNWATCHED_POLL_US)
                if not changed:
                    taking.take_now()
                awaited.watch.cancel()
            on_error.pop_all()
        return self._note(taking)

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        held = self._forget()
        _release_at_end(held, self._shards.errors(), failed=error_type is not None)

    async def __aenter__(self) -> HeldLock:
        taking, calls, loop = self._begin(), self._shards.calls, asyncio.get_running_loop()
        until_s = loop.time() + self._wait_us / 1e6
        with ExitStack() as on_error:
            on_error.callback(calls.start, taking.give_up)  # Not awaited: the task may be cancelled.
            while (awaited := await calls.run(partial(taking.go_on, may_wait=self._wait_us > 0))) is not None:
                try:
                    await self._await_change(awaited, until_s)
                finally:
                    awaited.watch.cancel()
                if loop.time() >= until_s:
                    await calls.run(taking.take_now)
            on_error.pop_all()
        return self._note(taking)

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        calls, held = self._shards.calls, self._forget()
        release = partial(_release_at_end, held, self._shards.errors(), failed=error_type is not None)
        with ExitStack() as on_error:
            on_error.callback(calls.start, partial(_release_at_end, held, self._shards.errors(), failed=True))
            await calls.run(release)  # A task that is cancelled here may have dropped the call.
            on_error.pop_all()

    async def _await_change(self, awaited: "AwaitedLock", until_s: float) -> None:
        left_s = max(0, until_s - asyncio.get_running_loop().time())
        longest_s = left_s if awaited.longest_us is None else min(left_s, awaited.longest_us / 1e6)
        if await self._shards.calls.wait_for(awaited.watch, longest_s) and awaited.is_lost():
            await asyncio.sleep(min(UNWATCHED_POLL_US / 1e6, left_s))

    def _begin(self) -> "_Acquisition":
        refuse_across_shards("a lock of a tenant")
        if open_body.get() is not None:
            raise LockInTransaction(lock=str(self._wanted[0]))
        if self._held is not None:
            raise LockOrder(kind=HOLD_KIND, lock=str(self._wanted[0]), held=str(self._wanted[0]))
        highest = max((each for held in _held_now() for each in held.names), default=None)
        if highest is not None and self._wanted[0] <= highest:
            raise LockOrder(kind=HOLD_KIND, lock=str(self._wanted[0]), held=str(highest))
        return _Acquisition(self._shards, self._wanted, shared=self._shared)

    def _note(self, taking: "_Acquisition") -> HeldLock:
        self._held = HeldLock(self._shards, taking.kept, self._wanted)
        _held_here.set((*_held_now(), self._held))
        return self._held

    def _forget(self) -> HeldLock:
        held, self._held = self._held, None
        assert held is not None, "Python calls __enter__ first"
        _held_here.set(tuple(each for each in _held_now() if each is not held))
        return held


def _held_now() -> tuple[HeldLock, ...]:
    """Return what this thread or task holds. Another thread may have released some of it, or it is lost."""
    return tuple(held for held in _held_here.get() if not (held.is_released or held.is_lost))


def _release_at_end(held: HeldLock, store_errors: set[type[Exception]], *, failed: bool) -> None:
    """Release at the end of a block. An error of the block is not replaced, and one of the store is no error of it."""
    errors: tuple[type[Exception], ...] = (StoreError, *store_errors)
    try:
        held.release()
    except LockLost:
        if not failed:
            raise
        log.warning("%r was lost before its block failed", held)
    except errors as error:
        log.warning("a store refuses to release %r; it is tried again: %s", held, error)


class AwaitedLock(NamedTuple):
    """A lock that is not free. `longest_us`: after so long the caller looks again; None: when the watch is ready."""

    watch: Any
    longest_us: int | None
    store_errors: tuple[type[Exception], ...]

    def is_lost(self) -> bool:
        """Whether the watch is ready because the store has lost it, or has granted none."""
        return bool(self.watch.is_ready()) and watch_error(self.watch, self.store_errors) is not None


class _Acquisition:
    """Locks that are being taken. One call at a time: a task that was cancelled may still have one under way."""

    def __init__(self, shards: Shards, wanted: Sequence[LockName], *, shared: bool) -> None:
        self._shards = shards
        self._lock_keeper: LockKeeper = shards.locks
        self._shared = shared
        self._process = process_in_words()
        self._lock = threading.Lock()
        self._is_given_up = False
        self.kept = [
            self._lock_keeper.new_hold(tenant, [each.packed for each in of_tenant])
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
        """Give up all locks and all places in line. If a store refuses, the keeper tries it again."""
        with self._lock:
            self._is_given_up = True
            for kept in reversed(self.kept):
                if not kept.must_release:
                    self._give_up(kept)

    def _give_up(self, kept: KeptHold) -> None:
        errors: tuple[type[Exception], ...] = (StoreError, *self._shards.errors())
        try:
            self._lock_keeper.release(kept)
        except LockLost:
            return
        except errors as error:
            log.info("a store refuses; a place in a line of locks is given up later: %s", error)

    def _take(self, kept: KeptHold, *, may_wait: bool) -> bytes | None:
        """Request the locks of one tenant up to the first that is not free; return that."""
        hold = kept.hold

        def take(attempt: Attempt, shard: Shard, session_id: bytes | None) -> bytes | None:
            tr, location, now_us = attempt.tr, hold.location(shard.layout), attempt.now_us
            if session_id is None:
                holds.check_held(tr, location, hold)
            else:
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
            return self._lock_keeper.claim(shard, kept, lambda attempt, session_id: take(attempt, shard, session_id))

        try:
            return self._shards.at_home(hold.tenant, take_on)
        except Busy:
            if not kept.is_stored:
                kept.must_release = True
                self._lock_keeper.forget(kept)
            raise

    def _watch_request(self, kept: KeptHold, lock: bytes) -> AwaitedLock | None:
        """Help the holders of a lock, and return a watch of the request; None: it waits no more."""
        hold, clock = kept.hold, self._shards.clock
        from_us = help_holders(self._shards.at_home, hold.tenant, lock, run=hold.item_id)

        def look(shard: Shard) -> AwaitedLock | None:
            grant = shard.transact(
                lambda attempt: holds.await_grant(attempt.tr, hold.location(shard.layout), hold, lock)
            )
            if grant is None:
                return None
            longest_us = None if from_us is None else max(holds.FINISH_AFTER_US, from_us - clock.now_us())
            return AwaitedLock(grant.watch, longest_us, shard.db.errors)

        return self._shards.at_home(hold.tenant, look)


def process_in_words() -> str:
    """Return which process this is, for people: `process HOST:PID of PROGRAM`."""
    program = Path(sys.argv[0]).name or "python"
    return f"process {socket.gethostname()}:{os.getpid()} of {program}"[:PROCESS_CHARACTERS_MAX]


def lock_of(shards: Shards, tenant: Tenant, keys: Sequence[Any], *, wait: Duration, shared: bool) -> TenantLock:
    """Return the block that holds locks; see `TenantDatabase.lock`.

    Raises:
      BadArgument, TooManyLocks: see there.
    """
    wanted = sorted_locks(keys, tenant, example='alice.lock(("account", 7))')
    if len(wanted) > LOCKS_MAX:
        raise TooManyLocks(kind=HOLD_KIND, locks_max=LOCKS_MAX)
    if not isinstance(shared, bool):
        raise BadArgument(argument="shared", value=shared, allowed="True or False")
    return TenantLock(shards, wanted, wait_us=duration_us("wait", wait), shared=shared)
