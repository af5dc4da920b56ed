"""A snapshot of a store: what a transaction reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from fairlead.zones.engines.api.database import Pair


class Snapshot(Protocol):
    """A store as it was after one commit."""

    errors: tuple[type[Exception], ...]
    """The errors of `get` for the empty key and for a snapshot that has ended."""
    opened_us: int

    @property
    def get(self) -> Callable[[bytes], bytes | None]:
        """Return the value of a key, or None."""
        ...

    def get_after_error(self, key: bytes, error: Exception) -> bytes | None:
        """Return the value after `get` raised; StoreError 1007 if the snapshot has ended."""
        ...

    def version(self) -> int:
        """The version of the last commit in it."""
        ...

    def scan(self, begin: bytes, end: bytes, reverse: bool) -> Iterator[Pair]:
        """Yield the pairs of [begin, end), begin < end, in order; StoreError 1007 if the snapshot has ended."""
        ...

    def close(self) -> None:
        """Release the version that it pins."""
        ...
