"""Rows: one per system and figure, with its median, spread, versions and durability."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.peers.measures import FIGURES, MEASURES
from bench.peers.round import About, Outcome
from bench.peers.systems import SYSTEMS

DIGITS = 3  # Significant digits; more would be noise.
QUIET_LOAD_PER_CORE = 0.25


@dataclass(frozen=True, slots=True)
class RoundResult:
    """One finished round: its system, its measure, and its outcome."""

    system: str
    measure: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of one system over the repetitions of a run.

    Attributes:
      figure: its key in `FIGURES`.
      median, low, high: of `values`; None: the system cannot do this, or it did not happen in time.
      note: the reason for a missing value, or the number of repetitions without one.
    """

    system: str
    title: str
    figure: str
    unit: str
    median: float | None
    low: float | None
    high: float | None
    values: Sequence[float]
    durable: bool
    durability: str
    settings: str
    versions: Mapping[str, str]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of a measure. `load_1m`: the machine's load before; `fsync_ms`: of a page; `size`: quick, full."""

    cores: int
    load_1m: float
    fsync_ms: float
    python: str
    size: str

    @property
    def quiet(self) -> bool:
        """Whether there was hardly any other load on the machine."""
        return self.load_1m <= QUIET_LOAD_PER_CORE * self.cores


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a run. `missing`: systems that are not installed, and why; `failed`: rounds without figures."""

    rows: Sequence[Row] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    failed: Sequence[str] = ()

    def row(self, system: str, figure: str) -> Row | None:
        """Return the row of a figure of a system, None if it was not measured."""
        return next((row for row in self.rows if (row.system, row.figure) == (system, figure)), None)

    def systems(self) -> list[str]:
        """Return the systems that have rows, in the order of `SYSTEMS`."""
        return list(dict.fromkeys(row.system for row in self.rows))


def results(rounds: Sequence[RoundResult]) -> Results:
    """Return the results of the rounds of a run."""
    rows: list[Row] = []
    missing: dict[str, str] = {}
    failed: list[str] = []
    for system in sorted({result.system for result in rounds}, key=list(SYSTEMS).index):
        outcomes = {
            measure: [result.outcome for result in rounds if (result.system, result.measure) == (system, measure)]
            for measure in MEASURES
        }
        for measure, found in outcomes.items():
            about = next((each.about for each in found if each.about), None)
            if about is not None:
                rows += _rows(system, about, [each.figures for each in found if not each.reason])
            missing.update((system, each.reason) for each in found if each.missing)
            failed += [f"{system}, {measure}: {each.reason}" for each in found if each.reason and not each.missing]
    return Results(rows, missing, failed)


def _rows(system: str, about: About, repetitions: Sequence[Mapping[str, float | None]]) -> list[Row]:
    """Return the rows of one system in one measure."""
    keys = [key for key in FIGURES if any(key in figures for figures in repetitions)]
    return [_row(system, about, key, [figures[key] for figures in repetitions if key in figures]) for key in keys]


def _row(system: str, about: About, key: str, found: Sequence[float | None]) -> Row:
    values = [significant(value) for value in found if value is not None]
    without = len(found) - len(values)
    return Row(
        system=system,
        title=about.title,
        figure=key,
        unit=FIGURES[key].unit,
        median=significant(statistics.median(values)) if values else None,
        low=min(values, default=None),
        high=max(values, default=None),
        values=values,
        durable=about.durable,
        durability=about.durability,
        settings=about.settings,
        versions=about.versions,
        note=f"{without} of {len(found)} without a value" if without else "",
    )


def significant(value: float) -> float:
    """Return a number with three significant digits; a number above 1,000 is rounded to an integer."""
    return float(f"{value:.{DIGITS}g}") if abs(value) < 10**DIGITS else float(round(value))
