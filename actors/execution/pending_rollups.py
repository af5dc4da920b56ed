"""What a worker has done on one shard and has not stored yet: a rollup per interval of ten seconds.

A rollup by kind is a difference: the worker's counts less its counts at the begin of the interval. Only the handler
time of tenants is added up here. Plain bookkeeping without threads, locks or a store: `ShardCounts` calls it under its
lock.
"""

from collections.abc import Mapping
from heapq import nlargest

from msgspec.structs import replace

from fairlead.actors.telemetry.outcome_counts import OutcomeCounts
from fairlead.zones.layout import Tenant
from fairlead.zones.reporting.rollups import SUM_AFTER_INTERVALS, KindRollup, Rollup, interval_of

# A worker sums the handlers' time of so many tenants, and then keeps those with most. The sums of tenants with little
# time are not exact; those of tenants with much time are.
TENANTS_MAX = 2_000
TENANTS_KEPT = 200
PENDING_ROLLUPS_MAX = 30  # Intervals that a worker keeps while the store refuses: five minutes.

_NOTHING = KindRollup()


class PendingRollup:
    """What was done in one interval. `stored`: the row that the store has; empty: none."""

    __slots__ = ("kinds", "stored", "tenants")

    def __init__(self) -> None:
        self.kinds: dict[str, KindRollup] = {}
        self.tenants: dict[Tenant, int] = {}
        self.stored = Rollup({}, {})

    def row(self) -> Rollup:
        """Return it as it is stored."""
        tenants: dict[str, dict[str, int]] = {}
        for (app, user), run_us in self.tenants.items():
            tenants.setdefault(app, {})[user] = run_us
        return Rollup({kind: replace(rollup) for kind, rollup in self.kinds.items()}, tenants).shortened()


class PendingRollups:
    """The rollups of the open interval, and of earlier ones that are not stored. `outcomes`: the worker's counts."""

    def __init__(self, outcomes: OutcomeCounts) -> None:
        self._outcomes = outcomes
        self._assigned: dict[str, KindRollup] = {}  # The part of the counts that is in the rollup of an interval.
        self._by_interval: dict[int, PendingRollup] = {}
        self._interval, self._open = -1, PendingRollup()

    def begin(self, now_us: int) -> None:
        """Open the interval of `now_us`, unless it is open. The caller counts what happened then afterwards."""
        interval = interval_of(now_us)
        if interval != self._interval:
            self._assign()
            # An interval may be opened again: a clock was set back.
            self._interval, self._open = interval, self._by_interval.setdefault(interval, PendingRollup())
            self._discard()

    def note_run(self, tenant: Tenant, run_us: int) -> None:
        """Add how long a handler has run: once it has ended or is given up. A negative time counts as 0."""
        tenants = self._open.tenants
        tenants[tenant] = tenants.get(tenant, 0) + (run_us if run_us > 0 else 0)
        if len(tenants) > TENANTS_MAX:
            self._open.tenants = dict(nlargest(TENANTS_KEPT, tenants.items(), key=lambda each: (each[1], each[0])))

    def rows(self, now_us: int) -> dict[int, Rollup]:
        """Return what is to be stored now, by interval."""
        self.begin(now_us)
        self._assign()
        rows = {interval: pending.row() for interval, pending in self._by_interval.items()}
        return {interval: row for interval, row in rows.items() if row != self._by_interval[interval].stored}

    def note_stored(self, rows: Mapping[int, Rollup]) -> None:
        """Note that rows are stored. What was counted since they were made goes into the next ones."""
        for interval, row in rows.items():
            if interval in self._by_interval:
                self._by_interval[interval].stored = row

    def _assign(self) -> None:
        """Add to the open interval what was counted since the last call."""
        for kind, counts in self._outcomes.items():
            run_us = sum(durations.sum_us for durations in counts.durations.values())
            total = KindRollup(**counts.outcomes, run_us=run_us)
            new = total.minus(self._assigned.get(kind, _NOTHING))
            if new != _NOTHING:
                self._open.kinds.setdefault(kind, KindRollup()).add(new)
                self._assigned[kind] = total

    def _discard(self) -> None:
        """Forget earlier intervals that are stored, and the oldest ones if the store refuses for long.

        A stored row may be in the sum of its interval already. Another row would be added to that sum.
        """
        for interval, pending in list(self._by_interval.items()):
            may_be_summed = pending.stored.kinds and interval <= self._interval - SUM_AFTER_INTERVALS
            if may_be_summed or (pending is not self._open and pending.row() == pending.stored):
                del self._by_interval[interval]
        while len(self._by_interval) > PENDING_ROLLUPS_MAX:
            del self._by_interval[min(self._by_interval)]
