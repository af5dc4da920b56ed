"""An index that is built, or dropped, while clients write and look for records: the real fill, and the real stages.

The schema numbers and the state of the index are rows, too: a dummy named "schema 0" has the number of shard 0 as its
version; an index record says by its version whether the index is readable. So the enumeration sees them change.

In each state of each order:
    a find      that says that nobody has a key says the truth: there was a moment in which no record's value stated it
    complete    while the index is readable, each record whose value states a key has it, and has its index record
    uniqueness, no loss, finds: see `scenes`
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple, cast

import msgspec

from fairlead.records import filling
from fairlead.records.accesses import (
    Access,
    DeleteIndex,
    LookUp,
    Op,
    ReadIndex,
    ReadRecord,
    WriteIndex,
    WriteRecord,
    one,
)
from fairlead.records.errors import Changed, Interrupted
from fairlead.records.on_shards.index_changes import BUILD_STAGES, DROP_STAGES, Stage
from fairlead.records.protocol import Protocol
from fairlead.records.storage_model.performing import Answer, ModelStores
from fairlead.records.stored import DataRecord, IndexRecord
from tests.records.orders.enumeration import Client, Scene, Step, Violation
from tests.records.orders.guards import Planted
from tests.records.orders.scenes import check, entry, key_of, keys_of

STATE_KEY = key_of("the state of the index")
SCHEMA = "schema {}"
FIELD = "f"
SHARDS = (0, 1)
REFUSED = "the shard maintains other indexes"
HIDDEN = "the index is hidden"


class WriteBySchema(NamedTuple):
    """A write of a record by the definition that a writer has read. Answer: whether it was written; or REFUSED."""

    access: WriteRecord
    schema: int


class SetSchema(NamedTuple):
    """One transaction on a data shard: make its schema number odd, or even. Answer: the number."""

    shard: int
    is_odd: bool


class SetState(NamedTuple):
    """One transaction on the index shard: make the index readable, or hide it. Answer: None."""

    is_readable: bool


class SchemaStores(ModelStores):
    """Stores that know schema numbers, and whether the index is readable."""

    reads_schema = True
    reads_state_again = True

    def answer(self, access: Any) -> Any:
        """See `ModelStores`."""
        if isinstance(access, WriteBySchema):
            if self.reads_schema and self._schema_of(access.access.key) != access.schema:
                return REFUSED
            return super().answer(access.access)
        if isinstance(access, SetSchema):
            key = SCHEMA.format(access.shard)
            read = cast(DataRecord, super().answer(ReadRecord(key)))
            number = read.version + (read.version % 2 != access.is_odd)
            super().answer(WriteRecord(key, read, msgspec.structs.replace(read, version=number)))
            return number
        if isinstance(access, SetState):
            state = cast(IndexRecord, super().answer(ReadIndex(STATE_KEY)))
            changed = msgspec.structs.replace(state, version=int(access.is_readable))
            super().answer(WriteIndex(STATE_KEY, state, changed))
            return None
        if isinstance(access, LookUp):
            return self._look_up(access)
        if isinstance(access, ReadRecord) and access.found_by and self.reads_state_again and not self.is_readable():
            return HIDDEN
        return super().answer(cast(Access, access))

    def _look_up(self, access: LookUp) -> Answer | str:
        """Answer a lookup; here each one is seen, while the enumeration passes over states that it knows.

        Raises:
          Violation: the lookup meets no index record, and a record's value states the key.
        """
        if not self.is_readable():
            return HIDDEN
        found = super().answer(access)
        for key in ("0", "1") if found is None else ():
            record = super().answer(ReadRecord(key))
            if isinstance(record, DataRecord) and record.value and key_of_value(record) == access.index_key:
                raise Violation(f"a find says that nobody has {access.index_key!r}, and {key} has it")
        return found

    def is_readable(self) -> bool:
        """Say whether the index is readable."""
        state = super().answer(ReadIndex(STATE_KEY))
        return isinstance(state, IndexRecord) and state.version == 1

    def _schema_of(self, key: str) -> int:
        record = super().answer(ReadRecord(SCHEMA.format(shard_of(key))))
        assert isinstance(record, DataRecord)
        return record.version


class BlindSchemaStores(SchemaStores):
    """The last phase of a write does not read the schema number."""

    reads_schema = False


class StateOnceStores(SchemaStores):
    """The read of a record that a lookup has named does not read the state."""

    reads_state_again = False


class BlindFillStores(SchemaStores):
    """A write that leaves a user's version as it is, as a fill does, does not read the schema number."""

    def answer(self, access: Any) -> Any:
        """See `ModelStores`."""
        if isinstance(access, WriteBySchema):
            write = access.access
            if write.expected is not None and write.expected.writes == write.record.writes:
                return super().answer(write)
        return super().answer(access)


