"""Operations on queues within a user's own SQL transaction: they are done if and only if the transaction commits.

Takes a connection of psycopg, plain or asynchronous; or what wraps one: SQLAlchemy's `Connection` and `Session`, and
their asynchronous forms; Django's `connection`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg.pq import TransactionStatus

from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.errors import BadArgument
from fairlead.zones.external.names import Queue
from fairlead.zones.external.queue_operations import ItemToPut
from fairlead.zones.external.store import ExternalStore
from fairlead.zones.postgresql.errors import ForeignDatabase, NoTransaction
from fairlead.zones.postgresql.queue_operations import QueueStatements, cancel_op, put_op
from fairlead.zones.postgresql.refusals import refusals_explained
from fairlead.zones.postgresql.statements import Statement, StatementOp, arun_op, run_op
from fairlead.zones.queue.items import EnqueueStatus

T = TypeVar("T")

ALLOWED = (
    "a connection of psycopg 3, SQLAlchemy's Connection or Session over postgresql+psycopg, or Django's connection over"
    " psycopg 3; an asynchronous one goes to `aenqueue` and the other methods that are awaited"
)
ALLOWED_ASYNC = (
    "an AsyncConnection of psycopg 3, or SQLAlchemy's AsyncConnection or AsyncSession over postgresql+psycopg"
)

# The first operation of a process connects to the stores. A busy server may keep a new connection waiting for longer
# than the seconds of one call, and the user's transaction has work to lose.
ASKED_MAX = 3

RunBlocking = Callable[[Callable[[], str]], Awaitable[str]]

_known: WeakKeyDictionary[Any, bytes] = WeakKeyDictionary()  # The id of the store that a connection leads to.


def open_within(connection: Any, stores: Mapping[str, ExternalStore]) -> tuple[str, QueueStatements]:
    """Return the name of the store that a connection leads to, and the operations on queues in its transaction.

    A given id waits for another transaction that is enqueuing it, and an item for one that has locked it. Above READ
    COMMITTED, one that was committed since the transaction began fails it by a serialization failure (40001), as any
    other conflict of the transaction. The operations raise what is listed here, too.

    Raises:
      BadArgument: it is no such connection.
      NoTransaction: it commits each statement by itself, or its transaction has failed.
      ForeignDatabase: it leads to a database that is none of `stores`.
      SchemaMissing, PostgresRefused: the database is not prepared, or the role may not do this.
      StoreUnavailable: a store of the application does not answer, so nobody knows whether it is this one.
      psycopg.Error: what else the server refuses; the transaction has failed then.
    """
    raw = raw_connection(connection)
    check_transaction(raw)
    store_id = _known.get(raw)
    if store_id is None:
        store_id = _known[raw] = _run(raw, _store_id_op(), is_committing=False)
    name = _known_name(store_id, stores) or _name_of(store_id, stores, raw.info.dbname)
    return name, QueueStatements(partial(_run, raw))


def _run(raw: psycopg.Connection[Any], operation: StatementOp[T], *, is_committing: bool) -> T:
    """Run an operation within the transaction of a connection, which its user commits; see `RunsOp`."""
    with refusals_explained():
        return run_op(raw, operation)


class AsyncOperations:
    """Those of `QueueOperations` that take part in the transaction of an asynchronous connection."""

    def __init__(self, raw: psycopg.AsyncConnection[Any]) -> None:
        self._raw = raw

    async def put(self, items: Sequence[ItemToPut]) -> list[EnqueueStatus]:
        """See `QueueOperations`."""
        return await self._run(put_op(items))

    async def cancel(self, queue: Queue, ids: Sequence[bytes], *, force: bool) -> bool:
        """See `QueueOperations`."""
        return await self._run(cancel_op(queue, ids, force=force))

    async def _run(self, operation: StatementOp[T]) -> T:
        with refusals_explained():
            return await arun_op(self._raw, operation)


async def aopen_within(
    connection: Any, stores: Mapping[str, ExternalStore], run_blocking: RunBlocking
) -> tuple[str, AsyncOperations]:
    """Return the name of a store, and operations, as `open_within` does.

    Args:
      run_blocking: runs a call that may connect to a store, in another thread.
    """
    raw = await araw_connection(connection)
    check_transaction(raw)
    store_id = _known.get(raw)
    if store_id is None:
        with refusals_explained():
            store_id = _known[raw] = await arun_op(raw, _store_id_op())
    name = _known_name(store_id, stores)
    if name is None:
        name = await run_blocking(partial(_name_of, store_id, stores, raw.info.dbname))
    return name, AsyncOperations(raw)


def raw_connection(connection: Any) -> psycopg.Connection[Any]:
    """Return psycopg's connection that something is, or wraps. One of SQLAlchemy has begun a transaction then.

    Raises:
      BadArgument: it is none, and wraps none.
    """
    found = connection
    if callable(getattr(found, "ensure_connection", None)):  # Django's, which connects at its first use.
        found.ensure_connection()
        found = found.connection
    elif not isinstance(found, psycopg.Connection) and callable(getattr(found, "connection", None)):
        found = found.connection()  # A session of SQLAlchemy, which gives its connection.
    if not isinstance(found, psycopg.Connection):
        if callable(getattr(found, "in_transaction", None)) and not found.in_transaction():
            found.begin()  # Otherwise SQLAlchemy knows of no transaction, and its `commit` would do nothing.
        found = _of_driver(found)
    if not isinstance(found, psycopg.Connection):
        raise BadArgument(argument="within", value=type(connection).__name__, allowed=ALLOWED)
    return found


async def araw_connection(connection: Any) -> psycopg.AsyncConnection[Any]:
    """Return psycopg's asynchronous connection that something is, or wraps; see `raw_connection`.

    Raises:
      BadArgument: it is none, and wraps none.
    """
    found = connection
    if hasattr(found, "sync_session"):  # SQLAlchemy's AsyncSession, which gives its connection.
        found = await found.connection()
    if hasattr(found, "sync_connection"):  # Its AsyncConnection.
        if not found.in_transaction():
            await found.begin()
        found = _of_driver(found.sync_connection)
    if not isinstance(found, psycopg.AsyncConnection):
        raise BadArgument(argument="within", value=type(connection).__name__, allowed=ALLOWED_ASYNC)
    return found


def check_transaction(raw: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
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


def _of_driver(connection: Any) -> Any:
    """Return the driver's connection of SQLAlchemy's `Connection`, which holds one of its pool, which holds that."""
    return getattr(getattr(connection, "connection", None), "driver_connection", None)


def _store_id_op() -> StatementOp[bytes]:
    ((found,),) = yield Statement("SELECT fairlead.store_id()")
    return b"" if found is None else bytes(found.bytes)


def _known_name(store_id: bytes, stores: Mapping[str, ExternalStore]) -> str | None:
    return next((name for name, store in stores.items() if store.known_id == store_id), None)


def _name_of(store_id: bytes, stores: Mapping[str, ExternalStore], database: str) -> str:
    """Return the name of the store with an id, once all have answered, or one has that id."""
    for _ in range(ASKED_MAX):
        away: StoreUnavailable | None = None
        for name, store in stores.items():
            try:
                if store.store_id() == store_id:
                    return name
            except StoreUnavailable as error:
                away = error
        if away is None:
            raise ForeignDatabase(database=database, known=sorted(stores))
    assert away is not None
    raise away
