"""What one call to a manager comes to: the items that it leased, and what it has to say of them.

Its answer goes to the scanner; what telemetry counts is added once, when the call ends, and not item by item.
"""

from collections import Counter
from dataclasses import dataclass, field

from actors.messages import CARRIED_BYTES_MAX, ItemRef, Served
from actors.telemetry.metrics import BURIED, CONFLICT_STEPS, CONFLICTS, LAPSED, OPERATION, POINTER_LATENCY
from actors.telemetry.tally import Tally
from actors.telemetry.traces import is_sampled
from zones.dequeue import Room
from zones.items import LeasedItem
from zones.records import Trace
from zones.visit import Found, LeftAlone, Visit

LEASED_HERE = (Found.SERVED, Found.DELETED)  # What a visit finds that had the pointer to itself.


@dataclass(slots=True)
class Serving:
    """What one call to `serve` has come to so far.

    Attributes:
      waited_us: of each pointer that was leased: for how long it had been vested.
      lapsed, buried: items by kind, of those that had lapsed.
      traces: of the items that were enqueued in a trace that is recorded.
      began_us, ended_us: when the store was asked, and when that had come to an end; 0: it was not asked.
      failed_by: the type of the error with which the store refused; "": it did not.
    """

    counts: Counter[str] = field(default_factory=Counter)
    left_alone: list[LeftAlone] = field(default_factory=list)
    waited_us: list[int] = field(default_factory=list)
    lapsed: Counter[str] = field(default_factory=Counter)
    buried: Counter[str] = field(default_factory=Counter)
    traces: list[Trace] = field(default_factory=list)
    began_us: int = 0
    ended_us: int = 0
    failed_by: str = ""

    def note(self, shard_name: str, visit: Visit, room: Room, *, now_us: int) -> list[ItemRef]:
        """Note a visit that has been committed; return its items as they are sent. They use up `room`."""
        self.counts[visit.found.value] += 1
        self.counts["missed_at_read"] += visit.found is Found.LEASED
        self.counts["unreadable"] += visit.unreadable
        self.counts["buried"] += len(visit.buried)
        self.buried.update(visit.buried)
        if visit.found in LEASED_HERE:
            self.waited_us.append(now_us - visit.ref.vesting_us)
        if visit.left_alone is not None:
            self.left_alone.append(visit.left_alone)
        self.counts["items"] += len(visit.items)
        return [self._sent(shard_name, visit, item, room) for item in visit.items]

    def _sent(self, shard_name: str, visit: Visit, item: LeasedItem, room: Room) -> ItemRef:
        record, place = item.record, visit.place
        assert place is not None
        room.take(record.kind)
        if item.lapsed:
            self.lapsed[record.kind] += 1
        if record.trace and is_sampled(record.trace):
            self.traces.append(record.trace)
        return ItemRef(
            shard_name,
            place.tenant,
            place.name,
            item.id,
            record.lease_id,
            record.kind,
            item.alone,
            item.stored if is_short(item) else b"",
            item.vested_us,
        )

    def tell(self, tally: Tally, shard_name: str) -> None:
        """Count it for telemetry. The manager's lock is held."""
        latency = tally.histogram(POINTER_LATENCY, shard_name)
        for waited_us in self.waited_us:
            latency.record(waited_us)
        if self.ended_us:
            served = tally.histogram(OPERATION, "serve", "", shard_name, self.failed_by)
            served.record(self.ended_us - self.began_us)
        for step in CONFLICT_STEPS:
            tally.add(CONFLICTS, shard_name, step, count=self.counts[f"missed_at_{step}"])
        for metric, kinds in ((LAPSED, self.lapsed), (BURIED, self.buried)):
            for kind, count in kinds.items():
                tally.add(metric, kind, count=count)

    def answer(self, *, room: int) -> Served:
        """Return what the scanner is told."""
        counts = self.counts
        return Served(
            items=counts["items"],
            missed_at_read=counts["missed_at_read"],
            missed_at_commit=counts["missed_at_commit"],
            unreadable=counts["unreadable"],
            room=room,
            left_alone=tuple(self.left_alone),
            conflicts=counts["conflicts"],
            waited_us=tuple(self.waited_us),
        )


def is_short(item: LeasedItem) -> bool:
    """Say whether an item travels whole with the call to its worker."""
    return len(item.stored) <= CARRIED_BYTES_MAX and not item.record.payload_bytes
