"""Workflows with their states: of one tenant, or dead letters, page by page; or of the queues that are first in line.

Of an item it is known to be a workflow once something of its run is stored. No index lists workflows. So bounded parts
of the queues are read, and items that are no workflows are passed over.
"""

from collections.abc import Iterable
from enum import Enum
from functools import partial
from itertools import islice
from typing import NamedTuple

from fairlead.queries.queues import QUEUES_OF_TENANT_MAX, active_queues
from fairlead.workflow_explanation import is_suspended, lock_signals, signals_of
from fairlead.zones.engines import KeyValue, Reader
from fairlead.zones.keyspace import TenantKeys, unpack_bytes
from fairlead.zones.layout import Tenant, ZoneLocation
from fairlead.zones.ownership import check_owner
from fairlead.zones.policy.policies import zone_names
from fairlead.zones.queue import dead_letters
from fairlead.zones.queue.dead_letter_search import DeadLetterFilter, search
from fairlead.zones.queue.index_scan import WANT_ALL
from fairlead.zones.records import ItemRecord, decode
from fairlead.zones.shard import Shard
from fairlead.zones.top_level.pointers import location_of
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow.run_records import RunHead, decode_head, head_key
from fairlead.zones.workflow.suspension import AwaitedChild, awaited_of

SCANNED_MAX = 200  # Items that one transaction reads, with the heads of their runs: mostly a megabyte.
SCANNED_PER_PAGE_MAX = 2_000  # Items read for one page, and items read of the queues that are first in line.
QUEUES_MAX = 100  # So many queues that sleep, and so many that do not.
OF_QUEUE_MIN = 10  # Items read of each of them; more if there are fewer queues.


class WorkflowState(Enum):
    """The state of a workflow."""

    RUNNING = "running"  # a worker holds its lease
    DUE = "due"  # it runs in its turn
    WAITS_FOR_SIGNAL = "waits for a signal"
    WAITS_FOR_CHILDREN = "waits for children"
    WAITS_FOR_LOCK = "waits for a lock"
    SLEEPING = "sleeping"  # in `wf.sleep`, or until the next try of a step
    LATER = "tried again later"  # an attempt failed or was returned
    BEING_UNDONE = "being undone"  # it failed for good, or is cancelled: whatever else it does
    DEAD = "dead letter"


class WorkflowRow(NamedTuple):
    """A workflow. Times in microseconds since the epoch.

    Attributes:
      head: what is recorded of its run as a whole; None: nothing, or it cannot be read.
      signals: those that it waits for; `children`: how many children.
      error: of a dead letter; else empty.
      failed_us: when it became a dead letter; 0: it is none.
      next_key: where a list continues behind it.
    """

    tenant: Tenant
    zone: str
    id: bytes
    record: ItemRecord
    head: RunHead | None
    state: WorkflowState
    signals: tuple[str, ...]
    children: int
    error: str
    failed_us: int
    next_key: bytes

    @property
    def undo_reason(self) -> str:
        """Why it is being undone; empty: it is not, or the reason is not recorded yet."""
        return "" if self.head is None or self.head.undo_reason is None else self.head.undo_reason

    @property
    def until_us(self) -> int | None:
        """When it goes on at the latest; None: it does not wait."""
        waits = self.state not in (WorkflowState.RUNNING, WorkflowState.DUE, WorkflowState.DEAD)
        return self.record.vesting_us if waits and not self.record.lease_id else None


class WorkflowList(NamedTuple):
    """Workflows of a shard, found among `scanned` items.

    `next_key`: where to continue; None: there are no more. `whole`: whether all queues were read to their ends or, in a
    list that can be continued, will be.
    """

    rows: list[WorkflowRow]
    scanned: int
    next_key: bytes | None
    whole: bool


class _Stretch(NamedTuple):
    rows: list[WorkflowRow]
    scanned: int
    next_key: bytes | None
    whole: bool = True


class _Found(NamedTuple):
    """A workflow whose head is still to be read."""

    location: ZoneLocation
    id: bytes
    record: ItemRecord
    next_key: bytes
    error: str = ""
    failed_us: int = 0


