"""Steering: pausing and resuming tenants, kinds and shards while the fleet runs.

What is said here is a rule in the store (`zones.rules`): in force for everything that is taken from its commit on, in
every process, through restarts, until it is taken back. What runs already goes on to its end.
"""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from fairlead.shards import Shards
from zones import rules
from zones.layout import Tenant, named_tenant
from zones.records import TenantRule
from zones.shard import Shard


class Steering:
    """What an operator can say to a running fleet. Made by `App.steering`; writes rules, and waits for nobody."""

    __slots__ = ("_shards",)

    def __init__(self, shards: Callable[[], Shards]) -> None:
        self._shards = shards

    def pause_tenant(self, app: str, user: str) -> None:
        """Start no more of a tenant's items, in whatever zone they are; what is enqueued waits with the others.

        Raises:
          BadArgument: a name is not text, is empty, or is longer than 96 bytes in UTF-8.
        """
        self._change(named_tenant(app, user), lambda rule: replace(rule, paused=True))

    def resume_tenant(self, app: str, user: str) -> None:
        """Let a tenant's items start again; its queue goes on where it was.

        Raises:
          BadArgument: see `pause_tenant`.
        """
        self._change(named_tenant(app, user), lambda rule: replace(rule, paused=False))

    def pause_kind(self, kind: str) -> None:
        """Start no more items of a kind, of whatever tenant, on every shard: one transaction after the other.

        Raises:
          BadArgument: `kind` cannot be the name of a kind.
        """
        for shard in self._each():
            shard.transact(lambda attempt: rules.pause_kind(attempt.tr, kind))

    def resume_kind(self, kind: str) -> None:
        """Let items of a kind start again, and wake the queues that sleep because of it.

        Of a hundred thousand queues the last is woken some seconds after the first. Broken off, what it has not come to
        is woken by the fleet, a few hundred a second.

        Raises:
          BadArgument: `kind` cannot be the name of a kind.
        """
        for shard in self._each():
            shard.transact(lambda attempt: rules.resume_kind(attempt.tr, kind))
        for shard in self._each():
            _wake_parked(shard)

    def pause_shard(self, name: str) -> None:
        """Start nothing more from a shard; enqueueing goes on.

        Raises:
          UnknownShard: there is no such shard.
        """
        self._shards()[name].transact(lambda attempt: rules.pause_shard(attempt.tr))

    def resume_shard(self, name: str) -> None:
        """Let work start from a shard again.

        Raises:
          UnknownShard: there is no such shard.
        """
        self._shards()[name].transact(lambda attempt: rules.resume_shard(attempt.tr))

    def _each(self) -> Iterable[Shard]:
        shards = self._shards()
        return (shards[name] for name in shards)

    def _change(self, tenant: Tenant, change: Callable[[TenantRule], TenantRule]) -> None:
        shard = self._shards().home(tenant)
        shard.transact(
            lambda attempt: rules.set_tenant_rule(
                attempt.tr,
                shard.layout,
                tenant,
                change(rules.tenant_rule(attempt.tr, shard.layout, tenant)),
                now_us=attempt.now_us,
            )
        )


def _wake_parked(shard: Shard) -> None:
    while shard.transact(lambda attempt: rules.wake_parked(attempt.tr, shard.layout, now_us=attempt.now_us)):
        continue
