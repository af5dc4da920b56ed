"""Steps on another shard: step log, fence, cleanup, tombstones, FLOOR (Olive, OSDI '16, sections 3 and 6).

One workflow reads a value at home, runs step 1 with that value at a participant, a step at home, and step 2 at the
participant, and ends. It may be cancelled, and step 2 may fail for good. Then what was done is undone: undo 2, undo 1.
The participant is a tenant on another shard. It may move to the home's shard and back.

Each store transaction is one transition. A lease may expire at any instant, and an executor may stop, or pause for any
time. A step at the participant is begun (it reads), and commits at any later time unless a key that it read with
conflict was written meanwhile. That is an executor that pauses between read and commit. It is also a commit of unknown
result whose executor continues. No clock is trusted.

States that differ only in what cannot matter are one state here:
    executors   they are alike, so they are kept sorted; one that has stopped has nothing in mind
    begun       a transaction that can only conflict has no effect, so it is dropped when the conflict arises
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple

from tests.protocol_models.exploration import Transition

OTHER_SHARD, HOME_SHARD = 0, 1  # Where the participant is.
END = 9  # The fence of a tombstone: above every lease number.
NO_TOMBSTONE = -1
UNKNOWN = ""  # The value before it is read.
VALUES = ("red", "blue")  # What a read may return.
ERROR = "error"  # The log entry of a step that has failed for good.
DONE = "done"  # The log entry of a step that depends on no read.
CLOCK_AHEAD = 2  # How far ahead a clock may be that is taken for FLOOR.

Step = Literal["step 1", "step 2", "undo 2", "undo 1"]
Phase = Literal[
    "idle",  # It holds no lease.
    "raise fence",
    "ask",  # It reads the participant's epoch and FLOOR.
    "record",  # It writes them, and what was read, at home.
    "step 1",
    "home step",
    "step 2",
    "end",
    "give up",  # Step 2 has failed for good.
    "undo 2",
    "undo 1",
    "end undone",
    "stopped",
]
STEPS: tuple[Step, ...] = ("step 1", "step 2", "undo 2", "undo 1")
AFTER: dict[Phase, Phase] = {"step 1": "home step", "step 2": "end", "undo 2": "undo 1", "undo 1": "end undone"}
UNDONE_BY: dict[Step, Step] = {"step 1": "undo 1", "step 2": "undo 2"}
UNDOES: dict[Step, Step] = {"undo 1": "step 1", "undo 2": "step 2"}


class Guard(Enum):
    """What makes the protocol safe; a model can be built without one of them."""

    HOME_FENCE = "a commit at home compares the lease"
    ENTRY_READ = "the step's log entry is read with conflict"
    FENCE_READ = "fence and tombstone are read with conflict"
    TOMBSTONE = "the cleanup leaves a tombstone"
    FLOOR_COMPARED = "a step on another shard compares FLOOR with the recorded number"
    RECORDED_AFTER_ASKING = "that number is recorded at home, under the lease, after it was read"
    NO_CLOCK = "that number is the shard's FLOOR, not the time by the executor's clock"
    RAISED_WITH_CLEARING = "FLOOR is raised in the transaction that clears tombstones"
    PARTICIPANT_FIRST = "home records the participant before the first step there"
    READS_FIRST = "what was read is recorded at home before the next step on another shard"
    FENCE_RAISED = "a new attempt first raises the fence at the participant"
    ERROR_IS_ENTRY = "a step's recorded error is its log entry, not a note at home"
    RUN_ID = "logs are kept by run, not by the item's name"
    EPOCH = "the tenant's epoch is recorded and compared, so both numbers are read again after a move"
    HOME_CHECKED = "an executor that asks again looks for the step's log entry at home"


class Asked(NamedTuple):
    """What an executor has read of the participant."""

    epoch: int  # The number of the tenant's moves.
    floor: int  # FLOOR of the other shard; the home's shard needs none.


NOT_ASKED = Asked(-1, -1)


class Entry(NamedTuple):
    """A step's log entry."""

    step: Step
    value: str


class HomeLog(NamedTuple):
    """What is recorded at home of the current run."""

    value: str = UNKNOWN
    participant: Asked = NOT_ASKED
    undoing: bool = False
    entries: frozenset[Entry] = frozenset()  # Of steps that ran while the participant was on the home's shard.

    def with_entry(self, entry: Entry) -> HomeLog:
        """Return the log with another entry of one step."""
        others = frozenset(each for each in self.entries if each.step != entry.step)
        return self._replace(entries=others | {entry})


