"""`drain` of `fairlead.testing` runs items of queues in PostgreSQL, too."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from fairlead import App, BadArgument, Job, PermanentError, Retry, StoreUnavailable
from fairlead.testing import ManualClock, drain
from tests.postgresql_server import TestedPostgres
from tests.zones.postgresql.database import Database


@pytest.fixture(scope="module")
def shop(postgresql: TestedPostgres) -> Iterator[Database]:
    """A database with queues, and a table of a user's own."""
    made = Database(postgresql, "drained")
    made.prepare()
    with made.connect() as connection:
        connection.execute("CREATE TABLE sent (id int PRIMARY KEY)")
    yield made
    made.close()


@pytest.fixture
def database(shop: Database) -> Database:
    """The same, without items and mails."""
    shop.empty()
    with shop.connect() as connection:
        connection.execute("DELETE FROM sent")
    return shop


@pytest.fixture
def app(database: Database) -> Iterator[App]:
    """An application whose data is there."""
    made = App("memory:", clock=ManualClock(), external={"pg": database.dsn})
    yield made
    made.close()


def enqueue(app: App, database: Database, kind: str, *payloads: object, **options: Any) -> None:
    with database.connect() as connection, connection.transaction():
        for payload in payloads:
            app.tenant("shop/alice").enqueue(kind, payload, within=connection, **options)


def left(database: Database) -> int:
    """Return how many items there are."""
    with database.connect() as connection:
        (count,) = connection.execute("SELECT count(*) FROM fairlead.items").fetchone()
        return int(count)


def test_items_of_a_users_transaction_run(app: App, database: Database) -> None:
    seen: list[object] = []
    app.handler("receipt")(lambda job: seen.append(job.payload))
    enqueue(app, database, "receipt", 1, 2, 3)
    assert drain(app).completed == {"receipt": 3}
    assert sorted(map(str, seen)) == ["1", "2", "3"]
    assert drain(app).runs == 0
    assert left(database) == 0


def test_what_sql_enqueues_runs(app: App, database: Database) -> None:
    app.handler("invoice")(lambda job: None)
    with database.connect() as connection:
        connection.execute("SELECT fairlead.enqueue('shop', 'bob', 'invoice', '{\"order\": 7}')")
    assert drain(app).completed == {"invoice": 1}


def test_a_handler_in_sql_commits_with_its_item_and_what_it_enqueues_runs(app: App, database: Database) -> None:
    shipped: list[object] = []

    @app.handler("mail", transactional=True, store="pg")
    def mail(job: Job, connection: Any) -> None:
        connection.execute("INSERT INTO sent VALUES (%s)", [job.payload])
        app.tenant(job.tenant).enqueue("ship", job.payload, within=connection)

    app.handler("ship")(lambda job: shipped.append(job.payload))
    enqueue(app, database, "mail", 7)
    assert drain(app).completed == {"mail": 1, "ship": 1}
    assert shipped == [7]
    with database.connect() as connection:
        assert connection.execute("SELECT id FROM sent").fetchall() == [(7,)]


def test_an_error_comes_out_and_its_item_is_retried_or_a_dead_letter(app: App, database: Database) -> None:
    @app.handler("broken", retry=Retry(attempts=2, backoff=600))
    def broken(job: Job) -> None:
        raise ValueError("no address") if job.payload == "again" else PermanentError("never")

    enqueue(app, database, "broken", "again")
    with pytest.raises(ValueError, match="no address"):
        drain(app)
    enqueue(app, database, "broken", "never")
    drained = drain(app, raise_errors=False)
    assert (drained.retried, drained.dead_lettered) == ({}, {"broken": 1}), "the other one is due in ten minutes"


def test_a_delayed_item_stays_however_far_the_clock_of_the_test_goes(app: App, database: Database) -> None:
    app.handler("later")(lambda job: None)
    enqueue(app, database, "later", 1, delay=timedelta(hours=1))
    assert drain(app, within=timedelta(minutes=5)).runs == 0
    assert left(database) == 1


def test_items_of_a_limited_kind_and_of_kinds_without_a_handler(app: App, database: Database) -> None:
    app.handler("limited")(lambda job: None)
    app.control.limit_kind("limited", max_running=1)
    enqueue(app, database, "limited", 1, 2)
    enqueue(app, database, "unknown", 3)
    assert drain(app).completed == {"limited": 2}
    assert left(database) == 1


def test_a_store_that_does_not_answer_is_said_and_other_queues_are_drained() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    away = App("memory:", clock=ManualClock(), external={"pg": f"postgresql://127.0.0.1:{port}/none"})
    away.handler("receipt")(lambda job: None)
    away.tenant("shop/alice").enqueue("receipt")
    with pytest.raises(StoreUnavailable):
        drain(away)
    drained = drain(away, raise_errors=False)
    assert drained.completed == {"receipt": 1}
    assert [type(error) for error in drained.errors] == [StoreUnavailable]
    away.close()


def test_a_periodic_item_lies_in_no_store(app: App) -> None:
    with pytest.raises(BadArgument, match="a tick lies in a shard"):
        app.every(60, transactional=True, store="pg")(lambda job, connection: None)
