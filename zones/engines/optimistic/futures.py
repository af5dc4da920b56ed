"""Results that the binding returns before they exist. Here nearly all of them exist already.

The memory and embedded engines read at once, so a read's future is a small object with the value in a slot, without
locks; the only futures that wait are those of commits, watches and versionstamps, each beside what it waits for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from fairlead.zones.engines.api.errors import StoreError

_T = TypeVar("_T")


class Value(msgspec.Struct, gc=False, eq=False):
    """A value that has been read; None if the key is not there.

    Thousands are created and dropped each second, so the garbage collector does not track this structure.
    """

    value: bytes | None

    def present(self) -> bool:
        """Whether the key is there."""
        return self.value is not None

    def wait(self) -> Value:
        """Return this future itself, as the binding does."""
        return self

    def is_ready(self) -> bool:
        """True: the read has happened."""
        return True

    def block_until_ready(self) -> None:
        """Return at once."""

    def on_ready(self, callback: Callable[[Any], None]) -> None:
        """Call `callback(self)` now."""
        callback(self)


class FailedValue:
    """A failed read. Its error is raised when the value is used, as in the binding."""

    __slots__ = ("_error",)

    def __init__(self, error: StoreError) -> None:
        self._error = error

    @property
    def value(self) -> bytes | None:
        """Raises what the read raised."""
        raise self._error

    def present(self) -> bool:
        """Raises what the read raised."""
        raise self._error

    def wait(self) -> FailedValue:
        """Raises what the read raised."""
        raise self._error

    def is_ready(self) -> bool:
        """True: an error is a result."""
        return True

    def block_until_ready(self) -> None:
        """Return at once."""

    def on_ready(self, callback: Callable[[Any], None]) -> None:
        """Call `callback(self)` now."""
        callback(self)


class ReadyFuture(Generic[_T]):
    """A result that is known already, or the error instead of it."""

    __slots__ = ("_error", "_result")

    def __init__(self, result: _T, error: StoreError | None = None) -> None:
        self._result = result
        self._error = error

    def wait(self) -> _T:
        """Return the result or raise the error."""
        if self._error is not None:
            raise self._error
        return self._result

    def is_ready(self) -> bool:
        """True."""
        return True

    def block_until_ready(self) -> None:
        """Return at once."""

    def on_ready(self, callback: Callable[[Any], None]) -> None:
        """Call `callback(self)` now."""
        callback(self)
