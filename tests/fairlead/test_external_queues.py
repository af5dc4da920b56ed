"""Queues in PostgreSQL, from a user's transaction to the end of the handler, with a consumer in threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fairlead
from fairlead import App, BadArgument
from fairlead.zones.queue.items import EnqueueStatus
from tests.fairlead.live_consumers import consumer, eventually
from tests.postgresql_server import TestedPostgres
from tests.zones.postgresql.database import Database


@pytest.fixture(scope="module")
def shop(postgresql: TestedPostgres) -> Iterator[Database]:
    """A database with queues, and a table of a user's own."""
    made = Database(postgresql, "queues")
    made.prepare()
    with made.connect() as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    yield made
    made.close()


@pytest.fixture
def database(shop: Database) -> Database:
    """The same, without items and orders."""
    shop.empty()
    with shop.connect() as connection:
        connection.execute("DELETE FROM orders")
    return shop


@pytest.fixture
def app(database: Database, tmp_path: Path) -> Iterator[App]:
    """An application whose data is there."""
    made = App(f"embedded:{tmp_path / 'data'}", external={"pg": database.dsn})
    yield made
    made.close()


def done_by(app: App, kind: str = "receipt", **options: Any) -> list[Any]:
    """Register a handler, and return the list to which it adds the payload, the tenant and the attempt of each job."""
    done: list[Any] = []

    @app.handler(kind, **options)
    def receipt(job: fairlead.Job) -> None:
        done.append((job.payload, str(job.tenant), job.attempt))

    return done


def test_the_order_and_its_receipt_are_there_together_or_not_at_all(app: App, database: Database) -> None:
    done = done_by(app)
    with consumer(app):
        for order, fails in ((1, False), (2, True), (3, False)):
            with database.connect() as connection:
                try:
                    with connection.transaction():
                        connection.execute("INSERT INTO orders VALUES (%s)", [order])
                        app.tenant("shop", "alice").enqueue("receipt", {"order": order}, within=connection)
                        if fails:
                            raise KeyError("the request fails")
                except KeyError:
                    pass
        eventually(lambda: len(done) == 2)
    assert sorted(payload["order"] for payload, *_ in done) == [1, 3]
    with database.connect() as connection:
        assert connection.execute("SELECT id FROM orders ORDER BY 1").fetchall() == [(1,), (3,)]
        eventually(lambda: connection.execute("SELECT count(*) FROM fairlead.items").fetchone() == (0,))


def test_what_another_language_enqueues_by_sql_runs_here(app: App, database: Database) -> None:
    done = done_by(app)
    with consumer(app), database.connect() as connection:
        connection.execute("""SELECT fairlead.enqueue('shop', 'bob', 'receipt', '{"order": 7}')""")
        eventually(lambda: done == [({"order": 7}, "shop/bob", 1)])


def test_what_was_enqueued_while_no_consumer_ran_is_found(app: App, database: Database) -> None:
    done = done_by(app)
    with database.connect() as connection:
        for number in range(50):
            connection.execute("SELECT fairlead.enqueue('shop', %s, 'receipt')", [f"t{number}"])
    with consumer(app):
        eventually(lambda: len(done) == 50)


def test_a_second_consumer_goes_on_where_the_first_has_stopped(app: App, database: Database) -> None:
    done = done_by(app)
    for number in range(2):
        with consumer(app), database.connect() as connection:
            connection.execute("SELECT fairlead.enqueue('shop', 'alice', 'receipt')")
            eventually(lambda number=number: len(done) == number + 1)  # type: ignore[misc]


def test_a_failed_item_is_tried_again_and_then_is_a_dead_letter(app: App, database: Database) -> None:
    attempts: list[int] = []

    @app.handler("fails", retry=fairlead.Retry(attempts=2, backoff=0.01))
    def fails(job: fairlead.Job) -> None:
        attempts.append(job.attempt)
        raise ValueError("no")

    with consumer(app), database.connect() as connection:
        connection.execute("SELECT fairlead.enqueue('shop', 'alice', 'fails')")
        eventually(lambda: attempts == [1, 2])
        eventually(lambda: connection.execute("SELECT state FROM fairlead.items").fetchall() == [(2,)])


def rings(database: Database) -> bool:
    with database.connect() as connection:
        return bool(connection.execute("SELECT rings FROM fairlead.doorbell").fetchone()[0])


