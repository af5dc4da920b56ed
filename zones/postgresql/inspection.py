"""What a PostgreSQL database tells about its queues: see `InspectedStore`. An answer reads a bounded number of rows."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from fairlead.zones.external.depth import Depth
from fairlead.zones.external.inspection import (
    COUNTED_MAX,
    COUNTED_OF_QUEUES,
    InspectedItem,
    ItemOfQueue,
    StoredState,
    StoreHealth,
    StoreTotals,
)
from fairlead.zones.external.item_ids import id_of_given
from fairlead.zones.external.store import Queue
from fairlead.zones.layout import Tenant
from fairlead.zones.postgresql import schema
from fairlead.zones.postgresql.arguments import names_of
from fairlead.zones.postgresql.item_store import ItemStore, decoded
from fairlead.zones.postgresql.queue_operations import delayed_op, find_items_op
from fairlead.zones.postgresql.upkeep import DEPTH
from fairlead.zones.queue.items import Item
from fairlead.zones.records import DeadLetterRecord, GivenId, ItemRecord, decode
from fairlead.zones.reporting.completion_log import Ended, EndedItem, EndReason

BEFORE_MAX = 1_000

_INSPECT = (
    "SELECT id, app, tenant, zone, kind, priority, waited_us, age_us, leases, expired, unique_us, given, payload, "
    "args::text, CASE state WHEN 0 THEN record END, deaths, started, lease_id, left_us, state, kept_us, is_seen, "
    "is_locked, items_before, traceback, record FROM fairlead.inspect(%b::uuid[], %s::pg_snapshot, %b)"
)
_CANCELLED = "SELECT id, app, tenant, zone, kind, leases, ago_us FROM fairlead.cancelled_items(%b::uuid[])"
_DEPTH_OF = "SELECT ord, kind, items, waits_us FROM fairlead.depth_of(%b::text[], %b::text[], %b::text[], %b)"
_SEEN = "SELECT ord FROM fairlead.seen_of(%b::text[], %b::text[], %b::text[], %s::pg_snapshot)"
_TOTALS = """
SELECT t.*, d.rings, pg_stat_get_live_tuples('fairlead.items'::regclass),
  pg_stat_get_dead_tuples('fairlead.items'::regclass)
FROM fairlead.totals(%s::pg_snapshot, %b) t, fairlead.doorbell d
"""
_LACKING = """
SELECT 'function fairlead.' || p.proname FROM pg_proc p
  WHERE p.pronamespace = 'fairlead'::regnamespace AND NOT has_function_privilege(p.oid, 'EXECUTE')
UNION ALL
SELECT 'table fairlead.' || c.relname FROM pg_class c
  WHERE c.relnamespace = 'fairlead'::regnamespace AND c.relkind = 'r'
    AND NOT (has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'UPDATE')
      AND has_table_privilege(c.oid, 'INSERT') AND has_table_privilege(c.oid, 'DELETE'))
ORDER BY 1
"""
# A transaction that has a number holds VACUUM up as one with a snapshot does, also while it is idle. A role without
# pg_read_all_stats sees of others' sessions only that they are there.
_SNAPSHOTS = """
SELECT (extract(epoch FROM clock_timestamp() - a.xact_start) * 1000000)::bigint,
  format('process %%s of %%s%%s', a.pid, a.usename, ', ' || nullif(a.application_name, '')),
  (SELECT count(*) FROM pg_stat_activity WHERE query = '<insufficient privilege>')
FROM (SELECT 1) one LEFT JOIN pg_stat_activity a
  ON coalesce(a.backend_xmin, a.backend_xid) IS NOT NULL AND a.xact_start IS NOT NULL AND a.pid <> pg_backend_pid()
ORDER BY a.xact_start LIMIT 1
"""
_REST = """
SELECT pg_notification_queue_usage(), count(*),
  (extract(epoch FROM clock_timestamp() - min(p.prepared)) * 1000000)::bigint,
  coalesce((SELECT array_agg(DISTINCT pubname::text) FROM pg_publication_tables WHERE schemaname = 'fairlead'), '{}'),
  current_setting('autovacuum')::boolean
