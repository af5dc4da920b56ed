"""A tracer whose spans a test can look at, by the real SDK."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.trace import SpanContext


class Recorder:
    """Records spans; `sampler` decides which."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("fairlead")

    def spans(self) -> list[ReadableSpan]:
        """Return the spans that have ended, in order."""
        return list(self._exporter.get_finished_spans())

    def span(self, name: str) -> ReadableSpan:
        """Return the only span of a name."""
        (found,) = [span for span in self.spans() if span.name == name]
        return found


def ids(span: ReadableSpan) -> SpanContext:
    """Return the context of a span that has ended."""
    context = span.get_span_context()
    assert context is not None
    return context
