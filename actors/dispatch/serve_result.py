"""The result of one call to a manager: the items that it leased, and what is counted of them.

The reply goes to the scanner. What telemetry counts is added once, when the call ends, and not item by item.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from fairlead.actors.messages import CARRIED_BYTES_MAX, ItemRef, ScanInfo, ServeReply
from fairlead.actors.runtime.safe_text import escaped
from fairlead.actors.telemetry.counters import Counters
from fairlead.actors.telemetry.metrics import (
    CONFLICT_STEPS,
    CONFLICTS,
    DEAD_LETTERED,
    EXPIRED,
    OPERATION,
    POINTER_LATENCY,
)
from fairlead.actors.telemetry.spans import Spans
from fairlead.actors.telemetry.traces import is_sampled
from fairlead.zones.layout import Tenant
from fairlead.zones.queue.dequeue_plan import Capacity, Reservation
from fairlead.zones.records import ItemRecord, Trace
from fairlead.zones.top_level.process_pointers import Deferred, PointerOutcome, PointerResult

log = logging.getLogger("fairlead.manager")

LEASED_HERE = (PointerOutcome.SERVED, PointerOutcome.DELETED)  # Outcomes of pointers that this manager leased.


@dataclass(slots=True)
class ServeResult:
    """The result of one call to `serve` so far.

    Attributes:
      waited_us: for how long each leased pointer had been vested.
      served_tenants: the tenants of these pointers.
      tenants: how many tenants, in the order of the pointers, were served.
      expired: by kind, the items whose last lease had expired; dead_letters: those that became dead letters for that.
      traces: of the items that were enqueued in a trace that is recorded.
      began_us, ended_us: when the transactions began and ended; 0: there was none.
      failed_by: the type of the error with which the store refused; "": it did not.
    """

    counts: Counter[str] = field(default_factory=Counter)
    deferred: list[Deferred] = field(default_factory=list)
    waited_us: list[int] = field(default_factory=list)
    served_tenants: set[Tenant] = field(default_factory=set)
    tenants: int = 0
    expired: Counter[str] = field(default_factory=Counter)
    dead_letters: Counter[str] = field(default_factory=Counter)
    traces: list[Trace] = field(default_factory=list)
    began_us: int = 0
    ended_us: int = 0
    failed_by: str = ""

    def note(
        self, shard_name: str, results: Sequence[PointerResult], capacity: Capacity, *, now_us: int
    ) -> list[ItemRef]:
        """Add committed results, and take their items out of `capacity`; return the items as they are sent."""
        refs = [ref for result in results for ref in self._item_refs(shard_name, result)]
        poison_candidates = sum(ref.isolated for ref in refs)
        capacity.take(Reservation(Counter(ref.kind for ref in refs), poison_candidates))
        found = Counter(result.outcome for result in results)
        dead_letters = [self._log_dead_letter(result, *each) for result in results for each in result.dead_letters]
        self.counts.update({each.value: count for each, count in found.items()})
        self.counts["missed_at_read"] += found[PointerOutcome.LEASED]
        self.counts["unreadable"] += sum(result.unreadable for result in results)
        self.counts["dead_lettered"] += len(dead_letters)
        self.counts["poison_candidates"] += poison_candidates + sum(result.poison_candidates for result in results)
        self.counts["items"] += len(refs)
        self.dead_letters.update(dead_letters)
        self.waited_us += [now_us - result.ref.vesting_us for result in results if result.outcome in LEASED_HERE]
        self.served_tenants.update(
            result.location.tenant for result in results if result.location and result.outcome in LEASED_HERE
        )
        self.deferred += [result.deferred for result in results if result.deferred is not None]
        return refs

    def _log_dead_letter(self, result: PointerResult, item_id: bytes, record: ItemRecord) -> str:
        """Log an item that became a dead letter because its workers died, and return its kind. No worker can log it."""
        assert result.location is not None
        tenant, name = result.location.tenant, record.given_id
        log.error(
            "item %s%s of kind %s of %s is given up: %s; see fairlead dead-letters list",
            item_id.hex(), "" if name is None else f" ({name!r})",
            escaped(record.kind), escaped(str(tenant)), record.last_error,
        )  # fmt: skip
        return record.kind

    def _item_refs(self, shard_name: str, result: PointerResult) -> list[ItemRef]:
        """Return the items of a result as they are sent; count the expired ones and collect traces."""
        if not result.items:
            return []
        assert result.location is not None
        tenant, zone = result.location.tenant, result.location.name
        refs = []
        for item_id, record, isolated, stored, vested_us, expired in result.items:
            if expired:
                self.expired[record.kind] += 1
            if record.trace and is_sampled(record.trace):
                self.traces.append(record.trace)
            carried = stored if is_short(stored, record) else b""
            refs.append(
                ItemRef(shard_name, tenant, zone, item_id, record.lease_id, record.kind, isolated, carried, vested_us)
            )
        return refs

    def record_metrics(self, counters: Counters, shard_name: str) -> None:
        """Add it to the telemetry. The manager's lock is held."""
        latency = counters.histogram(POINTER_LATENCY, shard_name)
        for waited_us in self.waited_us:
            latency.record(waited_us)
        if self.ended_us:
            served = counters.histogram(OPERATION, "serve", "", shard_name, self.failed_by)
            served.record(self.ended_us - self.began_us)
        for step in CONFLICT_STEPS:
            counters.add(CONFLICTS, shard_name, step, count=self.counts[f"missed_at_{step}"])
        for metric, kinds in ((EXPIRED, self.expired), (DEAD_LETTERED, self.dead_letters)):
            for kind, count in kinds.items():
                counters.add(metric, kind, count=count)

    def record_span(self, spans: Spans | None, shard_name: str, scan: ScanInfo) -> None:
        """Record the call as a span, if it leased items and spans are recorded."""
        if spans is not None and self.counts["items"]:
            spans.serve(
                shard_name, traces=self.traces, items=self.counts["items"], began_us=self.began_us,
                ended_us=self.ended_us, scan=scan.trace, failed_by=self.failed_by,
            )  # fmt: skip

    def reply(self, *, capacity: int) -> ServeReply:
        """Return the reply to the scanner."""
        counts = self.counts
        return ServeReply(
            items=counts["items"],
            missed_at_read=counts["missed_at_read"],
            missed_at_commit=counts["missed_at_commit"],
            unreadable=counts["unreadable"],
            capacity=capacity,
            deferred=tuple(self.deferred),
            conflicts=counts["conflicts"],
            waited_us=tuple(self.waited_us),
            tenants=self.tenants,
            dead_lettered=counts["dead_lettered"],
        )


def is_short(stored: bytes, record: ItemRecord) -> bool:
    """Say whether a whole item fits into the call to its worker."""
    return len(stored) <= CARRIED_BYTES_MAX and not record.payload_bytes
