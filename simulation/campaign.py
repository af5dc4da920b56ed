"""A campaign: many seeds, on as many cores as there are, and what the oracles saw of each.

Each seed is a world of its own, so a campaign is as deterministic as a run: the same seeds, the same violations.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from simulation.kept import ALL, Kept
from simulation.probes import probe_names
from simulation.run import Report, run

STANDARD_SEEDS = 1_000  # So many seeds of the standard workload reach every probe; fewer may miss a rare one.

_SPAWN = multiprocessing.get_context("spawn")  # A fork would carry the caller's threads and stores along.
_SEEDS_AT_A_TIME = 4  # Of one process: few enough that no core waits for another at the end.


class Broken(NamedTuple):
    """A promise that a run broke: which oracle's, and how; and which faults there were in that run."""

    seed: int
    oracle: str
    what: str
    faults: tuple[str, ...]


class Outcome(NamedTuple):
    """How the run of a seed went. `probes`: how often each rare point was reached."""

    broken: list[Broken]
    virtual_us: int
    probes: dict[str, int]


@dataclass(slots=True)
class Tally:
    """What a campaign has seen so far."""

    seeds: int = 0
    broken: list[Broken] = field(default_factory=list)
    virtual_us: int = 0
    probes: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(probe_names(), 0)))

    def add(self, outcome: Outcome) -> None:
        """Count one more run."""
        self.seeds += 1
        self.broken += outcome.broken
        self.virtual_us += outcome.virtual_us
        self.probes.update(outcome.probes)

    @property
    def missed(self) -> list[str]:
        """The probes that were not reached."""
        return [name for name, count in self.probes.items() if not count]


def outcome_of(report: Report) -> Outcome:
    """Return what a campaign keeps of a run."""
    faults = report.plan.faults
    broken = [Broken(report.seed, violation.oracle, violation.what, faults) for violation in report.violations]
    return Outcome(broken, report.virtual_us, dict(report.probes))


def run_seed(seed: int, kept: Kept = ALL) -> Outcome:
    """Run the standard workload in the world of `seed`, with everything drawn from it of which `kept` is kept."""
    return outcome_of(run(seed, kept))


def campaign(seeds: Sequence[int], *, processes: int, kept: Kept = ALL) -> Iterator[Outcome]:
    """Run seeds side by side, and yield how each went, in their order.

    Args:
      seeds: any whole numbers.
      processes: how many at once, 1 or more; with 1 they run in this process.
      kept: how much of each seed's plan.
    """
    run_one = partial(run_seed, kept=kept)
    if processes == 1:
        yield from map(run_one, seeds)
        return
    with ProcessPoolExecutor(processes, _SPAWN, _leave_interrupts_to_the_parent) as pool:
        yield from pool.map(run_one, seeds, chunksize=_SEEDS_AT_A_TIME)


def _leave_interrupts_to_the_parent() -> None:
    """A Ctrl-C goes to every process of a terminal. The parent stops asking for more; the others end what they do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
