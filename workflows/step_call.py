"""A call of `wf` that is a step, and the entries that it may get."""

from dataclasses import dataclass

from fairlead.zones.workflow.run_records import StepEntry, StepKind, StepState, StoredError
from fairlead.zones.workflow.step_log import StepName


@dataclass(slots=True)
class StepCall:
    """A call of `wf` that is a step. `entry`: what is recorded of it."""

    step: StepName
    kind: StepKind
    digest: bytes
    ordinal: int
    entry: StepEntry | None

    @property
    def has_answer(self) -> bool:
        """Whether its result or its error is known."""
        return self.entry is not None and self.entry.state in (StepState.DONE, StepState.FAILED)

    def done(self, result: bytes, at_us: int) -> StepEntry:
        """Return its entry with a packed result."""
        return StepEntry(self.ordinal, self.kind, self.digest, StepState.DONE, at_us, result)

    def failed(self, error: StoredError, at_us: int) -> StepEntry:
        """Return its entry with an error."""
        return StepEntry(self.ordinal, self.kind, self.digest, StepState.FAILED, at_us, error=error)

    def begun(self, at_us: int) -> StepEntry:
        """Return its entry before an effect that is called once."""
        return StepEntry(self.ordinal, self.kind, self.digest, StepState.BEGUN, at_us)

    def waiting(self, until_us: int, at_us: int, *, tries: int = 0) -> StepEntry:
        """Return its entry while the run is suspended."""
        return StepEntry(self.ordinal, self.kind, self.digest, StepState.WAITING, at_us, until_us=until_us, tries=tries)
