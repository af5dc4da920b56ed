"""One generator: it enqueues its share of a load, each enqueue at its time, or at once if that has passed.

Several threads send, because a durable commit takes time. If all of them wait when an enqueue is due, the enqueue is
late, and its wait contains the delay. No enqueue is omitted, and the schedule does not move.
"""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from hdrh.histogram import HdrHistogram

from bench.load.histograms import histogram, record
from bench.load.load_spec import Load
from bench.load.schedule import Sending, schedule


class Clock(Protocol):
    """The time, as `fairlead.zones.engines.Clock`."""

    def now_us(self) -> int: ...

    def sleep_us(self, duration_us: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a generator: enqueues begun, measured and acknowledged, and the longest delay of a begin."""

    taken: int
    measured: int
    acknowledged: int
    late_us_max: int
    ended: bool


class Generator:
    """Generator `share` of `of`.

    Args:
      send: enqueues a `Sending`, and returns when that is durable. The second argument is the due time in
        microseconds since the epoch.
    """

    def __init__(self, load: Load, *, share: int, of: int, send: Callable[[Sending, int], None], clock: Clock) -> None:
        self._schedule = schedule(load, share=share, of=of)
        self._send = send
        self._clock = clock
        self._lock = Lock()
        self._taken = self._measured = self._acknowledged = self._late_us_max = 0
        self._exhausted = False
        self._enqueues = histogram()

    def run(self, start_us: int) -> None:
        """Send until the schedule ends. `start_us`: the beginning of the schedule. Several threads call this."""
        while (sending := self._take()) is not None:
            due_us = start_us + sending.due_us
            left_us = due_us - self._clock.now_us()
            if left_us > 0:
                self._clock.sleep_us(left_us)
            self._late_us_max = max(self._late_us_max, self._clock.now_us() - due_us)
            self._send(sending, due_us)
            with self._lock:
                self._acknowledged += 1
                if not sending.warm:
                    record(self._enqueues, self._clock.now_us() - due_us)

    def progress(self) -> Progress:
        """Return the progress."""
        with self._lock:
            ended = self._exhausted and self._acknowledged == self._taken
            return Progress(self._taken, self._measured, self._acknowledged, self._late_us_max, ended)

    def enqueues(self) -> HdrHistogram:
        """Return the durations of the measured enqueues, each from its due time until it was durable."""
        return self._enqueues

    def _take(self) -> Sending | None:
        with self._lock:
            sending = next(self._schedule, None)
            if sending is None:
                self._exhausted = True
            else:
                self._taken += 1
                self._measured += not sending.warm
            return sending
