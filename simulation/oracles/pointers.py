"""The pointer invariant: a zone with work has a pointer that leads consumers to it in time (QuiCK section 6).

A zone's pointer vests no later than its first item, or its last write, plus a slack. There are three exceptions: the
pointer is leased for a bounded time, or its zone is throttled, or the zone has items of a kind without a handler. In
the last two cases the zone is processed again within a stated time.
"""

from dataclasses import dataclass

from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.replica import ParsedCommit, ZoneReplica
from fairlead.simulation.world import World


@dataclass(frozen=True, slots=True)
class PointerBounds:
    """The longest times that the pointer of a zone with work may be hidden, in microseconds."""

    wake_slack_us: int
    ahead_us_max: int  # the most by which the clock of a node may be ahead of the true time
    pointer_lease_us: int
    throttle_delay_us: int
    pause_recheck_us: int
    known_kinds: frozenset[str]


class PointersLeadToWork(Oracle):
    """The pointer invariant, for every zone and pointer that a commit touched, except for pauses."""

    promise = "a zone with work has a pointer that vests in time"

    def __init__(self, world: World, bounds: PointerBounds) -> None:
        super().__init__(world)
        self._bounds = bounds

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for zone in parsed.zones.values():
            paused = zone.name.tenant in parsed.shard.paused_since or parsed.shard.paused_pointers.get(zone.name)
            if not zone.entries or (paused and zone.pointer is not None):
                continue
            if zone.pointer is None:
                self.report_violation(
                    f"{zone} has {len(zone.entries)} items and no pointer after a commit by {parsed.by}"
                )
            elif zone.pointer.vesting_us > self._latest_us(zone):
                late_us = zone.pointer.vesting_us - self._latest_us(zone)
                self.report_violation(
                    f"the pointer of {zone} vests {late_us} us too late after a commit by {parsed.by}"
                )

    def _latest_us(self, zone: ZoneReplica) -> int:
        bounds = self._bounds
        assert zone.pointer is not None
        earliest_us = min(vesting_us for _, vesting_us, _ in zone.entries)
        written_us = zone.pointer_written_us + bounds.ahead_us_max
        away_us = bounds.throttle_delay_us
        if zone.pointer.lease_id:
            away_us = max(away_us, bounds.pointer_lease_us)
        if any(record.kind not in bounds.known_kinds for record in zone.items.values()):
            away_us = max(away_us, bounds.pause_recheck_us)
        now_us = self.world.now_us() + bounds.ahead_us_max
        return max(earliest_us, now_us, written_us + away_us) + bounds.wake_slack_us
