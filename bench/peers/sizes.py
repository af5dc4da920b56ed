"""The sizes of each measure: full and quick. The shapes are the same."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of one run.

    Attributes:
      repetitions: of each measure; the page shows medians.
      enqueue_s: of each way to enqueue.
      drain_jobs: of the slowest systems; faster ones drain a multiple, see `System.drain_factor`.
      held_s: the duration of the search for the rate held.
      heavy_jobs: the jobs that the heavy tenant enqueues at first.
      rerun_s_max: the longest wait for the job of a killed worker.
      longest_job_s: see `RoundContext`.
      idle_s: the duration of the measure of idle CPU, which is given per 20 s.
      workflows: of 16 steps each, of the slowest system; see `drain_jobs`.
      tenants: with a job that is to run later, for the measure `million`.
      rounds_at_once: for the measure in which most systems only wait until a dead worker is noticed.
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
    workflows: int
    tenants: int
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
    workflows=500,
    tenants=1_000_000,
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
    workflows=40,
    tenants=2_000,
    rounds_at_once=3,
)
