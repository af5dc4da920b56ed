"""The operations on items in PostgreSQL: each is one call of a function of the schema, which is one statement.

Durations and differences go in and come out, never times of the server's clock.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

import psycopg

from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.external.first_due import note_first_due
from fairlead.zones.external.store import (
    Arrival,
    Dequeued,
    ItemLease,
    LeasedRow,
    Look,
    Outlook,
    Queue,
    RunningState,
    Start,
    Stop,
    Want,
)
from fairlead.zones.layout import Tenant
from fairlead.zones.postgresql.arguments import OUTCOMES, ids_of, names_of
from fairlead.zones.postgresql.connections import CONFLICTS, TRIES_MAX, Call, Connections, Listener
from fairlead.zones.postgresql.item_rows import fill_deaths, fill_record, packed_dead_letter, packed_history
from fairlead.zones.postgresql.queue_operations import QueueStatements
from fairlead.zones.postgresql.refusals import refusals_explained
from fairlead.zones.postgresql.sessions import Sessions
from fairlead.zones.postgresql.statements import StatementOp, run_op
from fairlead.zones.postgresql.step_store import StepStore
from fairlead.zones.postgresql.upkeep import Upkeep
from fairlead.zones.queue.items import Outcome
from fairlead.zones.records import DeadLetterRecord, ItemRecord, decode

T = TypeVar("T")


_DEQUEUE = (
    "SELECT id, app, tenant, zone, kind, priority, waited_us, age_us, leases, expired, unique_us, given, payload, "
    "args::text, record, deaths, started, at_us, passed FROM fairlead.dequeue(%b::text[], %b::text[], "
    "%b::text[], %b::int[], %b::int[], %b::text[], %b::smallint[], %b::bigint[], %b::text[], %b::int[], %b::uuid, "
    "%b::bigint)"
)
_READ = (
    "SELECT id, app, tenant, zone, kind, priority, waited_us, age_us, leases, expired, unique_us, given, payload, "
    "args::text, record, deaths, started, lease_id, left_us FROM fairlead.read_held(%b::uuid[], %b::uuid[])"
)
_OUTLOOK = (
    "SELECT ord, kind, priority, waits, next_us FROM fairlead.outlook(%b::text[], %b::text[], %b::text[], %b::int[], "
    "%b::text[], %b::smallint[], %b::bigint[])"
)
_RUNNING = "SELECT state FROM fairlead.running(%b::uuid[]) ORDER BY ord"
_COMPLETE = "SELECT outcome FROM fairlead.complete(%b::uuid[], %b::uuid[], %b::bigint[], %b::bytea[]) ORDER BY ord"
_HOLD = "SELECT 1 FROM fairlead.items WHERE id = %b AND lease_id = %b AND state < 1 FOR UPDATE"
_HOLDER = "SELECT lease_id FROM fairlead.items WHERE id = %b AND state < 1 FOR UPDATE"
_EXTEND = "SELECT outcome FROM fairlead.extend(%b::uuid[], %b::uuid[], %b::bigint, %b::smallint) ORDER BY ord"
_REQUEUE = (
    "SELECT outcome FROM fairlead.requeue(%b::uuid[], %b::uuid[], %b::bigint[], %b::bytea[], %b::int[], %b::bytea[]) "
    "ORDER BY ord"
)
_DEAD_LETTER = "SELECT outcome FROM fairlead.dead_letter(%b::uuid[], %b::uuid[], %b::bytea[]) ORDER BY ord"
_HISTORY = """
SELECT concat_ws(':', (SELECT system_identifier FROM pg_control_system()),
  substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), (SELECT id FROM fairlead.store))
"""
# One call, as a busy reader looks every few milliseconds.
_ARRIVALS = f"""
WITH here AS MATERIALIZED (SELECT ({_HISTORY}) AS history)
SELECT here.history, seen::text, (SELECT rings FROM fairlead.doorbell), app, tenant, zone, in_us FROM here,
  fairlead.arrivals(CASE here.history WHEN %s THEN %s::pg_snapshot ELSE pg_current_snapshot() END)
