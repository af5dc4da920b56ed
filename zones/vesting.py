"""Reading a vesting index: what has vested, in (priority, vesting time) order, and what vests next.

The index is ordered by priority first, so what has vested is not one range but one per priority. Both readers skip:
at the first key of a priority that has not vested they seek to the next priority, and so on to the end.
"""

from collections.abc import Callable
from typing import Any

from zones.keyspace import PRIORITY_MAX, IndexEntry, QueueKeys
from zones.steps import Steps

WANT_ALL = -2  # StreamingMode.want_all: a batch is read whole; the default fetches in small steps.


def read_vested(
    tr: Any,
    keys: QueueKeys,
    *,
    now_us: int,
    keys_max: int,
    first_read: int,
    enough: Callable[[IndexEntry, bytes], bool],
    begin: bytes = b"",
) -> Steps[bytes | None]:
    """Show `enough` the vested entries and their values in order, from `begin` or from the front.

    Stops after `keys_max` entries, or at the entry for which `enough` is true. Returns where to go on (that entry
    included), or None if it showed all that has vested. `first_read` keys are asked for at first, four times as many
    in every further read: most zones are small. Snapshot reads only; conflicts with nothing.
    """
    begin = begin or keys.vest_priority(0)
    end = keys.vest_end()
    left = keys_max
    size = first_read
    while left > 0:
        size = min(size, left)
        sent = tr.snapshot.get_range(begin, end, limit=size, streaming_mode=WANT_ALL)
        yield
        rows = list(sent)
        for row in rows:
            entry = keys.entry(row.key)
            if entry.vesting_us > now_us:
                begin = keys.vest_priority(entry.priority + 1)
                break
            if enough(entry, row.value):
                return row.key  # type: ignore[no-any-return]
            left -= 1
            begin = row.key + b"\x00"
        else:
            if len(rows) < size:
                return None
        size *= 4
    return begin


def collect_vested(
    tr: Any, keys: QueueKeys, *, now_us: int, keys_max: int, begin: bytes = b""
) -> Steps[tuple[list[IndexEntry], bytes | None]]:
    """Read up to `keys_max` vested entries in order, and where to go on (None: that was all). Snapshot reads."""
    entries: list[IndexEntry] = []

    def collect(entry: IndexEntry, _: bytes) -> bool:
        entries.append(entry)
        return False

    stopped_at = yield from read_vested(
        tr, keys, now_us=now_us, keys_max=keys_max, first_read=keys_max, enough=collect, begin=begin
    )
    return entries, stopped_at


def read_first_of_each_priority(tr: Any, keys: QueueKeys) -> Steps[list[IndexEntry]]:
    """Read the first entry of every priority that has one.

    Reads with conflict, and the conflict ranges are the point: per priority the range up to its first key, the gaps
    between priorities and the tail. Whoever inserts an entry that is the first of its priority conflicts.
    """
    first: list[IndexEntry] = []
    priority = 0
    while priority <= PRIORITY_MAX:
        rows = tr.get_range(keys.vest_priority(priority), keys.vest_end(), limit=1, streaming_mode=WANT_ALL)
        yield
        row = next(iter(rows), None)
        if row is None:
            break
        first.append(keys.entry(row.key))
        priority = first[-1].priority + 1
    return first
