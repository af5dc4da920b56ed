"""The simulation of consumers over an external store: their shards hold only pointers, and are under faults, too.

Users' transactions and the store's own faults go on while the fault phase lasts. Then all that is committed must run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from fairlead.simulation.external.client import SimulatedItemStore
from fairlead.simulation.external.faults import CLOCK_STEP_US_MAX, draw_faults
from fairlead.simulation.external.server import STATEMENT_US
from fairlead.simulation.external.shop import LIMITS, STORE, ExternalShop
from fairlead.simulation.external.users import KINDS
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.oracles.call_rates import NobodyCallsInABusyLoop
from fairlead.simulation.oracles.claims import ClaimsHaveKeys
from fairlead.simulation.oracles.consistency import CountsEqualItems, IndexNamesEveryItem
from fairlead.simulation.oracles.external import (
    CommittedItemsRun,
    EffectsInStoreHappenOnce,
    ExternalOracle,
    LeasesInStoreAreRespected,
    QueuesGiveTheirShare,
    SleepBound,
    TheDoorbellRings,
    WhatIsSeenHasAPointer,
)
from fairlead.simulation.oracles.external_fairness import NoExternalQueueWaitsTooLong
from fairlead.simulation.oracles.external_sessions import SessionsInStoreLastAsLongAsTheirHeartbeats
from fairlead.simulation.oracles.fairness import RECOVERY_US
from fairlead.simulation.oracles.lease_expiries import PoisonCandidatesGoOneByOne
from fairlead.simulation.oracles.leases import LeasesRunOnce
from fairlead.simulation.oracles.leftovers import NothingIsLeftBehind
from fairlead.simulation.oracles.limits import KindsKeepToTheirLimits
from fairlead.simulation.oracles.moving import TenantsMoveWhole
from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.plan import Plan
from fairlead.simulation.reduction import NO_REDUCTION, Reduction
from fairlead.simulation.run import Simulation
from fairlead.simulation.trial import STEP_US, Report
from fairlead.simulation.world import START_US, World
from fairlead.zones.external.store import ExternalStore
from fairlead.zones.layout import ShardLayout

SIZES: Final = {"consumers": 2, "producers": 3, "items": 60, "tenants": 3, "trouble_us": 4_000_000, "snapshots": False}
LEASES_MS = (500, 500, 2_000, 10_000)
QUIET_US_MAX = 15_000_000  # A reader takes over within five seconds, and the doorbell is set after one of quiet.


def run_external(seed: int, reduction: Reduction = NO_REDUCTION, **chosen: Any) -> Report:
    """Run consumers over an external store in the world of `seed`. For arguments see `simulation.run.run`.

    Never raises a `Violation`: the report has it.
    """
    return ExternalSimulation(seed, reduction, **chosen).run()


class ExternalSimulation(Simulation):
    """Consumers over an external store, ready to run once."""

    def __init__(self, seed: int, reduction: Reduction = NO_REDUCTION, **chosen: Any) -> None:
        super().__init__(seed, reduction, ExternalShop, **{**SIZES, **chosen})
        assert isinstance(self.workload, ExternalShop)
        self.server = self.workload.server
        self.cluster.open_externals = self._open
        self.cluster.external_kinds = sorted(self.workload.kinds)
        self._doorbell = TheDoorbellRings(self.world, self.server)
        self.store_faults = draw_faults(self.server, self.world.random("faults of the external store"), self._host_of)
        recovered_us = START_US + self.plan.trouble_us + RECOVERY_US
        own: list[ExternalOracle] = [
            CommittedItemsRun(self.world, self.server, self.cluster.is_consumer),
            EffectsInStoreHappenOnce(self.world, self.cluster.is_consumer),
            LeasesInStoreAreRespected(self.world, self.server, self.cluster.clock_of, self.cluster.is_consumer),
            WhatIsSeenHasAPointer(self.world, self.server, STORE, self.suite.shards, self._sleep_bound()),
            QueuesGiveTheirShare(self.world, self.plan.consumer.dequeue_max),
            NoExternalQueueWaitsTooLong(
                self.world,
                self.server,
                self.plan,
                calm_us=START_US if self.plan.is_calm and not self.store_faults else recovered_us,
                kinds=frozenset(KINDS) - set(LIMITS),
            ),
            SessionsInStoreLastAsLongAsTheirHeartbeats(
                self.world,
                self.server,
                calm_us=recovered_us,
                is_dead=lambda host_name: host_name in self.world.ended_incarnations,
            ),
            self._doorbell,
        ]
        for oracle in own:
            oracle.attach(self.server)
        self.suite.oracles += own

    def adapt(self, plan: Plan, world: World) -> Plan:
        """See `Simulation`. With short leases queues run empty, and pointers are deleted, while the faults last."""
        lease_ms = world.random("leases").choice(LEASES_MS)
        return replace(plan, consumer=replace(plan.consumer, lease_ms=lease_ms))

    def _host_of(self, name: str) -> SimulatedHost | None:
        actor = self.cluster.actors.get(name.partition("#")[0])
        return None if actor is None else actor.host

    def _open(self, host: SimulatedHost) -> Mapping[str, ExternalStore]:
        return {STORE: SimulatedItemStore(self.server, host)}

    def run_fault_phase(self) -> None:
        """See `Trial`. The store is disturbed, too."""
        for fault in self.store_faults:
            fault.begin()
        super().run_fault_phase()
        for fault in self.store_faults:
            fault.stop()
        self.server.heal()

    def settle(self) -> None:
        """See `Simulation`. The store is quiet, so its doorbell is to be on soon."""
        until_us = self.world.now_us() + QUIET_US_MAX
        while not self._doorbell.is_on and self.world.now_us() < until_us:
            self.world.run_until(self.world.now_us() + STEP_US)

    def is_drained(self) -> bool:
        """See `Simulation`."""
        return super().is_drained() and not self.server.waiting()

    def left(self) -> list[str]:
        """See `Simulation`."""
        return [*super().left(), *self.server.waiting()]

    def _sleep_bound(self) -> SleepBound:
        """Return how late a pointer may vest. What a wrong clock, a pause or a limit delays is not bound."""
        plan, consumer = self.plan, self.plan.consumer
        unbound = {"wrong clocks", "pauses by policy", "limits by policy"}
        late_ms = (
            plan.zones.wake_slack_ms
            + consumer.pointer_lease_ms
            + consumer.throttle_delay_ms
            + consumer.pause_recheck_ms
        )
        late_us = 1000 * late_ms + 2 * plan.ahead_us_max + STATEMENT_US + 2 * CLOCK_STEP_US_MAX
        is_bound = unbound.isdisjoint(plan.faults)
        return SleepBound(late_us if is_bound else None, frozenset(KINDS) - set(LIMITS))

    def oracles(self) -> list[Oracle]:
        """See `Simulation`. Those of items in shards are left out."""
        world, plan = self.world, self.plan
        layouts = {
            name: ShardLayout(shard_id=b"", part_count=plan.part_count, settings=plan.zones)
            for name in self.suite.shards
        }
        oracles: list[Oracle] = [
            IndexNamesEveryItem(world),
            CountsEqualItems(world, layouts),
            ClaimsHaveKeys(world),
            LeasesRunOnce(world),
            PoisonCandidatesGoOneByOne(world),
            NobodyCallsInABusyLoop(world, throttle_delay_us=plan.consumer.throttle_delay_ms * 1000),
            NothingIsLeftBehind(world, hold_us=0),
        ]
        if plan.is_calm:
            oracles.append(KindsKeepToTheirLimits(world, LIMITS))
        if plan.moves:
            oracles.append(TenantsMoveWhole(world, self.suite.shards))
        return oracles
