"""The event log: what happened in a run, one short line per event. The same seed gives the same lines, byte for byte.

Lines hold no addresses, no real times, and nothing that depends on the order of a set. Addresses are taken out here: an
application prints them, and its errors name objects by them.
"""

import re
from collections.abc import Sequence
from hashlib import blake2b

_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


class EventLog:
    """The lines of a run."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, line: str) -> None:
        """Append a line, without addresses."""
        self.lines.append(_ADDRESS.sub("0x...", line) if "0x" in line else line)

    def digest(self) -> str:
        """Return a hash of all lines: two runs were the same if theirs is."""
        return blake2b("\n".join(self.lines).encode(), digest_size=16).hexdigest()

    def tail(self, lines_max: int) -> Sequence[str]:
        """Return the last lines."""
        return self.lines[-lines_max:]
