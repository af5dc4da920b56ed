"""Every order of accesses, depth first: a client stops before each access, and the search chooses who goes on.

A state is what the stores hold and which answers each client has got: its code is deterministic, so the answers decide
what it does next. Two orders that come to the same state have the same future. A generator cannot be copied, so a
client that goes on is brought anew to where it was, by the answers that it has got; each such progress is found once.

A client that stops for ever needs no case of its own: what must always hold is checked in every state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fairlead.records.accesses import Access, Op
from fairlead.records.errors import RecordError
from fairlead.records.storage_model.memory import MemoryStore
from fairlead.records.storage_model.performing import ModelStores
from fairlead.records.stored import DataRecord, IndexRecord, Versioned, pack, unpack_data, unpack_index

STATES_MAX = 2_000_000

Rows = tuple[tuple[bytes, Versioned], ...]


class Violation(AssertionError):
    """An order in which something does not hold."""


class Client(NamedTuple):
    """What one client does: `begin` returns its operation.

    Attributes:
      finds: the index key that it looks for, if it does.
      deletes: the primary key that it deletes, if it does.
    """

    name: str
    begin: Callable[[], Op[Any]]
    finds: bytes | None = None
    deletes: str | None = None


class Progress(NamedTuple):
    """Where a client is: which accesses it makes next; or how it has ended."""

    accesses: Sequence[Access] = ()
    has_ended: bool = False
    result: Any = None
    error: RecordError | None = None


class Run(NamedTuple):
    """What one client has got so far.

    Attributes:
      heard: the answers of each round. Those of a client that has ended are forgotten, unless it deletes: two orders
        that end with nothing may have deleted two lives of a record.
      answers: those of the parallel accesses of this round that have been made, by their numbers.
      was_free: since it has begun to look for a key, there was a moment in which nobody had the key, and its index
        record.
    """

    heard: tuple[tuple[Any, ...], ...] = ()
    answers: tuple[tuple[int, Any], ...] = ()
    ended: str = ""
    was_free: bool = False


class State(NamedTuple):
    """What decides the future: what the stores hold, and what each client has got."""

    data: Rows
    entries: Rows
    runs: tuple[Run, ...]


class Step(NamedTuple):
    """One access: who made it and has got what by then, what it changed, and where the client is now."""

    client: Client
    run: Run
    before: Mapping[str, DataRecord]
    after: Mapping[str, DataRecord]
    index_records: Mapping[bytes, IndexRecord]
    progress: Progress | None
    state: State


def indexed_keys(record: DataRecord) -> list[bytes]:
    """Return the keys that a record has, but for those that it has without an index record."""
    return [] if record.is_dummy else [each for each in record.keys if each not in record.unindexed]


class Scene(NamedTuple):
    """What some clients do at once, and the records that there are at first.

    Attributes:
      check: called after each access that comes to a new state; raises `Violation`.
      stores: carries out accesses.
      keys_of: the keys by which a find must not miss a record.
    """

    clients: Sequence[Client]
    data: Mapping[str, DataRecord]
    entries: Mapping[bytes, IndexRecord]
    check: Callable[[Step], None]
    stores: type[ModelStores] = ModelStores
    keys_of: Callable[[DataRecord], list[bytes]] = indexed_keys


class Enumeration:
    """The search through all orders of one scene."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._progress_of: dict[tuple[int, tuple[tuple[Any, ...], ...]], Progress] = {}
        self._data, self._index = MemoryStore(), MemoryStore()
        self._stores = scene.stores([self._data], [self._index])
        self._came_from: dict[State, tuple[State, str] | None] = {}

    def run(self) -> int:
        """Run all orders; return how many states there are.

        Raises:
          Violation: something does not hold; the message names the order.
        """
        first = self._first_state()
        self._came_from[first] = None
        pending = [first]
        while pending:
            state = pending.pop()
            for number, run in enumerate(state.runs):
                progress = self._progress(number, run.heard)
                if run.ended:
                    continue
                made = dict(run.answers)
                for which in range(len(progress.accesses)):
                    if which not in made and (reached := self._step(state, number, which, progress)) is not None:
                        pending.append(reached)
            assert len(self._came_from) <= STATES_MAX
        return len(self._came_from)

    def _first_state(self) -> State:
        data = {key.encode(): pack(record) for key, record in self._scene.data.items()}
        index = {key: pack(entry) for key, entry in self._scene.entries.items()}
        runs = tuple(self._begun(number) for number in range(len(self._scene.clients)))
        return State(_rows(data), _rows(index), runs)

    def _begun(self, number: int) -> Run:
        wanted = self._scene.clients[number].finds
        has_owner = any(wanted in self._scene.keys_of(record) for record in self._scene.data.values())
        return Run(was_free=wanted is not None and not has_owner)

    def _step(self, state: State, number: int, which: int, progress: Progress) -> State | None:
        """Let a client make one access; return the state if it is new."""
        self._data.rows, self._index.rows = dict(state.data), dict(state.entries)
        answer = self._stores.answer(progress.accesses[which])
        run = state.runs[number]
        answers = (*run.answers, (which, answer))
        now: Progress | None = None
        if len(answers) < len(progress.accesses):
            run = run._replace(answers=tuple(sorted(answers, key=lambda made: made[0])))
        else:
            heard = (*run.heard, tuple(answer for _, answer in sorted(answers, key=lambda made: made[0])))
            now = self._progress(number, heard)
            ended = type(now.error or now.result).__name__ if now.has_ended else ""
            kept = () if now.has_ended and self._scene.clients[number].deletes is None else heard
            run = Run(kept, (), ended, run.was_free)
        runs = [*state.runs]
        runs[number] = run
        after = _records(self._data.rows)
        owned = {each for record in after.values() for each in self._scene.keys_of(record)}
        for other, client in enumerate(self._scene.clients):
            if client.finds is not None and client.finds not in owned:
                runs[other] = runs[other]._replace(was_free=True)
        reached = State(_rows(self._data.rows), _rows(self._index.rows), tuple(runs))
        if reached in self._came_from:
            return None
        client = self._scene.clients[number]
        self._came_from[reached] = (state, f"{client.name}: {type(progress.accesses[which]).__name__}")
        before = _records(dict(state.data))
        step = Step(client, runs[number], before, after, _entries(self._index.rows), now, reached)
        try:
            self._scene.check(step)
        except Violation as violation:
            raise Violation(f"{violation}; the order: {'; '.join(self._order(reached))}") from None
        return reached

    def _progress(self, number: int, heard: tuple[tuple[Any, ...], ...]) -> Progress:
        """Return where a client is once it has got these answers."""
        if (number, heard) not in self._progress_of:
            self._progress_of[number, heard] = _brought_to(self._scene.clients[number].begin(), heard)
        return self._progress_of[number, heard]

    def _order(self, state: State) -> list[str]:
        order: list[str] = []
        at = self._came_from[state]
        while at is not None:
            order.append(at[1])
            at = self._came_from[at[0]]
        return order[::-1]


