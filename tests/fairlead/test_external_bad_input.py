"""A fleet whose PostgreSQL is not as it must be: it says what to do, serves its shards meanwhile, and loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead import App
from tests.fairlead.live_consumers import consumer, eventually
from tests.postgresql_server import TestedPostgres
from tests.zones.postgresql.database import Database

ENQUEUE = "SELECT fairlead.enqueue('shop', 'bob', 'receipt', '1')"


@pytest.fixture(scope="module")
def database(postgresql: TestedPostgres) -> Iterator[Database]:
    """A database with queues, which every test leaves empty and whole."""
    made = Database(postgresql, "bad_input")
    made.prepare()
    yield made
    made.close()


@contextmanager
def fleet_of(place: Path, dsn: str) -> Iterator[tuple[App, list[Any]]]:
    """Run an application; yield it, and the payloads of what has run."""
    app, ran = App(f"embedded:{place / 'data'}", external={"pg": dsn}), list[Any]()
    app.configure(app.load_config({"consumer.lease_ms": 500}))
    app.handler("receipt")(lambda job: ran.append(job.payload))
    with consumer(app):
        yield app, ran
    app.close()


def serves_its_shards(app: App, ran: list[Any]) -> None:
    """See that an item of a shard runs now."""
    app.tenant("shop", "alice").enqueue("receipt", -1)
    eventually(lambda: -1 in ran)


def is_empty(connection: Any) -> bool:
    """Return whether no item is left."""
    return bool(connection.execute("SELECT count(*) = 0 FROM fairlead.items").fetchone()[0])


def test_without_privileges_it_says_what_grants_them_and_runs_items_once_it_has_them(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from fairlead.zones.postgresql import schema

    with database.connect() as connection:
        connection.execute("CREATE ROLE late_fleet LOGIN")
        connection.execute(ENQUEUE)
        with fleet_of(tmp_path, database.dsn.replace("postgres@", "late_fleet@")) as (app, ran):
            eventually(lambda: "fairlead postgres grant --consumer ROLE" in caplog.text)
            serves_its_shards(app, ran)
            assert ran == [-1]
            schema.grant(connection, consumers=("late_fleet",))
            eventually(lambda: is_empty(connection))
    assert ran == [-1, 1]


def test_without_a_schema_it_says_what_makes_it_and_runs_items_once_it_is_there(
    postgresql: TestedPostgres, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    empty = Database(postgresql, "bad_input_empty")
    with fleet_of(tmp_path, empty.dsn) as (app, ran):
        eventually(lambda: "Run fairlead postgres init" in caplog.text)
        serves_its_shards(app, ran)
        empty.prepare()
        with empty.connect() as connection:
            connection.execute(ENQUEUE)
            eventually(lambda: is_empty(connection))
    assert ran == [-1, 1]


@pytest.mark.parametrize("function", ["arrivals", "dequeue", "complete"])
def test_without_a_function_it_says_what_makes_it_and_goes_on_when_it_is_there(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture, function: str
) -> None:
    with database.connect() as connection:
        connection.execute(ENQUEUE)
        connection.execute(f"ALTER FUNCTION fairlead.{function} RENAME TO away")
        with fleet_of(tmp_path, database.dsn) as (app, ran):
            eventually(lambda: "Prepare the database: `fairlead postgres init`, or `upgrade`" in caplog.text)
            serves_its_shards(app, ran)
            connection.execute(f"ALTER FUNCTION fairlead.away RENAME TO {function}")
            eventually(lambda: is_empty(connection))
    assert set(ran) == {-1, 1}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("/bad_input", "/nowhere"), 'database "nowhere" does not exist'),
        (("postgres@", "postgres:hush%zz@"), "the address of the database cannot be read"),
        (("postgres@", "postgres:hush/zz@"), "the address of the database cannot be read"),
    ],
)
def test_with_a_wrong_address_it_says_so_without_the_password(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture, change: tuple[str, str], said: str
) -> None:
    with fleet_of(tmp_path, database.dsn.replace(*change)) as (app, ran):
        eventually(lambda: said in caplog.text)
        serves_its_shards(app, ran)
    assert not any(each in caplog.text for each in ("hush", "zz"))
