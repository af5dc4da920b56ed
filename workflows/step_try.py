"""One try at a step, as telemetry sees it."""

from types import TracebackType

from opentelemetry import context, trace

from fairlead.actors.messages import ItemRef
from fairlead.actors.telemetry.spans import Spans, end_step
from fairlead.actors.telemetry.step_counts import StepCounts, StepOutcome
from fairlead.workflows.interrupts import BodyFailed, Failed, WorkflowInterrupt
from fairlead.workflows.step_call import StepCall
from fairlead.zones.engines import Clock
from fairlead.zones.layout import Tenant
from fairlead.zones.workflow.run_records import StepState

_OUTCOMES = {StepState.DONE: StepOutcome.DONE, StepState.FAILED: StepOutcome.FAILED}


class StepTry:
    """A `with` block around one try at a step, its commit included: counts how it ended, and how long it took.

    If the attempt's span is recorded, the try has a span too, which is current meanwhile. So items that the step
    enqueues, and calls that an effect makes, continue the trace from the step.

    Attributes:
      state: of the step's entry, once it has one. Without an answer, the step is tried again if the run goes on.
      error: of the step; otherwise what the block raises.
    """

    __slots__ = ("_began_us", "_clock", "_counts", "_kind", "_span", "_token", "error", "state")

    def __init__(
        self, counts: StepCounts, spans: Spans | None, ref: ItemRef, call: StepCall, tenant: Tenant, clock: Clock
    ) -> None:
        self.state: StepState | None = None
        self.error: BaseException | None = None
        self._counts = counts
        self._kind = ref.kind
        self._clock = clock
        self._span = None if spans is None else spans.step(ref, *call.step, call.kind.name.lower(), tenant)

    def __enter__(self) -> "StepTry":
        self._began_us = self._clock.now_us()
        if self._span is not None:
            self._token = context.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        outcome = StepOutcome.RETRIED if self.state is None else _OUTCOMES.get(self.state, StepOutcome.RETRIED)
        self._counts.add_try(self._kind, outcome, self._clock.now_us() - self._began_us)
        if self._span is not None:
            context.detach(self._token)
            end_step(self._span, outcome, self.error or _cause_of(error))


def _cause_of(error: BaseException | None) -> BaseException | None:
    """Return the error of the step's body or of the store; None: something else has interrupted the step."""
    if isinstance(error, BodyFailed):
        return error.error
    if isinstance(error, WorkflowInterrupt):
        return error.cause.error if isinstance(error.cause, Failed) else None
    return error
