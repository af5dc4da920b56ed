"""Waiting for a watch on the caller's thread, until a timeout ends."""

from collections.abc import Callable

from fairlead.zones.engines import Clock

POLL_US_MIN, POLL_US_MAX = 1_000, 20_000  # The first poll interval, and the longest.
UNWATCHED_POLL_US = 500_000  # Between two reads if the store grants no watch: a client may have 10,000.

READ_US_MIN, READ_US_MAX = 5_000, 1_000_000  # Between two reads of a store that has no watches.

CLOCK_JUMP_US = 1_000_000  # If a sleep seems to take this much longer than asked, the clock was set ahead.


class Wait:
    """The rest of a timeout, counted from poll to poll: the clock may be set back or ahead meanwhile.

    `timeout_us` None: there is none.
    """

    def __init__(self, timeout_us: int | None, clock: Clock) -> None:
        self._clock = clock
        self._left_us = timeout_us
        self._polled_us = clock.now_us()

    def sleep(self, duration_us: int) -> bool:
        """Sleep, at most for the rest of the timeout; False if the timeout had ended already."""
        if self._left_us is None:
            self._clock.sleep_us(duration_us)
            return True
        begun_us = self._clock.now_us()
        self._left_us -= max(0, begun_us - self._polled_us)  # Since the last poll: a read of the store.
        self._polled_us = begun_us
        if self._left_us <= 0:
            return False
        asked_us = min(duration_us, self._left_us)
        self._clock.sleep_us(asked_us)
        self._polled_us = self._clock.now_us()
        slept_us = self._polled_us - begun_us
        self._left_us -= slept_us if asked_us <= slept_us <= asked_us + CLOCK_JUMP_US else asked_us
        return True


def await_change(is_ready: Callable[[], bool], wait: Wait, *, longest_us: int | None = None) -> bool:
    """Wait until a watch is ready, or for `longest_us`; False if the timeout ended first."""
    poll_us = POLL_US_MIN
    while not is_ready():
        if longest_us is not None:
            if longest_us <= 0:
                return True
            poll_us = min(poll_us, longest_us)
            longest_us -= poll_us
        if not wait.sleep(poll_us):
            return False
        poll_us = min(poll_us * 2, POLL_US_MAX)
    return True


def later_read_us(read_us: int) -> int:
    """Return how long to wait before the next read, by how long it was before this one.

    An eighth longer: a wait costs 50 reads in its first nine seconds, then one a second. A result is seen after at most
    an eighth of the time that it took.
    """
    return min(read_us + read_us // 8, READ_US_MAX)
