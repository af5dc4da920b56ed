"""One try at a step, as telemetry sees it."""

from types import TracebackType

from fairlead.actors.telemetry.step_counts import StepCounts, StepOutcome
from fairlead.zones.engines import Clock
from fairlead.zones.workflow.run_records import StepState

_OUTCOMES = {StepState.DONE: StepOutcome.DONE, StepState.FAILED: StepOutcome.FAILED}


class StepTry:
    """A `with` block around one try at a step, its commit included: counts how it ended, and how long it took.

    Attributes:
      state: of the step's entry, once it has one. Without an answer, the step is tried again if the run goes on.
    """

    __slots__ = ("_began_us", "_clock", "_counts", "_kind", "state")

    def __init__(self, counts: StepCounts, kind: str, clock: Clock) -> None:
        self.state: StepState | None = None
        self._counts = counts
        self._kind = kind
        self._clock = clock

    def __enter__(self) -> "StepTry":
        self._began_us = self._clock.now_us()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        outcome = StepOutcome.RETRIED if self.state is None else _OUTCOMES.get(self.state, StepOutcome.RETRIED)
        self._counts.add_try(self._kind, outcome, self._clock.now_us() - self._began_us)
