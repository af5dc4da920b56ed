"""Workflows: durable steps per second of workflows of 16 steps, in one worker process, from a queue filled before.

The time is from the start of the first workflow to the recorded end of the last. The start of the worker does not
count.
"""

from bench.peers.job import STEPS, starts
from bench.peers.producing import fill
from bench.peers.sizes import Sizes
from bench.peers.testbed import MEASURED, Testbed

WORKFLOWS_PER_TENANT = 2.5


def measure(testbed: Testbed, sizes: Sizes) -> dict[str, float | None]:
    """Fill the queue with workflows, start the worker, and wait until all are done.

    Raises:
      RoundFailed: workflows remained after ten minutes.
    """
    workflows = sizes.workflows * testbed.system.drain_factor
    fill(workflows, tag=MEASURED, tenants=max(1, int(workflows / WORKFLOWS_PER_TENANT)))
    testbed.start_workers()
    testbed.await_count(workflows)
    done_s = testbed.await_done()
    return {"steps": workflows * STEPS / (done_s - starts(MEASURED)[0].started_ns / 1e9)}
