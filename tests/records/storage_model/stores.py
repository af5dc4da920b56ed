"""Empty stores of every kind, each with two clients."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from bench.peers.servers import Postgres
from fairlead.records.storage_model.memory import MemoryStore
from fairlead.records.storage_model.record_store import BatchingStore
from fairlead.records.storage_model.shard import ShardStore
from fairlead.zones import engines
from fairlead.zones.engines import Database
from fairlead.zones.shard import open_shard
from tests.clocks import WallClock
from tests.rooted import on_cluster

MEMORY, POSTGRESQL = "memory", "PostgreSQL"
ON_MEMORY, ON_EMBEDDED, ON_FOUNDATIONDB = "a shard on memory", "a shard on embedded", "a shard on FoundationDB"
FOUNDATIONDB = pytest.param(ON_FOUNDATIONDB, marks=pytest.mark.foundationdb)
SHARDS = [ON_MEMORY, ON_EMBEDDED, FOUNDATIONDB]
KINDS = [MEMORY, *SHARDS, POSTGRESQL]
PREFIX = b"\x02fairlead tests of records\x00"  # No key of the shard's queues begins so.


class Clients(NamedTuple):
    """Two clients of one store. `server`: what it is a table of, if it is one."""

    one: BatchingStore
    other: BatchingStore


class Stores:
    """Makes stores, and closes them. `server`: starts the PostgreSQL of the tests."""

    def __init__(self, directory: Path, server: Callable[[], Postgres]) -> None:
        self._directory = directory
        self._server = server
        self._numbers = count()
        self._to_close: list[Callable[[], None]] = []

    def new(self, kind: str) -> Clients:
        """Return clients of a new, empty store."""
        if kind == MEMORY:
            store = MemoryStore()
            return Clients(store, store)
        if kind == POSTGRESQL:
            return self._table(self._server().url, self._server().url)
        return over(self.database(kind))

    def database(self, kind: str) -> Database:
        """Return a new, empty database for a shard."""
        if kind == ON_FOUNDATIONDB:
            db = on_cluster(clock=WallClock(), random=Random(1))
        else:
            url = "memory:" if kind == ON_MEMORY else f"embedded:{self._directory / str(next(self._numbers))}"
            db = engines.open(url, clock=WallClock(), random=Random(1))
        self._to_close.append(db.close)
        return db

    def table_through(self, dsn: str) -> Clients:
        """Return clients of a new table; `dsn`: how the first connects, the other connects straight."""
        return self._table(dsn, self._server().url)

    def _table(self, *dsns: str) -> Clients:
        from fairlead.records.storage_model.postgresql import PostgresStore

        name = f"records {next(_tables)}"
        one, other = (PostgresStore(dsn, name) for dsn in dsns)
        self._to_close += [one.close, other.close]
        other.create_table()
        return Clients(one, other)

    def close(self) -> None:
        """Close what was opened."""
        for close in self._to_close:
            close()


_tables = count()


def over(db: Database) -> Clients:
    """Return clients of a store over a shard of a database."""
    shard = open_shard("main", db, clock=WallClock(), random=Random(2))
    return Clients(ShardStore(shard, PREFIX), ShardStore(shard, PREFIX))
