"""A lookup that asks the local indexes of all shards, while the tenant moves that holds what is looked for.

One member is held all the time. Its tenant moves a few times, each time to any other shard. A reader asks one shard
after the other. Each ask is one transaction. When no shard has listed the member, the reader looks whether a shard has
counted a move since, and then asks all shards again. The reader may pause between any two transactions.

A move has three transactions: the destination lists the member; the destination counts, with the end of the arrival;
the source clears its entry, and counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple

from tests.protocol_models.exploration import Transition

Part = Literal["list", "count", "clear"]
MISSED = "the reader says that nobody holds the member, which was there all the time"


class Guard(Enum):
    """What makes the lookup safe; a model can be built without one of them."""

    LISTED_FIRST = "the destination lists the member before the source clears it"
    COUNTED_BEFORE_CLEARED = "the destination counts the move before the source clears the member"
    COUNTED_AT_DESTINATION = "the destination counts the move"
    COUNTED_AT_SOURCE = "the source counts the move with the clearing"
    COUNT_READ_WITH_INDEX = "the count is read in the transaction that reads the index, or earlier"
    COUNTS_COMPARED = "the reader compares all counts once it has asked all shards"
    ALL_AGAIN = "the reader asks all shards again, not only those that have counted"


class Move(NamedTuple):
    """A move under way. `done`: which of its transactions have been committed."""

    source: int
    destination: int
    done: frozenset[Part] = frozenset()


class Reader(NamedTuple):
    """The lookup: what it does next, at which shard."""

    step: Literal["index", "count", "compare", "found"] = "index"
    shard: int = 0
    counts: tuple[int, ...] = ()  # As they were read with the indexes.


class State(NamedTuple):
    """Where the member is listed, the counts of the shards, the move under way, and the reader."""

    listed: frozenset[int]
    counts: tuple[int, ...]
    move: Move | None
    moves: int
    reader: Reader


@dataclass(frozen=True)
class Scatter:
    """The lookup over some shards, with a number of moves."""

    shards: int
    moves_max: int
    without: tuple[Guard, ...] = ()

    def initial(self) -> State:
        """Return the state in which the member is listed on the first shard."""
        return State(frozenset({0}), (0,) * self.shards, None, 0, Reader())

    def transitions(self, state: State) -> Iterator[Transition[State]]:
        """Yield the next transactions of moves, and of the reader."""
        yield from self._moves(state)
        yield from self._reads(state)

    def violation(self, state: State) -> str | None:
        """Say whether the member is listed nowhere."""
        return None if state.listed or Guard.LISTED_FIRST in self.without else "the member is listed nowhere"

    # --- Moves ---

    def _moves(self, state: State) -> Iterator[Transition[State]]:
        move = state.move
        if move is None:
            if state.moves < self.moves_max:
                (source,) = state.listed
                for destination in range(self.shards):
                    if destination != source:
                        begun = state._replace(move=Move(source, destination), moves=state.moves + 1)
                        yield Transition(f"begin a move from {source} to {destination}", begun)
            return
        parts: dict[Part, set[Part]] = {"list": self._before_list(), "count": {"list"}, "clear": self._before_clear()}
        for name, after in parts.items():
            if name not in move.done and after <= move.done:
                yield Transition(f"{name}, from {move.source} to {move.destination}", self._done(state, move, name))

    def _before_list(self) -> set[Part]:
        return {"clear"} if Guard.LISTED_FIRST in self.without else set()

    def _before_clear(self) -> set[Part]:
        if Guard.LISTED_FIRST in self.without:
            return set()
        return {"list"} if Guard.COUNTED_BEFORE_CLEARED in self.without else {"list", "count"}

    def _done(self, state: State, move: Move, name: Part) -> State:
        if name == "list":
            state = state._replace(listed=state.listed | {move.destination})
        elif name == "count":
            state = self._count(state, move.destination, Guard.COUNTED_AT_DESTINATION)
        else:
            state = self._count(state, move.source, Guard.COUNTED_AT_SOURCE)
            state = state._replace(listed=state.listed - {move.source})
        done = move.done | {name}
        return state._replace(move=None if len(done) == 3 else move._replace(done=done))

    def _count(self, state: State, shard: int, guard: Guard) -> State:
        if guard in self.without:
            return state
        counts = list(state.counts)
        counts[shard] += 1
        return state._replace(counts=tuple(counts))

    # --- The reader ---

    def _reads(self, state: State) -> Iterator[Transition[State]]:
        reader = state.reader
        if reader.step == "found":
            return
        count = state.counts[reader.shard]
        if reader.step == "index":
            yield self._ask(state, reader, count)
        elif reader.step == "count":
            counted = reader._replace(step="index", counts=(*reader.counts, count))
            yield Transition(f"read the count of {reader.shard}", self._after_ask(state, counted))
        else:
            yield self._compare(state, reader, count)

    def _ask(self, state: State, reader: Reader, count: int) -> Transition[State]:
        label = f"ask {reader.shard}"
        if reader.shard in state.listed:
            return Transition(label, state._replace(reader=Reader("found")))
        if Guard.COUNT_READ_WITH_INDEX in self.without:
            return Transition(label, state._replace(reader=reader._replace(step="count")))
        asked = reader._replace(counts=(*reader.counts, count))
        return self._missed_unless_compared(label, self._after_ask(state, asked))

    def _after_ask(self, state: State, reader: Reader) -> State:
        following = reader.shard + 1
        if following < self.shards:
            return state._replace(reader=reader._replace(shard=following))
        return state._replace(reader=reader._replace(step="compare", shard=0))

    def _missed_unless_compared(self, label: str, state: State) -> Transition[State]:
        missed = state.reader.step == "compare" and Guard.COUNTS_COMPARED in self.without
        return Transition(label, state, MISSED if missed else None)

    def _compare(self, state: State, reader: Reader, count: int) -> Transition[State]:
        label = f"compare the count of {reader.shard}"
        changed = count != reader.counts[reader.shard]
        if Guard.ALL_AGAIN in self.without:
            return self._compare_and_ask_some(state, reader, label, changed=changed)
        if changed:
            return Transition(label, state._replace(reader=Reader()))
        if reader.shard + 1 < self.shards:
            return Transition(label, state._replace(reader=reader._replace(shard=reader.shard + 1)))
        return Transition(label, state, MISSED)

    def _compare_and_ask_some(self, state: State, reader: Reader, label: str, *, changed: bool) -> Transition[State]:
        """Ask a shard that has counted at once once more, and go on with the next one."""
        if changed and reader.shard in state.listed:
            return Transition(label, state._replace(reader=Reader("found")))
        if reader.shard + 1 < self.shards:
            return Transition(label, state._replace(reader=reader._replace(shard=reader.shard + 1)))
        return Transition(label, state, MISSED)


SCENES = {"two shards": Scatter(shards=2, moves_max=3), "three shards": Scatter(shards=3, moves_max=3)}
