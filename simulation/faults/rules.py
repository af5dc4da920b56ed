"""An operator who pauses, limits or weighs tenants, kinds and whole shards, for a moment each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from simulation.faults.fault import Fault
from zones import rules
from zones.attempt import Attempt
from zones.layout import Tenant, local_tenant
from zones.placement import home
from zones.shard import Shard

TRY_AGAIN_US = 100_000
WEIGHTS = (0.2, 4.0)


class Change(Protocol):
    """Holds something back, or lets it go on."""

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

    def changes(self, kind: str, tenant: Tenant) -> list[tuple[Change, bool]]:
        """Return what may be changed, of a kind and a tenant that have work; and whether of all shards."""
        raise NotImplementedError

    def check(self) -> str | None:
        """Everything goes on."""
        return f"{self._in_force} rules are in force still" if self._in_force else None

    def end(self, shard: Shard) -> None:
        """Do what there is to do at the end of a rule."""

    def _begin(self) -> None:
        shadow = self.random.choice(list(self.cluster.bench.shards.values()))
        zones = [zone for zone in shadow.zones.values() if zone.counts]
        if not zones:
            return
        zone = self.random.choice(zones)
        kind = min(zone.counts)
        change, everywhere = self.random.choice(self.changes(kind, zone.name.tenant))
        self.happened += 1
        self._in_force += 1
        all_names = list(self.cluster.bench.shards)
        own = home(local_tenant(kind), all_names)  # A limit begins and ends on the kind's own shard, see `steering`.
        names = sorted(all_names, key=lambda name: name != own) if everywhere else [shadow.name]
        self.cluster.operator.do("rule", partial(self._hold, names, change))

    def _hold(self, names: Sequence[str], change: Change) -> None:
        shards = [self._open(name) for name in names]
        for shard in shards:
            self.insist(shard, partial(change, shard, holds=True))
        # Not for ever: a world looks, seconds after the trouble is over, whether everything goes on.
        self.cluster.world.sleep_us(int(min(self.random.expovariate(1 / self.lasts_us), 3 * self.lasts_us)))
        for shard in reversed(shards):
            self.insist(shard, partial(change, shard, holds=False))
            self.end(shard)
        self._in_force -= 1

    def insist(self, shard: Shard, body: Callable[[Attempt], object]) -> None:
        """Run `body` in a transaction until the store takes it."""
        while True:
            try:
                shard.transact(body)
            except shard.db.errors:
                self.cluster.world.note("the operator tries again")
                self.cluster.world.sleep_us(TRY_AGAIN_US)
            else:
                return

    def _open(self, name: str) -> Shard:
        if not self._shards:
            self._shards = self.cluster.open_shards(self.cluster.operator.host)
        return self._shards[name]


class PausesByRule(_RulesForAWhile):
    """Something that has work is paused, of one shard, and goes on after a while.

    Whoever lets a kind go on leaves it to the consumers, every other time, to wake what is parked.
    """

    def changes(self, kind: str, tenant: Tenant) -> list[tuple[Change, bool]]:
        """See there."""
        return [(_shard_rule, False), (partial(_kind_rule, kind), False), (partial(_tenant_rule, tenant), False)]

    def check(self) -> str | None:
        """Everything goes on, and nothing is parked."""
        shadows = self.cluster.bench.shards.values()
        parked = [str(zone) for shard in shadows for zone, kinds in shard.parked.items() if kinds]
        return super().check() or (f"parked still: {parked[0]}, one of {len(parked)}" if parked else None)

    def end(self, shard: Shard) -> None:
        """See there."""
        if self.random.random() < 0.5:
            self.insist(shard, lambda attempt: rules.wake_parked(attempt.tr, shard.layout, now_us=attempt.now_us))


class LimitsByRule(_RulesForAWhile):
    """A tenant, or a kind of all shards, may run or start no more than so many at once, for a while."""

    lasts_us = 2_000_000

    def changes(self, kind: str, tenant: Tenant) -> list[tuple[Change, bool]]:
        """See there."""
        most, per_s = self.random.randint(1, 3), self.random.choice([None, 5.0, 100.0])
        limit: dict[str, Any] = {"max_running": most, "per_s": per_s, "burst": 2}
        return [(partial(_kind_limit, kind, limit), True), (partial(_tenant_limit, tenant, limit), False)]


class WeightsByRule(_RulesForAWhile):
    """A tenant is worth less than the others, or more, for a while."""

    lasts_us = 2_000_000

    def changes(self, kind: str, tenant: Tenant) -> list[tuple[Change, bool]]:
        """See there."""
        return [(partial(_tenant_weight, tenant, self.random.choice(WEIGHTS)), False)]


_NO_LIMIT: dict[str, Any] = {"max_running": None, "per_s": None, "burst": 1}


def _kind_limit(kind: str, limit: dict[str, Any], shard: Shard, attempt: Attempt, *, holds: bool) -> None:
    rules.change_kind_rule(attempt.tr, kind, **(limit if holds else _NO_LIMIT))


def _tenant_limit(tenant: Tenant, limit: dict[str, Any], shard: Shard, attempt: Attempt, *, holds: bool) -> None:
    changes = limit if holds else _NO_LIMIT
    rules.change_tenant_rule(attempt.tr, shard.layout, tenant, now_us=attempt.now_us, **changes)


def _tenant_weight(tenant: Tenant, weight: float, shard: Shard, attempt: Attempt, *, holds: bool) -> None:
    changes = {"weight": weight if holds else 1.0}
    rules.change_tenant_rule(attempt.tr, shard.layout, tenant, now_us=attempt.now_us, **changes)


def _shard_rule(shard: Shard, attempt: Attempt, *, holds: bool) -> None:
    rules.pause_shard(attempt.tr) if holds else rules.resume_shard(attempt.tr)


def _kind_rule(kind: str, shard: Shard, attempt: Attempt, *, holds: bool) -> None:
    rules.pause_kind(attempt.tr, kind) if holds else rules.resume_kind(attempt.tr, kind)


def _tenant_rule(tenant: Tenant, shard: Shard, attempt: Attempt, *, holds: bool) -> None:
    rules.change_tenant_rule(attempt.tr, shard.layout, tenant, now_us=attempt.now_us, paused=holds)
