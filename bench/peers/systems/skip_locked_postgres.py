"""A queue written by hand with SELECT ... FOR UPDATE SKIP LOCKED: about the limit of a table in PostgreSQL.

It is a limit, not a product: it has no tenants, no fairness, no retries with backoff and no priorities. It cannot
distinguish a dead worker from a slow one: a job runs again when its lease has expired, so the lease must be longer than
any job (https://www.postgresql.org/docs/15/sql-select.html#SQL-FOR-UPDATE-SHARE on queue-like tables).

Each slot of a worker leases a hundred jobs in one transaction, runs them, and deletes them in another one.
"""

import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg

from bench.peers.job import Job, run
from bench.peers.round_context import CONTEXT
from bench.peers.servers import Postgres
from bench.peers.system import ORDER, Producer, System

URL = Postgres().url
BATCH = 100
POLL_S = 0.01

TABLE = """
CREATE TABLE jobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    free_at timestamptz NOT NULL DEFAULT now(),
    job text NOT NULL
)
"""
ENQUEUE = "INSERT INTO jobs (job) VALUES (%s)"
ENQUEUE_MANY = "INSERT INTO jobs (job) SELECT unnest(%s::text[])"
LEASE = f"""
UPDATE jobs SET free_at = now() + interval '{CONTEXT.longest_job_s} s'
WHERE id IN (SELECT id FROM jobs WHERE free_at <= now() ORDER BY id LIMIT {BATCH} FOR UPDATE SKIP LOCKED)
RETURNING id, job
"""
COMPLETE = "DELETE FROM jobs WHERE id = ANY(%s)"


class _Producer:
    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def send(self, job: Job) -> None:
        self._connection.execute(ENQUEUE, [json.dumps(job)])

    def send_many(self, jobs: Sequence[Job]) -> None:
        self._connection.execute(ENQUEUE_MANY, [[json.dumps(job) for job in jobs]])


class _Buyer(_Producer):
    def send(self, job: Job) -> None:
        with self._connection.transaction():
            self._connection.execute(ORDER, [job["tenant"]])
            super().send(job)


class SkipLocked(System):
    """The queue written by hand."""

    title = "SKIP LOCKED by hand, PostgreSQL"
    settings = f"batches of {BATCH}, polls every {POLL_S * 1000:g} ms, leases of {CONTEXT.longest_job_s} s"
    packages = ("psycopg",)
    best_slots = 1
    drain_factor = 5

    def __init__(self) -> None:
        self.server = Postgres()

    def prepare(self) -> None:
        """See `System`."""
        with psycopg.connect(URL, autocommit=True) as connection:
            connection.execute(TABLE)

    def worker_command(self, number: int) -> Sequence[str]:
        """See `System`."""
        return [sys.executable, "-m", __name__, str(self.slots_per_worker)]

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

    def left(self) -> int:
        """See `System`."""
        with psycopg.connect(URL, autocommit=True) as connection:
            row = connection.execute("SELECT count(*) FROM jobs").fetchone()
        return int(row[0]) if row else 0


def _work() -> None:
    """Run one slot: lease a batch, run it, complete it."""
    with psycopg.connect(URL, autocommit=True) as connection:
        while True:
            leased = connection.execute(LEASE).fetchall()
            for _, job in leased:
                run(json.loads(job))
            if leased:
                connection.execute(COMPLETE, [[number for number, _ in leased]])
            else:
                time.sleep(POLL_S)


def main() -> None:
    """Run a worker with the slots of the command line."""
    slots = [threading.Thread(target=_work) for _ in range(int(sys.argv[1]))]
    for slot in slots:
        slot.start()


if __name__ == "__main__":
    main()
