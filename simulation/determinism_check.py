"""Whether a seed can be replayed: two runs are compared event by event."""

from collections.abc import Callable
from itertools import zip_longest
from typing import NamedTuple

from fairlead.simulation.trial import Report


class Difference(NamedTuple):
    """The first difference of two runs of one seed: the event's number, and the event in each run; None: it had ended.

    Without a number, the runs differ between processes, but not within one.
    """

    event: int | None
    first: str | None
    second: str | None


def first_difference(events: str, again: Callable[[], Report]) -> Difference | None:
    """Return where the runs of a seed differ; None if it is the same run every time.

    Args:
      events: the digest of the events of an earlier run.
      again: runs the same seed.
    """
    first = again()
    if first.events == events:
        return None
    lines = enumerate(zip_longest(first.lines, again().lines), start=1)
    for number, (one, other) in lines:
        if one != other:
            return Difference(number, one, other)
    return Difference(None, None, None)
