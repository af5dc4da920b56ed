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

LOOK_US = 100_000  # How often the oracle looks who waits.
ITEM_US = 300_000  # For how long an item occupies a slot: twice the mean of the standard workload.
RECOVERY_US = 10_000_000  # Machines come back within four seconds, and show that they live once a second.
LONGEST_US = 6_000_000  # A handler that sleeps for this long, and does not hear that its time is up.
ZONES_OF_TENANT = 2
UNEVEN = max(WEIGHTS) / min(1.0, *WEIGHTS)  # How many turns others have at most before the one of a tenant.


def fairness_bound_us(plan: Plan) -> int:
    """Return how long a tenant may wait at most, by the true time, while all consumers do their work.

    Its pointer is seen late: clocks differ, an enqueue leaves a pointer alone that vests a little later, an idle
    scanner polls seldom; another consumer may have leased the pointer, or put it off for what cannot run there. Where
    consumers have own parts, it is looked at by others than its owner, who may be full, once it is overdue.

    Then it has its turn, since a pointer that was served goes behind all others that have vested: each of them is
    served once before it, of greater weight as much oftener, and takes `dequeue_max` items to the slots, but all of
    them no more than there are.

    Last, each slot may just have begun the longest handler; and again, for those that scan at random do not hold to
    the order that the one in order keeps.
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
    turns = ZONES_OF_TENANT * (plan.tenants + 1) * (UNEVEN if "weights by rule" in plan.faults else 1)
    items_before = int(min(turns * consumer.dequeue_max, plan.items))
    slots = plan.consumers * consumer.workers * consumer.slots
    look_us = RESCAN_US if plan.tells_changes else WATCHED_RESCAN_US
    return 2 * plan.skew_us_max + 1000 * seen_late_ms + look_us + items_before * ITEM_US // slots + 2 * LONGEST_US


class NoTenantWaitsTooLong(Oracle):
    """A zone that holds vested work has some of it started within `bound_us`: of its vesting, or of the last start.

    It is watched where nothing but the others' work holds a tenant up: from the start in a calm run, else once all that
    faults did has passed. Suspects are left out: they wait for one another.

    Args:
      kinds: those that any consumer may run at any time; an item of another may wait for what its kind waits for.
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
        """See `Oracle`. Consumers commit every second, so somebody always looks."""
        now_us, shard = self.world.now_us(), parsed.shard
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