FROM pg_prepared_xacts p
"""


class InspectedItemStore(ItemStore):
    """The items of one database, and what it tells about itself."""

    def id_of(self, queue: Queue, given: GivenId) -> bytes:
        """See `InspectedStore`."""
        return id_of_given(queue.tenant, queue.zone, given)

    def inspect(self, ids: Sequence[bytes], *, seen: str | None, now_us: int) -> list[InspectedItem]:
        """See `InspectedStore`."""
        with self._connections.call() as call:
            rows = call.execute(_INSPECT, [UUID(bytes=each) for each in ids], seen, BEFORE_MAX).fetchall()
        return [_inspected(row, now_us) for row in rows]

    def cancelled(self, ids: Sequence[bytes], *, now_us: int) -> list[Ended]:
        """See `InspectedStore`."""
        with self._connections.call() as call:
            rows = call.execute(_CANCELLED, [UUID(bytes=each) for each in ids]).fetchall()
        return [
            Ended(Tenant(app, user), zone, now_us - ago_us, EndedItem(id_.bytes, kind, EndReason.CANCELLED, leases, 0))
            for id_, app, user, zone, kind, leases, ago_us in rows
        ]

    def find_items(self, ids: Sequence[bytes], *, payload_bytes_max: int, now_us: int) -> list[Item]:
        """See `InspectedStore`."""
        operation = find_items_op(ids, payload_bytes_max=payload_bytes_max, now_us=now_us)
        return self._run(operation, is_committing=False)

    def depth_of(self, queues: Sequence[Queue]) -> list[Depth]:
        """See `InspectedStore`."""
        of_queue_max = min(COUNTED_MAX, COUNTED_OF_QUEUES // max(1, len(queues)))
        kinds: list[dict[str, int]] = [{} for _ in queues]
        waits: list[list[int]] = [[] for _ in queues]
        with self._connections.call() as call:
            for ord_, kind, items, waits_us in call.execute(_DEPTH_OF, *names_of(queues), of_queue_max):
                kinds[ord_ - 1][kind] = items
                waits[ord_ - 1] += [] if waits_us is None else [waits_us]
        return [
            Depth(some, max(waited, default=None), sum(some.values()) < of_queue_max)
            for some, waited in zip(kinds, waits, strict=True)
        ]

    def delayed(
        self, queues: Sequence[Queue], *, of_queue_max: int, items_max: int, payload_bytes_max: int, now_us: int
    ) -> list[ItemOfQueue]:
        """See `InspectedStore`."""
        operation = delayed_op(
            queues, of_queue_max=of_queue_max, items_max=items_max, payload_bytes_max=payload_bytes_max, now_us=now_us
        )
        return self._run(operation, is_committing=False)

    def seen_of(self, queues: Sequence[Queue], seen: str) -> list[Queue]:
        """See `InspectedStore`."""
        with self._connections.call() as call:
            rows = call.execute(_SEEN, *names_of(queues), seen).fetchall()
        return [queues[ord_ - 1] for (ord_,) in rows]

    def totals(self, seen: str | None) -> StoreTotals:
        """See `InspectedStore`."""
        with self._connections.call() as call:
            kinds = dict(call.execute(DEPTH, COUNTED_MAX).fetchall())
            *counted, rings, live, dead_rows = call.execute(_TOTALS, seen, COUNTED_MAX).fetchone()
        waits_us, waits_whole, unseen_items, unseen_queues, unseen_us, dead_letters, kept = counted
        items = sum(kinds.values())
        if items >= COUNTED_MAX:
            items = max(items, live - dead_letters - kept)
        return StoreTotals(
            kinds, items, waits_us, waits_whole, unseen_items, unseen_queues, unseen_us, dead_letters, kept, dead_rows,
            rings,
        )  # fmt: skip

    def health(self) -> StoreHealth:
        """See `InspectedStore`."""
        with self._connections.call() as call:
            schema.check(call.connection)
            lacking = [name for (name,) in call.execute(_LACKING)]
            snapshot_us, holder, hidden = call.execute(_SNAPSHOTS).fetchone()
            notify_share, prepared, prepared_us, publications, autovacuum = call.execute(_REST).fetchone()
        return StoreHealth(
            lacking, notify_share, snapshot_us, "" if snapshot_us is None else holder, hidden, prepared, prepared_us,
            publications, autovacuum,
        )  # fmt: skip


def _inspected(row: Sequence[Any], now_us: int) -> InspectedItem:
    *columns, lease_id, left_us, state, kept_us, is_seen, is_locked, items_before, lines, stored = row
    held = b"" if lease_id is None else lease_id.bytes
    leased = decoded(columns, held, left_us if held else 0, now_us)
    record, dead_letter, traceback = leased.record, None, (lines or b"").decode(errors="replace")
    record.leased_us = 0
    if not held:
        record.vesting_us = now_us - leased.waited_us
    if state == StoredState.DEAD_LETTER:
        dead_letter = decode(DeadLetterRecord, stored)
        if dead_letter is not None:
            record = _of_dead_letter(record, dead_letter.item)
            dead_letter = msgspec.structs.replace(dead_letter, item=record)
            traceback = dead_letter.traceback
    return InspectedItem(
        leased.queue, leased.id, StoredState(state), record, dead_letter, kept_us or 0, is_seen, is_locked,
        items_before, traceback,
    )  # fmt: skip


def _of_dead_letter(columns: ItemRecord, history: ItemRecord) -> ItemRecord:
    """Return the record of a dead letter: its history, with what stands in columns."""
    return msgspec.structs.replace(
        history, payload=columns.payload, enqueued_us=columns.enqueued_us, given_id=columns.given_id
    )
