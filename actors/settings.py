"""How a consumer works: parameters under the names of QuiCK's algorithms, and the times of its leases.

Each has a unit, a default with its reason, and a range; relations between them are checked where they are defined.
"""

from dataclasses import dataclass

from fairlead.zones.errors import BadArgument

SELECTIONS = ("random", "in_order", "own_parts")


class BadSettings(BadArgument):
    """Two settings contradict each other.

    Do: change one of the two that the error names.
    """

    message = "settings contradict each other"


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """One consumer: a scanner, its managers, and their workers."""

    managers: int = 1
    """Manager actors. 1 to 64. One keeps two workers busy; add one per two workers beyond."""

    workers: int = 2
    """Worker actors, dealt out to the managers. 1 to 256. One per core."""

    slots: int = 16
    """Handlers that run at once in a worker. 1 to 1,000. Raise it for handlers that wait."""

    peek_max: int = 20_000
    """Vested pointers that a scanner looks at to choose from at random (Algorithm 1; the paper's value). 1 to 10^6."""

    selection_frac: float = 0.02
    """The fraction of peeked pointers that it chooses (Algorithm 1; the paper's value). Above 0, to 1."""

    selection_max: int = 2_000
    """The most pointers that it chooses from one peek (Algorithm 1; the paper's value). 1 to 10^6."""

    processing_bound: int = 10_000
    """Pointers from one shard before the scanner goes on to the next (Algorithm 1). 1 to 10^6."""

    batch_pointers: int = 128
    """Pointers in one call to a manager, and in one transaction of it. 1 to 1,000. All commits of a store wait for one
    another, and many small ones keep managers and workers from their work; beyond 128 that no longer shows, and a
    conflict costs more."""

    dequeue_max: int = 64
    """Items taken from a zone per visit (Algorithm 2). 1 to 1,000. What a tenant may take from others at a time; never
    more than the workers hold in reserve, so of long items a few. One visit must feed the slots until the next."""

    lease_ms: int = 10_000
    """Lease of an item. 300 to 600,000. A dead worker's items run again after this; extended while it lives."""

    pointer_lease_ms: int = 1_000
    """Lease of a contended pointer (Algorithm 2, p_duration; the paper's order of magnitude). 10 to 10,000."""

    throttle_delay_ms: int = 100
    """How long a zone waits in which only kinds at their limit are left. 1 to 60,000."""

    pause_recheck_ms: int = 5_000
    """How long a zone waits in which nothing is left that anybody here can run. 10 to 600,000."""

    poll_interval_ms: int = 10
    """The longest sleep of a scanner that found nothing. 1 to 60,000. Half of it is what it adds to the latency of an
    item; a tenth for a while after it has found something. Once nothing has happened for a hundred polls it sleeps four
    times this; on FoundationDB, where a poll is a read of every part, its sleep grows to five times this at once."""

    linger_ms: int = 2
    """How long finished items wait for others to complete with. 0 to 1,000. Saves commits; nobody waits for it."""

    drain_ms: int = 30_000
    """How long running handlers get to finish when the consumer is told to stop. 0 to an hour."""

    selection: str = "own_parts"
    """Which vested pointers a scanner takes: `own_parts`, which no other consumer takes meanwhile; or as in QuiCK
    `in_order`, which is at random but for one consumer at a time, or `random`. All of a shard's should agree."""

    in_order_lease_ms: int = 3_000
    """For how long the coordinator lets one scanner take pointers in order. 100 to 60,000."""

    def __post_init__(self) -> None:
        if self.selection not in SELECTIONS:
            raise BadArgument(argument="selection", value=self.selection, allowed=", ".join(SELECTIONS))
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            numbers = (int, float) if name == "selection_frac" else (int,)
            if isinstance(value, bool) or not isinstance(value, numbers):
                raise BadArgument(argument=name, value=value, allowed=f"a whole number, {low} to {high}")
            if not low <= value <= high:
                raise BadArgument(argument=name, value=value, allowed=f"{low} to {high}")
        if self.managers > self.workers:
            raise BadSettings(managers=self.managers, workers=self.workers, remedy="each manager needs a worker")
        if self.linger_ms * 6 > self.lease_ms:
            raise BadSettings(
                linger_ms=self.linger_ms, lease_ms=self.lease_ms, remedy="a lease is extended every third of it"
            )

    @property
    def all_slots(self) -> int:
        """Handlers that run at once in all workers of the consumer."""
        return self.workers * self.slots


_RANGES: dict[str, tuple[float, float]] = {
    "managers": (1, 64),
    "workers": (1, 256),
    "slots": (1, 1_000),
    "peek_max": (1, 1_000_000),
    "selection_frac": (1e-6, 1),
    "selection_max": (1, 1_000_000),
    "processing_bound": (1, 1_000_000),
    "batch_pointers": (1, 1_000),
    "dequeue_max": (1, 1_000),
    "lease_ms": (300, 600_000),
    "pointer_lease_ms": (10, 10_000),
    "throttle_delay_ms": (1, 60_000),
    "pause_recheck_ms": (10, 600_000),
    "poll_interval_ms": (1, 60_000),
    "linger_ms": (0, 1_000),
    "drain_ms": (0, 3_600_000),
    "in_order_lease_ms": (100, 60_000),
}
