"""A database with queues for all tests of a process, and one of its own for a test that changes the schema."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.postgresql_server import TestedPostgres
from tests.zones.postgresql.database import Database

_numbers = count()


@pytest.fixture
def empty_database(postgresql: TestedPostgres) -> Iterator[Database]:
    """A database without a schema for queues."""
    made = Database(postgresql, f"test_{next(_numbers)}")
    yield made
    made.close()


@pytest.fixture(scope="session")
def prepared(postgresql: TestedPostgres) -> Iterator[Database]:
    """A database that holds queues."""
    made = Database(postgresql, f"test_{next(_numbers)}")
    made.prepare()
    yield made
    made.close()


@pytest.fixture
def database(prepared: Database) -> Database:
    """A database that holds queues without items."""
    prepared.empty()
    return prepared


@pytest.fixture
def connection(database: Database) -> Iterator[Any]:
    """A user's connection, with autocommit."""
    with database.connect() as opened:
        yield opened