class Item(NamedTuple):
    """The workflow's item."""

    run: int
    lease: int  # Lease number; 0 before the first.


class Executor(NamedTuple):
    """One attempt: its lease, and what its executor has in mind."""

    phase: Phase
    run: int = 0
    lease: int = 0
    value: str = UNKNOWN
    asked: Asked = NOT_ASKED
    next_phase: Phase = "step 1"  # After the fence is raised, or after what was read is recorded.
    home_entries: tuple[Entry, ...] = ()  # As the home log had them when the attempt began.


IDLE = Executor("idle")
STOPPED = Executor("stopped")


class Begun(NamedTuple):
    """A step's transaction that has read and may still commit."""

    run: int
    step: Step
    value: str
    lease: int
    at_home: bool  # The participant is on the home's shard, so the item's record is read with conflict.


class Participant(NamedTuple):
    """The tenant at which steps run, and FLOOR of both shards. Runs are numbered from 1."""

    shard: int
    floors: tuple[int, int]  # Of the other shard, of the home's shard.
    entries: frozenset[tuple[int, Entry]]  # (run, entry)
    fences: tuple[int, int]  # By run: the lowest lease number that may act, or `END`; 0: no key.
    tombstones: tuple[int, int]  # By run: FLOOR when the tombstone was written, or `NO_TOMBSTONE`.

    @property
    def floor(self) -> int:
        """FLOOR of the shard where the tenant is."""
        return self.floors[self.shard]

    def with_entry(self, run: int, entry: Entry) -> Participant:
        """Return the participant with another log entry of one step of one run."""
        others = frozenset(each for each in self.entries if (each[0], each[1].step) != (run, entry.step))
        return self._replace(entries=others | {(run, entry)})

    def with_fence(self, run: int, fence: int) -> Participant:
        """Return the participant with another fence of one run."""
        return self._replace(fences=_with(self.fences, run, fence))

    def without_runs(self, runs: set[int]) -> Participant:
        """Return the participant without fences and tombstones of `runs`."""
        after = self
        for run in runs:
            after = after.with_fence(run, 0)._replace(tombstones=_with(after.tombstones, run, NO_TOMBSTONE))
        return after


class Cleanup(NamedTuple):
    """The cleanup's item; it may run again until it is acknowledged."""

    run: int
    has_run: bool


class State(NamedTuple):
    """Home, participant, executors, and what has happened."""

    item: Item | None  # None: the run has ended.
    cancelled: bool
    log: HomeLog
    ended: tuple[tuple[int, Literal["done", "undone"]], ...]  # (run, outcome)
    participant: Participant
    effects: frozenset[tuple[int, Step]]  # (run, step): the effects of steps that have committed.
    executors: tuple[Executor, ...]  # Sorted.
    begun: frozenset[Begun]
    cleanups: frozenset[Cleanup]
    late_cleanups: frozenset[int]  # Runs whose cleanup may run once more, by a worker that has lost its lease.
    enqueued_again: bool
    moves: int

    def ended_runs(self) -> set[int]:
        """Return the runs that have ended."""
        return {run for run, _ in self.ended}

    def with_executor(self, index: int, executor: Executor) -> State:
        """Return this state with one executor changed."""
        executors = (*self.executors[:index], executor, *self.executors[index + 1 :])
        return self._replace(executors=tuple(sorted(executors)))


Outcome = tuple[str, Executor, State, str | None]  # Label, the executor afterwards, the rest of the state, violation.


