"""Policies: an operator pauses, limits or weighs tenants, kinds and whole shards, each for a while."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from fairlead.simulation.faults.fault import Fault
from fairlead.simulation.open_shards import OpenShards
from fairlead.simulation.replica import ZoneReplica
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.errors import TenantBusy
from fairlead.zones.external.names import external_zone
from fairlead.zones.layout import Tenant, local_tenant
from fairlead.zones.placement import home
from fairlead.zones.policy import policies
from fairlead.zones.records import KindPolicy
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

T = TypeVar("T")

TRY_AGAIN_US = 100_000
WEIGHTS = (0.2, 4.0)
_NO_LIMIT: dict[str, Any] = {"max_running": None, "per_s": None, "burst": 1}


class PolicyChange(Protocol):
    """A function that sets or clears a policy, and waits until the change is committed."""

    def __call__(self, *, holds: bool) -> None: ...


class ShardChange(Protocol):
    """A function that sets or clears a policy on one shard."""

    def __call__(self, shard: Shard, attempt: Attempt, /, *, holds: bool) -> None: ...


class _TemporaryPolicies(Fault):
    """A policy is set for a tenant, kind or shard that has work, and is cleared after `lasts_us` on average."""

    lasts_us = 500_000

    def set_up(self) -> None:
        """See `Fault`."""
        self._shards: OpenShards | None = None
        self._in_force = 0
        self.at_random_times(self.random.choice([0.2e6, 1e6]), self._begin)

    def policy_changes(self, kind: str, tenant: Tenant, shard_name: str) -> list[PolicyChange]:
        """Return the changes to choose from, for a kind and a tenant that have work on a shard, and for the shard."""
        raise NotImplementedError

    def check(self) -> str | None:
        """Check that no policy is in force, and that all shards have the same policies of kinds."""
        if self._in_force:
            return f"{self._in_force} policies are in force still"
        stored = [replica.kind_policies for replica in self.cluster.suite.shards.values()]
        return None if all(each == stored[0] for each in stored) else f"shards differ in policies of kinds: {stored}"

    def change_shard(self, shard_name: str, change: ShardChange, *, holds: bool) -> None:
        """Change something on one shard."""
        shard = self.shards()[shard_name]
        self.retry_until_committed(shard, partial(change, shard, holds=holds))

    def change_tenant(self, tenant: Tenant, shard_name: str, change: ShardChange, *, holds: bool) -> None:
        """Change something of a tenant, wherever it lives; of local items, on one shard."""
        shards = self.shards()

        def change_at(shard: Shard) -> None:
            self.retry_until_committed(shard, partial(change, shard, holds=holds))

        if tenant.app:
            shards.at_home(tenant, change_at)
        else:
            change_at(shards[shard_name])

    def change_kind(self, kind: str, *, holding: dict[str, Any], ending: dict[str, Any], holds: bool) -> None:
        """Change a kind's policy on the kind's own shard, and propagate it to the others; see `policies`."""
        shards = self.shards()
        own, changes = shards[home(local_tenant(kind), list(shards))], holding if holds else ending

        def change(attempt: Attempt) -> KindPolicy:
            return policies.change_kind_policy(attempt.tr, kind, now_us=attempt.now_us, **changes)

        policy = self.retry_until_committed(own, change)
        for shard in shards.values():
            if shard is not own:
                self.retry_until_committed(
                    shard, lambda attempt: policies.propagate_kind_policy(attempt.tr, kind, policy)
                )

    def retry_until_committed(self, shard: Shard, body: Callable[[Attempt], T]) -> T:
        """Run `body` in transactions until one commits."""
        while True:
            try:
                return shard.transact(body)
            except (StoreError, TenantBusy):
                self.cluster.world.note("the operator tries again")
                self.cluster.world.sleep_us(TRY_AGAIN_US)

    def shards(self) -> OpenShards:
        """Return all shards, as the operator has them open."""
        if self._shards is None:
            self._shards = self.cluster.open_shards(self.cluster.operator.host)
        return self._shards

    def _begin(self) -> None:
        replica = self.random.choice(list(self.cluster.suite.shards.values()))
        zones = [zone for zone in replica.zones.values() if zone.counts or self._is_external(zone)]
        if not zones:
            return
        zone = self.random.choice(zones)
        kind = min(zone.counts) if zone.counts else self.random.choice(self.cluster.external_kinds)
        policy_changes = self.policy_changes(kind, zone.name.tenant, replica.name)
        policy_change = self.random.choice(policy_changes)
        # Not long, because `check` expects the end within seconds after the fault phase.
        lasts_us = int(min(self.random.expovariate(1 / self.lasts_us), 3 * self.lasts_us))
        # Sometimes two operators set and clear one policy at once, and the shards get the changes in different orders.
        for _ in range(self.random.choice([1, 1, 2])):
            self.strike_count += 1
            self._in_force += 1
            self.cluster.operator.do("policy", partial(self._hold, policy_change, lasts_us))

    def _is_external(self, zone: ZoneReplica) -> bool:
        """Whether a zone has the pointer of a queue in an external store, where its items are."""
        return external_zone(zone.name.zone) is not None and zone.pointer is not None

    def _hold(self, policy_change: PolicyChange, lasts_us: int) -> None:
        policy_change(holds=True)
        self.cluster.world.sleep_us(lasts_us)
        policy_change(holds=False)
        self._in_force -= 1


class PausesByPolicy(_TemporaryPolicies):
    """A tenant, a shard, or a kind of all shards is paused, and resumed after a while.

    Half of the time, a resume of a kind does not wake the paused pointers; then the consumers wake them.
    """

    def policy_changes(self, kind: str, tenant: Tenant, shard_name: str) -> list[PolicyChange]:
        """See there."""
        return [
            partial(self.change_shard, shard_name, _pause_shard),
            partial(self._change_kind, kind),
            partial(self.change_tenant, tenant, shard_name, partial(_pause_tenant, tenant)),
        ]

    def check(self) -> str | None:
        """Check that no policy is in force, and that the index of paused pointers is empty."""
        replicas = self.cluster.suite.shards.values()
        paused_pointers = [str(zone) for shard in replicas for zone, kinds in shard.paused_pointers.items() if kinds]
        return super().check() or (
            f"paused still: {paused_pointers[0]}, one of {len(paused_pointers)}" if paused_pointers else None
        )

    def _change_kind(self, kind: str, *, holds: bool) -> None:
        self.change_kind(kind, holding={"paused": True}, ending={"paused": False}, holds=holds)
        if not holds and self.random.random() < 0.5:
            for shard in self.shards().values():
                self.retry_until_committed(shard, partial(_wake_paused_pointers, shard))


class LimitsByPolicy(_TemporaryPolicies):
    """A tenant, or a kind of all shards, has limits for a while."""

    lasts_us = 2_000_000

    def policy_changes(self, kind: str, tenant: Tenant, shard_name: str) -> list[PolicyChange]:
        """See there."""
        most, per_s = self.random.randint(1, 3), self.random.choice([None, 5.0, 100.0])
        limit: dict[str, Any] = {"max_running": most, "per_s": per_s, "burst": 2}
        return [
            partial(self.change_kind, kind, holding=limit, ending=_NO_LIMIT),
            partial(self.change_tenant, tenant, shard_name, partial(_limit_tenant, tenant, limit)),
        ]


class WeightsByPolicy(_TemporaryPolicies):
    """A tenant has a lower or higher weight than the others for a while."""

    lasts_us = 2_000_000

    def policy_changes(self, kind: str, tenant: Tenant, shard_name: str) -> list[PolicyChange]:
        """See there."""
        weigh = partial(_weigh_tenant, tenant, self.random.choice(WEIGHTS))
        return [partial(self.change_tenant, tenant, shard_name, weigh)]


def _limit_tenant(tenant: Tenant, limit: dict[str, Any], shard: Shard, attempt: Attempt, *, holds: bool) -> None:
    changes = limit if holds else _NO_LIMIT
    policies.change_tenant_policy(attempt.tr, shard.layout, tenant, now_us=attempt.now_us, **changes)


def _weigh_tenant(tenant: Tenant, weight: float, shard: Shard, attempt: Attempt, *, holds: bool) -> None:
    changes = {"weight": weight if holds else 1.0}
    policies.change_tenant_policy(attempt.tr, shard.layout, tenant, now_us=attempt.now_us, **changes)


def _pause_shard(shard: Shard, attempt: Attempt, *, holds: bool) -> None:
    policies.pause_shard(attempt.tr) if holds else policies.resume_shard(attempt.tr)


def _pause_tenant(tenant: Tenant, shard: Shard, attempt: Attempt, *, holds: bool) -> None:
    policies.change_tenant_policy(attempt.tr, shard.layout, tenant, now_us=attempt.now_us, paused=holds)


def _wake_paused_pointers(shard: Shard, attempt: Attempt) -> None:
    policies.wake_paused_pointers(attempt.tr, shard.layout, now_us=attempt.now_us)
