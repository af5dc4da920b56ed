"""What the environment asks for, in OpenTelemetry's own variables.

By the standard an exporter is on unless it is turned off. Here one is on if something asks for it: where no variable is
set, nothing is exported, and nobody is warned that there is no collector.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from fairlead.zones.errors import QueueError

PREFIX = "OTEL_"
INTERVAL_MS = 60_000.0  # The standard's default.
HTTP = "http/protobuf"
_TRUE, _NONE, _OTLP = "true", "none", "otlp"


class NoSuchExporter(QueueError):
    """An `OTEL_..._EXPORTER` or `OTEL_EXPORTER_OTLP_PROTOCOL` variable names what is not installed.

    Do: use `otlp` (over `http/protobuf`), `console` or `none`; or install the package that has the exporter, such as
    `opentelemetry-exporter-otlp-proto-grpc`. For Prometheus set `metrics_port` instead.
    """

    message = "no such OpenTelemetry exporter"


@dataclass(frozen=True, slots=True)
class RequestedExporters:
    """The exporters that are asked for, by their names in the variables."""

    traces: tuple[str, ...]
    metrics: tuple[str, ...]


def requested_exporters(environ: Mapping[str, str] = os.environ) -> RequestedExporters:
    """Return which exporters the environment asks for: named ones, or OTLP if there is an endpoint for it."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == _TRUE:
        return RequestedExporters((), ())
    return RequestedExporters(_requested("TRACES", environ), _requested("METRICS", environ))


def otel_variables(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return OpenTelemetry's variables, for another process of the fleet."""
    return {name: value for name, value in environ.items() if name.startswith(PREFIX)}


def exporter_of(signal: str, name: str, environ: Mapping[str, str] = os.environ) -> Any:
    """Return the class of an exporter for "traces" or "metrics", which reads the rest from the environment itself.

    Raises:
      NoSuchExporter: it is not installed.
    """
    return _entry(signal, name, environ).load()


def check(environ: Mapping[str, str] = os.environ) -> None:
    """Look whether all exporters that are asked for are installed.

    Raises:
      NoSuchExporter: one is not.
    """
    wanted = requested_exporters(environ)
    for signal, names in (("traces", wanted.traces), ("metrics", wanted.metrics)):
        for name in names:
            _entry(signal, name, environ)


def interval_s(environ: Mapping[str, str] = os.environ) -> float:
    """Return the seconds between two exports of metrics. Of what is no number the SDK's own reader warns."""
    try:
        return float(environ.get("OTEL_METRIC_EXPORT_INTERVAL", INTERVAL_MS)) / 1000
    except ValueError:
        return INTERVAL_MS / 1000


def _requested(signal: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    named = environ.get(f"OTEL_{signal}_EXPORTER", "").strip()
    if named:
        names = tuple(name.strip() for name in named.split(","))
        return tuple(name for name in names if name and name != _NONE)
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    return (_OTLP,) if any(environ.get(name) for name in endpoints) else ()


def _entry(signal: str, name: str, environ: Mapping[str, str]) -> EntryPoint:
    installed = name
    if name == _OTLP:
        protocol = environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL") or environ.get(
            "OTEL_EXPORTER_OTLP_PROTOCOL", HTTP
        )
        installed = "otlp_proto_http" if protocol == HTTP else f"otlp_proto_{protocol}"
    found = entry_points(group=f"opentelemetry_{signal}_exporter", name=installed)
    for entry in found:
        return entry
    raise NoSuchExporter(signal=signal, exporter=name, looked_for=installed)
