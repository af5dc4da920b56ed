"""The operations of applications and operators on queues in PostgreSQL; see `zones.external.queue_operations`.

Each is one statement, so it is done whole or not at all, on a connection with autocommit as in a user's transaction.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar
from uuid import UUID

from msgspec.structs import replace

from fairlead.zones.external.first_due import note_first_due
from fairlead.zones.external.inspection import ItemOfQueue
from fairlead.zones.external.item_ids import packed_given
from fairlead.zones.external.names import Queue
from fairlead.zones.external.queue_operations import (
    COUNTED_MAX,
    DeadLetterPlace,
    DeadRow,
    EndedRow,
    FoundRow,
    ItemToPut,
)
from fairlead.zones.layout import Tenant
from fairlead.zones.postgresql.arguments import names_of
from fairlead.zones.postgresql.item_rows import fill_deaths, fill_record, packed_history, packed_new
from fairlead.zones.postgresql.statements import Row, Statement, StatementOp
from fairlead.zones.queue.dead_letters import DeadLetter, reset_attempts
from fairlead.zones.queue.items import EnqueueStatus, Item
from fairlead.zones.records import DeadLetterRecord, ItemRecord, decode

BATCH_ITEMS = 500  # Of one statement: more hardly cost less each.
ENDED, DEAD = 1, 2  # The column `state`.

T = TypeVar("T")

_FOUND = (EnqueueStatus.PRESENT, EnqueueStatus.COMPLETED, EnqueueStatus.DEAD_LETTER)
_FIRST = DeadLetterPlace(-1, bytes(16))

_PUT = (
    "SELECT found FROM fairlead.put(%b::uuid[], %b::text[], %b::text[], %b::text[], %b::text[], %b::smallint[], "
    "%b::bigint[], %b::bigint[], %b::bytea[], %b::bytea[], NULL, %b::bytea[]) ORDER BY ord"
)
# A list costs psycopg some 15 us to adapt, and there are eleven: one item is sent as it is.
_PUT_ONE = (
    "SELECT fairlead.put_one(%b::uuid, %b::text, %b::text, %b::text, %b::text, %b::smallint, %b::bigint, %b::bigint, "
    "%b::bytea, %b::bytea, NULL, %b::bytea)"
)
_READ = (
    "SELECT id, app, tenant, zone, kind, priority, in_us, age_us, leases, expired, unique_us, given, payload, "
    "args::text, record, deaths, started, state, lease_id, ended_us FROM fairlead.read_items({ids}, %b::boolean)"
)
_FIND_SHORT = """
SELECT id, app, tenant, zone, kind, priority, in_us, age_us, leases, expired, unique_us, given,
  CASE WHEN bytes <= %b::int THEN payload ELSE '' END, CASE WHEN bytes <= %b::int THEN args::text END,
  record, deaths, started, state, lease_id, ended_us, bytes
FROM fairlead.read_items({ids}, true),
  LATERAL (SELECT coalesce(greatest(octet_length(payload), octet_length(args::text)), 0) AS bytes) length
WHERE state = 0
"""
_FIND = _READ.format(ids="%b::uuid[]") + " WHERE (app, tenant, zone) = (%b::text, %b::text, %b::text)"
_PEEK = _READ.format(ids="fairlead.first_ids(%b::text, %b::text, %b::text, %b::int, %b::boolean)")
_FIND_ITEMS = _FIND_SHORT.format(ids="%b::uuid[]")
_DELAYED = _FIND_SHORT.format(ids="fairlead.delayed_ids(%b::text[], %b::text[], %b::text[], %b::int, %b::int)")
_DEAD_LETTERS = _READ.format(ids="fairlead.dead_ids(%b::text, %b::text, %b::text, %b::bigint, %b::uuid, %b::int)")
_COUNT = "SELECT kind, items FROM fairlead.count_items(%b::text, %b::text, %b::text, %b::int)"
_CANCEL = "SELECT fairlead.cancel_item(%b::text, %b::text, %b::text, %b::uuid[], %b::boolean)"
_RETRY = "SELECT unnest(fairlead.retry_dead_letters(%b::uuid[], %b::bigint[], %b::bytea[]))"
_DISCARD = "SELECT unnest(fairlead.discard_dead_letters(%b::uuid[], %b::bigint[]))"


class RunsOp(Protocol):
    """Runs an operation on some connection. `is_committing`: it changes something."""

    def __call__(self, operation: StatementOp[T], *, is_committing: bool) -> T:
        """Return its result."""
        ...


class QueueStatements:
    """See `QueueOperations`. `run`: of a connection of ours, or of a user's."""

    def __init__(self, run: RunsOp) -> None:
        self._run = run

    def put(self, items: Sequence[ItemToPut]) -> list[EnqueueStatus]:
        """See `QueueOperations`."""
        return self._run(put_op(items), is_committing=True)

    def find(self, queue: Queue, ids: Sequence[bytes], *, now_us: int, with_payload: bool = True) -> FoundRow | None:
        """See `QueueOperations`."""
        return self._run(find_op(queue, ids, now_us=now_us, with_payload=with_payload), is_committing=False)

    def peek(self, queue: Queue, *, items_max: int, vested_only: bool, now_us: int) -> list[Item]:
        """See `QueueOperations`."""
        operation = peek_op(queue, items_max=items_max, vested_only=vested_only, now_us=now_us)
        return self._run(operation, is_committing=False)

    def count(self, queue: Queue) -> dict[str, int]:
        """See `QueueOperations`."""
        return self._run(count_op(queue), is_committing=False)

    def cancel(self, queue: Queue, ids: Sequence[bytes], *, force: bool) -> bool:
        """See `QueueOperations`."""
        return self._run(cancel_op(queue, ids, force=force), is_committing=True)

    def dead_letters(
        self, queue: Queue | None, *, items_max: int, behind: DeadLetterPlace | None = None, with_payloads: bool = True
    ) -> list[DeadRow]:
        """See `QueueOperations`."""
        operation = dead_letters_op(queue, items_max=items_max, behind=behind, with_payloads=with_payloads)
        return self._run(operation, is_committing=False)

    def retry_dead_letters(self, rows: Sequence[DeadRow], *, now_us: int) -> list[DeadRow]:
        """See `QueueOperations`."""
        return self._run(retry_dead_letters_op(rows, now_us=now_us), is_committing=True)

    def discard_dead_letters(self, rows: Sequence[DeadRow]) -> list[DeadRow]:
        """See `QueueOperations`."""
        return self._run(discard_dead_letters_op(rows), is_committing=True)


