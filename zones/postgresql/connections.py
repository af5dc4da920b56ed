"""Connections to one PostgreSQL server, and what psycopg's errors mean for whoever calls.

Connections are our own: one for each call that is under way, kept for later calls for a minute. psycopg's pool would
add threads that reconnect, with retries and timeouts of their own; here the call that finds no server says so.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from select import POLLIN, poll
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.external.store import HEARD_S

LOCKED = "55P03"
READ_COMMITTED = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED"
# A transaction of a client whose machine is gone holds its locks until the server asks: by default after two hours.
END_WITH_ITS_CLIENT = "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3"
CONFLICTS = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)  # Nothing has happened: try again.
# A burst of handlers needs many connections, and then few. Calls leave those that were idle for a minute to the server,
# which closes them after two: so it closes none that a call is about to use.
IDLE_US = 60_000_000
CLOSE_IDLE = "SET idle_session_timeout = '120s'"
NEVER_CLOSE_IDLE = "SET idle_session_timeout = 0"
HAS_IDLE_TIMEOUT = 140_000  # From this version of the server on. An older one is refused where its schema is read.
TRIES_MAX = 20  # Of a transaction that conflicts each time.
ENDING = "57P"  # How the codes of a server that ends begin: it may say so after a commit, instead of an answer.


# A peer that vanished is found out: after as many seconds of silence; and how long what was sent may stay unconfirmed.
KEEPALIVES: Mapping[str, Any] = {
    "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 10_000
}  # fmt: skip


SILENCE_S = 0.1  # How long psycopg waits at once.


class BoundedConnection(psycopg.Connection[Any]):  # type: ignore[misc]
    """A connection that waits `answer_s` for an answer at most. None: for as long as the server takes.

    A server whose machine stands still answers nothing, and ends no statement that takes too long.
    """

    answer_s: float | None = None

    def wait(self, gen: Any, **options: Any) -> Any:
        """See `psycopg.Connection`. Every wait for the server goes through here."""
        if self.answer_s is None:
            return super().wait(gen, **options)
        return super().wait(_bounded(gen, self.answer_s), **{**options, "interval": SILENCE_S})


def _bounded(gen: Any, answer_s: float) -> Any:
    """Yield what psycopg waits for next; it sends what came, or nothing after each `SILENCE_S`.

    Raises:
      OperationalError: nothing came for too long.
    """
    silent_s = 0.0
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            silent_s = 0.0 if ready else silent_s + SILENCE_S
            if silent_s > answer_s:
                raise psycopg.OperationalError(f"the server has not answered for {answer_s:g} s")
            wanted = gen.send(ready)
    except StopIteration as end:
        return end.value


class AnswerLost(StoreUnavailable):
    """The connection broke between a commit and its answer: it may have been made, or may still be."""

    def __init__(self, **fields: object) -> None:
        super().__init__("the connection broke during a commit", remedy="Read whether it was made.", **fields)


ADDRESS = (
    "Write it as postgresql://USER@HOST:PORT/DATABASE, or 'host=... dbname=...', with options of libpq only. In a URL, "
    "what is special in a password is encoded: / as %2F, % as %25, @ as %40."
)
# What helps if the server refuses, by the class of psycopg's error.
_PREPARE = "Prepare the database: `fairlead postgres init`, or `upgrade` after Fairlead was upgraded."
_REMEDIES: Mapping[type[psycopg.Error], str] = {
    psycopg.errors.InvalidSchemaName: _PREPARE,
    psycopg.errors.UndefinedTable: _PREPARE,
    psycopg.errors.UndefinedFunction: _PREPARE,
    psycopg.errors.UndefinedColumn: _PREPARE,
    psycopg.errors.InsufficientPrivilege: "Let the role use the schema: `fairlead postgres grant --consumer ROLE`.",
    psycopg.errors.QueryCanceled: "See what holds the server up: `fairlead check`.",
}


def _read_dsn(dsn: str) -> dict[str, Any] | None:
    """Return the options that a DSN gives; None: it is none. What libpq says of a wrong one may quote its password."""
    try:
        given: dict[str, Any] = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        return None
    ports = str(given.get("port") or "").split(",")  # A / in a password makes what stands before it a port.
    return given if all(port.isdecimal() or not port for port in ports) else None


def _remedy(error: psycopg.Error) -> str:
    return next((remedy for kind, remedy in _REMEDIES.items() if isinstance(error, kind)), "See `error`.")


class RowLocked(StoreUnavailable):
    """Another transaction has locked an item for longer than a call waits; nothing was changed."""

    def __init__(self, **fields: object) -> None:
        remedy = "Try again when it has ended: that of a handler in SQL, or of a user. See pg_stat_activity."
        super().__init__("another transaction has locked the item", remedy=remedy, **fields)


def _is_refusal(connection: Any, error: psycopg.Error) -> bool:
    """Say whether the server answered with an error, and goes on."""
    answered = connection.pgconn.transaction_status == TransactionStatus.IDLE
    return answered and not (error.sqlstate or ENDING).startswith(ENDING)


class Call:
    """One call, and its connection. `is_committing`: what it sends next may be a commit."""

    def __init__(self, connection: Any, is_committing: bool) -> None:
        self.connection = connection
        self.is_committing = is_committing

    def execute(self, statement: Any, *arguments: Any) -> Any:
        """Execute a statement; return psycopg's cursor, whose rows are binary, and tuples.

        The connection may be a user's, with cursors that bind in the client, or with rows of another form.
        """
        cursor = psycopg.Cursor(self.connection, row_factory=tuple_row)
        return cursor.execute(statement, arguments, binary=True)


class Listener:
    """Hears notifications of the channel `fairlead`, on a connection of its own. One thread uses it."""

    def __init__(self, connections: "Connections") -> None:
        self._connections = connections
        self._connection: Any = None

    def wait(self, timeout_s: float) -> int:
        """Wait for a notification, `timeout_s` at most; return how many came.

        The first call returns at once: what came before it was heard by nobody.

        Raises:
          StoreUnavailable: no server answers, or the connection broke.
        """
        if self._connection is None:
            self._connection = self._connections.connect()
            self._listen()
            self._connection.answer_s = None  # From here on the server speaks when it wants to.
            return 1
        try:
            return len(list(self._connection.notifies(timeout=timeout_s, stop_after=1)))
        except psycopg.Error as error:
            self.close()
            raise self._connections.broken(error) from error

    def hears(self) -> bool:
        """Return whether a notification arrives that another connection sends: within a second, or not at all.

        Through a pooler that lends its connections for a transaction each, none does.

        Raises:
          StoreUnavailable: no server answers, or a connection broke.
        """
        if self._connection is None:
            self.wait(0)
        with self._connections.call() as call:
            call.execute("SELECT pg_notify('fairlead', '')")
        return self.wait(HEARD_S) > 0

    def close(self) -> None:
        """Hear nothing more."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _listen(self) -> None:
        try:
            self._connection.execute(f"{NEVER_CLOSE_IDLE}; LISTEN fairlead")
        except psycopg.Error as error:
            self.close()
            raise self._connections.broken(error) from error


