"""All experiments by their names in the command."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.figure import Figure

from bench.paper import contention, fairness, scalability
from bench.paper.points import Point, Row


@dataclass(frozen=True, slots=True)
class Experiment:
    """One figure: its points in a form, its plot, and its table, head first."""

    title: str
    points: Callable[..., list[Point]]  # of a form, and whether quick
    draw: Callable[[Sequence[Row]], Figure]
    table: Callable[[Sequence[Row]], list[list[str]]]


def _fairness(name: str) -> Experiment:
    return Experiment(
        fairness.TITLE_OF[name],
        partial(fairness.points, name),
        partial(fairness.draw, name),
        partial(fairness.table, name),
    )


EXPERIMENTS = {
    "figure4": Experiment(scalability.TITLE, scalability.points, scalability.draw, scalability.table),
    "figure5": _fairness("figure5"),
    "figure6": _fairness("figure6"),
    "figure7": Experiment(contention.TITLE, contention.points, contention.draw, contention.table),
}