def state_of(record: ItemRecord, head: RunHead | None, *, is_dead: bool, now_us: int) -> WorkflowState:
    """Return the state of a workflow by its record and by the head of its run."""
    if is_dead:
        return WorkflowState.DEAD
    if record.cancelling or (head is not None and head.undo_reason is not None):
        return WorkflowState.BEING_UNDONE
    if record.vesting_us <= now_us:
        return WorkflowState.DUE
    if record.lease_id:
        return WorkflowState.RUNNING
    if not is_suspended(record):
        return WorkflowState.LATER
    if signals_of(record):
        return WorkflowState.WAITS_FOR_SIGNAL
    if lock_signals(record):
        return WorkflowState.WAITS_FOR_LOCK
    return WorkflowState.WAITS_FOR_CHILDREN if record.waits_for else WorkflowState.SLEEPING


def find_workflows(
    shard: Shard,
    criteria: DeadLetterFilter,
    state: WorkflowState | None,
    *,
    rows_max: int,
    next_key: bytes | None = None,
) -> WorkflowList:
    """Return a page of the workflows in the queues of a tenant, by their ids; of dead letters, the latest first.

    Reads until there is one more than `rows_max`, `SCANNED_PER_PAGE_MAX` items at most. So no next page is empty,
    unless a page ended by this limit. Snapshot reads, a stretch of items in each transaction.

    Args:
      criteria: names a tenant, unless `state` is `DEAD`.
      state: None: all that are no dead letters.

    Raises:
      TenantMoved: another shard owns the tenant.
      One of `shard.db.errors`: the shard cannot be read.
    """
    rows: list[WorkflowRow] = []
    scanned = 0
    read = _dead_stretch if state is WorkflowState.DEAD else _open_stretch
    while True:
        stretch = shard.transact(partial(read, shard=shard, criteria=criteria, state=state, next_key=next_key))
        rows += stretch.rows
        scanned += stretch.scanned
        next_key = stretch.next_key
        if len(rows) > rows_max:
            return WorkflowList(rows[:rows_max], scanned, rows[rows_max - 1].next_key, stretch.whole)
        if next_key is None or scanned >= SCANNED_PER_PAGE_MAX:
            return WorkflowList(rows, scanned, next_key, stretch.whole)


