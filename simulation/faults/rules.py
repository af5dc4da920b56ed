"""An operator who pauses tenants, kinds and whole shards, and lets each go on a moment later."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from simulation.faults.fault import Fault
from simulation.shadow import ShardShadow
from zones import rules
from zones.attempt import Attempt
from zones.layout import Tenant
from zones.records import TenantRule
from zones.shard import Shard

LASTS_US_MEAN = 500_000
TRY_AGAIN_US = 100_000

Change = Callable[[Shard, Attempt, bool], None]  # Pauses something, or lets it go on.


class PausesByRule(Fault):
    """Something that has work is paused, of one shard, and goes on after a while.

    Whoever lets a kind go on leaves it to the consumers, every other time, to wake what is parked.
    """

    costs_leases = False

    def set_up(self) -> None:
        """See `Fault`."""
        self._shards: dict[str, Shard] = {}
        self._paused = 0
        self.now_and_then(self.random.choice([0.2e6, 1e6]), self._pause)

    def check(self) -> str | None:
        """Everything goes on, and nothing is parked."""
        if self._paused:
            return f"{self._paused} pauses have not ended"
        shadows = self.cluster.bench.shards.values()
        parked = [str(zone) for shard in shadows for zone, kinds in shard.parked.items() if kinds]
        return f"parked still: {parked[0]}, one of {len(parked)}" if parked else None

    def _pause(self) -> None:
        shadow = self.random.choice(list(self.cluster.bench.shards.values()))
        zones = [zone for zone in shadow.zones.values() if zone.counts]
        if not zones:
            return
        zone = self.random.choice(zones)
        changes: list[Change] = [
            _shard_rule,
            partial(_kind_rule, min(zone.counts)),
            partial(_tenant_rule, zone.name.tenant),
        ]
        change = self.random.choice(changes)
        self.happened += 1
        self._paused += 1
        self.cluster.operator.do("pause", partial(self._hold, shadow, change))

    def _hold(self, shadow: ShardShadow, change: Change) -> None:
        shard = self._open(shadow.name)
        self._insist(shard, lambda attempt: change(shard, attempt, True))
        self.cluster.world.sleep_us(int(self.random.expovariate(1 / LASTS_US_MEAN)))
        self._insist(shard, lambda attempt: change(shard, attempt, False))
        if self.random.random() < 0.5:
            self._insist(shard, lambda attempt: rules.wake_parked(attempt.tr, shard.layout, now_us=attempt.now_us))
        self._paused -= 1

    def _insist(self, shard: Shard, body: Callable[[Attempt], object]) -> None:
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


def _shard_rule(shard: Shard, attempt: Attempt, paused: bool) -> None:
    rules.pause_shard(attempt.tr) if paused else rules.resume_shard(attempt.tr)


def _kind_rule(kind: str, shard: Shard, attempt: Attempt, paused: bool) -> None:
    rules.pause_kind(attempt.tr, kind) if paused else rules.resume_kind(attempt.tr, kind)


def _tenant_rule(tenant: Tenant, shard: Shard, attempt: Attempt, paused: bool) -> None:
    rules.set_tenant_rule(attempt.tr, shard.layout, tenant, TenantRule(paused=paused), now_us=attempt.now_us)
