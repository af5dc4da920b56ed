"""Counts as OpenTelemetry's metrics: what an exporter is handed, made from readings of a process's actors."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from fairlead.actors.telemetry import metrics
from fairlead.actors.telemetry.counters import Reading
from fairlead.actors.telemetry.metrics import ATTRIBUTES, METRICS_BY_NAME, OPERATION_TYPES, SYSTEM, MetricType

_SINCE_BEGIN = AggregationTemporality.CUMULATIVE
Points = dict[str, list[NumberDataPoint | HistogramDataPoint]]


def metrics_data(readings: Mapping[str, Reading], resource: Resource, *, began_ns: int, now_ns: int) -> MetricsData:
    """Return the readings of a process's actors, by their names, as metrics; counts run since `began_ns`."""
    points: Points = defaultdict(list)
    for actor, reading in readings.items():
        for (name, labels), number in reading.numbers.items():
            attributes = _attributes(actor, METRICS_BY_NAME[name], labels)
            points[name].append(NumberDataPoint(attributes, began_ns, now_ns, number))
        for (name, labels), (counts, sum_s) in reading.histograms.items():
            attributes = _attributes(actor, METRICS_BY_NAME[name], labels)
            points[name].append(_histogram(METRICS_BY_NAME[name], attributes, counts, sum_s, began_ns, now_ns))
    made = [_metric(METRICS_BY_NAME[name], each) for name, each in points.items()]
    scope = ScopeMetrics(InstrumentationScope(SYSTEM), made, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _attributes(actor: str, metric: metrics.Metric, labels: Sequence[str]) -> dict[str, str]:
    named = {"operation": metric.operation, **dict(zip(metric.labels, labels, strict=True)), "actor": actor}
    attributes = {
        "messaging.system": SYSTEM,
        "messaging.operation.type": OPERATION_TYPES.get(named["operation"], ""),
        **{ATTRIBUTES[label]: value for label, value in named.items()},
    }
    return {name: value for name, value in attributes.items() if value}


def _histogram(
    metric: metrics.Metric, attributes: dict[str, str], counts: list[int], sum_s: float, began_ns: int, now_ns: int
) -> HistogramDataPoint:
    """Return a point. It has no least and no greatest value: nobody keeps them, and they are optional."""
    unknown: float = None  # type: ignore[assignment]
    return HistogramDataPoint(
        attributes, began_ns, now_ns, sum(counts), sum_s, counts, metric.bounds_s, unknown, unknown
    )


def _metric(metric: metrics.Metric, points: list[NumberDataPoint | HistogramDataPoint]) -> Metric:
    numbers = [point for point in points if isinstance(point, NumberDataPoint)]
    data: Sum | Gauge | Histogram
    if metric.form is MetricType.COUNTER:
        data = Sum(numbers, _SINCE_BEGIN, is_monotonic=True)
    elif metric.form is MetricType.GAUGE:
        data = Gauge(numbers)
    else:
        data = Histogram([point for point in points if isinstance(point, HistogramDataPoint)], _SINCE_BEGIN)
    return Metric(metric.name, metric.help, metric.unit, data)
