"""What ends an attempt from inside a call of `wf`, and must not be caught by the workflow's code.

`WorkflowInterrupt` is a `BaseException`, so that no `except Exception` of the workflow swallows it. Its cause says what
becomes of the attempt. If the code catches it all the same, each further call of `wf` raises it again, and what the
function returns does not count.
"""

from dataclasses import dataclass
from enum import Enum


class Cause(Enum):
    """Why an attempt ends in a call of `wf`, where it is not an error."""

    SUSPENDED = "the item waits in its queue"
    FINISHED = "`wf.finish` has completed the item"
    CANCELLED = "the cancellation of the item was requested"
    LOST = "another attempt holds the item, or it is gone"
    END_OF_LOG = "the replay has come to where the run stood, and does not go on"
    REPLAY = "a test replays the run from its beginning"


@dataclass(frozen=True)
class Failed:
    """The attempt failed with `error`: of a step, or of the store."""

    error: Exception


class WorkflowInterrupt(BaseException):
    """Ends the workflow's function. `cause`: see `Cause` and `Failed`."""

    def __init__(self, cause: Cause | Failed) -> None:
        super().__init__(cause)
        self.cause = cause


class BodyFailed(Exception):
    """The body of a step, or the function of an effect, has raised `error`."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error
