"""A tenant moves to another shard while it is used: copied, frozen, owned by the destination, cleared; or taken back.

The data of the tenant are the set of writes applied, so nothing lost and nothing twice can hide. Beside them lie one
item, and the pointer that says that there is one. A mark says that something was changed since it was last copied.

Each store transaction is one transition. A writer begins (it reads), and commits later unless what it read with
conflict was written. Results of writers, chunks and decisions may remain unknown, and such a commit may arrive late.
Any process may stop for ever, or go on much later. Each move has up to two movers, of which the second has taken over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, NamedTuple

from tests.protocol_models.exploration import Transition

NO_MOVE = -1
CLOSED = 9  # The number of no mover: the destination lets nobody in.
HOPS_MAX = 4  # From a shard to the one that has the tenant.

Says = Literal["home", "moving", "frozen", "incoming", "arriving", "moved"]
Ending = Literal["under way", "moved", "taken back"]
WriterStatus = Literal["idle", "begun", "unknown", "done"]
HERE = frozenset({"home", "moving", "arriving"})  # A transaction on the tenant goes on.


class Guard(Enum):
    """What makes the protocol safe; a model can be built without some of them."""

    OWNER_READ = "a transaction on the tenant reads the ownership record with conflict"
    MARKS = "a transaction that writes while the tenant moves marks what it writes"
    COMPARED = "a mark is cleared only if it is the one that was read with what was copied"
    COPIED_FIRST = "a mark is cleared after what it names was copied"
    WRITERS_WAIT = "writers wait while the tenant is frozen"
    READERS_WAIT = "readers wait while the tenant is frozen"
    MOVER_AT_SOURCE = "a mover that was replaced changes nothing at the source"
    MOVER_AT_DESTINATION = "a mover that was replaced changes nothing at the destination"
    CHUNK = (
        "a chunk counts on in the ownership record, so an earlier one of unknown result cannot be committed any more"
    )
    INCOMING = "the destination takes chunks and the decision only while the tenant comes in by this move"
    CLOSED_FIRST = "the destination is closed before the source is thawed"
    STAYS_CLOSED = "a closed destination stays closed until the source has been thawed"
    NOT_TRIED = "a mover that has tried to let the destination own does not unfreeze the source"
    OWNED_FIRST = "the source says that the tenant has moved only after the destination owns it"
    CLEARED_BY_EPOCH = "the source is cleared only while it says moved, with the epoch of the move"
    STUB_BY_EPOCH = "the stub at the first home is not changed by an earlier move"
    EPOCH_RAISED = "a move begins by raising the epoch of the tenant"
    OWNS = "a tenant that comes in by a later move is not owned"
    EMPTIED = "the destination is emptied before it is copied to"
    REPLACES = "a chunk replaces its range, so that what is gone at the source goes at the destination, too"
    ABSENT = "a shard without a record asks the first home"
    RECEIPT = "a write of unknown result is looked for where it was tried before it is tried elsewhere"
    POINTER_LAST = "the pointer is made once the destination owns the tenant"
    VISIT_ASKS = "a visit leaves a pointer alone whose tenant comes in"
    ARRIVED = "the next move begins once the tenant has arrived from the last one"


class Owner(NamedTuple):
    """An ownership record.

    `to`: the other shard of the move, or where the tenant has moved. `mover`, `chunk`: at the destination, who may
    write there, and how many chunks have been written.
    """

    says: Says
    epoch: int
    to: int = -1
    move: int = NO_MOVE
    mover: int = 0
    chunk: int = 0


class Rows(NamedTuple):
    """The rows of the tenant: its data, and the number of the item's lease; None: there is no item."""

    data: frozenset[int] = frozenset()
    item: int | None = None


class Shard(NamedTuple):
    """One shard. `mark`: the nonce of the mark of what was changed; 0: there is none."""

    owner: Owner | None
    rows: Rows = Rows()
    mark: int = 0
    pointer: bool = False


class Move(NamedTuple):
    """The record of a move at its source. `mover`: the number of the last one. `is_copied`: all has been, once."""

    source: int
    target: int
    epoch: int
    mover: int = 1
    ending: Ending = "under way"
    is_copied: bool = False


class Mover(NamedTuple):
    """What a mover has in mind. `read`: what it has read to copy, with the mark; `is_all`: that was everything."""

    move: int
    number: int
    next: str
    is_copied: bool = False
    chunk: int = 0
    read: tuple[Rows, int] | None = None
    is_all: bool = False


class Sent(NamedTuple):
    """A commit at the destination whose result its mover does not know. `is_valid`: what it has read is unchanged."""

    move: int
    number: int
    chunk: int  # 0: it is the decision.
    rows: Rows | None
    is_valid: bool = True


class Writer(NamedTuple):
    """A user that writes once."""

    status: WriterStatus
    at: int


