"""Enqueuing within a user's own SQL transaction: the item is there if and only if the transaction commits.

Takes a connection of psycopg; or what wraps one: SQLAlchemy's `Connection` and `Session`, Django's `connection`.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg.pq import TransactionStatus

from fairlead.zones.errors import BadArgument
from fairlead.zones.external.store import ExternalStore
from fairlead.zones.postgresql.connections import Call
from fairlead.zones.postgresql.errors import ForeignDatabase, NoTransaction, PostgresRefused, SchemaMissing
from fairlead.zones.postgresql.item_store import ItemToPut, put
from fairlead.zones.queue.items import EnqueueStatus

ALLOWED = (
    "a connection of psycopg 3, SQLAlchemy's Connection or Session over postgresql+psycopg, or Django's connection over"
    " psycopg 3"
)

_known: WeakKeyDictionary[Any, bytes] = WeakKeyDictionary()  # The id of the store that a connection leads to.


def enqueue_within(
    connection: Any, stores: Mapping[str, ExternalStore], items: Sequence[ItemToPut]
) -> list[EnqueueStatus]:
    """Enqueue items in the transaction of a connection; return what became of each.

    A given id waits for another transaction that is enqueuing it. Above READ COMMITTED, one that was committed since
    the transaction began fails it by a serialization failure (40001), as any other conflict of the transaction.

    Raises:
      BadArgument: it is no such connection.
      NoTransaction: it commits each statement by itself, or its transaction has failed.
      ForeignDatabase: it leads to a database that is no external store of the application.
      SchemaMissing, PostgresRefused: the database is not prepared, or the role may not enqueue.
      psycopg.Error: what else the server refuses; the transaction has failed then.
    """
    raw = raw_connection(connection)
    check_transaction(raw)
    try:
        _check_store(raw, stores)
        return put(Call(raw, is_committing=False), items)
    except (psycopg.errors.UndefinedFunction, psycopg.errors.InvalidSchemaName) as error:
        raise SchemaMissing from error
    except psycopg.errors.InsufficientPrivilege as error:
        remedy = "let the role enqueue: fairlead postgres grant --producer ROLE"
        raise PostgresRefused(reason=str(error).strip(), remedy=remedy) from error


def raw_connection(connection: Any) -> psycopg.Connection[Any]:
    """Return psycopg's connection that something is, or wraps.

    Raises:
      BadArgument: it is none, and wraps none.
    """
    found = connection
    if callable(getattr(found, "ensure_connection", None)):  # Django's, which connects at its first use.
        found.ensure_connection()
        found = found.connection
    elif not isinstance(found, psycopg.Connection) and callable(getattr(found, "connection", None)):
        found = found.connection()  # A session of SQLAlchemy, which gives its connection.
    for _ in range(2):  # SQLAlchemy's connection holds one of its pool, which holds the driver's.
        if not isinstance(found, psycopg.Connection):
            found = getattr(found, "dbapi_connection", None) or getattr(found, "connection", found)
    if not isinstance(found, psycopg.Connection):
        raise BadArgument(argument="within", value=type(connection).__name__, allowed=ALLOWED)
    return found


def check_transaction(raw: psycopg.Connection[Any]) -> None:
    """See that what a connection does now is part of a transaction.

    Raises:
      NoTransaction: it is not.
    """
    status = raw.pgconn.transaction_status
    if status == TransactionStatus.INERROR:
        raise NoTransaction(reason="the transaction has failed; roll it back")
    if status == TransactionStatus.IDLE and raw.autocommit:
        raise NoTransaction(
            reason="the connection commits each statement by itself; open a transaction, `with conn.transaction():`"
        )


def _check_store(raw: psycopg.Connection[Any], stores: Mapping[str, ExternalStore]) -> None:
    """See once for each connection that its database is a store of the application."""
    store_id = _known.get(raw)
    if store_id is None:
        (found,) = Call(raw, is_committing=False).execute("SELECT fairlead.store_id()").fetchone()
        store_id = _known[raw] = b"" if found is None else found.bytes
    if not any(store.store_id() == store_id for store in stores.values()):
        raise ForeignDatabase(database=raw.info.dbname, known=sorted(stores))
