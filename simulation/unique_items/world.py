"""Unique items in a world of their own: takers and enders with faults; then keys are audited, and what is left checked.

In a third of the worlds tenants and slots move between the shards meanwhile: porters carry out the moves. In a third
shards stop answering for a while. In half keys are taken before anything is cleaned up, too. In some the sweeper runs
what is to be cleaned up before its time. Then a slow taker may leave an index record, which the next taker collects;
else nothing is left. In a third tenants are restored to snapshots, also while reservations are held. That changes no
item, and no reservation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from fairlead.records.on_shards.slots import INDEX, SLOTS_APP
from fairlead.records.on_shards.unique_items import ITEMS_TYPE
from fairlead.simulation.bank.stages import StageFaults
from fairlead.simulation.bank.world import PORTERS
from fairlead.simulation.directory.outages import Outages
from fairlead.simulation.directory.restorer import RESTORED, Restorer, is_restoring, keep_restoring
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.linearizability.history_trial import END_US, ENDED, HistoryTrial, ThinkingProcess
from fairlead.simulation.oracles.consistency import CountsEqualItems, IndexNamesEveryItem
from fairlead.simulation.oracles.id_retention import IdsStayTaken
from fairlead.simulation.oracles.moving import TenantsMoveWhole
from fairlead.simulation.oracles.unique_items import KeysHaveOneHolder
from fairlead.simulation.plan import draw_plan
from fairlead.simulation.reduction import NO_REDUCTION, Reduction
from fairlead.simulation.tenant_moves import MoveHabits, MoveOperator, Porter
from fairlead.simulation.trial import Report
from fairlead.simulation.unique_items.auditor import Auditor
from fairlead.simulation.unique_items.ender import END_OPERATIONS, Ender
from fairlead.simulation.unique_items.stock import Habits, unique_keys
from fairlead.simulation.unique_items.sweeper import Sweeper
from fairlead.simulation.unique_items.taker import TAKE_OPERATIONS, Taker
from fairlead.simulation.world import Violation, World
from fairlead.zones import tuples
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import ShardLayout, Tenant

CLEANED = "what ended items and stopped takers have left is cleaned up"
KEPT_US = ((0,), (0, 200_000), (0, 1_000_000, 20_000_000))
SHARDS_MIN, SHARDS_MAX = 2, 4
TENANTS_MIN, TENANTS_MAX = 2, 5
KEYS_MAX = 3
ENDERS = 2
RESTORERS = ("restorer0", "restorer1")
RESTORES_EACH = 20
RESTORED_TENANTS = 2  # So few that a tenant is restored while its reservations are held.
HOLDS_US = (0, 0, 1_000, 20_000, 300_000)
HOLDS_LONG_US = (*HOLDS_US, 500_000, 1_000_000)
BETWEEN_MOVES_US = (50_000, 200_000)
SIZES: Final = {"consumers": 0, "producers": 4, "items": 80, "trouble_us": 1_500_000}
CLEANED_US_MAX = 90_000_000  # A cleanup item waits for a minute.


def run_unique_items(seed: int, reduction: Reduction = NO_REDUCTION, **chosen: Any) -> Report:
    """Run unique items in the world of `seed`, and check them. For arguments see `simulation.run.run`.

    Never raises a `Violation`: the report has it.
    """
    return UniqueItems(seed, reduction, **chosen).run()


class UniqueItems(HistoryTrial):
    """The unique items of one run, ready to run once."""

    def __init__(self, seed: int, reduction: Reduction = NO_REDUCTION, **chosen: Any) -> None:
        world = World(f"{seed}, unique items")
        draw = world.random("unique items")
        tenants = draw.randint(TENANTS_MIN, TENANTS_MAX)
        sizes = {**SIZES, "shards": draw.randint(SHARDS_MIN, SHARDS_MAX), "tenants": tenants, **chosen}
        plan = reduction.apply_to(draw_plan(world.random("plan"), **sizes))
        super().__init__(seed, reduction, chosen, world=world, plan=plan)
        tenants = RESTORED_TENANTS if self.plan.snapshots else self.plan.tenants
        layouts = {
            name: ShardLayout(shard_id=b"", part_count=self.plan.part_count, settings=self.plan.zones)
            for name in self.suite.shards
        }
        self.habits = Habits(
            tenants=tuple(Tenant("shop", f"u{number}") for number in range(tenants)),
            keys=unique_keys(draw.randint(1, KEYS_MAX)),
            pauses_frac=draw.choice([0, 0.1, 0.3]),
            at_once=draw.random() < 0.7,
            holds_us=HOLDS_LONG_US if self.plan.snapshots else HOLDS_US,
            kept_us=draw.choice(KEPT_US),
            takes={name: draw.choice([1, 2, 6]) for name in TAKE_OPERATIONS},
            ends={name: draw.choice([1, 2, 6]) for name in END_OPERATIONS},
        )
        self.holders = KeysHaveOneHolder(world, self.plan.ahead_us_max)
        self.suite.oracles += [
            self.holders,
            IdsStayTaken(world, self.plan.ahead_us_max),
            IndexNamesEveryItem(world),
            CountsEqualItems(world, layouts),
        ]
        self._think_us = draw.choice([1_000, 30_000, 100_000])
        self._early_frac = draw.choice([0, 0, 0.1, 0.5])
        self._stage_frac = draw.choice([0, 0.05, 0.2])
        self._has_outages = draw.random() < 1 / 3
        self._audits_garbage = draw.random() < 1 / 2
        self._moves: MoveOperator | None = None
        if self.plan.moves:
            self.suite.oracles.append(TenantsMoveWhole(world, self.suite.shards))
            between_us = world.random("moves").choice(BETWEEN_MOVES_US)
            self._moves = MoveOperator(self.cluster, world.random("moves of tenants"), MoveHabits(between_us))

    def run_scenario(self) -> None:
        """See `Trial`."""
        clients = []
        for number in range(self.plan.producers):
            clients.append(f"taker{number}")
            self._start(clients[-1], Taker, self.share(number))
        for number in range(ENDERS):
            clients.append(f"ender{number}")
            self._start(clients[-1], Ender, self.plan.items // ENDERS)
        struck = {name: self.cluster.actors[name] for name in clients}
        self.start_actor("sweeper", self._sweep)
        if self._moves is not None:
            for name in (f"porter{number}" for number in range(PORTERS)):
                struck[name] = self.start_actor(name, self._move)
            self._moves.begin()
        if self.plan.snapshots:
            self._start_restorers()
            clients += RESTORERS
        struck |= {name: self.cluster.actors[name] for name in clients}
        outages = Outages(self.world, self.world.random("outages"), clients)
        stages = StageFaults(self.world, self.world.random("stages"), self._stage_frac, struck.get)
        for store in self.cluster.stores.values():
            stages.attach(store)
            outages.attach(store)
        if self._has_outages:
            outages.begin()
        self.run_fault_phase()
        stages.stop()
        outages.stop()
        self.run_until(ENDED, END_US, self.are_done)
        self.run_until_quiet()
        self.run_until("moves end", END_US, lambda: self._moves is None or self._moves.is_over)
        self.run_until(RESTORED, self.world.elapsed_us + END_US, lambda: not is_restoring(self.suite.shards.values()))
        self._audit(Auditor.audit if self._audits_garbage else Auditor.end_all_items)
        self.run_until(CLEANED, self.world.elapsed_us + CLEANED_US_MAX, self._is_clean)
        self._check_stored()
        self._audit(Auditor.audit)
        self.suite.at_end()
        if self.world.violation is not None:
            raise self.world.violation

    def _start(self, name: str, client: type[Taker] | type[Ender], operations: int) -> None:
        random = self.world.random(name)

        def connect(host: SimulatedHost) -> Taker | Ender:
            shards, draw = self.cluster.open_shards_once_there(host), self.world.random(host.name)
            return client(host, shards, draw, self.habits, self.holders)

        process = ThinkingProcess(
            name, connect, lambda made: made.call_one(), operations=operations, think_us=self._think_us, random=random
        )
        self.start(process)

    def _start_restorers(self) -> None:
        self.start_actor("keeper", lambda host: keep_restoring(host, self.cluster.open_shards(host)))
        for name in RESTORERS:
            random, think_us = self.world.random(name), self.plan.trouble_us / RESTORES_EACH
            connect, operations = self._restorer, RESTORES_EACH
            self.start(
                ThinkingProcess(
                    name, connect, Restorer.call_one, operations=operations, think_us=think_us, random=random
                )
            )

    def _restorer(self, host: SimulatedHost) -> Restorer:
        shards, draw = self.cluster.open_shards_once_there(host), self.world.random(host.name)
        return Restorer(host, shards, self.habits.tenants, draw, self.habits.pauses_frac)

    def _sweep(self, host: SimulatedHost) -> None:
        shards, draw = self.cluster.open_shards(host), self.world.random(host.name)
        Sweeper(host, shards, draw, self.habits, self._early_frac).run()

    def _move(self, host: SimulatedHost) -> None:
        Porter(host, self.cluster.open_shards(host), None).run()

    def _audit(self, audit: Callable[[Auditor], None]) -> None:
        """Let the operator audit. Passes time."""
        operator = self.cluster.operator
        failed: list[Violation] = []

        def run() -> None:
            host, shards = operator.host, self.cluster.open_shards(operator.host)
            draw, habits = self.world.random("audit"), self.habits._replace(pauses_frac=0)
            taker = Taker(host, shards, draw, habits, self.holders)
            try:
                audit(Auditor(taker, Ender(host, shards, draw, habits, self.holders), habits, self.holders))
            except Violation as violation:
                failed.append(violation)

        task = operator.do("audit", run)
        self.run_until(ENDED, END_US + self.world.elapsed_us, lambda: not task.is_alive())
        if failed:
            raise failed[0]

    # --- What is stored ---

    def _is_clean(self) -> bool:
        """Whether there is neither item nor dead letter, and so no reservation."""
        zones = (zone for shard in self.suite.shards.values() for name, zone in shard.zones.items() if name.tenant.app)
        return not any(zone.items or zone.dead_lettered for zone in zones)

    def _check_stored(self) -> None:
        """See that no index record is left. A taker that was slower than its cleanup item may have left garbage."""
        left = list(self._index_keys())
        if left and not self._early_frac:
            raise Violation(CLEANED, f"index records are left: {left}")

    def _index_keys(self) -> Iterator[Any]:
        """Yield the keys of index records, as the shards that own their tenants have them."""
        for shard in self.suite.shards.values():
            for tenant, rows in shard.rows.items():
                if shard.lives_here(tenant):
                    prefix = TenantKeys(*tenant).data
                    for row_key in rows:
                        path = tuples.unpack(row_key, len(prefix)) if row_key.startswith(prefix) else ()
                        if path[:3] == (SLOTS_APP, ITEMS_TYPE, INDEX):
                            yield path[3]
