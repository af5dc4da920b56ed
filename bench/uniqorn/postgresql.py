"""A PostgreSQL server of its own, a plain table with local unique indexes on it, and tables as shards of records.

Imported where it is used: it needs psycopg, and the simulated figures and the page do not.
"""

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import local
from typing import Any

import psycopg

from bench.peers.round_context import RoundContext
from bench.peers.servers import HOST, Postgres
from bench.uniqorn.systems import Aborted, Carried
from bench.uniqorn.workload import Kind, Request
from fairlead.records.storage_model.postgresql import PostgresStore

TRAVERSABLE = 0o711  # The server's user must be able to enter its directory.


class ManyTables(Postgres):
    """A server for many stores, each of which keeps connections of its own."""

    SETTINGS = (*(each for each in Postgres.SETTINGS if "max_connections" not in each), "max_connections=500")


@contextmanager
def server(directory: Path) -> Iterator[Postgres]:
    """Yield a running server, durable, with its data in `directory`; end it."""
    directory.chmod(TRAVERSABLE)
    with closing(socket.socket()) as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    made = ManyTables(RoundContext(directory=directory, port=port))
    try:
        made.start()
        yield made
    finally:
        made.stop()


def new_stores(dsn: str, name: str, count: int) -> list[PostgresStore]:
    """Return stores over new tables."""
    stores = [PostgresStore(dsn, f"{name} {number}") for number in range(count)]
    for store in stores:
        store.create_table()
    return stores


class OneTable:
    """A table with a local unique index for each alternate key; each operation is a statement or two, as in SQL."""

    name = "Monolithic"

    def __init__(self, dsn: str, fields: int) -> None:
        self._dsn = dsn
        self._own = local()
        self._opened: list[Any] = []
        columns = [f"ak{number}" for number in range(fields)]
        self._insert = (
            f"INSERT INTO records (pk, {', '.join(columns)}, version, value) "
            f"VALUES (%s, {'%s, ' * fields} 1, %b) ON CONFLICT DO NOTHING"
        )
        sets = "".join(f"{column} = %s, " for column in columns)
        self._update = f"UPDATE records SET {sets}value = %b, version = version + 1 WHERE pk = %s AND version = %s"
        self._fields = fields
        self._execute(
            "CREATE TABLE records (pk text PRIMARY KEY, version bigint NOT NULL, value bytea NOT NULL"
            + "".join(f", {column} text UNIQUE" for column in columns)
            + ")"
        )

    def carry_out(self, request: Request) -> Carried:
        """See `System`."""
        found = True
        match request.kind:
            case Kind.CREATE | Kind.CREATE_BARE:
                names = request.names or (None,) * self._fields
                self._check(self._execute(self._insert, request.key, *names, request.value))
            case Kind.READ:
                column = f"ak{request.field}"
                asked = f"SELECT * FROM records WHERE {column} = %s"
                found = self._execute(asked, request.names[request.field]).fetchone() is not None
            case Kind.UPDATE | Kind.UPDATE_VALUE:
                found = self._carry_out_update(request)
            case Kind.DELETE:
                asked = f"DELETE FROM records WHERE ak{request.field} = %s"
                found = self._execute(asked, request.names[request.field]).rowcount > 0
        if request.kind is Kind.CREATE_BARE:
            return Carried(cleanup=lambda: self._execute("DELETE FROM records WHERE pk = %s", request.key))
        return Carried(found)

    def _carry_out_update(self, request: Request) -> bool:
        read = self._execute("SELECT * FROM records WHERE pk = %s", request.key).fetchone()
        if read is None:
            return False
        version = read[1]
        if request.kind is Kind.UPDATE:
            done = self._execute(self._update, *request.names, request.value, request.key, version)
        else:
            changed = "UPDATE records SET value = %b, version = version + 1 WHERE pk = %s AND version = %s"
            done = self._execute(changed, request.value, request.key, version)
        self._check(done)
        return True

    def _check(self, done: Any) -> None:
        if not done.rowcount:
            raise Aborted

    def _execute(self, statement: str, *arguments: Any) -> Any:
        """Execute a statement with autocommit, on the thread's own connection."""
        if not hasattr(self._own, "connection"):
            self._own.connection = psycopg.connect(self._dsn, autocommit=True)
            self._opened.append(self._own.connection)
        try:
            return self._own.connection.execute(statement, arguments, binary=True)
        except psycopg.errors.UniqueViolation as error:
            raise Aborted from error

    def close(self) -> None:
        """Close all connections."""
        for connection in self._opened:
            connection.close()
