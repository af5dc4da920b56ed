"""Claims on items: leases that end early if the session of their worker does; see `top_level.worker_sessions`.

A claim is made and renewed under the lease that its worker holds. It is released when its session has ended, or when
its worker goes on without the item: the item vests now, its pointer is woken, and it keeps its lease id. So the next
lease of it counts a lease expiry.
"""

from collections.abc import Callable, Sequence
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
from fairlead.zones.reporting import completion_log
from fairlead.zones.reporting.completion_log import EndedOfZone
from fairlead.zones.top_level import worker_sessions
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow.locks import HOLD_KIND


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


RELEASE_MAX = 200  # Claims in one transaction: some 20 ms.
BATCHES_MAX = 20
Transact = Callable[[Callable[[Attempt], "Released"]], "Released"]


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
    claimed = [(*item, None) for _, item in found if item is not None]
    released = release(tr, claimed, session_id=session_id, now_us=now_us)
    return Released(released, found[-1][0] + b"\x00" if len(found) == claims_max else None)


def release_all(
    layout: ShardLayout, transact: Transact, session_id: bytes, *, now_us: int, batches_max: int = BATCHES_MAX
) -> int:
    """Release the claims of a session that has ended, in transactions of some each; return how many.

    A session that has none left is taken off the list, and one with more claims than that stays on it.

    Args:
      transact: runs a function in a transaction.
      batches_max: how many transactions at most.
    """
    next_key: bytes | None = b""
    claims = batches = 0
    while next_key is not None and batches < batches_max:

        def body(attempt: Attempt, begin: bytes = next_key) -> Released:
            return release_ended(attempt.tr, layout, session_id, claims_max=RELEASE_MAX, now_us=now_us, begin=begin)

        released = transact(body)
        claims, batches, next_key = claims + released.claims, batches + 1, released.next_key
    if claims and next_key is None:
        transact(lambda attempt: release_ended(attempt.tr, layout, session_id, claims_max=RELEASE_MAX, now_us=now_us))
    return claims


def release(
    tr: Transaction, claimed: Sequence[tuple[ZoneLocation, bytes, bytes | None]], *, session_id: bytes, now_us: int
) -> int:
    """Let items vest now that are claims of a session, and return how many; clear their CLAIM keys.

    `claimed`: where each item lies, its id, and the lease under which it was claimed; None: any lease of an ended
    session. One that was leased anew and claimed by the same session stays as it is. An item that is gone, or is
    another's claim, stays as it is, too, and its key is cleared. An unreadable one keeps its key: a newer version can
    release it, and its lease ends by time. If the tenant has moved to another shard, its keys stay: by them the mover
    finds the claims at the new home, and then it clears the keys. A hold (`fairlead.zones.workflow.holds`) has nothing
    to run, and ends at once, which releases its locks.

    Reads with conflict: ownership, the records; and the pointers as `pointers.read_for_insert` says. Writes: records,
    index entries, CLAIM keys, pointers that must wake; of a hold what `complete_op` writes.
    """
    zones: dict[ZoneLocation, list[LeaseRef]] = {}
    for location, item_id, lease_id in claimed:
        zones.setdefault(location, []).append((item_id, lease_id))
    return sum(
        run_together(
            _release_op(tr, location, held, session_id=session_id, now_us=now_us) for location, held in zones.items()
        )
    )


def _release_op(
    tr: Transaction, location: ZoneLocation, held: Sequence[LeaseRef], *, session_id: bytes, now_us: int
) -> Operation[int]:
    records: Sequence[ItemRecord | Outcome]
    try:
        records = yield from check_leases_op(tr, location, held)
    except TenantMoved:  # Raised before anything was written.
        return 0
    except OwnerUnreadable:
        records = [Outcome.UNREADABLE] * len(held)
    released = 0
    ends: list[LeaseRef] = []
    for (item_id, _), record in zip(held, records, strict=True):
        if record is Outcome.UNREADABLE or record is Outcome.LEASE_LOST:
            probe("a claim that cannot be read, or is a newer one, is not released")
            continue
        tr.clear(worker_sessions.claim_key(session_id, location, item_id))
        if isinstance(record, Outcome) or record.claim != session_id:
            continue
        released += 1
        if record.kind == HOLD_KIND:
            ends.append((item_id, record.lease_id))
            continue
        probe("a claim is released")
        record.claim = b""
        stored_item.move(tr, location, item_id, record, min(record.vesting_us, now_us))
    zone = QueueZone(location.layout, location.tenant, location.name)
    if released > len(ends):
        yield from zone.wake_op(tr, earliest_us=now_us, now_us=now_us)
    if ends:
        probe("the hold of a dead process is ended")
        ended: list[EndedOfZone] = []
        yield from zone.complete_op(tr, ends, now_us=now_us, ended=ended)
        completion_log.append(tr, location.layout, ended, now_us=now_us)
    return released
