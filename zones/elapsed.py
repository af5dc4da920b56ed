"""Elapsed time by a clock that may be set back or ahead: summed over frequent readings."""

LOOK_US_MAX = 1_000_000  # A longer time between two readings counts as this much: the clock was set ahead.


class Elapsed:
    """The time since `now_us`, up to the last reading. One thread at a time may read it."""

    __slots__ = ("_looked_us", "_passed_us")

    def __init__(self, now_us: int) -> None:
        self._looked_us = now_us
        self._passed_us = 0

    def by(self, now_us: int) -> int:
        """Return the microseconds that have passed, up to now. A clock that was set back adds nothing.

        A step of the clock hides the time since the reading before it, or adds at most `LOOK_US_MAX`.
        """
        since_us = now_us - self._looked_us
        if since_us > 0:
            self._passed_us += since_us if since_us < LOOK_US_MAX else LOOK_US_MAX
        self._looked_us = now_us
        return self._passed_us
