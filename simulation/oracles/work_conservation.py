"""Waits: no item waits for long while slots are free (QuiCK section 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

from fairlead.actors.housekeeping.chore_schedule import LATE_POINTERS, REST_HEARTBEATS, WAKING
from fairlead.actors.scanning.idle_policy import SCAN_BACKOFF_FACTOR_MAX, WATCHED_RESCAN_US
from fairlead.actors.scanning.part_watch import LOOK_US as PART_LOOK_US
from fairlead.actors.scanning.partitioned import stealable_after_us
from fairlead.simulation.oracles.fairness import LOOK_US, RECOVERY_US, ZONES_OF_TENANT
from fairlead.simulation.oracles.oracle import HandlerRun, Oracle
from fairlead.simulation.replica import (
    ItemName,
    ParsedCommit,
    Paused,
    ShardReplica,
    ZoneName,
    ZoneReplica,
)
from fairlead.simulation.world import START_US, World
from fairlead.zones.records import ItemRecord
from fairlead.zones.top_level.sessions import HEARTBEAT_US

if TYPE_CHECKING:
    from fairlead.simulation.plan import Plan

TRANSACTIONS = 3  # From a vested pointer to the start of a handler: a scan, a dequeue, and one for a conflict.
CALLS = 4  # Pointers handed over and answered, items sent and answered.


def waiting_bound_us(plan: Plan) -> int:
    """Return the longest wait of a queue, by the true time, while slots are free and all consumers work.

    The queue's pointer is found late, as in `fairness_bound_us`. But each other pointer costs a scan and a dequeue, and
    no slot. Once a second a consumer scans its own parts, and wakes the pointers of ended pauses. Part by part it also
    wakes pointers that a wrong clock has delayed. If reads are expensive, the consumer does the latter two less often.
    Lost and refused watches add to this, see `watched_late_us`.
    """
    zones, consumer, latencies = plan.zones, plan.consumer, plan.latencies
    seen_late_ms = (
        zones.wake_slack_ms
        + SCAN_BACKOFF_FACTOR_MAX * consumer.poll_interval_ms
        + (stealable_after_us(consumer) // 1000 if consumer.selection == "partitioned" else 0)
        + consumer.pointer_lease_ms
        + consumer.throttle_delay_ms
        + consumer.pause_recheck_ms
    )
    transaction_us = latencies.read_version_us + 4 * latencies.read_us + latencies.commit_us
    turn_us = TRANSACTIONS * transaction_us + CALLS * plan.call_us
    turns = ZONES_OF_TENANT * (plan.tenants + 1)
    rest_heartbeats = 1 if plan.has_commit_sequence else REST_HEARTBEATS[WAKING]
    late_heartbeats = plan.part_count * (1 if plan.has_commit_sequence else REST_HEARTBEATS[LATE_POINTERS])
    heartbeats = (
        1 + rest_heartbeats * ("pauses by policy" in plan.faults) + late_heartbeats * ("wrong clocks" in plan.faults)
    )
    heartbeats_us = heartbeats * HEARTBEAT_US
    return 2 * plan.skew_us_max + 1000 * seen_late_ms + turns * turn_us + heartbeats_us + watched_late_us(plan)


def watched_late_us(plan: Plan) -> int:
    """Return the delay of a change whose watch is lost, or refused."""
    if plan.has_commit_sequence:
        return 0
    lost, refused = "lost watches" in plan.faults, "refused watches" in plan.faults
    return WATCHED_RESCAN_US if lost else refused * PART_LOOK_US


class NothingWaitsBesideFreeSlots(Oracle):
    """An item that may run is leased and starts within `waiting_bound_us`, while every consumer has a free slot.

    The wait begins when the item vests, when its lease ends, or when its lease was first found to end later than
    allowed. The wait begins anew with each start in the queue, and when the tenant has moved. It also begins anew while
    a consumer has no free slot, and while the kind, the tenant or the shard is paused or limited. Poison candidates do
    not count, because they wait for one another.

    This is checked from the start in a calm run, otherwise after the recovery from all faults.

    Args:
      kinds: the kinds that every consumer handles, without limits.
    """

    promise = "nothing waits longer than the waiting bound beside free slots"

    def __init__(self, world: World, plan: Plan, *, kinds: Collection[str]) -> None:
        super().__init__(world)
        self._plan = plan
        self._bound_us = waiting_bound_us(plan)
        self._longest_lease_us = 1000 * (plan.zones.max_item_lease_ms + plan.zones.max_skew_ms) + plan.skew_us_max
        self._calm_from_us = START_US if plan.is_calm else START_US + plan.trouble_us + RECOVERY_US
        self._kinds = kinds
        self._running: Counter[str] = Counter()  # handlers that run, by worker
        self._runs: Counter[ItemName] = Counter()
        self._full_us = START_US  # the last time at which a consumer had no free slot
        self._held_back_us: dict[tuple[str, Paused], int] = {}  # the last time at which each was paused or limited
        self._started_us: dict[tuple[str, ZoneName], int] = {}
        self._far_since_us: dict[tuple[ItemName, bytes], int] = {}  # leases that end later than allowed
        self._next_check_us: dict[str, int] = {}

    def on_start(self, run: HandlerRun) -> None:
        """See `Oracle`."""
        self._running[run.actor] += 1
        self._runs[run.item] += 1
        self._started_us[run.item.shard, ZoneName(run.item.tenant, run.item.zone)] = self.world.now_us()
        self._note_slots()

    def on_end(self, run: HandlerRun) -> None:
        """See `Oracle`."""
        self._note_slots()
        self._running[run.actor] -= 1
        self._runs[run.item] -= 1

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`. Consumers commit every second, so the check is frequent."""
        now_us, shard = self.world.now_us(), parsed.shard
        for name in parsed.zones if parsed.arrived else ():
            self._started_us[shard.name, name] = now_us  # Its queues begin anew here.
        for what in (*shard.paused_since, *shard.limits):
            self._held_back_us[shard.name, what] = now_us
        if now_us >= self._next_check_us.get(shard.name, self._calm_from_us):
            self._next_check_us[shard.name] = now_us + LOOK_US
            self._note_slots()
            for zone in shard.zones.values():
                self._check_waits(shard, zone, now_us)

    def _note_slots(self) -> None:
        plan = self._plan
        for number in range(plan.consumers):
            workers = [f"c{number}.worker{each}" for each in range(plan.consumer.workers)]
            if all(self._running[worker] >= plan.consumer.slots for worker in workers):
                self._full_us = self.world.now_us()

    def _check_waits(self, shard: ShardReplica, zone: ZoneReplica, now_us: int) -> None:
        tenant = zone.name.tenant
        held_back = [self._held_back_us.get((shard.name, what), 0) for what in (None, tenant)]
        started_us = self._started_us.get((shard.name, zone.name), 0)
        standing_us = max(self._calm_from_us, self._full_us, started_us, *held_back)
        if now_us - standing_us <= self._bound_us:
            return
        for item_id, record in zone.items.items():
            item = ItemName(shard.name, tenant, zone.name.zone, item_id)
            if not self._may_run(record) or self._runs[item]:
                continue
            since_us = max(
                standing_us, self._held_back_us.get((shard.name, record.kind), 0), self._due_us(item, record, now_us)
            )
            if now_us - since_us > self._bound_us:
                self.report_violation(f"{item}, {record.kind}, waits for {now_us - since_us} us")

    def _due_us(self, item: ItemName, record: ItemRecord, now_us: int) -> int:
        """Return the time from which an item can run. A time in the future means that it cannot run yet."""
        if record.lease_id and record.vesting_us > now_us + self._longest_lease_us:
            return self._far_since_us.setdefault((item, record.lease_id), now_us)
        return record.vesting_us

    def _may_run(self, record: ItemRecord) -> bool:
        return (
            record.kind in self._kinds
            and record.expiry_count + record.started < self._plan.zones.expiries_before_isolation
        )
