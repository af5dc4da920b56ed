"""The schema of the queues in a database: made, upgraded, and checked.

A migration expands: programs of the version before go on beside it. What they no longer need goes with the migration
after it. Each is one transaction, and waits a second for a lock at most, because an `ALTER` that waits holds up every
enqueue.
"""

from collections.abc import Iterator
from importlib.resources import files
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.postgresql.errors import PostgresRefused, SchemaMissing, SchemaNewer, SchemaOutdated

VERSION = 5  # The last migration of this program.
SERVER_MIN = 14_00_00
LOCK_TIMEOUT_MS = 1_000
FUNCTION_FILES = ("functions", "operations", "steps", "sessions", "inspection", "grants")
PRODUCER_FUNCTIONS = ("enqueue", "put", "put_one", "store_id", "id_of")

# Programs that begin together would all make the schema. The number is an arbitrary one.
_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(7236402195301)"
_SQL = files("fairlead.zones.postgresql") / "sql"
_LACKING = """
SELECT array_agg(p.proname::text ORDER BY p.proname) FROM pg_proc p
WHERE p.pronamespace = 'fairlead'::regnamespace AND (%s::text[] IS NULL OR p.proname = ANY(%s::text[]))
  AND NOT has_function_privilege(%s, p.oid, 'EXECUTE')
"""
AS_OWNER = "run it as the role that owns the schema: the one that ran `fairlead postgres init`"


class StoreState(NamedTuple):
    """What a database holds: the id of its store, and the last migration that was made."""

    store_id: bytes
    version: int


def migration(number: int) -> str:
    """Return the SQL of a migration, without the functions."""
    return (_SQL / f"migration_{number:03}.sql").read_text("utf-8")


def functions() -> str:
    """Return the SQL that makes the functions of this version."""
    return "\n".join((_SQL / f"{name}.sql").read_text("utf-8") for name in FUNCTION_FILES)


def script(first: int) -> str:
    """Return what `prepare` executes in a database whose next migration is `first`, for people to read or to run."""
    return "\n".join(["BEGIN;", *_steps(first), "COMMIT;\n"])


def _steps(first: int) -> Iterator[str]:
    yield f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_MS}ms';\n"
    for number in range(first, VERSION + 1):
        yield migration(number)
    yield functions()
    if first == 1:
        yield f"INSERT INTO fairlead.store (version) VALUES ({VERSION});"
    else:
        yield f"UPDATE fairlead.store SET version = {VERSION};"


def prepare(connection: Any) -> StoreState:
    """Make the schema, or upgrade it; return what the database holds now. Does nothing if nothing is to be done.

    Args:
      connection: of psycopg, with autocommit; its role may create schemas, or owns the schema.

    Raises:
      PostgresRefused: the server is too old, the database is not in UTF-8, a table is in use, or the role may not.
      SchemaNewer: see there.
      psycopg.Error: what the server refuses.
    """
    check_server(connection)
    try:
        with connection.transaction():
            connection.execute(_ONE_AT_A_TIME)
            found = _state(connection)
            if found is not None and found.version > VERSION:
                raise SchemaNewer(version=found.version, known=VERSION)
            if found is None or found.version < VERSION:
                for step in _steps(1 if found is None else found.version + 1):
                    connection.execute(step)
    except psycopg.errors.LockNotAvailable as error:
        remedy = "run it again when long transactions on the table fairlead.items have ended"
        raise PostgresRefused(reason="a table is in use", remedy=remedy) from error
    except psycopg.errors.DuplicateSchema as error:
        remedy = "rename the schema `fairlead` that is there: it is not one of queues"
        raise PostgresRefused(reason=str(error).strip(), remedy=remedy) from error
    except psycopg.errors.InsufficientPrivilege as error:
        remedy = "run it as a role that may create schemas in the database, or as the one that owns the schema"
        raise PostgresRefused(reason=str(error).strip(), remedy=remedy) from error
    state = _state(connection)
    assert state is not None
    return state


def check(connection: Any) -> StoreState:
    """Return what a database holds, if this program can use it. Changes nothing.

    Raises:
      PostgresRefused: see `prepare`; or the role may not read the schema.
      SchemaMissing, SchemaOutdated, SchemaNewer: see there.
    """
    check_server(connection)
    try:
        found = _state(connection)
    except psycopg.errors.InsufficientPrivilege as error:
        remedy = "let the role of a fleet use the schema: fairlead postgres grant --consumer ROLE"
        raise PostgresRefused(reason=str(error).strip(), remedy=remedy) from error
    if found is None:
        raise SchemaMissing
    if found.version != VERSION:
        kind = SchemaNewer if found.version > VERSION else SchemaOutdated
        raise kind(version=found.version, known=VERSION)
    return found


