"""A directory whose people lie in tenants that are restored to snapshots, while clerks write them.

A restore brings people back to earlier states, whose index records may be gone, or name others. The product marks all
records of the tenant once it is restored, and repairs them. Until then a lookup may miss a person, and two may have one
key. In a third of the worlds an index is built and dropped meanwhile, so people come back without its keys, or with
them. So the history of that time is not checked. Afterwards people give up the keys that others have, too. From then on
no two have one key, and the history of some more clerks must be linearizable, by every key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from fairlead.records.on_shards.slots import Locations
from fairlead.simulation.actor import Actor
from fairlead.simulation.directory.clerk import Clerk
from fairlead.simulation.directory.model import People, changes_nothing
from fairlead.simulation.directory.outages import Outages
from fairlead.simulation.directory.people import TYPE, name_of, number_of, person_of
from fairlead.simulation.directory.resolver import Resolver
from fairlead.simulation.directory.restorer import RESTORED, Restorer, is_restoring, keep_restoring
from fairlead.simulation.directory.world import SIZES, Directory
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.linearizability.history import Model, Recorder
from fairlead.simulation.linearizability.history_trial import END_US, ENDED, ThinkingProcess
from fairlead.simulation.reduction import NO_REDUCTION, Reduction
from fairlead.simulation.trial import Report
from fairlead.simulation.world import Violation
from fairlead.zones.layout import Tenant

C = TypeVar("C")

UNIQUE = "after restores and their repairs no two records have one key"
TENANTS = 2
RESTORERS = 2
RESTORES_EACH = (4, 12)
THINK_US = (10_000, 40_000)
LATE_CLERKS = 2
LATE_OPERATIONS = 12


def run_restored_directory(seed: int, reduction: Reduction = NO_REDUCTION, **chosen: Any) -> Report:
    """Run a directory with restores in the world of `seed`. For arguments see `simulation.run.run`.

    Never raises a `Violation`: the report has it. An undecided history is a violation, too.
    """
    return RestoredDirectory(seed, reduction, **chosen).run()


class RestoredDirectory(Directory):
    """The directory of one run, ready to run once."""

    kind: ClassVar = "restored directory"
    sizes: ClassVar = {**SIZES, "items": 120}
    look_us: ClassVar = 50_000

    def __init__(self, seed: int, reduction: Reduction = NO_REDUCTION, **chosen: Any) -> None:
        super().__init__(seed, reduction, **chosen)
        draw = self.world.random("restores")
        self.think_us = draw.choice(THINK_US)
        self._restores_each = draw.choice(RESTORES_EACH)
        self._pauses_frac = draw.choice([0, 0.3, 0.9])
        self._first: People = (None,) * self.habits.people

    def locations(self, slot_count: int) -> Locations:
        """See `Directory`: people lie in tenants of users."""
        return Locations(TYPE, lambda key: Tenant("shop", f"t{number_of(key) % TENANTS}"), slot_count=slot_count)

    def start_more(self) -> Mapping[str, Actor]:
        """See `Directory`."""
        self.start_actor("keeper", lambda host: keep_restoring(host, self.cluster.open_shards(host)))
        for number in range(RESTORERS):
            name = f"restorer{number}"
            self._start(name, self._restorer, Restorer.call_one, self._restores_each)
        return {name: self.cluster.actors[name] for name in (f"restorer{number}" for number in range(RESTORERS))}

    def settle(self) -> None:
        """See `Directory`. Then people give up shared keys, and some more clerks begin a history of their own."""
        self.run_until(RESTORED, self.world.elapsed_us + END_US, lambda: not is_restoring(self.suite.shards.values()))
        super().settle()
        self.habits = self.habits._replace(leaves_unindexed=False)
        self._start("resolver", self._resolver, Resolver.resolve, 1)
        self.run_until(ENDED, self.world.elapsed_us + END_US, self.are_done)
        super().settle()
        self._check_unique()
        self.recorder = Recorder(self.world.note)
        data, _ = self._stored()
        records = [data.get(name_of(number)) for number in range(self.habits.people)]
        self._first = tuple(None if each is None else person_of(each) for each in records)
        names = [f"late clerk{number}" for number in range(LATE_CLERKS)]
        for name in names:
            self.start(self._process(name, Clerk.call_one, LATE_OPERATIONS))
        outages = Outages(self.world, self.world.random("late outages"), names)
        for store in self.cluster.stores.values():
            outages.attach(store)
        outages.begin()
        self.run_until(ENDED, self.world.elapsed_us + END_US, self.are_done)
        outages.stop()
        self.run_until_quiet()
        self._start("asker", self._resolver, Resolver.ask_all_shards, 1)
        self.run_until(ENDED, self.world.elapsed_us + END_US, self.are_done)
        super().settle()

    def _start(
        self, name: str, connect: Callable[[SimulatedHost], C], call: Callable[[C], object], operations: int
    ) -> None:
        think_us, random = self.plan.trouble_us / operations, self.world.random(name)
        self.start(ThinkingProcess(name, connect, call, operations=operations, think_us=think_us, random=random))

    def _restorer(self, host: SimulatedHost) -> Restorer:
        shards, draw = self.cluster.open_shards_once_there(host), self.world.random(host.name)
        return Restorer(host, shards, self._data_tenants(), draw, self._pauses_frac)

    def _resolver(self, host: SimulatedHost) -> Resolver:
        shards, draw = self.cluster.open_shards_once_there(host), self.world.random(host.name)
        return Resolver(host, shards, self._locations, draw, self.recorder, self.habits)

    def _check_unique(self) -> None:
        """See that no two records have one key, once those are resolved that the repairs have found."""
        data, index = self._stored()
        holders: dict[bytes, list[str]] = defaultdict(list)
        for key, record in data.items():
            for index_key in record.keys:
                holders[index_key].append(key)
        for index_key, keys in holders.items():
            if len(keys) > 1:
                raise Violation(UNIQUE, f"{keys} have {index_key!r}, and the index record is {index.get(index_key)}")

    @property
    def model(self) -> Model[People]:
        """See `Directory`: it begins with the people that there are once all is repaired."""
        return Model(self._first, changes_nothing)
