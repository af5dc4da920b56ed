"""Enqueueing in a user's transaction, which inserts a row: transactions per second, from one process and from four."""

import psycopg

from bench.peers.producing import PROCESSES, closed_loop, rate
from bench.peers.sizes import Sizes
from bench.peers.system import ORDERS
from bench.peers.testbed import RoundFailed, Testbed


def measure(testbed: Testbed, sizes: Sizes) -> dict[str, float | None]:
    """Commit orders one after the other. Each has a job then.

    Raises:
      RoundFailed: there are not as many orders as jobs.
    """
    assert testbed.system.server is not None
    with psycopg.connect(testbed.system.server.url, autocommit=True) as connection:
        connection.execute(ORDERS)
        one = closed_loop(sizes.enqueue_s, way="buyer")
        four = closed_loop(sizes.enqueue_s, processes=PROCESSES, way="buyer")
        row = connection.execute("SELECT count(*) FROM orders").fetchone()
    left = testbed.system.left()
    if row is None or row[0] != left:
        raise RoundFailed(f"{row} orders were committed, {left} jobs are there")
    return {"within_one": rate(one), "within_four": rate(four)}
