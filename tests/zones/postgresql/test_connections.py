"""Connections of a consumer: which are kept, and for how long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.clocks import ManualClock
from tests.fairlead.live_consumers import eventually
from tests.zones.postgresql.database import Database


def open_connections(database: Database) -> int:
    with database.connections.call() as call:
        ((count,),) = call.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return int(count)


def test_the_server_closes_what_no_call_uses_any_more(database: Database) -> None:
    with database.connections.call() as call:
        assert call.execute("SHOW idle_session_timeout").fetchone() == ("2min",)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def connections(database: Database, clock: ManualClock) -> Iterator[Any]:
    from fairlead.zones.postgresql.connections import Connections

    made = Connections(database.dsn, {"store": "pg"}, now_us=clock.now_us)
    yield made
    made.close()


def test_after_a_minute_the_next_call_closes_what_a_burst_of_calls_has_left(
    database: Database, connections: Any, clock: ManualClock
) -> None:
    before = open_connections(database)
    with ExitStack() as calls:
        for call in [calls.enter_context(connections.call()) for _ in range(5)]:
            call.execute("SELECT 1")
    assert open_connections(database) == before + 5
    clock.advance_us(61_000_000)
    with connections.call() as call:
        call.execute("SELECT 1")
    eventually(lambda: open_connections(database) == before + 1)


def test_a_call_that_outlasts_the_end_of_its_store_closes_its_connection(connections: Any) -> None:
    with connections.lend() as lent:
        connections.close()
        lent.execute("SELECT 1")
    assert lent.closed


def test_a_call_does_not_take_a_connection_that_the_server_may_be_closing(connections: Any, clock: ManualClock) -> None:
    def backend() -> int:
        with connections.call() as call:
            return int(call.execute("SELECT pg_backend_pid()").fetchone()[0])

    first = backend()
    clock.advance_us(59_000_000)
    assert backend() == first
    clock.advance_us(61_000_000)
    assert backend() != first


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
