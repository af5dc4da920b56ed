"""Procrastinate on PostgreSQL.

- Workers with `concurrency` 10 unless the measure sets a number. By default LISTEN/NOTIFY wakes them. Finished jobs are
  deleted, so that the table does not grow
  (https://procrastinate.readthedocs.io/en/stable/howto/production/delete_finished_jobs.html).
- The jobs of a dead worker run again only if the application has a task that searches for them, here that of
  https://procrastinate.readthedocs.io/en/stable/howto/production/retry_stalled_jobs.html. It runs every 5 s instead of
  every ten minutes, with a heartbeat every 3 s instead of 10: a worker is dead after 10 s of silence instead of 30.
- In bulk: `batch_defer`.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import procrastinate
import psycopg

from bench.peers.job import Job, run
from bench.peers.servers import Postgres
from bench.peers.system import Producer, System

URL = Postgres().url
SILENT_S_MAX = 10

app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=URL),
    worker_defaults={
        "delete_jobs": "successful",
        "update_heartbeat_interval": 3,
        "stalled_worker_timeout": SILENT_S_MAX,
    },
)


@app.task(name="work")
def work(job: Job) -> None:
    """Run a job."""
    run(job)


@app.periodic(cron="* * * * * */5")
@app.task(queueing_lock="retry_stalled_jobs", pass_context=True)
async def retry_stalled_jobs(context: procrastinate.JobContext, timestamp: int) -> None:
    """Retry the jobs of dead workers."""
    for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=SILENT_S_MAX):
        await app.job_manager.retry_job(job)


class _Producer:
    def send(self, job: Job) -> None:
        work.defer(job=job)

    def send_many(self, jobs: Sequence[Job]) -> None:
        work.batch_defer(*({"job": job} for job in jobs))


class _Later(_Producer):
    def send(self, job: Job) -> None:
        work.configure(schedule_in={"days": 1}).defer(job=job)


class Procrastinate(System):
    """Procrastinate, with its documented retry of stalled jobs."""

    title = "Procrastinate, PostgreSQL"
    settings = "delete_jobs successful, update_heartbeat_interval 3 s, a task every 5 s that retries stalled jobs"
    packages = ("procrastinate", "psycopg")
    best_slots = 10

    def __init__(self) -> None:
        self.server = Postgres()

    def prepare(self) -> None:
        """See `System`."""
        with app.replace_connector(procrastinate.SyncPsycopgConnector(conninfo=URL)) as opened, opened.open():
            opened.schema_manager.apply_schema()

    def worker_command(self, number: int) -> Sequence[str]:
        """See `System`."""
        return [
            sys.executable, "-m", "procrastinate", "--app", f"{__name__}.app", "worker",
            "--name", f"worker-{number}", "--concurrency", str(self.slots_per_worker),
        ]  # fmt: skip

    @contextmanager
    def producer(self) -> Iterator[Producer]:
        """See `System`."""
        with app.replace_connector(procrastinate.SyncPsycopgConnector(conninfo=URL)) as opened, opened.open():
            yield _Producer()

    @contextmanager
    def later(self) -> Iterator[Producer]:
        """See `System`."""
        with app.replace_connector(procrastinate.SyncPsycopgConnector(conninfo=URL)) as opened, opened.open():
            yield _Later()

    def silence(self) -> None:
        """See `System`. A trigger of the table of jobs notifies."""
        with psycopg.connect(URL) as connection:
            connection.execute("ALTER TABLE procrastinate_jobs DISABLE TRIGGER USER")

    def left(self) -> int:
        """See `System`. The task that retries stalled jobs is not counted."""
        with psycopg.connect(URL) as connection:
            asked = "SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'work' AND status IN ('todo', 'doing')"
            row = connection.execute(asked).fetchone()
        return int(row[0]) if row else 0
