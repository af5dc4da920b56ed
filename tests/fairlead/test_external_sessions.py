"""Workers that claim items in PostgreSQL, and their sessions: real consumers, one in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import fairlead
from fairlead import App
from tests.fairlead.live_consumers import consumer, eventually
from tests.fairlead.shell import ROOT
from tests.postgresql_server import TestedPostgres
from tests.zones.postgresql.database import Database

LEASE_MS = 500  # A claim follows soon, of ten minutes.

DOOMED = """
import sys, threading
from fairlead import App, fleet

app = App(f"embedded:{sys.argv[1]}", external={"pg": sys.argv[2]})
app.configure(app.load_config({"consumer.lease_ms": int(sys.argv[3])}))
app.handler("long")(lambda job: threading.Event().wait())
fleet.start(app, "tests:app", runtime="threads")
threading.Event().wait()
"""


@pytest.fixture(scope="module")
def database(postgresql: TestedPostgres) -> Iterator[Database]:
    made = Database(postgresql, "sessions")
    made.prepare()
    yield made
    made.close()


@contextmanager
def application(place: Path, database: Database) -> Iterator[App]:
    made = App(f"embedded:{place}", external={"pg": database.dsn})
    made.configure(made.load_config({"consumer.lease_ms": LEASE_MS}))
    yield made
    made.close()


@contextmanager
def doomed(place: Path, database: Database) -> Iterator[subprocess.Popen[bytes]]:
    """A consumer in a process of its own, whose handlers never end; killed at the end."""
    typed = [sys.executable, "-c", DOOMED, str(place), database.dsn, str(LEASE_MS)]
    with subprocess.Popen(typed, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        try:
            yield process
        finally:
            process.kill()


def test_what_a_killed_process_claims_runs_again_within_seconds_and_not_after_its_claim(
    database: Database, tmp_path: Path
) -> None:
    place, ran = tmp_path / "data", threading.Event()
    with application(place, database) as without_handler, consumer(without_handler), database.connect() as connection:
        connection.execute("SELECT fairlead.enqueue('shop', 'alice', 'long')")
        left = "SELECT leased_until_us - fairlead.now_us() FROM fairlead.items WHERE session IS NOT NULL"
        with doomed(place, database):
            eventually(lambda: connection.execute(left).fetchone() is not None)
        assert connection.execute(left).fetchone()[0] > 500_000_000

        with application(place, database) as other:

            @other.handler("long")
            def long(job: fairlead.Job) -> None:
                ran.set()

            with consumer(other):
                eventually(ran.is_set)


def test_a_claim_is_kept_by_heartbeats_and_ends_with_its_worker(database: Database, tmp_path: Path) -> None:
    goes_on = threading.Event()
    attempts: list[int] = []
    with application(tmp_path / "data", database) as app, database.connect() as connection:

        @app.handler("long")
        def long(job: fairlead.Job) -> None:
            attempts.append(job.attempt)
            goes_on.wait(30)

        connection.execute("SELECT fairlead.enqueue('shop', 'bob', 'long')")
        beats: Any = (
            "SELECT s.beat FROM fairlead.sessions s JOIN fairlead.items i ON i.session = s.id WHERE tenant = 'bob'"
        )
        with consumer(app):
            eventually(lambda: (connection.execute(beats).fetchone() or (0,))[0] > 1)
            goes_on.set()
            eventually(lambda: connection.execute("SELECT FROM fairlead.items WHERE tenant = 'bob'").fetchone() is None)
        assert attempts == [1]
        assert connection.execute("SELECT count(*) FROM fairlead.sessions").fetchone() == (0,)
