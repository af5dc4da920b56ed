"""Which consumers are alive, where they run, and the kinds they know.

Soft state: each consumer overwrites its own record every second or so, and readers take a consumer for dead whose
record is older than `LIVE_US`. No guarantee depends on it: leases alone keep two consumers apart. Operators see which
consumers serve a shard, and which kinds wait because no consumer knows them. Consumers divide the work by it.

The record is the consumer's session (the CockroachDB recipe's word): it lasts as long as the heartbeats. A single
reading has to compare two clocks. `Sessions`, which reads again and again, sees whether the heartbeats go on.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.keyspace import ROOT, SESSION, pack_bytes, pack_int, range_begin, range_end
from fairlead.zones.pipelining import Operation, run_one
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.records import Count, Kind, TimeUs, pack_value, unpacked

HEARTBEAT_US = 1_000_000  # How often a consumer sends a heartbeat.
LIVE_US = 5_000_000  # Five heartbeats: a consumer whose last one is older is dead, or its clock is far behind.
RETENTION_US = 60_000_000  # Dead consumers stay listed this long, so that operators can see them.

_PREFIX = ROOT + pack_int(SESSION)


class SessionRecord(msgspec.Struct, array_like=True, frozen=True):
    """A consumer's heartbeat. Times by its own clock, microseconds since the epoch.

    `full`: whether it has had no capacity for most of the time since its last heartbeat. `slots`: how many handlers its
    workers run at once, together; 0: unknown. `loops`: when each loop of the scanner's process last made progress.
    """

    host: str
    pid: int
    kinds: list[Kind]
    started_us: TimeUs
    heartbeat_us: TimeUs
    full: bool = False
    slots: Count = 0
    loops: dict[str, TimeUs] = {}


class ListedSession(NamedTuple):
    """A consumer as a reader found it."""

    consumer_id: bytes
    record: SessionRecord
    live: bool


_decoder = msgspec.msgpack.Decoder(SessionRecord)


class Sessions:
    """Which sessions are live, as one consumer sees them that reads the list again and again. Plain decisions.

    Attributes:
      stands_still: whether a live session had no heartbeat between the last two readings: it may end soon.
    """

    def __init__(self) -> None:
        self.stands_still = False
        self._seen: dict[bytes, tuple[int, int]] = {}  # the last heartbeat of each, and when it was new, by this clock

    def live(self, listed: Sequence[ListedSession], *, now_us: int) -> list[ListedSession]:
        """Return those of `listed`, as just read, whose last heartbeat was new within `LIVE_US`.

        The age of the first heartbeat seen depends on both clocks. The age of a later one counts from its change.
        """
        seen = {}
        still = set()
        for each in listed:
            heartbeat_us = each.record.heartbeat_us
            last_us, new_us = self._seen.get(each.consumer_id, (heartbeat_us, heartbeat_us))
            if heartbeat_us == last_us and each.consumer_id in self._seen:
                still.add(each.consumer_id)
            seen[each.consumer_id] = heartbeat_us, min(new_us if heartbeat_us == last_us else now_us, now_us)
        self._seen = seen
        live = [each for each in listed if now_us - seen[each.consumer_id][1] <= LIVE_US]
        self.stands_still = any(each.consumer_id in still for each in live)
        return live


def heartbeat(tr: Transaction, consumer_id: bytes, record: SessionRecord) -> None:
    """Write that the consumer lives at `record.heartbeat_us`. One blind write without conflicts; may run twice."""
    tr.set(_key(consumer_id), pack_value(record))


def end_session(tr: Transaction, consumer_id: bytes) -> None:
    """Remove the consumer from the list, because it has stopped in order. One blind write; may run twice."""
    tr.clear(_key(consumer_id))


def listing(tr: Reader, *, now_us: int) -> list[ListedSession]:
    """Return the consumers of the shard, the live and those that died lately, by id; see `listing_op`."""
    return run_one(listing_op(tr, now_us=now_us))


def listing_op(tr: Reader, *, now_us: int) -> Operation[list[ListedSession]]:
    """Read the consumers of the shard. Snapshot reads. A record of a newer format is left out."""
    rows = tr.snapshot.get_range(range_begin(_PREFIX), range_end(_PREFIX), streaming_mode=WANT_ALL)
    yield
    found = []
    for row in rows:
        record = unpacked(_decoder, row.value)
        if record is not None:
            found.append(ListedSession(_consumer_id(row.key), record, now_us - record.heartbeat_us <= LIVE_US))
    return found


def clear_dead(tr: Transaction, listed: Sequence[ListedSession], *, now_us: int, keys_max: int) -> int:
    """Clear up to `keys_max` consumers of a `listing` that have been silent for `RETENTION_US`; return how many.

    Blind writes; may run twice. One that was only paused returns with its next heartbeat.
    """
    dead = [each for each in listed if now_us - each.record.heartbeat_us > RETENTION_US][:keys_max]
    for each in dead:
        tr.clear(_key(each.consumer_id))
    return len(dead)


def _key(consumer_id: bytes) -> bytes:
    return _PREFIX + pack_bytes(consumer_id)


def _consumer_id(key: bytes) -> bytes:
    return key[len(_PREFIX) + 1 : -1].replace(b"\x00\xff", b"\x00")


def is_readable(value: bytes) -> bool:
    """Say whether a value is a consumer's session."""
    return unpacked(_decoder, value) is not None
