"""A campaign: many seeds, on all cores, and the violations that oracles found.

Each seed draws worlds of its own, so a campaign is as deterministic as a run: the same seeds, the same violations.
"""

from __future__ import annotations

import ast
import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple

from fairlead import actors, records, workflows, zones
from fairlead.simulation.application import Code, run_application
from fairlead.simulation.bank.world import run_bank
from fairlead.simulation.directory.restored import run_restored_directory
from fairlead.simulation.directory.world import run_directory
from fairlead.simulation.external.world import run_external
from fairlead.simulation.linearizability.clients import check_clients
from fairlead.simulation.reduction import NO_REDUCTION, Reduction
from fairlead.simulation.run import run
from fairlead.simulation.trial import Report
from fairlead.simulation.unique_items.world import run_unique_items
from fairlead.simulation.workflow_shop import run_workflows
from fairlead.zones.errors import QueueError

WorldRunner = Callable[[int, Reduction], Report]
# Every seed draws one of each: a shop with consumers, the history of a few clients, those of a bank and of a directory
# on several shards, a directory with restores, unique items on several shards, an external store, and workflows of
# random shape.
WORLDS: Final[Sequence[WorldRunner]] = (
    run,
    check_clients,
    run_bank,
    run_directory,
    run_restored_directory,
    run_unique_items,
    run_external,
    run_workflows,
)
STANDARD_SEEDS = 1_000  # This many seeds of the standard workload reach every probe; fewer may miss a rare one.
SAME_VIOLATION_MAX = 3  # A campaign ends after this many seeds that break the same promise.

_SPAWN = multiprocessing.get_context("spawn")  # A fork would copy the caller's locks and open stores.
_AHEAD = 4  # Seeds per process that are submitted ahead of the results.


class ProcessDied(QueueError):
    """A process that ran seeds has ended: it had too little memory, or a handler ended it.

    Do: run the seeds from `first` on in one process, `--first <first> --processes 1`: it ends at the same place.
    """

    message = "a process ended during a run; --processes 1 from this seed on shows where"


class BrokenPromise(NamedTuple):
    """A promise that a run broke, a description, and the faults of that run."""

    seed: int
    oracle: str
    what: str
    faults: tuple[str, ...]


class Outcome(NamedTuple):
    """The results of the runs of a seed.

    Attributes:
      probes: how often each rare point was reached.
      events: the digests of their event logs.
      ran: how often each handler of an application returned.
    """

    broken: list[BrokenPromise]
    virtual_us: int
    probes: dict[str, int]
    events: str
    ran: dict[str, int]


def probe_names() -> list[str]:
    """Return the names of all probes in the sources of `workflows`, `actors`, `records` and `zones`, sorted."""
    folders = [Path(folder) for package in (workflows, actors, records, zones) for folder in package.__path__]
    sources = [path.read_text("utf-8") for folder in folders for path in folder.rglob("*.py")]
    return sorted(name for source in sources for name in _probes_in(source))


def _probes_in(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "probe":
            (name,) = node.args
            assert isinstance(name, ast.Constant)
            yield str(name.value)


@dataclass(slots=True)
class CampaignResult:
    """The results of a campaign so far."""

    seeds: int = 0
    broken: list[BrokenPromise] = field(default_factory=list)
    virtual_us: int = 0
    probes: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(probe_names(), 0)))
    ran: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        """Count one more seed."""
        self.seeds += 1
        self.broken += outcome.broken
        self.virtual_us += outcome.virtual_us
        self.probes.update(outcome.probes)
        self.ran.update(outcome.ran)

    @property
    def repeated(self) -> str | None:
        """A promise that `SAME_VIOLATION_MAX` seeds broke; None: there is none."""
        promises = Counter(each.oracle for each in self.broken)
        return next((promise for promise, count in promises.items() if count >= SAME_VIOLATION_MAX), None)

    @property
    def missed(self) -> list[str]:
        """The probes that were not reached."""
        return [name for name, count in self.probes.items() if not count]


def broken_by(report: Report) -> list[BrokenPromise]:
    """Return the promises that a run broke."""
    faults = report.plan.faults
    return [BrokenPromise(report.seed, violation.oracle, violation.what, faults) for violation in report.violations]


def worlds_of(code: Callable[[], Code] | None) -> Sequence[WorldRunner]:
    """Return the worlds of each seed: the standard ones, or the world of the application."""
    return WORLDS if code is None else [lambda seed, reduction: run_application(seed, code(), reduction)]


def run_worlds(seed: int, reduction: Reduction = NO_REDUCTION, code: Callable[[], Code] | None = None) -> list[Report]:
    """Run the worlds of `seed`, with `reduction` of their plans. A world that breaks a promise is the last.

    Args:
      code: returns the application that runs in them; None: the standard workloads run.
    """
    reports: list[Report] = []
    for world in worlds_of(code):
        reports.append(world(seed, reduction))
        if reports[-1].violations:
            break
    return reports


def run_seed(seed: int, reduction: Reduction = NO_REDUCTION, code: Callable[[], Code] | None = None) -> Outcome:
    """Run the worlds of `seed`; see `run_worlds`."""
    reports = run_worlds(seed, reduction, code)
    probes: Counter[str] = Counter()
    ran: Counter[str] = Counter()
    for report in reports:
        probes.update(report.probes)
        ran.update(report.ran)
    virtual_us = sum(report.virtual_us for report in reports)
    return Outcome(broken_by(reports[-1]), virtual_us, dict(probes), events_of(reports), dict(ran))


def events_of(reports: Sequence[Report]) -> str:
    """Return the digests of event logs. Equal digests mean equal runs."""
    return " ".join(report.events for report in reports)


def campaign(
    seeds: Sequence[int], *, processes: int, reduction: Reduction = NO_REDUCTION, code: Callable[[], Code] | None = None
) -> Iterator[Outcome]:
    """Run seeds in parallel, and yield their outcomes in order.

    The unfinished runs end when the iterator is closed, and when this process ends, even by a kill.

    Args:
      seeds: any whole numbers.
      processes: how many at once, 1 or more; with 1 they run in this process.
      reduction, code: see `run_worlds`. `code` is pickled: it is a module's function, or a `partial` of one.

    Raises:
      ProcessDied: one of the processes ended during a run.
    """
    run_one = partial(run_seed, reduction=reduction, code=code)
    if processes == 1:
        yield from map(run_one, seeds)
        return
    done = 0
    try:
        for outcome in _side_by_side(seeds, processes, run_one):
            yield outcome
            done += 1
    except BrokenProcessPool as error:
        raise ProcessDied(first=seeds[done]) from error


def _side_by_side(seeds: Sequence[int], processes: int, run_one: Callable[[int], Outcome]) -> Iterator[Outcome]:
    theirs, ours = _SPAWN.Pipe(duplex=False)
    pool = ProcessPoolExecutor(processes, _SPAWN, _end_with_the_campaign, (theirs,))
    with pool, theirs, ours:
        waiting: deque[Future[Outcome]] = deque()
        for seed in seeds:
            with _interrupts_held_back():
                waiting.append(pool.submit(run_one, seed))
            if len(waiting) > _AHEAD * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _end_with_the_campaign(pipe: Connection) -> None:
    """End this process at once when the campaign closes its end of a pipe, or dies."""

    def watch() -> None:
        pipe.poll(None)  # No data is ever sent.
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Block SIGINT meanwhile: processes that start now inherit that, and this one gets the signal a moment later.

    A Ctrl-C goes to every process of a terminal. This process ends the others.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
