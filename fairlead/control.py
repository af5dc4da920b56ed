"""Control of a running fleet: pause, resume and limit tenants, kinds and shards; set tenants' weights.

Each change is a policy in the store (`fairlead.zones.policy.policies`). It holds from its commit on for every item that
is dequeued, in every process and through restarts, until it is changed again. Running items continue to their end. The
same transaction writes an entry into the audit log (`fairlead.zones.reporting.audit_log`).
"""

import math
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Any, Self

from fairlead.operator import Operator
from fairlead.shards import Shards
from fairlead.tenant_database import TenantDatabase, tenant_of
from fairlead.zones.errors import BadArgument
from fairlead.zones.layout import Tenant, local_tenant
from fairlead.zones.policy import policies
from fairlead.zones.queue.items import HasKind, kind_of
from fairlead.zones.records import KindPolicy
from fairlead.zones.reporting import audit_log
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

WEIGHT_MIN, WEIGHT_MAX = 0.01, 100  # Beyond, the tenant would hardly run, or the others would not.
COUNT_MAX = 1_000_000


class Control:
    """Changes to a running fleet. Made by `App.control`; writes policies, and waits for no process.

    `operator`: the operator that the audit log names.
    """

    __slots__ = ("_operator", "_random", "_shards")

    def __init__(self, shards: Callable[[], Shards], operator: Operator, random: Random) -> None:
        self._shards = shards
        self._operator = operator
        self._random = random

    def acting_as(self, operator: Operator) -> Self:
        """Return the same control, with another operator for the audit log."""
        return type(self)(self._shards, operator, self._random)

    def pause_tenant(self, app: str | Tenant | TenantDatabase, user: str | None = None) -> None:
        """Start no more items of a tenant, in any of its zones. Enqueueing continues.

        Args:
          app, user: the two names; or one argument: "APP/USER", a `Tenant`, or `app.tenant(...)`.

        Raises:
          BadArgument: a name is not text, is empty, or is longer than 96 bytes in UTF-8.
        """
        self._change("pause", tenant_of(app, user), paused=True)

    def resume_tenant(self, app: str | Tenant | TenantDatabase, user: str | None = None) -> None:
        """Let a tenant's items start again. Its queues continue where they stopped.

        If the tenant has thousands of queues, the last one wakes some seconds after the first. If the call is
        interrupted, the remaining queues wake by themselves within five minutes.

        Raises:
          BadArgument: see `pause_tenant`.
        """
        tenant = tenant_of(app, user)
        self._change("resume", tenant, paused=False)
        _wake_tenant(self._shards().find(tenant), tenant)

    def set_weight(self, app: str | Tenant | TenantDatabase, user: str | None = None, *, weight: float) -> None:
        """Let a tenant run `weight` times the items of a tenant with weight 1, while both have items waiting.

        The weight also holds for items that wait already. Items that workers hold at that moment continue.

        Args:
          app, user: see `pause_tenant`.
          weight: 0.01 to 100; the default of every tenant is 1.

        Raises:
          BadArgument: `weight` is out of range; or a name, see `pause_tenant`.
        """
        _check("weight", weight, WEIGHT_MIN, WEIGHT_MAX, int | float)
        self._change("set weight", tenant_of(app, user), weight=float(weight))

    def pause_kind(self, kind: str | HasKind) -> None:
        """Start no more items of a kind, for all tenants, on every shard.

        Runs one transaction per shard, the kind's own shard first. If two operators change a kind at once, the change
        that is later on that shard wins on all shards. If the call is interrupted, some shards do not have the change:
        call again.

        Args:
          kind: the handler, or its kind.

        Raises:
          BadArgument: `kind` cannot be the name of a kind.
        """
        self._change_kind("pause", kind_of(kind), paused=True)

    def resume_kind(self, kind: str | HasKind) -> None:
        """Let items of a kind start again, and wake the queues that sleep because of the pause. See `pause_kind`.

        Of a hundred thousand queues, the last one wakes some seconds after the first. If the call is interrupted, the
        fleet wakes the remaining queues, a few hundred per second.

        Raises:
          BadArgument: `kind` cannot be the name of a kind.
        """
        self._change_kind("resume", kind_of(kind), paused=False)
        for shard in self._each():
            _wake_paused_pointers(shard)

    def limit_tenant(
        self,
        app: str | Tenant | TenantDatabase,
        user: str | None = None,
        *,
        max_running: int | None = None,
        per_s: float | None = None,
        burst: int | None = None,
    ) -> None:
        """Limit how many items of a tenant, of all its kinds, run at once and start per second.

        Items that are already running when the limit is set are not counted.

        Args and errors: see `limit_kind`, `pause_tenant`.
        """
        self._change("limit", tenant_of(app, user), **_limit(max_running, per_s, burst))

    def limit_kind(
        self,
        kind: str | HasKind,
        *,
        max_running: int | None = None,
        per_s: float | None = None,
        burst: int | None = None,
    ) -> None:
        """Limit how many items of a kind run at once in the whole fleet, and start per second.

        A limit that is not given is removed. Running items continue. They count from two seconds later on; until then,
        other items may start up to the limit. A handler's own `max_running`, for each consumer, holds as well. A kind
        that was idle starts up to a third of a second later than without a limit. See `pause_kind`.

        Args:
          kind: the handler, or its kind.
          max_running: 1 to 1,000,000.
          per_s: 0.001 to 1,000,000.
          burst: how many may start at once after an idle time, 1 to 1,000,000; default: one second's worth.

        Raises:
          BadArgument: an argument is out of range, or `kind` cannot be the name of a kind.
        """
        self._change_kind("limit", kind_of(kind), **_limit(max_running, per_s, burst))

    def pause_shard(self, name: str) -> None:
        """Start no more items from a shard. Enqueueing continues.

        Raises:
          UnknownShard: there is no such shard.
        """
        self._apply(self._shards()[name], "pause", {"shard": name}, lambda attempt: policies.pause_shard(attempt.tr))

    def resume_shard(self, name: str) -> None:
        """Let items start from a shard again.

        Raises:
          UnknownShard: there is no such shard.
        """
        self._apply(self._shards()[name], "resume", {"shard": name}, lambda attempt: policies.resume_shard(attempt.tr))

    def _each(self) -> Iterable[Shard]:
        shards = self._shards()
        return (shards[name] for name in shards)

    def _apply(self, shard: Shard, what: str, to: dict[str, Any], change: Callable[[Attempt], object]) -> None:
        """Change a policy of a shard, and write the audit entry in the same transaction."""
        write_audit_entry = self._audit_writer(what, to)

        def body(attempt: Attempt) -> None:
            change(attempt)
            write_audit_entry(attempt)

        shard.transact(body)

    def _audit_writer(self, what: str, to: dict[str, Any]) -> Callable[[Attempt], None]:
        """Return a function that writes the audit entry of an action: one entry, on any number of shards.

        It asks for a receipt: a repetition must not undo a later change of another operator.
        """
        audit_entry_id = self._random.randbytes(audit_log.ID_BYTES)

        def write_audit_entry(attempt: Attempt) -> None:
            attempt.needs_receipt = True
            audit_log.write(attempt.tr, self._operator.audit_entry(audit_entry_id, what, to, done_us=attempt.now_us))

        return write_audit_entry

    def _change(self, what: str, tenant: Tenant, **changes: object) -> None:
        def change_on(shard: Shard) -> None:
            def change(attempt: Attempt) -> None:
                policies.change_tenant_policy(attempt.tr, shard.layout, tenant, now_us=attempt.now_us, **changes)

            self._apply(shard, what, {"tenant": list(tenant), **_audited_changes(changes)}, change)

        self._shards().at_home(tenant, change_on)

    def _change_kind(self, what: str, kind: str, *, after_us: int = 0, **changes: object) -> None:
        """Change a kind's policy on the kind's own shard, and propagate it to the others."""
        own = self._shards().home(local_tenant(kind))
        write_audit_entry = self._audit_writer(what, {"kind": kind, **_audited_changes(changes)})

        def change(attempt: Attempt) -> KindPolicy:
            write_audit_entry(attempt)
            return policies.change_kind_policy(attempt.tr, kind, now_us=attempt.now_us, after_us=after_us, **changes)

        policy = own.transact(change)

        def propagate(attempt: Attempt) -> KindPolicy:
            write_audit_entry(attempt)
            return policies.propagate_kind_policy(attempt.tr, kind, policy)

        propagated = [shard.transact(propagate) for shard in self._each() if shard is not own]
        latest_us = max((each.updated_us for each in propagated), default=0)
        if (
            latest_us > policy.updated_us
            and own.transact(lambda attempt: policies.kind_policy(attempt.tr, kind)) == policy
        ):
            # No operator made a later change: a record is damaged, or the kind's own shard was restored from a backup.
            self._change_kind(what, kind, after_us=latest_us, **changes)


