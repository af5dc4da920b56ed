"""One run of a simulated cluster from one seed: with faults, then without them until all work is done, with oracles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from fairlead.actors.execution.deadlines import TRANSACTION_LEASE_US
from fairlead.simulation.cluster import COORDINATOR, Application, Cluster
from fairlead.simulation.faults.fault import Fault
from fairlead.simulation.oracles.call_rates import NobodyCallsInABusyLoop
from fairlead.simulation.oracles.claims import ClaimsHaveKeys, SessionsLastAsLongAsTheirHeartbeats
from fairlead.simulation.oracles.consistency import CountsEqualItems, IndexNamesEveryItem
from fairlead.simulation.oracles.found_by_keys import KeysFindItems, SearchesMissNothing
from fairlead.simulation.oracles.id_retention import IdsStayTaken
from fairlead.simulation.oracles.in_order_lease import OneScannerGoesInOrder
from fairlead.simulation.oracles.item_lifecycle import (
    ItemsAreEnqueuedOnce,
    ItemsRunBeforeTheyGo,
    NoLeaseExpiresWithoutCause,
    OnlyTheTriedAreDeadLettered,
)
from fairlead.simulation.oracles.lease_expiries import (
    FailuresAreCounted,
    PoisonCandidatesGoOneByOne,
    PoisonCandidatesRunIsolated,
)
from fairlead.simulation.oracles.leases import LeasesAreRespected, LeasesRunOnce
from fairlead.simulation.oracles.leftovers import NothingIsLeftBehind, sleeps_for_a_hold
from fairlead.simulation.oracles.limits import DequeuesTakeTheirShare, KindsKeepToFleetLimits, TenantsKeepToTheirLimits
from fairlead.simulation.oracles.moving import TenantsMoveWhole
from fairlead.simulation.oracles.oracle import Oracle, OracleSuite
from fairlead.simulation.oracles.pauses import WhatIsPausedStays
from fairlead.simulation.oracles.pointers import PointerBounds, PointersLeadToWork
from fairlead.simulation.oracles.spanning import DecisionsAreFinal, LocksHaveTransactions
from fairlead.simulation.oracles.work_conservation import NothingWaitsBesideFreeSlots, watched_late_us
from fairlead.simulation.oracles.zone_operations import ChangesAreOperations
from fairlead.simulation.plan import Plan, draw_plan
from fairlead.simulation.reduction import NO_REDUCTION, Reduction
from fairlead.simulation.snapshots.workload import SnapshotWorkload
from fairlead.simulation.tenant_moves import MoveHabits, MoveOperator
from fairlead.simulation.trial import STEP_US, Report, Trial
from fairlead.simulation.workload import Shop
from fairlead.simulation.world import START_US, Violation, World
from fairlead.zones.layout import ShardLayout, Tenant
from fairlead.zones.maintenance.integrity import check_integrity
from fairlead.zones.moving.move_record import MOVE_KIND
from fairlead.zones.workflow.locks import HOLD_KIND

DRAINS = "everything drains after the faults"
RECOVERS = "the system gets over a fault that has stopped"
OVERSLEPT_US = 30_000_000  # The bound of docs/reliability.md for pointers that sleep because of a wrong clock.
SOUND = "a check of a shard finds nothing"
CHECK_US_MAX = 60_000_000
BETWEEN_MOVES_US = (50_000, 200_000, 1_000_000)  # Mean times between the requests for moves.
SNAPSHOT_TENANTS_MAX = 4  # Of so many tenants of the workload there are snapshots.
RECOVERY_US = 10_000_000  # Restarts take two seconds, and heartbeats are written once a second.


def run(seed: int, reduction: Reduction = NO_REDUCTION, **chosen: Any) -> Report:
    """Run the standard workload in the world of `seed`.

    Never raises a `Violation`: the report holds it.

    Args:
      reduction: makes the plan of the seed smaller.
      chosen: fields of the `Plan` with a given value instead of a drawn one.
    """
    return Simulation(seed, reduction, **chosen).run()


class Workload(Application, Protocol):
    """An application with its clients and its checks."""

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds with a handler."""
        ...

    @property
    def unlimited_kinds(self) -> frozenset[str]:
        """The kinds that every consumer handles, without limits."""
        ...

    @property
    def punctual(self) -> bool:
        """Whether no handler runs longer than its lease. Then only a fault explains a lease that expires."""
        ...

    @property
    def finished(self) -> bool:
        """Whether all work has been enqueued."""
        ...

    def oracles(self, plan: Plan) -> list[Oracle]:
        """Return the oracles of this workload only, for a run of this plan."""
        ...

    def start(self, cluster: Cluster) -> None:
        """Add the clients, and start them."""
        ...


