"""The spans of actors: scan, serve and run, under OpenTelemetry's messaging conventions.

A batch has a span of its own, linked to what it is about: whose child it is would be a question without an answer. A
run belongs to the request that enqueued its item as long as that is one way: the first attempt is its child, a later
one begins a trace of its own, with a link.
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
from fairlead.zones.records import Trace

LINKS_MAX = 128  # What OpenTelemetry keeps of a span by default.
NEVER_BEGIN = ("AlwaysOffSampler", "TraceIdRatioBased{0.0}")  # Samplers, as they describe themselves.
_NS = 1_000


class Spans:
    """The spans of one process.

    Args:
      tracer: what records them.
      begins: False if the sampler never begins a trace: then it is not asked.
      heeds: True if the sampler does as the enqueuer's did: then it is not asked where that one said no.
    """

    def __init__(self, tracer: Tracer, *, starts_traces: bool = True, parent_based: bool = False) -> None:
        self._tracer = tracer
        self._starts_traces = starts_traces
        self._parent_based = parent_based

    def scan(self, shard: str, *, pointers: int, began_us: int, ended_us: int) -> Trace | None:
        """Tell of a scan that found pointers; return its context, for whoever serves them."""
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
        """Tell of a visit that leased items, of which those with `traces` were enqueued in traces that are recorded."""
        if not self._starts_traces and not traces:
            return
        told = [each for each in (scan, *traces) if each is not None][:LINKS_MAX]
        links = [Link(context) for context in map(context_of, told) if context is not None]
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


def end_run(span: Span, error: BaseException | None) -> None:
    """End the span of an attempt."""
    if error is not None and span.is_recording():
        record_error(span, error)
    span.end()


def record_error(span: Span, error: BaseException) -> None:
    """Note in a span what its operation failed with: the error's class, and not its words."""
    _set_error_type(span, error_type(error))


def passed_on(stored: Trace | None) -> Span | None:
    """Return the span of another process, for what begins below it here; None if there is none."""
    context = context_of(stored)
    return None if context is None else NonRecordingSpan(context)


def spans_of_process() -> Spans | None:
    """Return the spans of this process by its global tracer provider; None if it has none that records anything.

    What its sampler does with roots, and with what its enqueuer has decided, is read from the sampler's description.
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
    """Return what every span of an operation says, under the conventions, of where and of what it is."""
    told = {
        "messaging.system": SYSTEM,
        ATTRIBUTES["operation"]: operation,
        "messaging.operation.type": OPERATION_TYPES[operation],
        ATTRIBUTES["shard"]: shard,
        ATTRIBUTES["kind"]: kind,
    }
    return {name: value for name, value in told.items() if value}


def _set_error_type(span: Span, failed_by: str) -> None:
    span.set_attribute(ATTRIBUTES["error_type"], failed_by)
    span.set_status(StatusCode.ERROR)
