"""Fairness: no tenant waits for the others longer than a bound that follows from the settings (QuiCK section 6)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from fairlead.actors.scanning.idle_policy import RESCAN_US, SCAN_BACKOFF_FACTOR_MAX, WATCHED_RESCAN_US
from fairlead.actors.scanning.partitioned import stealable_after_us
from fairlead.simulation.faults.policies import WEIGHTS
from fairlead.simulation.oracles.oracle import HandlerRun, Oracle
from fairlead.simulation.replica import ParsedCommit, ShardReplica, ZoneName
from fairlead.simulation.world import START_US, World
from fairlead.zones.records import ItemRecord

if TYPE_CHECKING:
    from fairlead.simulation.plan import Plan

LOOK_US = 100_000  # The interval between two checks of the waits.
ITEM_US = 300_000  # The time that an item occupies a slot: twice the mean of the standard workload.
RECOVERY_US = 10_000_000  # Machines restart within four seconds, and heartbeats are written once a second.
LONGEST_US = 6_000_000  # The longest sleep of a handler, which no timeout interrupts.
ZONES_OF_TENANT = 2
UNEVEN = max(WEIGHTS) / min(1.0, *WEIGHTS)  # The most turns of another tenant per turn of a tenant.


def fairness_bound_us(plan: Plan, item_us: int = ITEM_US) -> int:
    """Return the longest wait of a tenant, by the true time, while all consumers work.

    First, the tenant's pointer is found late. Clocks differ, an enqueue does not wake a pointer that vests a little
    later, and an idle scanner polls seldom. Another consumer may have leased the pointer, or delayed it because it
    cannot run the items. With partitions, other consumers steal the pointer only when it is overdue.

    Then the pointer waits for its turn, because a processed pointer goes behind all others that have vested. Each of
    these is processed once before it, those of greater weight more often. Each takes `dequeue_max` items to the slots,
    all of them together no more than there are.

    Last, each slot may just have begun the longest handler. This counts twice, because scanners that select at random
    do not keep the order.
    """
    consumer = plan.consumer
    seen_late_ms = (
        plan.zones.wake_slack_ms
        + SCAN_BACKOFF_FACTOR_MAX * consumer.poll_interval_ms
        + (stealable_after_us(consumer) // 1000 if consumer.selection == "partitioned" else 0)
        + consumer.pointer_lease_ms
        + consumer.throttle_delay_ms
        + consumer.pause_recheck_ms
    )
    turns = ZONES_OF_TENANT * (plan.tenants + 1) * (UNEVEN if "weights by policy" in plan.faults else 1)
    items_before = int(min(turns * consumer.dequeue_max, plan.items))
    slots = plan.consumers * consumer.workers * consumer.slots
    look_us = RESCAN_US if plan.has_commit_sequence else WATCHED_RESCAN_US
    return 2 * plan.skew_us_max + 1000 * seen_late_ms + look_us + items_before * item_us // slots + 2 * LONGEST_US


class NoTenantWaitsTooLong(Oracle):
    """A zone with vested items has one started within the bound.

    The time counts from its vesting, or from the last start, or from a move of the tenant.

    It is checked while tenants wait only for each other's work: from the start in a calm run, otherwise after the
    recovery from all faults. Poison candidates do not count, because they wait for one another.

    Args:
      kinds: the kinds that every consumer handles, without limits.
    """

    promise = "no tenant waits longer than the fairness bound"

    def __init__(self, world: World, plan: Plan, *, kinds: Collection[str]) -> None:
        super().__init__(world)
        self._bound_us = fairness_bound_us(plan)
        self._calm_from_us = START_US if plan.is_calm else START_US + plan.trouble_us + RECOVERY_US
        self._kinds = kinds
        self._before_isolation = plan.zones.expiries_before_isolation
        self._next_check_us: dict[str, int] = {}  # by shard
        self._started_us: dict[tuple[str, ZoneName], int] = {}

    def on_start(self, run: HandlerRun) -> None:
        """See `Oracle`."""
        self._started_us[run.item.shard, ZoneName(run.item.tenant, run.item.zone)] = self.world.now_us()

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`. Consumers commit every second, so the check is frequent."""
        now_us, shard = self.world.now_us(), parsed.shard
        for name in parsed.zones if parsed.arrived else ():
            self._started_us[shard.name, name] = now_us  # Its queues begin anew here.
        if now_us >= self._next_check_us.get(shard.name, self._calm_from_us):
            self._next_check_us[shard.name] = now_us + LOOK_US
            self._check_waits(shard, now_us)

    def _check_waits(self, shard: ShardReplica, now_us: int) -> None:
        for zone in shard.zones.values():
            free = [record.vesting_us for record in zone.items.values() if self._may_run(record)]
            since_us = max(
                min(free, default=now_us), self._calm_from_us, self._started_us.get((shard.name, zone.name), 0)
            )
            if now_us - since_us > self._bound_us:
                self.report_violation(
                    f"{zone} of {shard.name} holds vested work, and has waited for {now_us - since_us} us"
                )

    def _may_run(self, record: ItemRecord) -> bool:
        return record.kind in self._kinds and record.expiry_count + record.started < self._before_isolation
