"""The steps of a workflow's run as bars along one axis of time. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead.recorded_steps import RunView, StepView
from fairlead.zones.workflow.run_records import StepKind, StepState

STEPS_PER_PAGE = 100
BAR_PERCENT_MIN = 1.0  # A step of a millisecond is still seen in a run of days.


class Bar(NamedTuple):
    """A step and its bar. `begin`, `width`: in percent of the axis; `took_us`: up to now if the step is open."""

    step: StepView
    begin: float
    width: float
    took_us: int
    is_open: bool

    @property
    def look(self) -> str:
        """The class of the bar in the style sheet."""
        if self.step.state is StepState.FAILED:
            return "failed"
        if self.is_open:
            return "open"
        return "undo" if self.step.kind is StepKind.UNDO or self.step.undone_us is not None else "done"


class Timeline(NamedTuple):
    """A page of the steps of a run, in the order in which they began; page 1 has the latest.

    `begin_us`, `end_us`: the ends of the axis, which the steps of the page have in common; `step_count`: of all pages.
    """

    bars: Sequence[Bar]
    begin_us: int
    end_us: int
    page: int
    pages: int
    step_count: int

    @property
    def steps(self) -> list[StepView]:
        """The steps of the page."""
        return [bar.step for bar in self.bars]


def timeline(run: RunView, page: int) -> Timeline:
    """Return a page of the steps; for a page behind the last, the last."""
    count = len(run.steps)
    pages = max(1, -(-count // STEPS_PER_PAGE))
    page = min(page, pages)
    end = count - (page - 1) * STEPS_PER_PAGE
    steps = run.steps[max(0, end - STEPS_PER_PAGE) : end]
    begin_us = min((each.began_us for each in steps), default=run.now_us)
    end_us = max((_end_us(run, each) for each in steps), default=begin_us)
    return Timeline([_bar(run, each, begin_us, end_us) for each in steps], begin_us, end_us, page, pages, count)


def _bar(run: RunView, step: StepView, begin_us: int, end_us: int) -> Bar:
    length_us = max(1, end_us - begin_us)
    took_us = max(0, _end_us(run, step) - step.began_us)
    width = max(BAR_PERCENT_MIN, 100 * took_us / length_us)
    begin = min(100 * (step.began_us - begin_us) / length_us, 100 - width)
    return Bar(step, begin, width, took_us, _is_open(run, step))


def _end_us(run: RunView, step: StepView) -> int:
    return max(step.at_us, run.now_us) if _is_open(run, step) else step.at_us


def _is_open(run: RunView, step: StepView) -> bool:
    """Say whether a step goes on: it waits, or has perhaps been done. Steps of a dead letter stand still."""
    return step.state in (StepState.WAITING, StepState.BEGUN) and run.dead_letter_error is None
