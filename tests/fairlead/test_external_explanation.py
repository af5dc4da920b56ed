"""Why an item in PostgreSQL is not running: by `explain` and `fairlead why`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import fairlead
from fairlead import App, Cause, Explanation
from fairlead.actors.execution import status_reporting
from fairlead.zones.external.names import pointer_zone
from fairlead.zones.reporting import worker_status
from fairlead.zones.reporting.worker_status import RunningItem, WorkerStatus
from tests.fairlead.live_consumers import Gate, consumer, until
from tests.fairlead.shell import run
from tests.postgresql_server import TestedPostgres
from tests.zones.postgresql.database import Database


@pytest.fixture(scope="module")
def shop(postgresql: TestedPostgres) -> Iterator[Database]:
    """A database with queues."""
    made = Database(postgresql, "explained")
    made.prepare()
    yield made
    made.close()


@pytest.fixture
def database(shop: Database) -> Database:
    """The same, without items."""
    shop.empty()
    return shop


@pytest.fixture
def app(database: Database, tmp_path: Path) -> Iterator[App]:
    """An application whose queues are there."""
    made = App(f"embedded:{tmp_path / 'data'}", external={"pg": database.dsn})
    yield made
    made.close()


def enqueue(app: App, database: Database, kind: str = "receipt", **options: object) -> bytes:
    """Enqueue one item of alice, named "order 7"; return its id."""
    with database.connect() as connection, connection.transaction():
        alice = app.tenant("shop", "alice")
        return alice.enqueue(kind, item_id="order 7", within=connection, **options).item_id  # type: ignore[arg-type]


def why(app: App) -> Explanation:
    """Return what the application says of alice's item."""
    return app.tenant("shop", "alice").explain("order 7")


def test_an_item_is_explained_by_its_name_and_without_its_tenant_by_its_id(app: App, database: Database) -> None:
    item_id = enqueue(app, database)
    by_name, by_id = why(app), app.explain(item_id)
    assert (by_name.item_id, by_name.store, by_name.zone, by_name.kind) == (item_id, "pg", "queue", "receipt")
    assert by_id == by_name
    assert app.explain("order 7").cause is Cause.NEVER_SEEN
    assert app.tenant("shop", "bob").explain(item_id).cause is Cause.NEVER_SEEN


def test_without_a_consumer_nobody_runs_it(app: App, database: Database) -> None:
    enqueue(app, database)
    assert why(app).cause is Cause.NO_CONSUMER


def test_a_fleet_that_does_not_know_the_store_does_not_read_it(app: App, database: Database, tmp_path: Path) -> None:
    other = App(f"embedded:{tmp_path / 'data'}")
    other.handler("receipt")(Gate())
    with consumer(other):
        enqueue(app, database)
        said = until(Cause.READER_BEHIND, lambda: why(app))
    other.close()
    assert said.sentence.startswith("no consumer reads pg now: is one running, with pg in its configuration?")


def test_a_delayed_item_says_when_it_vests(app: App, database: Database) -> None:
    enqueue(app, database, delay=3600)
    said = why(app)
    assert (said.cause, said.sentence) == (Cause.DELAYED, "it vests in 60 min")


def test_an_item_that_no_worker_has_reported_yet_says_when_another_consumer_takes_over(
    app: App, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_reporting, "STATUS_US", 3_600_000_000)
    gate = Gate()
    app.handler("receipt")(gate)
    with consumer(app):
        enqueue(app, database)
        said = until(Cause.RUNNING, lambda: why(app))
        assert said.sentence.startswith("a consumer has leased it; if it is gone, another one takes over in ")
        gate.opened.set()
        ended = until(Cause.COMPLETED, lambda: why(app))
    assert (ended.store, ended.zone, ended.kind) == ("pg", "queue", "receipt")


