"""Items that arrive at a worker: it "double-checks that [each] is still leased" (QuiCK section 6)."""

from collections.abc import Iterable, Mapping, Sequence

from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.job import Job
from fairlead.actors.execution.shard_access import ShardAccess, StoreAccess
from fairlead.actors.execution.submitted_handlers import SubmittedHandlers, handler_of_kind
from fairlead.actors.messages import ItemRef
from fairlead.zones.external.store import ExternalStore, ItemLease, LeasedRow
from fairlead.zones.queue import stored_item
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

Stored = tuple[ItemRef, ItemRecord, bytes]  # An item, its record, and its payload.


def still_leased(
    access: ShardAccess, refs: Sequence[ItemRef], submitted: SubmittedHandlers, shards: Mapping[str, Shard]
) -> list[HeldItem]:
    """Return those items of a shard that are still held under the leases with which they were sent.

    No other worker can have a lease that has not expired by a clock that is good. An item that is not held any more is
    left out. So is an item that cannot be read, or that has no handler here: its lease expires. Records that did not
    travel with the call are read by snapshot; this conflicts with nothing.
    """
    carried = [(ref, decode(ItemRecord, ref.stored)) for ref in refs if ref.stored]
    found = [(ref, record, record.payload) for ref, record in carried if record]
    rest = [ref for ref in refs if not ref.stored]
    if rest:
        access.succeeds(lambda: found.extend(_read(access.shard, rest)))
    return _held(access.shard, found, submitted, shards)


def still_leased_in_store(
    access: StoreAccess,
    store: ExternalStore,
    refs: Sequence[ItemRef],
    submitted: SubmittedHandlers,
    shards: Mapping[str, Shard],
) -> list[HeldItem]:
    """Return those items of an external store that are still held, as `still_leased`."""
    carried = [(ref, decode(ItemRecord, ref.stored)) for ref in refs if ref.stored]
    found = [(ref, record, record.payload) for ref, record in carried if record]
    rest = {ref.item_id: ref for ref in refs if not ref.stored}
    if rest:
        now_us = next(iter(shards.values())).clock.now_us()
        leases = [ItemLease(ref.item_id, ref.lease_id) for ref in rest.values()]
        rows: list[LeasedRow] = []
        access.succeeds(lambda: rows.extend(store.read(leases, now_us=now_us)))
        found += [(rest[row.id], row.record, row.record.payload) for row in rows]
    by_shard: dict[str, list[Stored]] = {}
    for each in found:
        by_shard.setdefault(each[0].shard, []).append(each)
    return [held for name, some in by_shard.items() for held in _held(shards[name], some, submitted, shards)]


def _held(
    shard: Shard, found: Iterable[Stored], submitted: SubmittedHandlers, shards: Mapping[str, Shard]
) -> list[HeldItem]:
    now_us = shard.clock.now_us()
    arrived = []
    for ref, record, payload in found:
        if record.lease_id == ref.lease_id and record.vesting_us > now_us:
            handler = handler_of_kind(record.kind, submitted, shards)
            if handler is not None:
                arrived.append(HeldItem(ref, record, handler, Job(shard, ref, record, payload), now_us))
    return arrived


def _read(shard: Shard, refs: Sequence[ItemRef]) -> list[Stored]:
    """Read the records and payloads of items that are too long to travel with the call."""

    def body(attempt: Attempt) -> list[Stored]:
        tr = attempt.tr
        places = [shard.layout.location(ref.tenant, ref.zone) for ref in refs]
        reads = [tr.snapshot.get(place.keys.item(ref.item_id)) for place, ref in zip(places, refs, strict=True)]
        found = []
        for place, ref, read in zip(places, refs, reads, strict=True):
            record = None if read.value is None else decode(ItemRecord, read.value)
            if record is not None:
                found.append((ref, record, stored_item.read_payload(tr, place, ref.item_id, record)))
        return found

    return shard.transact(shard.in_exclusive_section(body))
