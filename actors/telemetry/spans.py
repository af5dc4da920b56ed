"""The spans of actors: scan, serve, run and step, under OpenTelemetry's messaging conventions.

A batch has a span of its own, linked to its items: it has no single parent. The first attempt at an item is a child of
the request that enqueued it. A later attempt begins a trace of its own, with a link.
A try at a step of a workflow is a child of the attempt.
"""

from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    NoOpTracerProvider,
    ProxyTracerProvider,
    Span,
    SpanKind,
    StatusCode,
    Tracer,
    set_span_in_context,
)

from fairlead.actors.messages import ItemRef
from fairlead.actors.telemetry.errors import error_type
from fairlead.actors.telemetry.metrics import ATTRIBUTES, OPERATION_TYPES, SYSTEM
from fairlead.actors.telemetry.tenants import tenant_hash
from fairlead.actors.telemetry.traces import context_of, is_sampled, trace_of
from fairlead.zones.layout import Tenant
from fairlead.zones.records import Trace

LINKS_MAX = 128  # OpenTelemetry's default limit per span.
NEVER_BEGIN = ("AlwaysOffSampler", "TraceIdRatioBased{0.0}")  # Samplers, as they describe themselves.
_NS = 1_000


class Spans:
    """The spans of one process.

    Args:
      tracer: what records them.
      starts_traces: False if the sampler never begins a trace: then it is not called.
      parent_based: True if the sampler follows the enqueuer's decision: then it is not called where that was no.
    """

    def __init__(self, tracer: Tracer, *, starts_traces: bool = True, parent_based: bool = False) -> None:
        self._tracer = tracer
        self._starts_traces = starts_traces
        self._parent_based = parent_based

    def scan(self, shard: str, *, pointers: int, began_us: int, ended_us: int) -> Trace | None:
        """Record a scan that found pointers; return its context, for the managers that serve them."""
        if not self._starts_traces:
            return None
        span = self._tracer.start_span(
            f"scan {shard}", Context(), SpanKind.INTERNAL, span_attributes("scan", shard), start_time=began_us * _NS
        )
        if not span.is_recording():
            return None
        span.set_attribute("fairlead.pointers", pointers)
        span.end(ended_us * _NS)
        return trace_of(span.get_span_context())

    def serve(
        self,
        shard: str,
        *,
        traces: Sequence[Trace],
        items: int,
        began_us: int,
        ended_us: int,
        scan: Trace | None,
        failed_by: str = "",
    ) -> None:
        """Record a batch that leased items; `traces` are those of enqueuers whose traces are recorded."""
        if not self._starts_traces and not traces:
            return
        linked = [each for each in (scan, *traces) if each is not None][:LINKS_MAX]
        links = [Link(context) for context in map(context_of, linked) if context is not None]
        span = self._tracer.start_span(
            f"serve {shard}",
            Context(),
            SpanKind.CLIENT,
            span_attributes("serve", shard) | {"messaging.batch.message_count": items},
            links,
            start_time=began_us * _NS,
        )
        if failed_by:
            _set_error_type(span, failed_by)
        span.end(ended_us * _NS)

    def run(self, ref: ItemRef, attempt: int, stored: Trace | None) -> Span | None:
        """Begin the span of an attempt; None if there is nothing to record."""
        if stored is None and not self._starts_traces:
            return None
        if stored is not None and self._parent_based and not is_sampled(stored):
            return None
        enqueuer = context_of(stored)
        parent, links = Context(), []
        if enqueuer is not None and attempt == 1:
            parent = set_span_in_context(NonRecordingSpan(enqueuer), parent)
        elif enqueuer is not None:
            links = [Link(enqueuer)]
        attributes = span_attributes("run", ref.shard, ref.kind)
        span = self._tracer.start_span(f"run {ref.kind}", parent, SpanKind.CONSUMER, attributes, links)
        if span.is_recording():
            span.set_attributes(
                {
                    "messaging.message.id": ref.item_id.hex(),
                    "fairlead.tenant_hash": tenant_hash(ref.tenant),
                    "fairlead.attempt": attempt,
                }
            )
        return span

    def step(self, ref: ItemRef, name: str, occurrence: int, step_kind: str, tenant: Tenant) -> Span | None:
        """Begin the span of a try at a step, as a child of the current one; None if that is not recorded.

        `tenant`: on which the step acts.
        """
        if not trace.get_current_span().is_recording():
            return None
        about: dict[str, str | int] = {
            **span_attributes("step", ref.shard, ref.kind),
            "messaging.message.id": ref.item_id.hex(),
            "fairlead.tenant_hash": tenant_hash(tenant),
            "fairlead.step.name": name,
            "fairlead.step.occurrence": occurrence,
            "fairlead.step.kind": step_kind,
        }
        return self._tracer.start_span(f"step {name}", attributes=about)


def end_step(span: Span, outcome: str, error: BaseException | None) -> None:
    """End the span of a try at a step."""
    span.set_attribute(ATTRIBUTES["outcome"], outcome)
    end_run(span, error)


def end_run(span: Span, error: BaseException | None) -> None:
    """End the span of an attempt."""
    if error is not None and span.is_recording():
        record_error(span, error)
    span.end()


def record_error(span: Span, error: BaseException) -> None:
    """Note in a span the class of the error, and not its text."""
    _set_error_type(span, error_type(error))


def passed_on(stored: Trace | None) -> Span | None:
    """Return the span of another process, as parent of spans here; None if there is none."""
    context = context_of(stored)
    return None if context is None else NonRecordingSpan(context)


def spans_of_process() -> Spans | None:
    """Return the spans of this process by its global tracer provider; None if it records nothing.

    The sampler's description says what it does with roots, and whether it follows the enqueuer's decision.
    """
    provider = trace.get_tracer_provider()
    if isinstance(provider, ProxyTracerProvider | NoOpTracerProvider):
        return None
    sampler = getattr(provider, "sampler", None)
    described = "" if sampler is None else sampler.get_description()
    root = described.partition("root:")[2].partition(",")[0] or described
    return Spans(
        provider.get_tracer(SYSTEM),
        starts_traces=root not in NEVER_BEGIN,
        parent_based=described.startswith("ParentBased"),
    )


def span_attributes(operation: str, shard: str | None = None, kind: str | None = None) -> dict[str, str | int]:
    """Return the attributes that every span of an operation has, under the conventions."""
    attributes = {
        "messaging.system": SYSTEM,
        ATTRIBUTES["operation"]: operation,
        "messaging.operation.type": OPERATION_TYPES[operation],
        ATTRIBUTES["shard"]: shard,
        ATTRIBUTES["kind"]: kind,
    }
    return {name: value for name, value in attributes.items() if value}


def _set_error_type(span: Span, failed_by: str) -> None:
    span.set_attribute(ATTRIBUTES["error_type"], failed_by)
    span.set_status(StatusCode.ERROR)
