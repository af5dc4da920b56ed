"""Processing a pointer: obtain its lease, dequeue, and requeue or complete it (QuiCK section 6, Algorithm 2).

All steps share one transaction, and so may many pointers. Any other transaction that changed the pointer makes the
commit conflict, so the lease of the pointer never has to be written. A pointer that stays contended is leased first, by
`lease`, in a transaction of its own. Then other consumers leave it alone, but enqueues do not: to a busy tenant some
enqueue comes during every attempt. So a pointer that is processed under a written lease stays awake whatever its zone
holds: then no enqueue conflicts with it.

Where a pointer goes after it has been processed:
    items remain that can run        to now: behind every other vested pointer, unless its tenant's quantum is not used
                                     up (`fair_share`)
    items at their kinds' limits     for `throttle_delay`
    only items of unknown kinds      until the first of the others vests, `pause_recheck` at most
    only paused items                to sleep until the first of the others vests, `max_sleep` at most; see `policies`
    only delayed and leased items    to sleep until the first of them vests, `max_sleep` at most
    only items that wait longer      to sleep until the first of them vests, a day at most: of none the lease can end
      than any lease lasts           sooner, so only an enqueue, a signal or a cancellation changes the zone
    nothing                          to sleep until `min_inactive` has passed, and then it is completed: deleted
    any of these, under a lease      for `wake_slack` at most, which is not a sleep
Items that cannot run here may run on another consumer. If a live consumer knows such a kind, the pointer stays vested
for it, and this consumer defers the pointer for the time stated. Otherwise a consumer whose clock is ahead would always
come first.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.errors import OwnerUnreadable, TenantMoved
from fairlead.zones.external.names import external_zone
from fairlead.zones.layout import ShardLayout, ZoneLocation
from fairlead.zones.ownership import check_owner, comes_in
from fairlead.zones.pipelining import Operation, run_one, run_together, start_op
from fairlead.zones.policy import policies
from fairlead.zones.policy.fair_share import ONE_ITEM, FairShare
from fairlead.zones.policy.policies import NO_POLICIES, Policies, read_policies_op
from fairlead.zones.probes import probe
from fairlead.zones.queue import stored_item
from fairlead.zones.queue.dequeue import IndexScan, apply_plan, plan_op
from fairlead.zones.queue.dequeue_plan import Admission, Capacity, Cursor, DequeuePlan
from fairlead.zones.queue.index_scan import WANT_ALL, conflict_before_first
from fairlead.zones.queue.items import LeasedItem
from fairlead.zones.records import ItemRecord, PointerRecord, decode, is_newer
from fairlead.zones.settings import DAY_MS, ZoneSettings
from fairlead.zones.top_level import pointers
from fairlead.zones.top_level.pointers import PointerRef
from fairlead.zones.top_level.sessions import listing_op
from fairlead.zones.workflow.children import report_dead_letters

# The longest sleep of a pointer whose zone's items all wait. A million tenants that wait cost twelve looks a second.
WAITING_SLEEP_US_MAX = DAY_MS * 1000
FAR_ENTRIES_MAX = 16  # Items of a zone that wait for long, of which each is read: it may have a lease.


class PointerOutcome(Enum):
    """What became of a pointer."""

    SERVED = "served"  # it was leased and requeued, whether or not its zone held anything to run
    DELETED = "deleted"  # its zone has been empty for `min_inactive`
    LEASED = "leased"  # CONFLICT in the paper: it vests later now, since another consumer came first
    GONE = "gone"  # the index entry led nowhere, or to another vesting time, and was cleared if it still stood
    UNREADABLE = "unreadable"  # written by a newer version: left alone
    AWAY = "away"  # its items lie in an external store that does not answer: left alone for a second
    LOCKED = "locked"  # a transaction across shards has locked its tenant: left alone for a moment


class Deferred(NamedTuple):
    """A pointer that a consumer leaves to others: it stays vested, and this consumer ignores it until `until_us`.

    Other consumers can run its items, and this one would only be in their way. If the pointer vests at another time,
    another consumer has processed it, or an item was enqueued (`pointers.wake`) that may be for this consumer.
    """

    id: bytes
    vesting_us: int
    until_us: int


@dataclass(slots=True)
class PointerResult:
    """What came of one pointer.

    Attributes:
      dead_letters: ids and records of the items that were moved to the dead letters.
      unreadable: how many records could not be read.
      skipped_kinds: the kinds of vested items that cannot run now.
      poison_candidates: how many items were passed over because they must run isolated.
    """

    ref: PointerRef
    outcome: PointerOutcome
    location: ZoneLocation | None = None
    items: Sequence[LeasedItem] = ()
    dead_letters: Sequence[tuple[bytes, ItemRecord]] = ()
    unreadable: int = 0
    deferred: Deferred | None = None
    skipped_kinds: Collection[str] = ()
    poison_candidates: int = 0


@dataclass(frozen=True, slots=True)
class DequeueParams:
    """What all pointers of a transaction have in common.

    `lease_id`: 16 random bytes, new for every transaction. `holder`: the consumer's id. `may_defer`: whether a pointer
    whose items cannot run here may be left to other consumers; else it sleeps.
    """

    now_us: int
    lease_id: bytes
    lease_us: int
    items_max: int
    throttle_delay_us: int
    pause_recheck_us: int
    may_defer: bool = True
    holder: bytes | None = None


def process_pointers(
    tr: Transaction,
    layout: ShardLayout,
    refs: Sequence[PointerRef],
    capacity: Capacity,
    params: DequeueParams,
    known: Policies = NO_POLICIES,
) -> tuple[list[PointerResult], Policies]:
    """Process pointers together, by the policies in force; return what came of each, and the policies as found.

    `known`: the policies as they were found last. While the shard is paused no pointer is processed.
    """
    asking = start_op(read_policies_op(tr, known))
    fair_share = FairShare(tr, params.items_max)
    operations = [start_op(process_op(tr, layout, ref, capacity, fair_share, params)) for ref in refs]
    in_force = run_one(asking)
    if in_force.shard_paused:
        probe("a paused shard is not processed")
        return [], in_force
    capacity.paused = in_force.paused_kinds
    for kind in in_force.limited_later_than(capacity.observed):
        capacity.exhaust(kind)  # How many may run under the later limit is not known yet.
    results = run_together(operations)
    for result in results:
        if result.location is not None and result.dead_letters:
            report_dead_letters(tr, result.location, result.dead_letters, now_us=params.now_us)
    return results, in_force


def process_op(
    tr: Transaction,
    layout: ShardLayout,
    ref: PointerRef,
    capacity: Capacity,
    fair_share: FairShare,
    params: DequeueParams,
) -> Operation[PointerResult]:
    """Run Algorithm 2 for one pointer, but for its line 6, which follows the commit. Joins the batch's `fair_share`.

    Reads with conflict: the pointer, ownership, the records of the items taken; before a sleep: the vesting index up
    to the first entry of every priority, or all of it if it holds an item that cannot run here; before a deletion: the
    whole item range. Writes: the pointer and its index entry, the items and theirs; before a sleep: a declared write
    conflict on the pointer's guard, so that a concurrent enqueue of another priority notices the sleep. A pointer that
    is deferred counts as a sleep.

    The scan's entry names the zone, so the first round reads the pointer, ownership and the front of the zone's index.
    A damaged pointer is made anew.
    """
    location = pointers.location_of(ref, layout)
    if location is None:
        probe("an index entry of a pointer names no zone of its part")
        return (yield from clear_dangling_op(tr, layout, ref))
    stored = tr.get(location.keys.pointer)
    quantum = fair_share.join(location, tr.get(location.keys.tenant.owner))
    index_scan = IndexScan(location, items_max=params.items_max, now_us=params.now_us)
    index_scan.send(tr)
    yield
    if stored.value is None:
        probe("a pointer was deleted after the scan")
        return (yield from clear_dangling_op(tr, layout, ref))
    pointer = decode(PointerRecord, stored.value)
    damaged = pointer is None and not is_newer(stored.value)
    if damaged:  # All that it says can be found out anew.
        pointer = PointerRecord(ref.vesting_us, params.now_us, priority=ref.priority)
    if pointer is None:
        return leave_unreadable(ref, params)
    # Line 1, obtain_lease(p): the pointer was read with conflict, and the requeue below writes it.
    if pointer.vesting_us > params.now_us and pointer.lease_id != params.lease_id:
        return (yield from leave_leased_op(tr, layout, ref, pointer))  # Line 2
    # Lines 3 to 5: is_active is whether the plan found any entry, p_t is `pointer.last_active_us`.
    cursor = Cursor(pointer.cursor, Admission(pointer.best_skipped))
    quantum.deficit = pointer.deficit
    plan = yield from plan_op(tr, index_scan, capacity, quantum, cursor, lease_us=params.lease_us)
    pointer.deficit = quantum.deficit_after(taken=len(plan.items), more=plan.remaining is Admission.RUNS)
    # Lines 7 to 12: requeue the pointer or delete it. Under a lease that was written before, the pointer stays awake.
    if pointer.lease_id == params.lease_id:
        outcome, deferred = PointerOutcome.SERVED, None
        _requeue_awake(tr, location, pointer, plan, params)
    else:
        outcome, deferred = yield from requeue_pointer_op(tr, location, pointer, plan, capacity, params)
    # Line 5, what the dequeue writes. It comes last: to find a conflict before the first write is cheap.
    items = apply_plan(
        tr, location, plan, quantum.policy, lease_id=params.lease_id, lease_us=params.lease_us, now_us=params.now_us,
        holder=params.holder,
    )  # fmt: skip
    return PointerResult(  # Line 13
        ref, outcome, location, items, [(item_id, record) for item_id, record, _ in plan.dead_letters],
        plan.unreadable + damaged, deferred, plan.skipped_kinds, plan.poison_candidates,
    )  # fmt: skip


def lease(
    tr: Transaction, layout: ShardLayout, ref: PointerRef, *, lease_id: bytes, lease_us: int, now_us: int
) -> bool:
    """Take a lease on a vested pointer (Algorithm 2, line 1); return False if another consumer has it.

    Reads the ownership and the record with conflict; writes the record and its index entry. Does not conflict with
    enqueues. May run twice: a pointer that carries `lease_id` was leased by an earlier attempt, whose commit was of
    unknown result. The pointer of a tenant whose ownership record cannot be read is leased, so that nobody looks at it
    all the time.

    Raises:
      TenantMoved, TenantLocked: see `check_owner`. A tenant that comes in has a copy of the pointer here.
    """
    location = pointers.location_of(ref, layout)
    if location is None:
        return False
    keys = location.keys.tenant
    owner, stored = tr.get(keys.owner), tr.get(location.keys.pointer)
    with suppress(OwnerUnreadable):
        check_owner(tr, layout, keys, owner.value)
    value = stored.value
    pointer = None if value is None else decode(PointerRecord, value)
    if pointer is not None and pointer.lease_id == lease_id:
        probe("a lease of a pointer of unknown result is found applied")
        return True
    if pointer is None or pointer.vesting_us > now_us:
        probe("a contended pointer is another consumer's by now")
        return False
    pointer.lease_id, pointer.lease_us, pointer.deferred = lease_id, lease_us, False
    pointers.move(tr, location, pointer, now_us + lease_us, now_us=now_us)
    return True


def drop_moved(tr: Transaction, layout: ShardLayout, ref: PointerRef) -> bool:
    """Delete the pointer of a tenant that lives on another shard; False: it lives here, or nobody can say where.

    The tenant's pointers are at its home by then. While the tenant comes in, the pointer of an external queue may be a
    copy, and nothing else of the tenant's rows says that it is needed: then only the entry is cleared. A copy has none
    before the tenant arrives.

    Reads with conflict: ownership, the pointer; the policies by snapshot. Writes: the pointer, its index entry, those
    in the index of paused kinds; declares a write conflict on its guard. May run twice.
    """
    location = pointers.location_of(ref, layout)
    if location is None:
        return False
    keys = location.keys.tenant
    owner, stored = tr.get(keys.owner), tr.get(location.keys.pointer)
    try:
        check_owner(tr, layout, keys, owner.value)
    except OwnerUnreadable:
        return False
    except TenantMoved:
        tr.clear(location.part.vest(ref.priority, ref.vesting_us, ref.id))
        pointer = None if stored.value is None else decode(PointerRecord, stored.value)
        if pointer is None:
            return True
        if external_zone(location.name) is not None and comes_in(owner.value):
            return True
        probe("a visit deletes the pointer of a tenant that has moved")
        policies.forget_paused_pointer(tr, location)
        pointers.delete(tr, location, pointer)
        return True
    return False


def delay_after(plan: DequeuePlan, *, last_active_us: int, params: DequeueParams, settings: ZoneSettings) -> int | None:
    """Return for how long to requeue a processed pointer, in microseconds, or None to delete it (lines 7 to 12)."""
    sleep_us_max = settings.max_sleep_ms * 1000
    next_us = min((entry.vesting_us - params.now_us for entry in plan.first), default=None)
    if plan.remaining is Admission.RUNS:
        return 0
    if plan.remaining is Admission.FULL:
        probe("a zone has only kinds at their limits")
        return params.throttle_delay_us
    if plan.remaining is Admission.UNKNOWN:
        # What vests next may be of a known kind. It is no reason to look more often than at a kind at its limit.
        wait_us = params.pause_recheck_us if next_us is None else max(next_us, params.throttle_delay_us)
        return min(wait_us, params.pause_recheck_us, sleep_us_max)
    if plan.remaining is Admission.PAUSED:
        return sleep_us_max if next_us is None else min(max(next_us, params.throttle_delay_us), sleep_us_max)
    if next_us is None:
        inactive_us = params.now_us - last_active_us
        by_wrong_clock = inactive_us < -settings.max_skew_ms * 1000
        if inactive_us >= settings.min_inactive_ms * 1000 or by_wrong_clock:
            return None
        return min(settings.min_inactive_ms * 1000 - inactive_us, sleep_us_max)
    if next_us > settings.max_item_lease_ms * 1000 + settings.clocks_apart_us_max and not plan.unreadable:
        probe("a pointer sleeps for as long as its zone's items wait")
        sleep_us_max = WAITING_SLEEP_US_MAX
    return min(next_us, sleep_us_max)


def _requeue_awake(
    tr: Transaction, location: ZoneLocation, pointer: PointerRecord, plan: DequeuePlan, params: DequeueParams
) -> None:
    """Requeue a pointer to where every enqueue takes it for awake."""
    settings = location.layout.settings
    slack_us = settings.wake_slack_ms * 1000
    delay_us = delay_after(plan, last_active_us=pointer.last_active_us, params=params, settings=settings)
    _update_pointer(pointer, plan, params, deferred=False)
    vesting_us = params.now_us + (slack_us if delay_us is None else min(delay_us, slack_us))
    pointers.move(tr, location, pointer, vesting_us, now_us=params.now_us, entry_value=_entry_value(plan))


def _update_pointer(pointer: PointerRecord, plan: DequeuePlan, params: DequeueParams, *, deferred: bool) -> None:
    """Write in a pointer what the plan leaves in its zone, whether that is for others, and that its lease has ended."""
    if not plan.is_idle and (plan.remaining is not None or plan.first):
        pointer.last_active_us = params.now_us
    pointer.lease_id, pointer.lease_us = b"", 0
    pointer.cursor, pointer.best_skipped = plan.cursor.key, int(plan.cursor.best_skipped)
    pointer.deferred = deferred
    pointer.outcome = plan.remaining


def _entry_value(plan: DequeuePlan) -> bytes:
    return pointers.UNREADABLE if plan.unreadable else b""


def requeue_pointer_op(
    tr: Transaction,
    location: ZoneLocation,
    pointer: PointerRecord,
    plan: DequeuePlan,
    capacity: Capacity,
    params: DequeueParams,
) -> Operation[tuple[PointerOutcome, Deferred | None]]:
    """Requeue or delete a pointer (lines 7 to 12); return which, and whether it is deferred."""
    settings = location.layout.settings
    # Lines 7 to 9, and the condition of line 11.
    delay_us = delay_after(plan, last_active_us=pointer.last_active_us, params=params, settings=settings)
    elsewhere = False
    if params.may_defer and plan.remaining in (Admission.UNKNOWN, Admission.FULL):
        elsewhere = yield from _may_run_elsewhere_op(tr, plan, capacity, params.now_us)
    if plan.remaining is None:
        if (yield from _revoke_op(tr, location, plan, params, outlasts=(delay_us or 0) > params.lease_us)):
            delay_us = 0
        conflict_before_first(tr, location.keys, plan.first)
    elif plan.remaining in (Admission.PAUSED, Admission.UNKNOWN):
        # A concurrent enqueue that finds the pointer awake may add an item that can run behind those that cannot.
        tr.add_read_conflict_range(location.keys.vest_priority(0), location.keys.vest_end())
    if delay_us is None:  # Line 12: complete(p, id), unless there are items without index entries.
        begin, end = location.keys.item_range()
        dead_letters = {location.keys.item(item_id) for item_id, _, _ in plan.dead_letters}
        rows = tr.get_range(begin, end, limit=1 + len(dead_letters))
        yield
        if all(row.key in dead_letters for row in rows):
            probe("a pointer is deleted")
            pointers.delete(tr, location, pointer)
            return PointerOutcome.DELETED, None
        delay_us = params.pause_recheck_us  # Records without index entries need a repair.
    yield  # All pointers of a batch declare their conflicts, then all write: to conflict before the first is cheap.
    _update_pointer(pointer, plan, params, deferred=elsewhere)
    until_us = vesting_us = params.now_us + delay_us
    if pointer.deficit >= ONE_ITEM:
        probe("a pointer keeps its place, because its tenant's quantum is not used up")
        vesting_us = pointer.vesting_us
    if elsewhere:
        probe("a pointer is deferred for another consumer")
        # Where it was, unless items were taken from its zone: then it goes behind the others.
        vesting_us = params.now_us if plan.items else min(pointer.vesting_us, params.now_us)
    if vesting_us <= params.now_us:
        pointers.wake_scanners(tr, location)  # The next consumer need not be this one.
    bound_us = max(settings.max_sleep_ms * 1000, delay_us)
    pointers.move(  # Line 10: requeue(p, vesting_delay).
        tr, location, pointer, vesting_us, now_us=params.now_us, bound_us=bound_us, entry_value=_entry_value(plan)
    )
    if delay_us > settings.wake_slack_ms * 1000:
        tr.add_write_conflict_key(location.keys.pointer_guard)
        policies.index_paused_pointer(tr, location, plan.skipped_kinds & capacity.paused)
    return PointerOutcome.SERVED, Deferred(location.pointer_id, vesting_us, until_us) if elsewhere else None


def _revoke_op(
    tr: Transaction, location: ZoneLocation, plan: DequeuePlan, params: DequeueParams, *, outlasts: bool
) -> Operation[bool]:
    """Let items vest now whose lease ends later than any lease may; say whether there were any.

    A clock that was ahead set these leases. Items that wait for long may lie before them: of each priority the first
    entries are tried, `FAR_ENTRIES_MAX` in all. The pointer is processed again at once, which tries the next. Snapshot
    reads of these entries. Reads with conflict: their records.

    Args:
      outlasts: the pointer is about to sleep for longer than this consumer leases items, which is rare. Then the look
        goes behind the first items also if a lease may end as late as they vest, such as that of a long job.
    """
    settings, keys = location.layout.settings, location.keys
    latest_us = params.now_us + settings.max_item_lease_ms * 1000 + settings.clocks_apart_us_max
    first = [entry for entry in plan.first if outlasts or entry.vesting_us > latest_us]
    if not first:
        return False
    limit = max(1, FAR_ENTRIES_MAX // len(first))
    looks = [
        tr.snapshot.get_range(
            max(keys.vest(*entry), keys.vest_after(entry.priority, latest_us)),
            keys.vest_priority(entry.priority + 1),
            limit=limit,
            streaming_mode=WANT_ALL,
        )
        for entry in first
    ]
    yield
    far = [entry for look in looks for row in look if (entry := keys.entry(row.key)) is not None]
    reads = [tr.get(keys.item(entry.id)) for entry in far]
    yield
    revoked = False
    for entry, read in zip(far, reads, strict=True):
        record = None if read.value is None else decode(ItemRecord, read.value)
        if record is not None and record.lease_id and record.vesting_us == entry.vesting_us:
            probe("a lease that ends later than any may is revoked")
            stored_item.move(tr, location, entry.id, record, params.now_us)
            revoked = True
    return revoked


def _may_run_elsewhere_op(tr: Reader, plan: DequeuePlan, capacity: Capacity, now_us: int) -> Operation[bool]:
    """Say whether another live consumer knows a kind that cannot run here. Snapshot reads."""
    kinds = plan.skipped_kinds - capacity.paused
    if not kinds:
        return False
    listed = yield from listing_op(tr, now_us=now_us)
    knowing = sum(each.live and not kinds.isdisjoint(each.record.kinds) for each in listed)
    is_known_here = any(capacity.admission(kind) is not Admission.UNKNOWN for kind in kinds)
    return knowing - is_known_here > 0


def leave_unreadable(ref: PointerRef, params: DequeueParams) -> PointerResult:
    """Leave a pointer that a newer version wrote to consumers of that version."""
    deferred = Deferred(ref.id, ref.vesting_us, params.now_us + params.pause_recheck_us)
    return PointerResult(ref, PointerOutcome.UNREADABLE, deferred=deferred)


def leave_leased_op(
    tr: Transaction, layout: ShardLayout, ref: PointerRef, pointer: PointerRecord
) -> Operation[PointerResult]:
    """Leave a pointer to the consumer that leased it (line 2)."""
    if pointer.vesting_us != ref.vesting_us:
        probe("a pointer was moved after the scan")
        yield from clear_dangling_op(tr, layout, ref)
    return PointerResult(ref, PointerOutcome.LEASED)


def clear_dangling_op(tr: Transaction, layout: ShardLayout, ref: PointerRef) -> Operation[PointerResult]:
    """Clear an index entry that names no pointer, or another vesting time; the record was read with conflict."""
    key = layout.parts[ref.part].vest(ref.priority, ref.vesting_us, ref.id)
    entry = tr.get(key)
    yield
    if entry.value is not None:
        probe("an index entry of a pointer leads nowhere")
        tr.clear(key)
    return PointerResult(ref, PointerOutcome.GONE)
