"""Shrinking: from a run that breaks a promise to a small one that breaks the same.

The remaining faults explain the bug: if the run needs the pauses and not the kills, the cause is a pause. The search is
greedy. It tries the least of everything, then removes faults, and lowers one number after the other. It keeps every
step after which the run still fails, and repeats until no step helps. It draws no random numbers, so the same failure
shrinks to the same run.

A smaller run counts as failing only if the *same* oracle reports it. A smaller run may break another promise, such as a
drain that one consumer cannot finish in time. That would explain a bug that the campaign did not find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from fairlead.simulation.reduction import SIZES, TROUBLE_MS_MIN, Reduction, reduction_from, whole_plan
from fairlead.simulation.trial import Report

RUNS_MAX = 60  # Half a minute, because smaller runs are faster.
VIRTUAL_US_MAX = 3_600_000_000  # Runs that end only by a time limit are long, so there are fewer.
RUNS_MIN = 10

Fails = Callable[[Reduction], bool]


def runs_for(report: Report) -> int:
    """Return how many runs the search for a smaller one may take."""
    return max(RUNS_MIN, min(RUNS_MAX, VIRTUAL_US_MAX // report.virtual_us))


def shrink(report: Report, again: Callable[[Reduction], Report], *, runs_max: int) -> Iterator[Report]:
    """Yield ever smaller runs that break the promise that `report` breaks first, beginning with `report`.

    Args:
      report: of a run with a violation.
      again: runs the same seed with a reduction.
      runs_max: how often, at most.
    """
    oracle = report.violations[0].oracle
    tried = report

    def fails(reduction: Reduction) -> bool:
        nonlocal tried
        tried = again(replace(report.reduction, **reduction_from(report.plan, reduction).chosen()))
        return any(violation.oracle == oracle for violation in tried.violations)

    for _ in minimize(whole_plan(report.plan), fails, runs_max=runs_max):
        yield tried


def minimize(reduction: Reduction, fails: Fails, *, runs_max: int) -> Iterator[Reduction]:
    """Yield `reduction`, then smaller ones for which `fails` is true, found by a greedy search of `runs_max` runs.

    Args:
      reduction: it is known to fail and is not tried again; every attribute is chosen.
    """
    tried = {reduction}
    found: Reduction | None = reduction
    while found is not None:
        yield found
        reduction, found = found, None
        for smaller in _smaller(reduction):
            if smaller in tried:
                continue
            if len(tried) > runs_max:
                return
            tried.add(smaller)
            if fails(smaller):
                found = smaller
                break


def _smaller(reduction: Reduction) -> Iterator[Reduction]:
    """Yield the reductions by one step: fewer faults first, then lower numbers; of each, large steps first.

    The least of everything comes first, because it shows a bug that occurs in every run.
    """
    assert reduction.faults is not None
    least: dict[str, Any] = {name: min(getattr(reduction, name), _lowest(name)) for name in SIZES}
    yield replace(reduction, faults=(), **least)
    for faults in _fewer(reduction.faults):
        yield replace(reduction, faults=faults)
    for name in SIZES:
        now, lowest = getattr(reduction, name), _lowest(name)
        for lower in (lowest, now // 4, now // 2, now * 3 // 4):
            if lowest <= lower < now:
                less: dict[str, Any] = {name: lower}
                yield replace(reduction, **less)


def _lowest(name: str) -> int:
    return TROUBLE_MS_MIN if name == "trouble_ms" else 1


def _fewer(faults: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield parts of the faults: none, either half, and all but one."""
    if faults:
        yield ()
        middle = len(faults) // 2
        yield faults[:middle]
        yield faults[middle:]
        for name in faults:
            yield tuple(other for other in faults if other != name)
