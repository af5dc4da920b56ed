"""A FoundationDB transaction that calls the client's C library directly, for the product's own bodies.

Each call of the binding makes several Python calls, and releases and takes the interpreter lock. Each value that it
reads is several objects. A body of the product reads and writes hundreds of keys by the same few calls. This module
makes these calls directly; calls that never wait keep the interpreter lock. The gain is stated in
`docs/decisions/032-writes-on-foundationdb.md`.

Reads are sent together. The first read is sent at once, because it requests the read version. Later reads are sent when
the first answer is waited for, or before the next write. Sent one by one, each read would wake the client's thread.

The binding does all waits, and every call that is not here.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from fairlead.zones.engines.api.database import KeyValue, Reads

ADD: Final = 2  # A mutation type of the client.
COMPARE_AND_CLEAR: Final = 20
READ: Final = 0  # A conflict range type of the client.
WRITE: Final = 1
ITERATOR: Final = -1  # The streaming mode that the binding takes if none is named.
_ROW: Final = struct.Struct("<QiQi")  # Address and length of a key, address and length of its value.

_bytes_at = ctypes.string_at


class Client:
    """The functions of the client's library that a transaction calls.

    Args:
      library: its name or path, as the binding has loaded it.
      wait: waits for a future.
      error: makes the binding's error of a code.
    """

    def __init__(self, library: str, wait: Callable[[int], None], error: Callable[[int], Exception]) -> None:
        self.wait = wait
        self.error = error
        # None of these waits for the client's network thread, so each keeps the interpreter lock.
        calls = ctypes.PyDLL(library)
        pointer, key, size, flag = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int
        out = ctypes.POINTER
        self.set = _function(calls.fdb_transaction_set, None, pointer, key, size, key, size)
        self.clear = _function(calls.fdb_transaction_clear, None, pointer, key, size)
        self.clear_range = _function(calls.fdb_transaction_clear_range, None, pointer, key, size, key, size)
        self.atomic_op = _function(calls.fdb_transaction_atomic_op, None, pointer, key, size, key, size, flag)
        self.add_conflict_range = _function(
            calls.fdb_transaction_add_conflict_range, ctypes.c_int, pointer, key, size, key, size, flag
        )
        self.get = _function(calls.fdb_transaction_get, pointer, pointer, key, size, flag)
        selector = key, size, flag, ctypes.c_int
        how = (ctypes.c_int,) * 4 + (flag, flag)  # limit, bytes, mode, iteration; snapshot, reverse
        self.get_range = _function(calls.fdb_transaction_get_range, pointer, pointer, *selector, *selector, *how)
        self.is_ready = _function(calls.fdb_future_is_ready, ctypes.c_int, pointer)
        self.value_of = _function(
            calls.fdb_future_get_value, ctypes.c_int, pointer, out(ctypes.c_int), out(pointer), out(ctypes.c_int)
        )
        self.rows_of = _function(
            calls.fdb_future_get_keyvalue_array, ctypes.c_int, pointer, out(pointer), out(ctypes.c_int),
            out(ctypes.c_int),
        )  # fmt: skip
        self.destroy = _function(calls.fdb_future_destroy, None, pointer)

    def raise_for(self, code: int) -> None:
        """Raise the error of a code, unless that is 0."""
        if code:
            raise self.error(code)


def _function(function: Any, answer: Any, *arguments: Any) -> Any:
    function.restype = answer
    function.argtypes = arguments
    return function


class _Bound(Reads, Protocol):
    """The binding's reads, with the pointer to the client's transaction."""

    tpointer: int


class _Binding(_Bound, Protocol):
    """A transaction of the binding."""

    snapshot: _Bound


class _Reads:
    """The reads of a transaction, or of its snapshot."""

    __slots__ = ("_client", "_out", "_pointer", "_reader", "_snapshot")

    def __init__(self, client: Client, reader: _Bound, out: _Out, *, snapshot: bool) -> None:
        self._client = client
        self._reader = reader
        self._pointer = reader.tpointer
        self._out = out
        self._snapshot = snapshot

    def __getattr__(self, name: str) -> Any:
        self._out.send()
        return getattr(self._reader, name)

    def get(self, key: bytes) -> _Value:
        """See `Reads`."""
        value = _Value(self, key)
        self._out.plan(value)
        return value

    def get_range(
        self, begin: bytes, end: bytes, limit: int = 0, reverse: bool = False, streaming_mode: int = ITERATOR
    ) -> _Rows:
        """See `Reads`; both ends are keys."""
        rows = _Rows(self, begin, end, limit, reverse, streaming_mode)
        self._out.plan(rows)
        return rows

    def send_reads(self) -> None:
        """Send the planned reads."""
        self._out.send()

    def send_get(self, key: bytes) -> int:
        """Send the read of a key, and return its future."""
        future: int = self._client.get(self._pointer, key, len(key), self._snapshot)
        return future

    def send_range(self, begin: bytes, end: bytes, limit: int, mode: int, iteration: int, reverse: bool) -> int:
        """Send the read of a range, and return its future."""
        future: int = self._client.get_range(
            self._pointer, begin, len(begin), 0, 1, end, len(end), 0, 1, limit, 0, mode, iteration, self._snapshot,
            reverse,
        )  # fmt: skip
        return future

    def take_value(self, future: int) -> bytes | None:
        """Return the value of a future."""
        client, out = self._client, self._out
        if not client.is_ready(future):
            client.wait(future)
        client.raise_for(client.value_of(future, out.flag_at, out.address_at, out.length_at))
        return _bytes_at(out.address.value, out.length.value) if out.flag.value else None  # type: ignore[arg-type]

    def take_rows(self, future: int) -> tuple[list[KeyValue], bool]:
        """Return the rows of a future, and whether there are more."""
        client, out = self._client, self._out
        if not client.is_ready(future):
            client.wait(future)
        client.raise_for(client.rows_of(future, out.address_at, out.length_at, out.flag_at))
        table = _bytes_at(out.address.value, _ROW.size * out.length.value) if out.length.value else b""  # type: ignore[arg-type]
        rows = [
            KeyValue(_bytes_at(key, key_bytes), _bytes_at(value, value_bytes))
            for key, key_bytes, value, value_bytes in _ROW.iter_unpack(table)
        ]
        return rows, bool(out.flag.value)

    def destroy(self, future: int) -> None:
        """Destroy a future."""
        self._client.destroy(future)


class _Out:
    """State that the reads of one transaction share: the planned reads, and the memory for the client's answers."""

    __slots__ = ("_planned", "_sent_one", "address", "address_at", "flag", "flag_at", "length", "length_at")

    def __init__(self) -> None:
        self.flag, self.address, self.length = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int()
        self.flag_at, self.address_at = ctypes.byref(self.flag), ctypes.byref(self.address)
        self.length_at = ctypes.byref(self.length)
        self._planned: list[_Value | _Rows] = []
        self._sent_one = False

    def plan(self, read: _Value | _Rows) -> None:
        """Plan a read, to be sent with others. The first one is sent at once."""
        if self._sent_one:
            self._planned.append(read)
        else:
            self._sent_one = True
            read.send()

    def send(self) -> None:
        """Send the planned reads."""
        if self._planned:
            planned, self._planned = self._planned, []
            for read in planned:
                read.send()


