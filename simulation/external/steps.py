"""A model of the steps of workflows in an external store: what `zones.postgresql.step_store` promises, and no more.

Each transaction is one moment. That real ones come to the same is shown where their statements are interleaved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fairlead.zones.errors import LeaseLost
from fairlead.zones.external.steps import StoreStep
from fairlead.zones.workflow.participants import AskAgain, RunEnded
from fairlead.zones.workflow.run_records import END, ParticipantState, StepEntry
from fairlead.zones.workflow.step_log import StepName


class ExternalSteps:
    """See `StepsInStore`. The connection that bodies get is this object.

    Attributes:
      entries_of: by run and segment.
      fences: by run.
      tombstones: by run, the FLOOR under which each was written.
      effects: what bodies leave here.
    """

    def __init__(self) -> None:
        self.entries_of: dict[tuple[bytes, int], dict[StepName, StepEntry]] = {}
        self.fences: dict[bytes, int] = {}
        self.tombstones: dict[bytes, int] = {}
        self.effects: list[Any] = []
        self._floor = 0

    def ask(self) -> ParticipantState:
        """See `StepsInStore`. The store has one history."""
        return ParticipantState(0, self._floor)

    def run_step(self, step: StoreStep, body: Callable[[Any], StepEntry]) -> StepEntry:
        """See `StepsInStore`. What a body that fails has added to `effects` goes."""
        if step.place != self.ask():
            raise AskAgain
        self._check_fence(step.run, step.lease_number)
        entries = self.entries_of.setdefault((step.run, step.segment), {})
        found = entries.get(step.step)
        if found is not None:
            return found
        before = len(self.effects)
        is_done = False
        try:
            entries[step.step] = body(self)
            is_done = True
        finally:
            if not is_done:
                del self.effects[before:]
        for run, segment in list(self.entries_of):
            if run == step.run and segment < step.segment:
                del self.entries_of[run, segment]
        return entries[step.step]

    def is_own(self, error: Exception, connection: Any) -> bool:
        """See `StepsInStore`. Nothing breaks here."""
        return False

    def raise_fence(self, run: bytes, lease_number: int, place: ParticipantState) -> bool:
        """See `StepsInStore`."""
        self._check_fence(run, lease_number)
        if run not in self.fences and place != self.ask():
            return False
        self.fences[run] = lease_number
        return True

    def entries(self, run: bytes, segment: int) -> Mapping[StepName, StepEntry]:
        """See `StepsInStore`."""
        return self.entries_of.get((run, segment), {})

    def clean_up(self, run: bytes) -> None:
        """See `StepsInStore`."""
        for key in [key for key in self.entries_of if key[0] == run]:
            del self.entries_of[key]
        self.fences[run] = END
        self.tombstones.setdefault(run, self._floor)

    def raise_floor(self) -> None:
        """See `StepsInStore`."""
        for run in self.tombstones:
            del self.fences[run]
        self._floor += bool(self.tombstones)
        self.tombstones.clear()

    def _check_fence(self, run: bytes, lease_number: int) -> None:
        number = self.fences.get(run, 0)
        if number == END:
            raise RunEnded(run=run.hex())
        if number > lease_number:
            raise LeaseLost(run=run.hex())
