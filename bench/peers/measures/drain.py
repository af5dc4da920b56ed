"""Draining: jobs per second from the first start to the last recorded completion.

The workers are started beside the full queue; their own start does not count.
"""

from bench.peers.job import starts
from bench.peers.producing import fill
from bench.peers.sizes import Sizes
from bench.peers.testbed import MEASURED, RoundFailed, Testbed

JOBS_PER_TENANT = 2.5


def measure(testbed: Testbed, sizes: Sizes) -> dict[str, float | None]:
    """Fill the queue, start the workers, and wait until all jobs are done.

    Raises:
      RoundFailed: jobs remained after ten minutes, or a job never ran.
    """
    jobs = fill_to_drain(testbed, sizes)
    return {"drain": drained_per_s(testbed, jobs)}


def fill_to_drain(testbed: Testbed, sizes: Sizes) -> int:
    """Fill the queue; return the number of jobs."""
    jobs = sizes.drain_jobs * testbed.system.drain_factor
    fill(jobs, tag=MEASURED, tenants=max(1, int(jobs / JOBS_PER_TENANT)))
    return jobs


def drained_per_s(testbed: Testbed, jobs: int) -> float:
    """Start the workers, wait until all jobs are done, and return jobs per second. Raises as `measure`."""
    testbed.start_workers()
    testbed.await_count(jobs)
    done_s = testbed.await_done()
    started = starts(MEASURED)
    if len(started) < jobs:
        raise RoundFailed(f"{jobs} jobs were enqueued, {len(started)} ran")
    return jobs / (done_s - started[0].started_ns / 1e9)
