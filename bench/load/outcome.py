"""The result of a load in the paper's terms (QuiCK section 8), the same for the real and the simulated form.

pointer latency   from a pointer's vesting until a manager has leased it
item latency      from the due time of an enqueue until the item's handler starts
failed lease      an attempt to lease a pointer that another consumer has leased: found at the read
                  (`missed_at_read`) or at the commit (`missed_at_commit`)
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hdrh.histogram import HdrHistogram

from bench.load.histograms import Waits, of_buckets, waits
from fairlead.actors.dispatch.pickup_latency import buckets_in


@dataclass(frozen=True, slots=True)
class Leases:
    """The attempts to lease pointers. `conflicts`: refused commits, each with up to a batch of attempts."""

    leased: int
    missed_at_read: int
    missed_at_commit: int
    conflicts: int

    @property
    def failed_percent(self) -> float:
        """The percentage of attempts that failed."""
        failed = self.missed_at_read + self.missed_at_commit
        return 100 * failed / max(1, self.leased + failed)

    @property
    def at_commit_percent(self) -> float:
        """The percentage of failed attempts that failed at their commit."""
        return 100 * self.missed_at_commit / max(1, self.missed_at_read + self.missed_at_commit)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of a load, or of a backlog while it is worked off. `items_per_s`: completed items."""

    items_per_s: float
    item: Waits
    pointer: Waits
    leases: Leases
    scans: int


def outcome(*, seconds: float, before: Mapping[str, int], after: Mapping[str, int], items: HdrHistogram) -> Outcome:
    """Return the outcome between two times. `before` and `after`: the sums of the consumers' counts at these times."""

    def gained(name: str) -> int:
        return after.get(name, 0) - before.get(name, 0)

    earlier = buckets_in(before)
    pointers = {bound_us: count - earlier.get(bound_us, 0) for bound_us, count in buckets_in(after).items()}
    return Outcome(
        items_per_s=round(gained("completed") / seconds, 1),
        item=waits(items),
        pointer=waits(of_buckets(pointers)),
        leases=Leases(sum(pointers.values()), *map(gained, ("missed_at_read", "missed_at_commit", "conflicts"))),
        scans=gained("scans"),
    )
