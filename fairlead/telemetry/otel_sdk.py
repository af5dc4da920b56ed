"""OpenTelemetry's SDK in this process: providers for spans and metrics, as the environment asks for them.

A provider that the application has set stays: whoever has one exports through it. Loaded only where the environment
asks for an exporter.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from uuid import uuid4

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import Sampler, SamplingResult
from opentelemetry.trace import Link, NonRecordingSpan, SpanKind, TraceState, set_span_in_context
from opentelemetry.util.types import Attributes

from fairlead.actors.telemetry.counters import Reading
from fairlead.actors.telemetry.metrics import SYSTEM
from fairlead.actors.telemetry.telemetry import Fail
from fairlead.telemetry.otel_environment import RequestedExporters, exporter_of, interval_s
from fairlead.telemetry.otel_metrics import metrics_data

log = logging.getLogger("fairlead.telemetry")

Readings = Callable[[], Mapping[str, Reading]]


class LinkedSampler(Sampler):
    """Decides for a span that begins a trace but is linked as for a child of what it is linked to.

    So a retry is recorded if and only if the first attempt was, and a batch if an item of it is.
    """

    def __init__(self, decide: Sampler) -> None:
        self._decide = decide

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """See `Sampler`."""
        parent = trace.get_current_span(parent_context).get_span_context()
        if links and not parent.is_valid:
            linked = max((link.context for link in links), key=lambda context: context.trace_flags.sampled)
            parent_context, trace_id = set_span_in_context(NonRecordingSpan(linked)), linked.trace_id
        return self._decide.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)

    def get_description(self) -> str:
        """Return the description of the sampler that decides."""
        return self._decide.get_description()


@cache
def resource() -> Resource:
    """Return what this process is called: the environment's words, and `fairlead` where it has none."""
    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create(
        {
            **({} if named else {"service.name": SYSTEM}),
            "service.instance.id": str(uuid4()),
            "process.pid": os.getpid(),
            "host.name": socket.gethostname(),
        }
    )


def install(requested: RequestedExporters) -> None:
    """Set the process's providers, as far as something is to be exported and the application has set none."""
    if requested.traces and not isinstance(trace.get_tracer_provider(), TracerProvider):
        provider = TracerProvider(resource=resource())
        provider.sampler = LinkedSampler(
            provider.sampler
        )  # The environment's, which only the provider itself can read.
        for name in requested.traces:
            provider.add_span_processor(BatchSpanProcessor(exporter_of("traces", name)()))
        trace.set_tracer_provider(provider)
    if requested.metrics and not isinstance(metrics.get_meter_provider(), MeterProvider):
        readers = [PeriodicExportingMetricReader(exporter_of("metrics", name)()) for name in requested.metrics]
        metrics.set_meter_provider(MeterProvider(readers, resource()))


def flush_spans() -> None:
    """Send the spans that wait."""
    provider = trace.get_tracer_provider()
    if isinstance(provider, TracerProvider):
        provider.force_flush()


def flush_metrics() -> None:
    """Send what this process's meters count, as handlers' enqueues: the process may end without asking them."""
    provider = metrics.get_meter_provider()
    if isinstance(provider, MeterProvider):
        provider.force_flush()


class MetricsLoop:
    """Exports the readings of this process now and then, as often as the environment says; see `otel_metrics`.

    Not `supervised`: a collector that answers slowly is not a loop that stands still. `fail`: called once, from the
    loop's thread, if the loop dies of an error before it is closed.
    """

    def __init__(self, requested: RequestedExporters, readings: Readings, fail: Fail) -> None:
        self._fail = fail
        self._exporters: list[MetricExporter] = [exporter_of("metrics", name)() for name in requested.metrics]
        self._readings = readings
        self._began_ns = time.time_ns()
        self._interval_s = interval_s()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Export for a last time, and end."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._export_until_closed()
        except BaseException as error:
            if self._closing.is_set():
                log.error("the last metrics may not have been exported", exc_info=error)
            else:
                self._fail(f"loop 'metrics' died: {type(error).__name__}: {error}", error)

    def _export_until_closed(self) -> None:
        ends = False
        while not ends:
            ends = self._closing.wait(self._interval_s)
            data = metrics_data(self._readings(), resource(), began_ns=self._began_ns, now_ns=time.time_ns())
            for exporter in self._exporters:
                exporter.export(data)
