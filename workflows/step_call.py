"""A call of `wf` that is a step, and the entries that it may get."""

from dataclasses import dataclass

from fairlead.zones.workflow.run_records import StepEntry, StepKind, StepState, StoredError
from fairlead.zones.workflow.step_log import StepName


@dataclass(slots=True)
class StepCall:
    """A call of `wf` that is a step.

    Attributes:
      entry: what is recorded of it.
      began_us: when it was called first, if it is not answered.
      ended_us: when its body has ended; 0: it has not, or has none.
      tries: failed ones so far, of a step with a retry policy of its own.
      last_error: of the last of these tries in this attempt.
    """

    step: StepName
    kind: StepKind
    digest: bytes
    ordinal: int
    entry: StepEntry | None
    began_us: int
    ended_us: int = 0
    tries: int = 0
    last_error: StoredError | None = None

    @property
    def has_answer(self) -> bool:
        """Whether its result or its error is known."""
        return self.entry is not None and self.entry.state in (StepState.DONE, StepState.FAILED)

    def done(self, result: bytes, at_us: int) -> StepEntry:
        """Return its entry with a packed result."""
        return self._entry(StepState.DONE, at_us, result)

    def failed(self, error: StoredError, at_us: int) -> StepEntry:
        """Return its entry with an error."""
        return self._entry(StepState.FAILED, at_us, error=error)

    def begun(self, at_us: int) -> StepEntry:
        """Return its entry before an effect that is called once."""
        return self._entry(StepState.BEGUN, at_us)

    def waiting(self, until_us: int, at_us: int) -> StepEntry:
        """Return its entry while the run is suspended, with the error after which it is tried again."""
        return self._entry(StepState.WAITING, at_us, error=self.last_error, until_us=until_us)

    def _entry(
        self,
        state: StepState,
        at_us: int,
        result: bytes = b"",
        *,
        error: StoredError | None = None,
        until_us: int | None = None,
    ) -> StepEntry:
        took_us = max(0, at_us - self.began_us)
        return StepEntry(
            self.ordinal, self.kind, self.digest, state, at_us, result, error, until_us, self.tries, took_us
        )
