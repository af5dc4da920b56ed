"""How a consumer works: parameters under the names of QuiCK's algorithms, and the times of its leases.

Each has a unit, a default with its reason, and a range. `__post_init__` checks the relations between them.
"""

from dataclasses import dataclass
from typing import Annotated, Final, Literal, get_args

from msgspec import Meta

from fairlead.zones.errors import BadArgument
from fairlead.zones.settings import HOUR_MS, check_ranges

Selection = Literal["random", "in_order", "partitioned"]
SELECTIONS: Final[tuple[Selection, ...]] = get_args(Selection)


class BadSettings(BadArgument):
    """Two settings contradict each other.

    Do: change one of the two that the error names.
    """

    message = "settings contradict each other"


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """One consumer: a scanner, its managers, and their workers."""

    managers: Annotated[int, Meta(ge=1, le=64)] = 1
    """Manager actors. One keeps two workers busy; add one per two workers beyond."""

    workers: Annotated[int, Meta(ge=1, le=256)] = 2
    """Worker actors, divided among the managers. One per core."""

    slots: Annotated[int, Meta(ge=1, le=1_000)] = 16
    """Handlers that run at once in a worker. Raise it for handlers that wait."""

    peek_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 20_000
    """Vested pointers that a scanner looks at to choose from at random (Algorithm 1; the paper's value)."""

    selection_frac: Annotated[float, Meta(ge=1e-6, le=1)] = 0.02
    """The fraction of peeked pointers that it chooses (Algorithm 1; the paper's value)."""

    selection_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 2_000
    """The most pointers that it chooses from one peek (Algorithm 1; the paper's value)."""

    processing_bound: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    """Pointers from one shard before the scanner goes on to the next (Algorithm 1)."""

    batch_pointers: Annotated[int, Meta(ge=1, le=1_000)] = 128
    """Pointers in one call to a manager, and in one transaction of it. Commits to a store wait for one another, so
    many small ones delay managers and workers. More than 128 saves nothing measurable, and a conflict costs more."""

    dequeue_max: Annotated[int, Meta(ge=1, le=1_000)] = 64
    """The most items that one call to a manager takes from a tenant (Algorithm 2); the tenant's zones divide it. Never
    more than the workers prefetch. Larger: one tenant keeps the slots busy longer, and other tenants wait longer."""

    lease_ms: Annotated[int, Meta(ge=300, le=600_000)] = 10_000
    """Lease of an item. A dead worker's items run again after this; a live worker extends its leases."""

    pointer_lease_ms: Annotated[int, Meta(ge=10, le=10_000)] = 1_000
    """Lease of a contended pointer (Algorithm 2, p_duration; the paper's order of magnitude)."""

    throttle_delay_ms: Annotated[int, Meta(ge=1, le=60_000)] = 100
    """How long a zone waits if all its items are of kinds at their limit."""

    pause_recheck_ms: Annotated[int, Meta(ge=10, le=600_000)] = 5_000
    """How long a zone waits if no worker here can run any of its items."""

    poll_interval_ms: Annotated[int, Meta(ge=1, le=60_000)] = 10
    """The longest sleep of a scanner that found nothing. It adds half of this to the latency of an item, and a
    tenth of this for a while after it has found something. After a hundred polls without work it sleeps four times
    this. On FoundationDB a poll reads every part, so the sleep grows to five times this at once."""

    linger_ms: Annotated[int, Meta(ge=0, le=1_000)] = 2
    """How long a finished item waits for others, to complete in one commit with them."""

    drain_ms: Annotated[int, Meta(ge=0, le=HOUR_MS)] = 30_000
    """How long running handlers get to finish when the consumer stops."""

    selection: Selection = "partitioned"
    """How a scanner selects vested pointers. All consumers of a shard should have the same.

    `partitioned`: each consumer takes its own partition of the top-level queue. As in QuiCK: `random`, or `in_order`,
    where one consumer at a time takes pointers in order and the others at random."""

    in_order_lease_ms: Annotated[int, Meta(ge=100, le=60_000)] = 3_000
    """For how long the coordinator lets one scanner take pointers in order."""

    def __post_init__(self) -> None:
        check_ranges(self)
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
