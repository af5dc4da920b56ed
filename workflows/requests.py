"""What a call of `wf` asks for while it is carried out, and how a synchronous workflow gets it.

The steps of a workflow are written once, for both kinds of workflows, as generators. A generator yields what takes time
or needs the outside, and gets the answer back: a synchronous workflow does it at once, on its own thread
(`run_inline`); an asynchronous one lets its other branches go on meanwhile (`asynchronous`).
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeVar

from fairlead.zones.workflow.run_records import StepEntry
from fairlead.zones.workflow.step_log import StepName
from fairlead.zones.workflow.suspension import Awaited

T = TypeVar("T")


class Store(NamedTuple):
    """Call a function that waits for a store, and does not commit at home."""

    call: Callable[[], Any]


class Home(NamedTuple):
    """Call a function that commits at home: one at a time."""

    call: Callable[[], Any]


class Outside(NamedTuple):
    """Call the function of an effect. `is_async`: it returns a coroutine, which is awaited."""

    call: Callable[[], Any]
    is_async: bool


class Pause(NamedTuple):
    """Let time pass before the next try of a step."""

    duration_us: int


class Stand(NamedTuple):
    """Wait until all branches of the workflow stand, while the replay is behind: the next step is new."""


class RunFunction(NamedTuple):
    """Run the workflow's function from its beginning. The answer is what it has raised; None: it has returned."""


class WaitFor(NamedTuple):
    """Suspend the run until something arrives, or a time comes. The answer is what has arrived meanwhile, never empty.

    `waiting`: entries that are recorded with the suspension.
    """

    awaited: Sequence[Awaited]
    until_us: int
    waiting: Sequence[tuple[StepName, StepEntry]]


Request = Store | Home | Outside | Pause | Stand | WaitFor | RunFunction
Steps = Generator[Request, Any, T]


def run_inline(steps: Steps[T], answer: Callable[[Request], Any]) -> T:
    """Run a generator to its end, and return its result. `answer` does what it asks for."""
    try:
        request = next(steps)
        while True:
            try:
                value = answer(request)
            except BaseException as error:  # noqa: BLE001 - the generator gets it where it has asked
                request = steps.throw(error)
            else:
                request = steps.send(value)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