"""
_QUEUES = "SELECT app, tenant, zone FROM fairlead.queues(%s, %s, %s, %s)"


class ItemStore:
    """The items of one database. `handlers`: the connections in which handlers, and bodies of steps, run.

    `queues`: what applications and operators do there. `notifies`: see `ExternalStore`.

    Every method raises `StoreUnavailable` if the server does not answer or refuses, and `AnswerLost`, which is one, if
    the connection broke while it may have committed.
    """

    def __init__(self, connections: Connections, handlers: Connections, *, notifies: bool = True) -> None:
        self.notifies = notifies
        self._connections = connections
        self._handlers = handlers
        self.steps = StepStore(connections, handlers)
        self._doorbell = Listener(connections)
        self.sessions = Sessions(connections)
        self.upkeep = Upkeep(connections, handlers)
        self.known_id: bytes | None = None
        self.queues = QueueStatements(self._run)

    def dequeue(
        self, wants: Sequence[Want], rooms: Mapping[str, int], *, lease_id: bytes, lease_us: int, now_us: int
    ) -> Dequeued:
        """See `ExternalStore`. Passes over items that another transaction has locked."""
        with self._connections.call(is_committing=True) as call:
            rows = call.execute(
                _DEQUEUE,
                *names_of(want.queue for want in wants),
                [want.items_max for want in wants],
                *_stops([want.stops for want in wants]),
                list(rooms),
                list(rooms.values()),
                UUID(bytes=lease_id),
                lease_us,
            ).fetchall()
        (*_, passed) = rows.pop()
        leased = [decoded(row, lease_id, lease_us, now_us)._replace(at_us=at_us) for *row, at_us, _ in rows]
        leased.sort(key=lambda each: (each.record.priority, -each.waited_us, each.id))
        return Dequeued(leased, passed)

    def read(self, held: Sequence[ItemLease], *, now_us: int) -> list[LeasedRow]:
        """See `ExternalStore`."""
        with self._connections.call() as call:
            rows = call.execute(_READ, *ids_of(held)).fetchall()
        return [decoded(row, lease_id.bytes, left_us, now_us) for *row, lease_id, left_us in rows]

    def outlook(self, queues: Sequence[Queue], stops: Sequence[Sequence[Stop]] = ()) -> list[list[Outlook]]:
        """See `ExternalStore`."""
        left: list[list[Outlook]] = [[] for _ in queues]
        with self._connections.call() as call:
            for ord_, kind, priority, waits, next_us in call.execute(_OUTLOOK, *names_of(queues), *_stops(stops)):
                left[ord_ - 1].append(Outlook(kind, priority, waits, next_us))
        return left

    def running(self, item_ids: Sequence[bytes]) -> list[RunningState]:
        """See `ExternalStore`."""
        with self._connections.call() as call:
            rows = call.execute(_RUNNING, [UUID(bytes=each) for each in item_ids]).fetchall()
        return [RunningState(state) for (state,) in rows]

    def complete(
        self, held: Sequence[ItemLease], *, keeps_us: Sequence[int] = (), results: Sequence[bytes | None] = ()
    ) -> list[Outcome | None]:
        """See `ExternalStore`."""
        keeps = list(keeps_us) or [0] * len(held)
        return self._change(_COMPLETE, held, keeps, list(results) or [None] * len(held))

    def extend(self, held: Sequence[ItemLease], *, lease_us: int, begins: Start | None = None) -> list[Outcome | None]:
        """See `ExternalStore`."""
        return self._change(_EXTEND, held, lease_us, begins)

    def requeue(
        self,
        held: Sequence[ItemLease],
        delays_us: Sequence[int | None],
        records: Sequence[ItemRecord | None],
        *,
        tracebacks: Sequence[str] = (),
    ) -> list[Outcome | None]:
        """See `ExternalStore`."""
        packed = [None if record is None else packed_history(record) for record in records]
        deaths = [None if record is None else record.expiry_count for record in records]
        lines = [each.encode() for each in tracebacks]
        return self._change(_REQUEUE, held, list(delays_us), packed, deaths, lines or [None] * len(held))

    def dead_letter(self, held: Sequence[ItemLease], records: Sequence[DeadLetterRecord]) -> list[Outcome | None]:
        """See `ExternalStore`."""
        return self._change(_DEAD_LETTER, held, [packed_dead_letter(record) for record in records])

    def run_handler(self, held: ItemLease, body: Callable[[Any], tuple[bytes | None, int]]) -> Outcome:
        """See `ExternalStore`. Its connections are others than those of visits, whose statements end after seconds."""
        for _ in range(TRIES_MAX):
            try:
                return self._run_once(held, body)
            except CONFLICTS as conflict:
                last = conflict
        raise StoreUnavailable(
            "the transaction of a handler conflicts again and again", remedy="Try again.", item=held.id.hex()
        ) from last

    def _run_once(self, held: ItemLease, body: Callable[[Any], tuple[bytes | None, int]]) -> Outcome:
        ids, leases = ids_of([held])
        is_committing = False
        with self._handlers.lend() as connection:
            call = Call(connection, is_committing=True)
            try:
                with connection.transaction():
                    if call.execute(_HOLD, ids[0], leases[0]).fetchone() is None:
                        return Outcome.LEASE_LOST
                    result, keep_us = body(connection)
                    (outcome,) = call.execute(_COMPLETE, ids, leases, [keep_us], [result]).fetchone()
                    assert OUTCOMES[outcome] is Outcome.DONE, "the transaction holds the row"
                    is_committing = True
            except psycopg.Error as error:
                if not connection.closed:
                    raise
                if not is_committing:
                    raise self._handlers.broken(error) from error
                broken = error
            else:
                return Outcome.DONE
        return self._ended_after_all(ids[0], leases[0], broken)

    def _ended_after_all(self, item_id: UUID, lease_id: UUID | None, broken: psycopg.Error) -> Outcome:
        """Return what became of an item if the connection of its transaction broke at the commit.

        Waits for that transaction, which may still be running: it has locked the row. Above READ COMMITTED the wait
        would end in a conflict.
        """
        with self._handlers.call() as call, call.connection.transaction():
            call.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            found = call.execute(_HOLDER, item_id).fetchone()
        if found is None:
            return Outcome.DONE
        if found != (lease_id,):
            return Outcome.LEASE_LOST
        raise self._handlers.broken(broken) from broken

    def arrivals(self, seen: str, history: str) -> Look:
        """See `ExternalStore`."""
        with self._connections.call() as call:
            rows = call.execute(_ARRIVALS, history, seen).fetchall()
        found = [
            Arrival(Queue(Tenant(app, user), zone), in_us) for *_, app, user, zone, in_us in rows if app is not None
        ]
        history, seen, rings, *_ = rows[0]
        return Look(history, seen, found, bool(rings))

    def snapshot(self) -> str:
        """See `ExternalStore`."""
        with self._connections.call() as call:
            (seen,) = call.execute("SELECT pg_current_snapshot()::text").fetchone()
        return str(seen)

    def history(self) -> str:
        """See `ExternalStore`: the server's system identifier and its timeline."""
        with self._connections.call() as call:
            (history,) = call.execute(_HISTORY).fetchone()
        return str(history)

    def set_doorbell(self, rings: bool) -> None:
        """See `ExternalStore`."""
        with self._connections.call(is_committing=True) as call:
            call.execute("UPDATE fairlead.doorbell SET rings = %b", rings)

    def await_doorbell(self, timeout_s: float) -> int:
        """See `ExternalStore`."""
        return self._doorbell.wait(timeout_s)

    def hears_doorbell(self) -> bool:
        """See `ExternalStore`."""
        return self._doorbell.hears()

    def store_id(self) -> bytes:
        """See `ExternalStore`."""
        if self.known_id is None:
            with self._connections.call() as call:
                (found,) = call.execute("SELECT fairlead.store_id()").fetchone()
            self.known_id = found.bytes
        return self.known_id

    def close(self) -> None:
        """Close all connections."""
        self._doorbell.close()
        self._connections.close()
        self._handlers.close()

    def queues_behind(self, queue: Queue | None, limit: int) -> list[Queue]:
        """See `ExternalStore`."""
        (app, user), zone = queue or Queue(Tenant("", ""), "")
        with self._connections.call() as call:
            rows = call.execute(_QUEUES, app, user, zone, limit).fetchall()
        return [Queue(Tenant(app, user), zone) for app, user, zone in rows]

    def _run(self, operation: StatementOp[T], *, is_committing: bool) -> T:
        with self._connections.call(is_committing=is_committing) as call, refusals_explained():
            return run_op(call.connection, operation)

    def _change(self, statement: str, held: Sequence[ItemLease], *arguments: Any) -> list[Outcome | None]:
        with self._connections.call(is_committing=True) as call:
            return [OUTCOMES[outcome] for (outcome,) in call.execute(statement, *ids_of(held), *arguments)]


