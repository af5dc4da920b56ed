"""Reading a vesting index: what has vested, in (priority, vesting time) order, and what vests next.

The index is ordered by priority first, so what has vested is not one range but one per priority. Both readers skip:
at the first key of a priority that has not vested they seek to the next priority, and so on to the end. A key that is
damaged is passed over; an audit finds it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.keyspace import IndexEntry, QueueKeys
from fairlead.zones.pipelining import Operation

WANT_ALL = -2  # StreamingMode.want_all: a batch is read whole; the default fetches in small steps.
FIRST_LOOK = 2  # Keys that tell whether anything has vested, and whether there is more.


Vested = tuple[IndexEntry, bytes]  # an entry that has vested, and its value


class Reading(NamedTuple):
    """How far a reading of what has vested got.

    `stopped_at`: where to go on, or None if it came to the end of the index.
    `unvested`: the first entry that has not vested, of each priority that it passed, and perhaps of later ones.
    """

    stopped_at: bytes | None
    unvested: list[IndexEntry]


def read_vested(
    tr: Reader,
    keys: QueueKeys,
    *,
    now_us: int,
    keys_max: int,
    first_read: int,
    then_read: int,
    enough: Callable[[Sequence[Vested]], int | None],
    begin: bytes = b"",
    end: bytes = b"",
) -> Operation[Reading]:
    """Show `enough` the vested entries and their values in order, piece by piece, from `begin` or from the front.

    Stops at `end`, if that is given, after `keys_max` entries, or at that entry of a piece whose number `enough`
    returns; it goes on with that one. Snapshot reads only; conflicts with nothing.
    `first_read` keys are asked for at first, as most queues are short; then `then_read` at a time of what has vested.
    """
    begin, end = begin or keys.vest_priority(0), end or keys.vest_end()
    bound, size, left = end, first_read, keys_max
    unvested: list[IndexEntry] = []
    while left > 0:
        sent = tr.snapshot.get_range(begin, bound, limit=size, streaming_mode=WANT_ALL)
        yield
        rows = list(sent)
        piece: list[Vested] = []
        skipping, behind = -1, None
        for row in rows:
            entry = keys.entry(row.key)
            if entry is None or entry.priority == skipping:
                continue
            if entry.vesting_us > now_us:
                skipping = entry.priority
                unvested.append(entry)
            elif len(piece) == left:
                behind = row.key
                break
            else:
                piece.append((entry, row.value))
                skipping = -1
        stop = enough(piece)
        if stop is not None:
            return Reading(keys.vest(*piece[stop][0]), unvested)
        if behind is not None:
            return Reading(behind, unvested)
        left -= len(piece)
        whole = len(rows) < size
        if whole and bound == end:
            return Reading(None, unvested)
        if whole:  # That was all of this priority that has vested.
            begin, bound, size = bound, end, first_read
        elif skipping >= 0:
            begin = keys.vest_priority(skipping + 1)
            if begin >= end:
                return Reading(None, unvested)
        else:
            begin = row.key + b"\x00"
            # Behind a damaged key nobody knows of which priority the next is.
            bound, size = end if entry is None else keys.vest_after(entry.priority, now_us), then_read
    return Reading(begin, unvested)


def collect_vested(
    tr: Reader,
    keys: QueueKeys,
    *,
    now_us: int,
    keys_max: int,
    first_read: int = FIRST_LOOK,
    begin: bytes = b"",
    end: bytes = b"",
) -> Operation[tuple[list[IndexEntry], bytes | None]]:
    """Read up to `keys_max` vested entries in order, and where to go on (None: that was all). Snapshot reads."""
    entries: list[IndexEntry] = []

    def collect(piece: Sequence[Vested]) -> None:
        entries.extend([entry for entry, _ in piece])

    reading = yield from read_vested(
        tr, keys, now_us=now_us, keys_max=keys_max, first_read=first_read, then_read=keys_max, enough=collect,
        begin=begin, end=end,
    )  # fmt: skip
    return entries, reading.stopped_at


def read_first_of_each_priority(tr: Transaction, keys: QueueKeys) -> Operation[list[IndexEntry]]:
    """Read the first entry of every priority that has one; see `conflict_before_first` for the conflicts."""
    first = yield from look_at_first_of_each_priority(tr, keys)
    conflict_before_first(tr, keys, first)
    return first


def look_at_first_of_each_priority(tr: Reader, keys: QueueKeys) -> Operation[list[IndexEntry]]:
    """Return the first entry of every priority that has one. Snapshot reads: conflicts with nothing."""
    first: list[IndexEntry] = []
    begin, end = keys.vest_priority(0), keys.vest_end()
    while begin < end:
        rows = tr.snapshot.get_range(begin, end, limit=1, streaming_mode=WANT_ALL)
        yield
        row = next(iter(rows), None)
        if row is None:
            break
        entry = keys.entry(row.key)
        if entry is None:
            begin = row.key + b"\x00"
        else:
            first.append(entry)
            begin = keys.vest_priority(entry.priority + 1)
    return first


def conflict_before_first(tr: Transaction, keys: QueueKeys, first: Sequence[IndexEntry]) -> None:
    """Declare read conflicts around `first`, the first entry of every priority that has one, by priority.

    The ranges are the point: per priority the range up to its first key, the gaps between priorities, and the tail.
    Whoever inserts an entry that is the first of its priority conflicts; whoever takes one of `first` away does not,
    since nothing has to happen earlier because of that.
    """
    begin = keys.vest_priority(0)
    for entry in first:
        tr.add_read_conflict_range(begin, keys.vest(*entry))
        begin = keys.vest_priority(entry.priority + 1)
    tr.add_read_conflict_range(begin, keys.vest_end())
