"""A replay of a recorded run that does nothing: to see whether code fits the run before the code is deployed.

The function runs from its beginning, and gets the recorded answers. It ends at the first step that has none. No body of
a step, no effect and no read is called. The replay gets plain data and a shard whose database refuses every
transaction. So nothing can be read or committed, whatever the code does with `wf`.
"""

from contextlib import AbstractContextManager
from enum import Enum
from random import Random
from typing import NamedTuple, NoReturn

from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.handlers import UnfitCode
from fairlead.actors.telemetry.step_counts import StepCounts
from fairlead.workflows.errors import BranchNotEnded
from fairlead.workflows.execution import Execution
from fairlead.workflows.interrupts import Failed
from fairlead.workflows.requests import RunFunction, Steps
from fairlead.workflows.run_log import RunLog
from fairlead.workflows.workflow_kind import WorkflowKind
from fairlead.zones.engines import Database, Listener, Transaction
from fairlead.zones.errors import PayloadDamaged, QueueError, RunUnreadable
from fairlead.zones.shard import Shard
from fairlead.zones.workflow.step_log import StoredRun


class StoreInReplay(QueueError):
    """Code that is replayed read-only used a store: the workflow's function reads or writes outside of its steps.

    Do: read in `wf.read`, and write in `wf.step`. Otherwise each attempt at the workflow does it again.
    """

    message = "the workflow's code used a store outside of its steps"


class ReplayOutcome(Enum):
    """Whether code fits a run."""

    SAME = "the code does the recorded steps"
    DIFFERENT = "the code does other steps, or fails before it has done the recorded ones"
    NEWER = "code of a higher version began the run; this code gives it back"
    UNREADABLE = "what is stored of the run is damaged, or cannot be read now"


class Replayed(NamedTuple):
    """What a replay has found. `error`: what differs, or what cannot be read; else None."""

    outcome: ReplayOutcome
    error: Exception | None = None


def replay_recorded(kind: WorkflowKind, held: HeldItem, stored: StoredRun, shard: Shard) -> Replayed:
    """Replay a run up to the end of what is recorded of it.

    `stored`: with the entries of participants. `shard`: the home; only its names, its layout and its clock are used.
    """
    if stored.unreadable is not None:
        return Replayed(ReplayOutcome.UNREADABLE, stored.unreadable)
    sealed = Shard(shard.name, _RefusingDatabase(shard.db), shard.layout, clock=shard.clock, random=Random(0))
    run_log = RunLog(held, sealed, version=kind.version)
    run_log.head, run_log.entries, run_log.participants = stored.head, stored.entries, stored.participants
    if run_log.version > kind.version:
        return Replayed(ReplayOutcome.NEWER)
    execution = Execution(
        run_log,
        version=kind.version,
        home_of=lambda tenant: sealed,
        keep_lease=lambda held: False,
        step_counts=StepCounts(),
        stops_at_end=True,
    )
    try:
        raised: BaseException | None = kind.run_on_this_thread(execution, _run_function())
    except SystemExit as leaves:  # It would end the replay of all other runs, with its own exit code.
        raised = leaves
    except BranchNotEnded as stuck:
        return Replayed(ReplayOutcome.DIFFERENT, stuck)
    cause = None if execution.interrupt is None else execution.interrupt.cause
    ended_with = cause.error if isinstance(cause, Failed) else raised
    if isinstance(ended_with, PayloadDamaged | RunUnreadable):
        return Replayed(ReplayOutcome.UNREADABLE, ended_with)
    error = _difference(execution, raised)
    return Replayed(ReplayOutcome.SAME) if error is None else Replayed(ReplayOutcome.DIFFERENT, error)


def _run_function() -> Steps[Exception | None]:
    error: Exception | None = yield RunFunction()
    return error


def _difference(execution: Execution, raised: BaseException | None) -> UnfitCode | None:
    """Return what an attempt would end with, or sooner or later comes to."""
    cause = None if execution.interrupt is None else execution.interrupt.cause
    error = cause.error if isinstance(cause, Failed) else raised
    if isinstance(error, UnfitCode):
        return error
    replay = execution.replay
    if not replay.is_behind or (error is None and replay.may_differ):
        return None
    how = "has come to the end of what is recorded" if cause is not None else "has ended"
    if error is not None:
        how = f"has raised {type(error).__name__}: {error}"
    return replay.not_reached_by(how)


class _RefusingDatabase:
    """A database that refuses every transaction."""

    def __init__(self, db: Database) -> None:
        self.url = db.url
        self.limits = db.limits
        self.errors: tuple[type[Exception], ...] = db.errors
        self.results_can_be_unknown = False

    def exclusive_section(self) -> NoReturn:
        """Refuse."""
        raise StoreInReplay(store=self.url)

    def burst(self, tr: Transaction) -> AbstractContextManager[Transaction]:
        """Refuse."""
        raise StoreInReplay(store=self.url)

    def create_transaction(self) -> Transaction:
        """Refuse."""
        raise StoreInReplay(store=self.url)

    def commit_sequence(self) -> int | None:
        """Return None: there is none."""

    def listener(self) -> Listener | None:
        """Return None: nothing is committed."""

    def close(self) -> None:
        """Close nothing: the database belongs to others."""
