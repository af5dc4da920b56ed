"""What the operations of one transaction write to the keys of parts: one write to a key, whatever their number.

A bulk of a hundred zones lies in sixteen parts at most, and each write costs the client and the store.
"""

from collections import Counter

from fairlead.zones.engines import Transaction

_ONE = (1).to_bytes(8, "little")
_ZERO = bytes(8)


class PartWrites:
    """Atomic adds that are gathered; the caller writes them once all operations have ended. May run twice."""

    __slots__ = ("_changes", "_woken")

    def __init__(self) -> None:
        self._changes: Counter[bytes] = Counter()
        self._woken: set[bytes] = set()

    def count(self, key: bytes, change: int) -> None:
        """Change a count; see `add_to_count`."""
        self._changes[key] += change

    def wake_watchers(self, key: bytes) -> None:
        """Wake the watchers of a part's key."""
        self._woken.add(key)

    def write(self, tr: Transaction) -> None:
        """Write what was gathered: atomic adds, no reads, no conflicts."""
        for key, change in sorted(self._changes.items()):
            add_to_count(tr, key, change)
        for key in sorted(self._woken):
            wake_watchers(tr, key)


def add_to_count(tr: Transaction, key: bytes, change: int) -> None:
    """Add `change` to a count; its key goes when it reaches zero. Atomic."""
    if change:
        tr.add(key, change.to_bytes(8, "little", signed=True))
    if change < 0:
        tr.compare_and_clear(key, _ZERO)


def wake_watchers(tr: Transaction, key: bytes) -> None:
    """Change a key that is watched. Atomic."""
    tr.add(key, _ONE)
