"""How much each measure does: in full, and quickly. The shapes are the same."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of one run.

    Attributes:
      repetitions: of each measure; printed are medians.
      enqueue_s: of each way of enqueueing.
      drain_jobs: of the slowest systems; faster ones drain a multiple, see `System.drain_factor`.
      held_s: how long the rate is looked for that a system holds.
      heavy_jobs: what the heavy tenant enqueues at once.
      rerun_s_max: how long a killed worker's job is waited for.
      longest_job_s: see `Place`.
      idle_s: CPU time is given per 20 s.
      turns_at_once: of systems that wait for a dead worker to be noticed, most of which do nothing meanwhile.
    """

    repetitions: int
    enqueue_s: float
    drain_jobs: int
    warm_s: float
    latency_s: float
    held_s: float
    heavy_jobs: int
    rerun_s_max: float
    longest_job_s: int
    settle_s: float
    idle_s: float
    rounds_at_once: int


FULL = Sizes(
    repetitions=3,
    enqueue_s=4,
    drain_jobs=20_000,
    warm_s=2,
    latency_s=20,
    held_s=6,
    heavy_jobs=5_000,
    rerun_s_max=180,
    longest_job_s=60,
    settle_s=5,
    idle_s=20,
    rounds_at_once=1,
)
QUICK = Sizes(
    repetitions=1,
    enqueue_s=0.5,
    drain_jobs=1_000,
    warm_s=0.5,
    latency_s=2,
    held_s=1,
    heavy_jobs=2_000,
    rerun_s_max=40,
    longest_job_s=8,
    settle_s=1,
    idle_s=3,
    rounds_at_once=3,
)
