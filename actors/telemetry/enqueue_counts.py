"""What a process has enqueued, call by call: counted here, by OpenTelemetry's meter, or by a worker.

The process of a Ray task is not read, and ends when Ray decides. So it reports its enqueues to the worker that started
the task, which counts them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

from opentelemetry import metrics

from fairlead.actors.telemetry.counters import Counters, Reading
from fairlead.actors.telemetry.errors import ErrorTypes
from fairlead.actors.telemetry.metrics import ATTRIBUTES, OPERATION, SENT, SYSTEM
from fairlead.actors.telemetry.spans import span_attributes
from fairlead.zones.process_lock import ProcessLock

BUFFERED_MAX = 500  # Calls of a task that are reported together.
SERIES_MAX = 1_000  # Cached sets of attributes.

_meter = metrics.get_meter(SYSTEM)
_counter = _meter.create_counter(SENT.name, SENT.unit, SENT.help)
_histogram = _meter.create_histogram(
    OPERATION.name, OPERATION.unit, OPERATION.help, explicit_bucket_boundaries_advisory=OPERATION.bounds_s
)


class EnqueueCall(NamedTuple):
    """What one call has enqueued, or tried to.

    Attributes:
      committed: items by kind that have been committed.
      refused: items by kind whose commit failed.
      kind, shard: of all of them; "": of several.
      error_type: the error of the call; "": none.
      took_us: from the first item to the end of the call.
    """

    committed: Mapping[str, int]
    refused: Mapping[str, int]
    kind: str
    shard: str
    error_type: str
    took_us: int


ReportEnqueues = Callable[[Sequence[EnqueueCall]], None]


class EnqueueCounts:
    """What a process has enqueued since it started."""

    def __init__(self) -> None:
        self._lock = ProcessLock()
        self._error_types = ErrorTypes()
        self._counters = Counters()
        self._buffered: list[EnqueueCall] = []
        self._report: ReportEnqueues | None = None

    @contextmanager
    def reporting_to(self, report: ReportEnqueues) -> Iterator[None]:
        """Report calls through `report` instead of counting them; the last ones when the `with` block ends."""
        self._report = report
        try:
            yield
        finally:
            self._flush(report)
            self._report = None

    def add(self, sent: EnqueueCall) -> None:
        """Count a call, or buffer it for the report."""
        report = self._report
        if report is None:
            self._count(sent)
            return
        with self._lock:
            self._buffered.append(sent)
            is_full = len(self._buffered) >= BUFFERED_MAX
        if is_full:
            self._flush(report)

    def read(self) -> Reading:
        """Return a copy of all counts."""
        with self._lock:
            return self._counters.read()

    def _flush(self, report: ReportEnqueues) -> None:
        with self._lock:
            buffered, self._buffered = self._buffered, []
        if buffered:
            report(buffered)

    def _count(self, sent: EnqueueCall) -> None:
        with self._lock:
            failed_by = self._error_types.counted(sent.error_type)
            for kind, count in sent.committed.items():
                self._counters.add(SENT, kind, "", count=count)
            for kind, count in sent.refused.items():
                self._counters.add(SENT, kind, failed_by, count=count)
            self._counters.histogram(OPERATION, "enqueue", sent.kind, sent.shard, failed_by).record(sent.took_us)
        for kind, count in sent.committed.items():
            _counter.add(count, _attributes(kind))
        for kind, count in sent.refused.items():
            _counter.add(count, _attributes(kind, failed_by=failed_by))
        _histogram.record(sent.took_us / 1e6, _attributes(sent.kind, sent.shard, failed_by))


@lru_cache(maxsize=SERIES_MAX)
def _attributes(kind: str, shard: str = "", failed_by: str = "") -> dict[str, str | int]:
    attributes = span_attributes("enqueue", shard, kind)
    if failed_by:
        attributes[ATTRIBUTES["error_type"]] = failed_by
    return attributes


ENQUEUE_COUNTS = EnqueueCounts()  # This process's.
