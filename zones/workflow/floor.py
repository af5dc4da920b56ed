"""When FLOOR is raised: once a day on each shard, by whichever consumer looks first.

A run that lasts longer asks each of its participants again. Nothing that must be correct depends on the time. A wrong
clock raises FLOOR too early or too late, and tombstones are cleared in the same transaction as FLOOR is raised.
"""

from fairlead.zones.durations import DAY_S
from fairlead.zones.engines import Transaction
from fairlead.zones.keyspace import FLOOR, ROOT, TOMBSTONE, pack_int, range_begin, range_end
from fairlead.zones.probes import probe
from fairlead.zones.workflow.participants import raise_floor

RAISE_US = DAY_S * 1_000_000
RAISED_KEY = ROOT + pack_int(FLOOR) + pack_int(1)
_TIME_BYTES = 8
_TOMBSTONES = ROOT + pack_int(TOMBSTONE)


def raise_daily(tr: Transaction, *, now_us: int, tombstones_max: int) -> bool:
    """Raise FLOOR if that is due, and clear up to so many tombstones; return whether some are left.

    It is due a day after the last time, or if that time is later than now: a clock that was ahead wrote it. It stays
    due while tombstones are left. A shard without tombstones is not written to. May run twice.

    Reads with conflict: when it was raised; if due, the first tombstone, and what `raise_floor` reads. Writes: what
    `raise_floor` writes, and when.
    """
    stored = tr.get(RAISED_KEY).value
    if stored is not None and 0 <= now_us - int.from_bytes(stored[:_TIME_BYTES], "big") < RAISE_US:
        return False
    if next(iter(tr.get_range(range_begin(_TOMBSTONES), range_end(_TOMBSTONES), limit=1)), None) is None:
        return False
    probe("the floor of tombstones is raised")
    if raise_floor(tr, tombstones_max=tombstones_max):
        return True
    tr.set(RAISED_KEY, now_us.to_bytes(_TIME_BYTES, "big"))
    return False
