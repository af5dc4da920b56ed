"""What OpenTelemetry has a name for bears that name, and says what OpenTelemetry requires of it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricsData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import SpanKind, StatusCode

from fairlead import App, TenantTransaction, new_item
from fairlead.actors.telemetry import enqueue_counts, enqueueing
from fairlead.actors.telemetry.counters import Reading
from fairlead.actors.telemetry.enqueue_counts import EnqueueCounts
from fairlead.actors.telemetry.metrics import (
    ATTRIBUTES,
    DURATION,
    METRICS,
    METRICS_BY_NAME,
    OPERATION,
    SYSTEM,
    MetricType,
)
from fairlead.actors.telemetry.outcome_counts import OutcomeCounts
from fairlead.actors.telemetry.spans import Spans, end_run, end_step
from fairlead.telemetry.otel_metrics import metrics_data
from fairlead.zones.engines import StoreUnavailable
from tests.actors.stage import ALICE, item_ref
from tests.actors.telemetry.recorder import Recorder

ATTRIBUTE_NAMES = {value for name, value in vars(messaging_attributes).items() if name.isupper()}
METRIC_NAMES = {value for name, value in vars(messaging_metrics).items() if name.isupper()}
OPERATION_TYPES = {each.value for each in messaging_attributes.MessagingOperationTypeValues}
ERROR = error_attributes.ERROR_TYPE

# The package has names and no requirements. These are of opentelemetry.io/docs/specs/semconv/messaging, of the pages
# messaging-metrics and messaging-spans: what each metric, and each span, must say, and how its buckets are bounded.
REQUIRED = {"messaging.system", "messaging.operation.name"}
REQUIRED_METRICS = {
    "messaging.client.operation.duration": MetricType.HISTOGRAM,
    "messaging.client.sent.messages": MetricType.COUNTER,
    "messaging.client.consumed.messages": MetricType.COUNTER,
    "messaging.process.duration": MetricType.HISTOGRAM,
}
UNITS = {MetricType.HISTOGRAM: "s", MetricType.COUNTER: "{message}"}
BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
KINDS = {"send": SpanKind.PRODUCER, "receive": SpanKind.CLIENT, "process": SpanKind.CONSUMER}
BATCH, MESSAGE = "messaging.batch.message_count", "messaging.message.id"

Points = list[tuple[str, Mapping[str, Any], float]]  # A metric's name, a point's attributes, its count.


def points_of(data: MetricsData | None) -> Points:
    assert data is not None
    return [
        (metric.name, dict(point.attributes or {}), getattr(point, "count", 0) or getattr(point, "value", 0))
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    ]


def exported(reading: Reading) -> Points:
    return points_of(metrics_data({"worker-0": reading}, Resource.create({}), began_ns=1, now_ns=2))


def refuse(transaction: object) -> None:
    raise StoreUnavailable("the disk is gone", remedy="Bring it back.")


def enqueue_in_all_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enqueue one item, several of one kind, and of two; fail by oneself, and by the store."""
    app = App("memory:")
    alice = app.tenant(*ALICE)

    def fail(tr: TenantTransaction) -> None:
        tr.enqueue("mail")
        raise KeyError("a stolen card")

    alice.enqueue("mail")
    alice.enqueue_many([new_item("mail")] * 3)
    alice.transact(lambda tr: [tr.enqueue("mail"), tr.enqueue("fax")])
    with pytest.raises(KeyError):
        alice.transact(fail)
    with monkeypatch.context() as broken:
        broken.setattr(type(alice.shard.db.create_transaction()), "commit", refuse)
        with pytest.raises(StoreUnavailable):
            alice.enqueue("mail")
    app.close()


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> tuple[Points, Points]:
    """What actors count of everything that messaging has a metric for, and what a meter counts of enqueues."""
    reader, ledger = InMemoryMetricReader(), EnqueueCounts()
    meter = MeterProvider([reader]).get_meter(SYSTEM)
    monkeypatch.setattr(enqueueing, "ENQUEUE_COUNTS", ledger)
    monkeypatch.setattr(enqueue_counts, "_counter", meter.create_counter("messaging.client.sent.messages"))
    monkeypatch.setattr(enqueue_counts, "_histogram", meter.create_histogram("messaging.client.operation.duration"))
    enqueue_in_all_ways(monkeypatch)
    outcome_counts = OutcomeCounts()
    outcome_counts.end(item_ref(1), began_us=1, ended_us=2)
    outcome_counts.end(item_ref(2), began_us=1, ended_us=2, failed_by="ConnectionError")
    return exported(ledger.read() + outcome_counts.read()), points_of(reader.get_metrics_data())


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> list[ReadableSpan]:
    """Every span there is, of what succeeded and of what failed."""
    recorder = Recorder()
    monkeypatch.setattr(enqueueing, "_tracer", recorder.tracer)
    with recorder.tracer.start_as_current_span("POST"):
        enqueue_in_all_ways(monkeypatch)
    made = Spans(recorder.tracer)
    scan = made.scan("main", pointers=3, began_us=1, ended_us=2)
    for failed_by in ("", "StoreUnavailable"):
        made.serve("main", traces=[], items=2, began_us=1, ended_us=2, scan=scan, failed_by=failed_by)
    for error in (None, KeyError("no")):
        run = made.run(item_ref(1), 1, None)
        assert run is not None
        with trace.use_span(run):
            step = made.step(item_ref(1), "reserve", 0, "step", ALICE)
        assert step is not None
        end_step(step, "retried" if error else "done", error)
        end_run(run, error)
    return [span for span in recorder.spans() if span.name != "POST"]


