"""The interface that all engines have in common, as the FoundationDB binding has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
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
    """The largest key, value and transaction of a store; larger ones fail with 2102, 2103 and 2101."""

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


class KeyFuture(Protocol):
    """The result of `get_versionstamp`."""

    @property
    def value(self) -> bytes:
        """The bytes. Waits; raises what the commit raised."""
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
        """Call `callback(this future)` once it is ready, on the thread that makes it ready.

        The callback must not wait for the store: on FoundationDB this thread delivers all answers.
        """
        ...


class Reads(Protocol):
    """Reads. Reads of a transaction itself can conflict; reads of its `.snapshot` cannot."""

    def get(self, key: bytes) -> ValueFuture:
        """Return a future of the value of `key`."""
        ...

    def get_range(
        self,
        begin: bytes | None,
        end: bytes | None,
        limit: int = 0,
        reverse: bool = False,
        streaming_mode: int = ...,
    ) -> Iterable[KeyValue]:
        """Return the pairs of [begin, end) in order, at most `limit` if that is not 0; None is the first or last key.

        The first read is sent when the range is made: make a batch of them before reading any.
        """
        ...


class Reader(Protocol):
    """A transaction for functions that conflict with nothing and write nothing.

    A function that takes a `Reader` cannot read with conflict, so its result must not decide a write. Every transaction
    is a `Reader`, but a `Reader` is no `Transaction`: the type checker reports where one is passed for the other.
    """

    @property
    def snapshot(self) -> Reads:
        """The transaction's reads that cannot conflict."""
        ...


class Transaction(Reads, Reader, Protocol):
    """A transaction, with the names, arguments and meaning of the FoundationDB binding."""

    @property
    def options(self) -> Any:
        """Setters such as `set_timeout(ms)`."""
        ...

    def set(self, key: bytes, value: bytes) -> None:
        """Set a key."""
        ...

    def clear(self, key: bytes) -> None:
        """Clear a key."""
        ...

    def clear_range(self, begin: bytes, end: bytes) -> None:
        """Clear [begin, end)."""
        ...

    def add(self, key: bytes, param: bytes) -> None:
        """Add little-endian integers; the value becomes as long as `param`."""
        ...

    def bit_and(self, key: bytes, param: bytes) -> None:
        """Combine bitwise by and."""
        ...

    def bit_or(self, key: bytes, param: bytes) -> None:
        """Combine bitwise by or."""
        ...

    def bit_xor(self, key: bytes, param: bytes) -> None:
        """Combine bitwise by exclusive or."""
        ...

    def max(self, key: bytes, param: bytes) -> None:
        """Keep the larger little-endian integer."""
        ...

    def min(self, key: bytes, param: bytes) -> None:
        """Keep the smaller little-endian integer."""
        ...

    def byte_max(self, key: bytes, param: bytes) -> None:
        """Keep the lexicographically larger string."""
        ...

    def byte_min(self, key: bytes, param: bytes) -> None:
        """Keep the lexicographically smaller string."""
        ...

    def append_if_fits(self, key: bytes, param: bytes) -> None:
        """Append, unless the value would exceed its limit."""
        ...

    def compare_and_clear(self, key: bytes, param: bytes) -> None:
        """Clear the key if its value equals `param`."""
        ...

    def set_versionstamped_key(self, key: bytes, param: bytes) -> None:
        """Set a key that receives the commit's versionstamp."""
        ...

    def set_versionstamped_value(self, key: bytes, param: bytes) -> None:
        """Set a value that receives the commit's versionstamp."""
        ...

    def add_read_conflict_key(self, key: bytes) -> None:
        """Conflict with changes of `key`, as if read."""
        ...

    def add_read_conflict_range(self, begin: bytes, end: bytes) -> None:
        """Conflict with changes in [begin, end), as if read."""
        ...

    def add_write_conflict_key(self, key: bytes) -> None:
        """Make readers of `key` conflict, as if written."""
        ...

    def add_write_conflict_range(self, begin: bytes, end: bytes) -> None:
        """Make readers in [begin, end) conflict, as if written."""
        ...

    def get_read_version(self) -> Future:
        """Return a future of the version that this transaction reads at."""
        ...

    def set_read_version(self, version: int) -> None:
        """Read at a version that another transaction got."""
        ...

    def commit(self) -> Future:
        """Start the commit; its future raises 1020 on a conflict. Keep the transaction until it is ready."""
        ...

    def on_error(self, error: Any) -> Future:
        """Return a future that backs off and resets if the error is retryable, and raises it otherwise."""
        ...

    def get_committed_version(self) -> int:
        """Return the version of the commit; -1 if nothing was written."""
        ...

    def get_versionstamp(self) -> KeyFuture:
        """Return a future of the commit's ten-byte stamp; ask before the commit."""
        ...

    def get_approximate_size(self) -> Future:
        """Return a future of the size in bytes that counts against the limit."""
        ...

    def watch(self, key: bytes) -> Future:
        """Return a future that is ready once `key` has another value, after the commit."""
        ...

    def cancel(self) -> None:
        """End the transaction: every later step fails with 1025."""
        ...

    def reset(self) -> None:
        """Return the transaction to its initial state."""
        ...


class Listener(Protocol):
    """Waits for commits of other processes. One thread at a time."""

    def wait(self, timeout_s: float) -> bool:
        """Return True soon after a commit, one before this call included; False if there is none in time."""
        ...

    def close(self) -> None:
        """End all waits."""
        ...


class Database(Protocol):
    """An open store."""

    url: str
    limits: Limits
    errors: tuple[type[Exception], ...]
    """The classes of errors that this engine's transactions raise; `transact` catches them."""
    results_can_be_unknown: bool
    """Whether the result of a commit can be unknown (1021); False on the engines in this process."""

    def exclusive_section(self) -> AbstractContextManager[object]:
        """Return the context for a body of hundreds of reads and writes.

        LMDB's binding releases the interpreter lock in each call. Two long bodies in one process would pass this lock
        to each other at every read, at ten times the cost of the read. In the section they run one at a time. It only
        saves time: after some milliseconds a waiting body goes on without it. On other engines the context does
        nothing.
        """
        ...

    def burst(self, tr: Transaction) -> AbstractContextManager[Transaction]:
        """Return a context with the transaction to write through. All writes are done at the end of the context.

        On FoundationDB each write wakes a thread of the client, so writes are buffered and done together; see
        `write_bursts`. It only saves time. On other engines it is the transaction itself.
        """
        ...

    def create_transaction(self) -> Transaction:
        """Return a new, empty transaction."""
        ...

    def commit_sequence(self) -> int | None:
        """Return a number that changes with every commit, or None if this engine has no cheap one.

        Costs about a microsecond and opens no transaction: an idle consumer asks many times a second.
        """
        ...

    def listener(self) -> Listener | None:
        """Return a listener for commits of other processes; None if this engine or this machine has none.

        Notifications are best effort: one may be lost, or come without a commit. The caller closes the listener.
        """
        ...

    def close(self) -> None:
        """Close the store. Open transactions fail. A second call does nothing."""
        ...


Pair = tuple[bytes, bytes]
