"""Limits: what a tenant may take from others at a time."""

from collections import Counter

from simulation.oracles.oracle import Oracle
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
