"""The items in flight: every item that a worker holds, and how many more items the worker wants.

Plain bookkeeping without threads, locks or a store. `Slots` owns it and calls it under its lock.
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
from fairlead.zones.external.names import place_for
from fairlead.zones.probes import probe
from fairlead.zones.records import ItemRecord

# A worker prefetches as many items as its slots process in this time. Through Ray, the way from the end of an item to
# the start of the next takes less (commit, report, scan, dequeue, commit, call). With more, an item of a quiet tenant
# waits longer. With less, slots stand empty: a flood used 81 % of them in threads with 30 ms, and 90 % with 45 ms.
PREFETCH_MS = 45
PREFETCH_MAX = 1_000  # Bounds what is lost with a worker: three batches of items without work, for two workers.
_WEIGHT = 0.05  # Weight of the newest handler time in the moving average.


class Phase(Enum):
    """Where a held item is on its way through the worker. The package's docstring shows the transitions."""

    WAITING = "waiting for a slot"
    RUNNING = "running"
    FINISHED = "its end is being committed"
    GIVEN_UP = "its handler ignores the cancellation, and its slot was replaced"


class HeldItem:
    """One item that a worker holds.

    Attributes:
      shard_name: the shard where its tenant lives, as far as the worker knows.
      place: where it is stored: there, or in an external store; see `external.names.place_for`.
      since_us: when its phase began.
      lease_until_us: until when its handler may go on, if nothing is heard from the store.
      claim_until_us, renewal_us: when its claim ends, and from when on it is renewed; 0: its lease is none.
      running_for, cancelled_for: how long its handler has run, and has been cancelled; None: not yet.
      committing: the commits of the thread that runs its handler.
      began_us, ended_us: when its handler began and ended; 0: not yet, or never.
      result: what its handler returned, packed, if its kind keeps results or it is a child of a workflow.
      timed_out: it was cancelled because it ran past its timeout.
      error: what its handler raised.
      failure: what that error means, unless the item was cancelled before.
      open_steps: transactions of its handler that read the item's record with conflict; nobody writes the record then.
      ending: its handler commits, or has committed, what becomes of the item.
      concluded: whether that was decided. If not, the code around the handler has failed.
    """

    __slots__ = (
        "_store",
        "_waited",
        "began_us",
        "cancelled_for",
        "claim_until_us",
        "committing",
        "concluded",
        "ended_us",
        "ending",
        "error",
        "failure",
        "handler",
        "job",
        "lease_until_us",
        "open_steps",
        "phase",
        "record",
        "ref",
        "renewal_us",
        "result",
        "running_for",
        "shard_name",
        "since_us",
        "timed_out",
    )  # fmt: skip

    def __init__(self, ref: ItemRef, record: ItemRecord, handler: Handler, job: Job, now_us: int) -> None:
        self.ref = ref
        self.shard_name = ref.shard
        self._store = place_for("", ref.zone)
        self.record = record
        self.handler = handler
        self.job = job
        self.phase = Phase.WAITING
        self.since_us = now_us
        self.lease_until_us = record.vesting_us
        self.claim_until_us = self.renewal_us = 0
        self._waited: Elapsed | None = None  # Made at the first question. Most items start before.
        self.running_for: Elapsed | None = None
        self.cancelled_for: Elapsed | None = None
        self.committing = CommitTracker()
        job.keeps_result_us = handler.result_ms * 1000
        self.began_us = 0
        self.ended_us = 0
        self.result: bytes | None = None
        self.timed_out = False
        self.error: BaseException | None = None
        self.failure: Failure | None = None
        self.concluded = False
        self.open_steps = 0
        self.ending = False

    @property
    def place(self) -> str:
        """See the class."""
        return self._store or self.shard_name

    def waited_us(self, now_us: int) -> int:
        """Return how long it has waited for its slot, as far as this was called meanwhile."""
        if self._waited is None:
            self._waited = Elapsed(self.since_us)
        return self._waited.by(now_us)

    def begin(self, now_us: int) -> None:
        """Note that its handler begins. Its timeout counts from here: the start's own transaction does not count."""
        self.running_for = Elapsed(now_us)
        if not self.job.cancelled:
            self.began_us = now_us

    def may_run(self, now_us: int) -> bool:
        """Say whether its handler may start, or start again, under the lease that it has."""
        return not self.job.cancelled and now_us < self.lease_until_us

    @property
    def is_ending(self) -> bool:
        """Whether its handler has returned, or its end is being committed in a transaction of the handler."""
        if self.ending:
            return True
        if self.phase is Phase.RUNNING and self.committing.in_progress:
            return self.handler.form is Form.TRANSACTIONAL or self.job.completing
        return self.phase is Phase.FINISHED

    def cancel(self, now_us: int) -> None:
        """Show its handler that the item is lost. Interrupt the handler if its form allows that."""
        if not self.job.cancelled:
            self.cancelled_for = Elapsed(now_us)
            self.job.cancel()


