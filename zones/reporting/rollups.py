"""Rollups: what the workers of a shard have done in the last hour, in intervals of ten seconds.

They show people rates and ages over time. Nothing that must be correct depends on them.

    (ROOT, ROLLUP, FRESH, interval, worker's incarnation) -> what one worker did; overwritten during the interval
    (ROOT, ROLLUP, SUMMED, interval)                      -> what all workers did, and how much waited at its end
    (ROOT, ROLLUP, IN_STORE, interval, external store)    -> how much waited there, in the shard of its reader

Each worker writes its own row, so workers neither conflict nor share a counter. Housekeeping sums up each interval once
it is over. So the hour takes 360 values to read, however many workers there are. What waits in an external store is
written by the consumer that reads the store.
"""

from collections.abc import Iterable, Sequence
from heapq import nlargest
from typing import Any

import msgspec

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.keyspace import ROLLUP, ROOT, pack_bytes, pack_int, pack_text, range_begin, range_end, unpack_int
from fairlead.zones.layout import ShardLayout
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.records import COUNT_MAX, Count, TimeUs, pack_value, unpacked
from fairlead.zones.top_level.depth import depth, oldest_us

INTERVAL_US = 10_000_000
KEPT_INTERVALS = 360
WATCHED_INTERVALS = 6  # A minute: reading the depth and the oldest item takes some twenty reads.
SUM_AFTER_INTERVALS = 2  # By then every worker writes to a later row.
KINDS_MAX = 200  # In a row; the ends of other kinds are omitted.
TENANTS_MAX = 20  # In a row: those with most handler time.

_FRESH = ROOT + pack_int(ROLLUP) + pack_int(1)
_SUMMED = ROOT + pack_int(ROLLUP) + pack_int(2)
_IN_STORE = ROOT + pack_int(ROLLUP) + pack_int(3)


