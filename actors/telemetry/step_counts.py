"""The tries at steps of a worker's workflows, by kind and outcome, since the worker began.

A step's name is no label: code may form names at run time, and each would be a series. Counting is one look-up and a
few additions per try, and needs no store.
"""

from collections import Counter
from enum import StrEnum

from fairlead.actors.telemetry.counters import Histogram, Reading
from fairlead.actors.telemetry.metrics import REPLAYS, STEP_DURATION, STEPS
from fairlead.zones.process_lock import ProcessLock


class StepOutcome(StrEnum):
    """How a try at a step has ended."""

    DONE = "done"  # the step has a result
    FAILED = "failed"  # the step has an error, which the workflow's code can catch
    RETRIED = "retried"  # without an answer: the step is tried again if its run goes on


class StepCounts:
    """The counts of one worker. Any thread may call any method."""

    def __init__(self) -> None:
        self._lock = ProcessLock()
        self._durations: dict[tuple[str, StepOutcome], Histogram] = {}
        self._replays: Counter[str] = Counter()

    def add_try(self, kind: str, outcome: StepOutcome, took_us: int) -> None:
        """Count a try at a step of a workflow of a kind."""
        with self._lock:
            durations = self._durations.get((kind, outcome))
            if durations is None:
                durations = self._durations[kind, outcome] = Histogram(STEP_DURATION)
            durations.record(took_us)

    def add_replay(self, kind: str) -> None:
        """Count an attempt at a workflow that replays recorded steps."""
        with self._lock:
            self._replays[kind] += 1

    def read(self) -> Reading:
        """Return what telemetry exports of the counts."""
        reading = Reading()
        with self._lock:
            for (kind, outcome), durations in self._durations.items():
                reading.histograms[STEP_DURATION.name, (kind, outcome.value)] = durations.read()
                reading.numbers[STEPS.name, (kind, outcome.value)] = sum(durations.counts)
            for kind, count in self._replays.items():
                reading.numbers[REPLAYS.name, (kind,)] = count
        return reading
