"""Waits as HDR histograms: one precision for any range, and the histograms of many processes merge without loss."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hdrh.histogram import HdrHistogram

WAIT_US_MAX = 24 * 3_600 * 1_000_000  # A day; a longer wait counts as a day.
DIGITS = 3  # The error of a value is at most a thousandth.


def histogram(waits_us: Iterable[int] = ()) -> HdrHistogram:
    """Return a histogram of waits in microseconds. A negative wait, from clocks that differ, counts as zero."""
    made = HdrHistogram(1, WAIT_US_MAX, DIGITS)
    for waited_us in waits_us:
        record(made, waited_us)
    return made


def record(into: HdrHistogram, waited_us: int, count: int = 1) -> None:
    """Add a wait, or several equal ones."""
    into.record_value(min(max(waited_us, 0), WAIT_US_MAX), count)


def merged(packed: Iterable[bytes]) -> HdrHistogram:
    """Return the sum of several histograms that were packed by `encode`."""
    whole = histogram()
    for each in packed:
        whole.add(HdrHistogram.decode(each))
    return whole


def of_buckets(waits: Mapping[int, int]) -> HdrHistogram:
    """Return a histogram of waits that were counted by bucket; see `fairlead.actors.dispatch.pickup_latency`."""
    made = histogram()
    for bound_us, count in waits.items():
        if count:
            record(made, bound_us, count)
    return made


@dataclass(frozen=True, slots=True)
class Waits:
    """The figures of a histogram, in milliseconds. All are zero if the histogram is empty."""

    count: int
    p10_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    p99_9_ms: float
    max_ms: float


def waits(of: HdrHistogram) -> Waits:
    """Return the figures of a histogram of microseconds."""
    if not of.total_count:
        return Waits(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    p10, p50, p90, p99, p99_9 = (round(of.get_value_at_percentile(p) / 1000, 2) for p in (10, 50, 90, 99, 99.9))
    return Waits(of.total_count, p10, p50, p90, p99, p99_9, round(of.get_max_value() / 1000, 2))
