"""Limits: what a tenant may take from others at a time, and how many of a kind may run at once."""

from collections import Counter
from collections.abc import Mapping

from simulation.oracles.oracle import Oracle, Run
from simulation.shadow import Meaning
from simulation.world import World


class VisitsTakeTheirShare(Oracle):
    """One visit takes at most `dequeue_max` items of a zone (QuiCK section 6): a flood waits behind everybody else."""

    promise = "a tenant takes at most `dequeue_max` items from others at a time"

    def __init__(self, world: World, dequeue_max: int) -> None:
        super().__init__(world)
        self._dequeue_max = dequeue_max

    def on_commit(self, meaning: Meaning) -> None:
        """See `Oracle`."""
        taken: Counter[tuple[str, ...]] = Counter()
        for change in meaning.items:
            before, after = change.before, change.after
            if before is not None and after is not None and after.lease_id not in (b"", before.lease_id):
                taken[(*change.item.tenant, change.item.zone)] += 1
        for zone, count in taken.items():
            if count > self._dequeue_max:
                self.broken(f"{meaning.by} takes {count} items of {'/'.join(zone)} in one visit")


class KindsKeepToTheirLimits(Oracle):
    """No more of a kind run at once in a consumer than its `max_running`; an attempt that was cancelled has left.

    For runs without faults that hide from a manager what its workers run.

    Args:
      limits: by kind.
    """

    promise = "a consumer runs no more of a kind than its `max_running`"

    def __init__(self, world: World, limits: Mapping[str, int]) -> None:
        super().__init__(world)
        self._limits = limits
        self._running: dict[tuple[str, str], list[Run]] = {}

    def on_start(self, run: Run) -> None:
        """See `Oracle`."""
        limit = self._limits.get(run.job.kind)
        if limit is None:
            return
        consumer = run.host.partition(".")[0]
        beside = self._running.setdefault((consumer, run.job.kind), [])
        beside[:] = [other for other in beside if not other.over and not other.job.cancelled]
        beside.append(run)
        if len(beside) > limit:
            self.broken(f"{consumer} runs {len(beside)} items of kind {run.job.kind} at once")
