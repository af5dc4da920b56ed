"""Users' transactions at every isolation level: what fails them with 40001, and what does not."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest

from fairlead.zones.queue.items import EnqueueStatus, new_item
from tests.zones.postgresql.database import Database

LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
ENQUEUE = "SELECT status FROM fairlead.enqueue('shop', %s, 'mail', item_id => %s)"
ASK = "SELECT status FROM fairlead.enqueue('shop', %s, 'mail')"


def begun(database: Database, level: str) -> Any:
    """Return a connection whose transaction has begun."""
    connection = database.connect(autocommit=False)
    connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
    connection.execute("SELECT 1")
    return connection


@pytest.mark.parametrize("level", LEVELS)
def test_two_transactions_that_enqueue_other_items_are_not_in_each_others_way(database: Database, level: str) -> None:
    with begun(database, level) as one, begun(database, level) as other:
        for _ in range(3):
            one.execute(ASK, ["alice"])
            other.execute(ASK, ["bob"])
        one.commit()
        other.commit()
    assert len(database.lease()) == 3


@pytest.mark.parametrize("level", LEVELS)
def test_a_given_id_that_was_committed_meanwhile_is_found_or_fails_the_transaction(
    database: Database, level: str
) -> None:
    """Above READ COMMITTED the transaction cannot see it, nor enqueue it again."""
    import psycopg

    with begun(database, level) as late:
        database.put(new_item("mail", item_id="order 7"))
        if level == "READ COMMITTED":
            assert late.execute(ENQUEUE, ["alice", "order 7"]).fetchone() == ("present",)
            return
        with pytest.raises(psycopg.errors.SerializationFailure):
            late.execute(ENQUEUE, ["alice", "order 7"])
        late.rollback()
        assert late.execute(ENQUEUE, ["alice", "order 7"]).fetchone() == ("present",)


@pytest.mark.parametrize("level", LEVELS)
def test_a_given_id_waits_for_the_transaction_that_inserts_it_and_is_enqueued_if_that_fails(
    database: Database, level: str
) -> None:
    said: list[Any] = []
    with begun(database, level) as first, begun(database, level) as second:
        first.execute(ENQUEUE, ["alice", "order 7"])

        def enqueue() -> None:
            said.append(second.execute(ENQUEUE, ["alice", "order 7"]).fetchone())
            second.commit()

        thread = Thread(target=enqueue)
        thread.start()
        while not waits_for_a_lock(database):
            assert thread.is_alive()
        first.rollback()
        thread.join()
    assert said == [("enqueued",)]


@pytest.mark.parametrize("level", LEVELS)
def test_consumers_are_at_read_committed_whatever_the_database_says(database: Database, level: str) -> None:
    with database.connect() as connection:
        connection.execute(
            f"ALTER DATABASE {connection.info.dbname} SET default_transaction_isolation = '{level.lower()}'"
        )
        try:
            database.connections.close()
            with database.connections.call() as call:
                assert call.execute("SHOW transaction_isolation").fetchone() == ("read committed",)
        finally:
            connection.execute(f"ALTER DATABASE {connection.info.dbname} RESET default_transaction_isolation")
            database.connections.close()


@pytest.mark.parametrize("level", LEVELS)
def test_a_transaction_that_has_read_items_does_not_hold_up_consumers(database: Database, level: str) -> None:
    """It sees what it saw; they lease and complete meanwhile."""
    ids = [database.enqueue() for _ in range(3)]
    with begun(database, level) as user:
        before = user.execute("SELECT count(*) FROM fairlead.items").fetchone()
        leased = database.lease()
        assert sorted(each.id for each in leased) == sorted(ids)
        database.complete(*leased)
        assert user.execute(ASK, ["alice"]).fetchone() == ("enqueued",)
        after = user.execute("SELECT count(*) FROM fairlead.items").fetchone()
        user.commit()
    assert (before, after) == ((3,), (1,) if level == "READ COMMITTED" else (4,))
    assert database.put(new_item("mail", item_id="x"))[0][1] is EnqueueStatus.ENQUEUED


def waits_for_a_lock(database: Database) -> bool:
    with database.connections.call() as call:
        found = call.execute(
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        return found.fetchone() is not None
