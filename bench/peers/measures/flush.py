"""Sixteen clients that enqueue while workers run, if each flush of the server's log takes 2 ms, as on a network disk.

Commits that wait for a flush share the next one. Commits that notify hold a lock of the whole server meanwhile, so each
has a flush of its own. A system may notify less once many come: the first seconds do not count. The jobs are for
tomorrow, so that their runs take no processor time from the clients.
"""

import psycopg

from bench.peers.producing import closed_loop, rate
from bench.peers.sizes import Sizes
from bench.peers.testbed import Testbed

CLIENTS = 16
FLUSH_US = 2_000


def measure(testbed: Testbed, sizes: Sizes) -> dict[str, float | None]:
    """Enqueue as the system does by itself, and then without notifications.

    Raises:
      RoundFailed: no worker ran.
    """
    testbed.start_warm_workers()
    assert testbed.system.server is not None
    with psycopg.connect(testbed.system.server.url, autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM SET commit_delay = {FLUSH_US}")  # It sleeps before each flush.
        connection.execute("ALTER SYSTEM SET commit_siblings = 0")
        connection.execute("SELECT pg_reload_conf()")
    notifying = closed_loop(sizes.enqueue_s, processes=CLIENTS, way="later", warm_s=sizes.warm_s)
    testbed.system.silence()
    silent = closed_loop(sizes.enqueue_s, processes=CLIENTS, way="later", warm_s=sizes.warm_s)
    return {"flush_16": rate(notifying), "flush_16_silent": rate(silent)}
