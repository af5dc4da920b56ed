"""Records of one type, as an application uses them: found by any key, kept unique, across shards (Uniqorn)."""

from __future__ import annotations  # Annotations of the functions within `create` and `update` cost 5 us in each call.

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Generic, TypeVar

from fairlead.actors.runtime.rate_limited_log import RateLimitedLog
from fairlead.actors.telemetry.record_counts import RECORD_COUNTS
from fairlead.index_changes import (
    RECORDS_PER_S,
    IndexChange,
    Violation,
    begin_index_change,
    read_violations,
    stored_field,
)
from fairlead.operator import Operator
from fairlead.record_repairs import Repairs, SharedValue
from fairlead.records.accesses import Op, Perform
from fairlead.records.alternate_keys import (
    AlternateValue,
    Field,
    check_key,
    declared_fields,
    index_keys,
    normalized,
    pack_unique,
)
from fairlead.records.definition import TypeRecord
from fairlead.records.errors import (
    Changed,
    IndexAway,
    Interrupted,
    NoSuchRecord,
    RecordError,
    Taken,
)
from fairlead.records.on_shards import within
from fairlead.records.on_shards.definitions import Definitions
from fairlead.records.on_shards.operations import Operations
from fairlead.records.on_shards.performing import ShardRecords
from fairlead.records.on_shards.scatter import Scatter
from fairlead.records.on_shards.scrubbing import Scrub, ShardScrub
from fairlead.records.on_shards.slots import Locations
from fairlead.records.on_shards.transaction import RecordTransaction
from fairlead.records.protocol import Protocol
from fairlead.records.stored import GENERATION_BYTES, DataRecord
from fairlead.records.values import Values, check_size, place_in_value, values_of
from fairlead.shards import Shards
from fairlead.zones.engines import Clock, StoreError
from fairlead.zones.errors import BadArgument
from fairlead.zones.open_body import refuse_across_shards, refuse_any
from fairlead.zones.tenant_transaction import TenantTransaction

V = TypeVar("V")
T = TypeVar("T")

log = logging.getLogger("fairlead.records")

CHANGE_ATTEMPTS_MAX = 20
PAUSE_US_MIN, PAUSE_US_MAX = 1_000, 100_000  # Between attempts of `change`: a random time up to this, which doubles.
FIND_ATTEMPTS_MAX = 3  # Of a delete by an alternate key, whose record changes meanwhile.
WRITE, READ = "a write of a record", "a read of a record"


@dataclass(frozen=True, slots=True)
class Record(Generic[V]):
    """A record as it was read. `version` counts the writes of users."""

    key: str
    value: V
    version: int
    stored: DataRecord = field(repr=False, compare=False)


