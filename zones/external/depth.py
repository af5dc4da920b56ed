"""How much lies in an external store, or in one of its queues."""

from collections.abc import Mapping
from typing import NamedTuple


class Depth(NamedTuple):
    """How much a store or a queue holds.

    Attributes:
      kinds: items that wait, are delayed or leased, by kind, of those that were counted.
      waits_us: how long the oldest that can be leased has waited, of those that were read; None: none can.
      whole: whether all were counted.
    """

    kinds: Mapping[str, int]
    waits_us: int | None
    whole: bool
