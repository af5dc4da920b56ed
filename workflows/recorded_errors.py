"""Errors of steps as they are recorded, and as they are raised: the same in the first attempt and in every replay.

The workflow's code may catch an error and go another way. So it only gets errors that are recorded, and it gets them
rebuilt from what is recorded, in the attempt that recorded them, too.
"""

from collections.abc import Iterable
from typing import Any

from fairlead.actors.handlers import PermanentError
from fairlead.zones.errors import PayloadNotData, PayloadTooLarge, QueueError
from fairlead.zones.queue.items import pack_payload, unpack_payload
from fairlead.zones.queue.stored_item import shortened
from fairlead.zones.workflow.run_records import StoredError

IN_STEP = "in the step "  # Begins the note of an error that says in which step it was raised.
ARGUMENT_BYTES_MAX = 8_000  # Longer arguments of an error are not kept; its message is.


class StepFailed(PermanentError):
    """A step failed for good: its own retries are used up, or the class of its error cannot be rebuilt.

    Do: catch it, if the workflow can go another way; otherwise the run is undone. `fairlead steps ITEM` shows the step.

    Attributes:
      step: the name of the step.
      error_type, error: the class of the step's error, and its message.
    """

    def __init__(self, step: str, error_type: str, error: str) -> None:
        super().__init__(step, error_type, error)
        self.step = step
        self.error_type = error_type
        self.error = error

    def __str__(self) -> str:
        return f"step {self.step!r} failed: {self.error_type}: {self.error}"


def stored_error(error: BaseException) -> StoredError:
    """Return an error as it is recorded. Its arguments, a `QueueError`'s fields, are kept if they are plain data."""
    made_with: Any = error.fields if isinstance(error, QueueError) else list(error.args)
    try:
        arguments: bytes | None = pack_payload(made_with)
    except (PayloadNotData, PayloadTooLarge):
        arguments = None
    if arguments is not None and len(arguments) > ARGUMENT_BYTES_MAX:
        arguments = None
    return StoredError(type_name(type(error)), shortened(str(error)), arguments)


def shown_error(error: BaseException) -> StoredError:
    """Return an error as it is recorded of a try that is no answer: for people, and never raised again."""
    return StoredError(type_name(type(error)), shortened(str(error)))


def rebuilt(step: str, stored: StoredError, permanent: Iterable[type[BaseException]]) -> BaseException:
    """Return a recorded error as the workflow's code gets it.

    It is of its own class if that is one of the kind's `permanent` classes and can be made of the recorded arguments;
    otherwise it is a `StepFailed`.
    """
    kind = next((each for each in permanent if type_name(each) == stored.type_name), None)
    if kind is not None and stored.arguments is not None:
        arguments = unpack_payload(stored.arguments)
        try:
            return kind(**arguments) if isinstance(arguments, dict) else kind(*arguments)
        except TypeError:  # Its __init__ takes other arguments than it passes on.
            pass
    return StepFailed(step, stored.type_name.rpartition(".")[2], stored.message)


def note_step(error: BaseException, step: str) -> None:
    """Note in an error that ends an attempt in which step it was raised, for logs and `fairlead why`."""
    if f"{IN_STEP}{step}" not in getattr(error, "__notes__", ()):
        error.add_note(f"{IN_STEP}{step}")


def step_in(text: str) -> tuple[str, str | None]:
    """Return the text of an error without the note of `note_step`, and the step that the note names."""
    before, newline, last = text.rpartition("\n")
    if newline and last.startswith(IN_STEP):
        return before, last.removeprefix(IN_STEP)
    return text, None


def type_name(kind: type[BaseException]) -> str:
    """Return the name under which the class of an error is recorded."""
    return f"{kind.__module__}.{kind.__qualname__}"
