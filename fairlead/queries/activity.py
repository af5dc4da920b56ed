"""What workers do and have done, as they report it: running items, rates and ages over time, handlers' time.

The source is `fairlead.zones.reporting.worker_status` and `fairlead.zones.reporting.rollups`: at most two seconds old,
and kept for an hour. The number of slots comes from the consumers' heartbeats, since an idle worker writes no status.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from fairlead.queries.per_shard import query_each_shard
from fairlead.shards import Shards
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.errors import QueueError
from fairlead.zones.external.inspection import InspectedStore
from fairlead.zones.external.names import external_zone
from fairlead.zones.layout import ShardLayout, Tenant
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.reporting import rollups, worker_status
from fairlead.zones.reporting.rollups import (
    INTERVAL_US,
    KEPT_INTERVALS,
    Interval,
    KindRollup,
    Rollup,
    StoreDepth,
    interval_of,
)
from fairlead.zones.reporting.worker_status import RUNNING_MAX, RunningAt, WorkerStatus
from fairlead.zones.shard import Shard
from fairlead.zones.top_level import sessions
from fairlead.zones.top_level.sessions import ListedSession
from fairlead.zones.transaction_runner import Attempt

RECENT_SLOTS = 6  # A minute: a rate of now.
SHOWN_MAX = 200  # Running items.
PAYLOAD_BYTES_MAX = 1_000  # Of an item in an external store that is listed: a longer one is not read.
SLOTS_MIN = 30  # Drawn at least, even if there is no older slot.


class Activity(NamedTuple):
    """What the workers of a shard report.

    `in_stores`: how much waited in external stores, by interval, of the stores whose readers save on this shard.
    """

    shard: str
    statuses: list[WorkerStatus]
    slots: list[Interval]
    consumers: list[ListedSession]
    now_us: int
    in_stores: Mapping[int, Sequence[StoreDepth]] = MappingProxyType({})

    @property
    def running(self) -> int:
        """How many items run. A worker that runs more than it can list reports its total."""
        return sum(
            max(len(each.running), each.busy if len(each.running) == RUNNING_MAX else 0) for each in self.statuses
        )


class RunningItem(NamedTuple):
    """A running item, the shard where its tenant lives, and the status of its worker."""

    shard: str
    status: WorkerStatus
    item: worker_status.RunningItem

    @property
    def store(self) -> str | None:
        """The external store where it lies; None: it lies in its shard."""
        found = external_zone(self.item.zone)
        return None if found is None else found.store

    @property
    def zone(self) -> str:
        """The name of its queue."""
        found = external_zone(self.item.zone)
        return self.item.zone if found is None else found.zone


class ChartData(NamedTuple):
    """Numbers over time for charts, one per slot; None for a slot without data.

    `times_s`: when each slot begins, seconds since the epoch. Rates are per second, ages in seconds.
    """

    times_s: list[int]
    completed_per_s: list[float]
    retried_per_s: list[float]
    failed_per_s: list[float]
    waiting: list[int | None]
    oldest_s: list[float | None]


def read_activity(shard: Shard) -> Activity:
    """Return what the workers of a shard report. Snapshot reads of some hundred values, for any number of tenants.

    Raises:
      One of `shard.db.errors`: the shard cannot be read.
    """

    def body(attempt: Attempt) -> Activity:
        tr, now_us = attempt.tr, attempt.now_us
        statuses, slots = worker_status.read(tr, now_us=now_us), rollups.read(tr, now_us=now_us)
        in_stores = rollups.read_depths(tr, now_us=now_us)
        return Activity(shard.name, statuses, slots, sessions.listing(tr, now_us=now_us), now_us, in_stores)

    return shard.transact(body)


def longest_running(found: Sequence[Activity]) -> list[RunningItem]:
    """Return the running items, the longest running first."""
    running: list[tuple[str, RunningAt]] = [
        (activity.shard, each)
        for activity in found
        for each in worker_status.longest_running(activity.statuses, items_max=SHOWN_MAX)
    ]
    running.sort(key=lambda each: (each[1].item.since_us, each[1].item.item_id))
    return [RunningItem(shard, each.status, each.item) for shard, each in running[:SHOWN_MAX]]


def find_running(shards: Shards, tenant: Tenant, zone: str, item_id: bytes) -> RunningItem | None:
    """Return an item that runs, as its worker reports; None: none does, or others of that worker have run longer.

    Looks on each shard that can be read: a tenant may have moved since the item began.

    Args:
      zone: as in `worker_status.RunningItem`.
    """
    address = (*tenant, zone, item_id)
    found = [
        RunningItem(each.shard, status, item)
        for each in query_each_shard(shards, _read_statuses)
        for status in each.found or ()
        for item in status.running
        if (item.app, item.user, item.zone, item.item_id) == address
    ]
    return max(found, key=lambda each: each.item.since_us, default=None)


def _read_statuses(shard: Shard) -> list[WorkerStatus]:
    return shard.transact(lambda attempt: worker_status.read(attempt.tr, now_us=attempt.now_us))


def records_of(
    shards: Mapping[str, Shard], stores: Mapping[str, InspectedStore], running: Sequence[RunningItem], *, now_us: int
) -> dict[bytes, ItemRecord]:
    """Return the records of running items, by id: their names and payloads.

    An item that has ended is left out. So are those of an external store that cannot be read, or is not in `stores`.

    Raises:
      One of `shard.db.errors`: a shard cannot be read.
    """
    found: dict[bytes, ItemRecord] = {}
    for name in {each.shard for each in running}:
        some = [each.item for each in running if each.shard == name and each.store is None]
        found |= shards[name].transact(partial(_read_records, layout=shards[name].layout, items=some))
    in_stores = {each.store for each in running}
    for name, store in stores.items():
        if name in in_stores:
            ids = [each.item.item_id for each in running if each.store == name]
            with suppress(StoreUnavailable, QueueError):  # Away, or it refuses this role.
                items = store.find_items(ids, payload_bytes_max=PAYLOAD_BYTES_MAX, now_us=now_us)
                found |= {each.id: each.record for each in items}
    return found


def _read_records(
    attempt: Attempt, layout: ShardLayout, items: Sequence[worker_status.RunningItem]
) -> dict[bytes, ItemRecord]:
    locations = [layout.location(each.tenant, each.zone) for each in items]
    reads = [
        attempt.tr.snapshot.get(location.keys.item(each.item_id))
        for location, each in zip(locations, items, strict=True)
    ]
    records = [None if read.value is None else decode(ItemRecord, read.value) for read in reads]
    return {each.item_id: record for each, record in zip(items, records, strict=True) if record is not None}


def slot_count(found: Sequence[Activity]) -> int | None:
    """Return how many handlers the live consumers can run at once; None: there are none, or one does not report it."""
    slots = {one.consumer_id: one.record.slots for activity in found for one in activity.consumers if one.live}
    return sum(slots.values()) if slots and all(slots.values()) else None


def chart_data(found: Sequence[Activity], now_us: int, *, kind: str | None = None) -> ChartData:
    """Return the last hour of all shards and stores together, without the present slot; of one kind, or of all kinds.

    The ages are those of all kinds.
    """
    over = interval_of(now_us) - 1
    slots = [slot for activity in found for slot in activity.slots if over - KEPT_INTERVALS < slot.number <= over]
    first = min([slot.number for slot in slots] + [over - SLOTS_MIN + 1])
    by_number: dict[int, list[Interval]] = {number: [] for number in range(first, over + 1)}
    for slot in slots:
        by_number[slot.number].append(slot)
    seconds = INTERVAL_US / 1e6
    numbers = ChartData([], [], [], [], [], [])
    for number, some in by_number.items():
        total = total_of(rollup for slot in some for name, rollup in slot.rollup.kinds.items() if kind in (None, name))
        numbers.times_s.append(number * INTERVAL_US // 1_000_000)
        numbers.completed_per_s.append(round(total.completed / seconds, 2))
        numbers.retried_per_s.append(round((total.retried + total.lost) / seconds, 2))
        numbers.failed_per_s.append(round((total.dead_lettered + total.dropped) / seconds, 2))
        known = [StoreDepth(slot.waiting, slot.oldest_us) for slot in some if slot.waiting is not None]
        if known:  # Shards are summed up later than stores, and on a cluster more rarely.
            known += [each for activity in found for each in activity.in_stores.get(number, ())]
        numbers.waiting.append(sum(_waiting(each.kinds, kind) for each in known) if known else None)
        end_us = (number + 1) * INTERVAL_US
        ages = [0 if each.oldest_us is None else end_us - each.oldest_us for each in known]
        numbers.oldest_s.append(round(max(0, *ages, 0) / 1e6, 1) if ages else None)
    return numbers


def _waiting(waiting: Mapping[str, int], kind: str | None) -> int:
    return sum(waiting.values()) if kind is None else waiting.get(kind, 0)


def by_kind(found: Sequence[Activity], now_us: int, *, slots: int = KEPT_INTERVALS) -> dict[str, KindRollup]:
    """Return the outcomes of each kind's attempts in the last `slots`."""
    total = Rollup({}, {})
    first = interval_of(now_us) - slots
    for activity in found:
        for slot in activity.slots:
            if slot.number >= first:
                total.add(Rollup(slot.rollup.kinds, {}))
    return total.kinds


def completed_per_s(found: Sequence[Activity], now_us: int) -> float:
    """Return how many items completed per second, over the last minute."""
    over = interval_of(now_us)
    recent = [
        kind.completed
        for activity in found
        for slot in activity.slots
        if over - RECENT_SLOTS <= slot.number < over
        for kind in slot.rollup.kinds.values()
    ]
    return sum(recent) / (RECENT_SLOTS * INTERVAL_US / 1e6)


def busiest(activity: Activity) -> list[tuple[Tenant, int]]:
    """Return the tenants that used most of the handlers' time in the last hour, and how much, in microseconds.

    Each worker records the twenty tenants with most time in each slot; others are missing.
    """
    return [(Tenant(app, user), run_us) for run_us, app, user in rollups.busiest(activity.slots)]


def total_of(all_rollups: Iterable[KindRollup]) -> KindRollup:
    """Return the sum of some rollups."""
    total = KindRollup()
    for rollup in all_rollups:
        total.add(rollup)
    return total
