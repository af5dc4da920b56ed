"""Which parts of a shard a consumer looks at for pointers that sleep longer than they may, a few at each beat."""

from dataclasses import dataclass, field
from typing import Final

LATE_ROUNDS: Final = 16  # Beats in which a consumer looks at all of its parts.


@dataclass(slots=True)
class LateLook:
    """How far the look for pointers that oversleep has come on one shard.

    `ends`: of each part where it goes on. `hurries`: this clock has been set back, so all parts are looked at at once.
    """

    ends: dict[int, bytes] = field(default_factory=dict)
    hurries: bool = False
    _next: int = 0

    def next_parts(self, own: range) -> list[int]:
        """Return which of the own parts to look at now."""
        count = len(own) if self.hurries else -(-len(own) // LATE_ROUNDS)
        self.hurries = False
        first, self._next = self._next, self._next + count
        return [own[(first + number) % len(own)] for number in range(count)]
