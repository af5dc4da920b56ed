"""A visit of external queues: Algorithm 2 for pointers whose items lie in another store (QuiCK sections 6 and 6.1).

One transaction of the shard goes around one statement in the store:

    1. read in the shard: pointers, guards, ownership, policies. From here on an arrival conflicts
    2. lease items of all queues in the store; that is committed at once
    3. ask the store what is left in the queues that gave less than they were asked for
    4. requeue, put to sleep or delete the pointers; commit in the shard

If the shard's commit fails, the items are leased all the same, and the pointers are as they were: somebody visits them
again. A dequeue of unknown result is not repeated: the rows carry the lease id, and their leases expire.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fairlead.zones.engines import StoreUnavailable, Transaction
from fairlead.zones.errors import QueueError
from fairlead.zones.external.cursors import Cursors
from fairlead.zones.external.names import external_zone
from fairlead.zones.external.store import ExternalStore, ItemLease, LeasedRow, Outlook, Queue, Stop, Want
from fairlead.zones.keyspace import IndexEntry
from fairlead.zones.layout import ShardLayout, ZoneLocation
from fairlead.zones.pipelining import Operation, run_one, run_together, start_op
from fairlead.zones.policy.fair_share import FairShare, Quantum
from fairlead.zones.policy.policies import NO_POLICIES, Policies, read_policies_op
from fairlead.zones.policy.tenant_limits import allowed_op, charge_limits, settle_external_markers
from fairlead.zones.probes import probe
from fairlead.zones.queue.dequeue_plan import FRONT, NOTHING, Admission, Capacity, DequeuePlan, Reservation
from fairlead.zones.queue.items import LeasedItem, Outcome
from fairlead.zones.queue.poison_candidates import POISON, is_poison_candidate, poison_error
from fairlead.zones.records import DeadLetterRecord, ItemRecord, PointerRecord, decode, encode, is_newer
from fairlead.zones.top_level import pointers
from fairlead.zones.top_level.pointers import PointerRef
from fairlead.zones.top_level.process_pointers import (
    DequeueParams,
    PointerResult,
    clear_dangling_op,
    leave_leased_op,
    leave_unreadable,
    requeue_pointer_op,
)

ROOM_MAX = 1 << 20  # Of a kind without a limit: more than a visit takes.


class ExternalAway(QueueError):
    """An external store does not answer, or refuses.

    Do: what `remedy` says. Its items wait until it answers again; other stores are served meanwhile.
    """

    message = "an external store does not answer"


@dataclass(slots=True)
class _Visit:
    """One pointer of a visit: what was read of it, and what the store gave.

    `stops`: from where on the queue was looked at; empty: from the front. `looks_again_us`: when the front is due.
    `left`: None: the store did not say. `passed_over`: how many items were returned, as they must run isolated, and
    cannot now.
    """

    ref: PointerRef
    location: ZoneLocation
    stored: Any
    quantum: Quantum
    pointer: PointerRecord | None = None
    damaged: bool = False
    wanted: int = 0
    stops: Sequence[Stop] = ()
    taken: Sequence[LeasedItem] = ()
    dead_letters: Sequence[tuple[bytes, ItemRecord]] = ()
    left: Sequence[Outlook] | None = ()
    looks_again_us: int | None = None
    passed_over: int = 0

    @property
    def queue(self) -> Queue:
        """The queue in the store."""
        found = external_zone(self.location.name)
        assert found is not None
        return Queue(self.location.tenant, found.zone)


class _Unfit(NamedTuple):
    """What was leased and is not to run now: poison candidates without room; and items, with why each is poison."""

    returned: Sequence[LeasedRow] = ()
    poison: Sequence[tuple[LeasedRow, str]] = ()


def visit_queues(
    tr: Transaction,
    layout: ShardLayout,
    refs: Sequence[PointerRef],
    capacity: Capacity,
    params: DequeueParams,
    store: ExternalStore,
    known: Policies = NO_POLICIES,
    cursors: Cursors | None = None,
) -> tuple[list[PointerResult], Policies]:
    """Visit queues of one store; return what came of each pointer, and the policies as found.

    `cursors`: where the caller's visits of this store stopped; None: it remembers none.

    Must run once: what it leases stays leased if the transaction does not commit. Reads with conflict: the pointers,
    their guards, ownership, what limits of tenants need. Writes: as `process_pointers.requeue_pointer_op`; the marks of
    limits.

    Raises:
      ExternalAway: the store does not answer, and has leased nothing as far as is known.
      TenantMoved, TenantLocked: a tenant refuses; nothing was leased.
    """
    asking = start_op(read_policies_op(tr, known))
    fair_share = FairShare(tr, params.items_max)
    results: list[PointerResult] = []
    visits, dangling = _begin_visits(tr, layout, refs, fair_share)
    in_force = run_one(asking)
    if in_force.shard_paused:
        return [], in_force
    capacity.paused = in_force.paused_kinds
    for kind in in_force.limited_later_than(capacity.observed):
        capacity.exhaust(kind)
    vested = []
    for visit in visits:
        ended = run_one(_read_pointer_op(tr, layout, visit, params))
        if ended is None:
            vested.append(visit)
        else:
            results.append(ended)
    results += run_together(clear_dangling_op(tr, layout, ref) for ref in dangling)
    rooms = _rooms(capacity)
    try:
        for visit in vested:
            visit.wanted = _wanted(tr, visit, params, store)
        unfit = _take(vested, rooms, capacity, params, store, layout, cursors or Cursors())
    except StoreUnavailable as error:
        raise ExternalAway(**error.fields, remedy=error.remedy) from error
    _settle_and_ask(vested, unfit, params, store)
    ends = run_together([_end_op(tr, visit, capacity, params) for visit in vested])
    for visit in vested:
        if visit.quantum.policy.is_limited:
            item_ids = [item.id for item in visit.taken]
            charge_limits(tr, visit.location, visit.quantum.policy, item_ids, now_us=params.now_us)
    return [*results, *ends], in_force


def _begin_visits(
    tr: Transaction, layout: ShardLayout, refs: Sequence[PointerRef], fair_share: FairShare
) -> tuple[list[_Visit], list[PointerRef]]:
    """Send the first reads of all pointers; return their visits, and index entries that name no queue."""
    visits, dangling = [], []
    for ref in refs:
        location = pointers.location_of(ref, layout)
        if location is None:
            dangling.append(ref)
            continue
        stored = tr.get(location.keys.pointer)
        tr.add_read_conflict_key(location.keys.pointer_guard)
        visits.append(_Visit(ref, location, stored, fair_share.join(location, tr.get(location.keys.tenant.owner))))
    return visits, dangling


def _read_pointer_op(
    tr: Transaction, layout: ShardLayout, visit: _Visit, params: DequeueParams
) -> Operation[PointerResult | None]:
    """Decode a pointer; return what came of it if it is not to be visited."""
    yield
    value, ref = visit.stored.value, visit.ref
    if value is None:
        probe("an external queue's pointer was deleted after the scan")
        return (yield from clear_dangling_op(tr, layout, ref))
    pointer = decode(PointerRecord, value)
    visit.damaged = pointer is None and not is_newer(value)
    if visit.damaged:
        pointer = PointerRecord(ref.vesting_us, params.now_us, priority=ref.priority)
    if pointer is None:
        return leave_unreadable(ref, params)
    if pointer.vesting_us > params.now_us and pointer.lease_id != params.lease_id:
        return (yield from leave_leased_op(tr, layout, ref, pointer))
    visit.pointer = pointer
    visit.quantum.deficit = pointer.deficit
    return None


def _wanted(tr: Transaction, visit: _Visit, params: DequeueParams, store: ExternalStore) -> int:
    """Return how many items a queue may give."""
    quantum, location = visit.quantum, visit.location
    if quantum.policy.paused:
        return 0
    if quantum.must_ask:
        if quantum.is_first(location.tenant):
            found = external_zone(location.name)
            assert found is not None
            expired = settle_external_markers(tr, location, quantum.policy, found.store, store.running)
            asking = allowed_op(tr, location, quantum.policy, now_us=params.now_us, expired=expired)
            quantum.allowed = run_one(asking)
        else:
            quantum.allowed = 0
    return quantum.share()


def _rooms(capacity: Capacity) -> Mapping[str, int]:
    return {
        kind: min(room, ROOM_MAX)
        for kind, room in capacity.kinds.items()
        if room > 0 and kind not in capacity.paused and capacity.items > 0
    }


def _take(
    visits: Sequence[_Visit],
    rooms: Mapping[str, int],
    capacity: Capacity,
    params: DequeueParams,
    store: ExternalStore,
    layout: ShardLayout,
    cursors: Cursors,
) -> _Unfit:
    """Lease items in the store, and take them out of the capacity; return those that are not to run now."""
    wanting = [visit for visit in visits if visit.wanted > 0]
    if not wanting or not rooms:
        return _Unfit()
    now_us, lease_us = params.now_us, params.lease_us
    for visit in wanting:
        visit.stops = cursors.stops(visit.queue, now_us=now_us, lease_us=lease_us)
    wants = [Want(visit.queue, visit.wanted, visit.stops) for visit in wanting]
    found = store.dequeue(wants, rooms, lease_id=params.lease_id, lease_us=lease_us, now_us=now_us)
    cursors.note(wants, found, now_us=now_us, lease_us=lease_us)
    for visit in wanting:
        visit.looks_again_us = cursors.front_us(visit.queue) if visit.stops else None
    taken: dict[Queue, list[LeasedItem]] = {}
    returned: list[LeasedRow] = []
    poison: list[tuple[LeasedRow, str]] = []
    for row in found.rows:
        error = poison_error(row.record, layout.settings)
        if error is not None:
            poison.append((row, error))
            continue
        isolated = is_poison_candidate(row.record, layout.settings)
        if isolated and not capacity.poison_candidates:
            probe("a poison candidate of an external store is returned, as none can run isolated now")
            returned.append(row)
            continue
        capacity.take(Reservation({row.record.kind: 1}, int(isolated)))
        vested_us = params.now_us - row.waited_us
        stored = encode(row.record)
        item = LeasedItem(row.id, row.record, isolated, stored, vested_us, row.had_expired)
        taken.setdefault(row.queue, []).append(item)
    for visit in visits:
        visit.taken = taken.get(visit.queue, ())
        visit.passed_over = sum(row.queue == visit.queue for row in returned)
    return _Unfit(returned, poison)


def _settle_and_ask(visits: Sequence[_Visit], unfit: _Unfit, params: DequeueParams, store: ExternalStore) -> None:
    """End the leases of what is not to run, and ask what is left.

    What was leased is kept if the store stops answering: it may run.
    """
    try:
        _return(unfit.returned, params, store)
        dead = _make_dead_letters(unfit.poison, params, store)
        for visit in visits:
            visit.dead_letters = [(row.id, row.record) for row in dead if row.queue == visit.queue]
        _ask_what_is_left(visits, store)
    except StoreUnavailable as error:
        if not any(visit.taken for visit in visits):
            raise ExternalAway(**error.fields, remedy=error.remedy) from error
        probe("an external store has leased items, and does not say what is left")
        for visit in visits:
            visit.left = None


def _return(rows: Sequence[LeasedRow], params: DequeueParams, store: ExternalStore) -> None:
    """Let others lease poison candidates, a moment later."""
    if rows:
        held = [ItemLease(row.id, params.lease_id) for row in rows]
        store.requeue(held, [params.throttle_delay_us] * len(held), [row.record for row in rows])


def _make_dead_letters(
    poison: Sequence[tuple[LeasedRow, str]], params: DequeueParams, store: ExternalStore
) -> list[LeasedRow]:
    """Make items dead letters that have killed their workers; return them. One that is locked stays leased."""
    if not poison:
        return []
    probe("an external item that has ended its workers becomes a dead letter")
    held = [ItemLease(row.id, params.lease_id) for row, _ in poison]
    records = [DeadLetterRecord(row.record, POISON, error, "", params.now_us) for row, error in poison]
    outcomes = store.dead_letter(held, records)
    return [row for (row, _), outcome in zip(poison, outcomes, strict=True) if outcome is Outcome.DONE]


def _ask_what_is_left(visits: Sequence[_Visit], store: ExternalStore) -> None:
    """Ask what is left in the queues that gave less than they were asked for."""
    short = [visit for visit in visits if len(visit.taken) < max(1, visit.wanted)]
    if not short:
        return
    outlook = store.outlook([visit.queue for visit in short], [visit.stops for visit in short])
    for visit, left in zip(short, outlook, strict=True):
        visit.left = left


def _end_op(tr: Transaction, visit: _Visit, capacity: Capacity, params: DequeueParams) -> Operation[PointerResult]:
    """Requeue or delete a pointer (Algorithm 2, lines 7 to 12)."""
    assert visit.pointer is not None
    plan = _plan(visit, capacity, params)
    more = plan.remaining is Admission.RUNS
    visit.pointer.deficit = visit.quantum.deficit_after(taken=len(visit.taken), more=more)
    outcome, deferred = yield from requeue_pointer_op(tr, visit.location, visit.pointer, plan, capacity, params)
    return PointerResult(
        visit.ref, outcome, visit.location, visit.taken, visit.dead_letters, int(visit.damaged), deferred,
        plan.skipped_kinds, plan.poison_candidates,
    )  # fmt: skip


def _plan(visit: _Visit, capacity: Capacity, params: DequeueParams) -> DequeuePlan:
    """Return what a visit leaves, in the form in which a dequeue from a shard says it."""
    left = visit.left
    remaining = Admission.FULL if left is None else None  # Where that is not known, somebody looks again soon.
    skipped: set[str] = set()
    if visit.wanted and len(visit.taken) >= visit.wanted:
        is_full = visit.quantum.allowed == visit.wanted
        remaining = Admission.FULL if is_full else Admission.RUNS
    for each in left or ():
        if not each.waits:
            continue
        admission = _admission(visit, each.kind, capacity)
        if capacity.admission(each.kind) is not Admission.RUNS:
            skipped.add(each.kind)
        remaining = admission if remaining is None else max(remaining, admission)
    soonest: dict[int, int] = {}
    for each in left or ():
        if each.next_us is not None:
            soonest[each.priority] = min(each.next_us, soonest.get(each.priority, each.next_us))
    is_idle = not visit.taken and remaining is None and not soonest
    if visit.looks_again_us is not None:  # Something may wait before the stops from which it was looked at.
        soonest[0] = min(visit.looks_again_us - params.now_us, soonest.get(0, visit.looks_again_us - params.now_us))
    first = [IndexEntry(priority, params.now_us + max(1, us), b"") for priority, us in sorted(soonest.items())]
    return DequeuePlan(
        [],
        remaining,
        first,
        FRONT,
        skipped,
        [],
        [],
        unreadable=0,
        poison_candidates=visit.passed_over,
        reserved=NOTHING,
        is_idle=is_idle,
    )


def _admission(visit: _Visit, kind: str, capacity: Capacity) -> Admission:
    """Return why an item waits on. One that could run has been locked by another transaction of its store."""
    if visit.quantum.policy.paused:
        return Admission.PAUSED
    admission = capacity.admission(kind)
    if admission is not Admission.RUNS or visit.quantum.allowed == 0:
        return min(admission, Admission.FULL)
    probe("items of an external queue are locked by another transaction")
    return Admission.FULL
