"""A janitor of the directory: runs cleanup items and repairs, as a worker does; also early, and twice.

It marks the records of tenants that were restored, by the handler of the product.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

from fairlead.records.accesses import Op, run_op
from fairlead.records.errors import IndexUnavailable, Interrupted
from fairlead.records.on_shards.performing import ShardRecords
from fairlead.records.on_shards.repairing import REPAIR_KIND, RESTORED_KIND
from fairlead.records.on_shards.slots import Locations
from fairlead.records.protocol import Protocol
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.open_shards import OpenShards
from fairlead.workflows.record_repair import repair_handlers
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.errors import ItemGone, ItemUnreadable, Restoring, TenantBusy, TenantMoved
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
        handlers = repair_handlers(lambda: shards, lambda _: locations)
        (self._marks,) = (each.function for each in handlers if each.kind == RESTORED_KIND)

    def run(self, look_us: int) -> None:
        """Look at all tenants, again and again, for ever. `look_us`: the pause between two looks."""
        while True:
            for tenant in self._tenants:
                try:
                    self.look(tenant)
                except (StoreError, TenantBusy, TenantMoved, Restoring) as error:
                    self._host.world.note(f"gives up at {tenant}: {error!r}")
            self._host.clock.sleep_us(look_us)

    def look(self, tenant: Tenant) -> None:
        """Run the items of a tenant whose time has come, and some of the others."""
        for item in self._shards.at_home(tenant, lambda shard: _items(shard, tenant)):
            if item.record.vesting_us <= self._host.clock.now_us() or self._draw.random() < self._early_frac:
                self._run(tenant, item)

    def _run(self, tenant: Tenant, item: Item) -> None:
        try:
            if item.record.kind == RESTORED_KIND:
                self._mark_all(tenant)
            else:
                run_op(_operation(item), ShardRecords(self._shards, self._locations, None).perform)
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

    def _mark_all(self, tenant: Tenant) -> None:
        held: Any = SimpleNamespace(job=SimpleNamespace(tenant=tenant, payload=None))
        self._shards.at_home(tenant, lambda shard: self._marks.run_attempt(held, shard, None))


def _operation(item: Item) -> Op[Any]:
    payload = unpack_payload(item.record.payload)
    if item.record.kind == REPAIR_KIND:
        return Protocol(ends_at_once=True).repair_op(payload["key"])
    return Protocol().clean_op(payload["key"], payload["generation"], payload["keys"])


def _items(shard: Shard, tenant: Tenant) -> list[Item]:
    """Return the items of a tenant that lives on a shard."""

    def body(attempt: Attempt) -> list[Item]:
        queue = shard.zone(tenant)
        check_home(attempt.tr, queue.location)
        return queue.peek(attempt.tr, items_max=ITEMS_MAX, now_us=LATER_THAN_ANY_US)

    return shard.transact(body)
