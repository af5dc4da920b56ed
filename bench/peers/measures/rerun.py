"""A worker is killed three seconds into a job: the time until the job starts again.

First, SIGKILL ends only the process that runs the job, like a job that uses all memory or crashes its interpreter.
Then, with another job, SIGKILL ends the whole worker with all its processes, like the loss of a node. If a worker is
one process, both are the same. The killed worker is started again at once, as any supervisor does. Another worker runs
all the time.
"""

import time

from bench.peers.job import new_job, starts
from bench.peers.sizes import Sizes
from bench.peers.testbed import MEASURED, SECOND, START_S_MAX, Testbed

INTO_JOB_S = 3.0
JOB_MS = 6_000


def measure(testbed: Testbed, sizes: Sizes) -> dict[str, float | None]:
    """Run a job, kill its process, and wait until the job starts again. None: it did not within `rerun_s_max`.

    Raises:
      RoundFailed: the job never started.
    """
    testbed.start_warm_workers()
    return {
        "rerun_process": _rerun(testbed, sizes, MEASURED, whole=False),
        "rerun": _rerun(testbed, sizes, SECOND, whole=True),
    }


def _rerun(testbed: Testbed, sizes: Sizes, tag: int, *, whole: bool) -> float | None:
    with testbed.system.producer() as producer:
        producer.send(new_job(tag=tag, nap_ms=JOB_MS))
    testbed.await_starts(tag, 1, seconds=START_S_MAX)
    (first,) = starts(tag)
    time.sleep(max(0.0, first.started_ns / 1e9 + INTO_JOB_S - time.monotonic()))
    killed_s = testbed.kill_worker_of(first.pid, whole=whole)
    while len(starts(tag)) < 2:
        if time.monotonic() > killed_s + sizes.rerun_s_max:
            return None
        testbed.supervise()
        time.sleep(0.05)
    return starts(tag)[1].started_ns / 1e9 - killed_s
