"""What a worker has done on one shard and has not stored yet: a rollup per interval of ten seconds.

Plain bookkeeping without threads, locks or a store. `StatusReporter` calls it under its lock.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from typing import NamedTuple

from msgspec.structs import replace

from fairlead.actors.messages import ItemRef
from fairlead.zones.layout import Tenant
from fairlead.zones.reporting.rollups import SUM_AFTER_INTERVALS, KindRollup, Rollup, interval_of

# A worker sums the handlers' time of so many tenants, and then keeps those with most. The sums of tenants with little
# time are not exact; those of tenants with much time are.
TENANTS_MAX = 2_000
TENANTS_KEPT = 200
PENDING_ROLLUPS_MAX = 30  # Intervals that a worker keeps while the store refuses: five minutes.

Runs = Sequence[tuple[ItemRef, int]]  # Items and how long their handlers have run, microseconds.


class PendingRollup:
    """What ended in one interval. `noted`: how many notes it has; `written`: how many of them are stored."""

    __slots__ = ("_kinds", "_tenants", "interval", "noted", "written")

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self.noted = 0
        self.written = 0
        self._kinds: dict[str, KindRollup] = {}
        self._tenants: dict[Tenant, int] = {}

    def note(self, kind: str, outcome: str, count: int) -> None:
        """Count what became of attempts: a field of `KindRollup`."""
        rollup = self._of(kind)
        setattr(rollup, outcome, getattr(rollup, outcome) + count)

    def note_times(self, runs: Iterable[tuple[ItemRef, int]]) -> None:
        """Count how long handlers have run, whatever became of their items."""
        kinds: Counter[str] = Counter()
        tenants = self._tenants
        for ref, took_us in runs:
            run_us = max(0, took_us)
            kinds[ref.kind] += run_us
            tenants[ref.tenant] = tenants.get(ref.tenant, 0) + run_us
        for kind, run_us in kinds.items():
            self._of(kind).run_us += run_us
        if len(tenants) > TENANTS_MAX:
            self._tenants = dict(nlargest(TENANTS_KEPT, tenants.items(), key=lambda each: (each[1], each[0])))

    def _of(self, kind: str) -> KindRollup:
        self.noted += 1
        rollup = self._kinds.get(kind)
        if rollup is None:
            rollup = self._kinds[kind] = KindRollup()
        return rollup

    def may_be_summed(self, now_us: int) -> bool:
        """Whether its stored row may be in the interval's sum already: another row would be added to that sum."""
        return self.written > 0 and self.interval <= interval_of(now_us) - SUM_AFTER_INTERVALS

    def stored(self) -> Rollup:
        """Return it as it is stored."""
        tenants: dict[str, dict[str, int]] = {}
        for (app, user), run_us in self._tenants.items():
            tenants.setdefault(app, {})[user] = run_us
        return Rollup({kind: replace(rollup) for kind, rollup in self._kinds.items()}, tenants).shortened()


class Row(NamedTuple):
    """A rollup as it is about to be stored, and how many notes it had then."""

    rollup: PendingRollup
    noted: int
    stored: Rollup


class PendingRollups:
    """The rollups of which not all is stored, and the last one."""

    def __init__(self) -> None:
        self._by_interval: dict[int, PendingRollup] = {}

    def note(self, counted: Mapping[tuple[str, str], int], runs: Runs, *, now_us: int) -> None:
        """Count what became of attempts, by kind and outcome, and how long handlers have run.

        A handler's time counts once: when it has ended or is given up.
        """
        interval = interval_of(now_us)
        if interval not in self._by_interval:
            self._discard(now_us)
            self._by_interval[interval] = PendingRollup(interval)
        rollup = self._by_interval[interval]
        for (kind, outcome), count in counted.items():
            rollup.note(kind, outcome, count)
        if runs:
            rollup.note_times(runs)

    def rows(self, now_us: int) -> list[Row]:
        """Return what is to be stored now."""
        self._discard(now_us)
        changed = [rollup for rollup in self._by_interval.values() if rollup.noted > rollup.written]
        return [Row(rollup, rollup.noted, rollup.stored()) for rollup in changed]

    def note_written(self, rows: Iterable[Row]) -> None:
        """Note that rows are stored. What was noted since then goes into the next ones."""
        for row in rows:
            row.rollup.written = row.noted

    def _discard(self, now_us: int) -> None:
        """Forget intervals that are over and stored, and the oldest ones if the store refuses for long."""
        interval = interval_of(now_us)
        for rollup in list(self._by_interval.values()):
            if (rollup.interval != interval and rollup.noted == rollup.written) or rollup.may_be_summed(now_us):
                del self._by_interval[rollup.interval]
        while len(self._by_interval) > PENDING_ROLLUPS_MAX:
            del self._by_interval[min(self._by_interval)]
