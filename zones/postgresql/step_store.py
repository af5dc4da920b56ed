"""Steps of workflows in PostgreSQL: the effects of a step, and its entry, are one transaction.

Reads do not conflict in SQL: a transaction commits although what it has read was changed. So each of these transactions
locks first, and then reads. `run` stands for the rows of one run.

    transaction    locks, in this order                              reads after that   writes
    ask            nothing                                           epoch, FLOOR       nothing
    step           fence of the run FOR SHARE, inserted if missing;  epoch, FLOOR       the body's effects, the entry;
                   FLOOR FOR SHARE above READ COMMITTED; the key     the entry          entries of earlier segments go
                   of the entry, by inserting it
    raise fence    fence of the run FOR NO KEY UPDATE, inserted if   epoch, FLOOR       fence
                   missing: waits for steps
    clean up       fence of the run FOR UPDATE, inserted if missing: FLOOR              entries go; the fence becomes a
                   waits for steps                                                      tombstone under FLOOR
    raise FLOOR    FLOOR FOR UPDATE; tombstones, passing over        nothing            tombstones go, FLOOR
                   locked ones

What follows, for each order of two of them:

- Two executors of a step: the second one waits to insert the entry, until the first one has ended. Then it takes the
  entry that is there, or is the first one itself. Looking for the entry before would find nothing, twice.
- A step, and a raised fence or a cleanup: the fence waits for the step, whose entry is read or cleared after that. A
  step that comes later finds the fence.
- A step, and FLOOR: if the tombstone of the run is gone when the step inserts a fence, FLOOR was raised in the
  transaction that cleared the tombstone. Above READ COMMITTED a plain read would be as old as the transaction, so FLOOR
  is locked, which fails by 40001 if FLOOR was raised since.
- A cleanup, and FLOOR: whoever acts for the run has asked before the run has ended, so for a FLOOR that is not above
  that of the tombstone. The tombstone goes once FLOOR is above its own.

Conflicts (40001, at REPEATABLE READ and SERIALIZABLE) and deadlocks repeat the transaction of a step. So does a commit
of unknown result: what looks again is the transaction of the step itself, which waits for the one that may still run.

All but steps run at READ COMMITTED. A step runs at the level that is the default of its role, database or DSN.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NoReturn
from uuid import UUID

import psycopg

from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.errors import LeaseLost
from fairlead.zones.external.steps import EffectsRefused, StoreStep
from fairlead.zones.postgresql.connections import CONFLICTS, ENDING, TRIES_MAX, Call, Connections
from fairlead.zones.workflow.participants import AskAgain, RunEnded
from fairlead.zones.workflow.run_records import ParticipantState, StepEntry, encode, read_entry
from fairlead.zones.workflow.step_log import StepName

PAGE_ROWS = 1_000  # Of up to 64,000 bytes each.
CLEARED_MAX = 10_000  # Tombstones that one transaction clears.

_ASK = "SELECT fairlead.epoch(), f.floor FROM fairlead.floor f"
_BEGIN = (
    "SELECT answer, entry, place::text FROM fairlead.begin_step("
    "%b, %b::bigint, %b::bigint, %b::bigint, %b::int, %b, %b::int)"
)
_END = "SELECT fairlead.end_step(%b::text::tid, %b, %b::int, %b)"
_RAISE_FENCE = "SELECT fairlead.raise_fence(%b, %b::bigint, %b::bigint, %b::bigint)"
_STEPS = "SELECT name, occurrence, entry FROM fairlead.steps_behind(%b, %b::int, %b, %b::int, %b::int)"
_CLEAN_UP = "SELECT fairlead.clean_up_run(%b)"
_RAISE_FLOOR = "SELECT fairlead.raise_floor(%b::int)"


class _Repeat(Exception):
    """The transaction of a step is to be repeated: it conflicts, or nobody knows whether it was committed."""


class _Stage(Enum):
    """How far the transaction of a step has come."""

    BEGIN = "locks and compares"
    BODY = "the body of the step"
    END = "the entry and the commit, which may have been made"


class StepStore:
    """The steps in one database. See `StepsInStore`.

    Args:
      connections: at READ COMMITTED, for all but steps.
      transactions: those in which the bodies of steps run, for as long as they like.
    """

    def __init__(self, connections: Connections, transactions: Connections) -> None:
        self._connections = connections
        self._transactions = transactions

    def ask(self) -> ParticipantState:
        """See `StepsInStore`."""
        with self._connections.call() as call:
            return ParticipantState(*call.execute(_ASK).fetchone())

    def run_step(self, step: StoreStep, body: Callable[[Any], StepEntry]) -> StepEntry:
        """See `StepsInStore`."""
        for _ in range(TRIES_MAX):
            try:
                return self._run_once(step, body)
            except _Repeat as repeat:
                last = repeat
        raise StoreUnavailable(
            "the transaction of a step conflicts again and again", remedy="Try again.", run=step.run.hex()
        ) from last

    def _run_once(self, step: StoreStep, body: Callable[[Any], StepEntry]) -> StepEntry:
        stage = _Stage.BEGIN
        with self._transactions.lend() as connection:
            call = Call(connection, is_committing=True)
            try:
                with connection.transaction():
                    found = _begin(call, step)
                    if isinstance(found, StepEntry):
                        return found
                    stage = _Stage.BODY
                    entry = body(connection)
                    stage = _Stage.END
                    call.execute(_END, found, UUID(bytes=step.run), step.segment, encode(entry))
                return entry
            except psycopg.Error as error:
                self._raise(error, connection, stage)

    def _raise(self, error: psycopg.Error, connection: Any, stage: _Stage) -> NoReturn:
        """Raise what an error of a transaction means for its step."""
        if self.is_own(error, connection):
            if stage is _Stage.END or isinstance(error, CONFLICTS):
                raise _Repeat from error
            raise self._transactions.broken(error) from error
        if stage is _Stage.BEGIN:
            raise self._transactions.refused(error) from error
        if stage is _Stage.BODY:
            raise error
        raise EffectsRefused(error) from error

    def is_own(self, error: Exception, connection: Any) -> bool:
        """See `StepsInStore`."""
        if not isinstance(error, psycopg.Error):
            return False
        return isinstance(error, CONFLICTS) or connection.closed or (error.sqlstate or "").startswith(ENDING)

    def raise_fence(self, run: bytes, lease_number: int, place: ParticipantState) -> bool:
        """See `StepsInStore`."""
        with self._connections.call(is_committing=True) as call:
            row = call.execute(_RAISE_FENCE, UUID(bytes=run), lease_number, place.epoch, place.floor).fetchone()
        answer: str = row[0]
        _check_fence(answer, run)
        return answer == "raised"

    def entries(self, run: bytes, segment: int) -> Mapping[StepName, StepEntry]:
        """See `StepsInStore`. Reads 1,000 entries in each statement."""
        found: dict[StepName, StepEntry] = {}
        last = StepName("", -1)
        while True:
            with self._connections.call() as call:
                rows = call.execute(_STEPS, UUID(bytes=run), segment, *last, PAGE_ROWS).fetchall()
            for name, occurrence, packed in rows:
                last = StepName(name, occurrence)
                found[last] = _read(run, last, packed)
            if len(rows) < PAGE_ROWS:
                return found

    def clean_up(self, run: bytes) -> None:
        """See `StepsInStore`."""
        with self._connections.call(is_committing=True) as call:
            call.execute(_CLEAN_UP, UUID(bytes=run))

    def raise_floor(self) -> None:
        """See `StepsInStore`. Clears 10,000 tombstones in each transaction."""
        is_left = True
        while is_left:
            with self._connections.call(is_committing=True) as call:
                (is_left,) = call.execute(_RAISE_FLOOR, CLEARED_MAX).fetchone()


def _begin(call: Call, step: StoreStep) -> StepEntry | str:
    """Lock and compare; return the entry of a step that has been done, or the place where its entry goes.

    Raises:
      AskAgain, LeaseLost, RunEnded, RunUnreadable: see `StepsInStore.run_step`.
    """
    run = UUID(bytes=step.run)
    arguments = (run, step.lease_number, step.place.epoch, step.place.floor, step.segment, *step.step)
    answer, entry, place = call.execute(_BEGIN, *arguments).fetchone()
    _check_fence(answer, step.run)
    if answer == "ask":
        raise AskAgain
    return place if answer == "run" else _read(step.run, step.step, entry)


def _check_fence(answer: str, run: bytes) -> None:
    if answer == "ended":
        raise RunEnded(run=run.hex())
    if answer == "lost":
        raise LeaseLost(run=run.hex())


def _read(run: bytes, step: StepName, packed: bytes) -> StepEntry:
    """Return a stored entry. An empty one is that of a body which has ended its transaction itself."""
    entry = read_entry(f"fairlead.steps {run.hex()} {step.name} {step.occurrence}".encode(), packed)
    assert entry is not None
    return entry