class CachedStateStores(SchemaStores):
    """A lookup does not read the state: it goes on what its client believed when it began."""

    def is_readable(self) -> bool:
        """See `SchemaStores`."""
        return True


def shard_of(key: str) -> int:
    """Return the shard of a record."""
    return int(key) % len(SHARDS)


class IndexClients:
    """Makes the clients. `build`, `drop`: the stages in order. `fill_op`: the real one, or one without a guard."""

    def __init__(
        self,
        *,
        build: Sequence[Stage] = BUILD_STAGES,
        drop: Sequence[Stage] = DROP_STAGES,
        fill_op: Callable[..., Op[filling.Filled]] = filling.fill_op,
        believes: bool = False,
        protocol: Protocol | None = None,
    ) -> None:
        self._protocol = protocol or Protocol()
        self._build_stages = build
        self._drop_stages = drop
        self._fill_op = fill_op
        self._believes = believes

    def write(self, key: str, name: str) -> Client:
        """Return a client that gives a record the value `name`, by the definition that it reads first."""
        return Client(f"write {key} {name}", lambda: self._write_op(key, name))

    def find(self, name: str) -> Client:
        """Return a client that looks for a record."""
        return Client(f"find {name}", lambda: self._find_op(name), finds=key_of(name))

    def build(self) -> Client:
        """Return the process that builds the index."""
        return Client("build", lambda: self._change_op(self._build_stages, 0))

    def fill(self) -> Client:
        """Return the process that builds the index, once all shards maintain it."""
        return Client("fill", lambda: self._change_op(self._build_stages[1:], 1))

    def late_fill(self) -> Client:
        """Return a process that fills the index, and stops then: another one goes on."""
        return Client("late fill", lambda: self._change_op((Stage.FILLED,), 1))

    def drop(self) -> Client:
        """Return the process that drops the index."""
        return Client("drop", lambda: self._change_op(self._drop_stages, 1))

    def _write_op(self, key: str, name: str) -> Op[Any]:
        schema = (yield from one(ReadRecord(SCHEMA.format(shard_of(key))))).version
        read = yield from self._protocol.get_op(key)
        if read is None:
            raise Changed(key=key, found=None)
        keys = keys_of(name) if schema % 2 else ()
        stated = stated_keys(read) if schema % 2 else ()
        writing = self._protocol.update_op(key, read, keys, name.encode(), stated)
        return (yield from by_schema(writing, schema))

    def _find_op(self, name: str) -> Op[Any]:
        if self._believes:
            state = yield from one(ReadIndex(STATE_KEY))
            if state.version != 1:
                return HIDDEN
        finding = self._protocol.find_op(key_of(name))
        accesses = next(finding)
        while True:
            answers = yield accesses
            if HIDDEN in answers:
                return HIDDEN
            try:
                accesses = finding.send(answers)
            except StopIteration as stop:
                return stop.value

    def _change_op(self, stages: Sequence[Stage], number: int) -> Op[Any]:
        """Go through some stages. `number`: the schema number of all shards at first."""
        violations = 0
        schema = [number for _ in SHARDS]
        for stage in stages:
            match stage:
                case Stage.MAINTAINED | Stage.OFF:
                    for shard in SHARDS:
                        changing = SetSchema(shard, is_odd=stage is Stage.MAINTAINED)
                        [schema[shard]] = yield [changing]  # type: ignore[list-item]
                case Stage.FILLED | Stage.STRIPPED:
                    for key in ("0", "1"):
                        filling_one = self._fill_one_op(key, schema[shard_of(key)], is_strip=stage is Stage.STRIPPED)
                        violations += yield from filling_one
                case Stage.READABLE | Stage.HIDDEN:
                    yield [SetState(is_readable=stage is Stage.READABLE and not violations)]  # type: ignore[list-item]
                case Stage.CLEARED:
                    for name in ("a", "x"):
                        found = yield from one(ReadIndex(key_of(name)))
                        if found is not None:
                            yield from one(DeleteIndex(key_of(name), found))
        return "done"

    def _fill_one_op(self, key: str, schema: int, *, is_strip: bool) -> Op[bool]:
        """Fill one record; return whether it is a violation."""
        read = yield from one(ReadRecord(key))

        def wanted(record: DataRecord) -> bytes | None:
            return key_of_value(record) if record.value and not is_strip else None

        filled = yield from by_schema(self._fill_op(self._protocol, key, read, FIELD, wanted), schema)
        if filled == REFUSED:
            raise Interrupted(key=key)
        return cast(filling.Filled, filled).violation is not None