class Connections:
    """Connections with autocommit to a server that takes writes. Any thread may call.

    Args:
      dsn: how psycopg connects; one that names several servers finds the one that takes writes.
      shown: what errors say of the place, such as `{"table": ...}`. A DSN may hold a password.
      statement_ms: how long a statement may take, and the seconds of a new connection; None: as the server says. It
        waits for half as long at most for what another transaction has locked. A server that has not answered after
        half as long again counts as away.
      reads_committed: transactions are at READ COMMITTED; False: at the default level of role, database or DSN.
      check: called with each new connection; what it raises refuses the connection.
      now_us: the time, to close what is idle for long; by default it stands still, and the server closes that.
    """

    def __init__(
        self,
        dsn: str,
        shown: Mapping[str, object],
        *,
        statement_ms: int | None = None,
        reads_committed: bool = True,
        check: Callable[[Any], None] = lambda connection: None,
        now_us: Callable[[], int] = lambda: 0,
    ) -> None:
        self._dsn = dsn
        self._check = check
        self._now_us = now_us
        self._reads_committed = reads_committed
        self._statement_ms = statement_ms
        self._shown = shown
        self._idle: deque[tuple[Any, int]] = deque()  # With the time since when; the last one was used last.
        self._is_closed = False

    def close(self) -> None:
        """Close the connections that no call uses; from now on a call closes its own."""
        self._is_closed = True
        self._close_idle()

    def _close_idle(self) -> None:
        while True:
            try:
                connection, _ = self._idle.pop()
            except IndexError:  # Other threads may have taken some.
                return
            connection.close()

    @contextmanager
    def call(self, *, is_committing: bool = False) -> Iterator[Call]:
        """Yield a connection of this call's own.

        Raises:
          StoreUnavailable: no server answers, it refuses, or the connection broke; nothing was changed.
          RowLocked: see there.
          AnswerLost: the connection broke while the call was committing.
        """
        connection = self._take()
        call = Call(connection, is_committing)
        try:
            yield call
        except psycopg.Error as error:
            if _is_refusal(connection, error):
                raise self.refused(error) from error
            if call.is_committing:
                raise AnswerLost(**self._of(error)) from error
            raise self.broken(error) from error
        finally:
            self._keep_open(connection)

    @contextmanager
    def lend(self) -> Iterator[Any]:
        """Yield psycopg's connection, whose errors are the caller's affair. One left in a transaction is closed.

        Raises:
          StoreUnavailable: no server answers.
        """
        connection = self._take()
        try:
            yield connection
        finally:
            self._keep_open(connection)

    def _keep_open(self, connection: Any) -> None:
        """Keep a connection for later calls, unless it is broken; close those that were idle for long."""
        now_us = self._now_us()
        if connection.pgconn.transaction_status == TransactionStatus.IDLE:
            self._idle.append((connection, now_us))
        else:
            connection.close()
        if self._is_closed:  # Read after the append: `close` may have looked before it.
            self._close_idle()
        while True:
            try:
                longest, since_us = self._idle.popleft()
            except IndexError:  # Other threads have taken all.
                return
            if 0 <= now_us - since_us <= IDLE_US:
                self._idle.appendleft((longest, since_us))
                return
            longest.close()

    def _take(self) -> Any:
        """Return a connection that the server has not closed, a new one if there is none."""
        while True:
            try:
                connection, since_us = self._idle.pop()
            except IndexError:
                return self.connect()
            if not 0 <= self._now_us() - since_us <= IDLE_US:
                connection.close()
                continue
            waiting = poll()
            waiting.register(connection.fileno(), POLLIN)
            if not waiting.poll(0):
                return connection
            connection.close()  # The server has something to say that nobody asked for: it ends.

    def connect(self) -> Any:
        """Return a new connection, which the caller closes.

        Raises:
          StoreUnavailable: no server that takes writes answers, or the DSN cannot be read.
          What `check` raises.
        """
        options = self._options()
        try:
            connection = BoundedConnection.connect(autocommit=True, **options)
        except psycopg.Error as error:
            raise StoreUnavailable(
                "no PostgreSQL that takes writes answers", remedy="Start it, or see `error`.", **self._of(error)
            ) from error
        if self._statement_ms is not None:
            connection.answer_s = self._statement_ms * 1.5 / 1000
        try:
            connection.execute(READ_COMMITTED if self._reads_committed else END_WITH_ITS_CLIENT)
            if connection.info.server_version >= HAS_IDLE_TIMEOUT:
                connection.execute(CLOSE_IDLE)
            self._check(connection)
        except psycopg.Error as error:
            refusal = self.refused(error) if _is_refusal(connection, error) else self.broken(error)
            connection.close()
            raise refusal from error
        except StoreUnavailable:
            connection.close()
            raise
        return connection

    def _options(self) -> dict[str, Any]:
        """Return how to connect: what the DSN says counts, but for what a consumer must have."""
        given = _read_dsn(self._dsn)
        if given is None:
            raise StoreUnavailable("the address of the database cannot be read", remedy=ADDRESS, **self._shown)
        options = {**KEEPALIVES, **given, "target_session_attrs": "read-write"}
        if self._statement_ms is not None:
            bounds = f"-c statement_timeout={self._statement_ms} -c lock_timeout={self._statement_ms // 2}"
            options["options"] = f"{given.get('options', '')} {bounds}".strip()
            options["connect_timeout"] = max(1, self._statement_ms // 1000)
        return options

    def refused(self, error: Any) -> StoreUnavailable:
        """Return the error of a statement that the server refuses."""
        if error.sqlstate == LOCKED:
            return RowLocked(**self._of(error))
        return StoreUnavailable("PostgreSQL refused", remedy=_remedy(error), **self._of(error))

    def broken(self, error: Any) -> StoreUnavailable:
        """Return the error of a connection that broke."""
        return StoreUnavailable("the connection broke", remedy="Try again.", **self._of(error))

    def _of(self, error: Any) -> Mapping[str, Any]:
        return {**self._shown, "error": str(error).strip(), "sqlstate": error.sqlstate}
