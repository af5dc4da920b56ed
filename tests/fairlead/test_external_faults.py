"""Faults of a PostgreSQL that holds queues: nothing is lost, no effect in SQL is there twice, and shards are served."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

import fairlead
from fairlead import App
from fairlead import external_stores as stores
from tests import postgresql_server
from tests.fairlead.live_consumers import consumer, eventually
from tests.postgresql_server import TestedPostgres, standby
from tests.records.storage_model.cutting_proxy import Cut, CuttingProxy
from tests.zones.postgresql.database import Database

LEASE_MS = 500
SLOTS = 4  # In each of two workers.
STATEMENT_MS = 300  # Instead of two seconds.


@pytest.fixture(scope="module")
def server() -> Iterator[TestedPostgres]:
    """A server of this file's own, which tests let crash."""
    if reason := postgresql_server.missing():
        pytest.skip(reason)
    with postgresql_server.started() as running:
        yield running


@pytest.fixture(scope="module")
def shop(server: TestedPostgres) -> Database:
    made = Database(server, "queues")
    made.prepare()
    with made.connect() as connection:
        connection.execute("CREATE TABLE orders (number int)")
    return made


@pytest.fixture
def database(shop: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A database that holds queues without items, and a table of a user's own."""
    monkeypatch.setattr(stores, "STATEMENT_MS", STATEMENT_MS)
    shop.empty()
    with shop.connect() as connection:
        connection.execute("DELETE FROM orders")
    yield shop
    shop.close()


@contextmanager
def application(place: Path, dsn: str) -> Iterator[tuple[App, list[Any]]]:
    """Yield an application, and the numbers of the jobs that have run: a plain handler, and one in SQL."""
    app = App(f"embedded:{place / 'data'}", external={"pg": dsn})
    app.configure(app.load_config({"consumer.lease_ms": LEASE_MS, "consumer.slots": SLOTS}))
    ran: list[Any] = []

    @app.handler("plain")
    def plain(job: fairlead.Job) -> None:
        ran.append(job.payload)

    @app.handler("in SQL", transactional=True, store="pg")
    def in_sql(job: fairlead.Job, connection: Any) -> None:
        connection.execute("INSERT INTO orders VALUES (%s)", [job.payload])

    try:
        yield app, ran
    finally:
        app.close()


@pytest.fixture
def running(database: Database, tmp_path: Path) -> Iterator[tuple[App, list[Any]]]:
    with application(tmp_path, database.dsn) as made:
        yield made


def enqueue(database: Database, kind: str, *numbers: int, tenants: int = 3) -> None:
    with database.connect() as connection:
        for number in numbers:
            connection.execute(
                "SELECT fairlead.enqueue('shop', %s, %s, to_jsonb(%s::int))", [f"user {number % tenants}", kind, number]
            )


def effects(database: Database) -> list[int]:
    """Return what handlers in SQL have left."""
    with database.connect() as connection:
        return [number for (number,) in connection.execute("SELECT number FROM orders ORDER BY 1")]


def items(database: Database) -> int:
    with database.connect() as connection:
        (count,) = connection.execute("SELECT count(*) FROM fairlead.items").fetchone()
    return int(count)


def serves_its_shards(app: App, ran: list[Any], number: int) -> None:
    """See that an item of a shard runs now."""
    app.tenant("shop", "alice").enqueue("plain", number)
    eventually(lambda: number in ran)


def test_what_waits_runs_after_a_crash_of_the_server_and_shards_are_served_meanwhile(
    running: tuple[App, list[Any]], database: Database, server: TestedPostgres
) -> None:
    app, ran = running
    enqueue(database, "plain", *range(20))
    enqueue(database, "in SQL", *range(20))
    with consumer(app):
        eventually(lambda: len(ran) > 0)
        database.close()
        server.stop()
        serves_its_shards(app, ran, -1)
        server.start()
        enqueue(database, "plain", 20)
        enqueue(database, "in SQL", 20)
        eventually(lambda: items(database) == 0)
    assert set(ran) == {-1, *range(21)}
    assert effects(database) == list(range(21))


@pytest.mark.parametrize("cut", Cut)
def test_connections_that_are_cut_at_statements_lose_nothing(database: Database, tmp_path: Path, cut: Cut) -> None:
    """Before the server has got the statement; or after it has committed, and before it answers."""
    port = database.dsn.rpartition(":")[2].partition("/")[0]
    with CuttingProxy(int(port)) as proxy, application(tmp_path, database.dsn.replace(port, str(proxy.port))) as made:
        app, ran = made
        failed: list[int] = []

        @app.handler("fails once", retry=fairlead.Retry(backoff=0.01))
        def fail_once(job: fairlead.Job) -> None:
            failed.append(job.payload)
            if failed.count(job.payload) == 1:
                raise ValueError

        @app.handler("passes on", transactional=True, store="pg")
        def pass_on(job: fairlead.Job, connection: Any) -> None:
            app.tenant(job.tenant).enqueue("in SQL", job.payload + 100, within=connection)

        left = {
            f"fairlead.{name}(".encode()
            for name in ("dequeue", "outlook", "complete", "requeue", "arrivals", "put_one")
        }
        proxy.choose = lambda message: cut if cut_once(left, message) else None
        for kind in ("plain", "in SQL", "fails once", "passes on"):
            enqueue(database, kind, *range(5))
        with consumer(app):
            eventually(lambda: items(database) == 0)
        assert left == set()
        assert set(ran) == set(range(5))
        assert effects(database) == [*range(5), *range(100, 105)]
        assert all(failed.count(number) >= 2 for number in range(5))


def cut_once(left: set[bytes], message: bytes) -> bool:
    """Say whether a message calls a function that is left, and take it out."""
    called = {each for each in left if each in message}
    left -= called
    return bool(called)


def test_what_is_committed_after_a_promotion_runs_though_its_numbers_were_used_before(
    database: Database, server: TestedPostgres, tmp_path: Path
) -> None:
    """A standby is promoted that has not got the last commits: it gives the numbers of those transactions again."""
    with standby(server) as other, CuttingProxy(other.context.port) as promoted:
        both = database.dsn.replace("/queues", f",127.0.0.1:{promoted.port}/queues")
        after = f"{other.url.rpartition('/')[0]}/queues"
        with application(tmp_path, both) as (app, ran), consumer(app):
            enqueue(database, "plain", 1)
            eventually(lambda: ran == [1])
            stop_following(database, after)
            enqueue(database, "plain", *range(100, 200))
            eventually(lambda: len(ran) == 101)
            database.close()
            server.stop()
            try:
                promote(after)
                ask(after, "SELECT fairlead.enqueue('shop', 'bob', 'plain', '2')")
                eventually(lambda: 2 in ran)
            finally:
                server.start()


def stop_following(database: Database, standby_dsn: str) -> None:
    """Let a standby see what was committed by now, and nothing later."""
    with database.connect() as connection:
        (at,) = connection.execute("SELECT pg_current_wal_lsn()").fetchone()
    eventually(lambda: ask(standby_dsn, f"SELECT pg_last_wal_replay_lsn() >= '{at}'"))
    ask(standby_dsn, "ALTER SYSTEM SET primary_conninfo = ''")
    ask(standby_dsn, "SELECT pg_reload_conf()")
    eventually(lambda: ask(standby_dsn, "SELECT count(*) = 0 FROM pg_stat_wal_receiver"))


def promote(dsn: str) -> None:
    ask(dsn, "SELECT pg_promote()")
    eventually(lambda: not ask(dsn, "SELECT pg_is_in_recovery()"))


def ask(dsn: str, statement: str) -> Any:
    """Execute a statement; return its value, if it has one."""
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        found = connection.execute(statement)
        return None if found.description is None else found.fetchone()[0]


@contextmanager
def stepped_clock(database: Database) -> Iterator[Callable[[str], None]]:
    """Yield what sets the server's clock ahead by an interval; it is right again at the end."""

    def set_ahead(interval: str) -> None:
        with database.connect() as connection:
            connection.execute(f"""
                CREATE OR REPLACE FUNCTION fairlead.now_us() RETURNS bigint LANGUAGE sql VOLATILE
                SET search_path = pg_catalog, pg_temp
                RETURN (extract(epoch FROM clock_timestamp() + interval '{interval}') * 1000000)::bigint
            """)

    try:
        yield set_ahead
    finally:
        set_ahead("0")


@pytest.mark.parametrize("steps", [("1 hour", "0"), ("-1 hour", "0")])
def test_work_goes_on_when_the_servers_clock_steps(
    running: tuple[App, list[Any]], database: Database, steps: tuple[str, ...]
) -> None:
    """What was enqueued by a clock that is then set back vests by that clock. So all that was enqueued runs first."""
    app, ran = running
    numbers = iter(range(1_000))
    with stepped_clock(database) as set_ahead, consumer(app):
        for ahead in ("0", *steps):
            set_ahead(ahead)
            for _ in range(10):
                number = next(numbers)
                enqueue(database, "plain", number)
                enqueue(database, "in SQL", number)
            eventually(lambda: items(database) == 0)
    assert set(ran) == set(range(30))
    assert effects(database) == list(range(30))


def test_a_handler_in_sql_keeps_its_item_though_the_clock_says_that_its_lease_has_ended(
    running: tuple[App, list[Any]], database: Database
) -> None:
    app, _ = running
    goes_on, attempts = threading.Event(), []

    @app.handler("waits", transactional=True, store="pg")
    def wait(job: fairlead.Job, connection: Any) -> None:
        connection.execute("INSERT INTO orders VALUES (%s)", [job.payload])
        attempts.append(job.attempt)
        goes_on.wait(30)

    with stepped_clock(database) as set_ahead, consumer(app):
        enqueue(database, "waits", 0)
        eventually(lambda: attempts == [1])
        set_ahead("1 hour")
        with consumer(app):
            enqueue(database, "in SQL", 3)  # Of the same tenant: its queue is visited.
            eventually(lambda: effects(database) == [3])
            goes_on.set()
            eventually(lambda: items(database) == 0)
    assert attempts == [1]
    assert effects(database) == [0, 3]


def test_a_server_without_connections_to_give_delays_items_and_fails_none(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from fairlead.zones.postgresql import schema

    with database.connect() as connection:
        connection.execute("CREATE ROLE fleet LOGIN CONNECTION LIMIT 6")
        connection.execute("GRANT ALL ON orders TO fleet")
        schema.grant(connection, consumers=("fleet",))
    enqueue(database, "in SQL", *range(30))
    enqueue(database, "plain", *range(30))
    with application(tmp_path, database.dsn.replace("postgres@", "fleet@")) as (app, ran), consumer(app):
        eventually(lambda: items(database) == 0)
    assert "too many connections" in caplog.text
    assert effects(database) == list(range(30))
    assert set(ran) == set(range(30))


def test_statements_that_take_too_long_are_ended_and_tried_again_and_shards_are_served_meanwhile(
    running: tuple[App, list[Any]], database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    app, ran = running
    with database.connect(autocommit=False) as user:
        user.execute("LOCK TABLE fairlead.items IN ACCESS EXCLUSIVE MODE")
        user.execute("SELECT fairlead.enqueue('shop', 'bob', 'plain', '7')")
        with consumer(app):
            eventually(lambda: "lock timeout" in caplog.text)
            serves_its_shards(app, ran, -1)
            user.commit()
            eventually(lambda: ran == [-1, 7])


def test_shards_are_served_while_the_server_stands_still(
    running: tuple[App, list[Any]], database: Database, server: TestedPostgres
) -> None:
    """A server whose machine has stopped does not even refuse. Its queues are visited all the while."""
    app, ran = running
    attempts: list[int] = []

    @app.handler("fails", retry=fairlead.Retry(attempts=None, backoff=0.001, backoff_max=0.001))
    def fail(job: fairlead.Job) -> None:
        attempts.append(job.attempt)
        raise ValueError

    enqueue(database, "fails", *range(60), tenants=60)
    with consumer(app):
        eventually(lambda: len(attempts) > 200)
        with standing_still(server):
            for number in range(-20, 0):
                serves_its_shards(app, ran, number)
        enqueue(database, "plain", 4)
        eventually(lambda: 4 in ran)


@contextmanager
def standing_still(server: TestedPostgres) -> Iterator[None]:
    """Stop all processes of a server for a while. They keep their connections."""
    (postmaster,) = (
        each for each in psutil.Process().children(recursive=True)
        if each.name() == "postgres" and str(server.context.port) in each.cmdline()
    )  # fmt: skip
    stopped = [postmaster, *postmaster.children(recursive=True)]
    for each in stopped:
        os.kill(each.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for each in stopped:
            os.kill(each.pid, signal.SIGCONT)


@pytest.mark.parametrize(("off_by", "said"), [(-1, "fairlead postgres upgrade"), (2, "Upgrade this program")])
def test_a_consumer_leaves_a_schema_of_another_version_alone_until_it_is_its_own(
    running: tuple[App, list[Any]], database: Database, caplog: pytest.LogCaptureFixture, off_by: int, said: str
) -> None:
    app, ran = running
    enqueue(database, "plain", 1)
    set_version(database, off_by)
    try:
        with consumer(app):
            eventually(lambda: said in caplog.text)
            serves_its_shards(app, ran, -1)
            assert ran == [-1]
            set_version(database, 0)
            eventually(lambda: ran == [-1, 1])
    finally:
        set_version(database, 0)


def test_a_consumer_goes_on_with_the_schema_of_the_next_version(
    running: tuple[App, list[Any]], database: Database
) -> None:
    """An upgrade only adds, so consumers can be replaced after it, one by one."""
    app, ran = running
    set_version(database, 1)
    try:
        with consumer(app):
            enqueue(database, "plain", 1)
            eventually(lambda: ran == [1])
    finally:
        set_version(database, 0)


def set_version(database: Database, off_by: int) -> None:
    """Let the schema be of a version that is so far from this program's."""
    from fairlead.zones.postgresql.schema import VERSION

    with database.connect() as connection:
        connection.execute("UPDATE fairlead.store SET version = %s", [VERSION + off_by])


def test_what_a_transaction_enqueued_that_stays_prepared_runs_once_it_is_committed(
    running: tuple[App, list[Any]], database: Database, server: TestedPostgres
) -> None:
    """Other items run meanwhile, and the server crashes: it is still prepared then."""
    app, ran = running
    with database.connect() as connection:
        connection.execute("UPDATE fairlead.doorbell SET rings = false")  # A notification excludes it.
        connection.execute("BEGIN")
        connection.execute("SELECT fairlead.enqueue('shop', 'bob', 'plain', '7')")
        connection.execute("PREPARE TRANSACTION 'late'")
    with consumer(app):
        enqueue(database, "plain", *range(100, 120))
        eventually(lambda: len(ran) == 20)
        database.close()
        server.stop()
        server.start()
    with consumer(app):
        enqueue(database, "plain", 120)
        eventually(lambda: len(ran) == 21)
        assert 7 not in ran
        with database.connect() as connection:
            connection.execute("COMMIT PREPARED 'late'")
        eventually(lambda: 7 in ran)


def test_an_item_that_a_prepared_transaction_has_locked_holds_up_no_other(
    running: tuple[App, list[Any]], database: Database
) -> None:
    app, ran = running
    enqueue(database, "plain", 0, 3)
    with database.connect() as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT id FROM fairlead.items WHERE args = '0' FOR UPDATE")
        connection.execute("PREPARE TRANSACTION 'locked'")
    with consumer(app):
        eventually(lambda: ran == [3])
        with database.connect() as connection:
            connection.execute("ROLLBACK PREPARED 'locked'")
        eventually(lambda: ran == [3, 0])


def test_a_snapshot_that_is_held_for_long_holds_up_nothing(running: tuple[App, list[Any]], database: Database) -> None:
    app, ran = running
    with database.connect(autocommit=False) as user, consumer(app):
        user.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        user.execute("SELECT count(*) FROM orders")
        for some in range(5):
            numbers = range(100 * some, 100 * some + 100)
            enqueue(database, "plain", *numbers)
            eventually(lambda: len(ran) == numbers.stop)  # noqa: B023
        assert user.execute("SELECT count(*) FROM fairlead.items").fetchone() == (0,)
    assert sorted(ran) == list(range(500))
