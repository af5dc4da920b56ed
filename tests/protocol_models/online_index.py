"""An index that is built and dropped while clients write and look for records.

Two data shards hold one record each, and there is one index shard. A data shard has a schema number, odd while writers
maintain the index. The index shard says whether the index may be read. A build makes the number odd on each data shard,
then claims the key of each record as a writer would, then makes the index readable; with violations it does not. A drop
hides the index, then makes the numbers even. The collection of garbage is one step here: `uniqorn.py` of the design
has its phases.

Each access to a store is one transition. Any process may stop after any of them, or pause for any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple

from tests.protocol_models.exploration import Transition

MISSED = "a lookup says that nobody has the key, and somebody had it all the while"
MISSING = "the index is readable, and a record that is no violation has no index record"

SHARDS = (0, 1)
HIDE = "hide"


class Guard(Enum):
    """What makes the change of an index safe; a model can be built without one of them."""

    SCHEMA_READ = "the last phase of a write reads the schema number with conflict"
    ALL_MAINTAIN_FIRST = "the fill begins when writers on every shard maintain the index"
    READABLE_LAST = "the index becomes readable after the fill"
    FILL_CLAIMS = "the fill does not replace the index record of a record that has the key"
    FILL_COLLECTS = "the fill replaces an index record that is garbage"
    HIDDEN_FIRST = "a drop hides the index before writers stop to maintain it"
    STATE_READ = "a lookup reads whether the index is readable in the transaction that reads the index record"


class Record(NamedTuple):
    """A record. `key`: its value in the indexed field; None: it has none."""

    version: int
    key: str | None


class Process(NamedTuple):
    """What a process has in mind. `free`: since it began to look, there was a moment in which nobody had the key."""

    step: str = "start"
    schema: int = 0
    read: Record | None = None
    at: int = 0
    believed: bool = False
    found: int | None = None
    free: bool = False


class State(NamedTuple):
    """The stores, the violations, and the processes."""

    records: tuple[Record, ...]
    entries: tuple[tuple[str, int], ...]
    schema: tuple[int, ...]
    readable: bool
    violations: frozenset[tuple[int, str]]
    processes: tuple[Process, ...]

    def has_owner(self, key: str) -> bool:
        """Say whether a record has a key."""
        return any(record.key == key for record in self.records)

    def with_record(self, number: int, record: Record) -> State:
        """Return this state with another record."""
        return self._replace(records=(*self.records[:number], record, *self.records[number + 1 :]))

    def with_index(self, key: str, number: int) -> State:
        """Return this state with another index record."""
        return self._replace(entries=tuple(sorted({**dict(self.entries), key: number}.items())))

    def with_schema(self, shard: int, number: int) -> State:
        """Return this state with another schema number."""
        return self._replace(schema=(*self.schema[:shard], number, *self.schema[shard + 1 :]))

    def claimed(self, number: int, key: str) -> State | None:
        """Return this state with an index record that is claimed for a record; None: another record has the key."""
        other = dict(self.entries).get(key)
        if other is None or other == number:
            return self.with_index(key, number)
        if self.records[other].key == key:
            return None
        bumped = self.records[other]._replace(version=self.records[other].version + 1)
        return self.with_record(other, bumped).with_index(key, number)


class Spec(NamedTuple):
    """What a process does. A write gives a record a key; a lookup looks for a key."""

    kind: Literal["write", "build", "drop", "find"]
    number: int = 0
    key: str | None = None


@dataclass(frozen=True)
class OnlineIndex:
    """Some processes over two shards."""

    specs: tuple[Spec, ...]
    records: tuple[Record, Record]
    index: tuple[tuple[str, int], ...] = ()
    schema: tuple[int, int] = (0, 0)
    readable: bool = False
    without: tuple[Guard, ...] = ()

    def initial(self) -> State:
        """Return the state before any process has begun."""
        return State(
            self.records, self.index, self.schema, self.readable, frozenset(), tuple(Process() for _ in self.specs)
        )

    def transitions(self, state: State) -> Iterator[Transition[State]]:
        """Yield the next access of each process."""
        for which, (spec, process) in enumerate(zip(self.specs, state.processes, strict=True)):
            if process.step == "ended":
                continue
            label = f"{spec.kind} {spec.number if spec.kind == 'write' else ''}{spec.key or ''}: {process.step}"
            reached, following, violation = self._next(state, spec, process)
            processes = [*reached.processes]
            processes[which] = following
            yield Transition(label, self._noted(reached._replace(processes=tuple(processes))), violation)

    def violation(self, state: State) -> str | None:
        """Say whether the index is readable, and not complete."""
        index = dict(state.entries)
        for number, record in enumerate(state.records):
            is_listed = record.key is None or (number, record.key) in state.violations
            if state.readable and not is_listed and record.key is not None and index.get(record.key) != number:
                return MISSING
        return None

    def _noted(self, state: State) -> State:
        """Note for each lookup that has found an index record whether nobody has its key now."""
        noted = [
            process._replace(free=process.free or not state.has_owner(spec.key or ""))
            if process.step == "read the record"
            else process
            for spec, process in zip(self.specs, state.processes, strict=True)
        ]
        return state._replace(processes=tuple(noted))

    def _next(self, state: State, spec: Spec, process: Process) -> tuple[State, Process, str | None]:
        if spec.kind == "find":
            return self._find(state, spec.key or "", process)
        step: Mapping[str, object] = {"write": self._write, "build": self._build, "drop": self._drop}
        reached, following = step[spec.kind](state, spec, process)  # type: ignore[operator]
        return reached, following, None

    # --- A writer ---

    def _write(self, state: State, spec: Spec, process: Process) -> tuple[State, Process]:
        if process.step == "start":
            return state, process._replace(step="read", schema=state.schema[spec.number])
        if process.step == "read":
            return state, process._replace(step="claim", read=state.records[spec.number])
        assert process.read is not None
        if process.step == "claim":
            following = process._replace(step="write")
            if process.schema % 2 == 0 or spec.key is None or process.read.key == spec.key:
                return state, following
            claimed = state.claimed(spec.number, spec.key)
            return (state, Process("ended")) if claimed is None else (claimed, following)
        is_same = state.schema[spec.number] == process.schema or Guard.SCHEMA_READ in self.without
        if state.records[spec.number] != process.read or not is_same:
            return state, Process("ended")
        return state.with_record(spec.number, Record(process.read.version + 1, spec.key)), Process("ended")

    # --- A build ---

    def _build(self, state: State, spec: Spec, process: Process) -> tuple[State, Process]:
        early = Guard.ALL_MAINTAIN_FIRST in self.without
        if process.step == "start":
            return state.with_schema(0, state.schema[0] | 1), process._replace(step="read" if early else "second shard")
        if process.step == "second shard":
            reached = state.with_schema(1, state.schema[1] | 1)
            if Guard.READABLE_LAST in self.without:
                reached = reached._replace(readable=True)
            return reached, process._replace(step="make readable" if early else "read")
        if process.step == "read":
            read = state.records[process.at]
            return state, process._replace(step="claim", read=read)
        if process.step == "claim":
            assert process.read is not None
            at = process.at + 1
            last = "second shard" if early else "make readable"
            following = process._replace(step="read" if at < len(SHARDS) else last, at=at, read=None)
            return self._filled(state, process.at, process.read.key), following
        return state._replace(readable=not state.violations), Process("ended")

    def _filled(self, state: State, number: int, key: str | None) -> State:
        if key is None:
            return state
        if Guard.FILL_CLAIMS in self.without:
            return state.with_index(key, number)
        if Guard.FILL_COLLECTS in self.without:
            return state if key in dict(state.entries) else state.with_index(key, number)
        claimed = state.claimed(number, key)
        return state._replace(violations=state.violations | {(number, key)}) if claimed is None else claimed

    # --- A drop ---

    def _drop(self, state: State, spec: Spec, process: Process) -> tuple[State, Process]:
        order: tuple[str | int, ...] = (*SHARDS, HIDE) if Guard.HIDDEN_FIRST in self.without else (HIDE, *SHARDS)
        doing = order[process.at]
        if isinstance(doing, str):
            state = state._replace(readable=False)
        else:
            state = state.with_schema(doing, state.schema[doing] + state.schema[doing] % 2)
        at = process.at + 1
        return state, process._replace(step="next", at=at) if at < len(order) else Process("ended")

    # --- A lookup ---

    def _find(self, state: State, key: str, process: Process) -> tuple[State, Process, str | None]:
        if process.step == "read the record":
            assert process.found is not None
            has_key = state.records[process.found].key == key
            missed = not has_key and not process.free and state.has_owner(key)
            return state, Process("ended"), MISSED if missed else None
        if process.step == "start" and Guard.STATE_READ in self.without:
            return state, process._replace(step="read the index", believed=state.readable), None
        believed = process.believed if process.step == "read the index" else state.readable
        found = dict(state.entries).get(key)
        if not believed:
            return state, Process("ended"), None
        if found is None:
            return state, Process("ended"), MISSED if state.has_owner(key) else None
        is_free = not state.has_owner(key)
        return state, process._replace(step="read the record", found=found, free=is_free), None


def _write(number: int, key: str | None) -> Spec:
    return Spec("write", number, key)


_BUILD, _DROP = Spec("build"), Spec("drop")
_X_AND_NONE = (Record(1, "x"), Record(1, None))
SCENES = {
    "a build beside two writers": OnlineIndex(
        (_BUILD, _write(0, "a"), _write(1, "b"), Spec("find", key="a")), _X_AND_NONE
    ),
    "a build beside a writer who takes the key of a record that is not filled": OnlineIndex(
        (_BUILD, _write(1, "x"), Spec("find", key="x")), _X_AND_NONE
    ),
    "a build, a key is given up and taken": OnlineIndex(
        (_BUILD, _write(0, None), _write(1, "x"), Spec("find", key="x")), _X_AND_NONE
    ),
    "a build, one record changes twice": OnlineIndex(
        (_BUILD, _write(0, "a"), _write(0, "x"), Spec("find", key="x")), _X_AND_NONE
    ),
    "a drop beside writers and a lookup": OnlineIndex(
        (_DROP, _write(0, "a"), _write(1, "b"), Spec("find", key="a")),
        _X_AND_NONE,
        (("x", 0),),
        schema=(1, 1),
        readable=True,
    ),
    "built anew, with index records from before": OnlineIndex(
        (_BUILD, _write(0, "a"), _write(1, "y")),
        (Record(2, "y"), Record(2, "x")),
        (("x", 0), ("y", 1)),
        schema=(2, 2),
    ),
}