def test_metrics_and_labels_that_claim_a_convention_are_in_it() -> None:
    assert {each.name for each in METRICS if each.name.startswith("messaging.")} <= METRIC_NAMES
    assert {each for each in ATTRIBUTES.values() if each.startswith("messaging.")} <= ATTRIBUTE_NAMES


def test_every_metric_that_is_required_is_there_in_its_form_and_with_its_bounds() -> None:
    for name, form in REQUIRED_METRICS.items():
        assert (METRICS_BY_NAME[name].form, METRICS_BY_NAME[name].unit) == (form, UNITS[form])
    assert OPERATION.bounds_s == DURATION.bounds_s == BOUNDS_S


def test_every_point_of_a_messaging_metric_has_the_required_attributes_and_no_unknown_ones(
    readings: tuple[Points, Points],
) -> None:
    counted, metered = readings
    messaging = [(name, about) for name, about, _ in counted if name.startswith("messaging.")]
    assert {name for name, _ in messaging} == set(REQUIRED_METRICS)
    for _, about in [*messaging, *((name, about) for name, about, _ in metered)]:
        assert about.keys() >= REQUIRED
        assert {name for name in about if not name.startswith("fairlead.")} <= {*ATTRIBUTE_NAMES, ERROR}
        assert about["messaging.operation.type"] in OPERATION_TYPES
        assert all(about.values()), "what is not known is left out"


def test_only_failed_operations_have_an_error_type(readings: tuple[Points, Points]) -> None:
    counted, metered = readings
    store, told = "fairlead.zones.engines.api.errors.StoreUnavailable", itertools.chain(counted, metered)
    failed = {(name, about[ERROR], count) for name, about, count in told if ERROR in about and count}
    assert failed == {
        ("messaging.client.operation.duration", "KeyError", 1),
        ("messaging.client.operation.duration", store, 1),
        ("messaging.client.sent.messages", store, 1),
        ("messaging.client.consumed.messages", "ConnectionError", 1),
        ("messaging.process.duration", "ConnectionError", 1),
    }
    whole = {
        name: count for name, about, count in counted if ERROR not in about and about.get(ATTRIBUTES["kind"]) == "mail"
    }
    assert whole["messaging.client.sent.messages"] == 5
    assert whole["messaging.client.operation.duration"] == 2
    assert whole["messaging.client.consumed.messages"] == whole["messaging.process.duration"] == 1


def test_the_meter_of_a_web_server_counts_what_the_process_counts(readings: tuple[Points, Points]) -> None:
    def enqueues(points: Points) -> set[tuple[str, tuple[tuple[str, Any], ...], float]]:
        return {
            (name, tuple(sorted((key, value) for key, value in about.items() if key != ATTRIBUTES["actor"])), count)
            for name, about, count in points
            if about.get("messaging.operation.name") == "enqueue"
        }

    counted, metered = readings
    assert enqueues(counted) == enqueues(metered)


def test_every_span_has_the_required_attributes_and_no_unknown_ones(spans: list[ReadableSpan]) -> None:
    assert {span.name for span in spans} == {"enqueue mail", "scan main", "serve main", "run mail", "step reserve"}
    for span in spans:
        about = span.attributes or {}
        assert about.keys() >= REQUIRED
        assert {name for name in about if not name.startswith("fairlead.")} <= {*ATTRIBUTE_NAMES, ERROR}
        assert span.name.startswith(f"{about['messaging.operation.name']!s} ")
        type_ = about.get("messaging.operation.type")
        assert span.kind is (SpanKind.INTERNAL if type_ is None else KINDS[str(type_)])
        if type_ is not None:
            assert (BATCH in about) != (MESSAGE in about), "one message, or a batch"


def test_only_failed_spans_have_an_error_type(spans: list[ReadableSpan]) -> None:
    failed = [(span.name, (span.attributes or {})[ERROR]) for span in spans if ERROR in (span.attributes or {})]
    assert failed == [
        ("enqueue mail", "KeyError"),
        ("enqueue mail", "fairlead.zones.engines.api.errors.StoreUnavailable"),
        ("serve main", "StoreUnavailable"),
        ("step reserve", "KeyError"),
        ("run mail", "KeyError"),
    ]
    assert all((span.status.status_code is StatusCode.ERROR) == (ERROR in (span.attributes or {})) for span in spans)
