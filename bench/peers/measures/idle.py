"""The cost of an idle system: CPU seconds of all its processes, workers and server, per 20 seconds."""

import os
import time

from bench.peers import processes
from bench.peers.sizes import Sizes
from bench.peers.testbed import Testbed

PER_S = 20.0


def measure(testbed: Testbed, sizes: Sizes) -> dict[str, float | None]:
    """Run some jobs, wait, and read the CPU time of every process below this one, twice."""
    testbed.start_warm_workers()
    return {"idle": idle_s(sizes)}


def idle_s(sizes: Sizes) -> float:
    """Wait, and return the CPU seconds of every process below this one, per 20 s."""
    time.sleep(sizes.settle_s)
    before = processes.spent_s(processes.below(os.getpid()))
    from_s = time.monotonic()
    time.sleep(sizes.idle_s)
    after = processes.spent_s(processes.below(os.getpid()))
    took_s = time.monotonic() - from_s
    return sum(spent - before.get(pid, 0.0) for pid, spent in after.items()) * PER_S / took_s
