"""One attempt while its handler runs: what is current then, and the fields of its log records.

Current are the job, which log records name, and the attempt's span, so that enqueues and calls of other services in the
handler continue the trace. Both are context variables: a coroutine gets them from the thread that hands it to the loop,
a Ray task from the message that starts it.
"""

import logging
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, NamedTuple

from opentelemetry import context, trace
from opentelemetry.trace import Span

from fairlead.actors.telemetry.spans import end_run
from fairlead.actors.telemetry.tenants import tenant_hash
from fairlead.zones.layout import Tenant


class RunningJob(NamedTuple):
    """The job that log records name. `recorded`: False if the trace of its enqueuer is not recorded."""

    item_id: bytes
    tenant: Tenant
    kind: str
    attempt: int
    recorded: bool = True


_running: ContextVar[RunningJob | None] = ContextVar("fairlead_job", default=None)


def is_recorded() -> bool:
    """Say whether an operation here may begin a trace: False in a job whose enqueuer's trace is not recorded."""
    job = _running.get()
    return job is None or job.recorded


class Run:
    """Makes a job, and its span if there is one, current inside a `with` block, and ends the span."""

    __slots__ = ("_job", "_span", "_token", "_was")

    def __init__(self, job: RunningJob, span: Span | None) -> None:
        self._job = job
        self._span = span

    def __enter__(self) -> None:
        self._was: Token[RunningJob | None] = _running.set(self._job)
        self._token = None if self._span is None else context.attach(trace.set_span_in_context(self._span))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _running.reset(self._was)
        if self._token is not None:
            context.detach(self._token)
        if self._span is not None:
            end_run(self._span, error)


LOG_FIELDS = ("job_item_id", "job_tenant_hash", "job_kind", "job_attempt", "job_trace_id", "job_span_id")
_NONE = dict.fromkeys((*LOG_FIELDS, "job_ids"), "")


def log_fields() -> dict[str, Any]:
    """Return the fields of a log record about the job that runs here: `LOG_FIELDS`, and all as text (`job_ids`).

    Every field is empty outside of a handler. They begin with `job_`: logging refuses a record whose `extra` has a
    field of the same name.
    """
    job = _running.get()
    if job is None:
        return _NONE
    found: dict[str, Any] = {
        "job_item_id": job.item_id.hex(),
        "job_tenant_hash": tenant_hash(job.tenant),
        "job_kind": job.kind,
        "job_attempt": job.attempt,
        "job_trace_id": "",
        "job_span_id": "",
    }
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        found["job_trace_id"] = trace.format_trace_id(span.trace_id)
        found["job_span_id"] = trace.format_span_id(span.span_id)
    words = " ".join(f"{name.removeprefix('job_')}={value}" for name, value in found.items() if value)
    return {**found, "job_ids": f" [{words}]"}


def add_jobs_to_log_records() -> None:
    """Add the ids of the running job to every log record of this process. May be called twice."""
    make = logging.getLogRecordFactory()
    if isinstance(make, _JobLogFactory):
        return
    logging.setLogRecordFactory(_JobLogFactory(make))


class _JobLogFactory:
    """Makes records as before, with ids."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def __call__(self, *args: Any, **how: Any) -> logging.LogRecord:
        record: logging.LogRecord = self._make(*args, **how)
        record.__dict__.update(log_fields())
        return record
