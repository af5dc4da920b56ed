"""Restores of tenants that hold people: clients who restore them to snapshots, and keepers who go on with that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from fairlead.records.on_shards.repairing import mark_once_restored
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.open_shards import OpenShards
from fairlead.simulation.replica import ShardReplica
from fairlead.simulation.snapshots.calls import SnapshotCalls
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.errors import Restoring, SnapshotGone, TenantBusy, TenantMoved, TooManySnapshots
from fairlead.zones.layout import Tenant
from fairlead.zones.records import RestoreRecord
from fairlead.zones.shard import Shard
from fairlead.zones.snapshots.upkeep import SnapshotUpkeep
from fairlead.zones.transaction_runner import Attempt

SNAPSHOTS_MAX = 4
TAKEN_FRAC = 0.4
LOOK_US = 400_000
PAUSES_US = (1_000, 20_000, 300_000)


RESTORED = "every restore comes to an end"


class RecordSnapshotCalls(SnapshotCalls):
    """The calls on the snapshots of a tenant, on shards that store types of records; see `fairlead.snapshots`."""

    def begin_restore(self, shard: Shard, attempt: Attempt, number: int) -> RestoreRecord:
        """See `SnapshotCalls`. All records of the tenant are to be marked, once it is restored."""
        begun = super().begin_restore(shard, attempt, number)
        mark_once_restored(attempt, shard, self.tenant)
        return begun


class Restorer:
    """One incarnation of a client. `pauses_frac`: how often it pauses between two transactions of a restore."""

    def __init__(
        self, host: SimulatedHost, shards: OpenShards, tenants: Sequence[Tenant], random: Random, pauses_frac: float
    ) -> None:
        self._host = host
        self._shards = shards
        self._tenants = tenants
        self._draw = random
        self._pauses_frac = pauses_frac

    def call_one(self) -> None:
        """Take a snapshot of a tenant, or restore the tenant to one; drop one, if there are many. It may give up."""
        tenant = self._draw.choice(self._tenants)
        calls = RecordSnapshotCalls(self._shards, tenant, self._pause)
        try:
            kept = calls.kept()
            if not kept or (len(kept) < SNAPSHOTS_MAX and self._draw.random() < TAKEN_FRAC):
                calls.take(None)
                return
            calls.restore(self._draw.choice(kept))
            self._host.world.note(f"has restored {tenant}")
            if len(kept) >= SNAPSHOTS_MAX:
                calls.drop(self._draw.choice(kept))
        except (StoreError, TenantBusy, TenantMoved, Restoring, TooManySnapshots, SnapshotGone) as error:
            self._host.world.note(f"gives up a restore: {error!r}")

    def _pause(self) -> None:
        if self._host.random.random() < self._pauses_frac:
            self._host.clock.sleep_us(self._draw.choice(PAUSES_US))


def keep_restoring(host: SimulatedHost, shards: OpenShards) -> None:
    """Go on with restores that were left, as housekeeping does, for ever."""
    upkeeps = [SnapshotUpkeep(shard) for shard in shards.values()]
    while True:
        for upkeep in upkeeps:
            try:
                upkeep.look(now_us=host.clock.now_us())
            except StoreError as error:
                host.world.note(f"gives up an upkeep: {error!r}")
        host.clock.sleep_us(LOOK_US)


def is_restoring(shards: Iterable[ShardReplica]) -> bool:
    """Whether a tenant is being restored where it lives."""
    return any(
        shard.lives_here(tenant) and owner.snapshots is not None and owner.snapshots.restore is not None
        for shard in shards
        for tenant, owner in shard.owners.items()
    )
