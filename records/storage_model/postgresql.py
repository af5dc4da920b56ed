"""The common storage model over PostgreSQL 14 and newer: a table for each store, and a statement for each access.

    key bytea PRIMARY KEY, version bytea, value bytea

A conditional write is one statement with autocommit, at READ COMMITTED. It waits for whoever writes the row, and then
compares what that one has committed. No lock outlives the statement, so a client that stops holds up nobody. Only
`batch` is a transaction of several statements.

If the connection breaks between a write and its answer, the write may have been made, or may still be: the server works
on with what it has got. Reading again cannot tell. The row may hold the version that was to be written, and another
client may have written that: versions are chosen by writers, and two that have read (g, v) both write (g, v + 1). An
absent row may never have been, or another may have deleted it. So such a write raises `CommitUnknown`. Who wants to
ask the server (`pg_xact_status`) must keep the row locked while the client stands still. And the answer can be wrong: a
server that has crashed gives the numbers of lost transactions anew. See docs/decisions/081.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from fairlead.records.errors import CommitUnknown
from fairlead.records.storage_model.record_store import Batch, ConditionalWrite
from fairlead.records.stored import Versioned
from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.postgresql.connections import AnswerLost, Call, Connections

PIECE_RECORDS = 500  # that one statement of a scan reads
DEADLOCKS_MAX = 10  # after which a batch gives up

STATEMENTS = {
    "create": "CREATE TABLE IF NOT EXISTS {table} "
    "(key bytea PRIMARY KEY, version bytea NOT NULL, value bytea NOT NULL)",
    "get": "SELECT version, value FROM {table} WHERE key = %b",
    "insert": "INSERT INTO {table} (key, version, value) VALUES (%b, %b, %b) ON CONFLICT (key) DO NOTHING",
    "replace": "UPDATE {table} SET version = %b, value = %b WHERE key = %b AND version = %b",
    "delete": "DELETE FROM {table} WHERE key = %b AND version = %b",
    "scan": "SELECT key, version, value FROM {table} WHERE key >= %b AND key < %b ORDER BY key LIMIT %s",
    "scan on": "SELECT key, version, value FROM {table} WHERE key > %b AND key < %b ORDER BY key LIMIT %s",
    "hold absent": "INSERT INTO {table} (key, version, value) SELECT key, '', '' FROM unnest(%b::bytea[]) AS k(key) "
    "ON CONFLICT (key) DO NOTHING RETURNING key",
    "hold": "SELECT key, version, value FROM {table} WHERE key = ANY(%b::bytea[]) ORDER BY key FOR UPDATE",
    "write held": "UPDATE {table} SET version = %b, value = %b WHERE key = %b",
    "delete held": "DELETE FROM {table} WHERE key = ANY(%b::bytea[])",
}


class PostgresStore:
    """A store of records in a table of a PostgreSQL server.

    A write is as durable as the server's `synchronous_commit` says. There must be one server that takes writes: what a
    former primary still answers after another was promoted is not seen here.

    Args:
      dsn: how psycopg connects; one that names several servers finds the one that takes writes.
      table: its name, in the first schema of the search path.
    """

    def __init__(self, dsn: str, table: str) -> None:
        self._table = table
        self._connections = Connections(dsn, {"table": table})
        self._sql = {name: sql.SQL(text).format(table=sql.Identifier(table)) for name, text in STATEMENTS.items()}

    def create_table(self) -> None:
        """Create the table, if there is none.

        Raises:
          StoreUnavailable: the server does not answer, or refuses.
        """
        with self._call() as call:
            try:
                call.execute("create")
            except psycopg.errors.UniqueViolation:
                return  # Another client has created it at the same time.

    def close(self) -> None:
        """Close the connections that no call uses."""
        self._connections.close()

    def get(self, key: bytes) -> Versioned | None:
        """See `RecordStore`."""
        with self._call() as call:
            row = call.execute("get", key).fetchone()
        return None if row is None else Versioned(*row)

    def put_if(self, key: bytes, new: Versioned, expected: bytes | None) -> bool:
        """See `RecordStore`."""
        with self._call(is_committing=True) as call:
            if expected is None:
                done = call.execute("insert", key, *new)
            else:
                done = call.execute("replace", *new, key, expected)
            return bool(done.rowcount)

    def delete_if(self, key: bytes, expected: bytes) -> bool:
        """See `RecordStore`."""
        with self._call(is_committing=True) as call:
            return bool(call.execute("delete", key, expected).rowcount)

    def scan(self, begin: bytes, end: bytes) -> Iterator[tuple[bytes, Versioned]]:
        """See `RecordStore`. Reads 500 records in each statement."""
        statement, at = "scan", begin
        while True:
            with self._call() as call:
                rows = call.execute(statement, at, end, PIECE_RECORDS).fetchall()
            for key, version, value in rows:
                yield key, Versioned(version, value)
            if len(rows) < PIECE_RECORDS:
                return
            statement, at = "scan on", rows[-1][0]

    def batch(self, reads: Sequence[bytes], writes: Sequence[ConditionalWrite]) -> Batch:
        """See `BatchingStore`. One transaction, which locks the rows; begun again if it meets a deadlock."""
        keys = sorted({*reads, *(each.key for each in writes)})
        assert len({each.key for each in writes}) == len(writes)
        for _ in range(DEADLOCKS_MAX):
            with self._call() as call:
                try:
                    return self._make(call, keys, reads, writes)
                except psycopg.errors.DeadlockDetected:
                    continue
        raise StoreUnavailable("a batch met a deadlock again and again", remedy="Try again.", table=self._table)

    def _make(
        self, call: "_Call", keys: list[bytes], reads: Sequence[bytes], writes: Sequence[ConditionalWrite]
    ) -> Batch:
        """Make the accesses of a batch. `keys`: all of its keys, in order.

        Rows stand in for what is absent, so that nobody inserts it meanwhile. They go again before the commit.
        """
        with call.connection.transaction() as transaction:
            absent = {key for (key,) in call.execute("hold absent", keys)}
            rows = call.execute("hold", keys)
            present = {key: Versioned(version, value) for key, version, value in rows if key not in absent}
            held = [_version(present.get(each.key)) == each.expected for each in writes]
            done = Batch([present.get(key) for key in reads], held)
            if not writes or not done.is_written:
                raise psycopg.Rollback(transaction)
            put = [(*each.new, each.key) for each in writes if each.new is not None]
            gone = {each.key for each in writes if each.new is None} | (absent - {key for _, _, key in put})
            for row in put:
                call.execute("write held", *row)
            call.execute("delete held", sorted(gone))
            call.begin_commit()
        return done

    @contextmanager
    def _call(self, *, is_committing: bool = False) -> Iterator["_Call"]:
        """Yield a connection of this call's own; raise what `RecordStore` names for what psycopg raises."""
        try:
            with self._connections.call(is_committing=is_committing) as call:
                yield _Call(call, self._sql)
        except AnswerLost as error:
            fields = {name: value for name, value in error.fields.items() if name != "reason"}
            raise CommitUnknown(**fields) from error


class _Call:
    """One call of a store, and its connection."""

    def __init__(self, call: Call, statements: Mapping[str, Any]) -> None:
        self._call = call
        self._statements = statements

    @property
    def connection(self) -> Any:
        """Psycopg's connection."""
        return self._call.connection

    def begin_commit(self) -> None:
        """Note that what is sent next may be a commit."""
        self._call.is_committing = True

    def execute(self, statement: str, *arguments: Any) -> Any:
        """Execute a statement; return psycopg's cursor."""
        return self._call.execute(self._statements[statement], *arguments)


def _version(found: Versioned | None) -> bytes | None:
    return None if found is None else found.version
