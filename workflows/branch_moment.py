"""The time and the random numbers of a branch: functions of the answers that it has got, so the same in every replay.

They are kept per branch of an async workflow, because in which order the answers of several branches come differs from
replay to replay. A plain function has one branch.
"""

from contextvars import ContextVar
from random import Random
from typing import NamedTuple

from fairlead.workflows.step_identity import id_of
from fairlead.zones.workflow.step_log import StepName


class _Position(NamedTuple):
    """How far a branch is: the step whose answer it got last, or that the code had which began the branch.

    `replay`: stands for the replay; `now_us`: the latest time among the answers.
    """

    replay: object
    step: StepName | None
    now_us: int


_position: ContextVar[_Position | None] = ContextVar("fairlead_position", default=None)


class BranchMoment:
    """How far each branch of one replay is. The methods are those of the branch that calls.

    `begun_us`: the time at the beginning of the replay.
    """

    def __init__(self, run: bytes, segment: int, *, begun_us: int) -> None:
        self._run = run
        self._segment = segment
        self._beginning = _Position(object(), None, begun_us)
        self._randoms: dict[StepName | None, Random] = {}

    @property
    def now_us(self) -> int:
        """The latest time among the answers that this branch has got."""
        return self._here.now_us

    @property
    def random(self) -> Random:
        """The random numbers from the last answer of this branch on."""
        step = self._here.step
        if step not in self._randoms:
            run, segment = self._run, self._segment
            self._randoms[step] = Random(
                run + segment.to_bytes(8, "big") if step is None else id_of(run, segment, step)
            )
        return self._randoms[step]

    def note_answer(self, step: StepName, at_us: int) -> None:
        """Note that this branch has got the answer of a step. `at_us`: its time."""
        here = self._here
        _position.set(_Position(here.replay, step, max(here.now_us, at_us)))

    @property
    def _here(self) -> _Position:
        found = _position.get()
        return found if found is not None and found.replay is self._beginning.replay else self._beginning
