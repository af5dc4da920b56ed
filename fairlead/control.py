"""Steering: pausing and resuming tenants, kinds and shards while the fleet runs.

What is said here is a rule in the store (`fairlead.zones.policy.policies`): in force for everything that is taken from
its commit on, in every process, through restarts, until it is taken back. What runs already goes on to its end. Who has
said it, and when, is written down with it (`fairlead.zones.reporting.audit_log`).
"""

import math
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Any, Self

from fairlead.operator import Operator
from fairlead.shards import Shards
from fairlead.zones.errors import BadArgument
from fairlead.zones.layout import Tenant, local_tenant, named_tenant
from fairlead.zones.policy import policies
from fairlead.zones.records import KindPolicy
from fairlead.zones.reporting import audit_log
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

WEIGHT_MIN, WEIGHT_MAX = 0.01, 100  # Beyond, a tenant would hardly run, or hardly anybody else.
COUNT_MAX = 1_000_000


class Control:
    """What an operator can say to a running fleet. Made by `App.control`; writes rules, and waits for nobody.

    `operator`: who says it.
    """

    __slots__ = ("_operator", "_random", "_shards")

    def __init__(self, shards: Callable[[], Shards], operator: Operator, random: Random) -> None:
        self._shards = shards
        self._operator = operator
        self._random = random

    def acting_as(self, operator: Operator) -> Self:
        """Return the same, said by somebody else."""
        return type(self)(self._shards, operator, self._random)

    def pause_tenant(self, app: str, user: str) -> None:
        """Start no more of a tenant's items, in whatever zone they are; what is enqueued waits with the others.

        Raises:
          BadArgument: a name is not text, is empty, or is longer than 96 bytes in UTF-8.
        """
        self._change("pause", named_tenant(app, user), paused=True)

    def resume_tenant(self, app: str, user: str) -> None:
        """Let a tenant's items start again; its queues go on where they were.

        Of a tenant with thousands of queues the last is woken some seconds after the first. Broken off, what it has not
        come to wakes by itself within five minutes.

        Raises:
          BadArgument: see `pause_tenant`.
        """
        tenant = named_tenant(app, user)
        self._change("resume", tenant, paused=False)
        _wake_tenant(self._shards().home(tenant), tenant)

    def set_weight(self, app: str, user: str, weight: float) -> None:
        """Let a tenant take `weight` times the items of others, of weight 1, where both have work waiting.

        It holds for all that waits already. What workers hold at that moment goes on.

        Args:
          weight: 0.01 to 100; 1 is what a tenant has of whom nothing was said.

        Raises:
          BadArgument: `weight` is out of range; or a name, see `pause_tenant`.
        """
        _check("weight", weight, WEIGHT_MIN, WEIGHT_MAX, int | float)
        self._change("weigh", named_tenant(app, user), weight=float(weight))

    def pause_kind(self, kind: str) -> None:
        """Start no more items of a kind, of whatever tenant, on every shard.

        One transaction after the other, the kind's own shard first. Of two who steer a kind at once, the later on that
        shard is right on all of them. Broken off, some shards have not heard of it: say it again.

        Raises:
          BadArgument: `kind` cannot be the name of a kind.
        """
        self._change_kind("pause", kind, paused=True)

    def resume_kind(self, kind: str) -> None:
        """Let items of a kind start again, and wake the queues that sleep because of it. See `pause_kind`.

        Of a hundred thousand queues the last is woken some seconds after the first. Broken off, what it has not come to
        is woken by the fleet, a few hundred a second.

        Raises:
          BadArgument: `kind` cannot be the name of a kind.
        """
        self._change_kind("resume", kind, paused=False)
        for shard in self._each():
            _wake_paused_pointers(shard)

    def limit_tenant(
        self,
        app: str,
        user: str,
        *,
        max_running: int | None = None,
        per_s: float | None = None,
        burst: int | None = None,
    ) -> None:
        """Let no more than so many of a tenant's items run at once, and so many start in a second, of all its kinds.

        What runs before it had a `max_running` goes on, and is not counted.

        Args and errors: see `limit_kind`, `pause_tenant`.
        """
        self._change("limit", named_tenant(app, user), **_limit(max_running, per_s, burst))

    def limit_kind(
        self, kind: str, *, max_running: int | None = None, per_s: float | None = None, burst: int | None = None
    ) -> None:
        """Let no more than so many items of a kind run at once in all of the fleet, and so many start in a second.

        What is not given is not limited any more. What runs already goes on, and counts from two seconds later on;
        until then others may start as many as the limit says. A handler's own `max_running`, for each consumer, holds
        as well. A kind that was idle starts up to a third of a second later than without. See `pause_kind`.

        Args:
          max_running: 1 to 1,000,000.
          per_s: 0.001 to 1,000,000.
          burst: how many may start at once after a while without any, 1 to 1,000,000; default: a second's worth.

        Raises:
          BadArgument: something is out of range, or `kind` cannot be the name of a kind.
        """
        self._change_kind("limit", kind, **_limit(max_running, per_s, burst))

    def pause_shard(self, name: str) -> None:
        """Start nothing more from a shard; enqueueing goes on.

        Raises:
          UnknownShard: there is no such shard.
        """
        self._apply(self._shards()[name], "pause", {"shard": name}, lambda attempt: policies.pause_shard(attempt.tr))

    def resume_shard(self, name: str) -> None:
        """Let work start from a shard again.

        Raises:
          UnknownShard: there is no such shard.
        """
        self._apply(self._shards()[name], "resume", {"shard": name}, lambda attempt: policies.resume_shard(attempt.tr))

    def _each(self) -> Iterable[Shard]:
        shards = self._shards()
        return (shards[name] for name in shards)

    def _apply(self, shard: Shard, what: str, to: dict[str, Any], change: Callable[[Attempt], object]) -> None:
        """Change something on a shard, and write the deed down with it."""
        write_audit_entry = self._audit_writer(what, to)

        def body(attempt: Attempt) -> None:
            change(attempt)
            write_audit_entry(attempt)

        shard.transact(body)

    def _audit_writer(self, what: str, to: dict[str, Any]) -> Callable[[Attempt], None]:
        """Return what writes a deed down with what is done: one deed, on however many shards.

        It has a receipt: a repetition must not undo what somebody has said since.
        """
        audit_entry_id = self._random.randbytes(audit_log.ID_BYTES)

        def write_audit_entry(attempt: Attempt) -> None:
            attempt.needs_receipt = True
            audit_log.write(attempt.tr, self._operator.audit_entry(audit_entry_id, what, to, done_us=attempt.now_us))

        return write_audit_entry

    def _change(self, what: str, tenant: Tenant, **changes: object) -> None:
        shard = self._shards().home(tenant)

        def change(attempt: Attempt) -> None:
            policies.change_tenant_policy(attempt.tr, shard.layout, tenant, now_us=attempt.now_us, **changes)

        self._apply(shard, what, {"tenant": list(tenant), **_audited_changes(changes)}, change)

    def _change_kind(self, what: str, kind: str, *, after_us: int = 0, **changes: object) -> None:
        """Change a kind's rule on the kind's own shard, and let the others repeat it."""
        own = self._shards().home(local_tenant(kind))
        write_audit_entry = self._audit_writer(what, {"kind": kind, **_audited_changes(changes)})

        def say(attempt: Attempt) -> KindPolicy:
            write_audit_entry(attempt)
            return policies.change_kind_policy(attempt.tr, kind, now_us=attempt.now_us, after_us=after_us, **changes)

        policy = own.transact(say)

        def repeat(attempt: Attempt) -> KindPolicy:
            write_audit_entry(attempt)
            return policies.propagate_kind_policy(attempt.tr, kind, policy)

        repeated = [shard.transact(repeat) for shard in self._each() if shard is not own]
        latest_us = max((each.updated_us for each in repeated), default=0)
        if (
            latest_us > policy.updated_us
            and own.transact(lambda attempt: policies.kind_policy(attempt.tr, kind)) == policy
        ):
            # Nobody has said anything later: a record is damaged, or the kind's own shard was restored as it was once.
            self._change_kind(what, kind, after_us=latest_us, **changes)


def _audited_changes(changes: dict[str, Any]) -> dict[str, Any]:
    """Return what is changed, as a deed says it: without what is said by the deed's name, or means nothing."""
    nothing = {"paused"} if changes.get("per_s") is not None else {"paused", "burst"}
    return {key: value for key, value in changes.items() if value is not None and key not in nothing}


def _limit(max_running: int | None, per_s: float | None, burst: int | None) -> dict[str, Any]:
    """Return a limit as a rule says it."""
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
    """Refuse what is not a number of this kind within these bounds."""
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
