"""The lease of the reader of an external store."""

from random import Random

from fairlead.zones import engines
from fairlead.zones.external.arrivals import ReaderRecord, take_reader
from fairlead.zones.shard import Shard, open_shard
from tests.clocks import ManualClock

LEASE_US = 5_000_000
HOUR_US = 3_600_000_000


def shard_at(clock: ManualClock) -> Shard:
    return open_shard("main", engines.open("memory:", clock=clock, random=Random(1)), clock=clock, random=Random(2))


def taken(shard: Shard, reader: bytes, now_us: int) -> ReaderRecord | None:
    return shard.transact(lambda attempt: take_reader(attempt.tr, "pg", reader, lease_us=LEASE_US, now_us=now_us))


def test_another_process_reads_when_the_lease_has_ended() -> None:
    clock = ManualClock()
    shard = shard_at(clock)
    assert taken(shard, b"a", clock.now_us())
    assert taken(shard, b"b", clock.now_us() + LEASE_US - 1) is None
    assert taken(shard, b"b", clock.now_us() + LEASE_US)


def test_the_lease_of_a_process_whose_clock_was_an_hour_ahead_does_not_count() -> None:
    """It has died since: nobody would read the store for an hour."""
    clock = ManualClock()
    shard = shard_at(clock)
    assert taken(shard, b"a", clock.now_us() + HOUR_US)
    assert taken(shard, b"b", clock.now_us())
