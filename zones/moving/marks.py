"""Marks: what was changed of a tenant while it moves, so that the mover copies it once more.

A transaction learns from the ownership record that the tenant moves, and then every write below the tenant writes a
mark, too. Other transactions cost nothing: only one that meets a moving tenant begins again as a `MarkingTransaction`.

    (ROOT, DB, app, user, MARK, hash of the range) -> nonce, length of `begin`, begin, end

The hash makes two writes of one key write one mark. The nonce is another one in each attempt. A mark is cleared only if
it still has the nonce that was read with the values: then nobody has written to its range since.
"""

from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

from fairlead.zones.engines import KeyValue, Reader, Transaction
from fairlead.zones.keyspace import TenantKeys, pack_bytes, range_begin, range_end
from fairlead.zones.queue.index_scan import WANT_ALL

NONCE_BYTES = 8
_HASH_BYTES = 16
_LENGTH_BYTES = 4
_OFFSET_BYTES = 4  # of a versionstamped key: where the stamp goes
_STAMP_BYTES = 10
_WRITES_OF_ONE_KEY = frozenset(
    {
        "append_if_fits",
        "bit_and",
        "bit_or",
        "bit_xor",
        "byte_max",
        "byte_min",
        "compare_and_clear",
        "max",
        "min",
        "set_versionstamped_value",
    }
)


def is_marking(tr: Reader) -> bool:
    """Say whether a transaction has met a tenant that moves, and marks what it writes there."""
    return bool(getattr(tr, "marks_any", False))


class TenantMoving(Exception):
    """The transaction writes to a tenant that moves, and marks nothing. `Shard.transact` begins it again with marks."""


class Mark(NamedTuple):
    """A range that was written to, and the stored pair that says so."""

    begin: bytes
    end: bytes
    key: bytes
    value: bytes

    @property
    def is_single(self) -> bool:
        """Whether it is the range of one key."""
        return self.end == self.begin + b"\x00"


class MarkingTransaction:
    """A transaction that marks what it writes below tenants that move.

    It learns of such a tenant when the tenant's ownership record is checked, which may be after its first writes there.

    Attributes:
      pause_us: how long the caller is to wait after the commit, so that the mover catches up.
    """

    def __init__(self, tr: Transaction, nonce: bytes) -> None:
        self._tr = tr
        self._nonce = nonce
        self._written: dict[tuple[bytes, bytes], None] = {}
        self._moving: dict[bytes, bytes] = {}  # prefixes of tenants, and those of their marks
        self.snapshot = tr.snapshot
        self.get, self.get_range = tr.get, tr.get_range
        self.pause_us = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._tr, name)
        return partial(self._write_one, method) if name in _WRITES_OF_ONE_KEY else method

    def _write_one(self, write: Callable[[bytes, bytes], None], key: bytes, param: bytes) -> None:
        write(key, param)
        self._note(key, key + b"\x00")

    @property
    def marks_any(self) -> bool:
        """Whether it has met a tenant that moves."""
        return bool(self._moving)

    def mark_below(self, keys: TenantKeys, pause_us: int) -> None:
        """Mark all writes below a tenant, also those before this call."""
        self.pause_us = max(self.pause_us, pause_us)
        if keys.prefix not in self._moving:
            self._moving[keys.prefix] = keys.marks
            for begin, end in self._written:
                self._write_mark(keys.prefix, begin, end)

    def set(self, key: bytes, value: bytes) -> None:
        """See `Transaction`."""
        self._tr.set(key, value)
        self._note(key, key + b"\x00")

    def clear(self, key: bytes) -> None:
        """See `Transaction`."""
        self._tr.clear(key)
        self._note(key, key + b"\x00")

    def clear_range(self, begin: bytes, end: bytes) -> None:
        """See `Transaction`."""
        self._tr.clear_range(begin, end)
        self._note(begin, end)

    def add(self, key: bytes, param: bytes) -> None:
        """See `Transaction`."""
        self._tr.add(key, param)
        self._note(key, key + b"\x00")

    def set_versionstamped_key(self, key: bytes, param: bytes) -> None:
        """Mark all keys that the stamp may make of it."""
        self._tr.set_versionstamped_key(key, param)
        at = int.from_bytes(key[-_OFFSET_BYTES:], "little")
        self._note(key[:at], key[:at] + b"\xff" * (_STAMP_BYTES + 1))

    def _note(self, begin: bytes, end: bytes) -> None:
        if (begin, end) not in self._written:
            self._written[begin, end] = None
            for prefix in self._moving:
                self._write_mark(prefix, begin, end)

    def _write_mark(self, prefix: bytes, begin: bytes, end: bytes) -> None:
        begin, end = max(begin, range_begin(prefix)), min(end, range_end(prefix))
        if begin < end:
            digest = blake2b(len(begin).to_bytes(_LENGTH_BYTES, "big") + begin + end, digest_size=_HASH_BYTES).digest()
            value = self._nonce + len(begin).to_bytes(_LENGTH_BYTES, "big") + begin + end
            self._tr.set(self._moving[prefix] + pack_bytes(digest), value)


def read_marks(tr: Reader, keys: TenantKeys, *, limit: int) -> list[Mark]:
    """Return up to so many marks of a tenant. Snapshot reads."""
    begin, end = range_begin(keys.marks), range_end(keys.marks)
    rows = tr.snapshot.get_range(begin, end, limit=limit, streaming_mode=WANT_ALL)
    return [_mark_of(row) for row in rows]


def _mark_of(row: KeyValue) -> Mark:
    at = NONCE_BYTES + _LENGTH_BYTES
    length = int.from_bytes(row.value[NONCE_BYTES:at], "big")
    return Mark(row.value[at : at + length], row.value[at + length :], row.key, row.value)


def clear_marks(tr: Transaction, marks: list[Mark]) -> None:
    """Clear marks whose ranges have been copied, unless somebody has written there since they were read."""
    for mark in marks:
        tr.compare_and_clear(mark.key, mark.value)


def clear_all_marks(tr: Transaction, keys: TenantKeys) -> None:
    """Clear all marks of a tenant that does not move any more."""
    tr.clear_range(range_begin(keys.marks), range_end(keys.marks))
