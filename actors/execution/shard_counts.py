"""What became of one worker's attempts at the items of one shard: each event is recorded here, once.

Completers record: that of the shard, and those of external stores, for items whose tenants live on the shard. Three
readers see the same counts: the worker's totals, which its consumer sums up; telemetry; and the status reporter, which
stores rollups for the hourly history.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from fairlead.actors.execution.acknowledgement import Settled
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.pending_rollups import PendingRollups
from fairlead.actors.runtime.host import Host
from fairlead.actors.telemetry.counters import Reading
from fairlead.actors.telemetry.errors import GIVEN_UP, error_type
from fairlead.actors.telemetry.outcome_counts import OutcomeCounts
from fairlead.zones.reporting.rollups import Rollup


class ShardCounts:
    """The counts of one worker on one shard since the worker began. Any thread may call any method.

    `on_recorded`: called whenever there is something to store.
    """

    def __init__(self, host: Host, on_recorded: Callable[[], object]) -> None:
        self._clock = host.clock
        self._on_recorded = on_recorded
        self._lock = host.lock()
        self._outcomes = OutcomeCounts()
        self._pending_rollups = PendingRollups(self._outcomes)
        self._events: Counter[str] = Counter()

    # --- Called by completers: see `AttemptCounts` ---

    def record(self, settled: Settled, ended: Iterable[HeldItem] = ()) -> None:
        """Count what became of items, and how long the handlers of `ended` ran: to their ends, or until now."""
        counted = Counter((held.ref.kind, outcome) for held, outcome in settled)
        with self._lock:
            now_us = self._clock.now_us()
            self._pending_rollups.begin(now_us)
            for (kind, outcome), count in counted.items():
                self._outcomes[kind].outcomes[outcome] += count
            for held in ended:
                began_us, ended_us, failed_by = held.began_us, held.ended_us, ""
                if not began_us:
                    continue
                if not ended_us:
                    ended_us, failed_by = now_us, GIVEN_UP
                elif held.error is not None:
                    failed_by = error_type(held.error)
                self._outcomes.end(held.ref, began_us=began_us, ended_us=ended_us, failed_by=failed_by)
                self._pending_rollups.note_run(held.ref.tenant, ended_us - began_us)
        self._on_recorded()

    def record_failures(self, items: Iterable[HeldItem]) -> None:
        """Count attempts that raised an error, or ran too long."""
        with self._lock:
            for held in items:
                self._outcomes[held.ref.kind].failed += 1

    def record_event(self, name: str, items: Sequence[HeldItem]) -> None:
        """Count items to which something happened that is no outcome: `timed_out` or `returned`."""
        with self._lock:
            self._events[name] += len(items)

    # --- Readers ---

    def totals(self) -> Counter[str]:
        """Return how many items had each outcome, and `timed_out` and `returned`."""
        with self._lock:
            return sum((Counter(each.outcomes) for each in self._outcomes.values()), Counter(self._events))

    def read(self) -> Reading:
        """Return what telemetry exports."""
        with self._lock:
            return self._outcomes.read()

    def rows(self) -> dict[int, Rollup]:
        """Return the rollups that are to be stored now, by interval."""
        with self._lock:
            return self._pending_rollups.rows(self._clock.now_us())

    def note_stored(self, rows: Mapping[int, Rollup]) -> None:
        """Note that rollups are stored."""
        with self._lock:
            self._pending_rollups.note_stored(rows)
