"""One tenant's queue: the operations of QuiCK section 5.

Every operation takes a transaction first and never commits it, so operations compose with each other and with a
user's own reads and writes. Time (`now_us`, microseconds since the epoch by the caller's clock) and randomness (ids)
are arguments, and each body may run twice: the same ids lead to the same result. Each reads the tenant's ownership
record with conflict, and raises `TenantMoved` if another shard owns the tenant.

Methods named `..._op` are operations of `fairlead.zones.pipelining`: they take many items of the zone, and run beside
those of other zones in one transaction. The other methods run one operation.
"""

from collections.abc import Callable, Sequence

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.errors import BadArgument, NotVested
from fairlead.zones.keyspace import IndexEntry, range_begin, range_end, unpack_name
from fairlead.zones.layout import ShardLayout, Tenant
from fairlead.zones.pipelining import Operation, run_one, start_op
from fairlead.zones.policy.fair_share import FairShare
from fairlead.zones.queue import insertion, stored_item
from fairlead.zones.queue.dequeue import IndexScan, apply_plan, lease, plan_op
from fairlead.zones.queue.dequeue_plan import Capacity
from fairlead.zones.queue.id_retention import retain_id
from fairlead.zones.queue.index_scan import WANT_ALL, collect_vested, read_first_of_each_priority
from fairlead.zones.queue.items import (
    Enqueued,
    Item,
    LeasedItem,
    NewItem,
    Outcome,
)
from fairlead.zones.queue.lease_check import LeaseRef, check_leases_op, error_of, raise_unless_done
from fairlead.zones.queue.stored_item import number_of
from fairlead.zones.queue.unique_keys import release_op
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.reporting import completion_log
from fairlead.zones.reporting.completion_log import EndedItem, EndedOfZone, EndReason
from fairlead.zones.settings import WINDOW_KEYS
from fairlead.zones.top_level import worker_sessions
from fairlead.zones.top_level.part_writes import PartWrites
from fairlead.zones.workflow.children import ChildState, EndedChild, ended_child, report_all, report_dead_letters
from fairlead.zones.workflow.run_end import end_run_op

PEEK_READ = 64  # Keys that a peek reads at once, whether they have vested or not.
LATER_THAN_ANY_US = 1 << 62  # At this time a peek finds delayed and leased items, too.
_CHILD_STATES = {
    EndReason.COMPLETED: ChildState.COMPLETED,
    EndReason.CANCELLED: ChildState.CANCELLED,
    EndReason.DROPPED: ChildState.DROPPED,
}
COUNT_MAX = 100_000  # Items of one peek: more would take longer than the five seconds of a transaction.