def test_the_doorbell_is_off_once_the_last_consumer_has_stopped(app: App, database: Database) -> None:
    """It makes the commits of all users go one by one."""
    with consumer(app):
        eventually(lambda: rings(database))
    eventually(lambda: not rings(database))


def test_a_kept_id_is_free_and_its_row_gone_once_its_time_is_over(app: App, database: Database) -> None:
    done = done_by(app)
    with consumer(app), database.connect() as connection:
        connection.execute(
            "SELECT fairlead.enqueue('shop', 'alice', 'receipt', item_id => 'order 7', unique_for_s => 0.5)"
        )
        eventually(lambda: len(done) == 1)
        eventually(lambda: connection.execute("SELECT count(*) FROM fairlead.items").fetchone() == (0,))


def test_a_long_job_keeps_its_lease(app: App, database: Database) -> None:
    app.configure(app.load_config({"consumer.lease_ms": 500}))
    done: list[int] = []
    goes_on = threading.Event()

    @app.handler("long")
    def long(job: fairlead.Job) -> None:
        goes_on.wait(30)
        done.append(job.attempt)

    with consumer(app), database.connect() as connection:
        connection.execute("SELECT fairlead.enqueue('shop', 'alice', 'long')")
        leased_until = "SELECT max(leased_until_us) FROM fairlead.items"
        eventually(lambda: connection.execute("SELECT max(leases) FROM fairlead.items").fetchone() == (1,))
        (first,) = connection.execute(leased_until).fetchone()
        eventually(lambda: connection.execute(leased_until).fetchone()[0] > first + 1_000_000)
        goes_on.set()
        eventually(lambda: done == [1])


def test_a_given_id_is_enqueued_once(app: App, database: Database) -> None:
    alice = app.tenant("shop", "alice")
    with database.connect() as connection, connection.transaction():
        first = alice.enqueue("receipt", item_id="order 7", within=connection)
        second = alice.enqueue("receipt", item_id="order 7", within=connection)
    assert (first.status, second.status) == (EnqueueStatus.ENQUEUED, EnqueueStatus.PRESENT)
    assert first.item_id == second.item_id


def test_a_connection_that_commits_each_statement_is_refused(app: App, database: Database) -> None:
    from fairlead.zones.postgresql.errors import NoTransaction

    alice = app.tenant("shop", "alice")
    with database.connect() as connection, pytest.raises(NoTransaction, match="open a transaction"):
        alice.enqueue("receipt", within=connection)


def test_a_failed_transaction_is_refused(app: App, database: Database) -> None:
    import psycopg

    from fairlead.zones.postgresql.errors import NoTransaction

    with database.connect(autocommit=False) as connection:
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT 1 / 0")
        with pytest.raises(NoTransaction, match="has failed"):
            app.tenant("shop", "alice").enqueue("receipt", within=connection)


def test_a_connection_to_another_database_is_refused(app: App, postgresql: TestedPostgres, database: Database) -> None:
    from fairlead.zones.postgresql.errors import ForeignDatabase, SchemaMissing

    other = Database(postgresql, "other")
    alice = app.tenant("shop", "alice")
    with other.connect(autocommit=False) as connection, pytest.raises(SchemaMissing):
        alice.enqueue("receipt", within=connection)
    other.prepare()
    with other.connect(autocommit=False) as connection, pytest.raises(ForeignDatabase):
        alice.enqueue("receipt", within=connection)
    other.close()


@pytest.mark.parametrize("given", ["a dsn", 7, object()])
def test_what_is_no_connection_is_refused(app: App, database: Database, given: Any) -> None:
    with pytest.raises(BadArgument, match="psycopg"):
        app.tenant("shop", "alice").enqueue("receipt", within=given)


def test_a_consumer_without_its_database_serves_its_shards(tmp_path: Path, postgresql: TestedPostgres) -> None:
    app = App(f"embedded:{tmp_path / 'data'}", external={"pg": "postgresql://127.0.0.1:1/none"})
    done = done_by(app)
    with consumer(app):
        for number in range(20):
            app.tenant("shop", "alice").enqueue("receipt", number)
        eventually(lambda: len(done) == 20)
    app.close()


# --- Handlers in SQL ---


