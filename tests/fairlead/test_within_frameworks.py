"""Enqueuing within transactions of SQLAlchemy and of Django, over psycopg 3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead import App
from tests.postgresql_server import TestedPostgres
from tests.zones.postgresql.database import Database


@pytest.fixture(scope="module")
def database(postgresql: TestedPostgres) -> Iterator[Database]:
    """A database with queues."""
    made = Database(postgresql, "frameworks")
    made.prepare()
    yield made
    made.close()


@pytest.fixture
def app(database: Database, tmp_path: Path) -> Iterator[App]:
    """An application whose data is there."""
    database.empty()
    made = App(f"embedded:{tmp_path / 'data'}", external={"pg": database.dsn})
    yield made
    made.close()


def enqueued(database: Database) -> list[int]:
    """Return the orders whose items are committed."""
    with database.connect() as connection:
        rows = connection.execute("SELECT given FROM fairlead.items ORDER BY given").fetchall()
    return [int(given[1:]) for (given,) in rows]


def test_a_session_of_sqlalchemy(app: App, database: Database) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    orm = pytest.importorskip("sqlalchemy.orm")
    engine = sqlalchemy.create_engine(database.dsn.replace("postgresql://", "postgresql+psycopg://"))
    alice = app.tenant("shop", "alice")
    with orm.Session(engine) as session, session.begin():
        alice.enqueue("receipt", item_id="1", within=session)
    with orm.Session(engine) as session:
        alice.enqueue("receipt", item_id="2", within=session)
        session.rollback()
    with engine.begin() as connection:
        alice.enqueue("receipt", item_id="3", within=connection)
    engine.dispose()
    assert enqueued(database) == [1, 3]


def test_a_connection_with_rows_as_dicts(app: App, database: Database) -> None:
    from psycopg.rows import dict_row

    with database.connect(row_factory=dict_row) as connection, connection.transaction():
        app.tenant("shop", "alice").enqueue("receipt", item_id="1", within=connection)
    assert enqueued(database) == [1]


def test_a_connection_of_django(app: App, database: Database) -> None:
    connection = connection_of_django(database)
    alice = app.tenant("shop", "alice")
    transaction = pytest.importorskip("django.db.transaction")
    with transaction.Atomic(using=connection.alias, savepoint=True, durable=False):
        alice.enqueue("receipt", item_id="1", within=connection)
    with pytest.raises(KeyError), transaction.Atomic(using=connection.alias, savepoint=True, durable=False):
        alice.enqueue("receipt", item_id="2", within=connection)
        raise KeyError
    connection.close()
    assert enqueued(database) == [1]


def connection_of_django(database: Database) -> Any:
    """Return a connection as Django's `connection` is."""
    settings = pytest.importorskip("django.conf").settings
    if not settings.configured:
        settings.configure()
    connections = pytest.importorskip("django.db").connections
    from psycopg.conninfo import conninfo_to_dict

    named = conninfo_to_dict(database.dsn)
    connections.settings["shop"] = {
        **connections.configure_settings({"default": {}})["default"],
        "ENGINE": "django.db.backends.postgresql",
        "NAME": named["dbname"],
        "USER": named["user"],
        "HOST": named["host"],
        "PORT": str(named["port"]),
    }
    return connections["shop"]