class Simulation(Trial):
    """A cluster with its workload, faults and oracles, ready to run once."""

    def __init__(
        self,
        seed: int,
        reduction: Reduction = NO_REDUCTION,
        workload: Callable[[World], Workload] = Shop,
        **chosen: Any,
    ) -> None:
        world = World(seed)
        plan = reduction.apply_to(self.adapt(draw_plan(world.random("plan"), **chosen), world))
        self.suite = OracleSuite(world, [f"s{number}" for number in range(plan.shards)])
        self.workload = workload(world)
        cluster = Cluster(world, plan, self.suite, self.workload)
        super().__init__(seed, reduction, chosen, world=world, plan=plan, cluster=cluster)
        self.suite.oracles += [*self.oracles(), *self.workload.oracles(plan)]
        self._to_strike_late: list[Fault] = []
        self._late_until_us = 0
        self._moves: MoveOperator | None = None
        if plan.moves:
            draw = world.random("moves")
            self._moves = MoveOperator(cluster, draw, MoveHabits(draw.choice(BETWEEN_MOVES_US)))
        self._snapshots: SnapshotWorkload | None = None
        if plan.snapshots:
            tenants = [Tenant("shop", f"t{number}") for number in range(min(plan.tenants, SNAPSHOT_TENANTS_MAX))]
            self._snapshots = SnapshotWorkload(cluster, others=tenants)
            self.suite.oracles += self._snapshots.oracles

    def adapt(self, plan: Plan, world: World) -> Plan:
        """Return a drawn plan as it fits this world."""
        return plan

    def run_scenario(self) -> None:
        """See `Trial`: first with faults, then without them until all work is done and all pointers are deleted.

        Work may be done before the cluster has noticed the latest fault: a stalled loop can be that of an idle worker.
        """
        world, plan = self.world, self.plan
        self.cluster.add_consumers()
        self.workload.start(self.cluster)
        if self._moves is not None:
            self._moves.begin()
        if self._snapshots is not None:
            self._snapshots.start()
        self.run_fault_phase()
        self._to_strike_late = list(self.faults.values())
        begun_us = world.now_us()
        while not (self.workload.finished and self._has_moved() and self._has_merged() and self.is_drained()):
            if world.now_us() - begun_us > self._drain_us_max:
                self._fail_undrained()
                break
            if self.workload.finished:
                self._strike_late()
            world.run_until(world.now_us() + STEP_US)
        noticed_us = max((fault.noticed_by_us for fault in self.faults.values()), default=0)
        world.run_until(max(world.now_us(), self._late_until_us, noticed_us))
        self._await_pointers_deleted()
        self._check_faults()
        self._await_pointers_deleted()  # The checks may have ended pauses, which woke more pointers.
        if self._snapshots is not None:
            self._snapshots.end()
        self.settle()
        self.suite.at_end()
        if world.violation is not None:
            raise world.violation
        if plan.moves:
            self._check_shards()

    def settle(self) -> None:
        """Let time pass before the last checks, if a workload needs that."""

    def _check_shards(self) -> None:
        """Check each shard, as `fairlead check` does."""
        checked: dict[str, list[str]] = {}

        def check() -> None:
            for name, shard in self.cluster.open_shards(self.cluster.operator.host).items():
                checked[name] = [str(finding) for finding in check_integrity(shard).findings]

        self.cluster.operator.do("check shards", check)
        begun_us = self.world.now_us()
        while len(checked) < len(self.suite.shards):
            if self.world.now_us() - begun_us > CHECK_US_MAX:
                raise Violation(SOUND, f"the check has not ended after {CHECK_US_MAX / 1e6:g} s")
            self.world.run_until(self.world.now_us() + STEP_US)
        for name, findings in checked.items():
            if findings:
                raise Violation(SOUND, f"{name}: {findings}")

    def _has_moved(self) -> bool:
        return self._moves is None or self._moves.is_over

    def _has_merged(self) -> bool:
        return self._snapshots is None or (self._snapshots.is_done and self._snapshots.is_settled)

    def _strike_late(self) -> None:
        """Let each fault that needs it strike once more after all work has been enqueued."""
        now_us = self.world.now_us()
        for fault in list(self._to_strike_late):
            lasts_us = fault.strike_late()
            if lasts_us is not None:
                self._to_strike_late.remove(fault)
                self._late_until_us = max(self._late_until_us, now_us + lasts_us)

    def _await_pointers_deleted(self) -> None:
        """Pass time until the pointers of empty zones are gone, or have stayed too long."""
        empty_us = self.world.now_us()
        while self._has_pointers() and self.world.now_us() - empty_us <= self._pointer_stays_us():
            self.world.run_until(self.world.now_us() + STEP_US)

    def _check_faults(self) -> None:
        """Let each fault check that the cluster has recovered from it within `RECOVERY_US`."""
        wrong: dict[str, str | None] = dict.fromkeys(self.faults, "it was not checked")

        def check() -> None:
            for name, fault in self.faults.items():
                while what := fault.check():
                    wrong[name] = what
                    self.world.sleep_us(STEP_US)
                wrong[name] = None

        self.cluster.operator.do("checks", check)
        begun_us = self.world.now_us()
        while any(wrong.values()):
            if self.world.now_us() - begun_us > RECOVERY_US:
                name, what = next((name, what) for name, what in wrong.items() if what)
                raise Violation(RECOVERS, f"{name}: {what}")
            self.world.run_until(self.world.now_us() + STEP_US)

    def is_drained(self) -> bool:
        """Whether no work is left."""
        shards = self.suite.shards.values()
        return not any(shard.prepared or any(zone.items for zone in shard.zones.values()) for shard in shards)

    def _has_pointers(self) -> bool:
        pointers = (zone.pointer for shard in self.suite.shards.values() for zone in shard.zones.values())
        return any(pointer is not None and not sleeps_for_a_hold(pointer, self._hold_us) for pointer in pointers)

    @property
    def _hold_us(self) -> int:
        """How long the claim of a hold lasts without a renewal; 0: no process holds locks outside of workflows."""
        return 1000 * self.plan.zones.max_item_lease_ms if HOLD_KIND in self.workload.kinds else 0

    @property
    def _drain_us_max(self) -> int:
        """How long the work may take after the faults.

        A claim that moves becomes a plain lease. If its worker's machine is lost, that lease goes on for its term.
        """
        moved_claim_us = 1000 * self.plan.zones.max_item_lease_ms if self.plan.moves else 0
        return self.plan.drain_us_max + moved_claim_us

    def left(self) -> list[str]:
        """Return the items that are left, for a report."""
        return [
            f"{item}, {each.kind}, {each.error_count} errors, {each.expiry_count} expiries, {each.last_error}"
            for shard in self.suite.shards.values()
            for item, each in shard.items()
        ]

    def _fail_undrained(self) -> None:
        left = self.left()
        minutes = f"{self._drain_us_max / 60_000_000:g} minutes of virtual time"
        what = "; ".join([f"{len(left)} items are left {minutes} after the faults, the limit", *left[:3]])
        if not self.workload.finished:
            what += "; and a producer is not done"
        if not self._has_merged():
            what += "; and an archivist is not done, or a snapshot not merged, or a restore under way"
        raise Violation(DRAINS, what)

    def _pointer_stays_us(self) -> int:
        """The longest time that an empty zone's pointer may stay.

        The pointer may sleep until the last lease, or claim, would have ended, and then for `min_inactive`. Each time
        it is processed a little late. With watches this is the next scan. After a wrong clock this is after a consumer
        has searched for pointers that sleep too long.
        """
        zones, consumer = self.plan.zones, self.plan.consumer
        longest_ms = max(consumer.lease_ms, TRANSACTION_LEASE_US // 1000, zones.max_item_lease_ms)
        lease_ms = min(zones.max_sleep_ms, longest_ms)
        waits_ms = lease_ms + zones.min_inactive_ms + 2 * consumer.poll_interval_ms + 2_000
        look_us = watched_late_us(self.plan)
        late_us = OVERSLEPT_US if "wrong clocks" in self.plan.faults else 0
        return 1000 * waits_ms + look_us + late_us + 4 * self.plan.skew_us_max

    def _pointer_bounds(self) -> PointerBounds:
        plan = self.plan
        return PointerBounds(
            wake_slack_us=plan.zones.wake_slack_ms * 1000,
            ahead_us_max=plan.ahead_us_max,
            pointer_lease_us=plan.consumer.pointer_lease_ms * 1000,
            throttle_delay_us=plan.consumer.throttle_delay_ms * 1000,
            pause_recheck_us=plan.consumer.pause_recheck_ms * 1000,
            known_kinds=self.workload.kinds | ({MOVE_KIND} if plan.moves else frozenset()),
        )

    def oracles(self) -> list[Oracle]:
        """Return the oracles of every workload."""
        world, plan = self.world, self.plan
        layouts = {
            name: ShardLayout(shard_id=b"", part_count=plan.part_count, settings=plan.zones)
            for name in self.suite.shards
        }
        oracles: list[Oracle] = [
            IndexNamesEveryItem(world),
            CountsEqualItems(world, layouts),
            ChangesAreOperations(world, plan.zones.expiries_before_isolation),
            PointersLeadToWork(world, self._pointer_bounds()),
            LeasesAreRespected(
                world,
                self.cluster.clock_of,
                self.cluster.is_consumer,
                longest_us=1000 * (plan.zones.max_item_lease_ms + plan.zones.max_skew_ms),
            ),
            ClaimsHaveKeys(world),
            SessionsLastAsLongAsTheirHeartbeats(
                world,
                calm_us=START_US + plan.trouble_us + RECOVERY_US,
                is_dead=lambda host_name: host_name in world.ended_incarnations,
            ),
            ItemsRunBeforeTheyGo(world, self.cluster.is_consumer),
            ItemsAreEnqueuedOnce(world),
            OnlyTheTriedAreDeadLettered(world, self.cluster.is_isolated),
            PoisonCandidatesRunIsolated(world, plan.zones.expiries_before_isolation),
            PoisonCandidatesGoOneByOne(world),
            FailuresAreCounted(world),
            LeasesRunOnce(world),
            IdsStayTaken(world, plan.skew_us_max),
            DequeuesTakeTheirShare(world, plan.consumer.dequeue_max),
            NobodyCallsInABusyLoop(world, throttle_delay_us=plan.consumer.throttle_delay_ms * 1000),
            OneScannerGoesInOrder(
                world,
                clock_us=partial(self.cluster.time_of, COORDINATOR),
                incarnation=partial(self.cluster.incarnation_of, COORDINATOR),
            ),
            NothingIsLeftBehind(world, hold_us=self._hold_us),
            KeysFindItems(world, self.suite.shards),
            WhatIsPausedStays(world),
            TenantsKeepToTheirLimits(world, self.cluster.clock_of),
            LocksHaveTransactions(world),
            DecisionsAreFinal(world, list(self.suite.shards.values())),
        ]
        if plan.moves:
            oracles.append(TenantsMoveWhole(world, self.suite.shards))
            oracles.append(SearchesMissNothing(world, self.suite.shards))
        if plan.is_calm and plan.clocks_fit_leases:
            oracles.append(KindsKeepToFleetLimits(world))
        if plan.clocks_agree:  # Else some consumers take no leases, and the number of the others is not known.
            oracles.append(NothingWaitsBesideFreeSlots(world, plan, kinds=self.workload.unlimited_kinds))
        if self.workload.punctual and not plan.leases_may_run_out:
            oracles.append(NoLeaseExpiresWithoutCause(world, self.cluster.incarnation_of))
        return oracles
