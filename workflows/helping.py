"""Helping: what whoever meets a lock does for its holder, so that the lock comes free sooner (Olive section 6).

A hold whose process is dead, and that no worker has taken, is ended at once: a library item needs no code of the user.
A user's workflow is not run here: this process may lack its code or its secrets. If it backs off after an error, it is
*expedited*: its item vests now. A sleep or a wait of it is not cut short.
"""

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from fairlead.zones.errors import QueueError, TenantMoved
from fairlead.zones.layout import DEFAULT_ZONE, Tenant
from fairlead.zones.pipelining import run_one
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow import holds
from fairlead.zones.workflow.locks import LockRequest

T = TypeVar("T")

log = logging.getLogger("fairlead.locks")


class AtHome(Protocol):
    """Calls a function with the shard where a tenant lives."""

    def __call__(self, tenant: Tenant, call: Callable[[Shard], T], /) -> T:
        """Return what the call returns."""
        ...


def help_holders(at_home: AtHome, tenant: Tenant, lock: bytes, *, run: bytes) -> int | None:
    """Help those who hold a lock that a run waits for, as far as they can be helped now.

    Return when a hold among them may be ended, microseconds since the epoch; None: there is none. One snapshot read,
    and a transaction for each holder. What fails is logged: the lock comes free without help, too.
    """

    def read(shard: Shard) -> list[LockRequest]:
        keys = shard.layout.location(tenant, DEFAULT_ZONE).keys.tenant
        return shard.transact(lambda attempt: holds.holders(attempt.tr, keys, lock, besides=run))

    found = _tried(at_home, tenant, read) or []
    later = [from_us for holder in found if (from_us := _help(at_home, holder)) is not None]
    return min(later, default=None)


def _help(at_home: AtHome, holder: LockRequest) -> int | None:
    def help_on(shard: Shard) -> int | None:
        location = shard.layout.location(holder.tenant, holder.zone)

        def body(attempt: Attempt) -> int | None:
            if holder.process:
                return holds.finish(attempt.tr, location, holder, now_us=attempt.now_us)
            run_one(holds.expedite_op(attempt.tr, location, holder, now_us=attempt.now_us))
            return None

        return shard.transact(body)

    return _tried(at_home, holder.tenant, help_on)


def _tried(at_home: AtHome, tenant: Tenant, call: Callable[[Shard], T]) -> T | None:
    """Return what a call returns; None: its store refuses, or the tenant has moved."""

    def call_on(shard: Shard) -> T | None:
        errors: tuple[type[Exception], ...] = (QueueError, *shard.db.errors)
        try:
            return call(shard)
        except TenantMoved:
            raise
        except errors as error:
            log.info("the holder of a lock of %s is not helped: %s", tenant, error)
            return None

    try:
        return at_home(tenant, call_on)
    except TenantMoved as moved:
        log.info("the holder of a lock is not helped: %s", moved)
        return None
