"""Dequeue: peek and obtain leases in one transaction, of what the caller can run now (QuiCK section 5).

`plan_op` reads what the plan needs; `dequeue_plan` decides; `apply_plan` writes.
"""

from collections.abc import Sequence

from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.layout import ZoneLocation
from fairlead.zones.pipelining import Operation
from fairlead.zones.policy.fair_share import Quantum
from fairlead.zones.policy.tenant_limits import allowed_op, charge_limits
from fairlead.zones.probes import probe
from fairlead.zones.queue import stored_item
from fairlead.zones.queue.dequeue_plan import (
    FRONT,
    NOTHING,
    Admission,
    Capacity,
    Cursor,
    DequeuePlan,
    Entries,
    Need,
    plan,
)
from fairlead.zones.queue.index_scan import VestedReader
from fairlead.zones.queue.items import LeasedItem, Outcome
from fairlead.zones.queue.poison_candidates import is_poison_candidate, move_poison_to_dead_letters
from fairlead.zones.records import ItemRecord, TenantPolicy, decode
from fairlead.zones.settings import WINDOW_KEYS
from fairlead.zones.top_level import worker_sessions


class IndexScan:
    """What a dequeue reads: a window at the front of a zone's index, then one from the cursor on; and records.

    `items_max`: how many items a dequeue takes at most, as far as is known before the first read.
    """

    def __init__(self, location: ZoneLocation, *, items_max: int, now_us: int) -> None:
        self.location = location
        self.now_us = now_us
        self._first_read = min(items_max, WINDOW_KEYS) + 1
        self._window = self._reader(b"")
        self.entries = Entries()

    def send(self, tr: Reader) -> None:
        """Send the first read; `read_entries_op` takes it in."""
        self._window.send(tr)

    def read_entries_op(self, tr: Reader, cursor: Cursor) -> Operation[None]:
        """Read the next piece of the first window, or, when that has been read, of the second. Snapshot reads."""
        if self._window.is_done:
            self._begin_second_window(cursor)
        window, entries = self._window, self.entries
        begin, unvested_begin = len(window.entries), len(window.unvested)
        yield from window.read_op(tr)
        # No handler is registered for a kind that is damaged.
        entries.vested += [(entry, value.decode("utf-8", "replace")) for entry, value in window.entries[begin:]]
        entries.unvested += window.unvested[unvested_begin:]
        entries.window_read, entries.stopped_at = window.is_done, window.next_key

    def read_records_op(self, tr: Transaction, item_ids: Sequence[bytes]) -> Operation[None]:
        """Read records with conflict."""
        item_key, records = self.location.keys.item, self.entries.records
        reads = [(item_id, tr.get(item_key(item_id))) for item_id in dict.fromkeys(item_ids)]
        yield
        for item_id, read in reads:
            value = read.value
            records[item_id] = Outcome.GONE if value is None else decode(ItemRecord, value) or Outcome.UNREADABLE

    def _begin_second_window(self, cursor: Cursor) -> None:
        stopped_at = self._window.next_key
        assert stopped_at is not None
        self.entries.second_begin = len(self.entries.vested)
        self.entries.has_gap = cursor.key > stopped_at
        self._window = self._reader(max(stopped_at, cursor.key))

    def _reader(self, begin: bytes) -> VestedReader:
        return VestedReader(
            self.location.keys, now_us=self.now_us, keys_max=WINDOW_KEYS, first_read=self._first_read,
            then_read=WINDOW_KEYS, begin=begin,
        )  # fmt: skip