class Begun(NamedTuple):
    """The transaction of a writer. `marks`: it has read that the tenant moves."""

    writer: int
    at: int
    marks: bool
    data_unchanged: bool = True
    owner_unchanged: bool = True


class Worker(NamedTuple):
    """Somebody who leases the item, and where they look for it."""

    lease: int
    at: int


class Reader(NamedTuple):
    """A user that reads once. `must_see`: what was acknowledged before it began."""

    status: Literal["idle", "begun", "done"]
    at: int = 0
    must_see: frozenset[int] = frozenset()


class Rescuer(NamedTuple):
    """Somebody who finds the tenant frozen, and believes that no mover lives."""

    next: Literal["looks", "thaws", "gone"]
    move: int = NO_MOVE


class State(NamedTuple):
    """The shards, and all processes."""

    shards: tuple[Shard, ...]
    moves: tuple[Move, ...] = ()
    movers: tuple[Mover, ...] = ()
    sent: frozenset[Sent] = frozenset()
    writers: tuple[Writer, ...] = ()
    begun: frozenset[Begun] = frozenset()
    receipts: frozenset[tuple[int, int]] = frozenset()  # (writer, shard)
    acknowledged: frozenset[int] = frozenset()
    reader: Reader = Reader("done")
    workers: tuple[Worker, ...] = ()
    completions: int = 0
    rescuer: Rescuer = Rescuer("gone")
    nonce: int = 0

    def change(self, at: int, **changes: Any) -> State:
        """Return this state with a shard changed; what has read the change with conflict will not be committed."""
        before = self.shards[at]
        after = before._replace(**changes)
        owner_same, data_same = after.owner == before.owner, after.rows.data == before.rows.data
        begun = frozenset(
            each._replace(
                data_unchanged=each.data_unchanged and (each.at != at or data_same),
                owner_unchanged=each.owner_unchanged and (each.at != at or owner_same),
            )
            for each in self.begun
        )
        sent = frozenset(
            each._replace(is_valid=each.is_valid and (self.moves[each.move].target != at or owner_same))
            for each in self.sent
        )
        shards = (*self.shards[:at], after, *self.shards[at + 1 :])
        return self._replace(shards=shards, begun=begun, sent=sent)

    def change_move(self, number: int, **changes: Any) -> State:
        """Return this state with the record of a move changed."""
        move = self.moves[number]._replace(**changes)
        return self._replace(moves=(*self.moves[:number], move, *self.moves[number + 1 :]))

    def is_listed(self, number: int) -> bool:
        """Say whether a move has a record: a later one away from the same shard takes its place."""
        return all(each.source != self.moves[number].source for each in self.moves[number + 1 :])


Step = tuple[str, Mover | None, State]  # What a mover does, the mover afterwards, and the state; None: it stops.


