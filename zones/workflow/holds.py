"""Holds: items by which processes hold locks outside of workflows, so that the locks outlive no process.

A process that asks for locks of a tenant enqueues a *hold*, an item in the tenant's queue, in the transaction that adds
its first request. The hold is leased from the beginning, and its lease is a claim of the process's own session
(`top_level.worker_sessions`). The requests are those of the hold's run. So whatever ends the hold releases its locks
and gives up its places in lines. The process ends it when it releases the locks. Once the process is dead, a consumer
ends its session, and the hold with it (`claims.release`). A hold whose claim was lost vests when its lease ends, and a
worker runs it: its handler has nothing to do, and its end does the rest.

The transactions. Each also reads the tenant's owner with conflict.

                       reads with conflict                       writes
    begin              the hold, the session                     hold, index entry, CLAIM, counts, perhaps the pointer
    take               as `locks.take_op`, for each lock         likewise
    transact under     the hold                                  -
    release            the hold; as `locks.release_op`           hold, index entry, CLAIM (cleared), counts; likewise
    expedite           the item of the holder's run              its record and index entry, perhaps the pointer
    finish             the hold; as the end of a run             as the end of a run
"""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.errors import LockLost, PayloadDamaged
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import DEFAULT_ZONE, ShardLayout, Tenant, ZoneLocation
from fairlead.zones.ownership import check_home
from fairlead.zones.pipelining import Operation, run_one
from fairlead.zones.probes import probe
from fairlead.zones.queue import claims, insertion, stored_item
from fairlead.zones.queue.items import Outcome, new_item, new_record, unpack_payload
from fairlead.zones.queue.lease_check import check_leases_op, error_of
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.top_level import worker_sessions
from fairlead.zones.workflow import locks
from fairlead.zones.workflow.arrival import receiver_op
from fairlead.zones.workflow.locks import HOLD_KIND, LockRequest

HOLD_PRIORITY = 0  # The hold of a dead process comes before all other work of its tenant.
FINISH_AFTER_US = 1_000_000  # A worker has so long for a hold that has vested; then whoever meets its lock ends it.
HOLDERS_MAX = 16  # Of one lock, that are helped at once.


class Hold(NamedTuple):
    """A hold, and the lease by which its process has it. `item_id`: also the run whose requests are the process's."""

    tenant: Tenant
    item_id: bytes
    lease_id: bytes

    def location(self, layout: ShardLayout) -> ZoneLocation:
        """Where the hold lies on a shard that owns its tenant."""
        return layout.location(self.tenant, DEFAULT_ZONE)


def begin_op(
    tr: Transaction, location: ZoneLocation, hold: Hold, *, process: str, session_id: bytes, now_us: int
) -> Operation[None]:
    """Enqueue a hold, leased and claimed. The caller has read with conflict that it is not there, and its session.

    Reads with conflict: the pointer as `pointers.read_for_insert` says. Writes: record, index entry, CLAIM, counts; the
    pointer, if it must be made or woken. May run twice.
    """
    term_us = location.layout.settings.max_item_lease_ms * 1000
    until_us = now_us + term_us
    item = new_item(HOLD_KIND, {"process": process}, priority=HOLD_PRIORITY)
    record = new_record(item, hold.item_id, vesting_us=until_us, now_us=now_us)
    record.lease_id, record.lease_us, record.leased_us, record.lease_number = hold.lease_id, term_us, now_us, 1
    record.keeps_run = True
    worker_sessions.add_claim(tr, location, hold.item_id, record, session_id=session_id)
    stored_item.insert(tr, location, hold.item_id, record)
    stored_item.change_count(tr, location, HOLD_KIND, 1)
    yield from insertion.wake_op(tr, location, earliest_us=until_us, now_us=now_us)


def begin_or_claim_op(
    tr: Transaction, location: ZoneLocation, hold: Hold, *, process: str, session_id: bytes, now_us: int
) -> Operation[None]:
    """Begin a hold; if it has begun, claim it under the session. See `begin_op` and `claims.claim_op`.

    Raises:
      LockLost, ItemUnreadable, TenantMoved: see `find_op`.
    """
    record = yield from find_op(tr, location, hold)
    if record is None:
        yield from begin_op(tr, location, hold, process=process, session_id=session_id, now_us=now_us)
    elif record.claim != session_id:
        ref = (hold.item_id, hold.lease_id)
        yield from claims.claim_op(tr, location, [ref], session_id=session_id, now_us=now_us)


def process_of(payload: bytes) -> str:
    """Return which process a hold says that it belongs to, in words. `payload`: packed, as `begin_op` stores it."""
    try:
        found = unpack_payload(payload)
    except PayloadDamaged:
        return "a process"
    return str(found["process"]) if isinstance(found, dict) and "process" in found else "a process"


def find_op(tr: Transaction, location: ZoneLocation, hold: Hold) -> Operation[ItemRecord | None]:
    """Return the record of a hold that its process still has; None: it is not there. Reads it with conflict.

    Raises:
      LockLost: a worker has it.
      ItemUnreadable: a newer version wrote it.
      TenantMoved: another shard owns the tenant.
    """
    (found,) = yield from check_leases_op(tr, location, [(hold.item_id, hold.lease_id)])
    if found is Outcome.GONE:
        return None
    if found is Outcome.LEASE_LOST:
        raise _lost(hold)
    if isinstance(found, Outcome):
        raise error_of(found, hold.item_id)
    return found


def claim_of(tr: Reader, location: ZoneLocation, hold: Hold) -> bytes:
    """Return the session whose claim a hold is, if its process still has it here; else b"". One snapshot read."""
    value = tr.snapshot.get(location.keys.item(hold.item_id)).value
    record = None if value is None else decode(ItemRecord, value)
    return record.claim if record is not None and record.lease_id == hold.lease_id else b""


