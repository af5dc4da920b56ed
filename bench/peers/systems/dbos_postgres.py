"""DBOS on PostgreSQL: each job a workflow without steps, the cheapest there is; in the measure `steps`, with 16.

- A step is a function whose output DBOS records in PostgreSQL (https://docs.dbos.dev/python/tutorials/step-tutorial).
  It changes nothing in a database itself, which is the cheapest step.
- Jobs are sent with `DBOSClient`, the interface for programs that only send; in bulk with `enqueue_in_transaction`, a
  hundred in one transaction (https://docs.dbos.dev/python/reference/client).
- A queue is polled; `polling_interval_sec` 0.02 instead of 1, as latency matters here. `worker_concurrency` limits the
  jobs that a worker runs at once; unless the measure sets a number it is 100, so that a poll returns enough jobs
  (https://docs.dbos.dev/python/reference/queues).
- `executor_id`: each process has its own, and recovers its jobs after a restart with the same id. Another process
  recovers them only with Conductor, which is not free (https://docs.dbos.dev/python/tutorials/workflow-tutorial,
  https://docs.dbos.dev/production/workflow-recovery).
- With a partition per tenant: `partition_concurrency` 1, one job of a tenant at a time, as in the documentation's fair
  queue (https://docs.dbos.dev/python/examples/queue-patterns); DBOS then dequeues from all partitions in one query.
  There is one worker with all slots. With two, a worker doubles its polling interval at each conflict with the other,
  up to two minutes, and a thousand jobs took five minutes.
"""

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import sqlalchemy
from dbos import DBOS, DBOSClient, DBOSConfig, run_dbos_database_migrations

from bench.peers.job import STEPS, Job, run
from bench.peers.servers import Postgres
from bench.peers.system import ORDER, Producer, System

URL = Postgres().url
POLL_S = 0.02
QUEUE = "jobs"
VERSION = "1"  # The version of this application: workflows run on workers of the version that enqueued them.


@DBOS.workflow()
def work(job: Job) -> None:
    """Run a job."""
    run(job)


@DBOS.step()
def step(number: int) -> int:
    """Return the number; DBOS records it."""
    return number


@DBOS.workflow()
def work_in_steps(job: Job) -> None:
    """Run a job, and then do its steps."""
    run(job)
    for number in range(STEPS):
        step(number)


class _Producer:
    def __init__(self, client: DBOSClient, engine: sqlalchemy.Engine, workflow: Any, partitions: bool) -> None:
        self._client = client
        self._engine = engine
        self._workflow = workflow
        self._partitions = partitions

    def send(self, job: Job) -> None:
        self._client.enqueue(self._options(job), job)

    def send_many(self, jobs: Sequence[Job]) -> None:
        with self._engine.begin() as connection:
            for job in jobs:
                self._client.enqueue_in_transaction(connection, self._options(job), job)

    def _options(self, job: Job) -> Any:
        options = {"workflow_name": self._workflow.__qualname__, "queue_name": QUEUE, "app_version": VERSION}
        return options | ({"queue_partition_key": job["tenant"]} if self._partitions else {})


class _Buyer(_Producer):
    def send(self, job: Job) -> None:
        with self._engine.begin() as connection:
            connection.exec_driver_sql(ORDER, (job["tenant"],))
            self._client.enqueue_in_transaction(connection, self._options(job), job)


class Dbos(System):
    """DBOS with one queue for all tenants."""

    title = "DBOS, PostgreSQL"
    settings = f"polling_interval {POLL_S * 1000:g} ms, worker_concurrency 100, a stable executor_id per worker"
    packages = ("dbos", "psycopg")
    best_slots = 100
    limits: Mapping[str, int] = {}
    workflow = staticmethod(work)

    def __init__(self) -> None:
        self.server = Postgres()

    def prepare(self) -> None:
        """See `System`."""
        run_dbos_database_migrations(URL)
        with _client() as client:
            client.register_queue(
                QUEUE, worker_concurrency=self.slots_per_worker, polling_interval_sec=POLL_S, **self.limits
            )

    def worker_command(self, number: int) -> Sequence[str]:
        """See `System`."""
        return [sys.executable, "-m", __name__, f"worker-{number}"]

    @contextmanager
    def producer(self) -> Iterator[Producer]:
        """See `System`."""
        with self._opened(_Producer) as producer:
            yield producer

    @contextmanager
    def buyer(self) -> Iterator[Producer]:
        """See `System`."""
        with self._opened(_Buyer) as producer:
            yield producer

    @contextmanager
    def _opened(self, kind: type[_Producer]) -> Iterator[Producer]:
        engine = sqlalchemy.create_engine(URL.replace("postgresql:", "postgresql+psycopg:"))
        with _client() as client:
            yield kind(client, engine, self.workflow, bool(self.limits))
        engine.dispose()

    def left(self) -> int:
        """See `System`."""
        with psycopg.connect(URL) as connection:
            asked = "SELECT count(*) FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING')"
            row = connection.execute(asked).fetchone()
        return int(row[0]) if row else 0


class Partitions(Dbos):
    """DBOS with one partition per tenant."""

    title = "DBOS, one partition per tenant"
    settings = f"partition_concurrency 1, polling_interval {POLL_S * 1000:g} ms, one worker"
    worker_count = 1
    limits: Mapping[str, int] = {"partition_concurrency": 1}


class Steps(Dbos):
    """DBOS with one worker, and 16 steps in each workflow."""

    title = "DBOS, one worker, 16 steps"
    worker_count = 1
    workflow = staticmethod(work_in_steps)


@contextmanager
def _client() -> Iterator[DBOSClient]:
    client = DBOSClient(system_database_url=URL)
    try:
        yield client
    finally:
        client.destroy()


def main() -> None:
    """Run a worker with the executor id of the command line."""
    config: DBOSConfig = {
        "name": "peers",
        "system_database_url": URL,
        "executor_id": sys.argv[1],
        "application_version": VERSION,
        "console_log_level": "ERROR",
    }
    DBOS(config=config)
    DBOS.launch()
    threading.Event().wait()


if __name__ == "__main__":
    main()