def first_workflows(shard: Shard, criteria: DeadLetterFilter, state: WorkflowState | None) -> WorkflowList:
    """Return workflows in the queues that are served next, asleep or not; first those that go on next.

    Snapshot reads of one transaction: `SCANNED_PER_PAGE_MAX` items at most, the first of each queue by their ids.

    Raises:
      One of `shard.db.errors`: the shard cannot be read.
    """

    def body(attempt: Attempt) -> WorkflowList:
        tr, layout = attempt.tr, shard.layout
        awake = active_queues(tr, layout, queues_max=QUEUES_MAX)
        asleep = active_queues(tr, layout, queues_max=QUEUES_MAX, after_us=attempt.now_us)
        locations = {
            (location.tenant, location.name): location
            for ref in (*awake.refs, *asleep.refs)
            if (location := location_of(ref, layout)) is not None and _is_among(location, criteria)
        }
        limit = max(OF_QUEUE_MIN, SCANNED_PER_PAGE_MAX // max(1, len(locations)))
        reads = [
            (location, tr.snapshot.get_range(*location.keys.item_range(), limit=limit, streaming_mode=WANT_ALL))
            for location in locations.values()
        ]
        read = [(location, list(sent)) for location, sent in reads]
        found = [each for location, items in read for each in _workflows_of(location, items, criteria)]
        rows = _with_state(tr, found, state, now_us=attempt.now_us)
        rows.sort(key=lambda row: (row.record.vesting_us, row.id))
        whole = awake.whole and asleep.whole and all(len(items) < limit for _, items in read)
        return WorkflowList(rows, sum(len(items) for _, items in read), None, whole)

    return shard.transact(body)


def _open_stretch(
    attempt: Attempt, *, shard: Shard, criteria: DeadLetterFilter, state: WorkflowState | None, next_key: bytes | None
) -> _Stretch:
    tr, tenant = attempt.tr, criteria.tenant
    assert isinstance(tenant, Tenant)
    keys = TenantKeys(*tenant)
    check_owner(tr, shard.layout, keys, tr.snapshot.get(keys.owner).value, writes=False)
    names = list(islice(zone_names(tr, keys), QUEUES_OF_TENANT_MAX + 1))
    whole = len(names) <= QUEUES_OF_TENANT_MAX
    found: list[_Found] = []
    scanned = 0
    for name in [criteria.zone] if criteria.zone is not None else names[:QUEUES_OF_TENANT_MAX]:
        location = shard.layout.location(tenant, name)
        begin, end = location.keys.item_range()  # The queues' keys are in the order of their names.
        begin = max(begin, next_key or begin)
        if begin >= end:
            continue
        limit = SCANNED_MAX - scanned
        items = list(tr.snapshot.get_range(begin, end, limit=limit, streaming_mode=WANT_ALL))
        found += _workflows_of(location, items, criteria)
        scanned += len(items)
        if len(items) == limit:
            rows = _with_state(tr, found, state, now_us=attempt.now_us)
            return _Stretch(rows, scanned, items[-1].key + b"\x00", whole)
    return _Stretch(_with_state(tr, found, state, now_us=attempt.now_us), scanned, None, whole)


def _dead_stretch(
    attempt: Attempt, *, shard: Shard, criteria: DeadLetterFilter, state: WorkflowState | None, next_key: bytes | None
) -> _Stretch:
    page = search(
        attempt.tr, shard.layout, criteria, items_max=SCANNED_MAX, next_key=next_key, latest_first=True,
        scanned_max=SCANNED_MAX,
    )  # fmt: skip
    found = []
    for item in page.items:
        if item.record.item.keeps_run:
            location, failed_us = shard.layout.location(item.tenant, item.zone), item.record.dead_lettered_us
            key = dead_letters.dead_letter_index_key(location, item.id, failed_us)
            found.append(_Found(location, item.id, item.record.item, key, item.record.error, failed_us))
    return _Stretch(_with_state(attempt.tr, found, state, now_us=attempt.now_us), page.scanned, page.next_key)


def _is_among(location: ZoneLocation, criteria: DeadLetterFilter) -> bool:
    return criteria.app in (None, location.tenant.app) and criteria.zone in (None, location.name)


def _workflows_of(location: ZoneLocation, items: Iterable[KeyValue], criteria: DeadLetterFilter) -> list[_Found]:
    prefix = len(location.keys.item_prefix)
    found = []
    for row in items:
        record = decode(ItemRecord, row.value)
        if (
            record is None
            or not record.keeps_run
            or not criteria.may_match(location.tenant, location.name, record.kind)
        ):
            continue
        found.append(_Found(location, unpack_bytes(row.key[prefix:]), record, row.key + b"\x00"))
    return found


def _with_state(tr: Reader, found: Iterable[_Found], state: WorkflowState | None, *, now_us: int) -> list[WorkflowRow]:
    """Return those workflows that are in a state. One snapshot read each."""
    reads = [
        (each, tr.snapshot.get(head_key(each.location.keys.tenant, each.record.run_of(each.id)))) for each in found
    ]
    rows = []
    for each, read in reads:
        head = None if read.value is None else decode_head(read.value)
        seen = state_of(each.record, head, is_dead=bool(each.failed_us), now_us=now_us)
        if state in (None, seen):
            rows.append(_row(each, head, seen))
    return rows


def _row(each: _Found, head: RunHead | None, state: WorkflowState) -> WorkflowRow:
    awaited = [awaited_of(name) for name in each.record.waits_for]
    signals = tuple(signals_of(each.record))
    children = sum(isinstance(one, AwaitedChild) for one in awaited)
    return WorkflowRow(
        each.location.tenant, each.location.name, each.id, each.record, head, state, signals, children, each.error,
        each.failed_us, each.next_key,
    )  # fmt: skip
