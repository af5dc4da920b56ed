"""A handler's transaction in PostgreSQL, whose connection is cut before and after its commit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fairlead.zones.engines import StoreUnavailable
from fairlead.zones.queue.items import Outcome
from tests.records.storage_model.cutting_proxy import Cut, CuttingProxy
from tests.zones.postgresql.database import Database, held


@pytest.fixture
def proxy(database: Database) -> Iterator[CuttingProxy]:
    """A proxy between the handlers and their server."""
    with CuttingProxy(int(database.dsn.rpartition(":")[2].partition("/")[0])) as running:
        yield running


@pytest.fixture
def store(database: Database, proxy: CuttingProxy) -> Iterator[Any]:
    """The items of the database; handlers reach it by the proxy."""
    from fairlead.zones.postgresql.connections import Connections
    from fairlead.zones.postgresql.item_store import ItemStore

    server, _, name = database.dsn.rpartition("/")
    handlers = Connections(f"{server.rpartition(':')[0]}:{proxy.port}/{name}", {"store": "pg"})
    with database.connect() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS effects (id int); DELETE FROM effects")
    yield ItemStore(database.connections, handlers)
    handlers.close()


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
