"""One actor's counts: plain numbers in plain lists, added to batch by batch, and read on demand.

OpenTelemetry's own instruments cost microseconds per recording, and an item costs some ninety in total. Here a
recording is a search in a tuple and two additions. Called with the actor's lock held. A reading is plain data, which
crosses processes.
"""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from fairlead.actors.telemetry.metrics import Metric

Series = tuple[str, tuple[str, ...]]  # A metric's name, and the values of its labels.


@dataclass(slots=True)
class Reading:
    """What an actor counts, at one moment.

    `numbers`: counters and gauges. `histograms`: the number in each bucket, and the sum in seconds.
    """

    numbers: dict[Series, float] = field(default_factory=dict)
    histograms: dict[Series, tuple[list[int], float]] = field(default_factory=dict)

    def __add__(self, other: "Reading") -> "Reading":
        """Return the sum of two readings: each series of either, and the sum of a series that both have."""
        numbers = {
            each: self.numbers.get(each, 0) + other.numbers.get(each, 0) for each in self.numbers | other.numbers
        }
        histograms = dict(self.histograms)
        for series, (counts, sum_s) in other.histograms.items():
            before, before_s = histograms.get(series, ([0] * len(counts), 0.0))
            histograms[series] = [one + two for one, two in zip(before, counts, strict=True)], before_s + sum_s
        return Reading(numbers, histograms)


class Histogram:
    """Durations by bucket."""

    __slots__ = ("_bounds_us", "counts", "sum_us")

    def __init__(self, metric: Metric) -> None:
        self._bounds_us = tuple(round(bound_s * 1e6) for bound_s in metric.bounds_s)
        self.counts = [0] * (len(metric.bounds_s) + 1)
        self.sum_us = 0

    def record(self, duration_us: int) -> None:
        """Count a duration; a negative one, from clocks that differ, counts as 0."""
        if duration_us < 0:  # `max` costs as much as all the rest.
            duration_us = 0
        self.counts[bisect_left(self._bounds_us, duration_us)] += 1
        self.sum_us += duration_us

    def read(self) -> tuple[list[int], float]:
        """Return a copy of the buckets, and the sum in seconds."""
        return self.counts.copy(), self.sum_us / 1e6


class Counters:
    """The counts of one actor since it started."""

    def __init__(self) -> None:
        self._counts: Counter[Series] = Counter()
        self._histograms: dict[Series, Histogram] = {}

    def add(self, metric: Metric, *labels: str, count: int = 1) -> None:
        """Add to a counter."""
        self._counts[metric.name, labels] += count

    def histogram(self, metric: Metric, *labels: str) -> Histogram:
        """Return a histogram to record into."""
        made = self._histograms.get((metric.name, labels))
        if made is None:
            made = self._histograms[metric.name, labels] = Histogram(metric)
        return made

    def read(self) -> Reading:
        """Return a copy of all counts."""
        return Reading(dict(self._counts), {series: each.read() for series, each in self._histograms.items()})
