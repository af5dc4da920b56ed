"""The counts of a worker's attempts at the items of one shard, by kind, since the worker began.

An event is counted here and nowhere else. Telemetry's reading, the worker's totals and the rollups of the hourly
history (`fairlead.actors.execution.pending_rollups`) are computed from these counts when they are read.

Counting runs once per item. So it is one look-up and a few additions, about two microseconds an item
(`bench.telemetry`).
"""

from fairlead.actors.messages import ItemRef
from fairlead.actors.telemetry.counters import Histogram, Reading
from fairlead.actors.telemetry.errors import ErrorTypes
from fairlead.actors.telemetry.metrics import CONSUMED, DURATION, FAILED, ITEM_LATENCY, OUTCOME_METRICS


class KindCounts:
    """The attempts at items of one kind.

    Attributes:
      outcomes: how many items had each outcome, see `fairlead.actors.execution.acknowledgement.Settled`.
      failed: attempts that raised an error, or ran too long.
      durations: how long handlers ran, by type of error; "": no error.
      latencies: how long items had been vested when their handlers began.
    """

    __slots__ = ("durations", "failed", "latencies", "outcomes")

    def __init__(self) -> None:
        self.outcomes = dict.fromkeys(OUTCOME_METRICS, 0)
        self.failed = 0
        self.durations = {"": Histogram(DURATION)}
        self.latencies = Histogram(ITEM_LATENCY)


class OutcomeCounts(dict[str, KindCounts]):
    """The counts by kind. Called with the lock of `fairlead.actors.execution.shard_counts` held."""

    def __init__(self) -> None:
        super().__init__()
        self._error_types = ErrorTypes()

    def __missing__(self, kind: str) -> KindCounts:
        made = self[kind] = KindCounts()
        return made

    def end(self, ref: ItemRef, *, began_us: int, ended_us: int, failed_by: str = "") -> None:
        """Count an attempt whose handler has ended or is given up; `failed_by`: the type of its error, "": none."""
        of_kind = self[ref.kind]
        if failed_by:
            failed_by = self._error_types.counted(failed_by)
            of_kind.durations.setdefault(failed_by, Histogram(DURATION))
        of_kind.durations[failed_by].record(ended_us - began_us)
        if ref.vested_us:
            of_kind.latencies.record(began_us - ref.vested_us)

    def read(self) -> Reading:
        """Return what telemetry exports of the counts."""
        reading = Reading()
        for kind, counted in self.items():
            labels = (kind,)
            for failed_by, durations in counted.durations.items():
                reading.histograms[DURATION.name, (kind, failed_by)] = durations.read()
                reading.numbers[CONSUMED.name, (kind, failed_by)] = sum(durations.counts)
            reading.histograms[ITEM_LATENCY.name, labels] = counted.latencies.read()
            reading.numbers[FAILED.name, labels] = counted.failed
            for outcome, count in counted.outcomes.items():
                reading.numbers[OUTCOME_METRICS[outcome].name, labels] = count
        return reading
