"""Steps whose effects are in an external store, such as PostgreSQL: one SQL transaction for the effects and the entry.

The store is a participant of the run: see `fairlead.zones.external.steps`, and `step_commits.do_at_participant`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fairlead.workflows.execution import Body, Execution
from fairlead.workflows.interrupts import BodyFailed
from fairlead.workflows.requests import Steps
from fairlead.workflows.step_call import StepCall
from fairlead.workflows.step_commits import do_at_participant, interrupt_of, packed_result
from fairlead.zones.errors import LeaseLost
from fairlead.zones.external.names import participant_of
from fairlead.zones.external.steps import EffectsRefused, StepsInStore, StoreStep
from fairlead.zones.workflow.run_records import ParticipantState, StepEntry, StoredError


def do_in_store(execution: Execution, call: StepCall, store: str, body: Body, args: Sequence[Any]) -> Steps[StepEntry]:
    """Do a step once: its effects in a store, and its entry, in one commit.

    Raises:
      BodyFailed: the body has failed, or the store does not commit what it has done.
      WorkflowInterrupt: the application names no such store, or the lease is lost.
    """
    steps = execution.steps_in(store)

    def work(connection: Any) -> StepEntry:
        function = partial(body, connection, *args)
        is_stores = partial(steps.is_own, connection=connection)
        packed = packed_result(execution, call, function, is_stores, first="the connection")
        return call.done(packed, call.ended_us)

    entry: StepEntry = yield from _do(execution, call, store, steps, work)
    return entry


def record_failure_in_store(execution: Execution, call: StepCall, store: str, error: StoredError) -> Steps[StepEntry]:
    """Record an error as the answer of a step: in the store, where the entry of the step belongs."""

    def work(connection: Any) -> StepEntry:
        return call.failed(error, execution.clock_us())

    entry: StepEntry = yield from _do(execution, call, store, execution.steps_in(store), work)
    return entry


def _do(
    execution: Execution, call: StepCall, store: str, steps: StepsInStore, work: Callable[[Any], StepEntry]
) -> Steps[StepEntry]:
    def do(place: ParticipantState) -> StepEntry:
        log, number = execution.log, execution.held.record.lease_number
        try:
            return steps.run_step(StoreStep(log.run, number, log.segment, call.step, place), work)
        except LeaseLost as lost:
            raise interrupt_of(execution, lost, store) from None
        except EffectsRefused as refused:
            raise BodyFailed(refused.error) from refused

    entry: StepEntry = yield from do_at_participant(execution, call, participant_of(store), steps.ask, do)
    return entry
