"""A handler's transaction in PostgreSQL, which meets others, or whose connection is cut at its commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any
from uuid import UUID

import pytest

from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.queue.items import Outcome
from tests.records.storage_model.cutting_proxy import Cut, CuttingProxy
from tests.zones.postgresql.database import Database, held

WAIT_S = 10.0
CONFLICTING = [
    "repeatable read",
    "serializable",
]  # The levels at which a transaction fails if others wrote what it reads.
AT_CONFLICTING_LEVELS = pytest.mark.parametrize("level", CONFLICTING, indirect=True)


@pytest.fixture
def proxy(database: Database) -> Iterator[CuttingProxy]:
    """A proxy between the handlers and their server."""
    with CuttingProxy(int(database.dsn.rpartition(":")[2].partition("/")[0])) as running:
        yield running


@pytest.fixture
def store(database: Database, proxy: CuttingProxy) -> Iterator[Any]:
    """The items of the database; handlers reach it by the proxy."""
    with database.connect() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS effects (id int); DELETE FROM effects")
    with store_by(database, proxy) as made:
        yield made


@contextmanager
def store_by(database: Database, proxy: CuttingProxy) -> Iterator[Any]:
    """The items of the database; handlers reach it by the proxy, with new connections."""
    from fairlead.zones.postgresql.connections import Connections
    from fairlead.zones.postgresql.item_store import ItemStore

    server, _, name = database.dsn.rpartition("/")
    dsn = f"{server.rpartition(':')[0]}:{proxy.port}/{name}"
    handlers = Connections(dsn, {"store": "pg"}, reads_committed=False)
    yield ItemStore(database.connections, handlers)
    handlers.close()


@pytest.fixture(params=["read committed", *CONFLICTING])
def level(request: pytest.FixtureRequest, database: Database) -> Iterator[str]:
    """The default isolation level of the role."""
    with database.connect() as connection:
        connection.execute(f"ALTER ROLE CURRENT_USER SET default_transaction_isolation = '{request.param}'")
        yield str(request.param)
        connection.execute("ALTER ROLE CURRENT_USER RESET default_transaction_isolation")


def increment_beside(database: Database, tries: list[int], other: Callable[[Any], object]) -> Callable[..., Any]:
    """Return a handler that reads a counter and adds one to it. `other` does something between, at the first try."""

    def handler(connection: Any) -> tuple[None, int]:
        (found,) = connection.execute("SELECT max(id) FROM effects").fetchone()
        tries.append(found)
        if len(tries) == 1:
            with database.connect() as beside:
                other(beside)
        connection.execute("UPDATE effects SET id = id + 1")
        return None, 0

    return handler


def insert(connection: Any) -> tuple[None, int]:
    """Leave an effect."""
    connection.execute("INSERT INTO effects VALUES (1)")
    return None, 0


def left(database: Database) -> tuple[int, int]:
    """Return how many effects and items there are."""
    with database.connect() as connection:
        (effects,) = connection.execute("SELECT count(*) FROM effects").fetchone()
        (items,) = connection.execute("SELECT count(*) FROM fairlead.items").fetchone()
    return effects, items


def test_both_happen(database: Database, store: Any) -> None:
    database.enqueue()
    (leased,) = database.lease()
    assert store.run_handler(held(leased), insert) is Outcome.DONE
    assert left(database) == (1, 0)


def test_neither_happens_if_the_handler_fails(database: Database, store: Any) -> None:
    def fail(connection: Any) -> tuple[None, int]:
        insert(connection)
        raise KeyError

    database.enqueue()
    (leased,) = database.lease()
    with pytest.raises(KeyError):
        store.run_handler(held(leased), fail)
    assert left(database) == (0, 1)


def test_an_item_of_another_holder_is_left_alone(database: Database, store: Any) -> None:
    database.enqueue()
    (leased,) = database.lease()
    database.let_pass("leased_until_us")
    database.lease()
    assert store.run_handler(held(leased), insert) is Outcome.LEASE_LOST
    assert left(database) == (0, 1)


def test_a_commit_without_an_answer_counts_as_what_it_was(database: Database, store: Any, proxy: CuttingProxy) -> None:
    database.enqueue(), database.enqueue()
    first, second = database.lease()
    proxy.cut_next(b"COMMIT\x00", Cut.AFTER)
    assert store.run_handler(held(first), insert) is Outcome.DONE
    assert left(database) == (1, 1)
    proxy.cut_next(b"COMMIT\x00", Cut.BEFORE)
    with pytest.raises(StoreUnavailable):
        store.run_handler(held(second), insert)
    assert (left(database), proxy.cuts) == ((1, 1), 2)


def test_an_item_that_another_holder_took_after_a_lost_commit_is_not_said_to_be_done(
    database: Database, store: Any, proxy: CuttingProxy
) -> None:
    database.enqueue()
    (leased,) = database.lease(lease_us=1)
    taken: list[Any] = []

    def cut_and_take(message: bytes) -> Cut | None:
        while proxy.cuts and not taken:  # Until the server has ended the transaction.
            taken.extend(database.lease())
        return Cut.BEFORE if not proxy.cuts and b"COMMIT\x00" in message else None

    proxy.choose = cut_and_take
    assert store.run_handler(held(leased), insert) is Outcome.LEASE_LOST
    assert (len(taken), left(database)) == (1, (0, 1))


def test_a_connection_that_breaks_before_the_commit_is_no_failure_of_the_handler(
    database: Database, store: Any, proxy: CuttingProxy
) -> None:
    database.enqueue()
    (leased,) = database.lease()
    proxy.cut_next(b"INSERT", Cut.AFTER)
    with pytest.raises(StoreUnavailable):
        store.run_handler(held(leased), insert)
    assert left(database) == (0, 1)


def test_nobody_else_leases_or_ends_the_item_meanwhile(database: Database, store: Any) -> None:
    def meanwhile(connection: Any) -> tuple[None, int]:
        assert database.lease() == []
        assert database.complete(leased) == [None]
        return insert(connection)

    database.enqueue()
    (leased,) = database.lease(lease_us=1)
    assert store.run_handler(held(leased), meanwhile) is Outcome.DONE
    assert left(database) == (1, 0)


def test_a_handler_that_conflicts_runs_again(database: Database, level: str, store: Any) -> None:
    database.enqueue()
    (leased,) = database.lease()
    with database.connect() as connection:
        connection.execute("INSERT INTO effects VALUES (10)")
    tries: list[int] = []
    handler = increment_beside(database, tries, lambda beside: beside.execute("UPDATE effects SET id = 20"))
    assert store.run_handler(held(leased), handler) is Outcome.DONE
    assert tries == ([10] if level == "read committed" else [10, 20])
    with database.connect() as connection:
        assert connection.execute("SELECT id FROM effects").fetchall() == [(21,)]
    assert left(database) == (1, 0)


def test_a_handler_that_meets_a_deadlock_runs_again(database: Database, level: str, store: Any) -> None:
    """The other transaction waits for the handler first. The one that waits last finds the deadlock: the handler."""
    with database.connect() as connection:
        connection.execute("INSERT INTO effects VALUES (1), (2)")
    tries: list[int] = []

    def beside() -> None:
        with database.connect(autocommit=False) as other:
            other.execute("SET deadlock_timeout = '1min'")
            other.execute("UPDATE effects SET id = 20 WHERE id = 2")
            holds.set()
            other.execute("UPDATE effects SET id = 10 WHERE id IN (1, 3)")

    def handler(connection: Any) -> tuple[None, int]:
        tries.append(1)
        if len(tries) == 1:
            connection.execute("SET LOCAL deadlock_timeout = '10ms'")
            connection.execute("UPDATE effects SET id = 3 WHERE id = 1")
            others.append(threads.submit(beside))
            assert holds.wait(WAIT_S)
            await_one_that_waits(database)
        connection.execute("UPDATE effects SET id = id + 1 WHERE id IN (2, 20)")
        return None, 0

    holds, others = Event(), list[Future[None]]()
    database.enqueue()
    (leased,) = database.lease()
    with ThreadPoolExecutor(1) as threads:
        assert store.run_handler(held(leased), handler) is Outcome.DONE
        others[0].result(WAIT_S)
    with database.connect() as connection:
        assert connection.execute("SELECT id FROM effects ORDER BY id").fetchall() == [(10,), (21,)]
    assert len(tries) > 1


@AT_CONFLICTING_LEVELS
@pytest.mark.usefixtures("level")
def test_a_handler_that_conflicts_each_time_is_left_for_later(database: Database, store: Any) -> None:
    database.enqueue()
    (leased,) = database.lease()
    with database.connect() as connection:
        connection.execute("INSERT INTO effects VALUES (1)")

    def handler(connection: Any) -> tuple[None, int]:
        with database.connect() as beside:
            beside.execute("UPDATE effects SET id = 1")
        connection.execute("UPDATE effects SET id = 2")
        return None, 0

    with pytest.raises(StoreUnavailable, match="conflicts again and again"):
        store.run_handler(held(leased), handler)
    assert left(database) == (1, 1)


@AT_CONFLICTING_LEVELS
@pytest.mark.usefixtures("level")
def test_a_handler_whose_item_is_taken_between_its_tries_has_lost_it(
    database: Database, store: Any, proxy: CuttingProxy
) -> None:
    """Between two tries the row is not locked, and the lease may have ended."""
    database.enqueue()
    (leased,) = database.lease(lease_us=1)
    with database.connect() as connection:
        connection.execute("INSERT INTO effects VALUES (10)")
    tries: list[int] = []
    taken: list[Any] = []

    def take_before_the_second_try(message: bytes) -> None:
        if tries and b"BEGIN" in message:
            taken.extend(database.lease())

    proxy.choose = take_before_the_second_try
    handler = increment_beside(database, tries, lambda beside: beside.execute("UPDATE effects SET id = 20"))
    assert store.run_handler(held(leased), handler) is Outcome.LEASE_LOST
    assert (tries, len(taken), left(database)) == ([10], 1, (1, 1))


@pytest.mark.usefixtures("level")
def test_who_looks_after_a_broken_commit_waits_for_it(database: Database, store: Any) -> None:
    psycopg = pytest.importorskip("psycopg")
    database.enqueue()
    (leased,) = database.lease()
    item_id, lease_id = (UUID(bytes=each) for each in held(leased))
    with ThreadPoolExecutor(1) as threads:
        with database.connect(autocommit=False) as committing:
            committing.execute("DELETE FROM fairlead.items")
            looking = threads.submit(store._ended_after_all, item_id, lease_id, psycopg.OperationalError())
            await_one_that_waits(database)
        assert looking.result(WAIT_S) is Outcome.DONE


def await_one_that_waits(database: Database) -> None:
    """Return once a transaction of the database waits for another one."""
    statement = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with database.connections.call() as call:
        while call.execute(statement).fetchone() == (0,):
            pass
