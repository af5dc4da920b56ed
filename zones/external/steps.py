"""Steps of workflows whose effects are in an external store: what is asked of the store (Olive section 3.2, DAAL).

The store is a participant of the run, as a tenant on another shard is: entry, fence and FLOOR lie in the store, and
mean what `zones.workflow.participants` says. A run has one participant for each store, whose rows are found by the run.
So the home's tenant may move: its log moves, and the rows stay. `names` says how the home of a run calls a store.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from fairlead.zones.errors import QueueError
from fairlead.zones.workflow.run_records import ParticipantState, StepEntry
from fairlead.zones.workflow.step_log import StepName


class StoreStep(NamedTuple):
    """A step that acts in a store. `place`: as the home of the run has recorded it."""

    run: bytes
    lease_number: int
    segment: int
    step: StepName
    place: ParticipantState


class EffectsRefused(Exception):
    """The store did not commit what the body of a step has done. `error`: what the store said."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class NoSuchStore(QueueError):
    """A workflow has steps in an external store that this application does not name.

    Do: name it in the configuration, `[external]`, or in `App(external=...)`, for all processes that run workflows. A
    store is left out once no workflow that has used it is left: `fairlead steps` shows what one has used.
    """

    message = "the application names no such external store"


class StepsInStore(Protocol):
    """The steps that workflows do in one external store.

    Every method raises `StoreUnavailable` if the store does not answer or refuses.
    """

    def ask(self) -> ParticipantState:
        """Return the epoch of the store and its FLOOR, which are of one moment."""
        ...

    def run_step(self, step: StoreStep, body: Callable[[Any], StepEntry]) -> StepEntry:
        """Do a step and record it in one transaction; return its entry, or the one that is there already.

        `body` gets the store's connection, and returns the entry. It may run several times until its transaction
        commits. A second executor of the step waits for the end of the first one, and gets its entry. If the result of
        a commit is unknown, the step is begun again: it waits for that commit, too.

        Raises:
          AskAgain: the epoch, or FLOOR, is not that of `step.place`.
          LeaseLost: a later attempt has raised the fence.
          RunEnded: the run has ended.
          RunUnreadable: there is an entry, which cannot be read.
          EffectsRefused: see there; nothing has happened.
          What `body` raises; nothing has happened. What `is_own` tells is the store's, and the store deals with it.
        """
        ...

    def is_own(self, error: Exception, connection: Any) -> bool:
        """Say whether an error that `body` raises is no failure of it: the connection broke, or others conflict."""
        ...

    def raise_fence(self, run: bytes, lease_number: int, place: ParticipantState) -> bool:
        """Let no attempt with a lower lease number act in the store any more. Waits for steps that are under way.

        Returns False, and writes nothing: there was no fence, and epoch or FLOOR is not that of `place`. See
        `participants.raise_fence_op`.

        Raises:
          LeaseLost: a later attempt has raised it.
          RunEnded: the run has ended.
        """
        ...

    def entries(self, run: bytes, segment: int) -> Mapping[StepName, StepEntry]:
        """Return the entries of a segment of a run.

        Raises:
          RunUnreadable: one is damaged, or a newer version wrote it.
        """
        ...

    def clean_up(self, run: bytes) -> None:
        """Clear what a run that has ended keeps, and leave a tombstone. May run twice."""
        ...

    def raise_floor(self) -> None:
        """Raise FLOOR if there are tombstones, and clear those that were written before."""
        ...