class Records(Generic[V]):
    """The records of one type. Made by `App.records`; makes no call to a store until a method is called.

    Operations on single records are linearizable, by primary key and by alternate key. No two records have one value in
    a field that is unique. Nothing is retried, but in `change`: see the errors.

    While the shard of an index record does not answer, `find`, `find_all` and `delete` by a value ask all shards. That
    takes longer. It is logged, and counted as `fairlead_records_scatters_total`.

    With `repair=True`, creates and updates that add keys go on, too: such a record is marked, and a fleet repairs it
    once the shard is back. Until `marked` returns 0, `find` may miss marked records, and two may have one value.
    """

    def __init__(
        self,
        shards: Callable[[], Shards],
        locations: Locations,
        fields: Sequence[Field],
        values: Values[V],
        *,
        clock: Callable[[], Clock],
        random: Callable[[], Random],
        operator: Callable[[], Operator],
        repair: bool = False,
    ) -> None:
        self.name = locations.type_name
        self.locations = locations
        self._shards = shards
        self._operator = operator
        self._fields = {each.name: each for each in fields}
        self._values = values
        self._clock = clock
        self._random = random
        self._protocol = Protocol(ends_at_once=True, writes_at_once=True, leaves_unindexed=repair)
        self._scatter_log: RateLimitedLog | None = None
        self._opened: tuple[Shards, Operations] | None = None

    def __repr__(self) -> str:
        return f"<Records {self.name}>"

    # --- Writes ---

    def create(self, key: str, value: V) -> Record[V]:
        """Create a record; return it once it is durable, and found by all its keys.

        Args:
          key: its primary key, text of 1 to 128 bytes.
          value: see `App.records`. A field that is None, or missing, is no key.

        Raises:
          BadArgument: `key`, or a field, is of the wrong type, empty or too long; `value` is no plain data.
          Exists: there is a record of this key.
          Taken: another record has one of the values.
          Interrupted: another writer ended this one; try again.
          IndexUnavailable: a shard with an index record does not answer; not with `repair=True`.
        """
        checked, packed = check_key(key), self._values.pack(value)
        generation = self._random().randbytes(GENERATION_BYTES)

        def begin(definition: TypeRecord) -> Op[DataRecord]:
            return self._protocol.create_op(checked, self._keys(definition, checked, value, packed), packed, generation)

        return self._record(checked, self._write(checked, value, begin))

    def update(self, record: Record[V], value: V) -> Record[V]:
        """Give a record that was read a new value; return it as it is now.

        Raises:
          Changed: somebody has changed it since it was read, or it is gone.
          BadArgument, Taken, Interrupted, IndexUnavailable: see `create`.
        """
        packed, read = self._values.pack(value), _stored(record)

        def begin(definition: TypeRecord) -> Op[Any]:
            keys = self._keys(definition, record.key, value, packed)
            is_any_new = not all(read.has(each) for each in keys)
            stated = self._keys(definition, record.key, record.value, read.value) if is_any_new else ()
            return self._protocol.update_op(record.key, read, keys, packed, stated)

        written = self._write(record.key, value, begin)
        if written.dropped:
            self._drop_later(record.key, read.generation, written.dropped, written.record.version)
        return self._record(record.key, written.record)

    def change(self, key: str, change: Callable[[V], V]) -> Record[V]:
        """Read a record, give it the value that `change` returns for its value, and repeat that if it has changed.

        `change` may run several times. Attempts pause for a random time, because two writers can interrupt each other.

        Raises:
          NoSuchRecord: there is no record of this key.
          Changed, Interrupted: 20 attempts did not do.
          BadArgument, Taken, IndexUnavailable: see `create`.
          What `change` raises: nothing was changed.
        """
        pause_us = PAUSE_US_MIN
        for attempt in range(CHANGE_ATTEMPTS_MAX):
            record = self.get(key)
            if record is None:
                raise NoSuchRecord(key=key)
            try:
                return self.update(record, change(record.value))
            except (Changed, Interrupted):
                if attempt + 1 == CHANGE_ATTEMPTS_MAX:
                    raise
            self._clock().sleep_us(self._random().randrange(pause_us))
            pause_us = min(2 * pause_us, PAUSE_US_MAX)
        raise AssertionError("the last attempt returns or raises")

    def delete(self, record: Record[V] | None = None, /, **wanted: AlternateValue) -> bool:
        """Delete a record that was read, or the one with a value in a unique field; return whether there was one.

            accounts = app.records("account", unique=("email",), lookup=("city",))
            accounts.delete(accounts.create("u1", {"email": "a@x.com"}))
            accounts.delete(email="b@x.com")

        Raises:
          BadArgument: neither, or both; see `find`.
          Changed: somebody has changed the record since it was read, or it is gone.
          Interrupted: see `create`.
          IndexUnavailable: by a value: see `find`.
        """
        if record is not None:
            if wanted:
                raise BadArgument(argument="delete", value=sorted(wanted), allowed="a record, or one field")
            read = _stored(record)
            self._delete(record.key, read)
            return True
        for attempt in range(FIND_ATTEMPTS_MAX):
            found = self.find(**wanted)
            if found is None:
                return False
            try:
                self._delete(found.key, found.stored)
                return True
            except Changed:
                if attempt + 1 == FIND_ATTEMPTS_MAX:
                    raise
        raise AssertionError("the last attempt returns or raises")

    # --- Writes within a transaction on the tenant that holds the record ---

    def put(self, tr: TenantTransaction, key: str, value: V) -> None:
        """Write a record within a transaction on the tenant where it lies: it is written if that commits.

        It may be a new one, or drop keys, but no key may be added. For records that lie in tenants of users.

            carts = app.records("cart", tenant=lambda key: f"shop/{key}")
            carts.create("alice", {"items": 0})
            app.tenant("shop/alice").transact(lambda tr: carts.put(tr, "alice", {"items": 3}))

        Raises:
          BadArgument: the record lies in another tenant; see `create`.
          KeyAdded: the value has a key that the record does not have.
          NestedTransaction: `tr` is part of a transaction across shards.
        """
        checked, packed = check_key(key), self._values.pack(value)
        here, definition = self._within(tr, checked)

        def keys_in(stored: bytes) -> tuple[bytes, ...]:
            return self._keys(definition, checked, self._values.unpack(checked, stored), stored)

        keys = self._keys(definition, checked, value, packed)
        within.put(here, checked, packed, keys, keys_in=keys_in, generation=self._random().randbytes(GENERATION_BYTES))

    def remove(self, tr: TenantTransaction, key: str) -> bool:
        """Delete a record within a transaction on the tenant where it lies; return whether there is one; see `put`."""
        checked = check_key(key)
        here, _ = self._within(tr, checked)
        return within.remove(here, checked)

    def _within(self, tr: TenantTransaction, key: str) -> tuple[RecordTransaction, TypeRecord]:
        refuse_across_shards(WRITE)
        tenant = self.locations.data_tenant(key)
        if tr.tenant != tenant:
            raise BadArgument(argument="tr", value=str(tr.tenant), allowed=f"a transaction on {tenant}, which holds it")
        here = RecordTransaction.within(tr, self.locations)
        definition = here.stored_definition(self._first_definition)
        self._operations().definitions.check_place(definition)
        return here, definition

    # --- Reads ---

    def get(self, key: str) -> Record[V] | None:
        """Return the record of a primary key, or None.

        Raises:
          BadArgument: `key` is no text of 1 to 128 bytes.
          DefinitionDiffers: such records lie elsewhere, by another `tenant`.
        """
        checked = check_key(key)
        found = self._read(lambda: self._protocol.get_op(checked), nothing=None)
        if found is None:
            self._require_place(checked)
            return None
        return self._record(checked, found)

    def find(self, **wanted: AlternateValue) -> Record[V] | None:
        """Return the record that has a value in a unique field, or None: two reads.

            accounts = app.records("account", unique=("email",), lookup=("city",))
            accounts.find(email="a@x.com")

        If the shard of this value's index record does not answer, all shards are asked. Then None is the answer only if
        each of them has answered.

        Raises:
          BadArgument: not one field is named; it is not unique; its value is of the wrong type, empty or too long.
          DefinitionDiffers: the stored records are found by the field in another way, or lie elsewhere.
          IndexUnavailable: the index is being built; or the shard of this value's index record does not answer, and the
            record is not found on those that do.
        """
        [(name, value)] = _one(wanted)
        by = self._field(name, is_unique=True)
        index_key = pack_unique(by, value)
        found = self._looked_up(index_key)
        if found is None:
            return None
        record = self._record(*found)
        [has] = values_of(record.value, {name: by}).values()
        return record if has is not None and normalized(by, has) == normalized(by, value) else None

    def find_all(self, *, limit: int = 100, **wanted: AlternateValue) -> list[Record[V]]:
        """Return records that have a value in a field for lookup, in the order of their keys.

        Misses no record that has the value all the while. If the shard of the index records does not answer, all shards
        are asked, and each must answer.

            accounts = app.records("account", unique=("email",), lookup=("city",))
            accounts.find_all(city="Ulm", limit=20)

        Raises:
          BadArgument: `limit` is not 1 to 10,000; see `find`.
          DefinitionDiffers, IndexUnavailable: see `find`.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 10_000:
            raise BadArgument(argument="limit", value=limit, allowed="1 to 10,000")
        [(name, value)] = _one(wanted)
        prefix = pack_unique(self._field(name, is_unique=False), value)
        nothing: list[tuple[str, DataRecord]] = []
        try:
            found = self._read(lambda: self._protocol.find_all_op(prefix, limit), nothing=nothing)
        except IndexAway as away:
            found = self._scatter(away).find_all(prefix, limit)
        return [self._record(*each) for each in found]

    # --- After a shard was away ---

    def marked(self) -> int:
        """Return how many records were written without some of their index records, and are not repaired yet.

        Records with one of `shared_values` count until it is resolved. At most 10,000 of each shard are counted.

        Raises:
          IndexUnavailable: a shard does not answer.
        """
        return self._repairs().count_marked()

    def shared_values(self) -> list[SharedValue]:
        """Return the values of unique fields that several records got while a shard was away, as repairs found them.

        End each by `resolve`, also one that a single record has by now.

        Raises:
          IndexUnavailable: a shard does not answer, or the index of a field is not readable.
        """
        return self._repairs().shared_values()

    def resolve(self, *, keep: str, **wanted: AlternateValue) -> Record[V]:
        """Let one record keep a value that several have; return that record. All others lose the value.

            accounts = app.records("account", unique=("email",))
            for shared in accounts.shared_values():
                accounts.resolve(email=shared.value, keep=shared.keys[0])

        In a dict the field goes, in a type it becomes None. If this stops halfway, call it again.

        Raises:
          BadArgument: the field cannot be None in this type; nothing was changed. See `find`.
          NoSuchRecord: the record `keep` does not have the value.
          Taken: another record has taken the value meanwhile: resolve it again.
          Interrupted, Changed, IndexUnavailable: see `change`.
        """
        [(name, value)] = _one(wanted)
        by = self._field(name, is_unique=True)
        kept, index_key, repairs = check_key(keep), pack_unique(by, value), self._repairs()
        for key in repairs.holders(index_key, kept):
            with suppress(NoSuchRecord):
                self.change(key, repairs.without(by, value))
        refuse_any(WRITE)
        if index_key in self._operations().run(self._protocol.repair_op(kept, again=[index_key])):
            raise Taken(field=name, value=value)
        record = self.get(kept)
        if record is None or not record.stored.has(index_key):
            raise NoSuchRecord(key=kept, field=name, reason="the record to keep has lost the value meanwhile")
        return record

    def _repairs(self) -> Repairs[V]:
        refuse_across_shards(READ)
        shards = self._shards()
        return Repairs(self.name, Scatter(shards, self.locations, shards.parallel.run_all), self._values)

    # --- Indexes ---

    def add_index(
        self, name: str, *, unique: bool = False, normalize: str = "", records_per_s: int = RECORDS_PER_S
    ) -> IndexChange:
        """Begin to build an index of a field while records are read and written, and return at once.

            accounts = app.records("account", unique=("email",))
            change = accounts.add_index("phone", unique=True)

        A running fleet carries it out, and `change.result()` waits for its end. From its first seconds on, writers
        maintain the index, and refuse a value that another record has with `Taken`. Until it is complete, `find` by the
        field raises `IndexUnavailable`. If some records share a value, the build ends "pending": `find` still refuses,
        and `fairlead records violations` lists the records. Give them other values, and add the index once more: only
        they are looked at then.

        Name the field in `App.records` from then on.

        Args:
          name: of the field, text of 1 to 32 bytes.
          unique: no two records may have the same value.
          normalize: how values are compared; see `App.records`.
          records_per_s: how many records to index at most, 1 to 10,000,000 a second.

        Raises:
          BadArgument: an argument is out of range, or the type of the records has no such field.
          IndexExists: records are found by the field already.
          IndexChanging: its index is being built or dropped.
        """
        [field] = declared_fields((name,) if unique else (), () if unique else (name,), {name: normalize})
        change = begin_index_change(
            self._shards(),
            self.locations,
            field,
            list(self._fields.values()),
            place=place_in_value(self._values.type, name),
            is_drop=False,
            records_per_s=records_per_s,
            by=self._operator(),
            clock=self._clock(),
            random=self._random(),
        )
        self._fields[name] = field
        self._operations().definitions.declare(field)
        return change

    def drop_index(self, name: str, *, records_per_s: int = RECORDS_PER_S) -> IndexChange:
        """Begin to drop the index of a field while records are read and written, and return at once.

        A running fleet carries it out, and `result` of what is returned waits for its end. First `find` by the field is
        refused on all shards, then writers stop to maintain the index, then it is cleared.

        Raises:
          BadArgument: `records_per_s` is out of range.
          NoIndex: records are not found by the field.
          IndexChanging: its index is being built or dropped.
        """
        shards = self._shards()
        change = begin_index_change(
            shards,
            self.locations,
            stored_field(shards, self.name, name),
            [],
            place="",
            is_drop=True,
            records_per_s=records_per_s,
            by=self._operator(),
            clock=self._clock(),
            random=self._random(),
        )
        self._fields.pop(name, None)
        self._operations().definitions.undeclare(name)
        return change

    def scrub(
        self, *, repair: bool = False, rows_per_s: int = RECORDS_PER_S, progress: Callable[[int], None] = lambda _: None
    ) -> list[ShardScrub]:
        """Go through all records, and count on each shard what writers that stopped have left; see `ShardScrub`.

        Nobody depends on it: whoever wants a value collects garbage by itself. It is safe beside users.

        Args:
          repair: remove garbage, and write index records that are missing. If another record has the value, both
            keep it, and `shared_values` lists it.
          rows_per_s: how many records and index records to read at most, 1 to 10,000,000 a second.
          progress: called with the number of rows read so far.

        Raises:
          BadArgument: `rows_per_s` is out of range.
          IndexUnavailable, or what a store raises: a shard does not answer. What was repaired stays so.
          Restoring: a tenant that holds records is being restored; scrub once more afterwards.
          Interrupted: a record changes all the time.
        """
        if isinstance(rows_per_s, bool) or not isinstance(rows_per_s, int) or not 1 <= rows_per_s <= 10_000_000:
            raise BadArgument(argument="rows_per_s", value=rows_per_s, allowed="1 to 10,000,000")
        shards = self._shards()
        scrub = Scrub(
            shards,
            self.locations,
            self._operations_on(shards),
            clock=self._clock(),
            repair=repair,
            rows_per_s=rows_per_s,
            progress=progress,
        )
        return scrub.run()

    def violations(self, *, limit: int = 100) -> list[Violation]:
        """Return records that were left without a value of a unique field, because another record has it.

        They are those that the last build of an index has found, and as it has found them: `add_index` looks again.

        Raises:
          BadArgument: `limit` is not 1 to 10,000.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 10_000:
            raise BadArgument(argument="limit", value=limit, allowed="1 to 10,000")
        shards = self._shards().values()
        listed = [each for shard in shards for each in read_violations(shard, self.name, violations_max=limit)]
        return sorted(listed, key=lambda each: (each.field, str(each.value), each.key))[:limit]

    # --- The same for coroutines ---

    async def acreate(self, key: str, value: V) -> Record[V]:
        """Create a record as `create` does, and let the event loop go on meanwhile."""
        return await self._shards().calls.run(partial(self.create, key, value))

    async def aupdate(self, record: Record[V], value: V) -> Record[V]:
        """Update a record as `update` does, and let the event loop go on meanwhile."""
        return await self._shards().calls.run(partial(self.update, record, value))

    async def achange(self, key: str, change: Callable[[V], V]) -> Record[V]:
        """Change a record as `change` does, and let the event loop go on meanwhile. `change` is a plain function."""
        return await self._shards().calls.run(partial(self.change, key, change))

    async def adelete(self, record: Record[V] | None = None, /, **wanted: AlternateValue) -> bool:
        """Delete a record as `delete` does, and let the event loop go on meanwhile."""
        return await self._shards().calls.run(partial(self.delete, record, **wanted))

    async def aget(self, key: str) -> Record[V] | None:
        """Return a record as `get` does, and let the event loop go on meanwhile."""
        return await self._shards().calls.run(partial(self.get, key))

    async def afind(self, **wanted: AlternateValue) -> Record[V] | None:
        """Return a record as `find` does, and let the event loop go on meanwhile."""
        return await self._shards().calls.run(partial(self.find, **wanted))

    async def afind_all(self, *, limit: int = 100, **wanted: AlternateValue) -> list[Record[V]]:
        """Return records as `find_all` does, and let the event loop go on meanwhile."""
        return await self._shards().calls.run(lambda: self.find_all(limit=limit, **wanted))

    async def amarked(self) -> int:
        """Count marked records as `marked` does, and let the event loop go on meanwhile."""
        return await self._shards().calls.run(self.marked)

    async def ashared_values(self) -> list[SharedValue]:
        """Return shared values as `shared_values` does, and let the event loop go on meanwhile."""
        return await self._shards().calls.run(self.shared_values)

    async def aresolve(self, *, keep: str, **wanted: AlternateValue) -> Record[V]:
        """Let one record keep a value as `resolve` does, and let the event loop go on meanwhile."""
        return await self._shards().calls.run(lambda: self.resolve(keep=keep, **wanted))

    # --- How operations run ---

    def _delete(self, key: str, read: DataRecord) -> None:
        dropped = self._write(key, None, lambda _: self._protocol.delete_op(key, read))
        if dropped:
            self._drop_later(key, read.generation, dropped, None)

    def _write(self, key: str, value: V | None, begin: Callable[[TypeRecord], Op[T]]) -> T:
        """Run a write of a record. `value`: its new value; None: it is deleted."""
        refuse_any(WRITE)
        try:
            return self._operations().write(key, begin)
        except Taken as taken:
            name = str(taken.fields["field"])
            raise Taken(field=name, value=values_of(value, {name: None})[name]) from None

    def _read(self, begin: Callable[[], Op[T]], *, nothing: T) -> T:
        """Run a read. `nothing`: what it returns if there are no records."""
        refuse_across_shards(READ)
        return self._operations().read(begin, nothing=nothing)

    def _looked_up(self, index_key: bytes) -> tuple[str, DataRecord] | None:
        try:
            return self._read(lambda: self._protocol.find_op(index_key), nothing=None)
        except IndexAway as away:
            return self._scatter(away).find(index_key)

    def _scatter(self, away: IndexAway) -> Scatter:
        """Return what asks all shards, and say why."""
        shard_name = str(away.fields["shard"])
        RECORD_COUNTS.add_scatter(shard_name)
        if self._scatter_log is None:
            message = f"shard %s does not answer, so all shards are asked for records of type {self.name}: %s"
            self._scatter_log = RateLimitedLog(self._clock(), log, message)
        self._scatter_log.note(shard_name, away)
        shards = self._shards()
        return Scatter(shards, self.locations, shards.parallel.run_all, declared=self._fields)

    def _drop_later(self, key: str, generation: bytes, dropped: Sequence[bytes], below: int | None) -> None:
        """Delete index records of dropped keys soon; nobody waits for it, and nobody depends on it."""

        def drop() -> None:
            try:
                self._read(lambda: self._protocol.drop_op(key, generation, dropped, below), nothing=None)
            except (RecordError, StoreError) as error:
                log.info("index records of %s of type %s stay until somebody wants the keys: %s", key, self.name, error)

        self._shards().calls.start(drop)

    def _operations(self) -> Operations:
        """Return what runs operations on the shards that are open now."""
        shards = self._shards()
        if self._opened is None or self._opened[0] is not shards:
            self._opened = shards, self._operations_on(shards)
        return self._opened[1]

    def _operations_on(self, shards: Shards) -> Operations:
        transaction = partial(RecordTransaction, declared=self._fields)

        def performing(definition: TypeRecord | None) -> Perform:
            return ShardRecords(shards, self.locations, definition, shards.parallel.run_all, transaction).perform

        declared = tuple(self._fields.values())
        definitions = Definitions(shards, self.name, declared, in_tenants=self.locations.in_tenants)
        return Operations(
            self.name, definitions, lambda key: shards.home_name(self.locations.data_tenant(key)), performing
        )

    def _require_place(self, key: str) -> None:
        """See that there may be a record where none was found: that such records lie where this program looks."""
        shards = self._shards()
        self._operations().definitions.check_place_on(shards.home_name(self.locations.data_tenant(key)))

    def _first_definition(self, shard_name: str) -> TypeRecord:
        """Store the definition on a shard that has none: no record of the type was written there yet."""
        definitions = self._operations().definitions
        definitions.forget(shard_name)
        return definitions.on(shard_name)

    def _keys(self, definition: TypeRecord, key: str, value: V, packed: bytes) -> tuple[bytes, ...]:
        fields = definition.maintained()
        keys = index_keys(fields, key, values_of(value, fields))
        check_size(packed, keys)
        return keys

    def _field(self, name: str, *, is_unique: bool) -> Field:
        found = self._fields.get(name)
        if found is None or found.is_unique is not is_unique:
            allowed = ", ".join(each.name for each in self._fields.values() if each.is_unique is is_unique) or "none"
            what = "unique fields" if is_unique else "fields for lookup"
            raise BadArgument(argument="field", value=name, allowed=f"one of the {what} of {self.name}: {allowed}")
        return found

    def _record(self, key: str, stored: DataRecord) -> Record[V]:
        return Record(key, self._values.unpack(key, stored.value), stored.writes, stored)


def _one(wanted: dict[str, AlternateValue]) -> list[tuple[str, AlternateValue]]:
    if len(wanted) != 1:
        raise BadArgument(argument="field", value=sorted(wanted), allowed='exactly one field, such as email="a@x.com"')
    return list(wanted.items())


def _stored(record: Record[V]) -> DataRecord:
    if not isinstance(record, Record):
        raise BadArgument(argument="record", value=record, allowed="a Record, as get, find and create return it")
    return record.stored
