"""The writes of a transaction: recorded, checked against the store's limits, applied by the commit.

A refused write fails late, as in the binding: the write itself returns, and every later step fails.
"""

from __future__ import annotations

from typing import Final

from fairlead.zones.engines.api.clock import Clock
from fairlead.zones.engines.api.errors import (
    INVERTED_RANGE,
    KEY_OUTSIDE_LEGAL_RANGE,
    KEY_TOO_LARGE,
    VALUE_TOO_LARGE,
    StoreError,
)
from fairlead.zones.engines.optimistic import atomics
from fairlead.zones.engines.optimistic.atomics import Atomic
from fairlead.zones.engines.optimistic.commit import Store
from fairlead.zones.engines.optimistic.ranges import KEYS_BEGIN, KEYS_END
from fairlead.zones.engines.optimistic.reading import Reading
from fairlead.zones.engines.optimistic.watches import Watch
from fairlead.zones.engines.optimistic.writes import OFFSET_BYTES

_FOUNDATIONDB_KEY_BYTES_MAX: Final = 10_000
_SHORTER_KEYS: Final = "Shorten the key: the embedded engine takes 511 bytes, FoundationDB 10,000."


class Writing(Reading):
    """A transaction as far as it reads and writes."""

    __slots__ = ("_key_bytes_max", "_skips_next_write_conflict", "_value_bytes_max", "_watches")

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(store, clock)
        self._key_bytes_max = store.limits.key_bytes_max
        self._value_bytes_max = store.limits.value_bytes_max

    def _clear_writes(self) -> None:
        self._skips_next_write_conflict = False
        self._watches: list[Watch] = []

    def set(self, key: bytes, value: bytes) -> None:
        """Set a key."""
        # A hot path, written out: the common case calls nothing.
        if (
            self._plain_writes
            and type(key) is bytes is type(value)
            and len(key) <= self._key_bytes_max
            and len(value) <= self._value_bytes_max
            and key < KEYS_END
        ):
            self._writes.entries[key] = value
        elif self._accepts(key, value):
            self._writes.put(key, value, conflicting=self._next_write_conflicts())
            for watch in self._watches:
                watch.written(key, value)

    def clear(self, key: bytes) -> None:
        """Clear a key."""
        if self._plain_writes and type(key) is bytes and len(key) <= self._key_bytes_max and key < KEYS_END:
            self._writes.entries[key] = None
            return
        if len(key) > self._key_bytes_max:
            key, kept = key[: self._key_bytes_max], False  # Such a key cannot exist; it is only checked to be legal.
        else:
            kept = True
        if self._accepts(key, b"") and kept:
            self._writes.put(key, None, conflicting=self._next_write_conflicts())
            for watch in self._watches:
                watch.written(key, None)

    def clear_range(self, begin: bytes | None, end: bytes | None) -> None:
        """Clear [begin, end); None stands for the first and the last key. 2005 if inverted, at every later step."""
        begin = KEYS_BEGIN if begin is None else _bytes(begin)
        end = KEYS_END if end is None else _bytes(end)
        if not self._is_writable():
            return
        if begin > end:
            self.defer(INVERTED_RANGE, begin=begin, end=end)
        elif end > KEYS_END:
            self.defer(KEY_OUTSIDE_LEGAL_RANGE, begin=begin, end=end)
        elif begin < end:
            self._plain_reads = False
            self._writes.clear_range(begin, end, conflicting=self._next_write_conflicts())
            for watch in self._watches:
                if begin <= watch.key < end:
                    watch.written(watch.key, None)

    # --- Atomic operations: their results are in `fairlead.zones.engines.optimistic.atomics` ---

    def add(self, key: bytes, param: bytes) -> None:
        """Add little-endian integers; the value becomes as long as `param`."""
        self._update(key, atomics.add, param)

    def bit_and(self, key: bytes, param: bytes) -> None:
        """Combine bitwise by and."""
        self._update(key, atomics.bit_and, param)

    def bit_or(self, key: bytes, param: bytes) -> None:
        """Combine bitwise by or."""
        self._update(key, atomics.bit_or, param)

    def bit_xor(self, key: bytes, param: bytes) -> None:
        """Combine bitwise by exclusive or."""
        self._update(key, atomics.bit_xor, param)

    def max(self, key: bytes, param: bytes) -> None:
        """Keep the larger little-endian integer."""
        self._update(key, atomics.maximum, param)

    def min(self, key: bytes, param: bytes) -> None:
        """Keep the smaller little-endian integer; `param` if there is none."""
        self._update(key, atomics.minimum, param)

    def byte_max(self, key: bytes, param: bytes) -> None:
        """Keep the lexicographically larger string."""
        self._update(key, atomics.byte_max, param)

    def byte_min(self, key: bytes, param: bytes) -> None:
        """Keep the lexicographically smaller string; `param` if there is none."""
        self._update(key, atomics.byte_min, param)

    def append_if_fits(self, key: bytes, param: bytes) -> None:
        """Append, unless the value would become longer than 100,000 bytes."""
        self._update(key, atomics.append_if_fits, param)

    def compare_and_clear(self, key: bytes, param: bytes) -> None:
        """Clear the key if its value equals `param`."""
        self._update(key, atomics.compare_and_clear, param)

    def set_versionstamped_key(self, key: bytes, param: bytes) -> None:
        """Set a key into which the commit writes its versionstamp, at the offset in the last four bytes."""
        if self._accepts(key[:-OFFSET_BYTES], param):
            try:
                self._writes.put_stamped_key(key, param, conflicting=self._next_write_conflicts())
            except StoreError as error:
                self._defer(error)
            self._plain_reads = self._plain_writes = False

    def set_versionstamped_value(self, key: bytes, param: bytes) -> None:
        """Set a value into which the commit writes its versionstamp, at the offset in the last four bytes."""
        if self._accepts(key, param[:-OFFSET_BYTES]):
            try:
                self._writes.put_stamped_value(key, param, conflicting=self._next_write_conflicts())
            except StoreError as error:
                self._defer(error)
            self._plain_reads = self._plain_writes = False

    # --- Conflicts without a write ---

    def add_write_conflict_key(self, key: bytes) -> None:
        """Make readers of `key` conflict, as if it had been written."""
        self.add_write_conflict_range(key, key + b"\x00")

    def add_write_conflict_range(self, begin: bytes, end: bytes) -> None:
        """Make readers in [begin, end) conflict, as if it had been written; raises 2005 if inverted."""
        if self._takes_conflict_range(begin, end):
            self._writes.conflicts.add_range(begin, end)

    def _takes_conflict_range(self, begin: bytes, end: bytes) -> bool:
        if _bytes(begin) > _bytes(end):
            raise StoreError(INVERTED_RANGE, begin=begin, end=end)
        if not self._is_writable():
            return False
        if begin >= KEYS_END and end > KEYS_END:
            self.defer(KEY_OUTSIDE_LEGAL_RANGE, begin=begin, end=end)
            return False
        return True

    def skip_next_write_conflict(self) -> None:
        """Let the next write add no write conflict; for the options."""
        if self._is_writable():
            self._skips_next_write_conflict = True
            self._plain_writes = False

    def _next_write_conflicts(self) -> bool:
        """Return whether the current write conflicts. The option against it holds for one write."""
        skips_conflict, self._skips_next_write_conflict = self._skips_next_write_conflict, False
        return not skips_conflict

    # --- Checks ---

    def _update(self, key: bytes, operation: Atomic, param: bytes) -> None:
        if (
            self._plain_writes
            and type(key) is bytes is type(param)
            and len(key) <= self._key_bytes_max
            and len(param) <= self._value_bytes_max
            and key < KEYS_END
        ):
            self._writes.update(key, operation, param, conflicting=True)
        elif self._accepts(key, param):
            self._writes.update(key, operation, param, conflicting=self._next_write_conflicts())
            for watch in self._watches:
                watch.touched(key)

    def _accepts(self, key: bytes, param: bytes) -> bool:
        """Return whether a write is accepted. If not, later steps fail with the reason."""
        if not self._is_writable():
            return False
        if _bytes(key) >= KEYS_END:
            self.defer(KEY_OUTSIDE_LEGAL_RANGE, key=key)
        elif len(key) > self._key_bytes_max:
            remedy = _SHORTER_KEYS if self._key_bytes_max < _FOUNDATIONDB_KEY_BYTES_MAX else ""
            self.defer(KEY_TOO_LARGE, remedy=remedy, key_bytes=len(key), key_bytes_max=self._key_bytes_max)
        elif len(_bytes(param)) > self._value_bytes_max:
            self.defer(VALUE_TOO_LARGE, value_bytes=len(param), value_bytes_max=self._value_bytes_max)
        return self._usable


def _bytes(data: bytes) -> bytes:
    if type(data) is not bytes:
        raise TypeError(f"keys and values are bytes, not {type(data).__name__}")
    return data
