"""How much waits on a shard, and since when: from counters, and from bounded stretches of the top-level queue.

Snapshot reads: a look costs the same with a million tenants, and conflicts with nothing.
"""

from collections.abc import Iterable
from typing import Any

from zones.keyspace import range_begin, range_end, unpack_name
from zones.layout import Layout, Place
from zones.pointers import place_of, scan
from zones.steps import in_step
from zones.stored_item import number_of
from zones.vesting import WANT_ALL, look_at_first_of_each_priority

OLDEST_OF = 64  # Pointers that have waited longest, whose zones are asked for their oldest item.


def depth(tr: Any, layout: Layout) -> dict[str, int]:
    """Return how many items of each kind are in all queues: waiting, delayed and leased ones, not buried ones."""
    ranges = [
        (part, tr.snapshot.get_range(range_begin(part.depth_prefix), range_end(part.depth_prefix), 0, False, WANT_ALL))
        for part in layout.parts
    ]
    found: dict[str, int] = {}
    for part, rows in ranges:
        for row in rows:
            kind = unpack_name(row.key, len(part.depth_prefix))
            if kind is not None:
                found[kind] = found.get(kind, 0) + number_of(row.value)
    return {kind: count for kind, count in sorted(found.items()) if count}


def oldest_us(tr: Any, layout: Layout, now_us: int) -> int | None:
    """Return since when the oldest item waits, of those behind the 64 pointers that have waited longest; None: none."""
    scans = in_step([scan(tr, part, now_us=now_us, ids_max=OLDEST_OF) for part in layout.parts])
    refs = sorted((ref for refs, _ in scans for ref in refs), key=lambda ref: ref.vesting_us)[:OLDEST_OF]
    return oldest_of(tr, [place for ref in refs if (place := place_of(ref, layout)) is not None], now_us)


def oldest_of(tr: Any, places: Iterable[Place], now_us: int) -> int | None:
    """Return since when the oldest item of some queues waits; None: none does."""
    firsts = in_step(look_at_first_of_each_priority(tr, place.keys) for place in places)
    waiting = (entry.vesting_us for first in firsts for entry in first)
    return min((vesting_us for vesting_us in waiting if vesting_us <= now_us), default=None)
