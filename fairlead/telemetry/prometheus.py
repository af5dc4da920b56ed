"""The Prometheus endpoint of `fairlead run`: all of its fleet behind one port, asked anew with every scrape.

Every number has its actor as a label and is nobody's sum: an actor that restarts begins at zero, which Prometheus
notices in its own series, and would not in a sum. What is read from the stores is the same whoever reads it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from fairlead.actors.telemetry.counters import Reading
from fairlead.actors.telemetry.metrics import METRICS, Metric, MetricType
from fairlead.zones.errors import QueueError

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class EndpointRefused(QueueError):
    """The port for Prometheus cannot be listened on.

    Do: choose another `metrics_port`; of two fleets on one machine each needs its own.
    """

    message = "the metrics port cannot be had"


@contextmanager
def endpoint(host: str, port: int, read: Callable[[], Mapping[str, Reading]]) -> Iterator[None]:
    """Answer `GET /metrics` on a port with what `read` returns then.

    Raises:
      EndpointRefused: somebody else listens there, or the host is not this machine's.
    """
    registry = CollectorRegistry()
    registry.register(FleetCollector(read))
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise EndpointRefused(host=host, port=port, reason=str(error)) from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class FleetCollector(Collector):
    """Turns readings into families of Prometheus."""

    def __init__(self, read: Callable[[], Mapping[str, Reading]]) -> None:
        self._read = read

    def describe(self) -> list[Family]:
        """Return the families without numbers: to register must not ask the fleet."""
        return [_family(metric) for metric in METRICS]

    def collect(self) -> Iterator[Family]:
        """Return the families as they stand. Those without a number are there, too, with their help."""
        families = {metric.name: _family(metric) for metric in METRICS}
        for actor, reading in self._read().items():
            for (name, labels), number in reading.numbers.items():
                counted = families[name]
                assert not isinstance(counted, HistogramMetricFamily)
                counted.add_metric([*labels, actor], number)
            for (name, labels), (counts, sum_s) in reading.histograms.items():
                family = families[name]
                assert isinstance(family, HistogramMetricFamily)
                family.add_metric([*labels, actor], _buckets(name, counts), sum_s)
        yield from families.values()


def prometheus_name(metric: Metric) -> str:
    """Return what Prometheus calls a metric, without the suffixes of its samples (`_total`, `_bucket`, ...)."""
    return metric.name.replace(".", "_") + ("_seconds" if metric.unit == "s" else "")


def _family(metric: Metric) -> Family:
    name, labels = prometheus_name(metric), [*metric.labels, "actor"]
    if metric.form is MetricType.COUNTER:
        return CounterMetricFamily(name, metric.help, labels=labels)
    if metric.form is MetricType.GAUGE:
        return GaugeMetricFamily(name, metric.help, labels=labels)
    return HistogramMetricFamily(name, metric.help, labels=labels)


_BOUNDS = {metric.name: [*map(floatToGoString, metric.bounds_s), "+Inf"] for metric in METRICS}


def _buckets(name: str, counts: list[int]) -> list[tuple[str, float]]:
    """Return Prometheus's buckets: how many are no longer than each bound."""
    return list(zip(_BOUNDS[name], accumulate(counts), strict=True))
