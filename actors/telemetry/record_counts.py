"""How often lookups of records have asked all shards: counted here, and by OpenTelemetry's meter.

A count of the process, as any program looks records up. The process of a Ray task is not read.
"""

from opentelemetry import metrics

from fairlead.actors.telemetry.counters import Counters, Reading
from fairlead.actors.telemetry.metrics import ATTRIBUTES, SCATTERS, SYSTEM
from fairlead.zones.process_lock import ProcessLock

_counter = metrics.get_meter(SYSTEM).create_counter(SCATTERS.name, SCATTERS.unit, SCATTERS.help)


class RecordCounts:
    """What a process has counted since it started."""

    def __init__(self) -> None:
        self._lock = ProcessLock()
        self._counters = Counters()

    def add_scatter(self, shard_name: str) -> None:
        """Count a lookup that asks all shards. `shard_name`: the shard that has the index record."""
        with self._lock:
            self._counters.add(SCATTERS, shard_name)
        _counter.add(1, {ATTRIBUTES["shard"]: shard_name})

    def read(self) -> Reading:
        """Return a copy of all counts."""
        with self._lock:
            return self._counters.read()


RECORD_COUNTS = RecordCounts()  # This process's.
