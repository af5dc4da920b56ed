"""Worker status: what each worker writes about itself every second or so, for people.

    (ROOT, WORKER_STATUS, worker's incarnation) -> where the worker runs, its slots, and its longest running items

Soft state, like a consumer session: whether an item runs, and who leases it, is in the item's own record. Without this,
finding the running items would take a search through all queues. `rollups` has what the workers have done over time.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.keyspace import ROOT, WORKER_STATUS, pack_bytes, pack_int, range_begin, range_end
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.records import Count, Progress, TimeUs, pack_value, unpacked

STATUS_US = 1_000_000  # How often an active worker writes.
LIVE_US = 5_000_000  # Running items in an older status are those of a dead worker.
RETENTION_US = 60_000_000
RUNNING_MAX = 50  # In one status, those that have run longest.

_PREFIX = ROOT + pack_int(WORKER_STATUS)


class RunningItem(msgspec.Struct, array_like=True, gc=False):
    """A running item. Times in microseconds since the epoch, by the worker's clock.

    `zone`: where it is, or, if it lies in an external store, the zone of its pointer.
    """

    app: str
    user: str
    zone: str
    item_id: bytes
    kind: str
    attempt: Count
    since_us: TimeUs
    lease_until_us: TimeUs
    progress: Progress | None = None

    @property
    def tenant(self) -> Tenant:
        """The tenant that the item belongs to."""
        return Tenant(self.app, self.user)


class WorkerStatus(msgspec.Struct, array_like=True):
    """A worker at a moment. `busy`: how many of its `slots` run an item, of any shard."""

    consumer_id: bytes
    host: str
    pid: int
    slots: int
    busy: int
    written_us: TimeUs
    running: list[RunningItem]


class RunningAt(NamedTuple):
    """A running item, and the status of the worker that runs it."""

    status: WorkerStatus
    item: RunningItem


_decoder = msgspec.msgpack.Decoder(WorkerStatus)


def write(tr: Transaction, incarnation: bytes, status: WorkerStatus) -> None:
    """Write a worker's status, in place of the former one. A blind write; may run twice."""
    tr.set(_PREFIX + pack_bytes(incarnation), pack_value(status))


def read(tr: Reader, *, now_us: int, statuses_max: int = 1_000) -> list[WorkerStatus]:
    """Return the status of each worker that has written lately, or runs nothing. Snapshot reads."""
    rows = tr.snapshot.get_range(range_begin(_PREFIX), range_end(_PREFIX), limit=statuses_max, streaming_mode=WANT_ALL)
    statuses = [status for row in rows if (status := unpacked(_decoder, row.value)) is not None]
    return [status for status in statuses if not status.running or now_us - status.written_us <= LIVE_US]


def longest_running(statuses: Sequence[WorkerStatus], *, items_max: int) -> list[RunningAt]:
    """Return the running items, the longest running first."""
    running = [RunningAt(status, item) for status in statuses for item in status.running]
    return sorted(running, key=lambda each: (each.item.since_us, each.item.item_id))[:items_max]


def clear_old(tr: Transaction, *, now_us: int, keys_max: int) -> None:
    """Clear up to `keys_max` statuses that are older than a minute. Snapshot reads; may run twice."""
    rows = tr.snapshot.get_range(range_begin(_PREFIX), range_end(_PREFIX), limit=keys_max, streaming_mode=WANT_ALL)
    for row in rows:
        status = unpacked(_decoder, row.value)
        if status is not None and now_us - status.written_us > RETENTION_US:
            tr.clear(row.key)


def is_readable(value: bytes) -> bool:
    """Say whether a value is a worker's status."""
    return unpacked(_decoder, value) is not None