@dataclass(frozen=True)
class Moving:
    """The model; its fields bound what may happen.

    Args:
      moves: source and destination of each move, in the order in which they begin.
      first_home: the shard where the tenant lives without a record; if it is 2, that one holds a stub.
      writers: how many write once each.
      take_overs: how many movers take over another one, in all.
      fails: whether a mover may decide to take the move back.
      unknown: whose results may be unknown: those of writers, of movers.
      unfreezes: whether a mover may let transactions go on, because the destination does not answer.
      reader, rescuer: whether there is one.
      item: whether there is one, which a worker has leased; `lease_expires`: that lease may expire.
      visitor: whether pointers of empty queues are deleted.
    """

    moves: tuple[tuple[int, int], ...] = ((0, 1),)
    first_home: int = 0
    writers: int = 0
    take_overs: int = 0
    fails: bool = False
    unknown: frozenset[str] = frozenset()
    unfreezes: bool = False
    reader: bool = False
    rescuer: bool = False
    item: bool = False
    lease_expires: bool = False
    visitor: bool = False
    without: tuple[Guard, ...] = ()

    def initial(self) -> State:
        """Return a tenant that lives on shard 0, and does not move yet."""
        rows = Rows(item=1 if self.item else None)
        shards = [Shard(Owner("home", 1), rows, pointer=self.item), Shard(None)]
        if self.first_home == 2:
            shards.append(Shard(Owner("moved", 1, to=0)))
        return State(
            shards=tuple(shards),
            writers=(Writer("idle", 0),) * self.writers,
            reader=Reader("idle" if self.reader else "done"),
            workers=(Worker(1, 0),) if self.item else (),
            rescuer=Rescuer("looks" if self.rescuer else "gone"),
        )

    def transitions(self, state: State) -> Iterator[Transition[State]]:
        """Yield what each process may do next."""
        yield from self._begin(state)
        yield from self._take_over(state)
        for number, mover in enumerate(state.movers):
            stopped = mover._replace(next="stop", read=None, is_all=False, chunk=0)
            for label, after, following in getattr(self, "_" + mover.next)(state, mover):
                movers = list(following.movers)
                movers[number] = after or stopped
                name = f"mover {mover.number} of move {mover.move + 1} {label}"
                yield Transition(name, following._replace(movers=tuple(movers)))
        yield from self._arrive_late(state)
        yield from self._rescue(state)
        for number, writer in enumerate(state.writers):
            yield from self._write(state, number, writer)
        for begun in sorted(state.begun):
            yield from self._commit(state, begun)
        yield from self._read_once(state)
        yield from self._work(state)
        yield from self._process_pointers(state)

    def violation(self, state: State) -> str | None:
        """Require one owner, whom everybody finds, and who has all that was acknowledged and the item once."""
        owners = [shard for shard in state.shards if shard.owner is not None and shard.owner.says in HERE]
        if len(owners) > 1:
            return "two shards own the tenant"
        owners += [shard for shard in state.shards if shard.owner is not None and shard.owner.says == "frozen"]
        if not owners:
            return "no shard owns the tenant"
        rows, owner = owners[0].rows, owners[0].owner
        if not state.acknowledged <= rows.data:
            return "an acknowledged write is lost"
        if state.completions > 1:
            return "the item is completed twice"
        if self.item and not state.completions and rows.item is None:
            return "the item is lost"
        if self.item and state.completions and rows.item is not None:
            return "the completed item is back"
        if any(not self._is_found(state, at) for at in range(len(state.shards))):
            return "the tenant is not found"
        if any(self._is_refused(state, mover) for mover in state.movers):
            return "an ended move refuses a later one"
        is_quiet = owner is not None and owner.says == "home"
        if is_quiet and rows.item is not None and not owners[0].pointer:
            return "the item has no pointer"
        return None

    def _is_found(self, state: State, at: int) -> bool:
        for _ in range(HOPS_MAX):
            found = self._find(state, at)
            if not isinstance(found, int):
                return True
            at = found
        return False

    def _is_refused(self, state: State, mover: Mover) -> bool:
        owner = state.shards[state.moves[mover.move].target].owner
        is_met = owner is not None and owner.says == "incoming" and owner.move < mover.move
        return is_met and mover.next == "replaced" and self._is_mover(state, mover)

    def _find(self, state: State, at: int) -> Says | int:
        """Return what a transaction at a shard finds: a state in which it goes on or waits, or a shard to go to."""
        owner = state.shards[at].owner
        if owner is None:
            return "home" if at == self.first_home or not self._has(Guard.ABSENT) else self.first_home
        return owner.to if owner.says in ("moved", "incoming") else owner.says

    # --- A mover, from the beginning to the decision ---

    def _begin(self, state: State) -> Iterator[Transition[State]]:
        number = len(state.moves)
        if number == len(self.moves):
            return
        source, target = self.moves[number]
        owner = state.shards[source].owner
        may_begin = ("home",) if self._has(Guard.ARRIVED) else ("home", "arriving")
        if owner is None or owner.says not in may_begin:
            return
        epoch = owner.epoch + self._has(Guard.EPOCH_RAISED)
        after = state.change(source, owner=Owner("moving", epoch, to=target, move=number))
        after = after._replace(moves=(*state.moves, Move(source, target, epoch)))
        yield Transition(
            f"move {number + 1} begins", after._replace(movers=(*state.movers, Mover(number, 1, "prepare")))
        )

    def _take_over(self, state: State) -> Iterator[Transition[State]]:
        if len(state.movers) - len(state.moves) == self.take_overs:
            return
        for number, move in enumerate(state.moves):
            if move.ending == "under way" and state.is_listed(number):
                mover = Mover(number, move.mover + 1, "prepare", move.is_copied)
                after = state.change_move(number, mover=mover.number)
                yield Transition(f"a mover takes over move {number + 1}", after._replace(movers=(*state.movers, mover)))

    def _stop(self, state: State, mover: Mover) -> Iterator[Step]:
        yield from ()

    def _prepare(self, state: State, mover: Mover) -> Iterator[Step]:
        move = state.moves[mover.move]
        owner = state.shards[move.target].owner
        ready = mover._replace(next="read" if mover.is_copied else "empty")
        incoming = Owner("incoming", move.epoch + 1, move.source, mover.move, mover.number)
        if owner is not None and owner.says not in ("incoming", "moved"):
            following = "say_moved" if owner.epoch > move.epoch else "close"
            yield f"finds the destination owning: {following}", mover._replace(next=following), state
        elif owner is not None and owner.move == mover.move:
            if owner.mover == CLOSED and self._has(Guard.STAYS_CLOSED):
                yield "finds the destination closed", mover._replace(next="close"), state
            elif CLOSED > owner.mover > mover.number and self._has(Guard.MOVER_AT_DESTINATION):
                yield "finds itself replaced", mover._replace(next="replaced"), state
            else:
                after = state.change(move.target, owner=incoming._replace(chunk=owner.chunk))
                yield "takes over the destination", ready._replace(chunk=owner.chunk), after
        elif owner is not None and owner.epoch > move.epoch:
            yield "finds a later move", mover._replace(next="replaced" if owner.says == "incoming" else "close"), state
        else:
            yield "prepares the destination", ready, state.change(move.target, owner=incoming)

    def _empty(self, state: State, mover: Mover) -> Iterator[Step]:
        if not self._comes_in(state, mover):
            yield "finds itself replaced", mover._replace(next="replaced"), state
            return
        target = state.moves[mover.move].target
        after = state.change(target, rows=Rows(), pointer=False) if self._has(Guard.EMPTIED) else state
        yield "empties the destination", mover._replace(next="forget_marks"), self._early_pointer(after, mover)

    def _early_pointer(self, state: State, mover: Mover) -> State:
        move = state.moves[mover.move]
        if self._has(Guard.POINTER_LAST):
            return state
        return state.change(move.target, pointer=state.shards[move.source].pointer)

    def _forget_marks(self, state: State, mover: Mover) -> Iterator[Step]:
        yield from self._at_source(
            state, mover, "forgets the marks", "read_all", state.change(state.moves[mover.move].source, mark=0)
        )

    def _at_source(self, state: State, mover: Mover, label: str, following: str, after: State) -> Iterator[Step]:
        """Change the source, unless the mover has been replaced there."""
        if self._is_mover(state, mover):
            yield label, mover._replace(next=following), after
            if self.fails:
                yield "gives up", mover._replace(next=self._first_to_take_back), state
        else:
            yield "finds itself replaced", mover._replace(next="replaced"), state

    def _is_mover(self, state: State, mover: Mover) -> bool:
        move = state.moves[mover.move]
        if not state.is_listed(mover.move) or move.ending != "under way":
            return False
        return move.mover == mover.number or not self._has(Guard.MOVER_AT_SOURCE)

    def _read_all(self, state: State, mover: Mover) -> Iterator[Step]:
        shard = state.shards[state.moves[mover.move].source]
        yield "reads everything", mover._replace(next="copy", read=(shard.rows, shard.mark), is_all=True), state

    def _read(self, state: State, mover: Mover) -> Iterator[Step]:
        """Read what is marked, or freeze if little is."""
        shard = state.shards[state.moves[mover.move].source]
        if shard.mark:
            following = "copy" if self._has(Guard.COPIED_FIRST) else "clear_mark"
            read = mover._replace(next=following, read=(shard.rows, shard.mark), is_all=False)
            yield "reads what is marked", read, state
        yield from self._freeze(state, mover)

    def _copy(self, state: State, mover: Mover) -> Iterator[Step]:
        """Write a chunk at the destination; without an answer it is sent again."""
        assert mover.read is not None
        owner = state.shards[state.moves[mover.move].target].owner
        if not self._comes_in(state, mover):
            yield "finds itself replaced", mover._replace(next="replaced"), state
            return
        following = "note_copied" if mover.is_all else "clear_mark" if self._has(Guard.COPIED_FIRST) else "read"
        copied = mover._replace(next=following, chunk=mover.chunk + 1)
        is_written = owner is not None and owner.chunk == copied.chunk
        if is_written and self._has(Guard.CHUNK):
            yield "finds its chunk written", copied, state
            return
        yield "copies", copied, self._write_chunk(state, mover.move, copied.chunk, mover.read[0], is_all=mover.is_all)
        sent = Sent(mover.move, mover.number, copied.chunk, mover.read[0])
        if "movers" in self.unknown and not any(each.chunk for each in state.sent):
            yield "copies, and gets no answer", mover, state._replace(sent=state.sent | {sent})

    def _write_chunk(self, state: State, number: int, chunk: int, rows: Rows, *, is_all: bool) -> State:
        target = state.moves[number].target
        shard = state.shards[target]
        if is_all and rows.item is None and not self._has(Guard.REPLACES):
            rows = rows._replace(item=shard.rows.item)
        owner = shard.owner
        if owner is not None and self._has(Guard.CHUNK):
            owner = owner._replace(chunk=chunk)
        return state.change(target, owner=owner, rows=rows)

    def _comes_in(self, state: State, mover: Mover | Sent) -> bool:
        """Say whether the destination takes what a mover writes."""
        owner = state.shards[state.moves[mover.move].target].owner
        if owner is None or owner.says != "incoming" or owner.move != mover.move:
            return not self._has(Guard.INCOMING)
        if owner.mover == CLOSED:
            return False
        return owner.mover == mover.number or not self._has(Guard.MOVER_AT_DESTINATION)

    def _note_copied(self, state: State, mover: Mover) -> Iterator[Step]:
        after = state.change_move(mover.move, is_copied=True)
        yield from self._at_source(state, mover._replace(read=None), "notes that it has copied all", "read", after)

    def _clear_mark(self, state: State, mover: Mover) -> Iterator[Step]:
        assert mover.read is not None
        source = state.moves[mover.move].source
        is_same = state.shards[source].mark == mover.read[1]
        after = state.change(source, mark=0) if is_same or not self._has(Guard.COMPARED) else state
        following = "read" if self._has(Guard.COPIED_FIRST) else "copy"
        keeps = mover._replace(read=None) if self._has(Guard.COPIED_FIRST) else mover
        yield from self._at_source(state, keeps, "clears the mark", following, after)

    def _freeze(self, state: State, mover: Mover) -> Iterator[Step]:
        move = state.moves[mover.move]
        owner = state.shards[move.source].owner
        if owner is None or owner.move != mover.move:
            yield "finds itself replaced", mover._replace(next="replaced"), state
            return
        after = state.change(move.source, owner=owner._replace(says="frozen"))
        yield from self._at_source(state, mover, "freezes the source", "read_last", after)

    def _read_last(self, state: State, mover: Mover) -> Iterator[Step]:
        shard = state.shards[state.moves[mover.move].source]
        read = (shard.rows, shard.mark) if shard.mark else None
        yield "reads the last marks", mover._replace(next="own", read=read), state
        yield from self._unfreeze(state, mover)

    def _unfreeze(self, state: State, mover: Mover) -> Iterator[Step]:
        move = state.moves[mover.move]
        owner = state.shards[move.source].owner
        if self.unfreezes and owner is not None and owner.move == mover.move and self._is_mover(state, mover):
            after = state.change(move.source, owner=owner._replace(says="moving"))
            yield "unfreezes the source", mover._replace(next="read", read=None), after

    def _own(self, state: State, mover: Mover) -> Iterator[Step]:
        """Let the destination own the tenant. Without an answer the mover stops, and another one takes over."""
        move = state.moves[mover.move]
        rows = None if mover.read is None else mover.read[0]
        if not self._has(Guard.OWNED_FIRST):
            state = self._with_moved(state, mover.move)
        if self._comes_in(state, mover):
            after = self._with_owner(state, mover.move, rows)
            yield "lets the destination own", mover._replace(next="say_moved", read=None), after
            if "movers" in self.unknown:
                sent = state._replace(sent=state.sent | {Sent(mover.move, mover.number, 0, rows)})
                yield "decides, and gets no answer", None, sent
                if not self._has(Guard.NOT_TRIED):
                    yield from self._unfreeze(sent, mover)
        elif self._owns(state.shards[move.target].owner, move.epoch):
            yield "finds the destination owning", mover._replace(next="say_moved", read=None), state
        else:
            yield "finds itself replaced", mover._replace(next="replaced", read=None), state

    def _with_owner(self, state: State, number: int, rows: Rows | None) -> State:
        move = state.moves[number]
        shard = state.shards[move.target]
        rows = shard.rows if rows is None else rows
        owner = Owner("arriving", move.epoch + 1, to=move.source, move=number)
        return state.change(move.target, owner=owner, rows=rows)

    def _owns(self, owner: Owner | None, epoch: int) -> bool:
        """Say whether a shard owns the tenant, or has owned it, since the move that began in `epoch`."""
        if owner is None or owner.epoch <= epoch:
            return False
        return owner.says != "incoming" or (owner.epoch > epoch + 1 and not self._has(Guard.OWNS))

    def _arrive_late(self, state: State) -> Iterator[Transition[State]]:
        """Let a commit arrive whose mover has no answer; or not."""
        for sent in sorted(state.sent, key=repr):
            rest = state._replace(sent=state.sent - {sent})
            name = f"of mover {sent.number} of move {sent.move + 1}"
            if not sent.is_valid or not self._comes_in(state, sent):
                yield Transition(f"a commit {name} conflicts", rest)
            elif sent.chunk:
                assert sent.rows is not None
                after = self._write_chunk(rest, sent.move, sent.chunk, sent.rows, is_all=True)
                yield Transition(f"a chunk {name} arrives", after)
            else:
                yield Transition(f"the decision {name} arrives", self._with_owner(rest, sent.move, sent.rows))

    # --- A mover, after the decision ---

    def _say_moved(self, state: State, mover: Mover) -> Iterator[Step]:
        yield (
            "says at the source that the tenant has moved",
            mover._replace(next="arrive"),
            self._with_moved(state, mover.move),
        )

    def _with_moved(self, state: State, number: int) -> State:
        move = state.moves[number]
        owner = state.shards[move.source].owner
        if owner is None or owner.move != number or owner.says not in ("moving", "frozen"):
            return state
        return state.change(move.source, owner=Owner("moved", owner.epoch + 1, to=move.target))

    def _arrive(self, state: State, mover: Mover) -> Iterator[Step]:
        move = state.moves[mover.move]
        shard = state.shards[move.target]
        after = state
        if shard.owner is not None and shard.owner.move == mover.move and shard.owner.says == "arriving":
            pointer = shard.rows.item is not None if self._has(Guard.POINTER_LAST) else shard.pointer
            after = state.change(move.target, owner=Owner("home", shard.owner.epoch), pointer=pointer)
        elif shard.owner is not None and not self._has(Guard.ARRIVED):
            after = state.change(move.target, pointer=shard.pointer or shard.rows.item is not None)
        has_stub = self.first_home not in (move.source, move.target)
        yield "lets the tenant arrive", mover._replace(next="update_stub" if has_stub else "clear_source"), after

    def _update_stub(self, state: State, mover: Mover) -> Iterator[Step]:
        move = state.moves[mover.move]
        owner = state.shards[self.first_home].owner
        after = state
        if owner is None or owner.epoch <= move.epoch or not self._has(Guard.STUB_BY_EPOCH):
            after = state.change(self.first_home, owner=Owner("moved", move.epoch + 1, to=move.target))
        yield "updates the stub", mover._replace(next="clear_source"), after

    def _clear_source(self, state: State, mover: Mover) -> Iterator[Step]:
        move = state.moves[mover.move]
        after = state
        if self._has_left(state, move) or not self._has(Guard.CLEARED_BY_EPOCH):
            after = state.change(move.source, rows=Rows(), mark=0, pointer=False)
        yield "clears the source", mover._replace(next="forget_stub"), after

    def _has_left(self, state: State, move: Move) -> bool:
        owner = state.shards[move.source].owner
        return owner is not None and owner.says == "moved" and owner.epoch == move.epoch + 1

    def _forget_stub(self, state: State, mover: Mover) -> Iterator[Step]:
        move = state.moves[mover.move]
        is_forgotten = self._has_left(state, move) and move.source != self.first_home
        after = state.change(move.source, owner=None) if is_forgotten else state
        yield "forgets its stub", mover._replace(next="end"), after

    def _end(self, state: State, mover: Mover) -> Iterator[Step]:
        is_mover = self._is_mover(state, mover)
        yield "ends the move", None, state.change_move(mover.move, ending="moved") if is_mover else state

    # --- Taking a move back ---

    @property
    def _first_to_take_back(self) -> str:
        return "close" if self._has(Guard.CLOSED_FIRST) else "thaw"

    def _close(self, state: State, mover: Mover) -> Iterator[Step]:
        closed = self._with_closed(state, mover.move)
        if closed is None:
            yield "finds the move decided", mover._replace(next="say_moved"), state
        else:
            following = "thaw" if self._has(Guard.CLOSED_FIRST) else "clear_closed"
            yield "closes the destination", mover._replace(next=following), closed

    def _with_closed(self, state: State, number: int) -> State | None:
        """Return the state in which nobody comes in by a move any more; None: the destination owns the tenant."""
        move = state.moves[number]
        owner = state.shards[move.target].owner
        if self._owns(owner, move.epoch):
            return None
        if owner is None or owner.move != number:
            return state
        if self._has(Guard.STAYS_CLOSED):
            return state.change(move.target, owner=owner._replace(mover=CLOSED))
        return self._with_stub(state, move)

    def _with_stub(self, state: State, move: Move) -> State:
        stub = Owner("moved", move.epoch, to=move.source) if move.target == self.first_home else None
        return state.change(move.target, owner=stub)

    def _thaw(self, state: State, mover: Mover) -> Iterator[Step]:
        following = "clear_closed" if self._has(Guard.CLOSED_FIRST) else "close"
        yield "thaws the source", mover._replace(next=following), self._with_thawed(state, mover.move)

    def _with_thawed(self, state: State, number: int) -> State:
        move = state.moves[number]
        if move.ending == "under way" and state.is_listed(number):
            state = state.change_move(number, ending="taken back")
        owner = state.shards[move.source].owner
        if owner is None or owner.move != number or owner.says not in ("moving", "frozen"):
            return state
        return state.change(move.source, owner=Owner("home", owner.epoch), mark=0)

    def _clear_closed(self, state: State, mover: Mover) -> Iterator[Step]:
        """Clear what was copied, and let the destination say what it said before the move."""
        move = state.moves[mover.move]
        owner = state.shards[move.target].owner
        after = state
        if owner is None or owner.says == "moved" or owner.mover == CLOSED:
            after = state.change(move.target, rows=Rows(), pointer=False)
        if owner is not None and owner.move == mover.move and owner.mover == CLOSED:
            after = self._with_stub(after, move)
        yield "clears what was copied", None, after

    def _replaced(self, state: State, mover: Mover) -> Iterator[Step]:
        """Close the destination once more if the move has ended: this mover may have opened it anew."""
        move = state.moves[mover.move]
        if not state.is_listed(mover.move) or move.ending == "under way":
            yield "stops", None, state
            return
        closed = self._with_closed(state, mover.move)
        yield "closes the destination once more", mover._replace(next="clear_closed"), closed or state

    def _rescue(self, state: State) -> Iterator[Transition[State]]:
        """Say that the tenant has moved, or take the move back."""
        rescuer = state.rescuer
        if rescuer.next == "thaws":
            thawed = self._with_thawed(state, rescuer.move)._replace(rescuer=Rescuer("gone"))
            yield Transition("a rescuer thaws the source", thawed)
        elif rescuer.next == "looks":
            for number, move in enumerate(state.moves):
                owner = state.shards[move.source].owner
                if owner is None or owner.says != "frozen" or owner.move != number:
                    continue
                closed = self._with_closed(state, number)
                if closed is None:
                    moved = self._with_moved(state, number)
                    yield Transition("a rescuer says that the tenant has moved", moved)
                    continue
                if not self._has(Guard.CLOSED_FIRST):
                    closed = state
                after = closed._replace(rescuer=Rescuer("thaws", number))
                yield Transition("a rescuer closes the destination", after)

    # --- Users and workers ---

    def _write(self, state: State, number: int, writer: Writer) -> Iterator[Transition[State]]:
        found = self._find(state, writer.at)
        if found == "frozen" and not self._has(Guard.WRITERS_WAIT):
            found = "home"
        if writer.status == "idle":
            if isinstance(found, int):
                yield Transition(f"writer {number} goes to {found}", self._with_writer(state, number, "idle", found))
            elif found in HERE:
                begun = state._replace(begun=state.begun | {Begun(number, writer.at, found == "moving")})
                after = self._with_writer(begun, number, "begun", writer.at)
                yield Transition(f"writer {number} begins at {writer.at}", after)
        elif writer.status == "unknown":
            yield from self._repeat(state, number, writer, found)

    def _repeat(self, state: State, number: int, writer: Writer, found: Says | int) -> Iterator[Transition[State]]:
        """Look for a write of unknown result, and write again if it was not applied."""
        given_up = state._replace(begun=frozenset(each for each in state.begun if each.writer != number))
        if isinstance(found, int) and not self._has(Guard.RECEIPT):
            yield Transition(
                f"writer {number} tries again at {found}", self._with_writer(given_up, number, "idle", found)
            )
        elif (number, writer.at) in state.receipts:
            after = self._with_writer(state, number, "done", writer.at)
            yield Transition(
                f"writer {number} finds its receipt",
                after._replace(acknowledged=state.acknowledged | {number}),
            )
        elif found != "frozen":
            yield Transition(f"writer {number} tries again", self._with_writer(given_up, number, "idle", writer.at))

    def _with_writer(self, state: State, number: int, status: WriterStatus, at: int) -> State:
        writer = Writer(status, at)
        return state._replace(writers=(*state.writers[:number], writer, *state.writers[number + 1 :]))

    def _commit(self, state: State, begun: Begun) -> Iterator[Transition[State]]:
        number, at = begun.writer, begun.at
        waits = state.writers[number].status == "begun"
        if waits and "writers" in self.unknown:
            after = self._with_writer(state, number, "unknown", at)
            yield Transition(f"writer {number} gets no answer", after)
        rest = state._replace(begun=state.begun - {begun})
        if not begun.data_unchanged or not (begun.owner_unchanged or not self._has(Guard.OWNER_READ)):
            after = self._with_writer(rest, number, "idle", at) if waits else rest
            yield Transition(f"writer {number} conflicts", after)
            return
        homes = [each for each in state.shards if each.owner is not None and each.owner.says in HERE]
        is_twice = any(number in each.rows.data for each in homes)
        rows = state.shards[at].rows
        after = self._marked(rest.change(at, rows=rows._replace(data=rows.data | {number})), at, begun.marks)
        after = after._replace(receipts=state.receipts | {(number, at)})
        if waits:
            after = self._with_writer(after, number, "done", at)
            after = after._replace(acknowledged=state.acknowledged | {number})
        yield Transition(f"writer {number} commits at {at}", after, "a write is applied twice" if is_twice else None)

    def _marked(self, state: State, at: int, marks: bool) -> State:
        if not marks or not self._has(Guard.MARKS):
            return state
        return state.change(at, mark=state.nonce + 1)._replace(nonce=state.nonce + 1)

    def _read_once(self, state: State) -> Iterator[Transition[State]]:
        """Read: begin at any shard, where the tenant was seen last, and follow it."""
        reader = state.reader
        if reader.status == "idle":
            for at in range(len(state.shards)):
                begun = state._replace(reader=Reader("begun", at, state.acknowledged))
                yield Transition(f"a reader begins at {at}", begun)
        elif reader.status == "begun":
            found = self._find(state, reader.at)
            if found == "frozen" and not self._has(Guard.READERS_WAIT):
                found = "home"
            if isinstance(found, int):
                yield Transition(f"the reader goes to {found}", state._replace(reader=reader._replace(at=found)))
            elif found in HERE:
                is_missing = not reader.must_see <= state.shards[reader.at].rows.data
                after = state._replace(reader=Reader("done"))
                violation = "a reader misses what was acknowledged before it began" if is_missing else None
                yield Transition(f"the reader reads at {reader.at}", after, violation)

    def _work(self, state: State) -> Iterator[Transition[State]]:
        """Complete the item under a lease, wherever it is now; or lease it anew once the lease has expired."""
        for number, worker in enumerate(state.workers):
            found = self._find(state, worker.at)
            others = (*state.workers[:number], *state.workers[number + 1 :])
            if isinstance(found, int):
                after = state._replace(workers=tuple(sorted((*others, worker._replace(at=found)))))
                yield Transition(f"worker {worker.lease} goes to {found}", after)
            elif found in HERE and state.shards[worker.at].rows.item == worker.lease:
                rows = state.shards[worker.at].rows._replace(item=None)
                after = self._marked(state.change(worker.at, rows=rows), worker.at, found == "moving")
                after = after._replace(workers=others, completions=state.completions + 1)
                yield Transition(f"worker {worker.lease} completes the item at {worker.at}", after)
            elif found in HERE:
                yield Transition(f"worker {worker.lease} finds its lease lost", state._replace(workers=others))
        for at, shard in enumerate(state.shards):
            found = self._find(state, at)
            if self.lease_expires and shard.pointer and shard.rows.item == 1 and found in HERE:
                leased = state.change(at, rows=shard.rows._replace(item=2))
                leased = self._marked(leased, at, found == "moving")
                yield Transition(
                    f"the item is leased anew at {at}", leased._replace(workers=(*state.workers, Worker(2, at)))
                )

    def _process_pointers(self, state: State) -> Iterator[Transition[State]]:
        """Delete the pointer of a queue that is empty, or of a tenant that has moved."""
        if not self.visitor:
            return
        for at, shard in enumerate(state.shards):
            found = self._find(state, at)
            comes_in = shard.owner is not None and shard.owner.says == "incoming"
            may_delete = not comes_in and found != "frozen"
            if shard.pointer and shard.rows.item is None and (may_delete or not self._has(Guard.VISIT_ASKS)):
                yield Transition(f"a visit deletes the pointer at {at}", state.change(at, pointer=False))

    def _has(self, guard: Guard) -> bool:
        return guard not in self.without