def enumerate_orders(scene: Scene) -> int:
    """Run all orders of a scene; return how many states there are. Raises `Violation`, see `Enumeration.run`."""
    return Enumeration(scene).run()


def _brought_to(operation: Op[Any], heard: tuple[tuple[Any, ...], ...]) -> Progress:
    try:
        accesses = next(operation)
        for answers in heard:
            accesses = operation.send(list(answers))
    except StopIteration as stop:
        return Progress(has_ended=True, result=stop.value)
    except RecordError as error:
        return Progress(has_ended=True, error=error)
    return Progress(accesses)


def _rows(rows: Mapping[bytes, Versioned]) -> Rows:
    return tuple(sorted(rows.items()))


_data_seen: dict[tuple[bytes, bytes], DataRecord] = {}
_entries_seen: dict[bytes, IndexRecord] = {}


def _records(rows: Mapping[bytes, Versioned]) -> dict[str, DataRecord]:
    records = {}
    for key, row in rows.items():
        if (key, row.value) not in _data_seen:
            _data_seen[key, row.value] = unpack_data(key.decode(), row.value)
        records[key.decode()] = _data_seen[key, row.value]
    return records


def _entries(rows: Mapping[bytes, Versioned]) -> dict[bytes, IndexRecord]:
    for row in rows.values():
        if row.value not in _entries_seen:
            _entries_seen[row.value] = unpack_index(row.value)
    return {key: _entries_seen[row.value] for key, row in rows.items()}