class QueueZone:
    """The queue zone `name` of `tenant`."""

    __slots__ = ("layout", "location")

    def __init__(self, layout: ShardLayout, tenant: Tenant, name: str) -> None:
        self.layout = layout
        self.location = layout.location(tenant, name)

    def enqueue(self, tr: Transaction, item: NewItem, *, item_id: bytes, now_us: int) -> Enqueued:
        """Add one item; see `enqueue_op`."""
        return run_one(self.enqueue_op(tr, [(item_id, item)], now_us=now_us))[0]

    def enqueue_op(
        self,
        tr: Transaction,
        items: Sequence[tuple[bytes, NewItem]],
        *,
        now_us: int,
        ids_are_new: bool = True,
        parts: PartWrites | None = None,
    ) -> Operation[list[Enqueued]]:
        """Add items under ids of 16 bytes; see `insertion.enqueue_op`."""
        return insertion.enqueue_op(tr, self.location, items, now_us=now_us, ids_are_new=ids_are_new, parts=parts)

    def peek(
        self,
        tr: Reader,
        *,
        items_max: int,
        now_us: int,
        predicate: Callable[[ItemRecord], bool] | None = None,
    ) -> list[Item]:
        """Return up to `items_max` vested items in (priority, vesting time) order that match `predicate`.

        Snapshot reads; conflicts with nothing. A predicate is tried on the first 512 vested items at most.
        """
        check_count("items_max", items_max)
        keys_max = items_max if predicate is None else max(items_max, WINDOW_KEYS)
        entries = self._vested(tr, keys_max, now_us)
        reads = [(entry.id, tr.snapshot.get(self.location.keys.item(entry.id))) for entry in entries]
        found: list[Item] = []
        for item_id, read in reads:
            record = None if read.value is None else decode(ItemRecord, read.value)
            if record is not None and (predicate is None or predicate(record)):
                found.append(Item(item_id, record))
        return found[:items_max]

    def peek_ids(self, tr: Reader, *, items_max: int, now_us: int) -> list[bytes]:
        """Return the ids that `peek` would return, without reading the records."""
        check_count("items_max", items_max)
        return [entry.id for entry in self._vested(tr, items_max, now_us)]

    def _vested(self, tr: Reader, keys_max: int, now_us: int) -> list[IndexEntry]:
        first_read = min(keys_max, PEEK_READ)
        operation = collect_vested(tr, self.location.keys, now_us=now_us, keys_max=keys_max, first_read=first_read)
        return run_one(operation)[0]

    def obtain_lease(
        self, tr: Transaction, item_id: bytes, *, lease_id: bytes, lease_us: int, now_us: int
    ) -> LeasedItem:
        """Hide one vested item until `now_us + lease_us` under `lease_id` (16 random bytes).

        Reads with conflict: ownership, record. Writes: record, index entry. Of two that lease one item one conflicts.

        Raises:
          ItemGone: there is no such item.
          ItemUnreadable: a newer version wrote it.
          NotVested: it is leased, or scheduled for later.
        """
        self._check_lease(lease_us)
        (record,) = run_one(check_leases_op(tr, self.location, [(item_id, None)]))
        if isinstance(record, Outcome):
            raise error_of(record, item_id)
        if record.vesting_us > now_us:
            raise NotVested(item=item_id.hex(), vests_in_ms=(record.vesting_us - now_us) // 1000)
        return lease(tr, self.location, item_id, record, lease_id=lease_id, lease_us=lease_us, now_us=now_us)

    def dequeue(
        self, tr: Transaction, *, capacity: Capacity, lease_id: bytes, lease_us: int, now_us: int
    ) -> list[LeasedItem]:
        """Lease up to `capacity.items` vested items of kinds that `capacity` admits, in order; see `plan_op`.

        QuiCK section 5: "a transactional combination of peek and obtain lease".
        """
        self._check_lease(lease_us)
        index_scan = IndexScan(self.location, items_max=capacity.items, now_us=now_us)
        owner = tr.get(self.location.keys.tenant.owner)
        index_scan.send(tr)
        quantum = FairShare(tr, capacity.items).join(self.location, owner)
        plan = run_one(plan_op(tr, index_scan, capacity, quantum, lease_us=lease_us))
        leased = apply_plan(
            tr, self.location, plan, quantum.policy, lease_id=lease_id, lease_us=lease_us, now_us=now_us
        )
        moved = [(item_id, record) for item_id, record, _ in plan.dead_letters]
        report_dead_letters(tr, self.location, moved, now_us=now_us)
        return leased

    def complete(
        self,
        tr: Transaction,
        item_id: bytes,
        *,
        now_us: int,
        lease_id: bytes | None = None,
        children: list[EndedChild] | None = None,
    ) -> None:
        """Delete an item: with its lease because it is done, without because it is cancelled.

        Commit it together with the item's effects, and they happen exactly once. See `complete_op`, also for
        `children`.

        Raises:
          LeaseLost: another holder has it.
          ItemGone: there is no such item.
          ItemUnreadable: a newer version wrote it.
        """
        ended: list[EndedOfZone] = []
        operation = self.complete_op(tr, [(item_id, lease_id)], now_us=now_us, ended=ended, children=children)
        (outcome,) = run_one(operation)
        raise_unless_done(outcome, item_id)
        completion_log.append(tr, self.layout, ended, now_us=now_us)

    def complete_op(
        self,
        tr: Transaction,
        held: Sequence[LeaseRef],
        *,
        now_us: int,
        ended: list[EndedOfZone],
        end_reason: EndReason = EndReason.COMPLETED,
        parts: PartWrites | None = None,
        children: list[EndedChild] | None = None,
    ) -> Operation[list[Outcome]]:
        """Delete items that are held under the leases given (None: any lease); return how each went.

        Adds to `ended` what the caller must `completion_log.append`, for all its zones together; without a
        lease an item counts as cancelled. The id of one that completed stays taken for its `unique_us`; of one that was
        cancelled or dropped it is free. Reads with conflict: ownership, the records. Writes: records, index entries,
        counts; of a claim see `worker_sessions.take_away`; of an item whose run keeps keys see `end_run_op`; of one
        with a unique key see `release_op`. `parts` gathers what is written to the keys of the zone's part, for the
        caller to write. Adds to `children` what the caller must `children.report_all`; None: that is done here, without
        results, by a caller of one zone.
        """
        records = yield from check_leases_op(tr, self.location, held)
        removed: dict[str, int] = {}
        gone: list[EndedItem] = []
        run_ends: list[Operation[None]] = []
        releases: dict[int, list[tuple[bytes, ItemRecord]]] = {}  # unique keys, by how long they stay taken
        ended_children = [] if children is None else children
        outcomes = []
        for (item_id, lease_id), record in zip(held, records, strict=True):
            if isinstance(record, Outcome):
                outcomes.append(record)
                continue
            outcomes.append(Outcome.DONE)
            if record.claim:
                worker_sessions.take_away(tr, self.location, item_id, record, notify=lease_id is None)
            stored_item.remove(tr, self.location, item_id, record)
            if record.keeps_run:
                run_ends.append(start_op(end_run_op(tr, self.location, record.run_of(item_id), now_us=now_us)))
            removed[record.kind] = removed.get(record.kind, 0) + 1
            took_ms = max(0, now_us - record.leased_us) // 1000 if record.lease_id else 0
            actual_reason = EndReason.CANCELLED if lease_id is None else end_reason
            if record.parent is not None:
                state = _CHILD_STATES[actual_reason]
                ended_children.append(ended_child(self.location, item_id, record, state, error=record.last_error))
            gone.append(EndedItem(item_id, record.kind, actual_reason, record.attempt, took_ms))
            kept_us = record.unique_us if actual_reason is EndReason.COMPLETED else 0
            if kept_us:
                retain_id(tr, self.location, item_id, now_us + kept_us)
            if record.unique_key:
                releases.setdefault(kept_us, []).append((item_id, record))
        for kind, count in removed.items():
            stored_item.change_count(tr, self.location, kind, -count, parts)
        if gone:
            ended.append(EndedOfZone(*self.location.tenant, self.location.name, gone))
        run_ends += [release_op(tr, self.location, each, now_us=now_us, kept_us=us) for us, each in releases.items()]
        for run_end in run_ends:
            yield from run_end
        if children is None:
            report_all(tr, ended_children, now_us=now_us)
        return outcomes

    def extend_lease(self, tr: Transaction, item_id: bytes, lease_id: bytes, *, lease_us: int, now_us: int) -> None:
        """Hide a held item until `now_us + lease_us`; see `extend_op`.

        Raises:
          LeaseLost: another holder has it.
          ItemGone: there is no such item.
          ItemUnreadable: a newer version wrote it.
        """
        (outcome,) = run_one(self.extend_op(tr, [(item_id, lease_id)], lease_us=lease_us, now_us=now_us))
        raise_unless_done(outcome, item_id)

    def extend_op(
        self,
        tr: Transaction,
        held: Sequence[LeaseRef],
        *,
        lease_us: int,
        now_us: int,
        started: bool = False,
        ran_isolated: bool = False,
        died: bool = False,
    ) -> Operation[list[Outcome]]:
        """Move the vesting times of held items to `now_us + lease_us`; return how each went.

        Succeeds on an expired lease if the item was not leased again. `started` notes that the handler begins now,
        `ran_isolated` that it does so in a process of its own, `died` that its worker is dead: then a claim is one no
        more. Reads with conflict: ownership, the records. Writes: records, index entries; and the pointer, if the lease
        gets shorter.
        """
        self._check_lease(lease_us)
        records = yield from check_leases_op(tr, self.location, held)
        outcomes = [record if isinstance(record, Outcome) else Outcome.DONE for record in records]
        earlier = False
        for (item_id, _), record in zip(held, records, strict=True):
            if isinstance(record, Outcome):
                continue
            earlier = earlier or now_us + lease_us < record.vesting_us
            record.lease_us = lease_us
            record.started, record.ran_isolated = record.started or started, record.ran_isolated or ran_isolated
            record.died += died
            if died and record.claim:
                worker_sessions.take_away(tr, self.location, item_id, record, notify=False)
            stored_item.move(tr, self.location, item_id, record, now_us + lease_us)
        if earlier:
            yield from self.wake_op(tr, earliest_us=now_us + lease_us, now_us=now_us)
        return outcomes

    def requeue(
        self,
        tr: Transaction,
        item_id: bytes,
        lease_id: bytes | None,
        *,
        delay_us: int,
        now_us: int,
        error_count: int | None = None,
        error: str = "",
        traceback: str = "",
    ) -> None:
        """Requeue a held item: it vests again after `delay_us`; see `requeue_op`.

        Raises:
          LeaseLost: another holder has it.
          ItemGone: there is no such item.
          ItemUnreadable: a newer version wrote it.
        """
        operation = self.requeue_op(
            tr, item_id, lease_id, delay_us=delay_us, now_us=now_us, error_count=error_count, error=error,
            traceback=traceback,
        )  # fmt: skip
        raise_unless_done(run_one(operation), item_id)

    def requeue_op(
        self,
        tr: Transaction,
        item_id: bytes,
        lease_id: bytes | None,
        *,
        delay_us: int,
        now_us: int,
        error_count: int | None = None,
        error: str = "",
        traceback: str = "",
        waits_for: tuple[str, ...] = (),
    ) -> Operation[Outcome]:
        """Requeue one held item (QuiCK section 5); with `error_count` because it failed, else it is returned.

        `delay_us` is negative if it returns to where it was. The pointer vests no earlier than now. `waits_for`: see
        `ItemRecord`.

        This ends its lease expiries in a row, unless it is returned before it has started. Reads with conflict:
        ownership, record; and when the item now vests earlier than its lease would have ended, the pointer as
        `pointers.read_for_insert` says. Writes: record, index entry, of a failure its traceback, perhaps the pointer.
        """
        (record,) = yield from check_leases_op(tr, self.location, [(item_id, lease_id)])
        if isinstance(record, Outcome):
            return record
        earlier = now_us + delay_us < record.vesting_us
        if record.claim:
            worker_sessions.take_away(tr, self.location, item_id, record, notify=lease_id is None)
        record.expiry_count = record.expiry_count if error_count is None and not record.started else 0
        record.lease_id, record.started, record.ran_isolated = b"", False, False
        record.waits_for = waits_for
        if error_count is not None:
            record.error_count = error_count
            stored_item.note_failure(tr, self.location, item_id, record, error=error, traceback=traceback)
        else:
            record.return_count += 1
        stored_item.move(tr, self.location, item_id, record, now_us + delay_us)
        if earlier:
            yield from self.wake_op(tr, earliest_us=now_us + max(0, delay_us), now_us=now_us)
        return Outcome.DONE

    def wake_op(self, tr: Transaction, *, earliest_us: int, now_us: int) -> Operation[None]:
        """Make the pointer vest no later than `earliest_us`; see `insertion.wake_op`."""
        return insertion.wake_op(tr, self.location, earliest_us=earliest_us, now_us=now_us)

    def count(self, tr: Reader) -> dict[str, int]:
        """Return how many items of each kind are present: waiting, delayed and leased; no dead letters."""
        return run_one(self.count_op(tr))

    def count_op(self, tr: Reader) -> Operation[dict[str, int]]:
        """See `count`. A key that is damaged is passed over."""
        prefix = self.location.keys.count_prefix()
        rows = tr.snapshot.get_range(range_begin(prefix), range_end(prefix), streaming_mode=WANT_ALL)
        yield
        counts = ((unpack_name(row.key, len(prefix)), number_of(row.value)) for row in rows)
        return {kind: count for kind, count in counts if kind is not None}

    def is_empty(self, tr: Transaction) -> bool:
        """Say whether no item is present. Reads the whole item range with conflict."""
        begin, end = self.location.keys.item_range()
        return next(iter(tr.get_range(begin, end, limit=1)), None) is None

    def min_vesting_us(self, tr: Transaction) -> int | None:
        """Return the earliest vesting time of any item, or None if the zone is empty.

        Reads with conflict: see `read_first_of_each_priority`.
        """
        first = run_one(read_first_of_each_priority(tr, self.location.keys))
        return min((entry.vesting_us for entry in first), default=None)

    def _check_lease(self, lease_us: int) -> None:
        maximum_us = self.layout.settings.max_item_lease_ms * 1000
        if not 0 < lease_us <= maximum_us:
            raise BadArgument(argument="lease_us", value=lease_us, allowed=f"1 to {maximum_us:,}")


def check_count(argument: str, value: int) -> None:
    """Refuse a number of items that a peek cannot show."""
    if not 1 <= value <= COUNT_MAX:
        raise BadArgument(argument=argument, value=value, allowed=f"1 to {COUNT_MAX:,}")
