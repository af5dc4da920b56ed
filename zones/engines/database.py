"""What the engines have in common: the shapes that callers meet, as the FoundationDB binding has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol


class KeyValue(NamedTuple):
    """One pair of a range read; `.key` and `.value`, and it unpacks, as the binding's does."""

    key: bytes
    value: bytes


class StreamingMode:
    """How much of a range to fetch at a time; the binding's integers. Use `want_all` for batches."""

    want_all: Final = -2
    iterator: Final = -1
    exact: Final = 0
    small: Final = 1
    medium: Final = 2
    large: Final = 3
    serial: Final = 4


@dataclass(frozen=True)
class Limits:
    """What a store accepts; beyond it the errors 2102, 2103 and 2101."""

    key_bytes_max: int
    value_bytes_max: int
    transaction_bytes_max: int


class ValueFuture(Protocol):
    """The result of `get`."""

    @property
    def value(self) -> bytes | None:
        """The value, or None if the key is not there. Waits; raises what the read raised."""
        ...

    def present(self) -> bool:
        """Whether the key is there. Waits."""
        ...

    def wait(self) -> Any:
        """Wait, and return this future itself."""
        ...

    def is_ready(self) -> bool:
        """Whether `.value` would return at once."""
        ...


class Future(Protocol):
    """The result of anything else: a commit, a watch, a version."""

    def wait(self) -> Any:
        """Wait, and return the result, or raise what went wrong."""
        ...

    def is_ready(self) -> bool:
        """Whether `wait` would return at once."""
        ...

    def on_ready(self, callback: Callable[[Any], None]) -> None:
        """Call `callback(this future)` once it is ready, from whichever thread makes it so."""
        ...


class ReadTransaction(Protocol):
    """Reads. Those of a transaction itself are reasons to conflict, those of its `.snapshot` are not."""

    def get(self, key: bytes) -> ValueFuture:
        """Return a future of the value of `key`."""
        ...

    def get_range(
        self, begin: bytes, end: bytes, limit: int = 0, reverse: bool = False, streaming_mode: int = ...
    ) -> Iterable[KeyValue]:
        """Return the pairs of [begin, end) in order, at most `limit` if that is not 0.

        The first read is sent when the range is made: make a batch of them before reading any.
        """
        ...


class Transaction(ReadTransaction, Protocol):
    """A transaction, with the names, arguments and meaning of the FoundationDB binding."""

    @property
    def snapshot(self) -> ReadTransaction:
        """The same transaction, whose reads are no reason to conflict."""
        ...

    @property
    def options(self) -> Any:
        """Setters such as `set_timeout(ms)`."""
        ...

    def set(self, key: bytes, value: bytes) -> None: ...
    def clear(self, key: bytes) -> None: ...
    def clear_range(self, begin: bytes, end: bytes) -> None: ...
    def add(self, key: bytes, param: bytes) -> None: ...
    def bit_and(self, key: bytes, param: bytes) -> None: ...
    def bit_or(self, key: bytes, param: bytes) -> None: ...
    def bit_xor(self, key: bytes, param: bytes) -> None: ...
    def max(self, key: bytes, param: bytes) -> None: ...
    def min(self, key: bytes, param: bytes) -> None: ...
    def byte_max(self, key: bytes, param: bytes) -> None: ...
    def byte_min(self, key: bytes, param: bytes) -> None: ...
    def append_if_fits(self, key: bytes, param: bytes) -> None: ...
    def compare_and_clear(self, key: bytes, param: bytes) -> None: ...
    def set_versionstamped_key(self, key: bytes, param: bytes) -> None: ...
    def set_versionstamped_value(self, key: bytes, param: bytes) -> None: ...
    def add_read_conflict_key(self, key: bytes) -> None: ...
    def add_read_conflict_range(self, begin: bytes, end: bytes) -> None: ...
    def add_write_conflict_key(self, key: bytes) -> None: ...
    def add_write_conflict_range(self, begin: bytes, end: bytes) -> None: ...
    def get_read_version(self) -> Future: ...
    def set_read_version(self, version: int) -> None: ...
    def commit(self) -> Future: ...
    def on_error(self, error: Any) -> Future: ...
    def get_committed_version(self) -> int: ...
    def get_versionstamp(self) -> ValueFuture: ...
    def get_approximate_size(self) -> Future: ...
    def watch(self, key: bytes) -> Future: ...
    def cancel(self) -> None: ...
    def reset(self) -> None: ...


class Database(Protocol):
    """An open store."""

    url: str
    limits: Limits
    errors: tuple[type[Exception], ...]
    """What `transact` catches: the class that this engine's transactions raise."""

    def create_transaction(self) -> Transaction:
        """Return a new, empty transaction."""
        ...

    def change_token(self) -> int | None:
        """Return a number that has changed if anything was committed, or None if that cannot be told cheaply.

        Costs about a microsecond and opens no transaction: an idle consumer asks many times a second.
        """
        ...

    def close(self) -> None:
        """Give the store back. Transactions still open fail; calling it twice is harmless."""
        ...


Pair = tuple[bytes, bytes]
Pairs = Iterator[Pair]