def by_schema(operation: Op[Any], schema: int) -> Op[Any]:
    """Run an operation whose writes of records are refused by a shard of another schema number; return REFUSED then."""
    answers: list[Any] | None = None
    while True:
        try:
            accesses = operation.send(answers)  # type: ignore[arg-type]
        except StopIteration as stop:
            return stop.value
        answers = yield [WriteBySchema(each, schema) if isinstance(each, WriteRecord) else each for each in accesses]  # type: ignore[misc]
        if REFUSED in answers:
            return REFUSED


def check_index(step: Step) -> None:
    """See that everything holds after an access.

    Raises:
      Violation: something does not.
    """
    state = step.index_records.get(STATE_KEY)
    if state is not None and state.version == 1:
        for key, record in step.after.items():
            if not record.value:
                continue
            index_key = key_of_value(record)
            if index_key not in record.keys:
                raise Violation(f"the index is readable, and {key} has not got its key {index_key!r}")
            if index_key not in step.index_records or step.index_records[index_key].key != key:
                raise Violation(f"the index is readable, and {index_key!r} of {key} is not in it")
    progress, wanted = step.progress, step.client.finds
    if wanted is not None and progress is not None and progress.has_ended and progress.result is None:
        stating = [key for key, record in step.after.items() if wanted in stated_keys(record)]
        if stating and not step.run.was_free:
            raise Violation(f"a find says that nobody has {wanted!r}, and {stating} always had it")
    check(step)


def stated_keys(record: DataRecord) -> list[bytes]:
    """Return the index key that a record's value states, if it states one."""
    return [key_of_value(record)] if record.value else []


def scenes_of(do: IndexClients, stores: type[ModelStores] = SchemaStores) -> dict[str, Scene]:
    """Return the scenes by name: those of the model."""
    plain = {"0": valued(1, "x"), "1": valued(2, "")}
    indexed = {"0": valued(1, "x", keys=True), "1": valued(2, "")}
    x_of_0 = {"x": entry("0", 1, 0)}

    def made(
        clients: Iterable[Client],
        data: Mapping[str, DataRecord],
        index: Mapping[str, IndexRecord] | None = None,
        schema: int = 0,
        *,
        readable: bool = False,
    ) -> Scene:
        rows = {SCHEMA.format(shard): DataRecord(b"", schema, (), 0, b"") for shard in SHARDS}
        entries = {key_of(name): each for name, each in (index or {}).items()}
        state = {STATE_KEY: IndexRecord("", b"", int(readable))}
        return Scene(list(clients), {**data, **rows}, {**entries, **state}, check_index, stores, stated_keys)

    from_before: dict[str, Any] = {
        "data": {"0": valued(1, "y"), "1": valued(2, "x")},
        "index": {"x": entry("0", 1, 0), "y": entry("1", 2, 0)},
        "schema": 2,
    }
    return {
        "a drop beside writers and a find": made(
            [do.drop(), do.write("0", "a"), do.find("a")], indexed, x_of_0, 1, readable=True
        ),
        "a drop beside a fill that was held up": made([do.late_fill(), do.drop()], plain, schema=1),
        "a drop beside a find": made([do.drop(), do.find("x")], indexed, x_of_0, 1, readable=True),
        "a build beside two writers, a find": made(
            [do.build(), do.write("0", "a"), do.write("1", "b"), do.find("a")], plain
        ),
        "a build beside a writer who takes the key of a record that is not filled": made(
            [do.build(), do.write("1", "x"), do.find("x")], plain
        ),
        "a fill, a key is given up and taken": made(
            [do.fill(), do.write("0", ""), do.write("1", "x")], plain, schema=1
        ),
        "a fill beside a writer who changes no key": made(
            [do.fill(), do.write("0", "x"), do.find("x")], plain, schema=1
        ),
        "a build, one record changes twice": made(
            [do.build(), do.write("0", "a"), do.write("0", "x"), do.find("x")], plain
        ),
        "built anew beside one writer, with index records from before": made(
            [do.build(), do.write("0", "a")], **from_before
        ),
        "built anew beside the other writer, with index records from before": made(
            [do.build(), do.write("1", "y")], **from_before
        ),
    }


