"""postgres init, upgrade, check, grant: the schema of queues in a PostgreSQL database."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import click

from fairlead.cli.output import example, json_option, show
from fairlead.external_stores import require_psycopg

DSN = "postgresql://localhost/shop"
UNHEARD = (
    "notifications do not arrive, as through a pooler in transaction mode. Producers may use this DSN. Give `external` "
    "the address of the server itself; if the server has no LISTEN, set external.NAME.notify = false"
)

dsn_option = click.option(
    "--dsn", required=True, metavar="DSN", help=f"Where the database is, such as {DSN} or 'host=... dbname=...'."
)  # fmt: skip


@click.group()
def postgres() -> None:
    """Prepare PostgreSQL databases for queues beside their data."""


@postgres.command(epilog=example(f"fairlead postgres init --dsn {DSN}"))
@click.option("--dsn", metavar="DSN", help=f"Where the database is, such as {DSN} or 'host=... dbname=...'.")
@click.option("--sql", "prints", is_flag=True, help="Print the SQL for somebody else to run, and change nothing.")
@json_option
def init(dsn: str | None, prints: bool) -> None:
    """Make the schema `fairlead` in a database. A second init changes nothing.

    The role must be allowed to create schemas in the database. It owns the schema; fairlead postgres grant lets other
    roles use it.
    """
    if prints:
        click.echo(_schema().script(1))
        return
    if dsn is None:
        raise click.UsageError("Missing option '--dsn'.")
    _prepare(dsn)


@postgres.command(epilog=example(f"fairlead postgres upgrade --dsn {DSN}"))
@dsn_option
@click.option("--sql", "prints", is_flag=True, help="Print the SQL for somebody else to run, and change nothing.")
@json_option
def upgrade(dsn: str, prints: bool) -> None:
    """Bring the schema to the version of this program, once the new version is to run.

    Programs of the version before go on meanwhile. It waits a second at most for other transactions, and then changes
    nothing: run it again.
    """
    with _connected(dsn) as (connection, schema):
        script = schema.upgrade_script(connection)
    if prints:
        click.echo("-- Nothing is to be done." if script is None else script)
        return
    _prepare(dsn)


@postgres.command(epilog=example(f"fairlead postgres check --dsn {DSN}"))
@dsn_option
@json_option
def check(dsn: str) -> None:
    """See whether this program can use a database for queues; changes nothing.

    It also says if notifications do not arrive there, as through a pooler in transaction mode.
    """
    with _connected(dsn) as (connection, schema):
        state = schema.check(connection)
    _show(state, hears=_hears(dsn))


@postgres.command(epilog=example(f"fairlead postgres grant --producer web --consumer fleet --dsn {DSN}"))
@click.option("--producer", "producers", multiple=True, metavar="ROLE", help="May enqueue any kind for any tenant.")
@click.option("--consumer", "consumers", multiple=True, metavar="ROLE", help="May run a fleet.")
@dsn_option
@json_option
def grant(dsn: str, producers: tuple[str, ...], consumers: tuple[str, ...]) -> None:
    """Let roles enqueue, or run a fleet. Run it as the role that made the schema."""
    with _connected(dsn) as (connection, schema):
        schema.check(connection)
        schema.grant(connection, producers=producers, consumers=consumers)
    answer = {"producers": producers, "consumers": consumers}
    show(
        answer,
        lambda: [f"{role} may enqueue" for role in producers] + [f"{role} may run a fleet" for role in consumers],
    )


def _prepare(dsn: str) -> None:
    with _connected(dsn) as (connection, schema):
        _show(schema.prepare(connection))


def _show(state: Any, *, hears: bool | None = None) -> None:
    """Show what a database holds. `hears`: whether notifications arrive; None: nobody has asked."""
    store_id = str(UUID(bytes=state.store_id))
    answer = {"store": store_id, "version": state.version} | ({} if hears is None else {"notifications": hears})
    lines = [f"the database holds queues: store {store_id}, schema version {state.version}"]
    show(answer, lambda: lines + [UNHEARD] * (hears is False))


def _hears(dsn: str) -> bool:
    """Return whether a notification of one connection arrives at another."""
    from fairlead.zones.postgresql.connections import Connections, Listener

    connections = Connections(dsn, {})
    listener = Listener(connections)
    try:
        return listener.hears()
    finally:
        listener.close()
        connections.close()


def _schema() -> Any:
    require_psycopg()
    from fairlead.zones.postgresql import schema

    return schema


@contextmanager
def _connected(dsn: str) -> Iterator[tuple[Any, Any]]:
    """Yield a connection, and the module that knows the schema; what psycopg raises comes as errors of a store."""
    schema = _schema()
    from fairlead.zones.postgresql.connections import Connections

    connections = Connections(dsn, {})
    try:
        with connections.call(is_committing=True) as call:
            yield call.connection, schema
    finally:
        connections.close()
