"""Where the visits of queues stopped, for as long as a look from the front of a queue is expensive.

The index entries of an ended item stay in PostgreSQL until no open transaction of the cluster can see the item. A look
from the front of its queue steps over them. So beside a transaction that stays open for an hour each visit would take
longer than the one before. A manager that finds many such entries remembers, for each kind and priority of a queue, the
vesting time of the last item that it took, and goes on there.

What has come to wait before that place since is not found there: an item whose transaction took longer than a second
to commit, one that was returned, one whose lease has expired, one whose lock was given up. So queues are looked at from
the front as often as such looks take a twentieth of the time, and once in the time of a lease at least.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fairlead.zones.external.store import Dequeued, Queue, Stop, Want
from fairlead.zones.probes import probe

PASSED_MIN = 1_000  # Entries: a millisecond or two. With fewer, every look is from the front.
ENTRY_US = 2  # What it takes to step over one on a busy machine, with the visibility check in its table.
LOOKS_SHARE = 20
QUEUES_MAX = 10_000
STOPS_MAX = 64  # Of one queue. A queue with more is looked at from the front.


class _Known(NamedTuple):
    """Where visits of a queue stopped, by kind and priority. `front_us`: when the next look from the front is due."""

    stops: Mapping[tuple[str, int], int]
    front_us: int


class Cursors:
    """Where the visits of one manager in one store stopped. Any thread may call: an older stop is as good."""

    def __init__(self) -> None:
        self._known: dict[Queue, _Known] = {}

    def stops(self, queue: Queue, *, now_us: int, lease_us: int) -> tuple[Stop, ...]:
        """Return from where on to look at a queue now; empty: from the front."""
        known = self._known.get(queue)
        if known is None or not 0 < known.front_us - now_us <= lease_us:
            return ()
        return tuple(Stop(kind, priority, from_us) for (kind, priority), from_us in known.stops.items())

    def front_us(self, queue: Queue) -> int | None:
        """Return when a queue is to be looked at from the front again; None: its next look is from the front."""
        known = self._known.get(queue)
        return None if known is None else known.front_us

    def note(self, wants: Sequence[Want], found: Dequeued, *, now_us: int, lease_us: int) -> None:
        """Note what a visit of queues has found."""
        is_cheap = found.passed < PASSED_MIN
        front_us = now_us + min(lease_us, found.passed * ENTRY_US * LOOKS_SHARE)
        taken: dict[Queue, dict[tuple[str, int], int]] = {}
        for row in found.rows:
            pair, at = (row.record.kind, row.record.priority), taken.setdefault(row.queue, {})
            at[pair] = max(row.at_us, at.get(pair, 0))
        if len(self._known) > QUEUES_MAX:
            self._known.clear()
        for want in wants:
            is_from_front = not want.stops
            if is_from_front and is_cheap:
                self._known.pop(want.queue, None)
                continue
            before = self._known.get(want.queue, _Known({}, front_us))
            stops = {**before.stops, **taken.get(want.queue, {})}
            if len(stops) <= STOPS_MAX:
                probe("visits of an external queue go on where the last one stopped")
                self._known[want.queue] = _Known(stops, front_us if is_from_front else before.front_us)