class KindRollup(msgspec.Struct, array_like=True):
    """How attempts at items of a kind ended in an interval, and how long their handlers took.

    `lost`: the lease expired, or another worker leased the item. Of workflows: `suspended`: they began to wait;
    `cancelled`: their steps were undone; `returned`: newer code began them, or they were cancelled at their end.
    """

    completed: Count = 0
    retried: Count = 0
    dead_lettered: Count = 0
    dropped: Count = 0
    lost: Count = 0
    run_us: Count = 0
    suspended: Count = 0
    cancelled: Count = 0
    returned: Count = 0

    def add(self, other: "KindRollup") -> None:
        """Add another rollup to this one."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def minus(self, earlier: "KindRollup") -> "KindRollup":
        """Return what was done after an `earlier` state of the same counts."""
        return KindRollup(*(getattr(self, name) - getattr(earlier, name) for name in self.__struct_fields__))

    @property
    def ended(self) -> int:
        """How many items left their queues."""
        return self.completed + self.dead_lettered + self.dropped + self.cancelled


class Rollup(msgspec.Struct, array_like=True):
    """What was done in an interval: by kind, and the handler time of the tenants with most of it, by (app, user)."""

    kinds: dict[str, KindRollup] = {}
    tenants: dict[str, dict[str, Count]] = {}  # app -> user -> microseconds

    def add(self, other: "Rollup") -> None:
        """Add another rollup to this one."""
        for kind, rollup in other.kinds.items():
            self.kinds.setdefault(kind, KindRollup()).add(rollup)
        for app, users in other.tenants.items():
            mine = self.tenants.setdefault(app, {})
            for user, run_us in users.items():
                mine[user] = mine.get(user, 0) + run_us

    def shortened(self) -> "Rollup":
        """Return the part that is stored: the kinds and tenants with most handler time."""
        kinds = nlargest(KINDS_MAX, self.kinds.items(), key=lambda each: (each[1].run_us, each[0]))
        tenants: dict[str, dict[str, int]] = {}
        for run_us, app, user in nlargest(TENANTS_MAX, self.by_tenant()):
            tenants.setdefault(app, {})[user] = run_us
        return Rollup(dict(kinds), tenants)

    def by_tenant(self) -> Iterable[tuple[int, str, str]]:
        """Yield handler time, app and user of each tenant."""
        return ((run_us, app, user) for app, users in self.tenants.items() for user, run_us in users.items())


class Interval(msgspec.Struct, array_like=True):
    """An interval of ten seconds.

    `waiting`: items in all queues by kind, about at its end; items of kinds beyond the first `KINDS_MAX` under "". If
    there are more kinds than `depth` reads, only those that it reads. `oldest_us`: since when the oldest item waited
    then. Both None in intervals that are not summed up yet.
    """

    number: Count
    rollup: Rollup
    waiting: dict[str, int] | None = None
    oldest_us: TimeUs | None = None


class StoreDepth(msgspec.Struct, array_like=True):
    """How much waited in an external store. `kinds`: items by kind, of those that were counted. See `Interval`."""

    kinds: dict[str, int]
    oldest_us: TimeUs | None = None


_depths = msgspec.msgpack.Decoder(StoreDepth)
_rollups = msgspec.msgpack.Decoder(Rollup)
_intervals = msgspec.msgpack.Decoder(Interval)


def interval_of(now_us: int) -> int:
    """Return the number of the interval that contains a time."""
    return now_us // INTERVAL_US


def write(tr: Transaction, incarnation: bytes, interval: int, rollup: Rollup) -> None:
    """Write what a worker has done in an interval so far, in place of its earlier row. A blind write."""
    tr.set(_FRESH + pack_int(interval) + pack_bytes(incarnation), pack_value(rollup.shortened()))


def read(tr: Reader, *, now_us: int, intervals_max: int = KEPT_INTERVALS) -> list[Interval]:
    """Return the last intervals in order; intervals without rows are omitted. Snapshot reads."""
    first = interval_of(now_us) - intervals_max + 1
    snapshot = tr.snapshot
    summed = snapshot.get_range(_SUMMED + pack_int(first), range_end(_SUMMED), streaming_mode=WANT_ALL)
    fresh = snapshot.get_range(_FRESH + pack_int(first), range_end(_FRESH), streaming_mode=WANT_ALL)
    intervals = {
        interval.number: interval for row in summed if (interval := unpacked(_intervals, row.value)) is not None
    }
    for number, all_rollups in _by_interval(fresh).items():
        interval = intervals.setdefault(number, Interval(number, Rollup({}, {})))
        for rollup in all_rollups:
            interval.rollup.add(rollup)
    return [intervals[number] for number in sorted(intervals)]


def write_depth(tr: Transaction, store: str, interval: int, found: StoreDepth) -> None:
    """Write how much waits in an external store in an interval, and clear what is older than an hour. Blind writes."""
    shortened = StoreDepth(_shortened(dict(found.kinds)), found.oldest_us)
    tr.set(_IN_STORE + pack_int(interval) + pack_text(store), pack_value(shortened))
    tr.clear_range(range_begin(_IN_STORE), _IN_STORE + pack_int(interval - KEPT_INTERVALS))


def read_depths(tr: Reader, *, now_us: int) -> dict[int, list[StoreDepth]]:
    """Return how much waited in external stores in the last intervals, one for each store. Snapshot reads."""
    first = interval_of(now_us) - KEPT_INTERVALS + 1
    found: dict[int, list[StoreDepth]] = {}
    for row in tr.snapshot.get_range(_IN_STORE + pack_int(first), range_end(_IN_STORE), streaming_mode=WANT_ALL):
        interval, waiting = unpack_int(row.key, len(_IN_STORE)), unpacked(_depths, row.value)
        if interval is not None and waiting is not None:
            found.setdefault(interval[0], []).append(waiting)
    return found


def sum_up(tr: Transaction, layout: ShardLayout, *, now_us: int) -> bool:
    """Sum up the intervals that are over, and clear old ones; False if this has been done for the last one.

    One snapshot read if there is nothing to do. Otherwise reads with conflict what it sums up: of two concurrent calls
    one does it.

    Where reads are expensive, several intervals are summed up together, and sleeping queues are not read.
    """
    over = interval_of(now_us) - SUM_AFTER_INTERVALS
    if layout.is_watched:
        over -= over % WATCHED_INTERVALS
    if tr.snapshot.get(_SUMMED + pack_int(over)).present():
        return False
    end = _FRESH + pack_int(over + 1)
    rows = list(tr.get_range(range_begin(_FRESH), end, streaming_mode=WANT_ALL))
    tr.add_read_conflict_key(_SUMMED + pack_int(over))
    by_interval = _by_interval(rows)
    by_interval.setdefault(over, [])
    waiting = _shortened(depth(tr, layout).kinds)
    oldest = oldest_us(tr, layout, now_us, asleep=not layout.is_watched)
    for number, all_rollups in by_interval.items():
        key = _SUMMED + pack_int(number)
        stored = tr.get(key).value
        interval = None if stored is None else unpacked(_intervals, stored)
        if interval is None:
            interval = Interval(number, Rollup({}, {}), waiting, oldest)
        for rollup in all_rollups:
            interval.rollup.add(rollup)
        interval.rollup = interval.rollup.shortened()
        tr.set(key, pack_value(interval))
    tr.clear_range(range_begin(_FRESH), end)
    tr.clear_range(range_begin(_SUMMED), _SUMMED + pack_int(over - KEPT_INTERVALS))
    return True


def busiest(intervals: Sequence[Interval]) -> list[tuple[int, str, str]]:
    """Return handler time in microseconds, app and user of the tenants with most of it in these intervals."""
    total = Rollup({}, {})
    for interval in intervals:
        total.add(Rollup({}, interval.rollup.tenants))
    return nlargest(TENANTS_MAX, total.by_tenant())


def _by_interval(rows: Iterable[Any]) -> dict[int, list[Rollup]]:
    by_interval: dict[int, list[Rollup]] = {}
    for row in rows:
        interval = unpack_int(row.key, len(_FRESH))
        rollup = unpacked(_rollups, row.value)
        if rollup is not None and interval is not None:
            by_interval.setdefault(interval[0], []).append(rollup)
    return by_interval


def _shortened(waiting: dict[str, int]) -> dict[str, int]:
    """Return the part of a depth that is stored: a value is bounded, the number of kinds is not.

    Nor are the numbers: a damaged count is any 64-bit number, and two of them exceed what a record can hold.
    """
    most = dict(nlargest(KINDS_MAX, waiting.items(), key=lambda each: (each[1], each[0])))
    rest = sum(waiting.values()) - sum(most.values())
    return {
        kind: max(-COUNT_MAX, min(count, COUNT_MAX)) for kind, count in ({**most, "": rest} if rest else most).items()
    }