def plan_op(
    tr: Transaction,
    index_scan: IndexScan,
    capacity: Capacity,
    quantum: Quantum,
    cursor: Cursor = FRONT,
    *,
    lease_us: int,
) -> Operation[DequeuePlan]:
    """Read what `plan` wants to know until it is finished. It reserves capacity, which may be shared with other zones.

    Reads with conflict: the records of the items chosen, and what `allowed_op` reads of a tenant with limits; by
    snapshot: the vesting index. The caller has sent the reads of `index_scan` and of the tenant's ownership.
    """
    location = index_scan.location
    keys = location.keys
    if not keys.vest_priority(0) <= cursor.key < keys.vest_end():
        cursor = FRONT  # Damaged; it would lead into another tenant's queue.
    yield from index_scan.read_entries_op(tr, cursor)
    reserved = NOTHING
    items_max, beyond = _items_max(quantum)
    while True:
        if reserved is not NOTHING:
            capacity.release(reserved)
        found = plan(
            index_scan.entries, capacity, items_max, cursor, beyond=beyond,
            leased_until_us=index_scan.now_us + lease_us, settings=location.layout.settings,
        )  # fmt: skip
        reserved = found.reserved
        capacity.take(reserved)
        if isinstance(found, DequeuePlan):
            return found
        if found.need is Need.ENTRIES:
            yield from index_scan.read_entries_op(tr, cursor)
        elif found.need is Need.RECORDS:
            yield from index_scan.read_records_op(tr, found.item_ids)
        else:
            asks = quantum.is_first(location.tenant)
            quantum.allowed = (
                (yield from allowed_op(tr, location, quantum.policy, now_us=index_scan.now_us)) if asks else 0
            )
            items_max, beyond = _items_max(quantum)


def apply_plan(
    tr: Transaction,
    location: ZoneLocation,
    plan: DequeuePlan,
    policy: TenantPolicy,
    *,
    lease_id: bytes,
    lease_us: int,
    now_us: int,
    holder: bytes | None = None,
) -> list[LeasedItem]:
    """Lease the items of a plan for the consumer `holder`, and charge them to the tenant's limits.

    Moves poison items to the dead letters, and clears dangling index entries. Conflicts with no enqueue.
    """
    for entry in plan.dangling:
        probe("an item is gone or moved between the index and its record")
        key = location.keys.vest(entry.priority, entry.vesting_us, entry.id)
        tr.add_read_conflict_key(key)
        tr.clear(key)
    for item_id, record, error in plan.dead_letters:
        move_poison_to_dead_letters(tr, location, item_id, record, error, now_us=now_us)
    if policy.is_limited:
        charge_limits(tr, location, policy, [item_id for item_id, _ in plan.items], now_us=now_us)
    return [
        lease(tr, location, item_id, record, lease_id=lease_id, lease_us=lease_us, now_us=now_us, holder=holder)
        for item_id, record in plan.items
    ]


def lease(
    tr: Transaction,
    location: ZoneLocation,
    item_id: bytes,
    record: ItemRecord,
    *,
    lease_id: bytes,
    lease_us: int,
    now_us: int,
    holder: bytes | None = None,
) -> LeasedItem:
    """Store `record`, which the caller has read with conflict and found vested, as leased; count its lease expiry.

    A lease has expired if the item is leased again although its holder did not end the last lease: the worker died or
    stalled. The expiry counts towards isolation only if the attempt had started: an item that waited in the worker
    cannot have killed it. A claim that has ended is taken away, and its worker notified.
    """
    isolated = is_poison_candidate(record, location.layout.settings)
    vested_us, had_expired = record.vesting_us, bool(record.lease_id)
    if record.claim:
        worker_sessions.take_away(tr, location, item_id, record, notify=True)
    if had_expired:
        probe("the lease of an item has expired")
        record.expiry_count += record.started
        record.expired_count += 1
    record.started = False
    record.lease_number, record.waits_for = record.lease_number + 1, ()
    record.lease_id, record.lease_us = lease_id, lease_us
    record.session, record.leased_us = holder, now_us
    stored = stored_item.move(tr, location, item_id, record, now_us + lease_us)
    return LeasedItem(item_id, record, isolated, stored, vested_us, had_expired)


def _items_max(quantum: Quantum) -> tuple[int | None, Admission]:
    """Return how many items the tenant may give, None: not known yet; and what a vested entry beyond these is."""
    if quantum.policy.paused:
        return 0, Admission.PAUSED
    if quantum.must_ask:
        return None, Admission.RUNS
    share = quantum.share()
    return share, Admission.FULL if share == quantum.allowed else Admission.RUNS
