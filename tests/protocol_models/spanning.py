"""Transactions across shards: a two-phase commit whose decision is a record on one of the shards.

Each shard holds one key. A transaction reads keys of several shards, then prepares on each shard but its home: this
validates what it read there, and locks. Then it validates at home, writes, and decides, in one transaction. The others
are applied afterwards. A transaction without writes locks nothing; it validates on each shard but the one it read last.
Helpers find locks, ask the home shard, write there that an undecided transaction is aborted, and settle. A sweep
forgets decisions. Plain transactions read and write one key.

Each store transaction is one transition. Any process may stop after any of them, or pause for any time. A coordinator
may not learn the result of its commit at home, which may also arrive late.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import permutations
from typing import Literal, NamedTuple

from tests.protocol_models.exploration import Transition

NOBODY = "nobody"  # Has written the first versions.
MISINFORMED = "its coordinator is told that a committed transaction did not happen"

Status = Literal[
    "reading", "preparing", "deciding", "unknown", "applying", "releasing", "validating", "asking", "settling", "ended"
]
Decision = Literal["committed", "aborted", "forgotten commit", "forgotten abort"]


class Guard(Enum):
    """What makes the protocol safe; a model can be built without one of them."""

    READS_VALIDATED = "a prepare validates what was read on its shard"
    SHARED_LOCK = "a prepare locks what was only read, too"
    DECISION_READ = "the commit at home reads that there is no decision (so an abort must be written)"
    HOME_FIRST = "the home transaction has its read version before anything is prepared"
    ABORT_WRITTEN = "whoever finds no decision writes the abort, and does not infer it"
    LOCK_SEEN = "a plain transaction reads the lock with conflict"
    CARRIED_OUT = "a commit is forgotten only once it is applied everywhere"
    RECEIPT = "a commit is forgotten only after its coordinator knows its result"
    ALL_VALIDATED = "a transaction without writes validates its reads on every shard but the one it read last"
    READ_BEFORE = "a transaction without writes validates no shard before it has read all of them"


class Lock(NamedTuple):
    """A lock on a key."""

    holder: str
    exclusive: bool


class Key(NamedTuple):
    """The only key of a shard. `version`: the last transaction that wrote it."""

    version: str
    locks: frozenset[Lock] = frozenset()

    def admits(self, *, writes: bool) -> bool:
        """Say whether a transaction that meets the locks may go on."""
        return not any(lock.exclusive or writes for lock in self.locks)


class Process(NamedTuple):
    """What a process has in mind. `seen`: the versions that it has read. `holder`: whose lock a helper has met.

    `in_flight`: its commit at home was sent, has not arrived, and may still do so.
    """

    status: Status
    seen: tuple[tuple[str, str], ...] = ()
    holder: str = ""
    committed: bool = False
    validated: frozenset[str] = frozenset()
    in_flight: bool = False


class State(NamedTuple):
    """The shards, and the processes."""

    keys: tuple[tuple[str, Key], ...]
    prepared: frozenset[tuple[str, str]]  # (key, transaction)
    decisions: tuple[tuple[str, Decision], ...]
    processes: tuple[tuple[str, Process], ...]
    commits: frozenset[tuple[str, tuple[tuple[str, str], ...]]]  # what has committed, with the versions it read

    def key(self, name: str) -> Key:
        """Return a key."""
        return dict(self.keys)[name]

    def decision(self, transaction: str) -> Decision | None:
        """Return what is decided about a transaction, or was."""
        return dict(self.decisions).get(transaction)

    def with_key(self, name: str, key: Key) -> State:
        """Return this state with another value of a key."""
        return self._replace(keys=tuple(sorted({**dict(self.keys), name: key}.items())))

    def with_decision(self, transaction: str, decided: Decision) -> State:
        """Return this state with a decision."""
        return self._replace(decisions=tuple(sorted({**dict(self.decisions), transaction: decided}.items())))

    def with_process(self, name: str, process: Process) -> State:
        """Return this state with one process changed."""
        return self._replace(processes=tuple(sorted({**dict(self.processes), name: process}.items())))

    def with_commit(self, name: str, reads: tuple[tuple[str, str], ...]) -> State:
        """Return this state after a commit that has read these versions."""
        return self._replace(commits=self.commits | {(name, reads)})


class Spec(NamedTuple):
    """What a transaction across shards reads and writes, each a text of keys. It reads all that it writes."""

    reads: str
    writes: str
    home: str


@dataclass(frozen=True)
class Spanning:
    """The model; its fields are the processes of a scene.

    Args:
      transactions: across shards, by name.
      plain: one for each key named; it reads and writes the key.
      helpers: one for each key named; it settles a lock that it finds there.
      sweeps: whether decisions are forgotten, and results of commits at home may be unknown.
      without: the guards that are removed.
    """

    transactions: tuple[tuple[str, Spec], ...]
    plain: str = ""
    helpers: str = ""
    sweeps: bool = False
    without: tuple[Guard, ...] = ()

    def initial(self) -> State:
        """Return unlocked keys, and processes that have not begun."""
        specs = dict(self.transactions)
        keys = sorted({key for spec in specs.values() for key in spec.reads})
        names = [*specs, *self._numbered("plain", self.plain), *self._numbered("helper", self.helpers)]
        return State(
            keys=tuple((key, Key(NOBODY)) for key in keys),
            prepared=frozenset(),
            decisions=(),
            processes=tuple((name, Process("reading")) for name in sorted(names)),
            commits=frozenset(),
        )

    @staticmethod
    def _numbered(what: str, keys: str) -> list[str]:
        return [f"{what} {number}{key}" for number, key in enumerate(keys)]

    def transitions(self, state: State) -> Iterator[Transition[State]]:
        """Yield what each process may do next."""
        specs = dict(self.transactions)
        for name, process in state.processes:
            if process.in_flight:
                yield from self._arrive(state, name, process, specs[name])
            if process.status == "ended":
                continue
            if name in specs:
                yield from self._across(state, name, process, specs[name])
            elif name.startswith("plain"):
                yield self._plain(state, name)
            else:
                yield from self._help(state, name, process)
        if self.sweeps:
            yield from self._forget(state)

    def violation(self, state: State) -> str | None:
        """Require an order of all that has committed in which each read what the one before it had left."""
        specs = dict(self.transactions)
        reads, writes = dict(state.commits), {}
        for name in reads:
            writes[name] = specs[name].writes if name in specs else name[-1]
        final = {key: value.version for key, value in state.keys}
        for key, transaction in state.prepared:
            if transaction in reads and key in specs[transaction].writes:
                final[key] = transaction  # It is decided, and will be applied.
        for order in permutations(sorted(reads)):
            versions = dict.fromkeys(final, NOBODY)
            for name in order:
                if any(versions[key] != version for key, version in reads[name]):
                    break
                versions.update(dict.fromkeys(writes[name], name))
            else:
                if versions == final:
                    return None
        return "no serial order explains what was read"

    # --- A transaction across shards ---

    def _across(self, state: State, name: str, process: Process, spec: Spec) -> Iterator[Transition[State]]:
        if process.status == "reading":
            yield self._read(state, name, process, spec)
            if not spec.writes and not self._has(Guard.READ_BEFORE) and process.seen:
                yield from self._validate(state, name, process, spec)
        elif process.status == "validating":
            yield from self._validate(state, name, process, spec)
        elif process.status == "preparing":
            yield self._prepare(state, name, process, spec)
        elif process.status == "deciding":
            yield from self._decide(state, name, process, spec)
        elif process.status == "unknown":
            yield self._ask_itself(state, name, process)
        else:
            yield self._settle_all(state, name, process)

    def _read(self, state: State, name: str, process: Process, spec: Spec) -> Transition[State]:
        seen = dict(process.seen)
        key = next(each for each in spec.reads if each not in seen)
        if not state.key(key).admits(writes=key in spec.writes):
            return self._end(state, name, f"{name} meets a lock at {key}")
        seen[key] = state.key(key).version
        status: Status = "reading"
        if len(seen) == len(spec.reads):
            status = "preparing" if spec.writes else "validating"
        after = process._replace(status=status, seen=tuple(sorted(seen.items())))
        if not spec.writes:
            return Transition(f"{name} reads {key}", self._with_reader(state, name, after, spec))
        return Transition(f"{name} reads {key}", state.with_process(name, after))

    def _with_reader(self, state: State, name: str, process: Process, spec: Spec) -> State:
        """Return the state after a step of a transaction without writes; it commits once nothing is left to do."""
        needed = spec.reads[:-1] if self._has(Guard.ALL_VALIDATED) else ""
        if len(process.seen) == len(spec.reads) and process.validated >= set(needed):
            return state.with_commit(name, process.seen).with_process(name, Process("ended"))
        return state.with_process(name, process)

    def _validate(self, state: State, name: str, process: Process, spec: Spec) -> Iterator[Transition[State]]:
        for key, version in process.seen:
            if key in process.validated or key == spec.reads[-1]:
                continue
            stored = state.key(key)
            if stored.version != version or not stored.admits(writes=False):
                yield self._end(state, name, f"{name} finds {key} changed")
                continue
            after = self._with_reader(state, name, process._replace(validated=process.validated | {key}), spec)
            yield Transition(f"{name} validates {key}", after)

    def _prepare(self, state: State, name: str, process: Process, spec: Spec) -> Transition[State]:
        todo = [key for key in spec.reads if key != spec.home and key not in process.validated]
        if not todo:
            return Transition(f"{name} has prepared", state.with_process(name, process._replace(status="deciding")))
        key = todo[0]
        stored, exclusive = state.key(key), key in spec.writes
        is_valid = stored.version == dict(process.seen)[key] or not self._has(Guard.READS_VALIDATED)
        if not is_valid or not stored.admits(writes=exclusive):
            return Transition(
                f"{name} cannot prepare at {key}", state.with_process(name, process._replace(status="releasing"))
            )
        after = state._replace(prepared=state.prepared | {(key, name)})
        if exclusive or self._has(Guard.SHARED_LOCK):
            after = after.with_key(key, stored._replace(locks=stored.locks | {Lock(name, exclusive)}))
        prepared = process._replace(validated=process.validated | {key})
        return Transition(f"{name} prepares at {key}", after.with_process(name, prepared))

    def _decide(self, state: State, name: str, process: Process, spec: Spec) -> Iterator[Transition[State]]:
        committed = self._commit(state, name, process, spec)
        if committed is None:
            yield Transition(f"{name} cannot commit", state.with_process(name, process._replace(status="releasing")))
            return
        yield Transition(f"{name} commits", committed.with_process(name, Process("applying", committed=True)))
        if self.sweeps:
            sent = process._replace(status="unknown", in_flight=True)
            yield Transition(f"{name} sends its commit, and gets no answer", state.with_process(name, sent))

    def _commit(self, state: State, name: str, process: Process, spec: Spec) -> State | None:
        """Return the state after the commit at home; None: the store refuses it."""
        stored, decided = state.key(spec.home), state.decision(name)
        # The record of a forgotten abort was written after the home transaction's read version: a conflict.
        conflicts = decided is not None and (decided != "forgotten abort" or self._has(Guard.HOME_FIRST))
        if conflicts and self._has(Guard.DECISION_READ):
            return None
        if stored.version != dict(process.seen)[spec.home] or not stored.admits(writes=spec.home in spec.writes):
            return None
        after = state.with_decision(name, "committed").with_commit(name, process.seen)
        return after.with_key(spec.home, stored._replace(version=name)) if spec.home in spec.writes else after

    def _arrive(self, state: State, name: str, process: Process, spec: Spec) -> Iterator[Transition[State]]:
        """Let a commit arrive whose coordinator has no answer; it may have given up the transaction by now."""
        committed = self._commit(state, name, process, spec)
        if committed is not None:
            after = committed.with_process(name, process._replace(in_flight=False))
            yield Transition(
                f"the commit of {name} arrives", after, None if process.status == "unknown" else MISINFORMED
            )

    def _ask_itself(self, state: State, name: str, process: Process) -> Transition[State]:
        """Find out how a commit of unknown result ended; without a decision, write that it is aborted."""
        label, decided = f"{name} asks how its commit ended", state.decision(name)
        if decided == "committed":
            return Transition(label, state.with_process(name, process._replace(status="applying", committed=True)))
        after = state.with_process(name, process._replace(status="releasing"))
        if decided == "forgotten commit":
            return Transition(label, after, MISINFORMED)
        return Transition(label, after.with_decision(name, "aborted") if self._has(Guard.ABORT_WRITTEN) else after)

    def _settle_all(self, state: State, name: str, process: Process) -> Transition[State]:
        """Apply or release on one shard after the other."""
        prepared = sorted(key for key, transaction in state.prepared if transaction == name)
        if not prepared:
            return self._end(state, name, f"{name} has ended")
        return Transition(f"{name} settles {prepared[0]}", self._settle(state, prepared[0], name, process.committed))

    # --- Everybody else ---

    def _plain(self, state: State, name: str) -> Transition[State]:
        key = name[-1]
        stored = state.key(key)
        if stored.locks and self._has(Guard.LOCK_SEEN):
            return self._end(state, name, f"{name} meets a lock")
        after = state.with_key(key, stored._replace(version=name)).with_commit(name, ((key, stored.version),))
        return self._end(after, name, f"{name} commits")

    def _help(self, state: State, name: str, process: Process) -> Iterator[Transition[State]]:
        """Find a lock, ask the home shard about it, and settle it."""
        key = name[-1]
        if process.status == "reading":
            for lock in sorted(state.key(key).locks):
                yield Transition(
                    f"{name} meets {lock.holder}", state.with_process(name, Process("asking", holder=lock.holder))
                )
            return
        if process.status == "asking":
            decided = state.decision(process.holder)
            after = state
            if decided is None or decided.startswith("forgotten"):  # There is no record.
                if self._has(Guard.ABORT_WRITTEN) and decided != "forgotten commit":
                    after = state.with_decision(process.holder, "aborted")
                decided = "aborted"
            told = process._replace(status="settling", committed=decided == "committed")
            yield Transition(f"{name} asks about {process.holder}", after.with_process(name, told))
            return
        after = self._settle(state, key, process.holder, process.committed)
        yield self._end(after, name, f"{name} settles {process.holder}")

    def _settle(self, state: State, key: str, transaction: str, committed: bool) -> State:
        """Apply or release what a transaction has prepared at a key; nothing, if that is done."""
        if (key, transaction) not in state.prepared:
            return state
        stored = state.key(key)
        locks = frozenset(lock for lock in stored.locks if lock.holder != transaction)
        is_written = committed and key in dict(self.transactions)[transaction].writes
        after = state._replace(prepared=state.prepared - {(key, transaction)})
        return after.with_key(key, Key(transaction if is_written else stored.version, locks))

    def _forget(self, state: State) -> Iterator[Transition[State]]:
        """Forget a decision. An abort may be forgotten at any time: whoever needs it writes it again."""
        processes = dict(state.processes)
        for name, decided in state.decisions:
            if decided == "aborted":
                yield Transition(f"the abort of {name} is forgotten", state.with_decision(name, "forgotten abort"))
            elif decided == "committed":
                is_prepared = any(transaction == name for _, transaction in state.prepared)
                is_unanswered = processes[name].status == "unknown"
                if (is_prepared and self._has(Guard.CARRIED_OUT)) or (is_unanswered and self._has(Guard.RECEIPT)):
                    continue
                yield Transition(f"the commit of {name} is forgotten", state.with_decision(name, "forgotten commit"))

    def _end(self, state: State, name: str, label: str) -> Transition[State]:
        process = dict(state.processes)[name]
        in_flight = process.in_flight
        return Transition(
            label, state.with_process(name, Process("ended", process.seen if in_flight else (), in_flight=in_flight))
        )

    def _has(self, guard: Guard) -> bool:
        return guard not in self.without


def _transactions(**specs: tuple[str, str, str]) -> tuple[tuple[str, Spec], ...]:
    return tuple((name, Spec(*spec)) for name, spec in specs.items())


SCENES = {
    "write skew": Spanning(_transactions(T=("ab", "a", "a"), U=("ab", "b", "b")), helpers="ab"),
    "write skew, one home": Spanning(_transactions(T=("ab", "a", "b"), U=("ab", "b", "b")), helpers="ab"),
    "two transfers": Spanning(_transactions(T=("ab", "ab", "a"), U=("ab", "ab", "b")), helpers="ab"),
    "a transfer and plain transactions": Spanning(_transactions(T=("ab", "ab", "a")), plain="bba", helpers="ab"),
    "a reader and a transfer": Spanning(_transactions(T=("ab", "ab", "a"), R=("ab", "", "b")), plain="a", helpers="ab"),
    "two readers and plain transactions": Spanning(_transactions(R=("ab", "", "a"), Q=("ba", "", "b")), plain="ab"),
    "a reader of three shards": Spanning(
        _transactions(T=("ab", "ab", "a"), R=("bca", "", "b")), plain="c", helpers="b"
    ),
    "a ring of three shards": Spanning(_transactions(T=("ab", "a", "a"), U=("bc", "b", "b"), V=("ca", "c", "c"))),
    "forgotten decisions": Spanning(_transactions(T=("abc", "ab", "c")), plain="b", helpers="ba", sweeps=True),
    "forgotten decisions of two": Spanning(
        _transactions(T=("ab", "ab", "a"), U=("ab", "ab", "b")), helpers="ab", sweeps=True
    ),
    "reads elsewhere": Spanning(_transactions(T=("abc", "c", "c"), U=("abc", "a", "a")), plain="b", helpers="b"),
}