def check_held(tr: Transaction, location: ZoneLocation, hold: Hold) -> None:
    """See that a process still has its hold, so that the transaction cannot commit once it has not. See `find_op`.

    Raises:
      LockLost: it has not.
    """
    if run_one(find_op(tr, location, hold)) is None:
        raise _lost(hold)


def take_all(
    tr: Transaction,
    location: ZoneLocation,
    hold: Hold,
    wanted: Sequence[bytes],
    *,
    shared: bool,
    process: str,
    now_us: int,
) -> bytes | None:
    """Request packed locks, one after the other, up to the first that is not free; return that one, or None.

    `wanted`: in the order in which locks are taken. The caller has read the hold with conflict, or begun it. May run
    twice; a lock that is requested already is not requested again. Reads and writes: see `locks.take_op`.
    """
    for lock in wanted:
        request = LockRequest(
            *hold.tenant, DEFAULT_ZONE, hold.item_id, hold.item_id, HOLD_KIND, shared, "", now_us, None, process
        )
        if not run_one(locks.take_op(tr, location, lock, request)):
            return lock
    return None


class AwaitedGrant(NamedTuple):
    """A request that waits. `watch`: ready once it changes."""

    watch: object


def await_grant(tr: Transaction, location: ZoneLocation, hold: Hold, lock: bytes) -> AwaitedGrant | None:
    """Return a watch of a request that waits; None: it waits no more. Snapshot reads, and a watch.

    Raises:
      TenantMoved: another shard owns the tenant.
    """
    check_home(tr, location)
    keys = location.keys.tenant
    number = tr.snapshot.get(locks.of_run_key(keys, hold.item_id, lock)).value
    place = None if number is None else locks.number_of(number)
    if place is None:
        return None
    key = locks.request_key(keys, lock, place)
    value = tr.snapshot.get(key).value
    request = None if value is None else locks.decode_request(value)
    if request is None or request.held_us is not None:
        return None
    return AwaitedGrant(tr.watch(key))


def release(tr: Transaction, location: ZoneLocation, hold: Hold, held: Sequence[bytes], *, now_us: int) -> None:
    """Release packed locks, and end the hold. See `locks.release_op` and `QueueZone.complete`.

    `held`: those that may have been requested. A workflow that gets one of them is signalled at once.

    Raises:
      LockLost: the process has it no more; nothing is written.
    """
    check_held(tr, location, hold)
    for lock in held:
        run_one(locks.release_op(tr, location, lock, hold.item_id, now_us=now_us))
    queue = QueueZone(location.layout, location.tenant, location.name)
    queue.complete(tr, hold.item_id, now_us=now_us, lease_id=hold.lease_id)


# --- Helping ---


def holders(tr: Reader, keys: TenantKeys, lock: bytes, *, besides: bytes) -> list[LockRequest]:
    """Return requests of other runs that hold a lock, `HOLDERS_MAX` at most. One snapshot read."""
    first = locks.first_requests(tr, keys, lock, requests_max=HOLDERS_MAX)
    known = [each.request for each in first if each.request is not None]
    return [request for request in known if request.held_us is not None and request.run != besides]


def expedite_op(tr: Transaction, location: ZoneLocation, holder: LockRequest, *, now_us: int) -> Operation[bool]:
    """Let the item of a workflow that holds a lock vest now, if it backs off after an error; return whether it did.

    A workflow that sleeps, or waits, has said for how long: it stays as it is, and so does a dead letter. `location`:
    the zone of the item. Reads with conflict: ownership, the record; without one, the dead letter; the pointer as
    `pointers.read_for_insert` says. Writes: record, index entry, perhaps the pointer. May run twice.

    Raises:
      ItemUnreadable: a newer version wrote the item, or it is damaged.
      TenantMoved: another shard owns the tenant.
    """
    receiver = yield from receiver_op(tr, location, holder.item_id)
    if receiver is None or receiver.run != holder.run or receiver.dead_letter is not None:
        return False
    record = receiver.record
    if record.lease_id or not record.error_count or record.waits_for or record.vesting_us <= now_us:
        return False
    probe("a workflow that backs off is expedited, because another one waits for its lock")
    record.delayed_until_us = now_us
    stored_item.move(tr, location, holder.item_id, record, now_us)
    yield from insertion.wake_op(tr, location, earliest_us=now_us, now_us=now_us)
    return True


def finish(tr: Transaction, location: ZoneLocation, holder: LockRequest, *, now_us: int) -> int | None:
    """End a hold that vested long enough ago: its process has it no more, and no worker took it. Releases its locks.

    Return when the hold can be ended, microseconds since the epoch, if that is later; None: it is ended. Reads with
    conflict: ownership, the hold; see `run_end.end_run_op`. Writes: see `QueueZone.complete`. May run twice.

    Raises:
      ItemUnreadable: a newer version wrote the hold.
      TenantMoved: another shard owns the tenant.
    """
    (found,) = run_one(check_leases_op(tr, location, [(holder.item_id, None)]))
    if found is Outcome.GONE:
        return None
    if isinstance(found, Outcome):
        raise error_of(found, holder.item_id)
    from_us = found.vesting_us + FINISH_AFTER_US
    if from_us > now_us:
        return from_us
    probe("the hold of a dead process is ended by who meets its lock")
    QueueZone(location.layout, location.tenant, location.name).complete(tr, holder.item_id, now_us=now_us)
    return None


def _lost(hold: Hold) -> LockLost:
    return LockLost(tenant=str(hold.tenant), item=hold.item_id.hex())
