"""A campaign: many seeds, on as many cores as there are, and what the oracles saw of each.

Each seed is a world of its own, so a campaign is as deterministic as a run: the same seeds, the same violations.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from simulation.run import Report, run

_SPAWN = multiprocessing.get_context("spawn")  # A fork would carry the caller's threads and stores along.
_SEEDS_AT_A_TIME = 4  # Of one process: few enough that no core waits for another at the end.


class Broken(NamedTuple):
    """A promise that a run broke: which oracle's, and how."""

    seed: int
    oracle: str
    what: str


class Outcome(NamedTuple):
    """How the run of a seed went. `probes`: how often each rare point was reached."""

    broken: list[Broken]
    virtual_us: int
    probes: dict[str, int]


def outcome_of(report: Report) -> Outcome:
    """Return what a campaign keeps of a run."""
    broken = [Broken(report.seed, violation.oracle, violation.what) for violation in report.violations]
    return Outcome(broken, report.virtual_us, dict(report.probes))


def run_seed(seed: int) -> Outcome:
    """Run the standard workload in the world of `seed`, with everything drawn from it."""
    return outcome_of(run(seed))


def campaign(seeds: Sequence[int], *, processes: int) -> Iterator[Outcome]:
    """Run seeds side by side, and yield how each went, in their order.

    Args:
      seeds: any whole numbers.
      processes: how many at once, 1 or more; with 1 they run in this process.
    """
    if processes == 1:
        yield from map(run_seed, seeds)
        return
    with ProcessPoolExecutor(processes, _SPAWN) as pool:
        yield from pool.map(run_seed, seeds, chunksize=_SEEDS_AT_A_TIME)
