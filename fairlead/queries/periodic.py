"""Periodic work: the kinds that tick, and when each ticks next."""

from collections.abc import Iterable
from typing import NamedTuple

from fairlead.zones.queue import periodic
from fairlead.zones.shard import Shard

PERIODS_MAX = 500  # Of each shard.
LATE_US = 60_000_000  # Housekeeping enqueues a due tick within seconds; a later one has no fleet.


class PeriodicWork(NamedTuple):
    """A kind that ticks. `next_us`: when its next item is enqueued; a time that has passed: no fleet enqueues it."""

    shard: str
    kind: str
    every_us: int
    next_us: int

    def is_late(self, now_us: int) -> bool:
        """Return whether its tick is overdue, so that no live consumer seems to enqueue it."""
        return now_us > self.next_us + LATE_US


class PeriodicList(NamedTuple):
    """The periodic work of a shard. `whole`: whether this is all."""

    periods: list[PeriodicWork]
    whole: bool


def read_periods(shard: Shard) -> PeriodicList:
    """Return the periodic work of a shard, by kind. One snapshot read.

    Raises:
      One of `shard.db.errors`: the shard cannot be read.
    """
    found = shard.transact(lambda attempt: list(periodic.listing(attempt.tr, periods_max=PERIODS_MAX + 1)))
    periods = [PeriodicWork(shard.name, kind, record.every_us, record.next_us) for kind, record in found[:PERIODS_MAX]]
    return PeriodicList(periods, len(found) <= PERIODS_MAX)


def by_next_tick(found: Iterable[PeriodicList]) -> list[PeriodicWork]:
    """Return the periodic work of several shards, the next tick first."""
    return sorted((each for some in found for each in some.periods), key=lambda each: (each.next_us, each.kind))
