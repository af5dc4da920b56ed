"""Claims on items: leases that end early if the session of their worker does; see `top_level.worker_sessions`.

A claim is made and renewed under the lease that its worker holds. It is released when its session has ended, or when
its worker goes on without the item: the item vests now, its pointer is woken, and it keeps its lease id. So the next
lease of it counts a lease expiry.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead.zones.engines import Transaction
from fairlead.zones.errors import OwnerUnreadable, TenantMoved
from fairlead.zones.layout import ShardLayout, ZoneLocation
from fairlead.zones.pipelining import Operation, run_one, run_together
from fairlead.zones.probes import probe
from fairlead.zones.queue import stored_item
from fairlead.zones.queue.items import Outcome
from fairlead.zones.queue.lease_check import LeaseRef, check_leases_op
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.records import ItemRecord
from fairlead.zones.top_level import worker_sessions
from fairlead.zones.top_level.worker_sessions import ClaimedItem


def claim_op(
    tr: Transaction, location: ZoneLocation, held: Sequence[LeaseRef], *, session_id: bytes, now_us: int
) -> Operation[list[Outcome]]:
    """Make the leases of held items claims of a session, or renew these claims; return how each went.

    The caller has found by `session_state_op`, in this transaction, that the session has not ended. Succeeds on an
    expired lease if the item was not leased again. Reads with conflict: ownership, the records. Writes: records, index
    entries, CLAIM keys; and the pointer, if the lease gets shorter. May run twice.
    """
    until_us = now_us + location.layout.settings.max_item_lease_ms * 1000
    records = yield from check_leases_op(tr, location, held)
    outcomes = [record if isinstance(record, Outcome) else Outcome.DONE for record in records]
    earlier = False
    for (item_id, _), record in zip(held, records, strict=True):
        if isinstance(record, Outcome):
            continue
        earlier = earlier or until_us < record.vesting_us
        record.lease_us = until_us - now_us
        worker_sessions.add_claim(tr, location, item_id, record, session_id=session_id)
        stored_item.move(tr, location, item_id, record, until_us)
    if earlier:
        yield from QueueZone(location.layout, location.tenant, location.name).wake_op(
            tr, earliest_us=until_us, now_us=now_us
        )
    return outcomes


class Released(NamedTuple):
    """How many claims were released, and from which key on there may be more; None: these were the last."""

    claims: int
    next_key: bytes | None


def release_ended(
    tr: Transaction, layout: ShardLayout, session_id: bytes, *, claims_max: int, now_us: int, begin: bytes = b""
) -> Released:
    """Release up to `claims_max` claims of a session that has ended, from the key `begin` on.

    A session without claims is taken off the list. Reads by snapshot: the CLAIM keys, which only vanish once the
    session has ended; with conflict: see `release`. May run twice, and beside other callers.
    """
    found = run_one(worker_sessions.claimed_op(tr, layout, session_id, claims_max=claims_max, begin=begin))
    if not found and not begin:
        worker_sessions.forget_session(tr, session_id)
    for key, item in found:
        if item is None:
            tr.clear(key)
    claimed = [item for _, item in found if item is not None]
    released = release(tr, claimed, session_id=session_id, now_us=now_us)
    return Released(released, found[-1][0] + b"\x00" if len(found) == claims_max else None)


def release(tr: Transaction, claimed: Sequence[ClaimedItem], *, session_id: bytes, now_us: int) -> int:
    """Let items vest now that are claims of a session, and return how many; clear their CLAIM keys.

    An item that is gone, was leased again, or belongs to another shard by now stays as it is, and its key is cleared.
    An unreadable one keeps its key: a newer version can release it, and its lease ends by time. Reads with conflict:
    ownership, the records; and the pointers as `pointers.read_for_insert` says. Writes: records, index entries, CLAIM
    keys, pointers that must wake.
    """
    zones: dict[bytes, list[ClaimedItem]] = {}
    for location, item_id in claimed:
        zones.setdefault(location.keys.packed, []).append((location, item_id))
    return sum(
        run_together(
            _release_op(tr, items[0][0], [item_id for _, item_id in items], session_id=session_id, now_us=now_us)
            for items in zones.values()
        )
    )


def _release_op(
    tr: Transaction, location: ZoneLocation, item_ids: Sequence[bytes], *, session_id: bytes, now_us: int
) -> Operation[int]:
    records: Sequence[ItemRecord | Outcome]
    try:
        records = yield from check_leases_op(tr, location, [(item_id, None) for item_id in item_ids])
    except TenantMoved:  # Raised before anything was written.
        records = [Outcome.LEASE_LOST] * len(item_ids)
    except OwnerUnreadable:
        records = [Outcome.UNREADABLE] * len(item_ids)
    released = 0
    for item_id, record in zip(item_ids, records, strict=True):
        if record is Outcome.UNREADABLE:
            probe("a claim that cannot be read is not released")
            continue
        tr.clear(worker_sessions.claim_key(session_id, location, item_id))
        if isinstance(record, Outcome) or record.claim != session_id:
            continue
        probe("a claim is released")
        record.claim = b""
        stored_item.move(tr, location, item_id, record, min(record.vesting_us, now_us))
        released += 1
    if released:
        zone = QueueZone(location.layout, location.tenant, location.name)
        yield from zone.wake_op(tr, earliest_us=now_us, now_us=now_us)
    return released
