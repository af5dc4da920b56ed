"""What a worker holds: every accepted item from its arrival to its settlement, and how much more it wants.

Plain bookkeeping, without threads or a store: the worker calls it under its lock. An item waits for a slot, runs,
is finished, and leaves when its completion or requeue has been committed.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import TypeVar

from fairlead.actors.execution.failed_attempt import Failure
from fairlead.actors.execution.job import Job
from fairlead.actors.handlers import Form, Handler
from fairlead.actors.messages import ItemRef, Report
from fairlead.zones.elapsed import Elapsed
from fairlead.zones.engines.api.committing import CommitTracker
from fairlead.zones.probes import probe
from fairlead.zones.records import ItemRecord

# A worker holds as much in reserve as its slots work off in this time: more than passes, through Ray, from the end of
# an item to the start of the one that takes its place (commit, report, scan, visit, commit, call). Behind more, a light
# tenant's item waits longer; with less, slots stand empty: a flood used 0.81 of them in threads with 30, with 45 0.90.
PREFETCH_MS = 45
PREFETCH_MAX = 1_000  # Bounds what is lost with a worker. Three batches of items that do nothing, to two workers.
_WEIGHT = 0.05  # Of the newest handler time in the running mean.


class Phase(Enum):
    """Where a held item is on its way through the worker."""

    WAITING = "waiting for a slot"
    RUNNING = "running"
    FINISHED = "its end is being committed"
    GIVEN_UP = "its handler does not listen; its slot was replaced"


class HeldItem:
    """One item that a worker holds."""

    __slots__ = (
        "_waited",
        "began_us",
        "cancelled_for",
        "committing",
        "concluded",
        "ended_us",
        "error",
        "failure",
        "handler",
        "job",
        "lease_until_us",
        "phase",
        "record",
        "ref",
        "result",
        "running_for",
        "since_us",
        "timed_out",
    )  # fmt: skip

    def __init__(self, ref: ItemRef, record: ItemRecord, handler: Handler, job: Job, now_us: int) -> None:
        self.ref = ref
        self.record = record
        self.handler = handler
        self.job = job
        self.phase = Phase.WAITING
        self.since_us = now_us  # of the phase
        self.lease_until_us = record.vesting_us
        # How long it has waited, its handler has run, and been told to stop; None: not yet. Keeping counts.
        self._waited: Elapsed | None = None
        self.running_for: Elapsed | None = None
        self.cancelled_for: Elapsed | None = None
        self.committing = CommitTracker()  # the thread that runs its handler
        job.keeps_result_us = handler.result_ms * 1000
        self.began_us = 0  # when its handler did; 0: not yet, or never
        self.ended_us = 0
        self.result: bytes | None = None  # what its handler returned, packed, if its kind keeps it
        self.timed_out = False  # it was cancelled since it ran past its timeout
        self.error: BaseException | None = None  # what its handler raised
        self.failure: Failure | None = None  # what that comes to, unless the item was cancelled before
        self.concluded = False  # whether that has been asked; else what is around its handler has failed

    def waited_us(self, now_us: int) -> int:
        """Return how long it has waited for its slot, as far as that was asked. Most items start before it is."""
        if self._waited is None:
            self._waited = Elapsed(self.since_us)
        return self._waited.by(now_us)

    def begin(self, now_us: int) -> None:
        """Note that its handler begins: its time runs from now, not from when the store was asked for the lease."""
        self.running_for = Elapsed(now_us)
        if not self.job.cancelled:
            self.began_us = now_us

    def may_run(self, now_us: int) -> bool:
        """Say whether its handler may start, or start again, under the lease that it has."""
        return not self.job.cancelled and now_us < self.lease_until_us

    @property
    def is_ending(self) -> bool:
        """Whether its handler has returned, or its completion is being committed in a transaction of the handler."""
        if self.phase is Phase.RUNNING and self.committing.in_progress:
            return self.handler.form is Form.TRANSACTIONAL or self.job.completing
        return self.phase is Phase.FINISHED

    def cancel(self, now_us: int) -> None:
        """Tell the handler that its item is lost; interrupt it if its form has a way."""
        if not self.job.cancelled:
            self.cancelled_for = Elapsed(now_us)
            self.job.cancel()


class InFlight:
    """The items of one worker.

    Args:
      slots: how many run at once.
      incarnation: tells this life of the worker from an earlier one.
      isolates: whether an item starts only when the end of the one before it has been committed. Such a worker wants
        one item at a time, and nothing in reserve.
    """

    def __init__(self, *, slots: int, incarnation: bytes, isolates: bool = False) -> None:
        self.waiting: deque[HeldItem] = deque()
        self._held: dict[ItemRef, HeldItem] = {}  # by the whole: two tenants may give their items the same name
        self._slots = slots
        self._incarnation = incarnation
        self._isolates = isolates
        self._progress = 0
        self._kinds: dict[str, int] = {}
        self._returning: set[HeldItem] = set()
        self._mean_us = PREFETCH_MS * 1000.0
        self.accepting = True

    def __iter__(self) -> Iterator[HeldItem]:
        return iter(list(self._held.values()))

    def __len__(self) -> int:
        return len(self._held)

    def accept(self, held: HeldItem) -> bool:
        """Take an item in; False if it is held already (a message that came twice)."""
        if held.ref in self._held:
            probe("a worker is sent an item twice")
            return False
        self._held[held.ref] = held
        self.waiting.append(held)
        self._kinds[held.ref.kind] = self._kinds.get(held.ref.kind, 0) + 1
        return True

    def next_to_run(self, now_us: int) -> HeldItem | None:
        """Return the next item to start, or None if none may start now. Items start in the order they came.

        In isolation one starts when all that started before it has left: if it takes the worker down, the ends of the
        others are committed, and nobody takes another for what killed the worker.
        """
        if not self.waiting:
            return None
        if self._isolates and len(self.waiting) < len(self._held):
            return None
        held = self.waiting.popleft()
        held.phase = Phase.RUNNING
        held.since_us = now_us
        return held

    def finish(self, held: HeldItem, now_us: int) -> None:
        """Note that a running item's handler has ended."""
        self._mean_us += (max(0, now_us - held.since_us) - self._mean_us) * _WEIGHT
        held.phase = Phase.FINISHED
        held.ended_us = now_us

    def begin_return(self, held: HeldItem, now_us: int) -> None:
        """Forget an item that found no slot and goes back.

        Its lease stands until that is committed, so it counts in its kind until `note_returned`. As long as it waited,
        at least, the handlers take that fill the slots.
        """
        self._mean_us = max(self._mean_us, float(now_us - held.since_us))
        self._returning.add(held)
        self.drop(held)

    def note_returned(self, items: Iterable[HeldItem]) -> None:
        """Note that items have gone back, or were left to lapse."""
        for held in items:
            if held in self._returning:
                self._returning.remove(held)
                self._kinds[held.ref.kind] -= 1
                self._progress += 1

    def give_up(self, held: HeldItem) -> None:
        """Stop counting on a running handler that does not listen."""
        held.phase = Phase.GIVEN_UP
        self.drop(held)

    def drop(self, held: HeldItem) -> None:
        """Forget an item: settled, given back, or lost."""
        if self._held.pop(held.ref, None) is None:
            return
        # A traceback leads back to the item: a circle, in which payloads would stay for long.
        held.error = held.failure = None
        if held.phase is Phase.WAITING:
            self.waiting.remove(held)
        if held not in self._returning:
            self._kinds[held.ref.kind] -= 1
        self._progress += 1

    @property
    def in_flight_limit(self) -> int:
        """How many items the worker wants to hold: one per slot, and what it works off in a moment."""
        if not self.accepting:
            return 0
        if self._isolates:
            return 1
        prefetch = int(self._slots * PREFETCH_MS * 1000 / max(self._mean_us, 1.0))
        return self._slots + min(prefetch, PREFETCH_MAX)

    @property
    def progress(self) -> int:
        """Counts the items that have left, and those that have gone back."""
        return self._progress

    def report(self) -> Report:
        """Return what the manager is told."""
        return Report(self._incarnation, self.in_flight_limit, len(self._held), self._progress, dict(self._kinds))


P = TypeVar("P", ItemRef, HeldItem)


def by_shard(items: Iterable[P]) -> dict[str, list[P]]:
    """Group references or held items by the name of their shard."""
    groups: dict[str, list[P]] = {}
    for item in items:
        ref = item.ref if isinstance(item, HeldItem) else item
        groups.setdefault(ref.shard, []).append(item)
    return groups
