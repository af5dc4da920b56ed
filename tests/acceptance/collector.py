"""A collector: an HTTP server that takes what OpenTelemetry's exporters send (OTLP, protobuf) and keeps it."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

Attributes = dict[str, Any]


class Collector:
    """What has been sent so far, by all processes."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self._traces: list[ExportTraceServiceRequest] = []
        self._metrics: list[ExportMetricsServiceRequest] = []
        self._lock = threading.Lock()
        self.url = ""

    def take(self, path: str, body: bytes) -> None:
        """Take a request."""
        with self._lock:
            self.bodies.append(body)
            if path == "/v1/traces":
                self._traces.append(ExportTraceServiceRequest.FromString(body))
            elif path == "/v1/metrics":
                self._metrics.append(ExportMetricsServiceRequest.FromString(body))

    def spans(self) -> list[tuple[Attributes, Span]]:
        """Return all spans with the attributes of their processes."""
        with self._lock:
            return [
                (attributes(resource.resource.attributes), span)
                for request in self._traces
                for resource in request.resource_spans
                for scope in resource.scope_spans
                for span in scope.spans
            ]

    def named(self, name: str) -> list[Span]:
        """Return the spans of a name, in the order in which they began."""
        found = [span for _, span in self.spans() if span.name == name]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    def metrics(self) -> list[tuple[Attributes, Metric]]:
        """Return all metrics, each as often as it was sent, with the attributes of their processes."""
        with self._lock:
            return [
                (attributes(resource.resource.attributes), metric)
                for request in self._metrics
                for resource in request.resource_metrics
                for scope in resource.scope_metrics
                for metric in scope.metrics
            ]


def attributes(pairs: Any) -> Attributes:
    """Return attributes as Python's values."""
    return {pair.key: _value(pair) for pair in pairs}


def _value(pair: KeyValue) -> Any:
    return getattr(pair.value, str(pair.value.WhichOneof("value")))


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector on a free port."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.take(self.path, gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
