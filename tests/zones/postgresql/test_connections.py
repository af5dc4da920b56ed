"""Connections of a consumer: which are kept, and for how long."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from tests.fairlead.live_consumers import eventually
from tests.zones.postgresql.database import Database


def open_connections(database: Database) -> int:
    with database.connections.call() as call:
        ((count,),) = call.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return int(count)


def test_the_server_closes_what_no_call_has_used_for_a_minute(database: Database) -> None:
    with database.connections.call() as call:
        assert call.execute("SHOW idle_session_timeout").fetchone() == ("1min",)


def test_a_burst_of_calls_leaves_no_connections_behind(database: Database) -> None:
    before = open_connections(database)
    with ExitStack() as calls:
        for call in [calls.enter_context(database.connections.call()) for _ in range(5)]:
            call.execute("SET idle_session_timeout = '10ms'")  # The minute of the product, for this test.
    eventually(lambda: open_connections(database) <= before)
    with database.connections.call() as call:
        assert call.execute("SELECT 1").fetchone() == (1,)


def test_the_connection_that_listens_stays_however_quiet_it_is(database: Database) -> None:
    from fairlead.zones.postgresql.connections import Listener

    listener = Listener(database.connections)
    listener.wait(0)
    later = threading.Timer(0.05, lambda: _notify(database))
    later.start()
    assert listener.wait(30)
    assert listener._connection.execute("SHOW idle_session_timeout").fetchone() == ("0",)
    listener.close()


def _notify(database: Database) -> None:
    with database.connect() as connection:
        connection.execute("NOTIFY fairlead")
