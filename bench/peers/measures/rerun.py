"""A worker is killed three seconds into a job: how long until the job is started again?

Killed with SIGKILL is the whole worker, with every process that belongs to it, as by a kernel that is out of memory or
a node that is replaced. It is started again at once, as any supervisor does, and another worker runs all the time.
"""

import time

from bench.peers.job import new_job, starts
from bench.peers.sizes import Sizes
from bench.peers.stage import MEASURED, START_S_MAX, Stage

INTO_JOB_S = 3.0
JOB_MS = 6_000


def take(stage: Stage, sizes: Sizes) -> dict[str, float | None]:
    """Run one job, kill its worker, and wait for the job to start again; None: it did not within `rerun_s_max`.

    Raises:
      TurnFailed: it did not even start once.
    """
    stage.start_warm_workers()
    with stage.system.producer() as producer:
        producer.send(new_job(tag=MEASURED, nap_ms=JOB_MS))
    stage.await_starts(MEASURED, 1, seconds=START_S_MAX)
    (first,) = starts(MEASURED)
    time.sleep(max(0.0, first.started_ns / 1e9 + INTO_JOB_S - time.monotonic()))
    killed_s = stage.kill_worker_of(first.pid)
    while len(starts(MEASURED)) < 2:
        if time.monotonic() > killed_s + sizes.rerun_s_max:
            return {"rerun": None}
        time.sleep(0.05)
    return {"rerun": starts(MEASURED)[1].started_ns / 1e9 - killed_s}
