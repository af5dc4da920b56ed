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

from fairlead.simulation.actor import Actor
from fairlead.simulation.bank.clerk import OPERATIONS, Clerk, Habits
from fairlead.simulation.bank.keeper import Keeper
from fairlead.simulation.bank.model import Accounts, Funds, bank_of
from fairlead.simulation.bank.scribe import Scribe
from fairlead.simulation.bank.stages import MoverFaults, StageFaults
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.linearizability.history import Model
from fairlead.simulation.linearizability.history_trial import END_US, ENDED, HistoryTrial, ThinkingProcess
from fairlead.simulation.oracles.bank import MoneyStays, StatementsComeOnce, stored_money
from fairlead.simulation.oracles.consistency import CountsEqualItems, IndexNamesEveryItem
from fairlead.simulation.oracles.moving import TenantsMoveWhole
from fairlead.simulation.oracles.spanning import DecisionsAreFinal, LocksHaveTransactions
from fairlead.simulation.plan import draw_plan
from fairlead.simulation.reduction import NO_REDUCTION, Reduction
from fairlead.simulation.snapshots.workload import SnapshotWorkload
from fairlead.simulation.tenant_moves import MoveHabits, MoveLeases, MoveOperator, Porter
from fairlead.simulation.trial import Report
from fairlead.simulation.world import START_US, Violation, World
from fairlead.zones.layout import ShardLayout, Tenant
from fairlead.zones.placement import home
from fairlead.zones.records import MovePhase
from fairlead.zones.spanning.decision import DECISION_LIFE_US
from fairlead.zones.spanning.leftovers import Leftovers

SERIALIZABLE = "transactions across shards are strictly serializable"
SETTLED = "what is prepared is settled in the end"
FORGOTTEN = "no decision outlives its time"
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
SETTLED_US_MAX = 30_000_000  # Keepers settle what they have seen for five seconds.


def run_bank(seed: int, reduction: Reduction = NO_REDUCTION, **chosen: Any) -> Report:
    """Run a bank in the world of `seed`, and check its history. For arguments see `simulation.run.run`.

    Never raises a `Violation`: the report has it. An undecided history is a violation, too.
    """
    return Bank(seed, reduction, **chosen).run()


class Bank(HistoryTrial):
    """The bank of one run, ready to run once."""

    def __init__(self, seed: int, reduction: Reduction = NO_REDUCTION, **chosen: Any) -> None:
        world = World(f"{seed}, bank")
        draw = world.random("bank")
        sizes = {**SIZES, "shards": draw.randint(SHARDS_MIN, SHARDS_MAX), "tenants": draw.randint(2, 6), **chosen}
        plan = draw_plan(world.random("plan"), **sizes)
        restless = world.random("restless moves")
        self.is_restless = plan.moves and restless.random() < RESTLESS_FRAC
        if self.is_restless and "trouble_us" not in chosen:
            plan = replace(plan, trouble_us=RESTLESS_TROUBLE_US)
        super().__init__(seed, reduction, chosen, world=world, plan=reduction.apply_to(plan))
        plan = self.plan
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
        self.habits = Habits(
            pauses_frac=draw.choice([0, 0.1, 0.5]),
            applies_later=draw.random() < 0.5,
            wait_us=draw.choice([50_000, 5_000_000, 5_000_000]),
            weights={name: draw.choice([1, 2, 10]) for name in OPERATIONS},
        )
        self.sweeps_frac = draw.choice([0, 0.5, 1])
        self.think_us = draw.choice([1_000, 30_000, 100_000])
        self._stage_frac = draw.choice([0, 0.05, 0.2])
        self._moves: MoveOperator | None = None
        self._move_leases: MoveLeases | None = None
        if self.is_restless:
            self.think_us = restless.choice(RESTLESS_THINK_US)
            self._move_leases = MoveLeases(restless.choice(RESTLESS_LEASES_US))
        if plan.moves:
            self.suite.oracles.append(TenantsMoveWhole(world, self.suite.shards))
            between_us = world.random("moves").choice(BETWEEN_MOVES_US)
            habits = RESTLESS if self.is_restless else MoveHabits(between_us)
            self._moves = MoveOperator(self.cluster, world.random("moves of tenants"), habits)
        self._snapshots: SnapshotWorkload | None = None
        if plan.snapshots:
            self._snapshots = SnapshotWorkload(self.cluster, others=self.accounts, enqueues=True)
            self.suite.oracles += self._snapshots.oracles

    def run_scenario(self) -> None:
        """See `Trial`."""
        clerks = [f"clerk{number}" for number in range(self.plan.producers)]
        for number, name in enumerate(clerks):
            self.start(self._process(name, Clerk.call_one, self.share(number)))
        for number in range(2):
            self.start_actor(f"{KEEPER}{number}", self._keep)
        struck = {name: self.cluster.actors[name] for name in clerks}
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
        self.run_until(ENDED, END_US, self.are_done)
        self.run_until_quiet()
        self.run_until(SETTLED, self.world.elapsed_us + SETTLED_US_MAX, self._is_settled)
        if self._snapshots is not None:
            self.money.note_audit(sum(stored_money(state) for state in self._snapshots.end()))
        self.start(self._process("auditor", Clerk.audit_all, 1))
        self.run_until(ENDED, END_US, self.are_done)
        self._forget_decisions()
        self.suite.at_end()
        if self.world.violation is not None:
            raise self.world.violation
        self.check_history(SERIALIZABLE, self.model)

    def _process(self, name: str, call: Callable[[Clerk], object], operations: int) -> ThinkingProcess[Clerk]:
        random = self.world.random(name)
        return ThinkingProcess(name, self._clerk, call, operations=operations, think_us=self.think_us, random=random)

    def _clerk(self, host: SimulatedHost) -> Clerk:
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
            self.start_actor(name, self._move)
        if self.is_restless:
            self.start_actor("scribe", self._write_notes)
        moves.begin()
        return {name: self.cluster.actors[name] for name in names}

    def _is_frozen(self) -> bool:
        owners = (owner for shard in self.suite.shards.values() for owner in shard.owners.values())
        return any(owner.move is not None and owner.move.phase is MovePhase.FROZEN for owner in owners)

    def _note_audit(self, accounts: Sequence[Funds]) -> None:
        self.money.note_audit(sum(funds.total for funds in accounts))

    def are_done(self) -> bool:
        """See `HistoryTrial`. The archivists have ended, too."""
        return super().are_done() and (self._snapshots is None or self._snapshots.is_done)

    def _is_settled(self) -> bool:
        have_moved = self._moves is None or self._moves.is_over
        has_merged = self._snapshots is None or self._snapshots.is_settled
        return have_moved and has_merged and not any(shard.prepared for shard in self.suite.shards.values())

    def _forget_decisions(self) -> None:
        """Do what housekeeping does once the time of all decisions is over: then none may be left."""

        def forget_all() -> None:
            later_us = self.world.now_us() + self.plan.skew_us_max + DECISION_LIFE_US + 1
            for shard in self.cluster.open_shards(self.cluster.operator.host).values():
                while Leftovers(shard, shard.find_shard).forget_old(now_us=later_us):
                    pass

        forgetting = self.cluster.operator.do("forget decisions", forget_all)
        self.run_until(FORGOTTEN, END_US, lambda: not forgetting.is_alive())
        left = {name: shard.decisions for name, shard in self.suite.shards.items() if shard.decisions}
        if left:
            raise Violation(FORGOTTEN, f"{left} are left")

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
