"""Which parts of a shard a consumer looks at for pointers that sleep longer than they may, and how far, at each beat.

It looks at a little of some parts at each beat, one part after the other. Once it has reason to believe that a clock
was ahead, it hurries: it goes on, beat after beat, until each of its parts has been read from its end to where no
pointer can oversleep. Pointers that may sleep for long lie in between, and there may be many.
"""

from dataclasses import dataclass, field
from typing import Final

LATE_HEARTBEATS: Final = 16  # Beats in which a consumer looks at all of its parts.
LATE_MAX: Final = 64  # Index entries that it looks at in a part at a time, the latest of all.
URGENT_MAX: Final = 2_000  # The same, in a hurry: they are read, and if need be woken, in one transaction.
HEARTBEAT_ENTRIES_MAX: Final = 8_000  # Entries in a beat, if it hurries: some 50 ms.


@dataclass(slots=True)
class LatePointerScan:
    """How far the look for pointers that oversleep has come on one shard.

    `is_urgent`: until all parts have been read to their end. `ends`: of each part where it goes on.
    """

    ends: dict[int, bytes] = field(default_factory=dict)
    is_urgent: bool = False
    _read: set[int] = field(default_factory=set)  # parts that this hurried look is done with
    _next: int = 0

    @property
    def entries_max(self) -> int:
        """How many entries of a part to look at in a transaction."""
        return URGENT_MAX if self.is_urgent else LATE_MAX

    def make_urgent(self) -> None:
        """Look at all parts as soon as may be, from their ends: pointers were put there by a clock that was ahead."""
        self.is_urgent = True
        self.ends.clear()
        self._read.clear()

    def next_parts(self, own: range) -> list[int]:
        """Return which of the own parts to look at now."""
        if self.is_urgent:
            return [part for part in own if part not in self._read]
        count = -(-len(own) // LATE_HEARTBEATS)
        first, self._next = self._next, self._next + count
        return [own[(first + number) % len(own)] for number in range(count)]

    def note(self, part: int, end: bytes, own: range) -> None:
        """Note where the look at a part goes on; empty: it has been read."""
        self.ends[part] = end
        if self.is_urgent and not end:
            self._read.add(part)
            self.is_urgent = not self._read.issuperset(own)
