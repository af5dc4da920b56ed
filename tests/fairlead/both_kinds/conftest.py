"""An application whose items lie in a shard, or in PostgreSQL, and the queues of one tenant there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead import App, Config, ConsumerSettings
from tests.fairlead.both_kinds.queues import Effects, EffectsInShard, EffectsInSQL, Queues
from tests.fairlead.live_consumers import Gate
from tests.postgresql_server import TestedPostgres
from tests.zones.postgresql.database import Database


@pytest.fixture(scope="session")
def database(postgresql: TestedPostgres) -> Iterator[Database]:
    """A database with queues, and a table of a user's own. One for a process, which may run other tests in between."""
    made = Database(postgresql, "both_kinds_of_queue")
    made.prepare()
    with made.connect() as connection:
        connection.execute("CREATE TABLE words (word text)")
    yield made
    made.close()


@pytest.fixture(params=[None, "pg"], ids=["shard", "postgresql"])
def store(request: pytest.FixtureRequest) -> str | None:
    """Where the items lie: in the external store of a name, or in the shard."""
    found: str | None = request.param
    return found


@pytest.fixture
def app(store: str | None, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    """An application with short leases; with a database if its items are to lie there."""
    external = {}
    if store is not None:
        database: Database = request.getfixturevalue("database")
        database.empty()
        external = {store: database.dsn}
    settings = ConsumerSettings(workers=1, managers=1, slots=2, lease_ms=2_000, drain_ms=100)
    made = App(config=Config(shards={"main": f"embedded:{tmp_path / 'data'}"}, external=external, consumer=settings))
    made.shards.on_store_created = lambda sentence: None
    yield made
    made.close()


@pytest.fixture
def alice(app: App, store: str | None) -> Queues:
    """The queues of one tenant."""
    return queues_of(app, "alice", store)


@pytest.fixture
def bob(app: App, store: str | None) -> Queues:
    """The queues of another one."""
    return queues_of(app, "bob", store)


def queues_of(app: App, user: str, store: str | None) -> Queues:
    """Return the queues of a user, in the shard or in a store."""
    tenant = app.tenant("shop", user)
    return tenant if store is None else tenant.external(store)


@pytest.fixture
def transactional(store: str | None) -> dict[str, Any]:
    """The options of a handler whose effects and end are one commit of the place where its items lie."""
    return {"transactional": True} if store is None else {"transactional": True, "store": store}


@pytest.fixture
def effects(app: App, store: str | None, request: pytest.FixtureRequest) -> Effects:
    """What transactional handlers have written."""
    if store is None:
        return EffectsInShard(app.tenant("shop", "alice"))
    database: Database = request.getfixturevalue("database")
    made = EffectsInSQL(database)
    made.clear()
    return made


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.opened.set()