def put_op(items: Sequence[ItemToPut]) -> StatementOp[list[EnqueueStatus]]:
    """See `QueueOperations.put`. In the order of the ids: two transactions that enqueue the same do not deadlock."""
    if len(items) == 1:
        (row,) = yield Statement(_PUT_ONE, _values(items[0]))
        return [_status(row)]
    found: dict[bytes, EnqueueStatus] = {}
    by_id = {item.id: item for item in reversed(items)}
    in_order = [by_id[item_id] for item_id in sorted(by_id)]
    for begin in range(0, len(in_order), BATCH_ITEMS):
        batch = in_order[begin : begin + BATCH_ITEMS]
        rows = yield Statement(_PUT, tuple(map(list, zip(*map(_values, batch), strict=True))))
        found |= {each.id: _status(row) for each, row in zip(batch, rows, strict=True)}
    statuses = []
    for each in items:
        is_first = by_id.get(each.id) is each
        enqueued = found[each.id] is EnqueueStatus.ENQUEUED
        statuses.append(EnqueueStatus.PRESENT if enqueued and not is_first else found[each.id])
    return statuses


def find_op(
    queue: Queue, ids: Sequence[bytes], *, now_us: int, with_payload: bool = True
) -> StatementOp[FoundRow | None]:
    """See `QueueOperations.find`."""
    rows = yield Statement(_FIND, (_uuids(ids), with_payload, *_names(queue)))
    if not rows:
        return None
    row = rows[0]
    *_, packed, _deaths, _started, state, _lease_id, _ended_us = row
    if state == ENDED:
        return EndedRow(row[0].bytes, packed)
    return _dead_row(row) if state == DEAD else _item(row, now_us)


def find_items_op(ids: Sequence[bytes], *, payload_bytes_max: int, now_us: int) -> StatementOp[list[Item]]:
    """See `InspectedStore.find_items`."""
    rows = yield Statement(_FIND_ITEMS, (payload_bytes_max, payload_bytes_max, _uuids(ids)))
    return [_short_item(row, payload_bytes_max, now_us) for row in rows]


def delayed_op(
    queues: Sequence[Queue], *, of_queue_max: int, items_max: int, payload_bytes_max: int, now_us: int
) -> StatementOp[list[ItemOfQueue]]:
    """See `InspectedStore.delayed`."""
    names = names_of(queues)
    rows = yield Statement(_DELAYED, (payload_bytes_max, payload_bytes_max, *names, of_queue_max, items_max))
    return [
        ItemOfQueue(Queue(Tenant(row[1], row[2]), row[3]), _short_item(row, payload_bytes_max, now_us)) for row in rows
    ]


def peek_op(queue: Queue, *, items_max: int, vested_only: bool, now_us: int) -> StatementOp[list[Item]]:
    """See `QueueOperations.peek`."""
    rows = yield Statement(_PEEK, (*_names(queue), items_max, vested_only, True))
    return [_item(row, now_us) for row in rows]


def count_op(queue: Queue) -> StatementOp[dict[str, int]]:
    """See `QueueOperations.count`."""
    rows = yield Statement(_COUNT, (*_names(queue), COUNTED_MAX))
    return dict(rows)


