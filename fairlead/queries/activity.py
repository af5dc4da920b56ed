"""What the workers do and have done, by their own account: items that run, rates and ages over time, time used.

It is what `fairlead.zones.reporting.worker_status` and `fairlead.zones.reporting.rollups` hold: a second old at most,
or two, and gone an hour later. How many slots there are the consumers tell, with their signs of life: a worker that has
nothing to do writes no sheet.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from fairlead.zones.layout import Layout, Tenant
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.reporting import rollups, worker_status
from fairlead.zones.reporting.rollups import (
    KEPT_SLOTS,
    SLOT_US,
    KindTally,
    Slot,
    Tally,
    slot_of,
)
from fairlead.zones.reporting.worker_status import RUNNING_MAX, RunningAt, Timesheet
from fairlead.zones.shard import Shard
from fairlead.zones.top_level import sessions
from fairlead.zones.top_level.sessions import Present
from fairlead.zones.transaction_runner import Attempt

LATELY_SLOTS = 6  # A minute: a rate of now.
SHOWN_MAX = 200  # Of the items that run.
SLOTS_MIN = 30  # Drawn, even if nothing is older.


class Work(NamedTuple):
    """What the workers of a shard tell."""

    shard: str
    sheets: list[Timesheet]
    slots: list[Slot]
    consumers: list[Present]
    now_us: int

    @property
    def running(self) -> int:
        """How many items run; of a worker that runs more than it can list, as many as it runs in all."""
        return sum(max(len(each.running), each.busy if len(each.running) == RUNNING_MAX else 0) for each in self.sheets)


class RunningOn(NamedTuple):
    """An item that runs, on whose shard, and the sheet of its worker."""

    shard: str
    sheet: Timesheet
    item: worker_status.Running


class OverTime(NamedTuple):
    """Numbers over time, one per slot, for drawing; of a slot of which nothing is known None.

    `times_s`: when each slot begins, seconds since the epoch. Rates are per second, ages in seconds.
    """

    times_s: list[int]
    completed_per_s: list[float]
    retried_per_s: list[float]
    failed_per_s: list[float]
    waiting: list[int | None]
    oldest_s: list[float | None]


def look_at_work(shard: Shard) -> Work:
    """Return what the workers of a shard tell. Snapshot reads: some hundred values, however many tenants there are.

    Raises:
      One of `shard.db.errors`: the shard cannot be read.
    """

    def body(attempt: Attempt) -> Work:
        tr, now_us = attempt.tr, attempt.now_us
        sheets, slots = worker_status.read(tr, now_us=now_us), rollups.read(tr, now_us=now_us)
        return Work(shard.name, sheets, slots, sessions.listing(tr, now_us=now_us), now_us)

    return shard.transact(body)


def longest_running(found: Sequence[Work]) -> list[RunningOn]:
    """Return what runs, the longest running first."""
    running: list[tuple[str, RunningAt]] = [
        (work.shard, each) for work in found for each in worker_status.longest_running(work.sheets, items_max=SHOWN_MAX)
    ]
    running.sort(key=lambda each: (each[1].item.since_us, each[1].item.item_id))
    return [RunningOn(shard, each.sheet, each.item) for shard, each in running[:SHOWN_MAX]]


def records_of(shards: Mapping[str, Shard], running: Sequence[RunningOn]) -> dict[bytes, ItemRecord]:
    """Return the records of items that run, by id: their names and payloads. One that has ended by now is left out.

    Raises:
      One of `shard.db.errors`: a shard cannot be read.
    """
    found: dict[bytes, ItemRecord] = {}
    for name in {each.shard for each in running}:
        some = [each.item for each in running if each.shard == name]
        found |= shards[name].transact(partial(_read_records, layout=shards[name].layout, items=some))
    return found


def _read_records(attempt: Attempt, layout: Layout, items: Sequence[worker_status.Running]) -> dict[bytes, ItemRecord]:
    places = [layout.place(each.tenant, each.zone) for each in items]
    reads = [attempt.tr.snapshot.get(place.keys.item(each.item_id)) for place, each in zip(places, items, strict=True)]
    records = [None if read.value is None else decode(ItemRecord, read.value) for read in reads]
    return {each.item_id: record for each, record in zip(items, records, strict=True) if record is not None}


def slots_of(found: Sequence[Work]) -> int | None:
    """Return how many handlers the live consumers can run at once; None: none lives, or not all of them tell."""
    slots = {one.consumer_id: one.presence.slots for work in found for one in work.consumers if one.live}
    return sum(slots.values()) if slots and all(slots.values()) else None


def over_time(found: Sequence[Work], now_us: int) -> OverTime:
    """Return the last hour of all shards together, or as much of it as there is; the slot that is not over left out."""
    over = slot_of(now_us) - 1
    slots = [slot for work in found for slot in work.slots if over - KEPT_SLOTS < slot.number <= over]
    first = min([slot.number for slot in slots] + [over - SLOTS_MIN + 1])
    by_number: dict[int, list[Slot]] = {number: [] for number in range(first, over + 1)}
    for slot in slots:
        by_number[slot.number].append(slot)
    seconds = SLOT_US / 1e6
    numbers = OverTime([], [], [], [], [], [])
    for number, some in by_number.items():
        total = total_of(kind for slot in some for kind in slot.tally.kinds.values())
        numbers.times_s.append(number * SLOT_US // 1_000_000)
        numbers.completed_per_s.append(round(total.completed / seconds, 2))
        numbers.retried_per_s.append(round((total.retried + total.lost) / seconds, 2))
        numbers.failed_per_s.append(round((total.buried + total.dropped) / seconds, 2))
        known = [sum(slot.waiting.values()) for slot in some if slot.waiting is not None]
        numbers.waiting.append(sum(known) if known else None)
        end_us = (number + 1) * SLOT_US
        ages = [0 if slot.oldest_us is None else end_us - slot.oldest_us for slot in some if slot.waiting is not None]
        numbers.oldest_s.append(round(max(0, *ages, 0) / 1e6, 1) if ages else None)
    return numbers


def by_kind(found: Sequence[Work], now_us: int, *, slots: int = KEPT_SLOTS) -> dict[str, KindTally]:
    """Return what became of each kind's attempts within the last so many slots."""
    total = Tally({}, {})
    first = slot_of(now_us) - slots
    for work in found:
        for slot in work.slots:
            if slot.number >= first:
                total.add(Tally(slot.tally.kinds, {}))
    return total.kinds


def completed_per_s(found: Sequence[Work], now_us: int) -> float:
    """Return how many items completed in a second, over the last minute."""
    over = slot_of(now_us)
    lately = [
        kind.completed
        for work in found
        for slot in work.slots
        if over - LATELY_SLOTS <= slot.number < over
        for kind in slot.tally.kinds.values()
    ]
    return sum(lately) / (LATELY_SLOTS * SLOT_US / 1e6)


def busiest(work: Work) -> list[tuple[Tenant, int]]:
    """Return the tenants that took most of the handlers' time within the last hour, and how much, in microseconds.

    As far as is known: of each worker's slot the twenty with most of it are.
    """
    return [(Tenant(app, user), run_us) for run_us, app, user in rollups.busiest(work.slots)]


def total_of(tallies: Iterable[KindTally]) -> KindTally:
    """Return the sum of some tallies."""
    total = KindTally()
    for tally in tallies:
        total.add(tally)
    return total
