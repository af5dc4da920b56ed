"""Replay: which step of a run a call of the workflow's code is, and what is recorded of it. Pure decisions.

A step is identified by its name and occurrence, and not by its position: a step that is added between two others does
not shift those behind it. What the code does must still be the same in every attempt. If it is not, `StepsDiffer` shows
both lists side by side.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest

from fairlead.actors.handlers import UnfitCode
from fairlead.zones.workflow.run_records import StepEntry, StepKind
from fairlead.zones.workflow.step_log import StepName

NAME_CHARACTERS = 40  # Of a step's name in the table.
NAMED_MAX = 5  # Steps in a sentence.
LISTED_MAX = 20  # Steps around the first difference that the error shows.


class StepsDiffer(UnfitCode):
    """The workflow's code did other steps than those that are recorded of this run. The item becomes a dead letter.

    Do: compare the two lists. If the code was changed, deploy it with a higher `version`, and branch on `wf.version`;
    then retry the dead letter. If it was not, look for what differs from run to run: use `wf.now`, `wf.random`,
    `wf.uuid`, and read the database in `wf.read`.
    """

    message = "the workflow's steps differ from those that are recorded"

    def __str__(self) -> str:
        return "\n".join([f"{self.message}: {self.fields.get('first_difference')}", *side_by_side(self)])


class ConcurrentSteps(UnfitCode):
    """Two steps of one name run at once in an asynchronous workflow: their order would differ from run to run.

    Do: give each of them a name of its own, `wf.step(..., name="reserve 7")`.
    """

    message = "two steps of one name run at once: give each a name of its own by name="


class CheckpointBesideSteps(UnfitCode):
    """An asynchronous workflow called `wf.checkpoint` while a branch of it was inside the steps that the error names.

    A checkpoint forgets all steps so far, and the next attempt begins the function anew. It cannot know how far the
    branch was.

    Do: await all branches before `wf.checkpoint`, for example by `asyncio.TaskGroup`.
    """

    message = "a checkpoint is called while other branches do steps"


@dataclass(slots=True)
class Replay:
    """One attempt's way along the recorded steps of its run.

    Attributes:
      recorded: by name and occurrence.
      may_differ: the code is newer than the code that began the run, so it may do steps that are not recorded.
    """

    recorded: Mapping[StepName, StepEntry]
    may_differ: bool = False
    done: list[StepName] = field(default_factory=list)
    _unreached: dict[StepName, None] = field(init=False)
    _occurrences: dict[str, int] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._unreached = {step: None for step, entry in self.recorded.items() if entry.kind is not StepKind.UNDO}

    def begin(self, name: str, digest: bytes) -> tuple[StepName, StepEntry | None]:
        """Return which step a call is, and its entry; None: it is not recorded.

        Raises:
          ConcurrentSteps: a step of this name has begun and not ended.
          StepsDiffer: the recorded step has another kind, or other arguments.
        """
        if name in self._open:
            raise ConcurrentSteps(step=name)
        occurrence = self._occurrences.get(name, 0)
        self._occurrences[name] = occurrence + 1
        step = StepName(name, occurrence)
        self.done.append(step)
        self._unreached.pop(step, None)
        entry = self.recorded.get(step)
        if entry is not None and entry.digest != digest:
            reason = f"{shown(step)} has other arguments, or is of another kind"
            raise self._difference(reason, differs_at=len(self.done) - 1)
        self._open.add(name)
        return step, entry

    def end(self, step: StepName) -> None:
        """Note that a step has ended."""
        self._open.discard(step.name)

    def check_alone(self) -> None:
        """Refuse a checkpoint while a step has begun and not ended, in another branch of an async workflow.

        Raises:
          CheckpointBesideSteps: see there.
        """
        if self._open:
            raise CheckpointBesideSteps(steps=sorted(self._open)[:LISTED_MAX])

    def check_new(self, step: StepName) -> None:
        """Refuse a new step while recorded ones have not been reached. In an async workflow: once all branches stand.

        Raises:
          StepsDiffer: see there.
        """
        if self._unreached and not self.may_differ:
            raise self._difference(f"{shown(step)} is new, and {self._names_not_reached()} not reached")

    def check_end(self) -> None:
        """Refuse an end of the function while recorded steps have not been reached.

        Raises:
          StepsDiffer: see there.
        """
        if self._unreached and not self.may_differ:
            raise self.not_reached_by("has ended")

    def not_reached_by(self, how: str) -> StepsDiffer:
        """Return the error for recorded steps that were not reached. `how`: what the workflow has done instead."""
        return self._difference(f"the workflow {how}, and {self._names_not_reached()} not reached")

    @property
    def is_behind(self) -> bool:
        """Whether a step is recorded that the code has not reached."""
        return bool(self._unreached)

    def not_reached(self) -> list[StepName]:
        """Return the recorded steps that the code has not reached, in the order in which they were done."""
        return self._in_order(self._unreached)

    def _names_not_reached(self) -> str:
        """Return the first recorded steps that the code has not reached, and `was` or `were`."""
        names = [shown(step) for step in self.not_reached()]
        more = f" and {len(names) - NAMED_MAX:,} more" if len(names) > NAMED_MAX else ""
        return f"{', '.join(names[:NAMED_MAX])}{more} {'was' if len(names) == 1 else 'were'}"

    def _in_order(self, steps: Iterable[StepName]) -> list[StepName]:
        return sorted(steps, key=lambda step: self.recorded[step].ordinal)

    def _difference(self, first: str, *, differs_at: int | None = None) -> StepsDiffer:
        """Return the error. `differs_at`: which call differs; None: the first of another name than the recorded one."""
        recorded = [shown(step) for step in self._in_order(self.recorded)]
        done = [shown(step) for step in self.done]
        same = next(
            (at for at, pair in enumerate(zip(recorded, done, strict=False)) if pair[0] != pair[1]), len(done) - 1
        )
        begin = max(0, (same if differs_at is None else differs_at) - LISTED_MAX // 2)
        return StepsDiffer(
            first_difference=first,
            recorded=recorded[begin : begin + LISTED_MAX],
            now=done[begin : begin + LISTED_MAX],
            not_reached=[shown(step) for step in self.not_reached()[:LISTED_MAX]],
            steps_before=begin,
            **({} if differs_at is None else {"differs_at": differs_at - begin}),
        )


def side_by_side(error: StepsDiffer) -> list[str]:
    """Return the two lists of steps beside each other, line by line; `>` marks the first that differs."""
    recorded, now = (_names(error.fields.get(name)) for name in ("recorded", "now"))
    before = error.fields.get("steps_before")
    pairs = [("recorded", "this code"), *zip_longest(recorded, now, fillvalue="")]
    width = max(len(left) for left, _ in pairs)
    differs_at = error.fields.get("differs_at")
    first = next((at for at, (left, right) in enumerate(pairs) if at and left != right), 0)
    if isinstance(differs_at, int):
        first = differs_at + 1  # The names may be the same there.
    lines = [
        f"{'>' if at and at == first else ' '} {left:{width}}  {right}".rstrip()
        for at, (left, right) in enumerate(pairs)
    ]
    return [*lines[:1], *([f"  ({before} steps before these are the same)"] if before else []), *lines[1:]]


def _names(steps: object) -> list[str]:
    """Return names of steps for a table, cut to `NAME_CHARACTERS`."""
    names = steps if isinstance(steps, list) else []
    return [name if len(name) <= NAME_CHARACTERS else f"{name[: NAME_CHARACTERS - 3]}..." for name in map(str, names)]


def shown(step: StepName) -> str:
    """Return a step as people read it: its name, and from the second time on for the how manieth time."""
    return step.name if step.occurrence == 0 else f"{step.name} ({step.occurrence + 1})"
