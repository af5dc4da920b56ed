"""One clerk of the directory: draws operations, runs them by the product's own code, and records their answers.

A write that its process has not seen end, or that a store did not answer, may have happened, or may still happen. One
that was refused, or interrupted, has not. While the shard of an index record does not answer, a clerk asks all shards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple, TypeVar

from fairlead.records.accesses import Access, Op
from fairlead.records.alternate_keys import index_keys, pack_unique
from fairlead.records.definition import TypeRecord
from fairlead.records.errors import Changed, Exists, IndexAway, IndexUnavailable, Interrupted, Taken
from fairlead.records.on_shards.definitions import Definitions
from fairlead.records.on_shards.operations import Operations
from fairlead.records.on_shards.performing import ShardRecords
from fairlead.records.on_shards.scatter import Scatter
from fairlead.records.on_shards.scrubbing import Scrub, ShardScrub
from fairlead.records.on_shards.slots import Locations
from fairlead.records.protocol import Protocol
from fairlead.records.stored import GENERATION_BYTES, DataRecord
from fairlead.simulation.directory.model import (
    Create,
    Delete,
    Find,
    Get,
    IsChanged,
    IsTaken,
    IsThere,
    Keys,
    Update,
)
from fairlead.simulation.directory.people import (
    DECLARED,
    FIELDS,
    TYPE,
    field_number,
    name_of,
    number_of,
    pack_person,
    person_of,
    values_of,
)
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.linearizability.history import RecordedAnswer, Recorder
from fairlead.simulation.open_shards import OpenShards
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.errors import Restoring, TenantBusy, TenantMoved

T = TypeVar("T")

KEPT_BADGE_FRAC = 0.6
SCRUB_AGAIN_US = 100_000  # After a shard did not answer.
OPERATIONS = ("create", "update", "delete", "get", "find", "collect")


class Habits(NamedTuple):
    """What the plan of a run has drawn for its clerks.

    Attributes:
      people, keys: how many numbers, and how many keys, there are.
      fields: how many fields the keys are of.
      pauses_frac: how often a clerk pauses before an access.
      at_once: whether writes on one shard are made in one transaction.
      weights: how often each operation is drawn, by its name.
      own_badges_frac: how often a badge is the person's own; otherwise it is one that others may have, too.
      other_badges: how many of those there are.
      leaves_unindexed: whether writes go on while shards of their index records do not answer. Then two people may
        have one key, and a lookup may miss a person, until a repair.
    """

    people: int
    keys: int
    fields: int
    pauses_frac: float
    at_once: bool
    weights: Mapping[str, int]
    own_badges_frac: float
    other_badges: int
    leaves_unindexed: bool

    def shared(self, keys: Keys) -> Keys:
        """Return those of some keys that others may have, too."""
        if self.leaves_unindexed:
            return keys
        return tuple(key for key in keys if field_number(key, self.fields) >= len(DECLARED))


class Clerk:
    """One incarnation of a clerk, on its open shards."""

    def __init__(
        self,
        host: SimulatedHost,
        shards: OpenShards,
        locations: Locations,
        random: Random,
        recorder: Recorder,
        habits: Habits,
    ) -> None:
        self._host = host
        self._shards = shards
        self._draw = random
        self._recorder = recorder
        self._habits = habits
        self._locations = locations
        definitions = Definitions(shards, TYPE, DECLARED, in_tenants=locations.in_tenants)
        self._operations = Operations(TYPE, definitions, self._home_of, lambda each: partial(self._perform, each))
        self._protocol = Protocol(
            ends_at_once=True, writes_at_once=habits.at_once, leaves_unindexed=habits.leaves_unindexed
        )
        self._writes = 0

    def call_one(self) -> None:
        """Run a drawn operation. It may give up."""
        weights = self._habits.weights
        (name,) = self._draw.choices(list(weights), list(weights.values()))
        operations: Sequence[Callable[[], None]] = (
            self.create, self.update, self.delete, self.get, self.find, self.collect
        )  # fmt: skip
        try:
            operations[OPERATIONS.index(name)]()
        except (StoreError, TenantBusy, TenantMoved, Restoring) as error:
            self._host.world.note(f"gives up: {error!r}")

    # --- Writes ---

    def create(self) -> None:
        """Create a person."""
        number = self._number()
        keys, tag = self._keys(number), self._tag()

        def begin(definition: TypeRecord) -> Op[DataRecord]:
            packed = self._packed(definition, number, keys)
            generation = self._host.random.randbytes(GENERATION_BYTES)
            return self._protocol.create_op(name_of(number), packed, self._value(tag, keys), generation)

        self._write(number, RecordedAnswer(Create(number, keys, tag, self._habits.shared(keys)), True), begin, keys)

    def enter(self) -> None:
        """Create a person, or update one."""
        (self.create if self._draw.random() < 1 / 2 else self.update)()

    def update(self) -> None:
        """Read a person, wait perhaps, and give it other keys."""
        number = self._number()
        keys, tag = self._keys(number), self._tag()
        read = self._read_one(number)
        if read is None:
            return
        self._pause()
        before, keys_before = person_of(read)
        keys = self._with_old_badge(keys, keys_before)

        def begin(definition: TypeRecord) -> Op[Any]:
            packed, stated = self._packed(definition, number, keys), self._packed(definition, number, keys_before)
            return self._protocol.update_op(name_of(number), read, packed, self._value(tag, keys), stated)

        call = RecordedAnswer(Update(number, before, keys, tag, self._habits.shared(keys)), True)
        written = self._write(number, call, begin, keys, before)
        if written is not None and written.dropped:
            drop = self._protocol.drop_op(
                name_of(number), written.record.generation, written.dropped, written.record.version
            )
            self._clean(drop)

    def delete(self) -> None:
        """Read a person, wait perhaps, and delete it."""
        number = self._number()
        read = self._read_one(number)
        if read is None:
            return
        self._pause()
        before = person_of(read).tag

        def begin(_: TypeRecord) -> Op[tuple[bytes, ...]]:
            return self._protocol.delete_op(name_of(number), read)

        dropped = self._write(number, RecordedAnswer(Delete(number, before), True), begin, (), before)
        if dropped:
            self._clean(self._protocol.drop_op(name_of(number), read.generation, dropped, None))

    def collect(self) -> None:
        """Collect a key's index record, if it is garbage."""
        self._clean(self._protocol.collect_op(self._index_key(self._key())))

    def scrub(self) -> list[ShardScrub]:
        """Repair what writers have left, and return what was found; again and again if a shard does not answer."""
        while True:
            try:
                return Scrub(
                    self._shards,
                    self._locations,
                    self._operations,
                    clock=self._host.clock,
                    repair=True,
                    rows_per_s=1_000_000,
                    progress=lambda _: None,
                ).run()
            except (StoreError, IndexUnavailable, Interrupted, Restoring) as error:
                self._host.world.note(f"scrubs anew: {error!r}")
                self._host.clock.sleep_us(SCRUB_AGAIN_US)

    def _write(
        self,
        number: int,
        answer: RecordedAnswer,
        begin: Callable[[TypeRecord], Op[T]],
        keys: Keys,
        before: str = "",
    ) -> T | None:
        """Run a write, and record it. Return its result; None: it was refused."""
        attempt = self._recorder.begin(self._host.name)
        attempt.answers = [answer]
        try:
            result = self._operations.write(name_of(number), begin)
        except Exists:
            attempt.answers = [RecordedAnswer(IsThere(number), True)]
        except Taken:
            attempt.answers = [RecordedAnswer(IsTaken(number, keys), True)]
        except Changed:
            attempt.answers = [RecordedAnswer(IsChanged(number, before), True)]
        except Interrupted:
            self._recorder.drop(attempt)
            return None
        except IndexUnavailable:
            self._recorder.drop(attempt)
            return None
        else:
            self._recorder.end(attempt)
            return result
        self._recorder.end(attempt)
        return None

    def _home_of(self, key: str) -> str:
        return self._shards.home_name(self._locations.data_tenant(key))

    # --- Reads ---

    def get(self) -> None:
        """Read a person by number."""
        self.get_number(self._number())

    def get_number(self, number: int) -> None:
        """Read a person by number."""
        attempt = self._recorder.begin(self._host.name)
        found = self._read_one(number)
        attempt.answers = [RecordedAnswer(Get(number), None if found is None else person_of(found))]
        self._recorder.end(attempt)

    def find(self) -> None:
        """Look for a person by a key."""
        self.find_key(self._key())

    def find_key(self, key: int) -> None:
        """Look for a person by a key. If several may have it, it says only that one of them has."""
        attempt = self._recorder.begin(self._host.name)
        try:
            found = self._looked_up(self._index_key(key))
        except IndexUnavailable:
            self._recorder.drop(attempt)
            return
        if found is None and self._habits.leaves_unindexed:
            self._recorder.drop(attempt)
            return
        if found is None:
            attempt.answers = [RecordedAnswer(Find(key), None)]
        else:
            number, person = number_of(found[0]), person_of(found[1])
            has = Get(number) if self._habits.leaves_unindexed else Find(key)
            attempt.answers = [RecordedAnswer(has, person if self._habits.leaves_unindexed else (number, person))]
        self._recorder.end(attempt)

    def _looked_up(self, index_key: bytes) -> tuple[str, DataRecord] | None:
        try:
            return self._operations.read(lambda: self._protocol.find_op(index_key), nothing=None)
        except IndexAway:
            return Scatter(self._shards, self._locations, self._in_any_order).find(index_key)

    def _read_one(self, number: int) -> DataRecord | None:
        return self._operations.read(lambda: self._protocol.get_op(name_of(number)), nothing=None)

    def _clean(self, operation: Op[Any]) -> None:
        try:
            self._operations.run(operation)
        except (IndexUnavailable, Interrupted) as error:
            self._host.world.note(f"leaves garbage: {error}")

    def _perform(self, definition: TypeRecord | None, accesses: Sequence[Access]) -> list[Any]:
        records = ShardRecords(self._shards, self._locations, definition, self._in_any_order)
        self._pause()
        return records.perform(accesses)

    def _in_any_order(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Run calls on several shards one after the other, in any order, with pauses."""
        outcomes: dict[int, T] = {}
        for number in self._draw.sample(range(len(calls)), len(calls)):
            outcomes[number] = calls[number]()
            self._pause()
        return [outcomes[number] for number in range(len(calls))]

    # --- Draws ---

    def _number(self) -> int:
        return self._draw.randrange(self._habits.people)

    def _key(self) -> int:
        return self._draw.randrange(self._habits.keys)

    def _keys(self, number: int) -> Keys:
        """Draw one key of each field, or none. A badge is mostly a person's own, or no index of badges is readable."""
        drawn = []
        for field in range(self._habits.fields):
            of_field = range(field, self._habits.keys, self._habits.fields)
            if not of_field or self._draw.random() >= 0.7:
                continue
            if field < len(DECLARED):
                drawn.append(self._draw.choice(of_field))
            elif self._draw.random() < self._habits.own_badges_frac:
                drawn.append(of_field[number % len(of_field)])
            else:
                drawn.append(self._draw.choice(of_field[: self._habits.other_badges]))
        return tuple(drawn)

    def _with_old_badge(self, keys: Keys, before: Keys) -> Keys:
        """Return drawn keys; often with the badge that the person has, if there are badges."""
        if self._habits.fields == len(DECLARED) or self._draw.random() >= KEPT_BADGE_FRAC:
            return keys
        return tuple(
            key
            for drawn, is_badge in ((keys, False), (before, True))
            for key in drawn
            if (field_number(key, self._habits.fields) >= len(DECLARED)) is is_badge
        )

    def _tag(self) -> str:
        self._writes += 1
        return f"{self._host.name}.{self._writes}"

    def _packed(self, definition: TypeRecord, number: int, keys: Keys) -> tuple[bytes, ...]:
        return index_keys(definition.maintained(), name_of(number), values_of(keys, self._habits.fields))

    def _index_key(self, key: int) -> bytes:
        return pack_unique(FIELDS[field_number(key, self._habits.fields)], key)

    def _value(self, tag: str, keys: Keys) -> bytes:
        return pack_person(tag, keys, self._habits.fields)

    def _pause(self) -> None:
        if self._host.random.random() < self._habits.pauses_frac:
            self._host.clock.sleep_us(self._host.random.choice([1_000, 20_000, 300_000]))
