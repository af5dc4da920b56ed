"""What became of one worker's attempts: counts for its consumer, counts for telemetry, and the log of failures.

`Completer` is the only caller that notes outcomes, so each outcome is noted at one place.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from fairlead.actors.execution.failed_attempt import Cause, Failure
from fairlead.actors.execution.failure_log import FailureLog
from fairlead.actors.execution.in_flight import HeldItem
from fairlead.actors.execution.retry_decision import RetryDecision
from fairlead.actors.runtime.host import Host
from fairlead.actors.telemetry.counters import Reading
from fairlead.actors.telemetry.outcome_counts import OutcomeCounts

KindOutcomes = Mapping[tuple[str, str], int]  # How many items by kind and outcome, see `acknowledgement.Settled`.


class WorkerCounts:
    """The counts of one worker, over all shards. Any thread may call any method."""

    def __init__(self, host: Host) -> None:
        self._lock = host.lock()
        self._counts: Counter[str] = Counter()
        self._of_kinds = OutcomeCounts()
        self._failure_log = FailureLog(host.clock)

    def note(self, counted: KindOutcomes, ended: Iterable[HeldItem] = ()) -> None:
        """Count what became of items, and how long the handlers of `ended` took."""
        with self._lock:
            for (kind, outcome), count in counted.items():
                self._counts[outcome] += count
                self._of_kinds.settle(kind, outcome, count)
            for held in ended:
                if held.began_us:
                    self._of_kinds.end(held.ref, began_us=held.began_us, ended_us=held.ended_us, error=held.error)

    def note_event(self, name: str, count: int) -> None:
        """Count items to which something happened that is no outcome: `timed_out` or `returned`."""
        with self._lock:
            self._counts[name] += count

    def note_failures(self, failed: Sequence[tuple[Failure, RetryDecision]]) -> None:
        """Count and log failed attempts."""
        with self._lock:
            for failure, decision in failed:
                if failure.cause is not Cause.GONE:
                    self._failure_log.note(decision)
                    self._of_kinds.fail(decision.held.ref.kind)

    def counts(self) -> dict[str, int]:
        """Return how many items had each outcome, and `timed_out` and `returned`."""
        with self._lock:
            return dict(self._counts)

    def read(self) -> Reading:
        """Return what telemetry counts of attempts."""
        with self._lock:
            return self._of_kinds.read()
