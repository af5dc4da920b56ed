"""The points of a figure: their definition, and their run, one after the other or in several processes."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

from bench.harness import SPAWN
from bench.load.load_spec import Load
from bench.load.outcome import Outcome
from bench.paper.forms import Backlog, Form
from bench.paper.setup import Setup
from bench.report import plain, say

Row = dict[str, Any]  # A point and its outcome in the data of a figure.


@dataclass(frozen=True, slots=True)
class Point:
    """One point: its line of the figure, its position, and its measurement."""

    series: str
    at: Mapping[str, float]
    setup: Setup
    what: Load | Backlog

    def __str__(self) -> str:
        kind = "load" if isinstance(self.what, Load) else "saturation"
        return ", ".join([kind, self.series, *(f"{name} {value:g}" for name, value in self.at.items())])


def measured(form: Form, point: Point) -> Row:
    """Measure a point, and return its row."""
    if isinstance(point.what, Load):
        kind, found = "load", form.under_load(point.what, point.setup)
    else:
        kind, found = "saturation", form.at_saturation(point.what, point.setup)
    return row(form.name, kind, point, found)


def row(form: str, kind: str, point: Point, found: Outcome) -> Row:
    """Return a point and its outcome in the form of the data."""
    percents = {
        "failed_percent": round(found.leases.failed_percent, 2),
        "at_commit_percent": round(found.leases.at_commit_percent, 1),
    }
    return {"form": form, "kind": kind, "series": point.series, **point.at, **plain(found), **percents}


def one_by_one(form: Form, points: Sequence[Point]) -> list[Row]:
    """Measure points one after the other."""
    rows = []
    for number, point in enumerate(points):
        say(f"{form.name}, {number + 1} of {len(points)}: {point}")
        rows.append(measured(form, point))
    return rows


def side_by_side(form: Form, points: Sequence[Point]) -> list[Row]:
    """Measure points in as many processes as there are cores. Only for a form whose points do not affect each other.

    The longest should come first. `form` is pickled for the processes.
    """
    rows: dict[int, Row] = {}
    with ProcessPoolExecutor(os.cpu_count(), SPAWN) as pool:
        numbers = {pool.submit(measured, form, point): number for number, point in enumerate(points)}
        for future in as_completed(numbers):
            rows[numbers[future]] = future.result()
            say(f"{form.name}, {len(rows)} of {len(points)}: {points[numbers[future]]}")
    return [rows[number] for number in range(len(points))]