@dataclass(frozen=True)
class Steps:
    """The model; its fields bound what may happen.

    Args:
      without: the guards that are removed.
      executors: number of attempts, which are leases at most.
      cancel: whether the workflow may be cancelled.
      fail: whether step 2 may fail for good.
      enqueue_again: whether an item of the same name may be enqueued after the end; that begins run 2.
      moves: how often the participant moves to the other one of the two shards.
      floor_raises: how often FLOOR is raised, of both shards together.
    """

    without: tuple[Guard, ...] = ()
    executors: int = 2
    cancel: bool = True
    fail: bool = True
    enqueue_again: bool = False
    moves: int = 0
    floor_raises: int = 2

    def initial(self) -> State:
        """Return a due item, and a participant on another shard that knows nothing of it."""
        return State(
            item=Item(1, 0),
            cancelled=False,
            log=HomeLog(),
            ended=(),
            participant=Participant(OTHER_SHARD, (0, 0), frozenset(), (0, 0), (NO_TOMBSTONE, NO_TOMBSTONE)),
            effects=frozenset(),
            executors=(IDLE,) * self.executors,
            begun=frozenset(),
            cleanups=frozenset(),
            late_cleanups=frozenset(),
            enqueued_again=False,
            moves=0,
        )

    def transitions(self, state: State) -> Iterator[Transition[State]]:
        """Yield what each process may do next, and which begun steps may commit."""
        for index, executor in enumerate(state.executors):
            for label, after, rest, violation in self._execute(state, executor):
                name = f"lease {after.lease or executor.lease} of run {after.run or executor.run}"
                yield Transition(f"{name}: {label}", rest.with_executor(index, after), violation)
        for begun in sorted(state.begun):
            yield self._commit(state, begun)
        yield from self._clean_up(state)
        yield from self._raise_floor(state)
        if self.cancel and not state.cancelled and state.item is not None:
            yield Transition("cancel", state._replace(cancelled=True))
        if self.enqueue_again and not state.enqueued_again and state.item is None:
            yield Transition("the name is enqueued again", state._replace(item=Item(2, 0), enqueued_again=True))
        if state.moves < self.moves:
            yield self._move(state)

    def violation(self, state: State) -> str | None:
        """Require that an undone run leaves no effect, and that a cleaned run leaves no log entry."""
        for run, outcome in state.ended:
            if outcome == "undone" and any(
                (run, step) in state.effects and (run, undo) not in state.effects for step, undo in UNDONE_BY.items()
            ):
                return "a step of an undone run is not undone"
            cleaning = any(cleanup.run == run for cleanup in state.cleanups)
            if self._has(Guard.RUN_ID) and not cleaning and any(each == run for each, _ in state.participant.entries):
                return "log entries remain that no cleanup finds"
        return None

    # --- Executors ---

    def _execute(self, state: State, executor: Executor) -> Iterator[Outcome]:
        match executor.phase:
            case "idle":
                yield from self._lease(state)
            case "raise fence":
                yield self._raise_fence(state, executor)
            case "ask":
                asked = self._ask(state) if self._has(Guard.NO_CLOCK) else executor.asked
                records = self._has(Guard.RECORDED_AFTER_ASKING) or executor.asked == NOT_ASKED
                phase = "record" if records else executor.next_phase
                yield "reads epoch and FLOOR", executor._replace(phase=phase, asked=asked), state, None
            case "record" | "home step" | "end" | "end undone" | "give up":
                yield self._commit_at_home(state, executor)
            case "step 1" | "step 2" | "undo 2" | "undo 1":
                yield from self._step(state, executor, executor.phase)

    def _lease(self, state: State) -> Iterator[Outcome]:
        """Lease the item, due or of an expired lease, read the home log, and begin a replay."""
        if state.item is None:
            return
        run, lease, log = state.item.run, state.item.lease + 1, state.log
        # The lease rewrites the item's record, which a step on the home's shard reads with conflict.
        begun = frozenset(each for each in state.begun if not each.at_home)
        rest = state._replace(item=Item(run, lease), begun=begun)
        for value in VALUES if log.value == UNKNOWN else (log.value,):
            for asked in self._asked_when_leased(state):
                phase: Phase = "ask"
                if log.undoing:
                    phase = "undo 2"
                elif log.value != UNKNOWN and asked != NOT_ASKED:
                    phase = "step 1"
                executor = Executor(phase, run, lease, value, asked, "step 1", tuple(sorted(log.entries)))
                if self._has(Guard.FENCE_RAISED) and log.participant != NOT_ASKED and lease > 1:
                    executor = executor._replace(phase="raise fence", next_phase=phase)
                yield f"leases the item, value {value}", executor, rest, None

    def _asked_when_leased(self, state: State) -> list[Asked]:
        if self._has(Guard.NO_CLOCK):
            return [state.log.participant]
        now = self._ask(state)
        return [now, now._replace(floor=now.floor + CLOCK_AHEAD)]

    def _ask(self, state: State) -> Asked:
        return Asked(state.moves, state.participant.floors[OTHER_SHARD])

    def _raise_fence(self, state: State, executor: Executor) -> Outcome:
        """Set the fence to the attempt's lease number: no older attempt can act at the participant."""
        run, lease = executor.run, executor.lease
        if self._fence(state, run) > lease:
            return self._refused(state, executor, "the fence is higher")
        rest = state._replace(
            participant=state.participant.with_fence(self._log_key(run), lease),
            begun=self._after_conflicts(state.begun, run, fence_written=True),
        )
        return "raises the fence", executor._replace(phase=executor.next_phase, next_phase="step 1"), rest, None

    def _commit_at_home(self, state: State, executor: Executor) -> Outcome:
        """Commit under the lease: record what was read, run the home step, decide to undo, or end."""
        phase, log, is_its_run = executor.phase, state.log, state.item is not None and state.item.run == executor.run
        if not is_its_run or (self._has(Guard.HOME_FENCE) and not _holds(state, executor)):
            return f"{phase}: has lost its lease", STOPPED, state, None
        cancelled = state.cancelled and phase in ("record", "home step", "end") and not log.undoing
        if phase == "give up" or cancelled:
            rest = state._replace(log=log._replace(undoing=True))
            return f"{phase}: decides to undo", executor._replace(phase="undo 2"), rest, None
        if phase == "record":
            if self._has(Guard.HOME_CHECKED) and any(entry.step == executor.next_phase for entry in log.entries):
                return f"finds {executor.next_phase} at home", _after(executor, executor.next_phase), state, None
            if self._has(Guard.READS_FIRST):
                log = log._replace(value=executor.value)
            if self._has(Guard.PARTICIPANT_FIRST):
                log = log._replace(participant=executor.asked)
            return "records", executor._replace(phase=executor.next_phase), state._replace(log=log), None
        if phase == "home step":
            if log.participant == NOT_ASKED:
                log = log._replace(participant=executor.asked)
            after = executor._replace(phase="step 2", next_phase="step 2")
            return "runs the home step", after, state._replace(log=log), None
        return self._end(state, executor.run, "done" if phase == "end" else "undone")

    def _end(self, state: State, run: int, outcome: Literal["done", "undone"]) -> Outcome:
        """End the run: clear item and home log, and enqueue the cleanup if there is a participant."""
        violation = None
        if run in state.ended_runs():
            violation = "a run ends twice"
        if outcome == "done" and not {(run, "step 1"), (run, "step 2")} <= state.effects:
            violation = "a run is done without its steps"
        has_participant = state.log.participant != NOT_ASKED
        rest = state._replace(
            item=None,
            cancelled=False,
            log=HomeLog(),
            ended=(*state.ended, (run, outcome)),
            cleanups=state.cleanups | {Cleanup(run, False)} if has_participant else state.cleanups,
        )
        return f"ends the run, {outcome}", STOPPED, rest, violation

    # --- Steps at the participant ---

    def _step(self, state: State, executor: Executor, step: Step) -> Iterator[Outcome]:
        """Compare fence, FLOOR and epoch; then use the log entry if there is one, or begin the step."""
        run, participant = executor.run, state.participant
        at_home = participant.shard == HOME_SHARD
        if at_home and not _holds(state, executor):
            yield f"{step}: has lost its lease", STOPPED, state, None
            return
        if self._fence(state, run) > executor.lease:
            yield self._refused(state, executor, step)
            return
        if not at_home and self._is_outdated(executor.asked, state):
            if self._has(Guard.NO_CLOCK):
                yield f"{step}: must ask again", executor._replace(phase="ask", next_phase=step), state, None
            else:
                yield f"{step}: its clock is behind FLOOR", STOPPED, state, None
            return
        entries = self._entries(state, executor, step)
        if step in entries:
            yield self._find(state, executor, step, entries[step])
        elif step in UNDOES and entries.get(UNDOES[step], ERROR) == ERROR:
            yield f"{step}: nothing to undo", _after(executor, step), state, None
        else:
            begun = Begun(run, step, _value(executor, step), executor.lease, at_home)
            if begun not in state.begun:
                yield f"begins {step}", executor, state._replace(begun=state.begun | {begun}), None
            if step == "step 2" and self.fail:
                yield self._fail(state, executor)

    def _is_outdated(self, asked: Asked, state: State) -> bool:
        """Return whether the participant has moved or cleared tombstones since the executor asked."""
        if not self._has(Guard.FLOOR_COMPARED):
            return False
        now = self._ask(state)
        if not self._has(Guard.NO_CLOCK):
            return now.floor > asked.floor
        return now.floor != asked.floor or (self._has(Guard.EPOCH) and now.epoch != asked.epoch)

    def _entries(self, state: State, executor: Executor, step: Step) -> dict[Step, str]:
        """Return the run's log entries: the participant's, and those at home as the executor sees them.

        A step on the home's shard reads the home log in its transaction. An undo reads it before.
        """
        key = self._log_key(executor.run)
        entries = {entry.step: entry.value for run, entry in state.participant.entries if run == key}
        if state.participant.shard == HOME_SHARD or step in UNDOES:
            is_its_log = state.item is not None and self._log_key(state.item.run) == key
            return entries | dict(state.log.entries if is_its_log else ())
        return entries | dict(executor.home_entries)

    def _find(self, state: State, executor: Executor, step: Step, value: str) -> Outcome:
        """Take a step's answer from its log entry."""
        differs = value not in (_value(executor, step), ERROR)
        violation = "the replay differs, with the same code" if differs else None
        if step == "step 2" and value == ERROR:
            return "finds the error of step 2", executor._replace(phase="give up"), state, violation
        return f"finds {step}", _after(executor, step), state, violation

    def _fail(self, state: State, executor: Executor) -> Outcome:
        """Record that the last try of step 2 has failed."""
        after = executor._replace(phase="give up")
        if not self._has(Guard.ERROR_IS_ENTRY):
            return "notes the error of step 2 at home", after, state, None
        rest = state._replace(
            participant=state.participant.with_entry(self._log_key(executor.run), Entry("step 2", ERROR)),
            begun=self._after_conflicts(state.begun, executor.run, entries_written=("step 2",)),
        )
        return "records the error of step 2", after, rest, None

    def _refused(self, state: State, executor: Executor, what: str) -> Outcome:
        violation = "an attempt is refused although it holds the lease" if _holds(state, executor) else None
        return f"{what}: is refused", STOPPED, state, violation

    def _commit(self, state: State, begun: Begun) -> Transition[State]:
        """Commit a step: its effect and its log entry."""
        run, step = begun.run, begun.step
        violation = None
        if (run, step) in state.effects:
            violation = f"{step} is executed twice"
        elif run in state.ended_runs():
            violation = f"{step} is executed after its run has ended"
        after = state._replace(
            effects=state.effects | {(run, step)},
            begun=self._after_conflicts(state.begun - {begun}, run, entries_written=(step,)),
        )
        entry = Entry(step, begun.value)
        if begun.at_home:
            after = after._replace(log=state.log.with_entry(entry))
        else:
            after = after._replace(participant=state.participant.with_entry(self._log_key(run), entry))
        return Transition(f"{step} of run {run} commits, begun under lease {begun.lease}", after, violation)

    # --- Cleanup, housekeeping, moves ---

    def _clean_up(self, state: State) -> Iterator[Transition[State]]:
        """Run each ended run's cleanup once or more, the last time perhaps late."""
        for cleanup in sorted(state.cleanups):
            run, others = cleanup.run, state.cleanups - {cleanup}
            cleaned = self._cleaned(state, run)._replace(cleanups=others | {Cleanup(run, True)})
            yield Transition(f"the cleanup of run {run} runs", cleaned)
            if cleanup.has_run:
                late = state.late_cleanups | {run} if self.enqueue_again else state.late_cleanups
                yield Transition(
                    f"the cleanup of run {run} is acknowledged", state._replace(cleanups=others, late_cleanups=late)
                )
        for run in sorted(state.late_cleanups):
            late = state.late_cleanups - {run}
            yield Transition(f"a late cleanup of run {run}", self._cleaned(state, run)._replace(late_cleanups=late))

    def _cleaned(self, state: State, run: int) -> State:
        """Clear the run's entries at the participant, and leave a tombstone."""
        key, participant = self._log_key(run), state.participant
        entries = frozenset(each for each in participant.entries if each[0] != key)
        participant = participant._replace(entries=entries).with_fence(key, 0)
        if self._has(Guard.TOMBSTONE):
            tombstones = _with(participant.tombstones, key, participant.floor)
            participant = participant.with_fence(key, END)._replace(tombstones=tombstones)
        begun = self._after_conflicts(state.begun, run, entries_written=STEPS, fence_written=True)
        return state._replace(participant=participant, begun=begun)

    def _raise_floor(self, state: State) -> Iterator[Transition[State]]:
        """Raise FLOOR of the participant's shard, and clear the tombstones that were written under a lower FLOOR."""
        participant = state.participant
        has_tombstones = participant.tombstones != (NO_TOMBSTONE, NO_TOMBSTONE)
        if sum(participant.floors) >= self.floor_raises or not (has_tombstones or state.cleanups):
            return
        raised = participant.floor + 1
        cleared = {run for run, floor in enumerate(participant.tombstones, 1) if NO_TOMBSTONE < floor < raised}
        after = participant.without_runs(cleared)
        if self._has(Guard.RAISED_WITH_CLEARING):
            after = after._replace(floors=_with(after.floors, after.shard + 1, raised))
        if after != participant:
            begun = state.begun
            for run in cleared:
                begun = self._after_conflicts(begun, run, fence_written=True)
            yield Transition("FLOOR is raised", state._replace(participant=after, begun=begun))

    def _move(self, state: State) -> Transition[State]:
        """Move the participant to the other one of the two shards; its tombstones do not go along."""
        participant = state.participant
        shard = HOME_SHARD if participant.shard == OTHER_SHARD else OTHER_SHARD
        moved = participant._replace(shard=shard)
        if self._has(Guard.EPOCH):
            moved = moved.without_runs({run for run, fence in enumerate(participant.fences, 1) if fence == END})
        else:
            first, second = (NO_TOMBSTONE if each == NO_TOMBSTONE else moved.floor for each in participant.tombstones)
            moved = moved._replace(tombstones=(first, second))
        after = state._replace(participant=moved, begun=frozenset(), moves=state.moves + 1)
        return Transition(f"the participant moves to {('the other', 'the home')[shard]} shard", after)

    # --- Parts of transactions ---

    def _after_conflicts(
        self, begun: frozenset[Begun], run: int, *, entries_written: tuple[Step, ...] = (), fence_written: bool = False
    ) -> frozenset[Begun]:
        """Return the begun steps without those that have read, with conflict, what is written now."""
        key = self._log_key(run)
        if not self._has(Guard.ENTRY_READ):
            entries_written = ()
        fence_written = fence_written and self._has(Guard.FENCE_READ)
        return frozenset(
            each
            for each in begun
            if self._log_key(each.run) != key or not (fence_written or each.step in entries_written)
        )

    def _log_key(self, run: int) -> int:
        """Return the key of a run's log and fence; by the item's name, it is the same for both runs."""
        return run if self._has(Guard.RUN_ID) else 1

    def _fence(self, state: State, run: int) -> int:
        return state.participant.fences[self._log_key(run) - 1]

    def _has(self, guard: Guard) -> bool:
        return guard not in self.without


def _holds(state: State, executor: Executor) -> bool:
    return state.item == (executor.run, executor.lease)


def _value(executor: Executor, step: Step) -> str:
    return executor.value if step == "step 1" else DONE


def _after(executor: Executor, step: Phase) -> Executor:
    following = AFTER[step]
    return executor._replace(phase=following, next_phase=following)


def _with(pair: tuple[int, int], number: int, value: int) -> tuple[int, int]:
    return (value, pair[1]) if number == 1 else (pair[0], value)


SCENES = {
    "two attempts": Steps(),
    "three attempts": Steps(executors=3, fail=False, floor_raises=0),
    "the name is enqueued again": Steps(executors=3, cancel=False, fail=False, enqueue_again=True, floor_raises=0),
    "the participant moves": Steps(fail=False, moves=2, floor_raises=1),
}
LARGER_SCENES = {
    "three attempts that may fail": Steps(executors=3),
    "three attempts while the participant moves": Steps(executors=3, fail=False, moves=1, floor_raises=1),
    "two attempts while the participant moves twice": Steps(moves=2),
    "the name is enqueued again while the participant moves": Steps(
        executors=3, cancel=False, fail=False, enqueue_again=True, moves=1, floor_raises=1
    ),
}
