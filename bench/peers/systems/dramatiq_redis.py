"""Dramatiq on Redis.

- One process per core and worker, with threads (https://dramatiq.io/guide.html#workers). By default a message is
  acknowledged after it has run.
- `heartbeat_timeout` 10 s instead of 60: a worker without a heartbeat for this time counts as dead.
  `maintenance_chance` one command in ten instead of one in a thousand: only maintenance detects dead workers, and in an
  idle queue it could take many minutes with the default
  (https://dramatiq.io/reference.html#dramatiq.brokers.redis.RedisBroker).
- There is no call that enqueues many messages at once.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.peers.job import Job, run
from bench.peers.servers import Redis
from bench.peers.system import Producer, System

broker = RedisBroker(url=Redis("always").url, heartbeat_timeout=10_000, maintenance_chance=100_000)
dramatiq.set_broker(broker)


@dramatiq.actor
def work(job: Job) -> None:
    """Run a job."""
    run(job)


class _Producer:
    def send(self, job: Job) -> None:
        work.send(job)

    def send_many(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            work.send(job)


class Always(System):
    """Dramatiq on a Redis that fsyncs every write."""

    title = "Dramatiq, Redis fsync always"
    settings = "heartbeat_timeout 10 s, maintenance_chance 100,000 of a million"
    packages = ("dramatiq", "redis")
    has_bulk = False
    best_slots = 8
    fsync = "always"

    def __init__(self) -> None:
        self.server = Redis(self.fsync)

    def worker_command(self, number: int) -> Sequence[str]:
        """See `System`."""
        return [
            sys.executable, "-m", "dramatiq", __name__, "--processes", "1", "--threads", str(self.slots_per_worker),
        ]  # fmt: skip

    @contextmanager
    def producer(self) -> Iterator[Producer]:
        """See `System`."""
        yield _Producer()

    def left(self) -> int:
        """See `System`. A message's body is deleted when it is acknowledged."""
        return int(broker.client.hlen("dramatiq:default.msgs"))


class EverySecond(Always):
    """Dramatiq on a Redis that fsyncs once a second."""

    title = "Dramatiq, Redis fsync every second"
    fsync = "everysec"