def test_a_paused_kind_a_paused_tenant_and_an_unknown_kind_are_named(app: App, database: Database) -> None:
    app.handler("receipt")(Gate())
    with consumer(app):
        app.control.pause_kind("receipt")
        enqueue(app, database)
        assert "fairlead resume --kind receipt" in until(Cause.KIND_PAUSED, lambda: why(app)).sentence
        app.control.pause_tenant("shop/alice")
        app.control.resume_kind("receipt")
        assert "fairlead resume --tenant shop/alice" in until(Cause.TENANT_PAUSED, lambda: why(app)).sentence
        app.control.resume_tenant("shop/alice")
        database.empty()
        enqueue(app, database, kind="unknown")
        assert "has no handler for unknown" in until(Cause.KIND_UNKNOWN, lambda: why(app)).sentence


def test_a_failed_item_says_its_error_and_then_that_it_is_a_dead_letter(app: App, database: Database) -> None:
    @app.handler("receipt", retry=fairlead.Retry(attempts=2, backoff=1))
    def receipt(job: fairlead.Job) -> None:
        raise ValueError("no printer")

    with consumer(app):
        enqueue(app, database)
        assert "no printer" in until(Cause.RETRYING, lambda: why(app)).sentence
        dead = until(Cause.DEAD_LETTER, lambda: why(app))
    assert dead.attempts.raised == 2
    assert "no printer" in dead.attempts.last_traceback


def test_a_row_that_a_user_has_locked_is_said_to_be(app: App, database: Database) -> None:
    app.handler("receipt")(Gate())
    with consumer(app), database.connect() as connection, connection.transaction():
        item_id = enqueue(app, database, delay=0.5)
        connection.execute("SELECT id FROM fairlead.items WHERE id = %s FOR UPDATE", [item_id.hex()])
        said = until(Cause.ROW_LOCKED, lambda: why(app))
    assert said.sentence == "another transaction in pg has locked its row, such as one that cancels it"


def test_an_open_transaction_of_the_handler_is_a_run_though_its_lease_has_ended(app: App, database: Database) -> None:
    """Whoever runs the handler has locked the row, so nobody can extend the lease, and nobody else takes it over."""
    app.handler("receipt")(Gate())
    item_id = enqueue(app, database)
    assert database.lease(rooms={"receipt": 1}, lease_us=1)
    with database.connect() as handler, handler.transaction():
        handler.execute("SELECT id FROM fairlead.items WHERE id = %s FOR UPDATE", [item_id.hex()])
        with consumer(app):
            said = until(Cause.RUNNING, lambda: why(app))
    assert said.sentence.startswith("the transaction of its handler is open")


@pytest.mark.parametrize(
    ("attempt", "said"),
    [(1, "a consumer has leased it; "), (2, "a consumer that drains, or is gone, has had it for ")],
)
def test_a_report_of_another_attempt_says_nothing_of_this_one(
    app: App, database: Database, attempt: int, said: str
) -> None:
    """The report of a worker that died is there for some seconds."""
    item_id = enqueue(app, database)
    for lease_us in (1, 60_000_000):
        assert database.lease(rooms={"receipt": 1}, lease_us=lease_us)
    now_us = app.clock.now_us()
    reported = RunningItem("shop", "alice", pointer_zone("pg", "queue"), item_id, "receipt", attempt, now_us, now_us)
    status = WorkerStatus(b"consumer", "there", 7, 2, 1, now_us, [reported])
    app.shards["main"].transact(lambda tried: worker_status.write(tried.tr, b"worker", status))
    assert why(app).sentence.startswith(said)


def test_a_store_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    app = App(f"embedded:{tmp_path / 'data'}", external={"pg": "postgresql://127.0.0.1:1/none"})
    said = why(app)
    app.close()
    assert said.cause is Cause.STORE_AWAY
    assert said.sentence.startswith("external store pg cannot be read: ")


def test_the_command_says_in_which_store_it_is(app: App, database: Database, tmp_path: Path) -> None:
    enqueue(app, database, delay=3600)
    assert why(app).cause is Cause.DELAYED
    app.close()
    settings = tmp_path / "fairlead.toml"
    settings.write_text(f'shards.main = "embedded:{tmp_path}/data"\nexternal.pg = "{database.dsn}"\n')
    answer = run("why", "order 7", "--tenant", "shop/alice", "--config", str(settings))
    assert answer.out.splitlines()[0] == "delayed: it vests in 60 min"
    assert "of shop/alice, zone queue, in pg, its pointer on shard main" in answer.out
