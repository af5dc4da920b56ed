"""How much waits on a shard, and since when: from counters, and from bounded ranges of the top-level queue.

Snapshot reads: the cost is the same with a million tenants, and it conflicts with nothing.
"""

from collections.abc import Iterable, Sequence
from heapq import nsmallest
from typing import NamedTuple

from fairlead.zones.engines import KeyValue, Reader
from fairlead.zones.keyspace import pack_text, range_begin, range_end, unpack_name
from fairlead.zones.layout import ShardLayout, ZoneLocation
from fairlead.zones.pipelining import run_together
from fairlead.zones.queue.dequeue_plan import Admission
from fairlead.zones.queue.index_scan import WANT_ALL, collect_vested, look_at_first_of_each_priority
from fairlead.zones.queue.stored_item import number_of
from fairlead.zones.records import POINTER_PRIORITY, PointerRecord, decode
from fairlead.zones.top_level.pointers import PointerRef, location_of

# Counts that are read, of all parts together, or of each part `KINDS_MIN`: a tenth of a second. A kind is a handler's
# name, and there are a few dozen. An application that puts users' names into kinds has as many as users.
KEYS_MAX = 8_000
KINDS_MIN = 200
OLDEST_OF = 64  # Queues that can run of which the oldest item is read: those whose pointers vested first.
POINTERS_MAX = 1_024  # Of the vested ones and of the others, each: those that vest first.
POINTERS_OF_PART_MIN = 4
BLOCKED_QUEUES_MAX = 200  # Of which the oldest item is read, and how many have vested.
BLOCKED_ITEMS_MAX = 100  # Counted in each of these.
BLOCKED = frozenset(
    {Admission.PAUSED, Admission.UNKNOWN, Admission.FULL}
)  # Outcomes of pointers whose vested items could not run.


class Backlog(NamedTuple):
    """What waits on a shard. Times in microseconds since the epoch; None: nothing does.

    Attributes:
      oldest_us: since when the oldest vested item waits, blocked or not.
      whole: whether all queues that could hold it were read; if not, an item may have waited longer.
      blocked_items: vested items that a limit, a pause or an unknown kind blocks; in `blocked_queues` queues, the
        oldest since `blocked_oldest_us`.
      blocked_whole: whether these are all; if not, there are at least so many.
    """

    oldest_us: int | None = None
    whole: bool = True
    blocked_items: int = 0
    blocked_queues: int = 0
    blocked_oldest_us: int | None = None
    blocked_whole: bool = True


class Depth(NamedTuple):
    """How many items of each kind there are. `whole`: whether these are all kinds, or the first of them by name."""

    kinds: dict[str, int]
    whole: bool


