"""Exporters are on only if the environment asks for them."""

from __future__ import annotations

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from fairlead import App, Config, fleet
from fairlead.fleet import AppOpening
from fairlead.telemetry.exports import ProcessExports
from fairlead.telemetry.otel_environment import (
    NoSuchExporter,
    RequestedExporters,
    check,
    exporter_of,
    interval_s,
    otel_variables,
    requested_exporters,
)

ENDPOINT = "http://localhost:4318"


@pytest.mark.parametrize(
    "environ, wanted",
    [
        ({}, RequestedExporters((), ())),
        ({"OTEL_SERVICE_NAME": "shop", "OTEL_TRACES_SAMPLER": "always_on"}, RequestedExporters((), ())),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT}, RequestedExporters(("otlp",), ("otlp",))),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": ENDPOINT}, RequestedExporters(("otlp",), ())),
        ({"OTEL_TRACES_EXPORTER": "otlp, console"}, RequestedExporters(("otlp", "console"), ())),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, RequestedExporters((), ("otlp",))),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "OTEL_SDK_DISABLED": "TRUE"}, RequestedExporters((), ())),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "OTEL_SDK_DISABLED": "no"},
            RequestedExporters(("otlp",), ("otlp",)),
        ),
    ],
)
def test_an_exporter_is_on_if_it_is_named_or_has_an_endpoint(
    environ: dict[str, str], wanted: RequestedExporters
) -> None:
    assert requested_exporters(environ) == wanted
    check(environ)


def test_otlp_is_over_http_unless_the_environment_says_otherwise() -> None:
    assert exporter_of("traces", "otlp", {}) is OTLPSpanExporter
    assert exporter_of("traces", "otlp", {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}) is OTLPSpanExporter


@pytest.mark.parametrize(
    "environ",
    [
        {"OTEL_TRACES_EXPORTER": "zipkin"},
        {"OTEL_METRICS_EXPORTER": "prometheus"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "carrier pigeon"},
    ],
)
def test_a_fleet_that_should_export_to_what_is_not_installed_does_not_start(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each of its actors would fail by itself, and restart again and again."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    app = App("memory:")
    with pytest.raises(NoSuchExporter) as refused:
        fleet.start(app, "shop:app", runtime="threads")
    assert refused.value.fields["exporter"] in ("zipkin", "prometheus", "otlp")
    app.close()


@pytest.mark.parametrize("written, seconds", [("250", 0.25), ("often", 60.0)])
def test_an_interval_that_is_no_number_is_the_default(written: str, seconds: float) -> None:
    assert interval_s({"OTEL_METRIC_EXPORT_INTERVAL": written}) == seconds
    assert interval_s({}) == 60.0


def test_the_key_of_a_collector_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret")
    opening = AppOpening("shop:app", "/", Config())
    assert opening.variables["OTEL_EXPORTER_OTLP_HEADERS"] == "api-key=secret"
    assert "secret" not in repr(opening)
    assert "secret" not in repr(ProcessExports(opening.variables).process_setup())


def test_actors_get_opentelemetrys_variables_and_no_others() -> None:
    assert otel_variables({"OTEL_SERVICE_NAME": "shop", "HOME": "/root"}) == {"OTEL_SERVICE_NAME": "shop"}
