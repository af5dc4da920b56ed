"""An application on two shards in memory, with an external store on a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.workflows.postgresql.shop import Shop
from tests.zones.postgresql.conftest import database, prepared
from tests.zones.postgresql.database import Database

__all__ = ["database", "prepared"]


@pytest.fixture
def shop(database: Database) -> Iterator[Shop]:
    """An application, and a table for the effects of its steps."""
    made = Shop(database)
    yield made
    made.close()
