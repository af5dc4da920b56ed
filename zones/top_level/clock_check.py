"""The shard's time: how a consumer notices that its clock is wrong.

Vesting times are wall clocks of different machines. A consumer an hour ahead would take other consumers' leases for
expired ones, so each shard holds a time that its consumers advance, and one that is further off than `max_skew`
takes no leases. One look cannot tell which clock is wrong: a shard's time that is far off may be another consumer's
mistake, or be as old as the last fleet that ran. So a consumer that finds it far off watches whether others advance it.
If they do, this clock is wrong. If none does, or no other consumer is on the shard's list, it takes the shard's time
over. A clock that steps while its consumer watches makes it watch anew: others that watch with it, and whose
clocks are right, take the time over first.
"""

from collections.abc import Callable
from enum import Enum

from fairlead.zones.elapsed import Elapsed
from fairlead.zones.engines import Transaction
from fairlead.zones.keyspace import TIME_KEY
from fairlead.zones.probes import probe

STEP_US_MIN = 60_000_000  # Between two heartbeats; even a store that stalls delays them less.


class ClockStatus(Enum):
    """What a consumer's clock is worth after a heartbeat. Only GOOD and TAKEN_OVER may take leases."""

    GOOD = "good"
    TAKEN_OVER = "taken over"  # the shard's time was far off and no consumer advanced it: now it is this clock's
    WATCHING = "watching"  # the shard's time is far off; others may be advancing it
    OFF = "off"  # others advance the shard's time, and this clock is far off


class ShardClock:
    """One consumer's view of a shard's time. Plain decisions; `check_clock` is the transaction around them."""

    def __init__(self, *, max_skew_us: int, watch_us: int) -> None:
        self._max_skew_us = max_skew_us
        self._watch_us = watch_us
        self._watched_us: int | None = None
        self._unchanged = Elapsed(0)  # for how long it has been so
        self._looked_us = 0

    def is_far_off(self, shard_us: int | None, now_us: int) -> bool:
        """Say whether this clock and the shard's time are further apart than clocks may be."""
        return shard_us is not None and abs(shard_us - now_us) > self._max_skew_us

    def assess(self, *, shard_us: int | None, now_us: int, is_only_consumer: bool = False) -> ClockStatus:
        """Compare this clock with the shard's time as just read. `is_only_consumer`: there is no other."""
        if not self.is_far_off(shard_us, now_us):
            self._watched_us = None
            return ClockStatus.GOOD
        if is_only_consumer:
            self._watched_us = None
            return ClockStatus.TAKEN_OVER
        has_stepped = abs(now_us - self._looked_us) >= STEP_US_MIN
        self._looked_us = now_us
        if self._watched_us is None or has_stepped:
            probe("a consumer finds its clock far off the shard's time, and watches")
            self._watched_us, self._unchanged = shard_us, Elapsed(now_us)
            return ClockStatus.WATCHING
        if shard_us != self._watched_us:
            probe("a consumer finds its clock off")
            self._watched_us, self._unchanged = shard_us, Elapsed(now_us)
            return ClockStatus.OFF
        # `Elapsed` ignores steps of the clock: one step must not count as hours of watching.
        if self._unchanged.by(now_us) < self._watch_us:
            return ClockStatus.WATCHING
        probe("a consumer takes the shard's time over")
        self._watched_us = None
        return ClockStatus.TAKEN_OVER


def check_clock(
    tr: Transaction, clock: ShardClock, *, now_us: int, is_only_consumer: Callable[[], bool] = lambda: False
) -> ClockStatus:
    """Assess this consumer's clock and, if it is good, advance the shard's time by it. May run twice.

    `is_only_consumer` reads whether there is no other consumer. It is called only if this clock is far off; then the
    answer must be fresh, since a consumer that came a second ago may have the right clock.

    Reads the time key by snapshot and writes it by an atomic `max`, so heartbeats never conflict. A take-over reads it
    with conflict, so of two concurrent ones one succeeds.
    """
    value = tr.snapshot.get(TIME_KEY).value
    shard_us = None if value is None else int.from_bytes(value, "little")
    far_off = clock.is_far_off(shard_us, now_us)
    clock_status = clock.assess(shard_us=shard_us, now_us=now_us, is_only_consumer=far_off and is_only_consumer())
    packed = now_us.to_bytes(8, "little")
    if clock_status is ClockStatus.GOOD:
        tr.max(TIME_KEY, packed)
    elif clock_status is ClockStatus.TAKEN_OVER:
        tr.add_read_conflict_key(TIME_KEY)
        tr.set(TIME_KEY, packed)
    return clock_status
