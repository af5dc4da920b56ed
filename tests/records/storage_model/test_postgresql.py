"""PostgreSQL: what it refuses, connections that are cut, a server that is restarted."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import sleep
from typing import Any

import pytest

from bench.peers.servers import Postgres
from fairlead.records.errors import CommitUnknown
from fairlead.records.storage_model.record_store import BatchingStore, ConditionalWrite
from fairlead.records.stored import Versioned
from fairlead.zones.engines import StoreUnavailable
from tests.foundationdb_server import free_port
from tests.postgresql_server import started
from tests.records.storage_model.cutting_proxy import Cut, CuttingProxy
from tests.records.storage_model.stores import Clients, Stores

KEY, OTHER_KEY = b"key", b"other key"
FIRST, SECOND = (Versioned(b"version %d" % number, b"value %d" % number) for number in (1, 2))
LARGE_BYTES = 5_000_000

Change = Callable[[BatchingStore], object]
WRITES: dict[str, tuple[bytes, Change, Versioned | None]] = {
    "insert": (b"INSERT", lambda store: store.put_if(OTHER_KEY, FIRST, None), FIRST),
    "replace": (b"UPDATE", lambda store: store.put_if(KEY, SECOND, FIRST.version), SECOND),
    "delete": (b"DELETE", lambda store: store.delete_if(KEY, FIRST.version), None),
}
EACH_WRITE = pytest.mark.parametrize(("text", "write", "after"), WRITES.values(), ids=WRITES)


@pytest.fixture
def proxy(postgresql: Postgres) -> Iterator[CuttingProxy]:
    with CuttingProxy(postgresql.context.port) as made:
        yield made


@pytest.fixture
def clients(postgresql: Postgres, stores: Stores, proxy: CuttingProxy) -> Clients:
    """Two clients of a table with one record; the first goes through the proxy."""
    made = stores.table_through(
        f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres?sslmode=disable&gssencmode=disable"
    )
    assert made.one.put_if(KEY, FIRST, None)
    return made


def record_of(text: bytes, store: BatchingStore) -> Versioned | None:
    """Return the record that a write is about."""
    return store.get(OTHER_KEY if text == b"INSERT" else KEY)


@EACH_WRITE
@pytest.mark.parametrize("cut", Cut, ids=lambda cut: cut.name.lower())
def test_a_write_whose_connection_breaks_before_the_answer_is_unknown(
    clients: Clients, proxy: CuttingProxy, text: bytes, write: Change, after: Versioned | None, cut: Cut
) -> None:
    before = record_of(text, clients.other)
    proxy.cut_next(text, cut)
    with pytest.raises(CommitUnknown):
        write(clients.one)
    assert record_of(text, clients.other) == (after if cut is Cut.AFTER else before)


def test_the_next_call_connects_again(clients: Clients, proxy: CuttingProxy) -> None:
    proxy.cut_next(b"UPDATE", Cut.BEFORE)
    with pytest.raises(CommitUnknown):
        clients.one.put_if(KEY, SECOND, FIRST.version)
    assert clients.one.put_if(KEY, SECOND, FIRST.version)


def test_a_read_whose_connection_breaks_says_that_the_store_does_not_answer(
    clients: Clients, proxy: CuttingProxy
) -> None:
    proxy.cut_next(b"SELECT", Cut.AFTER)
    with pytest.raises(StoreUnavailable):
        clients.one.get(KEY)
    assert clients.one.get(KEY) == FIRST


@pytest.mark.parametrize("text", [b"BEGIN", b"FOR UPDATE", b"UPDATE records"])
def test_a_batch_that_breaks_before_its_commit_has_written_nothing_and_says_so(
    clients: Clients, proxy: CuttingProxy, text: bytes
) -> None:
    proxy.cut_next(text.replace(b"records", b'"records'), Cut.AFTER)
    with pytest.raises(StoreUnavailable):
        clients.one.batch([], [ConditionalWrite(KEY, SECOND, FIRST.version), ConditionalWrite(OTHER_KEY, FIRST, None)])
    assert list(clients.other.scan(b"a", b"z")) == [(KEY, FIRST)]


@pytest.mark.parametrize("cut", Cut, ids=lambda cut: cut.name.lower())
def test_a_batch_that_breaks_in_its_commit_is_unknown(clients: Clients, proxy: CuttingProxy, cut: Cut) -> None:
    proxy.cut_next(b"COMMIT", cut)
    with pytest.raises(CommitUnknown):
        clients.one.batch([], [ConditionalWrite(KEY, SECOND, FIRST.version)])
    assert clients.other.get(KEY) == (SECOND if cut is Cut.AFTER else FIRST)


def test_a_statement_that_waits_for_a_row_compares_what_the_other_has_committed(
    clients: Clients, postgresql: Postgres
) -> None:
    psycopg = pytest.importorskip("psycopg")
    table = clients.one._table  # type: ignore[attr-defined]
    with ThreadPoolExecutor(1) as threads:
        with psycopg.connect(postgresql.url) as slow:
            slow.execute(f"UPDATE \"{table}\" SET version = 'elsewhere'")
            writing = threads.submit(clients.one.put_if, KEY, SECOND, FIRST.version)
            await_one_that_waits(postgresql)
        assert writing.result() is False


def test_large_values_need_no_pieces(clients: Clients) -> None:
    large = Versioned(b"2", bytes(range(250)) * (LARGE_BYTES // 250))
    assert clients.one.put_if(KEY, large, FIRST.version)
    assert clients.other.get(KEY) == large


def test_no_table_is_created_by_itself(postgresql: Postgres) -> None:
    from fairlead.records.storage_model.postgresql import PostgresStore

    store = PostgresStore(postgresql.url, "nobody has created it")
    for call in (lambda: store.get(KEY), lambda: store.put_if(KEY, FIRST, None), lambda: store.delete_if(KEY, b"")):
        with pytest.raises(StoreUnavailable, match="refused") as caught:
            call()
        assert caught.value.fields["sqlstate"] == "42P01"
    store.create_table()
    store.create_table()
    assert store.get(KEY) is None
    store.close()


def test_a_server_that_takes_no_writes_is_not_read(postgresql: Postgres, clients: Clients) -> None:
    from fairlead.records.storage_model.postgresql import PostgresStore

    read_only = f"{postgresql.url}?options=-c%20default_transaction_read_only%3Don"
    store = PostgresStore(read_only, clients.one._table)  # type: ignore[attr-defined]
    with pytest.raises(StoreUnavailable, match="takes writes"):
        store.get(KEY)


def test_where_no_server_answers_nothing_was_written() -> None:
    postgresql = pytest.importorskip("fairlead.records.storage_model.postgresql")
    store = postgresql.PostgresStore(f"postgresql://postgres@127.0.0.1:{free_port()}/postgres", "records")
    with pytest.raises(StoreUnavailable, match="takes writes"):
        store.put_if(KEY, FIRST, None)


def test_statements_run_at_read_committed_whatever_the_database_says(postgresql: Postgres, clients: Clients) -> None:
    from fairlead.records.storage_model.postgresql import PostgresStore

    dsn = f"{postgresql.url}?options=-c%20default_transaction_isolation%3Dserializable"
    store = PostgresStore(dsn, clients.one._table)  # type: ignore[attr-defined]
    connection = store._connections._take()
    assert connection.execute("SHOW transaction_isolation").fetchone() == ("read committed",)
    connection.close()


def test_after_a_restart_of_the_server_no_write_is_unknown(stores: Stores, postgresql: Postgres) -> None:
    """A connection that the server closed while nobody used it is found out before it is used."""
    from fairlead.records.storage_model.postgresql import PostgresStore

    with started() as server:
        store = PostgresStore(server.url, "records")
        store.create_table()
        assert store.put_if(KEY, FIRST, None)
        server.stop()
        with pytest.raises(StoreUnavailable):
            store.put_if(KEY, SECOND, FIRST.version)
        server.start()
        assert store.put_if(KEY, SECOND, FIRST.version)
        server.stop()
        server.start()
        assert store.get(KEY) == SECOND
        store.close()


@pytest.mark.long
def test_after_a_crash_the_server_may_say_that_a_lost_transaction_was_committed() -> None:
    """Why a store does not ask what became of a write: the number of its transaction may be another's by now."""
    psycopg = pytest.importorskip("psycopg")
    insert = "INSERT INTO written VALUES (%s) RETURNING pg_current_xact_id()::text"
    with started() as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE written (by text)")
            connection.execute("CHECKPOINT")
        writing = psycopg.connect(server.url)
        (number,) = writing.execute(insert, ["us"]).fetchone()
        os.kill(writing.info.backend_pid, signal.SIGKILL)
        writing.close()
        other = connected_again(server)
        while int(other.execute(insert, ["another"]).fetchone()[0]) < int(number):
            pass
        assert other.execute("SELECT pg_xact_status(%s::xid8)", [number]).fetchone() == ("committed",)
        assert other.execute("SELECT count(*) FROM written WHERE by = 'us'").fetchone() == (0,)
        other.close()


def connected_again(server: Postgres) -> Any:
    """Return a connection with autocommit, once the server has recovered from its crash."""
    psycopg = pytest.importorskip("psycopg")
    while True:
        try:
            return psycopg.connect(server.url, autocommit=True)
        except psycopg.OperationalError:
            sleep(0.05)


def await_one_that_waits(server: Postgres) -> None:
    """Return once a session of the server waits for a lock."""
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(server.url, autocommit=True) as looking:
        while looking.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() == (0,):
            pass
