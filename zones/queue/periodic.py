"""Periodic items: work that is enqueued again and again, without a leader.

The ticks of a period lie at fixed times, `phase + n * every` since the epoch, so all consumers agree on them without
messages. A record per period states which tick comes next. A consumer that finds it due enqueues a local item and
advances the record in the same transaction. So each tick happens once, however many consumers there are.

Ticks that were missed (the fleet was down) are collapsed into one: the last of them.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

from fairlead.zones.durations import DAY_S, Duration, duration_us
from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.errors import BadArgument
from fairlead.zones.keyspace import PERIODIC, ROOT, pack_int, pack_text, range_begin, range_end, unpack_name
from fairlead.zones.layout import DEFAULT_ZONE, ID_BYTES, ShardLayout, check_name, local_tenant
from fairlead.zones.pipelining import Operation
from fairlead.zones.placement import home
from fairlead.zones.probes import probe
from fairlead.zones.queue.items import Enqueued, new_item
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.records import PeriodicRecord, decode, encode, is_newer

INTERVAL_S_MIN = 1  # A shorter period is a loop in a handler.
INTERVAL_S_MAX = 365 * DAY_S

_PREFIX = ROOT + pack_int(PERIODIC)


class Period(NamedTuple):
    """When a kind's items are enqueued: at `phase_us + n * every_us` since the epoch. Build it with `period`."""

    kind: str
    every_us: int
    phase_us: int = 0


def period(kind: str, interval: Duration, *, phase: Duration = 0) -> Period:
    """Return a checked period.

    Args:
      kind: of the items; also the period's name, so a kind has one period at most.
      interval, phase: see `checked_interval`.

    Raises:
      BadArgument: an argument is out of range.
    """
    return Period(check_name("kind", kind), *checked_interval(interval, phase))


def checked_interval(interval: Duration, phase: Duration) -> tuple[int, int]:
    """Return the time between two ticks, and how far they are shifted, in microseconds: whole milliseconds.

    Args:
      interval: one second to a year.
      phase: how far the ticks are shifted from the multiples of `interval` since the epoch, 0 to below `interval`.

    Raises:
      BadArgument: an argument is out of range.
    """
    every_us = _whole_ms(duration_us("interval", interval, low_s=INTERVAL_S_MIN, high_s=INTERVAL_S_MAX))
    phase_us = _whole_ms(duration_us("phase", phase, high_s=INTERVAL_S_MAX))
    if phase_us >= every_us:
        raise BadArgument(argument="phase", value=phase, allowed=f"0 to below the interval, which is {interval}")
    return every_us, phase_us


def _whole_ms(us: int) -> int:
    return round(us / 1000) * 1000


def periods_of(periods: Sequence[Period], shard_name: str, first_shards: Sequence[str]) -> list[Period]:
    """Return the periods whose items belong on a shard: each has one home, so that a tick is one item in all.

    `first_shards`: the names of the shards with which the application began.
    """
    return [each for each in periods if home(local_tenant(each.kind), first_shards) == shard_name]


def last_tick_us(period: Period, now_us: int) -> int:
    """Return the time of the last tick that is not later than `now_us`."""
    return now_us - (now_us - period.phase_us) % period.every_us


def tick_op(
    tr: Transaction, layout: ShardLayout, period: Period, *, run: bytes, now_us: int
) -> Operation[Enqueued | None]:
    """Enqueue the period's item if a tick is due, and note the next one; return what was enqueued, or None.

    The item is local, its payload `{"tick_us": ..., "collapsed": ...}`: the time of the tick, and how many ticks
    before it were missed. `run`: 16 bytes that name the life of the item; a clock that was set back may enqueue the id
    of a tick again. A period that is new, or changed, or whose record is damaged, starts with its next tick.
    While programs with different periods for one kind share a shard, ticks may be missed. The period of a newer version
    is kept by programs of that version.

    Reads with conflict: the record; if due, what an enqueue reads. Writes: the record; if due, what an enqueue writes.
    Most calls write nothing, and so conflict with nothing. May run twice: the second run finds the record advanced.
    """
    stored = tr.get(_key(period.kind))
    yield
    record = None if stored.value is None else decode(PeriodicRecord, stored.value)
    if record is None and stored.value is not None and is_newer(stored.value):
        return None
    due_us = last_tick_us(period, now_us)
    if record is None or not _stands(record, period, now_us, layout.settings.clocks_apart_us_max):
        tr.set(_key(period.kind), encode(PeriodicRecord(period.every_us, due_us + period.every_us)))
        return None
    if due_us < record.next_us:
        return None
    tr.set(_key(period.kind), encode(PeriodicRecord(period.every_us, due_us + period.every_us)))
    probe("a tick is due")
    collapsed = (due_us - record.next_us) // period.every_us
    item = new_item(period.kind, {"tick_us": due_us, "collapsed": collapsed})._replace(run=run)
    zone = QueueZone(layout, local_tenant(period.kind), DEFAULT_ZONE)
    enqueued = yield from zone.enqueue_op(tr, [(_tick_id(period, due_us), item)], now_us=now_us, ids_are_new=False)
    return enqueued[0]


def listing(tr: Reader, *, periods_max: int) -> Iterator[tuple[str, PeriodicRecord]]:
    """Yield the kinds of a shard's periods, and their records. Snapshot reads; skips unreadable records."""
    for row in tr.snapshot.get_range(range_begin(_PREFIX), range_end(_PREFIX), limit=periods_max):
        kind, record = unpack_name(row.key, len(_PREFIX)), decode(PeriodicRecord, row.value)
        if kind is not None and record is not None:
            yield kind, record


def _stands(record: PeriodicRecord, period: Period, now_us: int, clocks_apart_us: int) -> bool:
    """Say whether a record is this period's, and was not written by a clock far ahead."""
    mine = record.every_us == period.every_us and (record.next_us - period.phase_us) % period.every_us == 0
    return mine and record.next_us <= now_us + period.every_us + clocks_apart_us


def _tick_id(period: Period, tick_us: int) -> bytes:
    return blake2b(pack_text(period.kind) + pack_int(tick_us), digest_size=ID_BYTES).digest()


def _key(kind: str) -> bytes:
    return _PREFIX + pack_text(kind)
