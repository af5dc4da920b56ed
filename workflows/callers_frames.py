"""The traceback of an attempt's error: where the workflow's own code stood, also for an error that Fairlead has found.

An error of a step's body has the frames of the body. An error of Fairlead's own, such as `StepsDiffer`, has none of the
user's: the interrupt that carried it out of the function has passed them.
"""

from types import TracebackType

from fairlead.actors.execution.failed_attempt import handlers_part
from fairlead.workflows.interrupts import WorkflowInterrupt


def with_callers_frames(error: Exception, interrupt: WorkflowInterrupt) -> Exception:
    """Return an error, with the frames that called `wf` before its own, unless it has frames of the user's code."""
    if handlers_part(error.__traceback__) is not None:
        return error
    entries = _entries(handlers_part(interrupt.__traceback__))
    while entries and handlers_part(entries[-1]) is None:  # How Fairlead came to interrupt the call.
        entries.pop()
    found = error.__traceback__
    for entry in reversed(entries):
        found = TracebackType(found, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return error.with_traceback(found)


def _entries(traceback: TracebackType | None) -> list[TracebackType]:
    entries = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    return entries