def depth(tr: Reader, layout: ShardLayout) -> Depth:
    """Return how many items of each kind are in all queues: waiting, delayed and leased ones, no dead letters.

    Of very many kinds it returns the first by name, as far as it has read the counts of all parts.
    """
    begin, end = range_begin(layout.parts[0].depth_prefix), range_end(layout.parts[-1].depth_prefix)
    first = list(tr.snapshot.get_range(begin, end, KINDS_MIN, False, WANT_ALL))
    if len(first) < KINDS_MIN:
        return _few(layout, first)
    keys_max = max(KINDS_MIN, KEYS_MAX // layout.part_count)
    ranges = [
        (
            part,
            tr.snapshot.get_range(
                range_begin(part.depth_prefix), range_end(part.depth_prefix), keys_max, False, WANT_ALL
            ),
        )
        for part in layout.parts
    ]
    found: dict[str, int] = {}
    read_to: list[bytes] = []  # The last kinds of parts that have more, packed: in the order of their counts.
    for part, rows in ranges:
        keys = 0
        for row in rows:
            keys += 1
            packed = row.key[len(part.depth_prefix) :]
            kind = unpack_name(row.key, len(part.depth_prefix))
            if kind is not None:
                found[kind] = found.get(kind, 0) + number_of(row.value)
        if keys == keys_max:
            read_to.append(packed)
    if read_to:
        last = min(read_to)
        found = {kind: count for kind, count in found.items() if pack_text(kind) <= last}
    return Depth({kind: count for kind, count in sorted(found.items()) if count}, whole=not read_to)


def _few(layout: ShardLayout, rows: Sequence[KeyValue]) -> Depth:
    """Return the depth from the counts of all parts, which follow each other."""
    found: dict[str, int] = {}
    prefixes = [part.depth_prefix for part in layout.parts]
    for row in rows:
        prefix = next((each for each in prefixes if row.key.startswith(each)), None)
        kind = None if prefix is None else unpack_name(row.key, len(prefix))
        if kind is not None:
            found[kind] = found.get(kind, 0) + number_of(row.value)
    return Depth({kind: count for kind, count in sorted(found.items()) if count}, whole=True)


def oldest_us(tr: Reader, layout: ShardLayout, now_us: int, *, asleep: bool = True) -> int | None:
    """Return since when the oldest item waits, blocked or not; None: none does. See `Backlog.oldest_us`.

    `asleep`: whether to look at queues whose pointers sleep, too, since all their vested items may be blocked.
    """
    seen = _look_at_queues(tr, layout, now_us, paused=False, asleep=asleep)
    return oldest_of(tr, [*seen.awake, *seen.blocked], now_us)


def backlog(tr: Reader, layout: ShardLayout, now_us: int, *, paused: bool) -> Backlog:
    """Return since when the oldest item waits, and how much is blocked.

    `paused`: whether the shard is paused: then all items are blocked.
    """
    seen = _look_at_queues(tr, layout, now_us, paused=paused)
    blocked_oldest_us = oldest_of(tr, seen.blocked, now_us)
    awake_oldest_us = oldest_of(tr, seen.awake, now_us)
    vested = run_together(
        collect_vested(tr, location.keys, now_us=now_us, keys_max=BLOCKED_ITEMS_MAX) for location in seen.blocked
    )
    return Backlog(
        oldest_us=min((each for each in (blocked_oldest_us, awake_oldest_us) if each is not None), default=None),
        whole=seen.awake_whole and seen.blocked_whole,
        blocked_items=sum(len(entries) for entries, _ in vested),
        blocked_queues=sum(bool(entries) for entries, _ in vested),
        blocked_oldest_us=blocked_oldest_us,
        blocked_whole=seen.blocked_whole and all(stopped_at is None for _, stopped_at in vested),
    )


def oldest_of(tr: Reader, locations: Iterable[ZoneLocation], now_us: int) -> int | None:
    """Return since when the oldest item of some queues waits; None: none does."""
    firsts = run_together(look_at_first_of_each_priority(tr, location.keys) for location in locations)
    waiting = (entry.vesting_us for first in firsts for entry in first)
    return min((vesting_us for vesting_us in waiting if vesting_us <= now_us), default=None)


class _Queues(NamedTuple):
    """Queues to look into: `awake`, with work that can run, and `blocked`, without. Whether these are all."""

    awake: list[ZoneLocation]
    awake_whole: bool
    blocked: list[ZoneLocation]
    blocked_whole: bool


def _look_at_queues(tr: Reader, layout: ShardLayout, now_us: int, *, paused: bool, asleep: bool = True) -> _Queues:
    """Return the queues that may hold the oldest item: by their pointers, which state what a manager found last."""
    each_max = max(POINTERS_OF_PART_MIN, POINTERS_MAX // layout.part_count)
    vested, vested_whole = _pointers(tr, layout, each_max, until_us=now_us)
    sleeping, asleep_whole = _pointers(tr, layout, each_max, after_us=now_us) if asleep else ([], False)
    locations = [(ref, location) for ref in vested + sleeping if (location := location_of(ref, layout)) is not None]
    records = [(ref, location, tr.snapshot.get(location.keys.pointer)) for ref, location in locations]
    awake, blocked = [], []
    for ref, location, stored in records:
        record = None if stored.value is None else decode(PointerRecord, stored.value)
        has_vested = ref.vesting_us <= now_us
        if record is not None and (record.outcome in BLOCKED or (paused and has_vested)):
            blocked.append(location)
        elif has_vested:
            awake.append((ref.vesting_us, location))
    # The blocked ones by name, so that each reading finds the same: an age must not change with the sample.
    chosen = nsmallest(BLOCKED_QUEUES_MAX, blocked, key=lambda location: location.pointer_id)
    first = nsmallest(OLDEST_OF, awake, key=lambda each: each[0])
    return _Queues(
        [location for _, location in first],
        vested_whole and len(awake) <= OLDEST_OF,
        chosen,
        vested_whole and asleep_whole and len(blocked) <= BLOCKED_QUEUES_MAX,
    )


def _pointers(
    tr: Reader, layout: ShardLayout, each_max: int, *, after_us: int | None = None, until_us: int | None = None
) -> tuple[list[PointerRef], bool]:
    """Return the pointers that vest first within a time, up to `each_max` of each part, and whether these are all."""
    reads = []
    for part in layout.parts:
        begin = part.vest_priority(0) if after_us is None else part.vest_after(POINTER_PRIORITY, after_us)
        end = part.vest_end() if until_us is None else part.vest_after(POINTER_PRIORITY, until_us)
        reads.append((part, tr.snapshot.get_range(begin, end, limit=each_max, streaming_mode=WANT_ALL)))
    found: list[PointerRef] = []
    whole = True
    for part, read in reads:
        rows = list(read)
        whole = whole and len(rows) < each_max
        entries = [entry for row in rows if (entry := part.entry(row.key)) is not None]
        found += [PointerRef(part.part, entry.id, entry.vesting_us, entry.priority) for entry in entries]
    return found, whole
