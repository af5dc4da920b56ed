"""Operations within a user's own SQL transaction: done if and only if it commits, and refused where there is none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fairlead import App, BadArgument, EnqueueStatus, Job, PayloadTooLarge, PermanentError, WrongStore, new_item
from fairlead.external_queues import ExternalQueues, NoWorkflow
from fairlead.external_stores import UnknownStore
from tests.fairlead.live_consumers import consumer, eventually
from tests.postgresql_server import TestedPostgres
from tests.records.storage_model.cutting_proxy import Cut, CuttingProxy
from tests.zones.postgresql.database import Database


@pytest.fixture(scope="module")
def prepared(postgresql: TestedPostgres) -> Iterator[Database]:
    """A database with queues."""
    made = Database(postgresql, "within")
    made.prepare()
    yield made
    made.close()


@pytest.fixture
def database(prepared: Database) -> Database:
    """The same, without items."""
    prepared.empty()
    return prepared


@pytest.fixture
def app(database: Database, tmp_path: Path) -> Iterator[App]:
    """An application whose data is there."""
    made = App(f"embedded:{tmp_path / 'data'}", external={"pg": database.dsn})
    made.shards.on_store_created = lambda sentence: None
    yield made
    made.close()


@pytest.fixture
def alice(app: App) -> ExternalQueues:
    """The queues of one tenant."""
    return app.tenant("shop", "alice").external("pg")


def message_of(raised: pytest.ExceptionInfo[BaseException]) -> str:
    """Return what a user reads."""
    return str(raised.value)


# --- Done with the transaction, or not at all ---


@pytest.mark.parametrize("commits", [True, False])
def test_what_is_done_within_a_transaction_is_done_with_it(
    database: Database, alice: ExternalQueues, commits: bool
) -> None:
    alice.enqueue("mail", item_id="old")
    with database.connect(autocommit=False) as connection:
        alice.cancel("old", within=connection)
        alice.enqueue("mail", item_id="new", within=connection)
        alice.enqueue_many([new_item("mail", item_id="newer")], within=connection)
        assert alice.count() == {"mail": 1}
        connection.commit() if commits else connection.rollback()
    assert {each.given_id for each in alice.peek()} == ({"new", "newer"} if commits else {"old"})


@pytest.mark.parametrize("commits", [True, False])
def test_a_dead_letter_is_retried_within_a_transaction(
    app: App, database: Database, alice: ExternalQueues, commits: bool
) -> None:
    @app.handler("mail")
    def mail(job: Job) -> None:
        raise PermanentError

    with consumer(app):
        alice.enqueue("mail", item_id="first")
        alice.enqueue("mail", item_id="second")
        eventually(lambda: len(alice.dead_letters()) == 2)
    with database.connect(autocommit=False) as connection:
        alice.retry_dead_letter("first", within=connection)
        alice.discard_dead_letter("second", within=connection)
        connection.commit() if commits else connection.rollback()
    assert len(alice.dead_letters()) == (0 if commits else 2)
    assert alice.count() == ({"mail": 1} if commits else {})


def test_the_handle_of_an_item_leads_to_its_store(app: App, database: Database) -> None:
    with database.connect() as connection, connection.transaction():
        handle = app.tenant("shop", "alice").enqueue("mail", within=connection)
    handle.cancel()
    assert app.tenant("shop", "alice").external("pg").count() == {}


def test_a_handler_enqueues_by_its_own_kind(app: App, database: Database, alice: ExternalQueues) -> None:
    mail = app.handler("mail")(lambda job: None)
    with database.connect() as connection, connection.transaction():
        mail.enqueue("shop/alice", within=connection)
    assert alice.count() == {"mail": 1}


def test_items_of_many_tenants_are_enqueued_together(app: App, database: Database) -> None:
    pairs = [(f"shop/{number % 7}", new_item("mail", number, item_id=f"{number % 900}")) for number in range(1_200)]
    with database.connect() as connection, connection.transaction():
        made = app.enqueue_many(pairs, within=connection)
    assert len({each.item_id for each in made}) == len({(tenant, item.given_id) for tenant, item in pairs})
    counts = [app.tenant("shop", str(number)).external("pg").count()["mail"] for number in range(7)]
    enqueued = [each for each in made if each.status is EnqueueStatus.ENQUEUED]
    assert sum(counts) == len(enqueued) == len({each.item_id for each in made})


def test_bulk_calls_with_the_same_ids_in_other_orders_do_not_deadlock(app: App, database: Database) -> None:
    """Each inserts the same ids. In the order of the calls, each of two would wait for the other."""
    failed: list[BaseException] = []

    def enqueue_all(seed: int) -> None:
        numbers = list(range(1_500))
        Random(seed).shuffle(numbers)
        try:
            with database.connect() as connection, connection.transaction():
                items = [("shop/alice", new_item("mail", item_id=f"order {number}")) for number in numbers]
                app.enqueue_many(items, within=connection)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=enqueue_all, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert app.tenant("shop", "alice").external("pg").count() == {"mail": 1_500}


def test_a_savepoint_that_is_rolled_back_takes_its_items_with_it(database: Database, alice: ExternalQueues) -> None:
    with database.connect() as connection, connection.transaction():
        alice.enqueue("mail", item_id="kept", within=connection)
        with pytest.raises(KeyError), connection.transaction():
            alice.enqueue("mail", item_id="gone", within=connection)
            raise KeyError
    assert [each.given_id for each in alice.peek()] == ["kept"]


def test_sql_cancels_what_sql_enqueued(database: Database, alice: ExternalQueues) -> None:
    with database.connect() as connection:
        connection.execute("SELECT fairlead.enqueue('shop', 'alice', 'mail', item_id => 'order 7')")
        made = connection.execute("SELECT id FROM fairlead.enqueue('shop', 'alice', 'mail')").fetchone()[0]
        cancelled = [
            connection.execute(f"SELECT fairlead.cancel('shop', 'alice', {named})").fetchone()[0]
            for named in ("'order 7'", "'order 7'", f"id => '{made}'", "'never enqueued'")
        ]
    assert cancelled == [True, False, True, False]
    assert alice.count() == {}


# --- Asynchronous connections ---


def test_a_coroutine_enqueues_and_cancels_within_its_transaction(app: App, database: Database) -> None:
    import psycopg

    alice = app.tenant("shop", "alice")

    async def shop() -> None:
        async with await psycopg.AsyncConnection.connect(database.dsn) as connection:
            first = await alice.aenqueue("mail", item_id="1", within=connection)
            await alice.external("pg").aenqueue("mail", item_id="2", within=connection)
            await app.aenqueue_many([("shop/alice", new_item("mail", item_id="3"))], within=connection)
            await alice.external("pg").acancel(first.item_id, within=connection)
            await connection.commit()
            await alice.aenqueue("mail", item_id="4", within=connection)
            await connection.rollback()

    asyncio.run(shop())
    assert {each.given_id for each in alice.external("pg").peek()} == {"2", "3"}


def test_asynchronous_sessions_of_sqlalchemy(app: App, database: Database) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy.ext.asyncio")
    alice = app.tenant("shop", "alice")

    async def shop() -> None:
        engine = sqlalchemy.create_async_engine(database.dsn.replace("postgresql://", "postgresql+psycopg://"))
        async with sqlalchemy.AsyncSession(engine) as session:
            await alice.aenqueue("mail", item_id="1", within=session)
            await session.commit()
            await alice.aenqueue("mail", item_id="2", within=session)
        async with engine.connect() as connection:
            await alice.aenqueue("mail", item_id="3", within=connection)
            await connection.commit()
        await engine.dispose()

    asyncio.run(shop())
    assert {each.given_id for each in alice.external("pg").peek()} == {"1", "3"}


def test_a_connection_of_sqlalchemy_without_a_block_commits_what_was_enqueued(app: App, database: Database) -> None:
    """SQLAlchemy begins a transaction at the first statement that it sees. It does not see this one."""
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(database.dsn.replace("postgresql://", "postgresql+psycopg://"))
    alice = app.tenant("shop", "alice")
    with engine.connect() as connection:
        alice.enqueue("mail", item_id="1", within=connection)
        connection.commit()
        alice.enqueue("mail", item_id="2", within=connection)
    engine.dispose()
    assert [each.given_id for each in alice.external("pg").peek()] == ["1"]


# --- Refused, and what a user reads then ---


def test_a_process_that_enqueues_within_a_transaction_opens_no_shard(database: Database, tmp_path: Path) -> None:
    """As a web server does, which may not even reach it."""
    app = App(f"embedded:{tmp_path / 'nobody made it'}", external={"pg": database.dsn})
    with database.connect(autocommit=False) as connection:
        app.tenant("shop", "alice").enqueue("mail", within=connection)
    app.close()
    assert not (tmp_path / "nobody made it").exists()


def test_a_transaction_that_failed_is_named(database: Database, alice: ExternalQueues) -> None:
    import psycopg

    from fairlead.zones.postgresql.errors import NoTransaction

    with database.connect(autocommit=False) as connection:
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT 1 / 0")
        with pytest.raises(NoTransaction) as raised:
            alice.cancel("order 7", within=connection)
    assert "the transaction has failed; roll it back" in message_of(raised)


def test_a_connection_without_a_transaction_is_told_how_to_open_one(database: Database, alice: ExternalQueues) -> None:
    from fairlead.zones.postgresql.errors import NoTransaction

    with database.connect() as connection, pytest.raises(NoTransaction) as raised:
        alice.enqueue("mail", within=connection)
    assert "commits each statement by itself; open a transaction, `with conn.transaction():`" in message_of(raised)


def test_an_asynchronous_connection_goes_to_the_methods_that_are_awaited(
    app: App, database: Database, alice: ExternalQueues
) -> None:
    import psycopg

    async def shop() -> None:
        async with await psycopg.AsyncConnection.connect(database.dsn) as connection:
            with pytest.raises(BadArgument) as raised:
                alice.enqueue("mail", within=connection)
            assert "an asynchronous one goes to `aenqueue`" in message_of(raised)
        with database.connect() as plain, pytest.raises(BadArgument) as raised:
            await alice.aenqueue("mail", within=plain)
        assert "an AsyncConnection of psycopg 3" in message_of(raised)

    asyncio.run(shop())


def test_a_database_without_a_schema_names_the_command_that_makes_it(
    app: App, postgresql: TestedPostgres, alice: ExternalQueues
) -> None:
    from fairlead.zones.postgresql.errors import SchemaMissing

    other = Database(postgresql, "within_nothing")
    with other.connect(autocommit=False) as connection, pytest.raises(SchemaMissing) as raised:
        alice.enqueue("mail", within=connection)
    assert "fairlead postgres init" in message_of(raised)
    other.close()


def test_another_database_is_named(postgresql: TestedPostgres, alice: ExternalQueues) -> None:
    from fairlead.zones.postgresql.errors import ForeignDatabase

    other = Database(postgresql, "within_other")
    other.prepare()
    with other.connect(autocommit=False) as connection, pytest.raises(ForeignDatabase) as raised:
        alice.enqueue("mail", within=connection)
    assert "database='within_other', known=['pg']" in message_of(raised)
    other.close()


def test_a_server_that_refuses_the_first_connection_of_a_process_fails_no_users_transaction(
    database: Database, tmp_path: Path
) -> None:
    server, _, name = database.dsn.rpartition("/")
    host, _, port = server.rpartition(":")
    with CuttingProxy(int(port)) as proxy:
        app = App(f"embedded:{tmp_path / 'data'}", external={"pg": f"{host}:{proxy.port}/{name}"})
        app.shards.on_store_created = lambda sentence: None
        proxy.cut_next(b"", Cut.BEFORE)
        with database.connect(autocommit=False) as connection:
            app.tenant("shop", "alice").enqueue("mail", within=connection)
            connection.commit()
        assert (proxy.cuts, app.tenant("shop", "alice").external("pg").count()) == (1, {"mail": 1})
        app.close()


def test_a_schema_of_another_version_names_the_command_that_upgrades_it(
    postgresql: TestedPostgres, tmp_path: Path
) -> None:
    from fairlead.zones.postgresql.errors import PostgresRefused

    older = Database(postgresql, "within_older")
    older.prepare()
    app = App(f"embedded:{tmp_path / 'data'}", external={"pg": older.dsn})
    with older.connect() as connection:
        connection.execute("DROP FUNCTION fairlead.cancel_item")
    alice = app.tenant("shop", "alice").external("pg")
    with older.connect(autocommit=False) as connection, pytest.raises(PostgresRefused) as raised:
        alice.cancel("order 7", within=connection)
    assert "cancel_item" in message_of(raised)
    assert "fairlead postgres upgrade" in message_of(raised)
    with pytest.raises(PostgresRefused) as raised:
        alice.cancel("order 7")
    assert "fairlead postgres upgrade" in message_of(raised)
    app.close()
    older.close()


def test_a_role_that_may_only_enqueue_is_told_what_it_lacks(database: Database, alice: ExternalQueues) -> None:
    from fairlead.zones.postgresql import schema
    from fairlead.zones.postgresql.errors import PostgresRefused

    with database.connect() as connection:
        connection.execute("CREATE ROLE web_only")
        schema.grant(connection, producers=("web_only",))
        try:
            with connection.transaction():
                connection.execute("SET LOCAL ROLE web_only")
                alice.enqueue("mail", item_id="order 7", within=connection)
            with pytest.raises(PostgresRefused) as raised, connection.transaction():
                connection.execute("SET LOCAL ROLE web_only")
                alice.cancel("order 7", within=connection)
            connection.execute("GRANT EXECUTE ON FUNCTION fairlead.cancel_item TO web_only")
            with connection.transaction():
                connection.execute("SET LOCAL ROLE web_only")
                alice.cancel("order 7", within=connection)
        finally:
            connection.execute("DROP OWNED BY web_only; DROP ROLE web_only")
    assert "permission denied for function cancel_item" in message_of(raised)
    assert "fairlead postgres grant" in message_of(raised)
    assert alice.count() == {}


def test_a_payload_that_is_too_large_leaves_the_transaction_open(database: Database, alice: ExternalQueues) -> None:
    with database.connect(autocommit=False) as connection:
        with pytest.raises(PayloadTooLarge) as raised:
            alice.enqueue("mail", "x" * 1_000_001, within=connection)
        alice.enqueue("mail", item_id="key of it", within=connection)
        connection.commit()
    assert "bytes_max=1000000" in message_of(raised)
    assert alice.count() == {"mail": 1}


@pytest.mark.parametrize("options", [{"unique_key": "a"}, {"keys": {"order": 7}}])
def test_keys_that_lie_in_the_shards_are_refused_with_what_there_is_instead(
    app: App, database: Database, options: dict[str, Any]
) -> None:
    with database.connect(autocommit=False) as connection, pytest.raises(BadArgument) as raised:
        app.tenant("shop", "alice").enqueue("mail", within=connection, **options)
    assert "its index lies in the shards. An item_id is unique in its queue" in message_of(raised)


def test_items_with_keys_are_refused_in_bulk(app: App, database: Database) -> None:
    pairs = [("shop/alice", new_item("mail")), ("shop/alice", new_item("mail", keys={"order": 7}))]
    with database.connect(autocommit=False) as connection, pytest.raises(BadArgument, match="index lies in the shards"):
        app.enqueue_many(pairs, within=connection)


def test_a_kind_whose_handler_commits_elsewhere_is_refused(app: App, alice: ExternalQueues) -> None:
    app.workflow("checkout")(lambda wf: None)
    app.handler("charge", transactional=True)(lambda job, tr: None)
    app.handler("audit", transactional=True, store="other")(lambda job, connection: None)
    app.handler("receipt", transactional=True, store="pg")(lambda job, connection: None)
    for kind, wanted in (("checkout", None), ("charge", None), ("audit", "other")):
        with pytest.raises(WrongStore) as raised:
            alice.enqueue(kind)
        assert raised.value.fields == {"kind": kind, "wanted": wanted, "found": "pg"}
    alice.enqueue("receipt")
    assert alice.count() == {"receipt": 1}


def test_a_workflows_calls_are_refused(alice: ExternalQueues) -> None:
    handle = alice.enqueue("mail")
    for refuses in (lambda: handle.signal("paid"), handle.steps):
        with pytest.raises(NoWorkflow):
            refuses()


def test_an_unknown_store_and_local_items_are_refused(app: App) -> None:
    with pytest.raises(UnknownStore) as raised:
        app.tenant("shop", "alice").external("mysql")
    assert "known=['pg']" in message_of(raised)
    with pytest.raises(BadArgument):
        app.local("sweep").external("pg")


def test_an_item_that_another_transaction_has_locked_is_named(database: Database, alice: ExternalQueues) -> None:
    from fairlead.zones.engines import StoreUnavailable

    alice.enqueue("mail", item_id="order 7")
    with database.connect(autocommit=False) as user:
        user.execute("SELECT FROM fairlead.items FOR UPDATE")
        with pytest.raises(StoreUnavailable) as raised:
            alice.cancel("order 7")
    assert "another transaction has locked the item" in message_of(raised)
    alice.cancel("order 7")


def test_a_server_that_is_too_old_is_refused_with_the_version_that_it_has(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairlead.zones.postgresql import schema
    from fairlead.zones.postgresql.errors import PostgresRefused

    monkeypatch.setattr(schema, "SERVER_MIN", 99_00_00)
    with database.connect() as connection, pytest.raises(PostgresRefused) as raised:
        schema.check(connection)
    assert "the server is PostgreSQL " in message_of(raised)
    assert "upgrade it to 14 or newer" in message_of(raised)