class InFlight:
    """The items of one worker.

    Args:
      slots: how many handlers run at once.
      incarnation: the name of this incarnation of the worker; see `Host.incarnation`.
      isolates: whether an item starts only when the end of the item before it has been committed. Such a worker wants
        one item at a time and prefetches none.
    """

    def __init__(self, *, slots: int, incarnation: bytes, isolates: bool = False) -> None:
        self.waiting: deque[HeldItem] = deque()
        self._held: dict[ItemRef, HeldItem] = {}  # By the whole reference: two tenants may use the same item id.
        self._slots = slots
        self._incarnation = incarnation
        self._isolates = isolates
        self._progress = 0
        self._kinds: dict[str, int] = {}
        self._returning: dict[HeldItem, None] = {}
        self._mean_us = PREFETCH_MS * 1000.0
        self.accepting = True

    def __iter__(self) -> Iterator[HeldItem]:
        return iter(list(self._held.values()))

    def __len__(self) -> int:
        return len(self._held)

    def accept(self, held: HeldItem) -> bool:
        """Accept an item. False: it is held already, because a message came twice."""
        if held.ref in self._held:
            probe("a worker is sent an item twice")
            return False
        self._held[held.ref] = held
        self.waiting.append(held)
        self._kinds[held.ref.kind] = self._kinds.get(held.ref.kind, 0) + 1
        return True

    def next_to_run(self, now_us: int) -> HeldItem | None:
        """Return the next item to start, or None if none may start now. Items start in the order of their arrival.

        In isolation an item starts when every item that started before it has left. So when an item ends the process,
        the ends of the items before it are committed, and none of them is taken for the cause.
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
        """Note that the handler of a running item has ended."""
        self._mean_us += (max(0, now_us - held.since_us) - self._mean_us) * _WEIGHT
        held.phase = Phase.FINISHED
        held.ended_us = now_us

    def begin_return(self, held: HeldItem, now_us: int) -> None:
        """Forget an item that found no slot and is returned.

        Its lease lasts until the return is committed, so it counts in its kind until `note_returned`. The handlers that
        occupy the slots take at least as long as it has waited: the worker prefetches less from now on.
        """
        self._mean_us = max(self._mean_us, float(now_us - held.since_us))
        self._returning[held] = None
        self.drop(held)

    def note_returned(self, items: Iterable[HeldItem]) -> None:
        """Note that the return of items was committed, or was refused: then their leases expire."""
        for held in items:
            if held in self._returning:
                del self._returning[held]
                self._kinds[held.ref.kind] -= 1
                self._progress += 1

    def give_up(self, held: HeldItem) -> None:
        """Forget a running item whose handler ignores its cancellation."""
        held.phase = Phase.GIVEN_UP
        self.drop(held)

    def drop(self, held: HeldItem) -> None:
        """Forget an item whose end is committed, or that is returned or lost."""
        if self._held.pop(held.ref, None) is None:
            return
        # A traceback refers to the item: this cycle would keep payloads in memory for long.
        held.error = None
        if not held.timed_out:  # Else the completer still needs it for the requeue after the timeout.
            held.failure = None
        if held.phase is Phase.WAITING:
            self.waiting.remove(held)
        if held not in self._returning:
            self._kinds[held.ref.kind] -= 1
        self._progress += 1

    @property
    def returning(self) -> list[HeldItem]:
        """The items that found no slot, and whose return has not ended."""
        return list(self._returning)

    @property
    def in_flight_limit(self) -> int:
        """How many items the worker wants to hold: one per slot, and the prefetch."""
        if not self.accepting:
            return 0
        if self._isolates:
            return 1
        prefetch = int(self._slots * PREFETCH_MS * 1000 / max(self._mean_us, 1.0))
        return self._slots + min(prefetch, PREFETCH_MAX)

    @property
    def progress(self) -> int:
        """Counts the items that have left, and the returns that have ended."""
        return self._progress

    def report(self) -> Report:
        """Return what the manager gets in each reply."""
        return Report(self._incarnation, self.in_flight_limit, len(self._held), self._progress, dict(self._kinds))


P = TypeVar("P", ItemRef, HeldItem)


def by_place(items: Iterable[P]) -> dict[str, list[P]]:
    """Group references by where their items are stored, or held items by where they are stored now."""
    groups: dict[str, list[P]] = {}
    for item in items:
        name = item.place if isinstance(item, HeldItem) else place_for(item.shard, item.zone)
        groups.setdefault(name, []).append(item)
    return groups
