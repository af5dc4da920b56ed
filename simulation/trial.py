"""A trial: a cluster that runs with faults, the report of the run, and whether a second run is the same."""

from __future__ import annotations

import gc
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple

from fairlead.simulation.cluster import Cluster
from fairlead.simulation.faults.fault import Fault
from fairlead.simulation.faults.table import FAULTS
from fairlead.simulation.log_capture import product_log_captured
from fairlead.simulation.plan import Plan
from fairlead.simulation.reduction import Reduction
from fairlead.simulation.world import START_US, Violation, World
from fairlead.zones.probes import probes_into

STEP_US = 100_000  # The time between two checks whether a phase of the run has ended.
LAST_EVENTS = 40


@dataclass(slots=True)
class Report:
    """The result of a run. `events` is the digest of the event log `lines`: equal digests, equal runs."""

    seed: int
    chosen: dict[str, Any]
    plan: Plan
    reduction: Reduction
    events: str
    lines: Sequence[str]
    end: int  # how many of the lines there were when the run ended, before its actors were killed
    virtual_us: int
    turns: int
    commits: int
    violations: list[Violation] = field(default_factory=list)
    probes: Counter[str] = field(default_factory=Counter)  # how often each rare point was reached
    struck: Counter[str] = field(default_factory=Counter)  # how often each fault struck
    ran: Counter[str] = field(default_factory=Counter)  # how often each handler of an application returned

    @property
    def last_events(self) -> Sequence[str]:
        """The event log around the violation: its last lines before the run ended by it."""
        return self.lines[: self.end][-LAST_EVENTS:]

    def __str__(self) -> str:
        if not self.violations:
            return f"seed {self.seed}: no violation in {self.virtual_us / 1e6:.1f} virtual seconds"
        head = [f"seed {self.seed}, {self.reduction}, chosen: {self.chosen}", str(self.plan)]
        return "\n".join([*head, *self.last_events, *map(str, self.violations)])


class Trial:
    """A cluster in its world, ready to run once. Subclasses define `run_scenario`.

    Args:
      plan: drawn from `seed`, with the fields `chosen`, and reduced by `reduction`.
    """

    def __init__(
        self, seed: int, reduction: Reduction, chosen: dict[str, Any], *, world: World, plan: Plan, cluster: Cluster
    ) -> None:
        self.world = world
        self.plan = plan
        self.cluster = cluster
        self.faults: dict[str, Fault] = {}
        self._seed = seed
        self._reduction = reduction
        self._chosen = chosen

    def run_scenario(self) -> None:
        """Run all phases. Raises the first `Violation`."""
        raise NotImplementedError

    def run_fault_phase(self) -> None:
        """Run the fault phase of the plan; then stop the faults and heal the cluster."""
        world = self.world
        self.faults = {name: FAULTS[name](self.cluster, world.random(f"fault {name}")) for name in self.plan.faults}
        world.run_until(START_US + self.plan.trouble_us)
        for fault in self.faults.values():
            fault.stop()
        self.cluster.heal()
        world.note("the faults have stopped")

    def run(self) -> Report:
        """Run to the end, or to the first violation."""
        world = self.world
        violations: list[Violation] = []
        probes: Counter[str] = Counter()
        with product_log_captured(world), probes_into(probes), _interruptible(world), _garbage_kept():
            try:
                self.run_scenario()
            except Violation as violation:
                violations.append(violation)
            finally:
                end = len(world.log.lines)
                self.cluster.close()
        return Report(
            seed=self._seed,
            chosen=self._chosen,
            plan=self.plan,
            reduction=self._reduction,
            events=world.log.digest(),
            lines=world.log.lines,
            end=end,
            virtual_us=world.elapsed_us,
            turns=world.turns,
            commits=sum(store.commits for store in self.cluster.stores.values()),
            violations=violations,
            probes=probes,
            struck=Counter({name: fault.strike_count for name, fault in self.faults.items()}),
        )


@contextmanager
def _interruptible(world: World) -> Iterator[None]:
    """Let Ctrl-C end the world, though a worker survives any exception in its handlers."""

    def interrupt(*_: object) -> None:
        world.interrupted = True
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _garbage_kept() -> Iterator[None]:
    """Collect no cyclic garbage meanwhile: when that happens depends on what the process did before this world.

    A cycle can hold a watch, and a watch that is not collected yet fires. A world leaves some 15 MB of cycles.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Difference(NamedTuple):
    """The first difference of two runs of one seed: the event's number, and the event in each run; None: it had ended.

    Without a number, the runs differ between processes, but not within one.
    """

    event: int | None
    first: str | None
    second: str | None


def first_difference(events: str, again: Callable[[], Report]) -> Difference | None:
    """Return where the runs of a seed differ; None if it is the same run every time.

    Args:
      events: the digest of the events of an earlier run.
      again: runs the same seed.
    """
    first = again()
    if first.events == events:
        return None
    lines = enumerate(zip_longest(first.lines, again().lines), start=1)
    for number, (one, other) in lines:
        if one != other:
            return Difference(number, one, other)
    return Difference(None, None, None)
