"""Fairlead with its items in PostgreSQL, and the entries of tenants with work in its embedded store, on both runtimes.

As `fairlead_embedded`, but for this: a sender calls the SQL function `fairlead.enqueue`, which commits by itself as a
statement does; a hundred jobs are one statement. Consumers connect directly (docs/how-to/postgresql.md).
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg

import fairlead
from bench.peers.job import Job, run
from bench.peers.round_context import CONTEXT
from bench.peers.servers import Postgres
from bench.peers.system import ORDER, Producer
from bench.peers.systems import fairlead_embedded
from fairlead.zones.postgresql import schema

URL = Postgres().url
TENANT_APP = fairlead_embedded.TENANT_APP
STORE = "pg"
ENQUEUE = f"SELECT fairlead.enqueue('{TENANT_APP}', %s, 'work', %s::jsonb)"
ENQUEUE_MANY = f"SELECT fairlead.enqueue('{TENANT_APP}', t, 'work', j) FROM unnest(%s::text[], %s::jsonb[]) s(t, j)"
ENQUEUE_LATER = f"SELECT fairlead.enqueue('{TENANT_APP}', %s, 'work', %s::jsonb, delay_s => 86400)"
SLICE = 1_000
ENQUEUE_ALL_LATER = f"""
SELECT fairlead.enqueue('{TENANT_APP}', 'idle ' || number, 'work', 'null', delay_s => 86400)
FROM generate_series(%s::int, %s::int) AS number
"""
SILENT = "CREATE OR REPLACE FUNCTION fairlead.ring() RETURNS void LANGUAGE plpgsql AS 'BEGIN END'"

app = fairlead.App(f"embedded:{CONTEXT.directory.resolve() / 'store'}", external={STORE: URL})


@app.handler("work")
def work(job: fairlead.Job) -> None:
    """Run a job."""
    run(job.payload)


class _Producer:
    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def send(self, job: Job) -> None:
        self._connection.execute(ENQUEUE, [job["tenant"], json.dumps(job)])

    def send_many(self, jobs: Sequence[Job]) -> None:
        self._connection.execute(ENQUEUE_MANY, [[job["tenant"] for job in jobs], [json.dumps(job) for job in jobs]])


class _Buyer(_Producer):
    def send(self, job: Job) -> None:
        with self._connection.transaction():
            self._connection.execute(ORDER, [job["tenant"]])
            app.tenant(TENANT_APP, job["tenant"]).enqueue("work", job, within=self._connection)


class _Later(_Producer):
    def send(self, job: Job) -> None:
        self._connection.execute(ENQUEUE_LATER, [job["tenant"], json.dumps(job)])


class InPostgres(fairlead_embedded.Fairlead):
    """The common part of both runtimes."""

    packages = ("psycopg", "lmdb", "ray")
    application = f"{__name__}:app"
    durability = f"{Postgres.durability}; entries of tenants in LMDB, fsync of every commit"

    def __init__(self) -> None:
        self.server = Postgres()

    def prepare(self) -> None:
        """See `System`."""
        with psycopg.connect(URL, autocommit=True) as connection:
            schema.prepare(connection)

    @contextmanager
    def producer(self) -> Iterator[Producer]:
        """See `System`."""
        with psycopg.connect(URL, autocommit=True) as connection:
            yield _Producer(connection)

    @contextmanager
    def buyer(self) -> Iterator[Producer]:
        """See `System`."""
        with psycopg.connect(URL, autocommit=True) as connection:
            yield _Buyer(connection)

    @contextmanager
    def later(self) -> Iterator[Producer]:
        """See `System`."""
        with psycopg.connect(URL, autocommit=True) as connection:
            yield _Later(connection)

    def silence(self) -> None:
        """See `System`. The function that rings the doorbell does nothing any more."""
        with psycopg.connect(URL, autocommit=True) as connection:
            connection.execute(SILENT)

    def enqueue_for_later(self, tenants: int) -> None:
        """See `System`. A thousand in one statement. Autovacuum would take processor time some minutes later."""
        with psycopg.connect(URL, autocommit=True) as connection:
            for begin in range(0, tenants, SLICE):
                connection.execute(ENQUEUE_ALL_LATER, [begin, min(begin + SLICE, tenants) - 1])
            connection.execute("VACUUM (ANALYZE) fairlead.items")

    def left(self) -> int:
        """See `System`."""
        with psycopg.connect(URL, autocommit=True) as connection:
            row = connection.execute("SELECT count(*) FROM fairlead.items WHERE state = 0").fetchone()
        return int(row[0]) if row else 0


class OnRay(InPostgres, fairlead_embedded.OnRay):
    """One consumer of Ray actors, two of them workers."""

    title = "Fairlead, Ray, PostgreSQL"


class OnThreads(InPostgres, fairlead_embedded.OnThreads):
    """Two consumers, each in one process."""

    title = "Fairlead, threads, PostgreSQL"
