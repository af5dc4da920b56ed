"""A kind's retry policy: exponential backoff with jitter (QuiCK section 6, Algorithm 3, line 4)."""

from dataclasses import dataclass
from random import Random

from fairlead.zones.durations import ABOVE_0, Duration, duration_us
from fairlead.zones.errors import BadArgument


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and when a kind's items are retried after a transient error.

    Args:
      attempts: how many attempts in all, 1 to 1,000,000; None: forever.
      backoff: the delay after the first failure, seconds or a `timedelta`; it doubles with each further failure.
      backoff_max: the longest delay.
      give_up_after: no attempt starts later than this after the item could first run: when it was enqueued, when its
        delay or a workflow's last wait ended, or when an operator retried it. None: no such limit.
      in_line: how many further tries a worker makes at once, under the same lease, before it counts a failure. For
        errors that pass in milliseconds.

    Raises:
      BadArgument: a value is out of range.
    """

    attempts: int | None = 20
    backoff: Duration = 1
    backoff_max: Duration = 3600
    give_up_after: Duration | None = None
    in_line: int = 0

    def __post_init__(self) -> None:
        if self.attempts is not None:
            _check_count("attempts", self.attempts, 1, 1_000_000)
        _check_count("in_line", self.in_line, 0, 100)
        _ = self.backoff_us, self.backoff_max_us, self.give_up_after_us  # Each refuses a value out of its range.

    @property
    def backoff_us(self) -> int:
        """The delay after the first failure, in microseconds."""
        return duration_us("backoff", self.backoff, low_s=ABOVE_0)

    @property
    def backoff_max_us(self) -> int:
        """The longest delay, in microseconds."""
        return duration_us("backoff_max", self.backoff_max, low_s=ABOVE_0)

    @property
    def give_up_after_us(self) -> int | None:
        """How long after the item could first run the last attempt may start, in microseconds; None: no limit."""
        if self.give_up_after is None:
            return None
        return duration_us("give_up_after", self.give_up_after, low_s=ABOVE_0, also=", or None")


def delay_us(retry: Retry, *, error_count: int, age_us: int, random: Random) -> int | None:
    """Return how long to wait before the next attempt, in microseconds, or None to give up.

    The delay is drawn from the upper half of the backoff, so that items that failed together do not run together again.

    Args:
      error_count: failures so far, this one included; 1 or more.
      age_us: how long ago the item could first run.
    """
    if retry.attempts is not None and error_count >= retry.attempts:
        return None
    backoff_us = min(retry.backoff_max_us, retry.backoff_us << min(error_count - 1, 40))
    delay = int(backoff_us * random.uniform(0.5, 1.0))
    give_up_after_us = retry.give_up_after_us
    if give_up_after_us is not None and age_us + delay > give_up_after_us:
        return None
    return delay


def _check_count(argument: str, value: int, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BadArgument(argument=argument, value=value, allowed=f"a whole number, {low:,} to {high:,}")
