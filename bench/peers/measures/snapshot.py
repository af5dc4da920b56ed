"""Draining while a user's transaction holds a snapshot: the server keeps the index entries of all jobs that end."""

import psycopg

from bench.peers.measures.drain import drained_per_s, fill_to_drain
from bench.peers.sizes import Sizes
from bench.peers.testbed import Testbed


def measure(testbed: Testbed, sizes: Sizes) -> dict[str, float | None]:
    """Fill the queue, let a transaction see it and stay open, and drain the queue.

    Raises:
      RoundFailed: see `drain.measure`.
    """
    jobs = fill_to_drain(testbed, sizes)
    assert testbed.system.server is not None
    with psycopg.connect(testbed.system.server.url) as user:
        user.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        user.execute("SELECT count(*) FROM pg_class")
        return {"drain_snapshot": drained_per_s(testbed, jobs)}
