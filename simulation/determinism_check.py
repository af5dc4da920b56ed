"""Whether a seed can be replayed: the same world twice, event by event."""

from collections.abc import Callable
from itertools import zip_longest
from typing import NamedTuple

from fairlead.simulation.trial import Report


class Difference(NamedTuple):
    """Where two runs of one seed went two ways: the number of the event, and what it was in either; None: no more.

    Without an event, they differ from one process to another, and not within one.
    """

    event: int | None
    first: str | None
    second: str | None


def first_difference(events: str, again: Callable[[], Report]) -> Difference | None:
    """Return where the runs of a seed differ; None if it is the same run every time.

    Args:
      events: the digest of the events of a run that has been.
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