def check_for_consumer(connection: Any) -> None:
    """See that a consumer of this program may use the schema: it is of this version, or of the next, which only adds.

    Raises:
      StoreUnavailable: it is not, or the role may not see it.
      psycopg.Error: what the server refuses.
    """
    found = _state(connection)
    if found is None:
        remedy = "Run fairlead postgres init; if the schema is there, fairlead postgres grant --consumer ROLE."
        raise StoreUnavailable(SchemaMissing.message, remedy=remedy)
    if found.version < VERSION:
        remedy = "Run fairlead postgres upgrade."
        raise StoreUnavailable(SchemaOutdated.message, remedy=remedy, version=found.version, known=VERSION)
    if found.version > VERSION + 1:
        remedy = "Upgrade this program."
        raise StoreUnavailable(SchemaNewer.message, remedy=remedy, version=found.version, known=VERSION)


def upgrade_script(connection: Any) -> str | None:
    """Return what `prepare` would execute in a database that has the schema; None: nothing is to be done.

    Raises:
      SchemaMissing, SchemaNewer: see there.
    """
    found = _state(connection)
    if found is None:
        raise SchemaMissing
    if found.version > VERSION:
        raise SchemaNewer(version=found.version, known=VERSION)
    return script(found.version + 1) if found.version < VERSION else None


def check_server(connection: Any) -> None:
    """See that the server is new enough, and the database in UTF-8.

    Raises:
      PostgresRefused: it is not.
    """
    version = connection.info.server_version
    if version < SERVER_MIN:
        found = f"{version // 10_000}.{version % 10_000}"
        raise PostgresRefused(reason=f"the server is PostgreSQL {found}", remedy="upgrade it to 14 or newer")
    (encoding,) = connection.execute("SHOW server_encoding").fetchone()
    if encoding != "UTF8":
        remedy = "create a database with ENCODING 'UTF8', and move the data there"
        raise PostgresRefused(reason=f"the database is in {encoding}", remedy=remedy)


def grant(connection: Any, *, producers: tuple[str, ...] = (), consumers: tuple[str, ...] = ()) -> None:
    """Let roles enqueue, or let them run a fleet.

    A producer may enqueue any kind for any tenant, and can read nothing: `enqueue` runs with the rights of the schema's
    owner. A consumer may call every function, and change the tables.

    Raises:
      PostgresRefused: the caller may not grant.
      psycopg.Error: there is no such role.
    """
    try:
        _grant(connection, producers, consumers)
    except psycopg.errors.InsufficientPrivilege as error:
        raise PostgresRefused(reason=str(error).strip(), remedy=AS_OWNER) from error
    for role in producers:
        _check_granted(connection, role, list(PRODUCER_FUNCTIONS))
    for role in consumers:
        _check_granted(connection, role, None)


def _grant(connection: Any, producers: tuple[str, ...], consumers: tuple[str, ...]) -> None:
    for role in (*producers, *consumers):
        connection.execute(sql.SQL("GRANT USAGE ON SCHEMA fairlead TO {}").format(sql.Identifier(role)))
    for role in producers:
        for name in PRODUCER_FUNCTIONS:
            statement = sql.SQL("GRANT EXECUTE ON FUNCTION fairlead.{} TO {}")
            connection.execute(statement.format(sql.Identifier(name), sql.Identifier(role)))
    for role in consumers:
        for objects in ("SELECT, INSERT, UPDATE, DELETE ON ALL TABLES", "EXECUTE ON ALL FUNCTIONS"):
            statement = sql.SQL("GRANT " + objects + " IN SCHEMA fairlead TO {}")
            connection.execute(statement.format(sql.Identifier(role)))


def _check_granted(connection: Any, role: str, names: list[str] | None) -> None:
    """See that a role may call functions, all for None: the server only warns a caller who may not grant."""
    ((lacking,),) = connection.execute(_LACKING, [names, names, role]).fetchall()
    if lacking:
        raise PostgresRefused(reason=f"{role} may not call {', '.join(lacking)} even now", remedy=AS_OWNER)


def _state(connection: Any) -> StoreState | None:
    """Return what the database holds; None: nothing, or nothing that this role may see."""
    (there,) = connection.execute("SELECT to_regclass('fairlead.store') IS NOT NULL").fetchone()
    if not there:
        return None
    row = connection.execute("SELECT id, version FROM fairlead.store").fetchone()
    return None if row is None else StoreState(row[0].bytes, row[1])
