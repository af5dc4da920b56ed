"""The measures, one module each. Each runs on a `Testbed` and returns figures.

    enqueue   acknowledged jobs per second: one by one, a hundred at a time, four processes
    drain     completed jobs per second, of a queue that was filled before
    latency   from the time to send a job to its first line: at 100/s, and at half of the rate that the system holds
    flood     the waits of tenants with one job each beside a tenant with thousands
    rerun     the time until the job of a killed worker runs again
    idle      CPU time of idle workers and server
    steps     durable steps per second of workflows; only systems that have them

Only for systems in PostgreSQL, and some for those whose interface allows them:

    within    jobs per second that are enqueued in a user's transaction, which inserts a row
    snapshot  draining while a user's transaction holds a snapshot
    flush     jobs per second of sixteen clients if each flush takes 2 ms, with and without notifications
    million   CPU time beside a million tenants whose jobs are to run later

`FIGURES` describes each figure, by its key.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench.peers.measures import drain, enqueue, flood, flush, idle, latency, million, rerun, snapshot, steps, within
from bench.peers.sizes import Sizes
from bench.peers.testbed import Testbed

Figures = Mapping[str, float | None]  # None: the system cannot do this, or it did not happen in time.


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure. `slots`: jobs at once, over all workers; None: the best number for the system."""

    measure: Callable[[Testbed, Sizes], Figures]
    slots: int | None = None
    mostly_waits: bool = False


MEASURES: Mapping[str, Measure] = {
    "enqueue": Measure(enqueue.measure),
    "drain": Measure(drain.measure),
    "latency": Measure(latency.measure),
    "flood": Measure(flood.measure, slots=flood.SLOTS),
    "rerun": Measure(rerun.measure, mostly_waits=True),
    "idle": Measure(idle.measure),
    "steps": Measure(steps.measure),
    "within": Measure(within.measure),
    "snapshot": Measure(snapshot.measure),
    "flush": Measure(flush.measure),
    "million": Measure(million.measure),
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: its title in a table, and its unit."""

    title: str
    unit: str
    more_is_better: bool = False


FIGURES: Mapping[str, Figure] = {
    "enqueue_one": Figure("enqueue one by one", "jobs/s", more_is_better=True),
    "enqueue_bulk": Figure("enqueue by 100", "jobs/s", more_is_better=True),
    "enqueue_four": Figure("enqueue one by one, 4 processes", "jobs/s", more_is_better=True),
    "drain": Figure("drain", "jobs/s", more_is_better=True),
    "at_100_p50": Figure("latency at 100/s, p50", "ms"),
    "at_100_p99": Figure("latency at 100/s, p99", "ms"),
    "held": Figure("rate held", "jobs/s", more_is_better=True),
    "at_half_p50": Figure("latency at half of it, p50", "ms"),
    "at_half_p99": Figure("latency at half of it, p99", "ms"),
    "quiet_p50": Figure("quiet tenants under a flood, p50", "ms"),
    "quiet_p99": Figure("quiet tenants under a flood, p99", "ms"),
    "heavy_done": Figure("heavy tenant done", "s"),
    "rerun_process": Figure("run again after SIGKILL of its process", "s"),
    "rerun": Figure("run again after SIGKILL of its whole worker", "s"),
    "idle": Figure("idle CPU per 20 s", "s"),
    "steps": Figure("steps of workflows, one worker", "steps/s", more_is_better=True),
    "within_one": Figure("enqueue in a user's transaction", "jobs/s", more_is_better=True),
    "within_four": Figure("the same, 4 processes", "jobs/s", more_is_better=True),
    "drain_snapshot": Figure("drain while a snapshot is held", "jobs/s", more_is_better=True),
    "flush_16": Figure("16 clients, flush of 2 ms", "jobs/s", more_is_better=True),
    "flush_16_silent": Figure("the same without notifications", "jobs/s", more_is_better=True),
    "idle_million": Figure("idle CPU per 20 s beside a million tenants", "s"),
}