class DirectTransaction(_Reads):
    """A transaction of the binding. Its usual calls go to the client directly."""

    __slots__ = ("snapshot",)

    def __init__(self, client: Client, tr: _Binding) -> None:
        out = _Out()
        super().__init__(client, tr, out, snapshot=False)
        self.snapshot = _Reads(client, tr.snapshot, out, snapshot=True)

    def set(self, key: bytes, value: bytes) -> None:
        """See `Transaction`."""
        self._out.send()
        self._client.set(self._pointer, key, len(key), value, len(value))

    def clear(self, key: bytes) -> None:
        """See `Transaction`."""
        self._out.send()
        self._client.clear(self._pointer, key, len(key))

    def clear_range(self, begin: bytes, end: bytes) -> None:
        """See `Transaction`."""
        self._out.send()
        self._client.clear_range(self._pointer, begin, len(begin), end, len(end))

    def add(self, key: bytes, param: bytes) -> None:
        """See `Transaction`."""
        self._mutate(key, param, ADD)

    def compare_and_clear(self, key: bytes, param: bytes) -> None:
        """See `Transaction`."""
        self._mutate(key, param, COMPARE_AND_CLEAR)

    def _mutate(self, key: bytes, param: bytes, how: int) -> None:
        self._out.send()
        self._client.atomic_op(self._pointer, key, len(key), param, len(param), how)

    def add_read_conflict_key(self, key: bytes) -> None:
        """See `Transaction`."""
        self._add_conflict(key, key + b"\x00", READ)

    def add_read_conflict_range(self, begin: bytes, end: bytes) -> None:
        """See `Transaction`."""
        self._add_conflict(begin, end, READ)

    def add_write_conflict_key(self, key: bytes) -> None:
        """See `Transaction`."""
        self._add_conflict(key, key + b"\x00", WRITE)

    def add_write_conflict_range(self, begin: bytes, end: bytes) -> None:
        """See `Transaction`."""
        self._add_conflict(begin, end, WRITE)

    def _add_conflict(self, begin: bytes, end: bytes, kind: int) -> None:
        self._out.send()
        client = self._client
        client.raise_for(client.add_conflict_range(self._pointer, begin, len(begin), end, len(end), kind))


