"""Quiet tenants beside a flood: the waits of fifty tenants with one job each per second, beside one with thousands.

One tenant enqueues thousands of jobs of 5 ms from four processes, in bulk if the system can. Once they are
acknowledged, fifty other tenants enqueue one such job each per second, until the heavy tenant's last job has run. There
are eight slots. One figure is the wait of the quiet jobs that were due during the flood. The other is the time from the
heavy tenant's first call to the end of its last job.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event

from bench.harness import SPAWN
from bench.peers.job import new_job, starts
from bench.peers.measures.latency import latencies_ms
from bench.peers.producing import due_times, fill
from bench.peers.round_context import CONTEXT
from bench.peers.sizes import Sizes
from bench.peers.systems import load
from bench.peers.testbed import (
    HEAVY,
    MEASURED,
    START_S_MAX,
    WARM,
    RoundFailed,
    Testbed,
)
from bench.report import percentile

SLOTS = 8
NAP_MS = 5
QUIET_TENANTS = 50
QUIET_S_MAX = 600.0
HEAVY_TENANT = 0


def measure(testbed: Testbed, sizes: Sizes) -> dict[str, float | None]:
    """Let one tenant flood the system, and fifty others enqueue after that.

    Raises:
      RoundFailed: jobs that were enqueued did not start.
    """
    testbed.start_warm_workers()
    with _quiet_tenants() as begin:
        sent = fill(sizes.heavy_jobs, tag=HEAVY, tenants=1, nap_ms=NAP_MS)
        begin.set()
        testbed.await_starts(HEAVY, sizes.heavy_jobs)
    testbed.await_done()
    done_ns = starts(HEAVY)[-1].started_ns + NAP_MS * 1_000_000
    quiet = latencies_ms([start for start in starts(MEASURED) if start.due_ns < done_ns])
    if not quiet:
        raise RoundFailed("no quiet tenant came while the flood stood")
    return {
        "quiet_p50": percentile(quiet, 50),
        "quiet_p99": percentile(quiet, 99),
        "heavy_done": done_ns / 1e9 - min(each.from_s for each in sent),
    }


@contextmanager
def _quiet_tenants() -> Iterator[Event]:
    """Start the quiet tenants' process, yield the event that lets it begin, and end the process."""
    ready, begin, end = SPAWN.Event(), SPAWN.Event(), SPAWN.Event()
    sender = SPAWN.Process(target=_send_quiet, args=(ready, begin, end), name="quiet tenants")
    sender.start()
    try:
        if not ready.wait(START_S_MAX):
            raise RoundFailed("the process of the quiet tenants did not come up")
        yield begin
    finally:
        end.set()
        begin.set()
        sender.join(START_S_MAX)


def _send_quiet(ready: Event, begin: Event, end: Event) -> None:
    with load(CONTEXT.system).producer() as producer:
        producer.send(new_job(tag=WARM, tenant=1))  # Opens its connections.
        ready.set()
        begin.wait()
        for number, due_ns in enumerate(due_times(time.monotonic_ns(), QUIET_TENANTS, QUIET_S_MAX, 0, 1)):
            if end.wait(max(0, due_ns - time.monotonic_ns()) / 1e9):
                return
            tenant = HEAVY_TENANT + 1 + number % QUIET_TENANTS
            producer.send(new_job(tag=MEASURED, due_ns=due_ns, tenant=tenant, nap_ms=NAP_MS))
