"""A bank in a world of its own: clerks with faults, then what is left is settled, audited, and checked.

In a third of the worlds accounts move between the shards meanwhile: porters carry out the moves. In half of these the
porters die, or stand still, at any stage of a move, the same account moves again and again, also back, and a scribe
writes and clears notes of the accounts. In a third of the worlds archivists take snapshots of the accounts, and of
tenants of their own.

A seed decides the number of shards, two to four, and of accounts. Each shard has an account at least.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from fairlead.actors.handlers import Registry
from fairlead.simulation.actor import Actor
from fairlead.simulation.bank.clerk import OPERATIONS, Clerk, Habits
from fairlead.simulation.bank.keeper import Keeper
from fairlead.simulation.bank.model import Accounts, Funds, bank_of
from fairlead.simulation.bank.scribe import Scribe
from fairlead.simulation.bank.stages import MoverFaults, StageFaults
from fairlead.simulation.cluster import Cluster
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.linearizability.clients import FAULTS_OF_CLIENTS
from fairlead.simulation.linearizability.counterexample import counterexample
from fairlead.simulation.linearizability.history import Model, Recorder
from fairlead.simulation.linearizability.search import Verdict, is_linearizable
from fairlead.simulation.oracles.bank import MoneyStays, StatementsComeOnce, stored_money
from fairlead.simulation.oracles.consistency import CountsEqualItems, IndexNamesEveryItem
from fairlead.simulation.oracles.moving import TenantsMoveWhole
from fairlead.simulation.oracles.oracle import OracleSuite
from fairlead.simulation.oracles.spanning import DecisionsAreFinal, LocksHaveTransactions
from fairlead.simulation.plan import draw_plan
from fairlead.simulation.reduction import NO_REDUCTION, Reduction
from fairlead.simulation.snapshots.workload import SnapshotWorkload
from fairlead.simulation.tenant_moves import MoveHabits, MoveLeases, MoveOperator, Porter
from fairlead.simulation.trial import STEP_US, Report, Trial
from fairlead.simulation.world import START_US, Violation, World
from fairlead.zones.layout import ShardLayout, Tenant
from fairlead.zones.placement import home
from fairlead.zones.queue.periodic import Period
from fairlead.zones.records import MovePhase
from fairlead.zones.spanning.decision import DECISION_LIFE_US
from fairlead.zones.spanning.leftovers import Leftovers

SERIALIZABLE = "transactions across shards are strictly serializable"
SETTLED = "what is prepared is settled in the end"
FORGOTTEN = "no decision outlives its time"
DECIDED = "every history is decided"
STEPS_MAX = 500_000
PORTERS = 2
KEEPER = "keeper"
BETWEEN_MOVES_US = (50_000, 200_000)  # Mean times between the requests for moves.
RESTLESS_FRAC = 1 / 2  # How often movers die at any stage, tenants move again at once, and rows come and go meanwhile.
RESTLESS = MoveHabits(25_000, cancelled_frac=0.15, favourite_frac=0.7, back_frac=0.4)
RESTLESS_PORTERS = 4
RESTLESS_LEASES_US = (600_000, 1_500_000)  # The first lease of a move.
RESTLESS_TROUBLE_US = 3_000_000
RESTLESS_THINK_US = (30_000, 150_000, 300_000)
MOVER_FRACS = (0.02, 0.06)
SHARDS_MIN, SHARDS_MAX = 2, 4
SIZES: Final = {"consumers": 0, "producers": 4, "items": 48, "trouble_us": 1_500_000}
END_US = 180_000_000  # All clerks end before this time, under any faults.
QUIET_US = 3_000_000  # After this time without faults no late commit is on its way.
SETTLED_US_MAX = 30_000_000  # Keepers settle what they have seen for five seconds.


def run_bank(seed: int, reduction: Reduction = NO_REDUCTION, **chosen: Any) -> Report:
    """Run a bank in the world of `seed`, and check its history. For arguments see `simulation.run.run`.

    Never raises a `Violation`: the report has it. An undecided history is a violation, too.
    """
    return Bank(seed, reduction, **chosen).run()


class Bank(Trial):
    """The bank of one run, ready to run once. As an application of the cluster it has no handlers."""

    def __init__(self, seed: int, reduction: Reduction = NO_REDUCTION, **chosen: Any) -> None:
        world = World(f"{seed}, bank")
        draw = world.random("bank")
        sizes = {**SIZES, "shards": draw.randint(SHARDS_MIN, SHARDS_MAX), "tenants": draw.randint(2, 6), **chosen}
        plan = draw_plan(world.random("plan"), **sizes)
        restless = world.random("restless moves")
        self.is_restless = plan.moves and restless.random() < RESTLESS_FRAC
        if self.is_restless and "trouble_us" not in chosen:
            plan = replace(plan, trouble_us=RESTLESS_TROUBLE_US)
        plan = reduction.apply_to(plan)
        plan = replace(plan, faults=tuple(name for name in plan.faults if name in FAULTS_OF_CLIENTS))
        self.suite = OracleSuite(world, [f"s{number}" for number in range(plan.shards)])
        cluster = Cluster(world, plan, self.suite, self)
        super().__init__(seed, reduction, chosen, world=world, plan=plan, cluster=cluster)
        layouts = {
            name: ShardLayout(shard_id=b"", part_count=plan.part_count, settings=plan.zones)
            for name in self.suite.shards
        }
        self.accounts = accounts_on(list(self.suite.shards), max(plan.shards, plan.tenants))
        self.money = MoneyStays(world)
        self.suite.oracles += [
            IndexNamesEveryItem(world),
            CountsEqualItems(world, layouts),
            LocksHaveTransactions(world),
            DecisionsAreFinal(world, list(self.suite.shards.values())),
            self.money,
            StatementsComeOnce(world),
        ]
        self.recorder = Recorder(world.note)
        self.habits = Habits(
            pauses_frac=draw.choice([0, 0.1, 0.5]),
            applies_later=draw.random() < 0.5,
            wait_us=draw.choice([50_000, 5_000_000, 5_000_000]),
            weights={name: draw.choice([1, 2, 10]) for name in OPERATIONS},
        )
        self.sweeps_frac = draw.choice([0, 0.5, 1])
        self.think_us = draw.choice([1_000, 30_000, 100_000])
        self._stage_frac = draw.choice([0, 0.05, 0.2])
        self._processes: list[Process] = []
        self._moves: MoveOperator | None = None
        self._move_leases: MoveLeases | None = None
        if self.is_restless:
            self.think_us = restless.choice(RESTLESS_THINK_US)
            self._move_leases = MoveLeases(restless.choice(RESTLESS_LEASES_US))
        if plan.moves:
            self.suite.oracles.append(TenantsMoveWhole(world, self.suite.shards))
            between_us = world.random("moves").choice(BETWEEN_MOVES_US)
            habits = RESTLESS if self.is_restless else MoveHabits(between_us)
            self._moves = MoveOperator(cluster, world.random("moves of tenants"), habits)
        self._snapshots: SnapshotWorkload | None = None
        if plan.snapshots:
            self._snapshots = SnapshotWorkload(cluster, others=self.accounts, enqueues=True)
            self.suite.oracles += self._snapshots.oracles

    def registry(self, host: SimulatedHost) -> Registry:
        """See `Application`."""
        return Registry()

    def periods(self) -> Sequence[Period]:
        """See `Application`."""
        return ()

    def run_scenario(self) -> None:
        """See `Trial`."""
        plan = self.plan
        for number in range(plan.producers):
            share = plan.items // plan.producers + (number < plan.items % plan.producers)
            self._start(Process(f"clerk{number}", self, share))
        for number in range(2):
            self._start_actor(f"{KEEPER}{number}", self._keep)
        struck = {process.name: self.cluster.actors[process.name] for process in self._processes}
        if self._moves is not None:
            movers = self._start_movers(self._moves)
            struck |= {} if self.is_restless else movers
        if self._snapshots is not None:
            self._snapshots.start()
            struck |= self._snapshots.actors
            struck |= {name: actor for name, actor in self.cluster.actors.items() if name.startswith(KEEPER)}
        faults = [StageFaults(self.world, self.world.random("stages"), self._stage_frac, struck.get)]
        if self.is_restless:
            draw = self.world.random("movers")
            faults.append(MoverFaults(self.world, draw, draw.choice(MOVER_FRACS), movers.get, self._is_frozen))
        for store in self.cluster.stores.values():
            for fault in faults:
                fault.attach(store)
        self.run_fault_phase()
        for fault in faults:
            fault.stop()
        self._run_until("every clerk ends", END_US, self._is_done)
        self.world.run_until(max(self.world.now_us(), START_US + plan.trouble_us) + QUIET_US)
        self._run_until(SETTLED, self.world.elapsed_us + SETTLED_US_MAX, self._is_settled)
        if self._snapshots is not None:
            self.money.note_audit(sum(stored_money(state) for state in self._snapshots.end()))
        self._start(Auditor("auditor", self, 1))
        self._run_until("every clerk ends", END_US, self._is_done)
        self._forget_decisions()
        self.suite.at_end()
        if self.world.violation is not None:
            raise self.world.violation
        self._check()

    def clerk(self, host: SimulatedHost, name: str) -> Clerk:
        """Return a clerk on `host`. Waits."""
        shards = self.cluster.open_shards(host)
        draw = self.world.random(host.name)
        return Clerk(host, shards, self.accounts, draw, self.recorder, self.habits, self._note_audit)

    def _keep(self, host: SimulatedHost) -> None:
        shards, draw = self.cluster.open_shards(host), self.world.random(host.name)
        Keeper(host, shards, draw, self.sweeps_frac, tends_snapshots=self.plan.snapshots).run()

    def _move(self, host: SimulatedHost) -> None:
        Porter(host, self.cluster.open_shards(host), self._move_leases).run()

    def _write_notes(self, host: SimulatedHost) -> None:
        scribe = Scribe(host, self.cluster.open_shards(host), self.accounts, self.world.random(host.name))
        scribe.run(START_US + self.plan.trouble_us)

    def _start_movers(self, moves: MoveOperator) -> dict[str, Actor]:
        """Let moves begin, and be carried out; return the porters by name."""
        names = [f"porter{number}" for number in range(RESTLESS_PORTERS if self.is_restless else PORTERS)]
        for name in names:
            self._start_actor(name, self._move)
        if self.is_restless:
            self._start_actor("scribe", self._write_notes)
        moves.begin()
        return {name: self.cluster.actors[name] for name in names}

    def _is_frozen(self) -> bool:
        owners = (owner for shard in self.suite.shards.values() for owner in shard.owners.values())
        return any(owner.move is not None and owner.move.phase is MovePhase.FROZEN for owner in owners)

    def _start(self, process: Process) -> None:
        self._processes.append(process)
        self._start_actor(process.name, process.live)

    def _start_actor(self, name: str, live: Callable[[SimulatedHost], None]) -> None:
        self.cluster.actors[name] = actor = Actor(self.world, self.cluster.add_node(name), name, live)
        actor.start()

    def _note_audit(self, accounts: Sequence[Funds]) -> None:
        self.money.note_audit(sum(funds.total for funds in accounts))

    def _is_done(self) -> bool:
        are_archivists_done = self._snapshots is None or self._snapshots.is_done
        return are_archivists_done and all(process.done for process in self._processes)

    def _is_settled(self) -> bool:
        have_moved = self._moves is None or self._moves.is_over
        has_merged = self._snapshots is None or self._snapshots.is_settled
        return have_moved and has_merged and not any(shard.prepared for shard in self.suite.shards.values())

    def _run_until(self, promise: str, end_us: int, is_over: Callable[[], bool]) -> None:
        while not is_over():
            if self.world.elapsed_us > end_us:
                raise Violation(promise, f"not after {end_us / 1e6} s")
            self.world.run_until(self.world.now_us() + STEP_US)

    def _forget_decisions(self) -> None:
        """Do what housekeeping does once the time of all decisions is over: then none may be left."""

        def forget_all() -> None:
            later_us = self.world.now_us() + self.plan.skew_us_max + DECISION_LIFE_US + 1
            for shard in self.cluster.open_shards(self.cluster.operator.host).values():
                while Leftovers(shard, shard.find_shard).forget_old(now_us=later_us):
                    pass

        forgetting = self.cluster.operator.do("forget decisions", forget_all)
        self._run_until(FORGOTTEN, END_US, lambda: not forgetting.is_alive())
        left = {name: shard.decisions for name, shard in self.suite.shards.items() if shard.decisions}
        if left:
            raise Violation(FORGOTTEN, f"{left} are left")

    def _check(self) -> None:
        history, bank = self.recorder.history(), self.model
        finding = is_linearizable(history, bank, steps_max=STEPS_MAX)
        self.world.note(f"{len(history)} operations: {finding.verdict.value}, {finding.steps} steps")
        if finding.verdict is Verdict.UNDECIDED:
            raise Violation(DECIDED, f"{len(history)} operations took more than {STEPS_MAX:,} steps")
        if finding.verdict is Verdict.NOT_LINEARIZABLE:
            raise Violation(SERIALIZABLE, counterexample(history, bank, steps_max=STEPS_MAX))

    @property
    def model(self) -> Model[Accounts]:
        """The bank as a sequential object."""
        return bank_of(len(self.accounts))


def accounts_on(shard_names: Sequence[str], count: int) -> list[Tenant]:
    """Return the tenants of so many accounts, which live on all shards as evenly as possible."""
    found: dict[str, list[Tenant]] = {name: [] for name in shard_names}
    number = 0
    while any(len(tenants) < count for tenants in found.values()):
        tenant = Tenant("bank", f"t{number}")
        found[home(tenant, shard_names)].append(tenant)
        number += 1
    return [found[shard_names[index % len(shard_names)]][index // len(shard_names)] for index in range(count)]


class Process:
    """A process that runs the operations of one clerk. After a kill it continues with the next one."""

    def __init__(self, name: str, bank: Bank, operations: int) -> None:
        self.name = name
        self.done = not operations
        self._bank = bank
        self._left = operations
        self._random = bank.world.random(name)

    def live(self, host: SimulatedHost) -> None:
        """Run operation after operation."""
        clerk = self._bank.clerk(host, self.name)
        while self._left:
            host.clock.sleep_us(int(self._random.expovariate(1 / self._bank.think_us)))
            self._left -= 1
            self.call(clerk)
        self.done = True

    def call(self, clerk: Clerk) -> None:
        """Run one operation."""
        clerk.call_one()


class Auditor(Process):
    """A process that reads the final state, when all clerks are done."""

    def call(self, clerk: Clerk) -> None:
        """See `Process`."""
        clerk.audit_all()
