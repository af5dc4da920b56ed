"""A campaign: many seeds, on as many cores as there are, and what the oracles saw of each.

Each seed draws worlds of its own, so a campaign is as deterministic as a run: the same seeds, the same violations.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from simulation.kept import ALL, Kept
from simulation.linearizability.clients import check_clients
from simulation.probes import probe_names
from simulation.run import Report, run

WORLDS: Final = (run, check_clients)  # Every seed draws one of each: a shop with consumers, and a few clients' history.
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
    """How the runs of a seed went. `probes`: how often each rare point was reached."""

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
        """Count one more seed."""
        self.seeds += 1
        self.broken += outcome.broken
        self.virtual_us += outcome.virtual_us
        self.probes.update(outcome.probes)

    @property
    def missed(self) -> list[str]:
        """The probes that were not reached."""
        return [name for name, count in self.probes.items() if not count]


def broken_by(report: Report) -> list[Broken]:
    """Return the promises that a run broke."""
    faults = report.plan.faults
    return [Broken(report.seed, violation.oracle, violation.what, faults) for violation in report.violations]


def run_worlds(seed: int, kept: Kept = ALL) -> list[Report]:
    """Run the worlds of `seed`, with `kept` of their plans. One that breaks a promise is the last."""
    reports: list[Report] = []
    for world in WORLDS:
        reports.append(world(seed, kept))
        if reports[-1].violations:
            break
    return reports


def run_seed(seed: int, kept: Kept = ALL) -> Outcome:
    """Run the worlds of `seed`; see `run_worlds`."""
    reports = run_worlds(seed, kept)
    probes: Counter[str] = Counter()
    for report in reports:
        probes.update(report.probes)
    return Outcome(broken_by(reports[-1]), sum(report.virtual_us for report in reports), dict(probes))


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
