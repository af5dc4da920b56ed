"""The event log: what happened in a run, one short line per event. The same seed gives the same lines, byte for byte.

Lines hold no addresses, no real times, and nothing that depends on the order of a set.
"""

from collections.abc import Sequence
from hashlib import blake2b


class EventLog:
    """The lines of a run."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.add = self.lines.append

    def digest(self) -> str:
        """Return a hash of all lines: two runs were the same if theirs is."""
        return blake2b("\n".join(self.lines).encode(), digest_size=16).hexdigest()

    def tail(self, lines_max: int) -> Sequence[str]:
        """Return the last lines."""
        return self.lines[-lines_max:]
