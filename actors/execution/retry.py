"""A kind's retry policy: exponential backoff with jitter (QuiCK section 6, Algorithm 3, line 4)."""

from dataclasses import dataclass
from random import Random

from fairlead.zones.errors import BadArgument
from fairlead.zones.settings import DELAY_MS_MAX


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and when a kind's items are retried after a transient error.

    Args:
      attempts: how many attempts in all, 1 to 1,000,000; None: forever.
      backoff_ms: delay after the first failure; it doubles with each further one.
      backoff_max_ms: the longest delay.
      give_up_ms: no attempt starts later than this after the item could first run: when it was enqueued, when its delay
        ended, or when an operator retried it; None: no such limit.
      in_line: how many further tries a worker makes at once, under the same lease, before it counts a failure. For
        errors that pass in milliseconds.

    Raises:
      BadArgument: a value is out of range.
    """

    attempts: int | None = 20
    backoff_ms: int = 1_000
    backoff_max_ms: int = 3_600_000
    give_up_ms: int | None = None
    in_line: int = 0

    def __post_init__(self) -> None:
        _check("attempts", self.attempts, 1, 1_000_000)
        _check("backoff_ms", self.backoff_ms, 1, DELAY_MS_MAX)
        _check("backoff_max_ms", self.backoff_max_ms, 1, DELAY_MS_MAX)
        _check("give_up_ms", self.give_up_ms, 1, DELAY_MS_MAX)
        _check("in_line", self.in_line, 0, 100)


def delay_us(retry: Retry, *, error_count: int, age_us: int, random: Random) -> int | None:
    """Return how long to wait before the next attempt, in microseconds, or None to give up.

    The delay is drawn from the upper half of the backoff, so that items that failed together do not run together again.

    Args:
      error_count: failures so far, this one included; 1 or more.
      age_us: how long ago the item could first run.
    """
    if retry.attempts is not None and error_count >= retry.attempts:
        return None
    backoff_ms = min(retry.backoff_max_ms, retry.backoff_ms << min(error_count - 1, 40))
    delay = int(backoff_ms * 1000 * random.uniform(0.5, 1.0))
    if retry.give_up_ms is not None and age_us + delay > retry.give_up_ms * 1000:
        return None
    return delay


def _check(argument: str, value: int | None, low: int, high: int) -> None:
    if value is None and argument in ("attempts", "give_up_ms"):
        return
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BadArgument(argument=argument, value=value, allowed=f"a whole number, {low:,} to {high:,}")
