"""Durations as a user of the queue gives them, and as the code keeps them.

A user gives seconds or a `timedelta`, without a unit in the argument's name. The code keeps whole microseconds or
milliseconds, with the unit in the name. Everything in between is here: one check, one error.
"""

from datetime import timedelta
from typing import Any

from fairlead.zones.errors import BadArgument

Duration = float | timedelta

DAY_S = 24 * 3600
DELAY_S_MAX = 10 * 365 * DAY_S  # A longer delay is a mistaken unit.

_MICROSECOND = timedelta(microseconds=1)


def duration_us(argument: str, value: Any, *, low_s: float = 0, high_s: float = DELAY_S_MAX, also: str = "") -> int:
    """Return a duration in whole microseconds, at least one if it is above 0.

    Args:
      argument: the name of the argument that holds it, for the error.
      value: seconds, or a `timedelta`.
      low_s, high_s: the range that is accepted, in seconds.
      also: what the argument takes besides a duration, for the error, such as ", or None".

    Raises:
      BadArgument: it is neither a number nor a `timedelta`, or is out of range.
    """
    if type(value) is int and value == 0 == low_s:
        return 0  # The usual delay, on the way of each enqueue.
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not low_s <= seconds <= high_s:  # NaN is in no range.
        allowed = f"seconds or a timedelta, {_in_words(low_s)} to {high_s:,} s{also}"
        raise BadArgument(argument=argument, value=value, allowed=allowed)
    exact_us: int = value // _MICROSECOND if isinstance(value, timedelta) else round(seconds * 1_000_000)
    return max(1, exact_us) if seconds > 0 else exact_us


ABOVE_0 = 1e-9  # As `low_s`: any duration that is longer than none.


def _in_words(low_s: float) -> str:
    return "above 0" if low_s == ABOVE_0 else f"{low_s:,}"
