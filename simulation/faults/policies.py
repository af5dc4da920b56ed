"""An operator who pauses, limits or weighs tenants, kinds and whole shards, for a moment each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from fairlead.simulation.faults.fault import Fault
from fairlead.zones.layout import Tenant, local_tenant
from fairlead.zones.placement import home
from fairlead.zones.policy import policies
from fairlead.zones.records import KindRule
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

T = TypeVar("T")

TRY_AGAIN_US = 100_000
WEIGHTS = (0.2, 4.0)
_NO_LIMIT: dict[str, Any] = {"max_running": None, "per_s": None, "burst": 1}


class Saying(Protocol):
    """Says that something is held back, or that it goes on, and waits until it has been heard."""

    def __call__(self, *, holds: bool) -> None: ...


class Change(Protocol):
    """Holds something on a shard back, or lets it go on."""

    def __call__(self, shard: Shard, attempt: Attempt, /, *, holds: bool) -> None: ...


class _RulesForAWhile(Fault):
    """Something that has work is held back by a rule, which goes after a while of `lasts_us` on the average."""

    costs_leases = False
    lasts_us = 500_000

    def set_up(self) -> None:
        """See `Fault`."""
        self._shards: dict[str, Shard] = {}
        self._in_force = 0
        self.now_and_then(self.random.choice([0.2e6, 1e6]), self._begin)

    def sayings(self, kind: str, tenant: Tenant, shard_name: str) -> list[Saying]:
        """Return what may be said of a kind and a tenant that have work on a shard, and of the shard."""
        raise NotImplementedError

    def check(self) -> str | None:
        """Everything goes on, and all shards say the same of every kind."""
        if self._in_force:
            return f"{self._in_force} rules are in force still"
        said = [shadow.kind_rules for shadow in self.cluster.bench.shards.values()]
        return None if all(each == said[0] for each in said) else f"shards differ in what they say of kinds: {said}"

    def say(self, shard_name: str, change: Change, *, holds: bool) -> None:
        """Change something on one shard."""
        shard = self.shards()[shard_name]
        self.insist(shard, partial(change, shard, holds=holds))

    def say_of_kind(self, kind: str, *, holding: dict[str, Any], ending: dict[str, Any], holds: bool) -> None:
        """Change a kind's rule on the kind's own shard, and let the others repeat it; see `policies`."""
        shards = self.shards()
        own, changes = shards[home(local_tenant(kind), list(shards))], holding if holds else ending

        def change(attempt: Attempt) -> KindRule:
            return policies.change_kind_rule(attempt.tr, kind, now_us=attempt.now_us, **changes)

        rule = self.insist(own, change)
        for shard in shards.values():
            if shard is not own:
                self.insist(shard, lambda attempt: policies.repeat_kind_rule(attempt.tr, kind, rule))

    def insist(self, shard: Shard, body: Callable[[Attempt], T]) -> T:
        """Run `body` in a transaction until the store takes it."""
        while True:
            try:
                return shard.transact(body)
            except shard.db.errors:
                self.cluster.world.note("the operator tries again")
                self.cluster.world.sleep_us(TRY_AGAIN_US)

    def shards(self) -> dict[str, Shard]:
        """Return all shards, as the operator has them open."""
        if not self._shards:
            self._shards = self.cluster.open_shards(self.cluster.operator.host)
        return self._shards

    def _begin(self) -> None:
        shadow = self.random.choice(list(self.cluster.bench.shards.values()))
        zones = [zone for zone in shadow.zones.values() if zone.counts]
        if not zones:
            return
        zone = self.random.choice(zones)
        sayings = self.sayings(min(zone.counts), zone.name.tenant, shadow.name)
        # Now and then two people say something of the same at once, and the shards hear them in different orders.
        for saying in self.random.choices(sayings, k=self.random.choice([1, 1, 2])):
            self.happened += 1
            self._in_force += 1
            self.cluster.operator.do("rule", partial(self._hold, saying))

    def _hold(self, saying: Saying) -> None:
        saying(holds=True)
        # Not for ever: a world looks, seconds after the trouble is over, whether everything goes on.
        self.cluster.world.sleep_us(int(min(self.random.expovariate(1 / self.lasts_us), 3 * self.lasts_us)))
        saying(holds=False)
        self._in_force -= 1


class PausesByRule(_RulesForAWhile):
    """A tenant, a shard, or a kind of all shards is paused, and goes on after a while.

    Whoever lets a kind go on leaves it to the consumers, every other time, to wake what is parked.
    """

    def sayings(self, kind: str, tenant: Tenant, shard_name: str) -> list[Saying]:
        """See there."""
        return [
            partial(self.say, shard_name, _shard_rule),
            partial(self._say_of_kind, kind),
            partial(self.say, shard_name, partial(_tenant_rule, tenant)),
        ]

    def check(self) -> str | None:
        """Everything goes on, and nothing is parked."""
        shadows = self.cluster.bench.shards.values()
        parked = [str(zone) for shard in shadows for zone, kinds in shard.parked.items() if kinds]
        return super().check() or (f"parked still: {parked[0]}, one of {len(parked)}" if parked else None)

    def _say_of_kind(self, kind: str, *, holds: bool) -> None:
        self.say_of_kind(kind, holding={"paused": True}, ending={"paused": False}, holds=holds)
        if not holds and self.random.random() < 0.5:
            for shard in self.shards().values():
                self.insist(shard, partial(_wake_parked, shard))


class LimitsByRule(_RulesForAWhile):
    """A tenant, or a kind of all shards, may run or start no more than so many at once, for a while."""

    lasts_us = 2_000_000

    def sayings(self, kind: str, tenant: Tenant, shard_name: str) -> list[Saying]:
        """See there."""
        most, per_s = self.random.randint(1, 3), self.random.choice([None, 5.0, 100.0])
        limit: dict[str, Any] = {"max_running": most, "per_s": per_s, "burst": 2}
        return [
            partial(self.say_of_kind, kind, holding=limit, ending=_NO_LIMIT),
            partial(self.say, shard_name, partial(_tenant_limit, tenant, limit)),
        ]


class WeightsByRule(_RulesForAWhile):
    """A tenant is worth less than the others, or more, for a while."""

    lasts_us = 2_000_000

    def sayings(self, kind: str, tenant: Tenant, shard_name: str) -> list[Saying]:
        """See there."""
        return [partial(self.say, shard_name, partial(_tenant_weight, tenant, self.random.choice(WEIGHTS)))]


def _tenant_limit(tenant: Tenant, limit: dict[str, Any], shard: Shard, attempt: Attempt, *, holds: bool) -> None:
    changes = limit if holds else _NO_LIMIT
    policies.change_tenant_rule(attempt.tr, shard.layout, tenant, now_us=attempt.now_us, **changes)


def _tenant_weight(tenant: Tenant, weight: float, shard: Shard, attempt: Attempt, *, holds: bool) -> None:
    changes = {"weight": weight if holds else 1.0}
    policies.change_tenant_rule(attempt.tr, shard.layout, tenant, now_us=attempt.now_us, **changes)


def _shard_rule(shard: Shard, attempt: Attempt, *, holds: bool) -> None:
    policies.pause_shard(attempt.tr) if holds else policies.resume_shard(attempt.tr)


def _tenant_rule(tenant: Tenant, shard: Shard, attempt: Attempt, *, holds: bool) -> None:
    policies.change_tenant_rule(attempt.tr, shard.layout, tenant, now_us=attempt.now_us, paused=holds)


def _wake_parked(shard: Shard, attempt: Attempt) -> None:
    policies.wake_parked(attempt.tr, shard.layout, now_us=attempt.now_us)
