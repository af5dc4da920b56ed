"""What a worker writes about itself on one shard, a second after anything happens: its timesheet and its series.

Plain bookkeeping until `write`, which is one transaction; who calls it is `custody`. Writing is also when a worker
looks whether what has run there for a second is still its own: an item that somebody cancelled is interrupted so.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import NamedTuple

from msgspec.structs import replace

from fairlead.actors.execution.in_flight import HeldItem, Phase
from fairlead.actors.execution.zone_by_zone import zone_by_zone
from fairlead.actors.handlers import Form
from fairlead.actors.messages import ItemRef
from fairlead.actors.runtime.actor_identity import Identity
from fairlead.zones.layout import Tenant
from fairlead.zones.probes import probe
from fairlead.zones.queue.progress import progress_op
from fairlead.zones.records import ItemRecord, Progress, decode
from fairlead.zones.reporting import rollups, worker_status
from fairlead.zones.reporting.completion_log import EndReason, end_reason_of
from fairlead.zones.reporting.rollups import SUM_AFTER_INTERVALS, KindRollup, Rollup, interval_of
from fairlead.zones.reporting.worker_status import RUNNING_MAX, STATUS_US, RunningItem, WorkerStatus
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

# Of how many tenants a worker keeps the handlers' time before it forgets those with least: of many small ones no sum is
# right, of those that take much it is.
TENANTS_MAX = 2_000
TENANTS_KEPT = 200
PENDING_ROLLUPS_MAX = 30  # Slots that a worker keeps for a store that does not take them: five minutes.


class PendingRollup:
    """What ends in one slot of the series. `noted`: how often something was; `written`: of that, what is stored."""

    __slots__ = ("_kinds", "_tenants", "noted", "slot", "written")

    def __init__(self, slot: int) -> None:
        self.slot = slot
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
        """Whether a row of it is stored that may have gone into the sum of its slot: another would be added to it."""
        return self.written > 0 and self.slot <= interval_of(now_us) - SUM_AFTER_INTERVALS

    def stored(self) -> Rollup:
        """Return it as it is stored."""
        tenants: dict[str, dict[str, int]] = {}
        for (app, user), run_us in self._tenants.items():
            tenants.setdefault(app, {})[user] = run_us
        return Rollup({kind: replace(rollup) for kind, rollup in self._kinds.items()}, tenants).shortened()


class Row(NamedTuple):
    """A tally as it is about to be stored, and how much it had noted then."""

    rollup: PendingRollup
    noted: int
    stored: Rollup


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """What a worker is about to write.

    `checked`: the items of which it asks whether they are still its own. `progress`: what their handlers have told.
    """

    status: WorkerStatus
    rows: Sequence[Row]
    checked: Sequence[HeldItem]
    progress: Sequence[tuple[HeldItem, Progress]]


class StatusReporter:
    """Keeps a worker's timesheet on one shard. All but what writes is called with the worker's lock held."""

    def __init__(self, shard: Shard, identity: Identity, *, incarnation: bytes, slots: int) -> None:
        self._shard = shard
        self._identity = identity
        self._incarnation = incarnation
        self._slots = slots
        self._pending_rollups: dict[int, PendingRollup] = {}  # by slot; those of which not all is stored, and the last
        self._due_us: int | None = None  # when to write; None: what was written last is still so

    def note(self, kind: str, outcome: str, count: int, *, now_us: int) -> None:
        """Count what became of attempts."""
        self._rollup(now_us).note(kind, outcome, count)

    def note_times(self, runs: Iterable[tuple[ItemRef, int]], *, now_us: int) -> None:
        """Count how long handlers have run, microseconds: once, when they have ended or are given up."""
        self._rollup(now_us).note_times(runs)

    def _rollup(self, now_us: int) -> PendingRollup:
        slot = interval_of(now_us)
        if slot not in self._pending_rollups:
            self._discard_stored(now_us)
            self._pending_rollups[slot] = PendingRollup(slot)
        self.begin(now_us)
        return self._pending_rollups[slot]

    @property
    def unwritten(self) -> bool:
        """Whether something has happened since it wrote."""
        return self._due_us is not None

    def begin(self, now_us: int) -> None:
        """Note that the worker holds something, or has done something: it is written a second later."""
        if self._due_us is None:
            self._due_us = now_us + STATUS_US

    def is_due(self, now_us: int) -> bool:
        """Say whether it is time to write. A clock that was set back does not put it off."""
        return self._due_us is not None and not 0 < self._due_us - now_us <= STATUS_US

    def status_update(self, held_items: Iterable[HeldItem], *, now_us: int) -> StatusUpdate:
        """Return what is to be written now, of all that the worker holds."""
        running = [held for held in held_items if held.phase is Phase.RUNNING and not held.job.cancelled]
        mine = sorted((held for held in running if held.ref.shard == self._shard.name), key=lambda each: each.since_us)
        reported = [(held, held.job.reported) for held in mine if held.handler.form is not Form.TRANSACTIONAL]
        progress = [(held, new) for held, new in reported if new is not None and new is not held.record.progress]
        identity = self._identity
        status = WorkerStatus(
            consumer_id=identity.consumer_id,
            host=identity.host,
            pid=identity.pid,
            slots=self._slots,
            busy=len(running),
            written_us=now_us,
            running=[_as_stored(held) for held in mine[:RUNNING_MAX]],
        )
        self._discard_stored(now_us)
        changed = [rollup for rollup in self._pending_rollups.values() if rollup.noted > rollup.written]
        rows = [Row(rollup, rollup.noted, rollup.stored()) for rollup in changed]
        self._due_us = now_us + STATUS_US if mine else None
        checked = [held for held in mine if now_us - held.since_us >= STATUS_US and not held.job.may_be_completed]
        return StatusUpdate(status, rows, checked, progress)

    def _discard_stored(self, now_us: int) -> None:
        """Forget the tallies of slots that are over, once they are stored, and what a store does not take for long."""
        slot = interval_of(now_us)
        for rollup in list(self._pending_rollups.values()):
            if (rollup.slot != slot and rollup.noted == rollup.written) or rollup.may_be_summed(now_us):
                del self._pending_rollups[rollup.slot]
        while len(self._pending_rollups) > PENDING_ROLLUPS_MAX:
            del self._pending_rollups[min(self._pending_rollups)]

    def note_written(self, status_update: StatusUpdate) -> None:
        """Note that an account is stored. What was noted since is told by the next."""
        for row in status_update.rows:
            row.rollup.written = row.noted

    def write(self, status_update: StatusUpdate) -> list[HeldItem]:
        """Write the sheet and the rows; return those of the `checked` items that are not this worker's any more.

        Blind writes and snapshot reads: it conflicts with nothing, and may run twice.
        """

        def body(attempt: Attempt) -> list[tuple[HeldItem, bool]]:
            tr = attempt.tr
            for row in status_update.rows:
                rollups.write(tr, self._incarnation, row.rollup.slot, row.stored)
            worker_status.write(tr, self._incarnation, status_update.status)
            locations = [self._shard.layout.location(held.ref.tenant, held.ref.zone) for held in status_update.checked]
            reads = [
                tr.snapshot.get(location.keys.item(held.ref.item_id))
                for location, held in zip(locations, status_update.checked, strict=True)
            ]
            checks = zip(status_update.checked, reads, strict=True)
            return [(held, read.value is None) for held, read in checks if not _is_held(held, read.value)]

        found = self._shard.transact(body)
        return [held for held, gone in found if not (gone and self._has_completed(held))]

    def _has_completed(self, held: HeldItem) -> bool:
        """Say whether the handler of an item that is gone may have completed it, and not somebody cancelled it.

        A Ray task that does may go on, and nobody here hears of it. So the item's end is looked up, once.
        """
        if held.handler.form is not Form.REMOTE:
            return False
        location = self._shard.layout.location(held.ref.tenant, held.ref.zone)
        how = self._shard.transact(lambda attempt: end_reason_of(attempt.tr, location, held.ref.item_id))
        held.job.completing = how is not EndReason.CANCELLED
        return held.job.completing

    def write_progress(self, reported: Sequence[tuple[HeldItem, Progress]]) -> None:
        """Write what handlers have told into their items' records, which it reads with conflict. May run twice."""
        new = {(held.ref.tenant, held.ref.zone, held.ref.item_id): progress for held, progress in reported}

        def body(attempt: Attempt) -> None:
            zone_by_zone(
                self._shard,
                [held.ref for held, _ in reported],
                lambda zone, held: progress_op(
                    attempt.tr,
                    zone.location,
                    [(holding, new[zone.location.tenant, zone.location.name, holding[0]]) for holding in held],
                ),
            )

        self._shard.transact(self._shard.in_exclusive_section(body))
        for held, progress in reported:
            held.record.progress = progress


def _is_held(held: HeldItem, stored: bytes | None) -> bool:
    record = None if stored is None else decode(ItemRecord, stored)
    if record is not None and record.lease_id == held.ref.lease_id:
        return True
    probe("a worker sees that an item which runs is not its own any more")
    return False


def _as_stored(held: HeldItem) -> RunningItem:
    ref, job = held.ref, held.job
    return RunningItem(
        *ref.tenant,
        ref.zone,
        ref.item_id,
        ref.kind,
        job.attempt,
        held.since_us,
        held.lease_until_us,
        job.reported or held.record.progress,
    )