def key_of_value(record: DataRecord) -> bytes:
    """Return the index key that a record's value states."""
    return key_of(record.value.decode())


def valued(generation: int, name: str, *, keys: bool = False) -> DataRecord:
    """Return a record that a user has written, with a value; `keys`: while the index was maintained."""
    return DataRecord(bytes([generation]), 1, keys_of(name) if keys else (), 1, name.encode())


CLAIM = "                is_filled = (yield from _claim_op(protocol, key, read, wanted)) or is_filled\n"
BLIND = """                found = yield from one(ReadIndex(wanted))
                yield from one(WriteIndex(wanted, found, IndexRecord(key, read.generation, read.version)))
"""
SKIP = "                yield from one(WriteIndex(wanted, None, IndexRecord(key, read.generation, read.version)))\n"


KEPT = """            found = yield from self._as_read_op(key, read)
        return (yield from self._update_once_op(key, found,"""
KEPT_AS_READ_FIRST = f"            keys = kept_or_new(read, keys, stated)\n{KEPT}"


def fill_op_with(old: str, new: str) -> Callable[..., Op[filling.Filled]]:
    """Return the fill without a guard."""
    source = inspect.getsource(filling)
    assert source.count(old) == 1, f"the fill no longer holds: {old}"
    source = source.replace(old, new).replace("import Op, ", "import WriteIndex, Op, ")
    module = ModuleType("mutated")
    exec(compile(source, "mutated", "exec"), module.__dict__)
    return cast(Callable[..., Op[filling.Filled]], module.__dict__["fill_op"])


def scenes_without(guard: str) -> dict[str, Scene]:
    """Return the scenes without a guard."""
    return PLANTED[guard]()


PLANTED: dict[str, Callable[[], dict[str, Scene]]] = {
    "the last phase of a write reads the schema number": lambda: scenes_of(IndexClients(), BlindSchemaStores),
    "a fill reads the schema number": lambda: scenes_of(IndexClients(), BlindFillStores),
    "the fill begins when all shards maintain the index": lambda: scenes_of(
        IndexClients(build=(Stage.FILLED, Stage.MAINTAINED, Stage.READABLE))
    ),
    "the index becomes readable last": lambda: scenes_of(
        IndexClients(build=(Stage.MAINTAINED, Stage.READABLE, Stage.FILLED))
    ),
    "the fill replaces no index record that is valid": lambda: scenes_of(
        IndexClients(fill_op=fill_op_with(CLAIM, BLIND))
    ),
    "the fill replaces garbage": lambda: scenes_of(IndexClients(fill_op=fill_op_with(CLAIM, SKIP))),
    "the fill gives the record its key": lambda: scenes_of(
        IndexClients(fill_op=fill_op_with("                keys = (*others, wanted)\n", "                pass\n"))
    ),
    "a drop hides the index first": lambda: scenes_of(
        IndexClients(drop=(Stage.OFF, Stage.HIDDEN, Stage.STRIPPED, Stage.CLEARED))
    ),
    "an update of a record that was filled meanwhile keeps the key": lambda: scenes_of(
        IndexClients(protocol=Planted("", ((KEPT, KEPT_AS_READ_FIRST),)).protocol())
    ),
    "a lookup reads the state with the record": lambda: scenes_of(IndexClients(), StateOnceStores),
    "a lookup reads the state with the index record": lambda: scenes_of(IndexClients(believes=True), CachedStateStores),
}
