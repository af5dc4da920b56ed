"""A sweeper: runs the items that clean up after ended items and stopped takers, as a worker does, also twice.

Those of takers it runs early, too. Some become dead letters, as workers die with them; an operator retries these. It
lets kept ids expire, as housekeeping does.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

from fairlead.records.accesses import Op, run_op, together
from fairlead.records.errors import IndexUnavailable, Interrupted
from fairlead.records.on_shards.cleanup import CLEANUP_KIND, DROPPED_KIND
from fairlead.records.on_shards.performing import ShardRecords
from fairlead.records.on_shards.unique_items import ItemLocations, ItemTransaction, item_key
from fairlead.records.protocol import Protocol
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.open_shards import OpenShards
from fairlead.simulation.unique_items.stock import (
    WORK,
    ZONES,
    Habits,
    dead_letters_in,
    items_in,
    make_dead_letter,
    on_zone,
    retry_dead_letter,
)
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.errors import ItemGone, ItemUnreadable, LeaseLost, Restoring, TenantBusy, TenantMoved
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.id_retention import expire
from fairlead.zones.queue.items import Item, unpack_payload
from fairlead.zones.queue.poison_candidates import POISON

LOOK_US = 400_000
TWICE_FRAC = 0.2
DIES_FRAC = 0.1
RETRIED_FRAC = 0.3
EXPIRES_FRAC = 0.1
EXPIRED_MAX = 100


class Sweeper:
    """One incarnation of a sweeper. `early_frac`: how often it runs an item of a taker before its time."""

    def __init__(
        self, host: SimulatedHost, shards: OpenShards, random: Random, habits: Habits, early_frac: float
    ) -> None:
        self._host = host
        self._shards = shards
        self._draw = random
        self._habits = habits
        self._early_frac = early_frac
        self._protocol = Protocol(ends_at_once=True)

    def run(self) -> None:
        """Look at all queue zones, again and again, for ever."""
        while True:
            for tenant in self._habits.tenants:
                for zone in ZONES:
                    try:
                        self.look(tenant, zone)
                    except (StoreError, Restoring, TenantBusy, TenantMoved) as error:
                        self._host.world.note(f"gives up at {tenant}: {error!r}")
            if self._draw.random() < EXPIRES_FRAC:
                self._expire()
            self._host.clock.sleep_us(LOOK_US)

    def look(self, tenant: Tenant, zone: str) -> None:
        """Run the items of a queue zone whose time has come, and some of the others."""
        for item in items_in(self._shards, tenant, zone):
            is_due = item.record.vesting_us <= self._host.clock.now_us()
            is_early = item.record.kind == CLEANUP_KIND and self._draw.random() < self._early_frac
            if item.record.kind == WORK or not (is_due or is_early):
                continue
            if self._draw.random() < DIES_FRAC:
                self._make_dead_letter(tenant, zone, item)
            else:
                self._run(tenant, zone, item)
        for dead in dead_letters_in(self._shards, tenant, zone):
            if dead.record.item.kind != WORK and self._draw.random() < RETRIED_FRAC:
                on_zone(
                    self._shards,
                    tenant,
                    zone,
                    lambda queue, attempt: retry_dead_letter(queue, attempt, dead.id),  # noqa: B023
                )

    def _make_dead_letter(self, tenant: Tenant, zone: str, item: Item) -> None:
        """Let an item become a dead letter, as one does whose worker dies while it runs it alone."""
        with suppress(LeaseLost):
            on_zone(
                self._shards, tenant, zone, lambda queue, attempt: make_dead_letter(queue, attempt, item.id, POISON)
            )

    def _run(self, tenant: Tenant, zone: str, item: Item) -> None:
        records = ShardRecords(self._shards, ItemLocations(), None, transaction=ItemTransaction)
        try:
            run_op(self._operation(tenant, zone, item), records.perform)
        except (IndexUnavailable, Interrupted):
            return  # The item stays.
        if self._draw.random() < TWICE_FRAC:
            return
        try:
            on_zone(
                self._shards,
                tenant,
                zone,
                lambda queue, attempt: queue.complete(attempt.tr, item.id, now_us=attempt.now_us),
            )
        except (ItemGone, ItemUnreadable):
            return

    def _operation(self, tenant: Tenant, zone: str, item: Item) -> Op[Any]:
        payload = unpack_payload(item.record.payload)
        if item.record.kind == DROPPED_KIND:
            return self._protocol.drop_op(payload["key"], payload["generation"], payload["keys"], payload["below"])
        if item.record.kind == CLEANUP_KIND:
            return self._protocol.end_dummy_op(payload["key"], payload["generation"])
        return together([
            self._protocol.drop_op(item_key(tenant, zone, item_id), run, [index_key], None)
            for index_key, item_id, run in payload["ended"]
        ])  # fmt: skip

    def _expire(self) -> None:
        for shard in self._shards.values():
            for part in range(shard.layout.part_count):
                try:
                    shard.transact(
                        lambda attempt, part=part: expire(  # type: ignore[misc]
                            attempt.tr, part, now_us=attempt.now_us, keys_max=EXPIRED_MAX
                        )
                    )
                except StoreError as error:
                    self._host.world.note(f"lets nothing expire: {error!r}")