class _Value:
    """The future of a value."""

    __slots__ = ("_future", "_key", "_reads", "_value")

    def __init__(self, reads: _Reads, key: bytes) -> None:
        self._reads = reads  # Keeps the transaction alive: a dropped one cancels its reads.
        self._key: bytes | None = key  # None once the value is here.
        self._future = 0
        self._value: bytes | None = None

    def __del__(self) -> None:
        if self._future:
            self._reads.destroy(self._future)

    def send(self) -> None:
        """Send the read."""
        assert self._key is not None
        self._future = self._reads.send_get(self._key)

    @property
    def value(self) -> bytes | None:
        """The value; None if there is none. Waits for it."""
        if self._key is not None:
            reads = self._reads
            reads.send_reads()
            self._value = reads.take_value(self._future)
            reads.destroy(self._future)
            self._key, self._future = None, 0
        return self._value

    def present(self) -> bool:
        """Return whether there is a value. Waits for it."""
        return self.value is not None

    def wait(self) -> _Value:
        """Wait for the value."""
        _ = self.value
        return self


class _Rows:
    """The rows of a range."""

    __slots__ = ("_begin", "_end", "_future", "_limit", "_mode", "_reads", "_reverse")

    def __init__(self, reads: _Reads, begin: bytes, end: bytes, limit: int, reverse: bool, mode: int) -> None:
        self._reads = reads
        self._begin = begin
        self._end = end
        self._limit = limit
        self._reverse = reverse
        self._mode = mode
        self._future = 0

    def __del__(self) -> None:
        if self._future:
            self._reads.destroy(self._future)

    def send(self) -> None:
        """Send the first read."""
        self._future = self._reads.send_range(self._begin, self._end, self._limit, self._mode, 1, self._reverse)

    def __iter__(self) -> Iterator[KeyValue]:
        reads = self._reads
        reads.send_reads()
        rows, more = reads.take_rows(self._future)
        yield from rows
        begin, end, left, iteration = self._begin, self._end, self._limit, 1
        while more and rows:
            left -= len(rows) if self._limit else 0
            if self._limit and left <= 0:
                return
            if self._reverse:
                end = rows[-1].key
            else:
                begin = rows[-1].key + b"\x00"
            iteration += 1
            future = reads.send_range(begin, end, left, self._mode, iteration, self._reverse)
            try:
                rows, more = reads.take_rows(future)
            finally:
                reads.destroy(future)
            yield from rows
