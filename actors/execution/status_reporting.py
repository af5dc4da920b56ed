"""Status reporting: what a worker writes about itself on one shard, a second after anything happens there.

It writes the worker status (what runs now), rollups (what ended, see `ShardCounts`), and the progress that handlers
report. The same transaction checks whether each item that has run for a second still belongs to this worker. So an item
that its enqueuer has cancelled is interrupted. A workflow that is to be undone learns of it, and ends its attempt with
its next call.

Status and rollups cover the items of all tenants that live on the shard, also those in external stores. Records are
checked, and progress is written into them, where they lie in the shard.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from fairlead.actors.execution.in_flight import HeldItem, Phase
from fairlead.actors.execution.shard_counts import ShardCounts
from fairlead.actors.execution.slots import Slots
from fairlead.actors.execution.zone_by_zone import zone_by_zone
from fairlead.actors.handlers import Form
from fairlead.actors.runtime.actor_identity import Identity
from fairlead.actors.runtime.host import Host
from fairlead.zones.errors import OwnerUnreadable, TenantBusy, TenantMoved
from fairlead.zones.ownership import check_home
from fairlead.zones.probes import probe
from fairlead.zones.queue.progress import progress_op
from fairlead.zones.records import ItemRecord, Progress, decode
from fairlead.zones.reporting import rollups, worker_status
from fairlead.zones.reporting.completion_log import EndReason, end_reason_of
from fairlead.zones.reporting.rollups import Rollup
from fairlead.zones.reporting.worker_status import RUNNING_MAX, STATUS_US, RunningItem, WorkerStatus
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

log = logging.getLogger("fairlead.worker")

PROGRESS_WRITES_MAX = 256  # Items in one transaction that writes progress.


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """What a worker is about to write.

    `checked`: the items whose leases are checked. `progress`: what their handlers have reported.
    """

    status: WorkerStatus
    rows: Mapping[int, Rollup]
    checked: Sequence[HeldItem]
    progress: Sequence[tuple[HeldItem, Progress]]


class StatusReporter:
    """The status of one worker on one shard. Its loop ends soon after `stop`, with a last write.

    `on_lost`: called with items that the check has found lost, once they are cancelled.
    """

    def __init__(
        self,
        host: Host,
        shard: Shard,
        slots: Slots,
        counts: ShardCounts,
        identity: Identity,
        *,
        slot_count: int,
        on_lost: Callable[[Sequence[HeldItem]], object],
        follow: Callable[[HeldItem, TenantMoved], object],
    ) -> None:
        self._host = host
        self._shard = shard
        self._slots = slots
        self._counts = counts
        self._identity = identity
        self._slot_count = slot_count
        self._on_lost = on_lost
        self._follow = follow
        self._lock = host.lock()
        self._changed = host.condition(self._lock)
        self._ended = host.condition(self._lock)
        self._due_us: int | None = None  # When to write; None: what was written last is still true.
        self._stopping = self._has_ended = False

    def start(self) -> None:
        """Start the loop."""
        self._host.spawn("worker status", self._run)

    def stop(self) -> None:
        """Let the loop end once it has written what it has."""
        with self._lock:
            self._stopping = True
            self._changed.notify_all()

    def await_end(self, timeout_us: int) -> None:
        """Wait until the loop has ended, `timeout_us` at most."""
        with self._lock:
            if not self._has_ended:
                self._ended.wait(timeout_us / 1e6)

    def note_change(self) -> None:
        """Note that something has changed, or changes while an item runs: that is written within a second."""
        with self._lock:
            if self._due_us is None:
                self._due_us = self._host.clock.now_us() + STATUS_US
                self._changed.notify_all()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            with self._lock:
                while (wait_s := self._wait_s()) is None or wait_s > 0:
                    if self._stopping:
                        break
                    self._changed.wait(wait_s)
                is_last = self._stopping
                is_due, self._due_us = self._due_us is not None, None
            if is_due:
                self._write_all()
        with self._lock:
            self._has_ended = True
            self._ended.notify_all()

    def _wait_s(self) -> float | None:
        """Return how long to wait for the next write; None: nothing is to be written. The lock is held.

        A clock that was set back does not put it off.
        """
        if self._due_us is None:
            return None
        wait_us = self._due_us - self._host.clock.now_us()
        return wait_us / 1e6 if 0 < wait_us <= STATUS_US else 0

    def _write_all(self) -> None:
        held_items = self._slots.items()
        update = self._status_update(held_items)
        if any(held.shard_name == self._shard.name for held in held_items):
            self.note_change()
        lost: list[HeldItem] = []
        if self._succeeds(lambda: lost.extend(self._write(update))):
            self._counts.note_stored(update.rows)
        else:
            self.note_change()
        lost = [held for held in lost if not (held.job.may_be_completed or held.is_ending)]
        lost = self._slots.lose([held for held in lost if self._lives_here(held)])
        if lost:
            probe("a worker status finds a running item leased by another worker, or gone")
            self._on_lost(lost)
        for begin in range(0, len(update.progress), PROGRESS_WRITES_MAX):
            reported = update.progress[begin : begin + PROGRESS_WRITES_MAX]
            self._succeeds(partial(self._write_progress, reported))

    def _lives_here(self, held: HeldItem) -> bool:
        """Say whether the tenant of an item lives here. Otherwise the worker goes on where the tenant lives."""
        location = self._shard.layout.location(held.ref.tenant, held.ref.zone)
        try:
            return self._succeeds(lambda: self._shard.transact(lambda attempt: check_home(attempt.tr, location)))
        except OwnerUnreadable:
            return True
        except TenantMoved as moved:
            return self._follow(held, moved) is None
        except TenantBusy:
            return False

    def _status_update(self, held_items: Sequence[HeldItem]) -> StatusUpdate:
        """Return what is to be written now."""
        now_us = self._host.clock.now_us()
        running = [held for held in held_items if held.phase is Phase.RUNNING and not held.job.cancelled]
        mine = sorted((held for held in running if held.shard_name == self._shard.name), key=lambda each: each.since_us)
        stored_here = [held for held in mine if held.place == self._shard.name]
        reported = [(held, held.job.reported) for held in stored_here if held.handler.form is not Form.TRANSACTIONAL]
        identity = self._identity
        status = WorkerStatus(
            consumer_id=identity.consumer_id,
            host=identity.host,
            pid=identity.pid,
            slots=self._slot_count,
            busy=len(running),
            written_us=now_us,
            running=[_as_stored(held) for held in mine[:RUNNING_MAX]],
        )
        return StatusUpdate(
            status,
            self._counts.rows(),
            [held for held in stored_here if now_us - held.since_us >= STATUS_US and not held.job.may_be_completed],
            [(held, new) for held, new in reported if new is not None and new is not held.record.progress],
        )

    def _succeeds(self, work: Callable[[], object]) -> bool:
        """Do `work`, which writes about the worker; return whether the store committed it."""
        try:
            work()
        except self._shard.db.errors as error:
            # No warning: a disk that is nearly full may refuse a status, and still commit ends and extensions.
            log.debug("shard %s does not store this worker's status: %s", self._shard.name, error)
            return False
        return True

    def _write(self, update: StatusUpdate) -> list[HeldItem]:
        """Write the status and the rollups; return those of the `checked` items that are not this worker's any more.

        Blind writes and snapshot reads: conflicts with nothing, and may run twice.
        """

        def body(attempt: Attempt) -> list[tuple[HeldItem, ItemRecord | None, bool]]:
            tr = attempt.tr
            for interval, rollup in update.rows.items():
                rollups.write(tr, self._host.incarnation, interval, rollup)
            worker_status.write(tr, self._host.incarnation, update.status)
            locations = [self._shard.layout.location(held.ref.tenant, held.ref.zone) for held in update.checked]
            reads = [
                tr.snapshot.get(location.keys.item(held.ref.item_id))
                for location, held in zip(locations, update.checked, strict=True)
            ]
            checks = zip(update.checked, reads, strict=True)
            return [(held, _record_if_held(held, read.value), read.value is None) for held, read in checks]

        found = self._shard.transact(body)
        for held, record, _ in found:
            if record is not None and record.cancelling and not held.record.cancelling:
                probe("a worker status finds that a running workflow is to be cancelled")
                held.job.cancel_requested = True
        return [held for held, record, gone in found if record is None and not (gone and self._has_completed(held))]

    def _has_completed(self, held: HeldItem) -> bool:
        """Return whether an item that is gone was completed by its handler, and not cancelled.

        A Ray task that completes its item may go on, and its worker does not notice the completion. So the item's end
        is looked up, once.
        """
        if held.handler.form is not Form.REMOTE:
            return False
        location = self._shard.layout.location(held.ref.tenant, held.ref.zone)
        reason = self._shard.transact(lambda attempt: end_reason_of(attempt.tr, location, held.ref.item_id))
        held.job.completing = reason is not EndReason.CANCELLED
        return held.job.completing

    def _write_progress(self, reported: Sequence[tuple[HeldItem, Progress]]) -> None:
        """Write reported progress into the items' records, which it reads with conflict. May run twice."""
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


def _record_if_held(held: HeldItem, stored: bytes | None) -> ItemRecord | None:
    record = None if stored is None else decode(ItemRecord, stored)
    return record if record is not None and record.lease_id == held.ref.lease_id else None


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
