"""What a worker counts of its attempts, by kind: the only telemetry that runs once per item.

So it is one look-up and a few additions, about two microseconds an item (`bench.telemetry`). Names and sums of metrics
are computed when a reading is taken.
"""

from fairlead.actors.messages import ItemRef
from fairlead.actors.telemetry.counters import Histogram, Reading
from fairlead.actors.telemetry.errors import ErrorTypes, error_type
from fairlead.actors.telemetry.metrics import CONSUMED, DURATION, FAILED, ITEM_LATENCY, OUTCOME_METRICS


class _KindCounts:
    __slots__ = ("durations", "ends", "failed", "failed_durations", "latencies")

    def __init__(self) -> None:
        self.durations = Histogram(DURATION)
        self.failed_durations: dict[str, Histogram] = {}  # by type of error
        self.latencies = Histogram(ITEM_LATENCY)
        self.ends = dict.fromkeys(OUTCOME_METRICS, 0)
        self.failed = 0


class OutcomeCounts(dict[str, _KindCounts]):
    """The attempts of one worker by kind. Called with the worker's lock held."""

    def __init__(self) -> None:
        super().__init__()
        self._error_types = ErrorTypes()

    def __missing__(self, kind: str) -> _KindCounts:
        made = self[kind] = _KindCounts()
        return made

    def end(self, ref: ItemRef, *, began_us: int, ended_us: int, error: BaseException | None = None) -> None:
        """Count an attempt whose handler has ended, with or without an `error`."""
        of_kind = self[ref.kind]
        durations = of_kind.durations
        if error is not None:
            failed_by = self._error_types.counted(error_type(error))
            durations = of_kind.failed_durations.setdefault(failed_by, Histogram(DURATION))
        durations.record(ended_us - began_us)
        if ref.vested_us:
            of_kind.latencies.record(began_us - ref.vested_us)

    def settle(self, kind: str, outcome: str, count: int) -> None:
        """Count the outcomes of items, as `fairlead.actors.execution.acknowledgement` names them."""
        self[kind].ends[outcome] += count

    def fail(self, kind: str) -> None:
        """Count an attempt that raised an error, or ran too long."""
        self[kind].failed += 1

    def read(self) -> Reading:
        """Return a copy of all counts."""
        reading = Reading()
        for kind, counted in self.items():
            labels = (kind,)
            for failed_by, durations in {"": counted.durations, **counted.failed_durations}.items():
                reading.histograms[DURATION.name, (kind, failed_by)] = durations.read()
                reading.numbers[CONSUMED.name, (kind, failed_by)] = sum(durations.counts)
            reading.histograms[ITEM_LATENCY.name, labels] = counted.latencies.read()
            reading.numbers[FAILED.name, labels] = counted.failed
            for outcome, count in counted.ends.items():
                reading.numbers[OUTCOME_METRICS[outcome].name, labels] = count
        return reading
