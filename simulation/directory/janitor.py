"""A janitor of the directory: runs cleanup items and repairs, as a worker does; also early, and twice."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from fairlead.records.accesses import Op, run_op
from fairlead.records.errors import IndexUnavailable, Interrupted
from fairlead.records.on_shards.performing import ShardRecords
from fairlead.records.on_shards.repairing import REPAIR_KIND
from fairlead.records.on_shards.slots import Locations
from fairlead.records.protocol import Protocol
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.open_shards import OpenShards
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.errors import ItemGone, ItemUnreadable, TenantBusy, TenantMoved
from fairlead.zones.layout import Tenant
from fairlead.zones.ownership import check_home
from fairlead.zones.queue.items import Item, unpack_payload
from fairlead.zones.queue.queue_zone import LATER_THAN_ANY_US
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

LOOK_US = 400_000
ITEMS_MAX = 20


class Janitor:
    """One incarnation of a janitor.

    Args:
      tenants: those that hold records.
      early_frac: how often it runs an item before its time.
    """

    def __init__(
        self,
        host: SimulatedHost,
        shards: OpenShards,
        locations: Locations,
        tenants: Sequence[Tenant],
        random: Random,
        early_frac: float,
    ) -> None:
        self._host = host
        self._shards = shards
        self._locations = locations
        self._tenants = tenants
        self._draw = random
        self._early_frac = early_frac

    def run(self) -> None:
        """Look at all tenants, again and again, for ever."""
        while True:
            for tenant in self._tenants:
                try:
                    self.look(tenant)
                except (StoreError, TenantBusy, TenantMoved) as error:
                    self._host.world.note(f"gives up at {tenant}: {error!r}")
            self._host.clock.sleep_us(LOOK_US)

    def look(self, tenant: Tenant) -> None:
        """Run the items of a tenant whose time has come, and some of the others."""
        for item in self._shards.at_home(tenant, lambda shard: _items(shard, tenant)):
            if item.record.vesting_us <= self._host.clock.now_us() or self._draw.random() < self._early_frac:
                self._run(tenant, item)

    def _run(self, tenant: Tenant, item: Item) -> None:
        payload = unpack_payload(item.record.payload)
        is_repair = item.record.kind == REPAIR_KIND
        operation: Op[Any] = (
            Protocol(ends_at_once=True).repair_op(payload["key"])
            if is_repair
            else Protocol().clean_op(payload["key"], payload["generation"], payload["keys"])
        )
        try:
            run_op(operation, ShardRecords(self._shards, self._locations, None).perform)
        except (IndexUnavailable, Interrupted):
            return  # The item stays.
        if self._draw.random() < 0.2:
            return  # It runs twice.
        try:
            self._shards.at_home(
                tenant,
                lambda shard: shard.transact(
                    lambda attempt: shard.zone(tenant).complete(attempt.tr, item.id, now_us=attempt.now_us)
                ),
            )
        except (ItemGone, ItemUnreadable):
            return


def _items(shard: Shard, tenant: Tenant) -> list[Item]:
    """Return the items of a tenant that lives on a shard."""

    def body(attempt: Attempt) -> list[Item]:
        queue = shard.zone(tenant)
        check_home(attempt.tr, queue.location)
        return queue.peek(attempt.tr, items_max=ITEMS_MAX, now_us=LATER_THAN_ANY_US)

    return shard.transact(body)
