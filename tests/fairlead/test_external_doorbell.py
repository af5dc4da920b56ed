"""The doorbell of a real PostgreSQL: any client rings it, and a pooler in transaction mode swallows it."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.peers.round_context import RoundContext
from fairlead import App
from fairlead.cli.postgres import UNHEARD
from fairlead.external_checks import check_external
from tests import pgbouncer_server
from tests.fairlead.live_consumers import consumer, eventually
from tests.fairlead.shell import run
from tests.foundationdb_server import free_port
from tests.pgbouncer_server import PgBouncer
from tests.postgresql_server import TestedPostgres
from tests.zones.postgresql.database import Database


@pytest.fixture(scope="module")
def database(postgresql: TestedPostgres) -> Iterator[Database]:
    """A database with queues."""
    made = Database(postgresql, "rung")
    made.prepare()
    yield made
    made.close()


@pytest.fixture(scope="module")
def pooled_dsn(postgresql: TestedPostgres, database: Database) -> Iterator[str]:
    """The same database through a pooler in transaction mode."""
    if reason := pgbouncer_server.missing():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o711)
        pooler = PgBouncer(RoundContext(directory=Path(directory), port=free_port()), postgresql.context.port)
        pooler.start()
        try:
            yield f"{pooler.url.rpartition('/')[0]}/rung"
        finally:
            pooler.stop()


def psql(database: Database, sql: str) -> str:
    """Execute a statement as a program that knows nothing of Python."""
    program = shutil.which("psql")
    assert program is not None, "psql comes with PostgreSQL"
    command = [program, "-X", "-At", "-v", "ON_ERROR_STOP=1", "-c", sql, database.dsn]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def app_of(database: Database, tmp_path: Path, **options: Any) -> tuple[App, list[Any]]:
    """Return an application whose items lie in the database, and what its handler has run."""
    seen: list[Any] = []
    app = App(f"embedded:{tmp_path / 'data'}", external={"pg": {"dsn": database.dsn, **options}})
    app.handler("receipt")(lambda job: seen.append(job.payload))
    return app, seen


@pytest.fixture
def rings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often the doorbell rang in each wait of a reader for it."""
    from fairlead.zones.postgresql.item_store import ItemStore

    ended: list[int] = []
    wait = ItemStore.await_doorbell

    def noted(self: ItemStore, timeout_s: float) -> int:
        ended.append(wait(self, timeout_s))
        return ended[-1]

    monkeypatch.setattr(ItemStore, "await_doorbell", noted)
    return ended


def rings_in(database: Database) -> bool:
    return psql(database, "SELECT rings FROM fairlead.doorbell") == "t"


ENQUEUE = "SELECT status FROM fairlead.enqueue('shop', 'alice', 'receipt', '{\"order\": 7}')"


def test_an_enqueue_of_another_program_rings(database: Database, tmp_path: Path, rings: list[int]) -> None:
    app, seen = app_of(database, tmp_path)
    with consumer(app):
        eventually(lambda: len(rings) > 0)
        rings.clear()
        assert psql(database, ENQUEUE) == "enqueued"
        eventually(lambda: seen == [{"order": 7}] and any(rings))
    app.close()


def test_a_store_without_notifications_never_rings(database: Database, tmp_path: Path, rings: list[int]) -> None:
    app, seen = app_of(database, tmp_path, notify=False)
    with consumer(app):
        psql(database, ENQUEUE)
        eventually(lambda: seen == [{"order": 7}])
        assert not rings_in(database)
    assert rings == []
    app.close()


@pytest.mark.parametrize("rings", [True, False])
def test_an_enqueue_excludes_a_prepared_transaction_only_while_the_bell_is_on(database: Database, rings: bool) -> None:
    import psycopg

    with database.connect() as user:
        user.execute("UPDATE fairlead.doorbell SET rings = %s", [rings])
        user.execute("BEGIN")
        user.execute(ENQUEUE)
        if rings:
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="NOTIFY"):
                user.execute("PREPARE TRANSACTION 'rung'")
        else:
            user.execute("PREPARE TRANSACTION 'rung'")
            user.execute("ROLLBACK PREPARED 'rung'")
        user.rollback()
        user.execute("UPDATE fairlead.doorbell SET rings = false")


def test_a_bell_that_another_configuration_has_turned_on_is_a_finding(database: Database, tmp_path: Path) -> None:
    app, _ = app_of(database, tmp_path, notify=False)
    psql(database, "UPDATE fairlead.doorbell SET rings = true")
    report = check_external(app.shards, "pg", app.externals["pg"], repair=False, progress=lambda _: None)
    psql(database, "UPDATE fairlead.doorbell SET rings = false")
    assert "a consumer with another configuration reads the store" in "; ".join(each.what for each in report.findings)
    app.close()


def hears(dsn: str) -> bool:
    """Return whether a notification arrives."""
    from fairlead.zones.postgresql.connections import Connections, Listener

    connections = Connections(dsn, {})
    listener = Listener(connections)
    found = listener.hears()
    listener.close()
    connections.close()
    return found


def test_a_notification_of_another_connection_arrives(database: Database) -> None:
    assert hears(database.dsn)


def test_each_commit_that_rings_is_heard_once(database: Database) -> None:
    """So a reader knows of a flood in one queue, of which a look sees one queue."""
    from fairlead.zones.postgresql.connections import Listener

    listener = Listener(database.connections)
    listener.wait(0)
    heard = 0
    with database.connect() as user:
        for _ in range(300):
            user.execute("NOTIFY fairlead")
    while heard < 300:
        rings = listener.wait(30)
        assert rings
        heard += rings
    assert (heard, listener.wait(0)) == (300, 0)
    listener.close()


def test_none_arrives_through_a_pooler_in_transaction_mode(pooled_dsn: str) -> None:
    assert not hears(pooled_dsn)


def test_the_check_says_that_none_arrives_and_what_to_do(database: Database, pooled_dsn: str) -> None:
    """Before, it said that all was well."""
    direct, pooled = (run("postgres", "check", "--dsn", dsn) for dsn in (database.dsn, pooled_dsn))
    assert UNHEARD not in direct.out
    assert pooled.out.splitlines()[1:] == [UNHEARD]
    said = json.loads(run("postgres", "check", "--json", "--dsn", pooled_dsn).out)
    assert said["notifications"] is False
