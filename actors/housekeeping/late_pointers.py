"""Which parts of a shard a consumer searches for pointers that sleep longer than they may, and how far, per heartbeat.

Normally it reads a few entries of some parts at each heartbeat, one part after the other. Once there is evidence that a
clock was ahead, the search is urgent: at each heartbeat it continues, until each part has been read from its end to
where no pointer can oversleep. Between the two lie pointers that may sleep for long, possibly many.
"""

from dataclasses import dataclass, field
from typing import Final

LATE_HEARTBEATS: Final = 16  # Heartbeats in which a consumer searches all of its parts.
LATE_MAX: Final = 64  # Index entries that it reads in a part at a time, the latest ones.
URGENT_MAX: Final = 2_000  # The same, if urgent: they are read, and if needed woken, in one transaction.
HEARTBEAT_ENTRIES_MAX: Final = 8_000  # Entries per heartbeat, if urgent: some 50 ms.


@dataclass(slots=True)
class LatePointerScan:
    """How far the search for pointers that oversleep has come on one shard.

    `is_urgent`: until all parts have been read to their end. `ends`: where the search continues in each part.
    """

    ends: dict[int, bytes] = field(default_factory=dict)
    is_urgent: bool = False
    _read: set[int] = field(default_factory=set)  # parts that this urgent search has finished
    _next: int = 0

    @property
    def entries_max(self) -> int:
        """How many entries of a part to read in a transaction."""
        return URGENT_MAX if self.is_urgent else LATE_MAX

    def make_urgent(self) -> None:
        """Search all parts as soon as possible, from their ends: a clock that was ahead has put pointers there."""
        self.is_urgent = True
        self.ends.clear()
        self._read.clear()

    def next_parts(self, own: range) -> list[int]:
        """Return which of the consumer's own parts to search now."""
        if self.is_urgent:
            return [part for part in own if part not in self._read]
        count = -(-len(own) // LATE_HEARTBEATS)
        first, self._next = self._next, self._next + count
        return [own[(first + number) % len(own)] for number in range(count)]

    def note(self, part: int, end: bytes, own: range) -> None:
        """Note where the search of a part continues; empty: the part is finished."""
        self.ends[part] = end
        if self.is_urgent and not end:
            self._read.add(part)
            self.is_urgent = not self._read.issuperset(own)