def _stops(stops: Sequence[Sequence[Stop]]) -> tuple[list[int], list[str], list[int], list[int]]:
    """Return stops as arrays; the first says of which queue each is, counted from 1."""
    known = [(ord_, stop) for ord_, some in enumerate(stops, 1) for stop in some]
    return (
        [ord_ for ord_, _ in known],
        [stop.kind for _, stop in known],
        [stop.priority for _, stop in known],
        [stop.from_us for _, stop in known],
    )


def decoded(row: Sequence[Any], lease_id: bytes, lease_us: int, now_us: int) -> LeasedRow:
    """Return the item of a row of the functions that read items. `lease_us`: until its lease ends."""
    id_, app, user, zone, kind, priority, waited_us, age_us, leases, expired, unique_us, given, *rest = row
    payload, args, packed, deaths, started = rest
    record = (None if packed is None else decode(ItemRecord, packed)) or ItemRecord(kind, b"", priority, 0, 0)
    expired_since = expired - record.expired_count  # since its last holder ended its lease
    fill_record(record, kind, priority, unique_us, given, payload, args)
    fill_deaths(record, expired, deaths, started)
    record.lease_id, record.lease_us, record.lease_number, record.leased_us = lease_id, lease_us, leases, now_us
    record.vesting_us, record.enqueued_us = now_us + lease_us, max(0, now_us - age_us)
    note_first_due(record, waited_us=waited_us, now_us=now_us)
    return LeasedRow(Queue(Tenant(app, user), zone), id_.bytes, record, waited_us, expired_since > 0)
