"""Celery on Redis.

- `task_acks_late` and `task_reject_on_worker_lost`: otherwise a task is acknowledged before it runs, and a killed
  worker loses it (https://docs.celeryq.dev/en/stable/userguide/tasks.html#Task.acks_late).
- `worker_prefetch_multiplier` 64: for many short tasks the guide wants it large, "64, or 128"
  (https://docs.celeryq.dev/en/stable/userguide/optimizing.html#prefetch-limits).
- The prefork pool with one process per core and worker. Gossip, mingling and events are off, as they are not used here
  (https://docs.celeryq.dev/en/stable/reference/cli.html#celery-worker).
- `task_ignore_result`: no result is read.
- `visibility_timeout`: with Redis, only this timeout returns the task of a dead worker; a task that runs longer runs
  twice (https://docs.celeryq.dev/en/stable/getting-started/backends-and-brokers/redis.html#visibility-timeout). All
  three settings of this name are needed. `unacked_restore_interval` 5 s and `unacked_restore_throttle` 1: workers
  search for expired tasks every 5 s instead of every 100
  (https://docs.celeryq.dev/projects/kombu/en/stable/reference/kombu.transport.redis.html#transport-options).
- There is no call that enqueues many tasks at once.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import celery
import redis

from bench.peers.job import Job, run
from bench.peers.round_context import CONTEXT
from bench.peers.servers import Redis
from bench.peers.system import Producer, System

URL = Redis("always").url
TIMEOUT = {"visibility_timeout": CONTEXT.longest_job_s}

app = celery.Celery("peers", broker=URL)
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=64,
    broker_connection_retry_on_startup=True,
    broker_transport_options={**TIMEOUT, "unacked_restore_interval": 5, "unacked_restore_throttle": 1},
    result_backend_transport_options=TIMEOUT,
    visibility_timeout=CONTEXT.longest_job_s,
)


@app.task
def work(job: Job) -> None:
    """Run a job."""
    run(job)


class _Producer:
    def send(self, job: Job) -> None:
        work.delay(job)

    def send_many(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            work.delay(job)


class Always(System):
    """Celery on a Redis that fsyncs every write."""

    title = "Celery, Redis fsync always"
    settings = (
        "acks_late, reject_on_worker_lost, prefetch_multiplier 64, prefork, "
        f"visibility_timeout {CONTEXT.longest_job_s} s looked for every 5 s, no gossip, mingle or heartbeat"
    )
    packages = ("celery", "kombu", "redis")
    has_bulk = False
    best_slots = 1
    fsync = "always"

    def __init__(self) -> None:
        self.server = Redis(self.fsync)

    def worker_command(self, number: int) -> Sequence[str]:
        """See `System`."""
        return [
            sys.executable, "-m", "celery", "--app", f"{__name__}:app", "worker", "--concurrency",
            str(self.slots_per_worker), "--hostname", f"worker-{number}@%h", "--loglevel", "ERROR",
            "--without-gossip", "--without-mingle", "--without-heartbeat",
        ]  # fmt: skip

    @contextmanager
    def producer(self) -> Iterator[Producer]:
        """See `System`."""
        yield _Producer()

    def left(self) -> int:
        """See `System`."""
        with redis.Redis.from_url(URL) as client:
            return int(client.llen("celery")) + int(client.hlen("unacked"))


class EverySecond(Always):
    """Celery on a Redis that fsyncs once a second."""

    title = "Celery, Redis fsync every second"
    fsync = "everysec"