THERE_AND_BACK = ((0, 1), (1, 0))
AGAIN = ((0, 1), (0, 1))
SCENES = {
    "a writer": Moving(writers=1, take_overs=1, fails=True),
    "a writer of unknown result": Moving(writers=1, moves=THERE_AND_BACK, unknown=frozenset({"writers"})),
    "movers of unknown results": Moving(writers=1, take_overs=1, unfreezes=True, unknown=frozenset({"movers"})),
    "a rescuer": Moving(writers=1, take_overs=1, rescuer=True),
    "a reader": Moving(writers=1, reader=True, moves=THERE_AND_BACK),
    "an item": Moving(item=True, take_overs=1, lease_expires=True),
    "visits": Moving(item=True, visitor=True, take_overs=1, moves=THERE_AND_BACK),
    "a second move": Moving(moves=AGAIN, take_overs=1, fails=True),
    "a stub": Moving(first_home=2, moves=AGAIN, take_overs=1, fails=True),
    "a stub, there and back": Moving(first_home=2, moves=THERE_AND_BACK, take_overs=1),
}
LARGER_SCENES = {
    "two writers": Moving(writers=2, take_overs=1, fails=True),
    "a rescuer of the first of two moves": Moving(writers=1, moves=AGAIN, take_overs=1, rescuer=True, fails=True),
    "a rescuer, there and back": Moving(writers=1, moves=THERE_AND_BACK, take_overs=1, rescuer=True),
    "all results unknown": Moving(
        writers=1, take_overs=1, unfreezes=True, rescuer=True, unknown=frozenset({"writers", "movers"})
    ),
    "an item, visits": Moving(item=True, take_overs=1, visitor=True, lease_expires=True, fails=True),
    "an item, there and back": Moving(item=True, moves=THERE_AND_BACK, visitor=True, take_overs=1, fails=True),
    "a stub, and a writer": Moving(first_home=2, writers=1, moves=AGAIN, take_overs=1, fails=True),
}
