"""A directory in a world of its own: clerks with faults; then what is left is cleaned up, read, and checked.

In a third of the worlds slots move between the shards meanwhile: porters carry out the moves. In a third an index is
built and dropped. In half of these people are there before it, and some have the same value, which a build has to list.
In half of the worlds shards stop answering for a while. In a quarter writes go on nevertheless, and records are
repaired later. In half a scrub is run at the end, after which nothing is left; if shards go away there, an operator
scrubs beside the clerks, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from fairlead.records.alternate_keys import field_of, value_part
from fairlead.records.definition import FieldRecord, IndexState, type_key, unpack_definition
from fairlead.records.on_shards.repairing import marks_of
from fairlead.records.on_shards.scrubbing import ShardScrub
from fairlead.records.on_shards.slots import DATA, SLOTS_APP, Locations
from fairlead.records.on_shards.transaction import local_index
from fairlead.records.on_shards.violations import violation_of
from fairlead.records.stored import DataRecord, IndexRecord, unpack_data, unpack_index
from fairlead.simulation.actor import Actor
from fairlead.simulation.bank.stages import StageFaults
from fairlead.simulation.bank.world import PORTERS
from fairlead.simulation.directory.clerk import OPERATIONS, Clerk, Habits
from fairlead.simulation.directory.index_changes import IndexBuilder, IndexOperator
from fairlead.simulation.directory.janitor import LOOK_US, Janitor
from fairlead.simulation.directory.model import People, directory_of
from fairlead.simulation.directory.outages import Outages
from fairlead.simulation.directory.people import BADGE, DECLARED, FIELDS, TYPE, field_number, name_of, person_of
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.linearizability.history import Model
from fairlead.simulation.linearizability.history_trial import END_US, ENDED, HistoryTrial, ThinkingProcess
from fairlead.simulation.oracles.moving import TenantsMoveWhole
from fairlead.simulation.plan import draw_plan
from fairlead.simulation.reduction import NO_REDUCTION, Reduction
from fairlead.simulation.tenant_moves import MoveHabits, MoveOperator, Porter
from fairlead.simulation.trial import Report
from fairlead.simulation.world import Violation, World
from fairlead.zones import placement, tuples
from fairlead.zones.engines.memory import sorted_map
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.local_index import parse_indexed_key

LINEARIZABLE = "records are linearizable, by every key"
CLEANED = "what a stopped creator has left is cleaned up"
INDEXED = "every key of a record has its index record"
REPAIRED = "records that were written while a shard was away are repaired"
COMPLETE = "an index that is readable has all records, and one that is dropped has none"
SCRUBBED = "a scrub leaves nothing"
LISTED = "the shards' own indexes name what records are, and nothing else"
SLOT_COUNTS = (4, 16, 64)
BUILDERS = 2
BADGES = 8  # So many keys are added for the third field.
MORE_PEOPLE = 3  # So many are added if some have the same badge.
SCRUBS_MAX = 20
SCRUBS_MEANWHILE = 3  # By an operator, beside clerks, while shards go away.
SHARDS_MIN, SHARDS_MAX = 2, 4
BETWEEN_MOVES_US = (50_000, 200_000)
SIZES: Final = {"consumers": 0, "producers": 4, "items": 60, "trouble_us": 1_500_000}
CLEANED_US_MAX = 90_000_000  # A cleanup item waits for a minute.


def run_directory(seed: int, reduction: Reduction = NO_REDUCTION, **chosen: Any) -> Report:
    """Run a directory in the world of `seed`, and check its history. For arguments see `simulation.run.run`.

    Never raises a `Violation`: the report has it. An undecided history is a violation, too.
    """
    return Directory(seed, reduction, **chosen).run()


class Directory(HistoryTrial):
    """The directory of one run, ready to run once.

    Attributes:
      kind: names the world, among those of one seed.
      sizes: of the plan.
      look_us: how often the janitor looks for what is to be cleaned up and repaired.
    """

    kind: ClassVar = "directory"
    sizes: ClassVar = SIZES
    look_us: ClassVar = LOOK_US

    def __init__(self, seed: int, reduction: Reduction = NO_REDUCTION, **chosen: Any) -> None:
        world = World(f"{seed}, {self.kind}")
        draw = world.random("directory")
        sizes = {**self.sizes, "shards": draw.randint(SHARDS_MIN, SHARDS_MAX), "tenants": 2, **chosen}
        plan = reduction.apply_to(draw_plan(world.random("plan"), **sizes))
        super().__init__(seed, reduction, chosen, world=world, plan=plan)
        changes_indexes = draw.random() < 1 / 3
        self._begins_with_people = changes_indexes and world.random("badges").random() < 1 / 2
        self.habits = Habits(
            people=draw.randint(2, 5) + (MORE_PEOPLE if self._begins_with_people else 0),
            keys=draw.randint(2, 6) + (BADGES if changes_indexes else 0),
            fields=len(FIELDS if changes_indexes else DECLARED),
            pauses_frac=draw.choice([0, 0.1, 0.3]),
            at_once=draw.random() < 0.7,
            weights={name: draw.choice([1, 2, 6]) for name in OPERATIONS},
            own_badges_frac=0.1 if self._begins_with_people else 0.8,
            other_badges=2 if self._begins_with_people else BADGES,
            leaves_unindexed=draw.random() < 1 / 4,
        )
        self.think_us = draw.choice([1_000, 30_000, 100_000])
        self._early_frac = draw.choice([0, 0.1, 0.5])
        self._stage_frac = draw.choice([0, 0.05, 0.2])
        self._locations = self.locations(draw.choice(SLOT_COUNTS))
        self._has_outages = self.habits.leaves_unindexed or draw.random() < 1 / 3
        self._scrubs = draw.random() < 1 / 2
        self._scrubbed: list[list[ShardScrub]] = []
        self._indexes: IndexOperator | None = None
        if changes_indexes:
            self._indexes = IndexOperator(self.cluster, world.random("changes of indexes"), self._locations)
        self._moves: MoveOperator | None = None
        if plan.moves:
            self.suite.oracles.append(TenantsMoveWhole(world, self.suite.shards))
            between_us = world.random("moves").choice(BETWEEN_MOVES_US)
            self._moves = MoveOperator(self.cluster, world.random("moves of tenants"), MoveHabits(between_us))

    def run_scenario(self) -> None:
        """See `Trial`."""
        if self._begins_with_people:
            self._enter_people()
        clerks = [f"clerk{number}" for number in range(self.plan.producers)]
        for number, name in enumerate(clerks):
            self.start(self._process(name, Clerk.call_one, self.share(number)))
        cut_off = [*clerks]  # Processes to whom shards do not answer during an outage.
        if self._scrubs and self._has_outages:
            cut_off.append("scrubber")
            self.start(self._process("scrubber", Clerk.scrub, SCRUBS_MEANWHILE))
        self.start_actor("janitor", self._clean)
        struck = {name: self.cluster.actors[name] for name in clerks}
        if self._moves is not None:
            for name in (f"porter{number}" for number in range(PORTERS)):
                struck[name] = self.start_actor(name, self._move)
            self._moves.begin()
        if self._indexes is not None:
            for name in (f"builder{number}" for number in range(BUILDERS)):
                struck[name] = self.start_actor(name, self._build)
            self._indexes.begin()
        struck |= self.start_more()
        outages = Outages(self.world, self.world.random("outages"), cut_off)
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
        self.run_until("changes of indexes end", END_US, lambda: self._indexes is None or self._indexes.is_over)
        self.settle()
        self.start(self._process("reader", self._read_all, 1))
        self.run_until(ENDED, END_US, self.are_done)
        self._check_scrubs()
        self._check_stored()
        self.suite.at_end()
        if self.world.violation is not None:
            raise self.world.violation
        self.check_history(LINEARIZABLE, self.model)

    def locations(self, slot_count: int) -> Locations:
        """Return where records lie."""
        return Locations(TYPE, slot_count=slot_count)

    def start_more(self) -> Mapping[str, Actor]:
        """Start other processes; return those that die and stand still at their commits."""
        return {}

    def settle(self) -> None:
        """Run until all is cleaned up."""
        self.run_until(CLEANED, self.world.elapsed_us + CLEANED_US_MAX, self._is_clean)

    def _enter_people(self) -> None:
        """Let the directory have people before anything else happens, and some of them the same badge."""
        for number in range(self.plan.producers):
            name = f"registrar{number}"
            operations, random = self.habits.people, self.world.random(name)
            self.start(
                ThinkingProcess(
                    name, self._registrar, Clerk.enter, operations=operations, think_us=1_000, random=random
                )
            )
        self.run_until(ENDED, END_US, self.are_done)

    def _process(self, name: str, call: Callable[[Clerk], object], operations: int) -> ThinkingProcess[Clerk]:
        random = self.world.random(name)
        return ThinkingProcess(name, self._clerk, call, operations=operations, think_us=self.think_us, random=random)

    def _registrar(self, host: SimulatedHost) -> Clerk:
        shards, draw = self.cluster.open_shards_once_there(host), self.world.random(host.name)
        return Clerk(host, shards, self._locations, draw, self.recorder, self.habits._replace(pauses_frac=0))

    def _clerk(self, host: SimulatedHost) -> Clerk:
        shards, draw = self.cluster.open_shards_once_there(host), self.world.random(host.name)
        return Clerk(host, shards, self._locations, draw, self.recorder, self.habits)

    def _read_all(self, clerk: Clerk) -> None:
        """Read everybody by every key. Then scrub, perhaps."""
        for number in range(self.habits.people):
            clerk.get_number(number)
        for key in range(self.habits.keys):
            clerk.find_key(key)
        if self._scrubs:
            self._scrub(clerk)

    def _scrub(self, clerk: Clerk) -> None:
        """Scrub until nothing is left to be done, and keep what each scrub has found.

        What a repair has left marked stays so: another record has the key, and a user says which is to keep it.
        """
        for _ in range(SCRUBS_MAX):
            self._scrubbed.append(clerk.scrub())
            if not any(each.missing or each.dangling or each.dummies for each in self._scrubbed[-1]):
                return

    def _check_scrubs(self) -> None:
        """See that no index record was missing, and that the scrubs have come to an end."""
        for number, found in enumerate(self._scrubbed, start=1):
            if any(each.missing for each in found):
                raise Violation(INDEXED, f"a scrub finds {found}")
            if number == SCRUBS_MAX:
                raise Violation(SCRUBBED, f"after {number} times there are {found}")

    def _clean(self, host: SimulatedHost) -> None:
        shards, draw = self.cluster.open_shards(host), self.world.random(host.name)
        Janitor(host, shards, self._locations, self._data_tenants(), draw, self._early_frac).run(self.look_us)

    def _move(self, host: SimulatedHost) -> None:
        Porter(host, self.cluster.open_shards(host), None).run()

    def _build(self, host: SimulatedHost) -> None:
        IndexBuilder(host, self.cluster.open_shards(host), self._locations).run()

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
                if tenant.app and shard.lives_here(tenant):
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
            if record.unrepaired:
                raise Violation(REPAIRED, f"{key} still lacks index records of {record.unrepaired}")
            for index_key in record.keys:
                is_named = index_key in index and index[index_key].key == key
                if not is_named and index_key not in record.violations:
                    raise Violation(INDEXED, f"{key} has {index_key!r}, whose index record is {index.get(index_key)}")
        self._check_badges(data)
        self._check_listed(data)
        if self._scrubs:
            for index_key, entry in index.items():
                if entry.key not in data or not data[entry.key].has(index_key):
                    raise Violation(SCRUBBED, f"{index_key!r} names {entry.key}, which is {data.get(entry.key)}")

    def _check_listed(self, data: Mapping[str, DataRecord]) -> None:
        """Compare the entries of the shards' own indexes with the records, but for those that list violations."""
        listed: set[tuple[bytes, str]] = set()
        for shard in self.suite.shards.values():
            for tenant, rows in shard.rows.items():
                if tenant.app and shard.lives_here(tenant):
                    entries = (parse_indexed_key(TenantKeys(*tenant), row_key) for row_key in rows)
                    listed |= {(each[0], each[1].decode()) for each in entries if each is not None}
        named = {
            (index, key)
            for key, record in data.items()
            for index in {local_index(TYPE, value_part(each)) for each in record.keys} | marks_of(TYPE, record)
        }
        wrong = {each for each in listed ^ named if violation_of(each[0]) is None}
        if wrong:
            raise Violation(LISTED, f"the records are {data}, and differ in {sorted(wrong)}")

    def _check_badges(self, data: Mapping[str, DataRecord]) -> None:
        """See that the index of badges is complete, or that no record has a key of it.

        Writers that were held up may leave index records of an index that is dropped: garbage, as of any other.
        """
        badges = self._stored_badges()
        has_key = {key: any(field_of(each) == BADGE.name for each in record.keys) for key, record in data.items()}
        if badges is None or not badges.is_maintained:
            if any(has_key.values()):
                raise Violation(COMPLETE, f"the index is dropped, and records have keys of it: {has_key}")
        elif badges.state == IndexState.READABLE:
            for key, record in data.items():
                states = any(field_number(each, len(FIELDS)) == len(DECLARED) for each in person_of(record).keys)
                if has_key[key] is not states:
                    raise Violation(COMPLETE, f"the index is readable, and {key} is {record}")

    def _stored_badges(self) -> FieldRecord | None:
        """Return the field of badges, as the home of the type defines it; None: no index of it was ever built."""
        home = self.cluster.stores[placement.home(Tenant(SLOTS_APP, TYPE), list(self.cluster.stores))]
        definition = unpack_definition(TYPE, sorted_map.get(home.contents, type_key(TYPE)))
        return None if definition is None else definition.named(BADGE.name)

    @property
    def model(self) -> Model[People]:
        """The directory as a sequential object."""
        return directory_of(self.habits.people)
