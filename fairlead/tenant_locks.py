"""`tenant.lock`: blocks outside of workflows that hold locks of tenants; `zones.workflow.holds` says what is stored.

The locks are taken by `fairlead.workflows.lock_acquisition`, and kept by `fairlead.workflows.lock_keeper`.
"""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from fairlead.shards import Shards
from fairlead.watch_wait import UNWATCHED_POLL_US, Wait, await_change
from fairlead.workflows.errors import TooManyLocks
from fairlead.workflows.held_locks import LockName, held_already, refusal
from fairlead.workflows.lock_acquisition import AwaitedLock, LockAcquisition
from fairlead.workflows.lock_keeper import KeptHold
from fairlead.workflows.locks import LOCKS_MAX, sorted_locks
from fairlead.zones.durations import Duration, duration_us
from fairlead.zones.engines import StoreError
from fairlead.zones.errors import BadArgument, LockLost, QueueError
from fairlead.zones.layout import Tenant
from fairlead.zones.open_body import open_body, refuse_across_shards
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

    async def _await_change(self, awaited: AwaitedLock, until_s: float) -> None:
        left_s = max(0, until_s - asyncio.get_running_loop().time())
        longest_s = left_s if awaited.longest_us is None else min(left_s, awaited.longest_us / 1e6)
        if await self._shards.calls.wait_for(awaited.watch, longest_s) and awaited.is_lost():
            await asyncio.sleep(min(UNWATCHED_POLL_US / 1e6, left_s))

    def _begin(self) -> LockAcquisition:
        refuse_across_shards("a lock of a tenant")
        if open_body.get() is not None:
            raise LockInTransaction(lock=str(self._wanted[0]))
        if self._held is not None:
            raise held_already(self._wanted[0], HOLD_KIND)
        refused = refusal(self._wanted, [each for held in _held_now() for each in held.names], HOLD_KIND)
        if refused is not None:
            raise refused
        shards, process = self._shards, process_in_words()
        return LockAcquisition(
            shards.locks,
            shards.at_home,
            shards.clock,
            shards.errors,
            self._wanted,
            shared=self._shared,
            process=process,
        )

    def _note(self, taking: LockAcquisition) -> HeldLock:
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
