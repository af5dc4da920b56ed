"""A span's context as it is stored in an item: W3C Trace Context, which any tool understands.

Baggage is not stored: a record is rewritten with every lease, and baggage is often private to an application. Of a
trace that is not recorded only that fact is stored: most traces are not, and seventy more bytes in each record would
cost more than the rest of telemetry.
"""

from opentelemetry import trace
from opentelemetry.trace import SpanContext
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from fairlead.zones.records import Trace

STATE_CHARACTERS_MAX = 512  # Length of a tracestate that the standard asks every system to carry.
_PARENT, _STATE = "traceparent", "tracestate"
_SAMPLED = frozenset("13579bdf")  # The last digit of a traceparent, if its trace is recorded.

NOT_RECORDED: Trace = {}  # Stored if the enqueuer's trace is not recorded: no run of the item begins one either.

_propagator = TraceContextTextMapPropagator()


def trace_of(context: SpanContext) -> Trace:
    """Return a valid span context as it is stored."""
    if not context.trace_flags.sampled:
        return NOT_RECORDED
    flags = context.trace_flags & 0xFF
    stored = {_PARENT: f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}"}
    state = context.trace_state.to_header() if context.trace_state else ""
    if 0 < len(state) <= STATE_CHARACTERS_MAX:
        stored[_STATE] = state
    return stored


def is_sampled(stored: Trace | None) -> bool:
    """Say whether the trace is recorded, as far as its enqueuer knew."""
    return stored is not None and stored.get(_PARENT, "")[-1:] in _SAMPLED


def context_of(stored: Trace | None) -> SpanContext | None:
    """Return a stored context; None if there is none, or an invalid one."""
    if not stored:
        return None
    context = trace.get_current_span(_propagator.extract(stored)).get_span_context()
    return context if context.is_valid else None