def test_the_effects_of_a_handler_in_sql_and_its_completion_are_one_transaction(app: App, database: Database) -> None:
    attempts: list[int] = []

    @app.handler("receipt", transactional=True, store="pg", retry=fairlead.Retry(backoff=0.01))
    def receipt(job: fairlead.Job, connection: Any) -> None:
        connection.execute("INSERT INTO orders VALUES (%s)", [job.payload["order"] + 100 * job.attempt])
        attempts.append(job.attempt)
        if job.attempt == 1:
            raise ValueError("no")

    with consumer(app), database.connect() as connection:
        connection.execute("""SELECT fairlead.enqueue('shop', 'alice', 'receipt', '{"order": 7}')""")
        eventually(lambda: connection.execute("SELECT count(*) FROM fairlead.items").fetchone() == (0,))
        assert connection.execute("SELECT id FROM orders").fetchall() == [(207,)]
    assert attempts == [1, 2]


def test_a_handler_in_sql_that_runs_longer_than_its_lease_keeps_its_item(app: App, database: Database) -> None:
    app.configure(app.load_config({"consumer.lease_ms": 500}))
    attempts: list[int] = []

    @app.handler("receipt", transactional=True, store="pg")
    def receipt(job: fairlead.Job, connection: Any) -> None:
        attempts.append(job.attempt)
        connection.execute("INSERT INTO orders VALUES (1)")
        connection.execute("SELECT pg_sleep(1.5)")

    with consumer(app), database.connect() as connection:
        connection.execute("SELECT fairlead.enqueue('shop', 'alice', 'receipt')")
        eventually(lambda: connection.execute("SELECT count(*) FROM orders").fetchone() == (1,))
    assert attempts == [1]


def test_a_handler_in_sql_whose_connection_is_cut_runs_again_and_its_effects_are_there_once(
    app: App, database: Database
) -> None:
    attempts: list[int] = []

    @app.handler("receipt", transactional=True, store="pg")
    def receipt(job: fairlead.Job, connection: Any) -> None:
        connection.execute("INSERT INTO orders VALUES (1)")
        attempts.append(job.attempt)
        if len(attempts) == 1:
            connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    with consumer(app), database.connect() as connection:
        connection.execute("SELECT fairlead.enqueue('shop', 'alice', 'receipt')")
        eventually(lambda: connection.execute("SELECT count(*) FROM fairlead.items").fetchone() == (0,))
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == (1,)
    assert attempts == [1, 1]


def test_an_item_of_a_shard_does_not_run_in_sql(app: App, database: Database) -> None:
    @app.handler("receipt", transactional=True, store="pg")
    def receipt(job: fairlead.Job, connection: Any) -> None:
        raise AssertionError

    alice = app.tenant("shop", "alice")
    with consumer(app):
        handle = alice.enqueue("receipt")
        eventually(lambda: handle.explain().cause is fairlead.Cause.DEAD_LETTER)


def test_a_store_without_a_transaction_is_refused(app: App) -> None:
    with pytest.raises(BadArgument, match="transactional"):
        app.handler("receipt", store="pg")(lambda job: None)


def test_what_commits_in_the_tenants_shard_does_not_run_for_items_of_a_store(app: App, database: Database) -> None:
    """Another program enqueues by SQL, and knows of no handlers. Before, such an item ran again and again."""

    @app.workflow("checkout")
    def checkout(wf: Any) -> None:
        raise AssertionError

    @app.handler("charge", transactional=True)
    def charge(job: fairlead.Job, tr: Any) -> None:
        raise AssertionError

    @app.handler("receipt")
    def receipt(job: fairlead.Job) -> None:
        job.transact(job.complete_in)

    with consumer(app), database.connect() as connection:
        for kind in ("checkout", "charge", "receipt"):
            connection.execute("SELECT fairlead.enqueue('shop', 'alice', %s)", [kind])
        alice = app.tenant("shop", "alice").external("pg")
        eventually(lambda: len(alice.dead_letters()) == 3)
    assert {each.error.partition(":")[0] for each in alice.dead_letters()} == {"WrongStore"}


def test_a_job_names_its_zone_and_its_store(app: App, database: Database) -> None:
    places: list[tuple[str, str | None]] = []

    @app.handler("receipt")
    def receipt(job: fairlead.Job) -> None:
        places.append((job.zone, job.store))

    alice = app.tenant("shop", "alice")
    with consumer(app):
        alice.enqueue("receipt", zone="slow")
        alice.external("pg").enqueue("receipt", zone="slow")
        eventually(lambda: len(places) == 2)
    assert sorted(places, key=str) == [("slow", "pg"), ("slow", None)]
