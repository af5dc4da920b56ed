"""The event log: what happened in a run, one short line per event. The same seed gives the same lines, byte for byte.

Lines have no addresses, no real times, and no order that depends on a set. This module removes addresses, which an
application may print, and which are in the names of objects in errors.
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
        """Return a hash of all lines. Two runs were the same if their hashes are."""
        return blake2b("\n".join(self.lines).encode(), digest_size=16).hexdigest()

    def tail(self, lines_max: int) -> Sequence[str]:
        """Return the last lines."""
        return self.lines[-lines_max:]
