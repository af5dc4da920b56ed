"""What one call to a manager comes to: the items that it leased, and what it has to say of them.

Its answer goes to the scanner; what telemetry counts is added once, when the call ends, and not item by item.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from fairlead.actors.messages import CARRIED_BYTES_MAX, ItemRef, Served
from fairlead.actors.runtime.safe_text import spelled_out
from fairlead.actors.telemetry.counters import Tally
from fairlead.actors.telemetry.metrics import BURIED, CONFLICT_STEPS, CONFLICTS, LAPSED, OPERATION, POINTER_LATENCY
from fairlead.actors.telemetry.traces import is_sampled
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.dequeue_plan import Room
from fairlead.zones.records import ItemRecord, Trace
from fairlead.zones.top_level.process_pointers import Found, LeftAlone, Visit

log = logging.getLogger("fairlead.manager")

LEASED_HERE = (Found.SERVED, Found.DELETED)  # What a visit finds that had the pointer to itself.


@dataclass(slots=True)
class Serving:
    """What one call to `serve` has come to so far.

    Attributes:
      waited_us: of each pointer that was leased: for how long it had been vested.
      visited: the tenants of these pointers.
      tenants: how many tenants, in the order of the pointers, had their turn.
      lapsed, buried: items by kind, of those that had lapsed.
      traces: of the items that were enqueued in a trace that is recorded.
      began_us, ended_us: when the store was asked, and when that had come to an end; 0: it was not asked.
      failed_by: the type of the error with which the store refused; "": it did not.
    """

    counts: Counter[str] = field(default_factory=Counter)
    left_alone: list[LeftAlone] = field(default_factory=list)
    waited_us: list[int] = field(default_factory=list)
    visited: set[Tenant] = field(default_factory=set)
    tenants: int = 0
    lapsed: Counter[str] = field(default_factory=Counter)
    buried: Counter[str] = field(default_factory=Counter)
    traces: list[Trace] = field(default_factory=list)
    began_us: int = 0
    ended_us: int = 0
    failed_by: str = ""

    def note(self, shard_name: str, visits: Sequence[Visit], room: Room, *, now_us: int) -> list[ItemRef]:
        """Note visits that have been committed; return their items as they are sent. They use up `room`."""
        refs = [ref for visit in visits for ref in self._sent(shard_name, visit)]
        suspects = Counter([ref.kind for ref in refs if ref.alone])
        for kind, count in Counter([ref.kind for ref in refs]).items():
            room.take(kind, count, suspects=suspects[kind])
        found = Counter(visit.found for visit in visits)
        buried = [self._given_up(visit, *each) for visit in visits for each in visit.buried]
        self.counts.update({each.value: count for each, count in found.items()})
        self.counts["missed_at_read"] += found[Found.LEASED]
        self.counts["unreadable"] += sum(visit.unreadable for visit in visits)
        self.counts["buried"] += len(buried)
        self.counts["suspects"] += suspects.total() + sum(visit.suspects for visit in visits)
        self.counts["items"] += len(refs)
        self.buried.update(buried)
        self.waited_us += [now_us - visit.ref.vesting_us for visit in visits if visit.found in LEASED_HERE]
        self.visited.update(visit.place.tenant for visit in visits if visit.place and visit.found in LEASED_HERE)
        self.left_alone += [visit.left_alone for visit in visits if visit.left_alone is not None]
        return refs

    def _given_up(self, visit: Visit, item_id: bytes, record: ItemRecord) -> str:
        """Log an item that a visit has buried since its workers died, and return its kind. No worker can log it."""
        assert visit.place is not None
        tenant, name = visit.place.tenant, record.given_id
        log.error(
            "item %s%s of kind %s of %s/%s is given up: %s; see fairlead buried",
            item_id.hex(), "" if name is None else f" ({name!r})",
            spelled_out(record.kind), spelled_out(tenant.app) or "-", spelled_out(tenant.user), record.last_error,
        )  # fmt: skip
        return record.kind

    def _sent(self, shard_name: str, visit: Visit) -> list[ItemRef]:
        """Return the items of a visit as they are sent, and note what is special about them."""
        if not visit.items:
            return []
        assert visit.place is not None
        tenant, zone = visit.place.tenant, visit.place.name
        refs = []
        for item_id, record, alone, stored, vested_us, lapsed in visit.items:
            if lapsed:
                self.lapsed[record.kind] += 1
            if record.trace and is_sampled(record.trace):
                self.traces.append(record.trace)
            carried = stored if is_short(stored, record) else b""
            refs.append(
                ItemRef(shard_name, tenant, zone, item_id, record.lease_id, record.kind, alone, carried, vested_us)
            )
        return refs

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
            tenants=self.tenants,
            buried=counts["buried"],
        )


def is_short(stored: bytes, record: ItemRecord) -> bool:
    """Say whether an item travels whole with the call to its worker."""
    return len(stored) <= CARRIED_BYTES_MAX and not record.payload_bytes
