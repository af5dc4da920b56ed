"""A directory in a world of its own: clerks with faults; then what is left is cleaned up, read, and checked.

In a third of the worlds slots move between the shards meanwhile: porters carry out the moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from fairlead.actors.handlers import Registry
from fairlead.records.on_shards.slots import DATA, SLOTS_APP, Locations
from fairlead.records.stored import DataRecord, IndexRecord, unpack_data, unpack_index
from fairlead.simulation.actor import Actor
from fairlead.simulation.bank.stages import StageFaults
from fairlead.simulation.bank.world import PORTERS
from fairlead.simulation.cluster import Cluster
from fairlead.simulation.directory.clerk import OPERATIONS, TYPE, Clerk, Habits, name_of
from fairlead.simulation.directory.janitor import Janitor
from fairlead.simulation.directory.model import People, directory_of
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.linearizability.clients import FAULTS_OF_CLIENTS
from fairlead.simulation.linearizability.counterexample import counterexample
from fairlead.simulation.linearizability.history import Model, Recorder
from fairlead.simulation.linearizability.search import Verdict, is_linearizable
from fairlead.simulation.oracles.moving import TenantsMoveWhole
from fairlead.simulation.oracles.oracle import OracleSuite
from fairlead.simulation.plan import draw_plan
from fairlead.simulation.reduction import NO_REDUCTION, Reduction
from fairlead.simulation.tenant_moves import MoveHabits, MoveOperator, Porter
from fairlead.simulation.trial import STEP_US, Report, Trial
from fairlead.simulation.world import START_US, Violation, World
from fairlead.zones import tuples
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.periodic import Period

LINEARIZABLE = "records are linearizable, by every key"
ENDED = "every clerk ends"
CLEANED = "what a stopped creator has left is cleaned up"
INDEXED = "every key of a record has its index record"
DECIDED = "every history is decided"
STEPS_MAX = 500_000
SHARDS_MIN, SHARDS_MAX = 2, 4
BETWEEN_MOVES_US = (50_000, 200_000)
SIZES: Final = {"consumers": 0, "producers": 4, "items": 60, "trouble_us": 1_500_000}
END_US = 180_000_000
QUIET_US = 3_000_000
CLEANED_US_MAX = 90_000_000  # A cleanup item waits for a minute.


def run_directory(seed: int, reduction: Reduction = NO_REDUCTION, **chosen: Any) -> Report:
    """Run a directory in the world of `seed`, and check its history. For arguments see `simulation.run.run`.

    Never raises a `Violation`: the report has it. An undecided history is a violation, too.
    """
    return Directory(seed, reduction, **chosen).run()


class Directory(Trial):
    """The directory of one run, ready to run once. As an application of the cluster it has no handlers."""

    def __init__(self, seed: int, reduction: Reduction = NO_REDUCTION, **chosen: Any) -> None:
        world = World(f"{seed}, directory")
        draw = world.random("directory")
        sizes = {**SIZES, "shards": draw.randint(SHARDS_MIN, SHARDS_MAX), "tenants": 2, **chosen}
        plan = reduction.apply_to(draw_plan(world.random("plan"), **sizes))
        plan = replace(plan, faults=tuple(name for name in plan.faults if name in FAULTS_OF_CLIENTS))
        self.suite = OracleSuite(world, [f"s{number}" for number in range(plan.shards)])
        cluster = Cluster(world, plan, self.suite, self)
        super().__init__(seed, reduction, chosen, world=world, plan=plan, cluster=cluster)
        self.recorder = Recorder(world.note)
        self.habits = Habits(
            people=draw.randint(2, 5),
            keys=draw.randint(2, 6),
            pauses_frac=draw.choice([0, 0.1, 0.3]),
            at_once=draw.random() < 0.7,
            weights={name: draw.choice([1, 2, 6]) for name in OPERATIONS},
        )
        self.think_us = draw.choice([1_000, 30_000, 100_000])
        self._early_frac = draw.choice([0, 0.1, 0.5])
        self._stage_frac = draw.choice([0, 0.05, 0.2])
        self._locations = Locations(TYPE)
        self._processes: list[Process] = []
        self._moves: MoveOperator | None = None
        if plan.moves:
            self.suite.oracles.append(TenantsMoveWhole(world, self.suite.shards))
            between_us = world.random("moves").choice(BETWEEN_MOVES_US)
            self._moves = MoveOperator(cluster, world.random("moves of tenants"), MoveHabits(between_us))

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
        self._start_actor("janitor", self._clean)
        struck = {process.name: self.cluster.actors[process.name] for process in self._processes}
        if self._moves is not None:
            for number in range(PORTERS):
                self._start_actor(name := f"porter{number}", self._move)
                struck[name] = self.cluster.actors[name]
            self._moves.begin()
        stages = StageFaults(self.world, self.world.random("stages"), self._stage_frac, struck.get)
        for store in self.cluster.stores.values():
            stages.attach(store)
        self.run_fault_phase()
        stages.stop()
        self._run_until(ENDED, END_US, self._is_done)
        self.world.run_until(max(self.world.now_us(), START_US + plan.trouble_us) + QUIET_US)
        self._run_until("moves end", END_US, lambda: self._moves is None or self._moves.is_over)
        self._run_until(CLEANED, self.world.elapsed_us + CLEANED_US_MAX, self._is_clean)
        self._start(Reader("reader", self, 1))
        self._run_until(ENDED, END_US, self._is_done)
        self._check_stored()
        self.suite.at_end()
        if self.world.violation is not None:
            raise self.world.violation
        self._check()

    def clerk(self, host: SimulatedHost) -> Clerk:
        """Return a clerk on `host`. Waits."""
        shards = self.cluster.open_shards(host)
        return Clerk(host, shards, self.world.random(host.name), self.recorder, self.habits)

    def _clean(self, host: SimulatedHost) -> None:
        shards = self.cluster.open_shards(host)
        Janitor(host, shards, self._data_tenants(), self.world.random(host.name), self._early_frac).run()

    def _move(self, host: SimulatedHost) -> None:
        Porter(host, self.cluster.open_shards(host), None).run()

    def _start(self, process: Process) -> None:
        self._processes.append(process)
        self._start_actor(process.name, process.live)

    def _start_actor(self, name: str, live: Callable[[SimulatedHost], None]) -> None:
        self.cluster.actors[name] = actor = Actor(self.world, self.cluster.add_node(name), name, live)
        actor.start()

    def _is_done(self) -> bool:
        return all(process.done for process in self._processes)

    def _data_tenants(self) -> list[Tenant]:
        return sorted({self._locations.data_tenant(name_of(number)) for number in range(self.habits.people)})

    def _is_clean(self) -> bool:
        """Whether no cleanup item is left, and no dummy."""
        data, _ = self._stored()
        if any(record.is_dummy for record in data.values()):
            return False
        zones = (zone for shard in self.suite.shards.values() for name, zone in shard.zones.items() if name.tenant.app)
        return not any(zone.items for zone in zones)

    def _stored(self) -> tuple[dict[str, DataRecord], dict[bytes, IndexRecord]]:
        """Return all data records and index records, as the shards that own their tenants have them."""
        data: dict[str, DataRecord] = {}
        index: dict[bytes, IndexRecord] = {}
        for shard in self.suite.shards.values():
            for tenant, rows in shard.rows.items():
                if tenant.app == SLOTS_APP and shard.lives_here(tenant):
                    prefix = TenantKeys(*tenant).data
                    for row_key, value in rows.items():
                        if row_key.startswith(prefix):
                            *_, kind, key = tuples.unpack(row_key, len(prefix))
                            if kind == DATA:
                                data[key] = unpack_data(key, value)
                            else:
                                index[key] = unpack_index(value)
        return data, index

    def _check_stored(self) -> None:
        data, index = self._stored()
        for key, record in data.items():
            for index_key in record.keys:
                if index_key not in index or index[index_key].key != key:
                    raise Violation(INDEXED, f"{key} has {index_key!r}, whose index record is {index.get(index_key)}")

    def _check(self) -> None:
        history, model = self.recorder.history(), self.model
        finding = is_linearizable(history, model, steps_max=STEPS_MAX)
        self.world.note(f"{len(history)} operations: {finding.verdict.value}, {finding.steps} steps")
        if finding.verdict is Verdict.UNDECIDED:
            raise Violation(DECIDED, f"{len(history)} operations took more than {STEPS_MAX:,} steps")
        if finding.verdict is Verdict.NOT_LINEARIZABLE:
            raise Violation(LINEARIZABLE, counterexample(history, model, steps_max=STEPS_MAX))

    @property
    def model(self) -> Model[People]:
        """The directory as a sequential object."""
        return directory_of(self.habits.people)

    def _run_until(self, promise: str, end_us: int, is_over: Callable[[], bool]) -> None:
        while not is_over():
            if self.world.elapsed_us > end_us:
                raise Violation(promise, f"not after {end_us / 1e6} s")
            self.world.run_until(self.world.now_us() + STEP_US)


class Process:
    """A process that runs the operations of one clerk. After a kill it continues with the next one."""

    def __init__(self, name: str, directory: Directory, operations: int) -> None:
        self.name = name
        self.done = not operations
        self._directory = directory
        self._left = operations
        self._random = directory.world.random(name)

    def live(self, host: SimulatedHost) -> None:
        """Run operation after operation."""
        clerk = self._directory.clerk(host)
        while self._left:
            host.clock.sleep_us(int(self._random.expovariate(1 / self._directory.think_us)))
            self._left -= 1
            self.call(clerk)
        self.done = True

    def call(self, clerk: Clerk) -> None:
        """Run one operation."""
        clerk.call_one()


class Reader(Process):
    """A process that reads everybody by every key, when all clerks are done."""

    def call(self, clerk: Clerk) -> None:
        """See `Process`."""
        for number in range(self._directory.habits.people):
            clerk.get_number(number)
        for key in range(self._directory.habits.keys):
            clerk.find_key(key)