def _audited_changes(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the changed fields for the audit entry, without those that its name implies or that have no effect."""
    implied = {"paused"} if changes.get("per_s") is not None else {"paused", "burst"}
    return {key: value for key, value in changes.items() if value is not None and key not in implied}


def _limit(max_running: int | None, per_s: float | None, burst: int | None) -> dict[str, Any]:
    """Return a limit as the fields of a policy."""
    for argument, value, low, kind in (
        ("max_running", max_running, 1, int),
        ("per_s", per_s, 0.001, int | float),
        ("burst", burst, 1, int),
    ):
        if value is not None:
            _check(argument, value, low, COUNT_MAX, kind)
    bucket = 1 if per_s is None else burst if burst is not None else max(1, math.ceil(per_s))
    return {"max_running": max_running, "per_s": per_s, "burst": bucket}


def _check(argument: str, value: Any, low: float, high: float, kind: Any) -> None:
    """Refuse a value that is not a number of this type within these bounds."""
    if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
        raise BadArgument(argument=argument, value=value, allowed=f"{low:,} to {high:,}")


def _wake_paused_pointers(shard: Shard) -> None:
    while shard.transact(
        lambda attempt: policies.wake_paused_pointers(attempt.tr, shard.layout, now_us=attempt.now_us)
    ):
        continue


def _wake_tenant(shard: Shard, tenant: Tenant) -> None:
    after: str | None = ""
    while after is not None:
        after = shard.transact(partial(_wake_from, shard, tenant, after))


def _wake_from(shard: Shard, tenant: Tenant, after: str, attempt: Attempt) -> str | None:
    return policies.wake_tenant(attempt.tr, shard.layout, tenant, after=after, now_us=attempt.now_us)