def cancel_op(queue: Queue, ids: Sequence[bytes], *, force: bool) -> StatementOp[bool]:
    """See `QueueOperations.cancel`."""
    ((is_done,),) = yield Statement(_CANCEL, (*_names(queue), _uuids(ids), force))
    return bool(is_done)


def dead_letters_op(
    queue: Queue | None, *, items_max: int, behind: DeadLetterPlace | None = None, with_payloads: bool = True
) -> StatementOp[list[DeadRow]]:
    """See `QueueOperations.dead_letters`."""
    since_us, item_id = behind or _FIRST
    names = (None, None, None) if queue is None else _names(queue)
    rows = yield Statement(_DEAD_LETTERS, (*names, since_us, UUID(bytes=item_id), items_max, with_payloads))
    return [_dead_row(row) for row in rows if row[17] == DEAD]


def retry_dead_letters_op(rows: Sequence[DeadRow], *, now_us: int) -> StatementOp[list[DeadRow]]:
    """See `QueueOperations.retry_dead_letters`."""
    records = []
    for each in rows:
        if each.dead_letter is not None:
            record = replace(each.dead_letter.record.item)
            reset_attempts(record, now_us=now_us)
            records.append((each, packed_history(record)))
    readable = [each for each, _ in records]
    done = yield Statement(_RETRY, (*_places(readable), [packed for _, packed in records]))
    return _those(readable, done)


def discard_dead_letters_op(rows: Sequence[DeadRow]) -> StatementOp[list[DeadRow]]:
    """See `QueueOperations.discard_dead_letters`."""
    readable = [each for each in rows if each.dead_letter is not None]
    done = yield Statement(_DISCARD, _places(readable))
    return _those(readable, done)


def _status(row: Row) -> EnqueueStatus:
    return EnqueueStatus.ENQUEUED if row[0] is None else _FOUND[row[0]]


def _values(put: ItemToPut) -> tuple[object, ...]:
    """Return the arguments of `fairlead.put_one`, of which `fairlead.put` takes lists."""
    (tenant, zone), item = put.queue, put.item
    given = None if item.given_id is None else packed_given(item.given_id)
    return (
        UUID(bytes=put.id), tenant.app, tenant.user, zone, item.kind, item.priority, item.delay_us, item.unique_us,
        given, item.payload, packed_new(item),
    )  # fmt: skip


def _names(queue: Queue) -> tuple[str, str, str]:
    return queue.tenant.app, queue.tenant.user, queue.zone


def _uuids(ids: Iterable[bytes]) -> list[UUID]:
    return [UUID(bytes=each) for each in ids]


def _places(rows: Sequence[DeadRow]) -> tuple[list[UUID], list[int]]:
    return _uuids(each.place.id for each in rows), [each.place.since_us for each in rows]


def _those(rows: Sequence[DeadRow], done: Sequence[Row]) -> list[DeadRow]:
    ids = {row[0].bytes for row in done}
    return [each for each in rows if each.place.id in ids]


def _item(row: Row, now_us: int) -> Item:
    """Return an item that waits or is leased, with times of the caller's clock."""
    id_, _, _, _, kind, priority, in_us, age_us, leases, expired, unique_us, given, payload, args, packed, *rest = row
    deaths, started, _, lease_id, _ = rest
    record = (None if packed is None else decode(ItemRecord, packed)) or ItemRecord(kind, b"", priority, 0, 0)
    record.lease_number = leases
    fill_record(record, kind, priority, unique_us, given, payload, args)
    fill_deaths(record, expired, deaths, started)
    record.lease_id = b"" if lease_id is None else lease_id.bytes
    record.vesting_us, record.enqueued_us = now_us + in_us, max(0, now_us - age_us)
    if lease_id is None:
        note_first_due(record, waited_us=-in_us, now_us=now_us)
    return Item(id_.bytes, record)


def _short_item(row: Row, payload_bytes_max: int, now_us: int) -> Item:
    """Return an item whose payload was read if it is short; else its record has the length."""
    *columns, payload_bytes = row
    item = _item(tuple(columns), now_us)
    if payload_bytes > payload_bytes_max:
        item.record.payload_bytes = payload_bytes
    return item


def _dead_row(row: Row) -> DeadRow:
    id_, app, user, zone, kind, priority, _, _, _, _, unique_us, given, payload, args, packed, *rest = row
    since_us = rest[-1]
    record = decode(DeadLetterRecord, packed)
    if record is None:
        return DeadRow(DeadLetterPlace(since_us, id_.bytes), None)
    fill_record(record.item, kind, priority, unique_us, given, payload, args)
    return DeadRow(DeadLetterPlace(since_us, id_.bytes), DeadLetter(Tenant(app, user), zone, id_.bytes, record))
