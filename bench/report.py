"""Figures: medians with their spread, printed as a table for a person or as one JSON object for a program."""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

WIDE = 180  # Characters of a line that no terminal breaks.
_STARTED_S = time.monotonic()


@dataclass(frozen=True, slots=True)
class Rate:
    """Items per second, and the ratio to the floor. Medians over the repetitions, each against its own floor."""

    per_s: float
    of_floor: float
    of_floor_min: float
    of_floor_max: float
    floor_per_s: float


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds from the call of enqueue to the handler's first line.

    `p50_ms`, `p99_ms`: medians over the runs; `max_ms`: maximum of all runs; `items`: number of measured items.
    """

    p50_ms: float
    p99_ms: float
    p99_min_ms: float
    p99_max_ms: float
    max_ms: float
    items: int


def rate(pairs: Sequence[tuple[float, float]]) -> Rate:
    """Return the figure of pairs `(Fairlead's rate, floor's rate)` in items per second, one pair per repetition."""
    ratios = [ours / floor for ours, floor in pairs]
    return Rate(
        per_s=round(statistics.median(ours for ours, _ in pairs), 1),
        of_floor=round(statistics.median(ratios), 3),
        of_floor_min=round(min(ratios), 3),
        of_floor_max=round(max(ratios), 3),
        floor_per_s=round(statistics.median(floor for _, floor in pairs), 1),
    )


def latency(runs: Sequence[Sequence[float]]) -> Latency:
    """Return the figure of latencies in milliseconds, one sequence per run; none may be empty."""
    tails = [percentile(run, 99) for run in runs]
    return Latency(
        p50_ms=round(statistics.median(percentile(run, 50) for run in runs), 2),
        p99_ms=round(statistics.median(tails), 2),
        p99_min_ms=round(min(tails), 2),
        p99_max_ms=round(max(tails), 2),
        max_ms=round(max(max(run) for run in runs), 2),
        items=sum(len(run) for run in runs),
    )


def percentile(values: Iterable[float], percent: float) -> float:
    """Return the smallest of `values` that `percent` of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-len(ordered) * percent // 100) - 1)]


# --- Commands ---


@dataclass(frozen=True, slots=True)
class Options:
    """The options that every command has."""

    as_json: bool
    quick: bool


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return the parser of the options that every command has; `description` is the module's docstring."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    made.add_argument("--quick", action="store_true", help="the same shapes with smaller sizes, within 45 seconds")
    return made


def options(description: str | None, arguments: Sequence[str] | None = None) -> Options:
    """Parse the command line of a command without other options; `description` is the module's docstring."""
    parsed = parser(description).parse_args(arguments)
    return Options(as_json=parsed.json, quick=parsed.quick)


def say(text: str) -> None:
    """Print to standard error the current measurement, and the time since the start."""
    print(f"{time.monotonic() - _STARTED_S:5.0f} s  {text}", file=sys.stderr, flush=True)


def plain(figure: Any) -> dict[str, Any]:
    """Return a figure in the form of the JSON object."""
    return asdict(figure)


def show(result: dict[str, Any], opts: Options, title: str) -> None:
    """Print `result`, a table of tables, for a program or for a person."""
    if opts.as_json:
        print(json.dumps(result))
        return
    table = Table("what", "figure", title=title, title_justify="left")
    for name, figures in result.items():
        table.add_row(name, _line(figures))
    Console().print(table)


def show_rows(rows: Sequence[dict[str, Any]], table: Sequence[Sequence[str]], opts: Options, title: str) -> None:
    """Print rows completely for a program, or a table, its head first, for a person."""
    if opts.as_json:
        print(json.dumps({"rows": rows}))
        return
    shown = Table(*table[0], title=title, title_justify="left")
    for line in table[1:]:
        shown.add_row(*line)
    Console(width=None if sys.stdout.isatty() else WIDE).print(shown)


def _line(figures: Any) -> str:
    if not isinstance(figures, dict):
        return _number(figures)
    if any(isinstance(value, dict) for value in figures.values()):
        return "\n".join(f"{name}: {_line(value)}" for name, value in figures.items())
    return "   ".join(f"{name} {_number(value)}" for name, value in figures.items())


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
