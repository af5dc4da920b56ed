"""Handlers that are Ray remote functions, as Ray tasks in which their job and its span are current.

A task runs in a process that is not part of the fleet. So Ray starts a wrapper of the handler there, with the handler's
own options. The wrapper sets up telemetry in that process, and makes the job and its span current.
"""

from collections.abc import Callable
from typing import Any

import ray
from opentelemetry import trace

from fairlead.actors.execution.job import Job
from fairlead.actors.handlers import plain_and_options
from fairlead.actors.telemetry.enqueue_counts import ENQUEUE_COUNTS, ReportEnqueues
from fairlead.actors.telemetry.run import Run, RunningJob, is_recorded
from fairlead.actors.telemetry.spans import passed_on
from fairlead.actors.telemetry.telemetry import ProcessSetup
from fairlead.actors.telemetry.traces import NOT_RECORDED, is_sampled, trace_of
from fairlead.zones.records import Trace


class Tasks:
    """Starts the tasks of one worker.

    Args:
      process_setup: sets up a task's process, and returns the function that sends its telemetry.
      report_enqueues: reports the enqueues of a task to the worker.
    """

    def __init__(self, process_setup: ProcessSetup, report_enqueues: ReportEnqueues) -> None:
        self._process_setup = process_setup
        self._report_enqueues = report_enqueues
        self._wrapped: dict[Any, Any] = {}  # by handler

    def start(self, function: Any, job: Job) -> Any:
        """Start a handler as a Ray task; return the reference to its end."""
        plain, options = plain_and_options(function)
        if not hasattr(plain, "_function"):  # It cannot be a handler; see `handlers`.
            return function.remote(job)
        context = trace.get_current_span().get_span_context()
        stored = trace_of(context) if context.is_valid else None if is_recorded() else NOT_RECORDED
        if function not in self._wrapped:
            named = {"name": plain._function_name, **options}
            self._wrapped[function] = ray.remote(run_current).options(**named)
        return self._wrapped[function].remote(plain._function, job, stored, self._process_setup, self._report_enqueues)


def run_current(
    handler: Callable[[Job], Any],
    job: Job,
    stored: Trace | None,
    process_setup: ProcessSetup,
    report_enqueues: ReportEnqueues,
) -> Any:
    """Run a handler in the process of its task."""
    send = process_setup()
    try:
        recorded = stored is None or is_sampled(stored)
        with (
            ENQUEUE_COUNTS.reporting_to(report_enqueues),
            Run(RunningJob(job.id, job.tenant, job.kind, job.attempt, recorded), passed_on(stored)),
        ):
            return handler(job)
    finally:
        if is_sampled(stored):  # Ray may end an idle process at any time.
            send()
