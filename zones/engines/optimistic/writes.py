"""What a transaction has written and not yet committed: its own reads see it, its commit applies it.

Per key the last word counts: a value, None for a cleared key, or, where an atomic operation met a key that this
transaction has not written otherwise, the operations waiting for a base that only the store knows. Cleared ranges lie
below all of that. Source: FoundationDB's `WriteMap` (the client's read-your-writes cache).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from fairlead.zones.engines.api.database import Pair
from fairlead.zones.engines.api.errors import CLIENT_INVALID_OPERATION, StoreError
from fairlead.zones.engines.optimistic.atomics import COALESCING, Atomic
from fairlead.zones.engines.optimistic.ranges import (
    KeySet,
    Range,
    any_overlap,
    covers,
    gaps,
    merge,
)

STAMP_BYTES: Final = 10
_WRITE_BYTES: Final = 53  # FoundationDB's client adds this to the bytes of a write, for mutation and conflict range.
OFFSET_BYTES: Final = 4  # Little-endian, at the end of a stamped key or value: where the stamp goes.


class StampTemplate(NamedTuple):
    """Bytes with a place for the ten bytes of a versionstamp."""

    text: bytes
    offset: int

    def stamped(self, stamp: bytes) -> bytes:
        """Return the bytes with `stamp` in its place."""
        return self.text[: self.offset] + stamp + self.text[self.offset + STAMP_BYTES :]

    @classmethod
    def parse(cls, raw: bytes) -> StampTemplate:
        """Return `raw` without its last four bytes, which are the little-endian offset of the stamp.

        Raises:
          StoreError: 2000 if the stamp would not lie within the bytes.
        """
        text, offset = raw[:-OFFSET_BYTES], int.from_bytes(raw[-OFFSET_BYTES:], "little")
        if len(raw) < OFFSET_BYTES or offset + STAMP_BYTES > len(text):
            raise StoreError(CLIENT_INVALID_OPERATION, offset=offset, bytes=len(text))
        return cls(text, offset)


class PendingAtomics(list[tuple[Atomic, bytes]]):
    """Atomic operations in order, on a value known only at commit: the store's."""

    __slots__ = ()

    def push(self, operation: Atomic, param: bytes) -> None:
        """Add one operation; combine it with the operation before if both are the same."""
        if self and operation in COALESCING:
            last, last_param = self[-1]
            if last is operation and len(last_param) == len(param):
                self[-1] = (operation, operation(last_param, param) or b"")
                return
        self.append((operation, param))

    def apply(self, base: bytes | None) -> bytes | None:
        """Return the result of the operations on `base`."""
        for operation, param in self:
            base = operation(base, param)
        return base


class StampedAtomics(PendingAtomics):
    """Atomic operations on a value that the commit stamps; they do not read the store."""

    __slots__ = ("template",)

    def __init__(self, template: StampTemplate) -> None:
        super().__init__()
        self.template = template


Entry = bytes | None | PendingAtomics


class Mutations(NamedTuple):
    """The changes of a commit to the store, in this order: cleared ranges, cleared keys, values."""

    ranges: list[Range]
    cleared: list[bytes]
    values: list[tuple[bytes, bytes]]
    """In key order, each key once, and none of them among `cleared`."""


class Writes:
    """The writes of one transaction, and the keys that they conflict on."""

    __slots__ = (
        "_keys",
        "_pending_bytes",
        "_pending_keys",
        "conflict_free_keys",
        "conflicts",
        "entries",
        "has_conflict_free_ranges",
        "ranges",
        "stamped_keys",
        "unreadable",
    )

    def __init__(self) -> None:
        self.entries: dict[bytes, Entry] = {}
        self.ranges: list[Range] = []
        """Cleared ranges, merged."""
        self.conflicts = KeySet()
        """Declared write conflicts. Written keys and cleared ranges conflict too, and are not in here."""
        self.conflict_free_keys: set[bytes] = set()
        """Keys of `entries` written without a write conflict."""
        self.has_conflict_free_ranges: bool = False
        """Whether some cleared range has no write conflict; the others are then in `conflicts`."""
        self.stamped_keys: dict[bytes, tuple[StampTemplate, bytes, bool]] = {}
        self.unreadable: KeySet | None = None
        """Keys that depend on this commit's versionstamp, which does not exist yet."""
        self._keys: list[bytes] = []
        self._pending_keys: list[bytes] = []
        """Keys of `entries` that have held a pending operation."""
        self._pending_bytes = 0

    def __bool__(self) -> bool:
        return bool(self.entries or self.ranges or self.conflicts or self.stamped_keys)

    # --- Writing ---

    def put(self, key: bytes, entry: Entry, *, conflicting: bool) -> None:
        """Set or clear one key."""
        if conflicting:
            self.conflict_free_keys.discard(key)
        elif key not in self.entries:
            self.conflict_free_keys.add(key)
        self.entries[key] = entry
        if entry is None and self.unreadable is not None:
            self.unreadable.points.discard(key)

    def update(self, key: bytes, operation: Atomic, param: bytes, *, conflicting: bool) -> None:
        """Apply an atomic operation, at once if this transaction has written the value before."""
        entries = self.entries
        self._pending_bytes += len(param)
        entry = entries.get(key)
        if isinstance(entry, PendingAtomics):
            entry.push(operation, param)
            if conflicting:
                self.conflict_free_keys.discard(key)
        elif key in entries:
            self.put(key, operation(entry, param), conflicting=conflicting)
        elif self.ranges and covers(self.ranges, key):
            self.put(key, operation(None, param), conflicting=conflicting)
        else:
            entries[key] = PendingAtomics([(operation, param)])
            self._pending_keys.append(key)
            if not conflicting:
                self.conflict_free_keys.add(key)

    def clear_range(self, begin: bytes, end: bytes, *, conflicting: bool) -> None:
        """Clear [begin, end), begin < end, and drop earlier writes in it."""
        covered = self.keys_in(begin, end)
        if not conflicting:
            self.conflicts.points.update(key for key in covered if key not in self.conflict_free_keys)
        if covered:
            for key in covered:
                del self.entries[key]
            self.conflict_free_keys.difference_update(covered)
            self._keys = []
        if not conflicting and not self.has_conflict_free_ranges:
            self.has_conflict_free_ranges = True
            self.conflicts.ranges.extend(self.ranges)
        elif conflicting and self.has_conflict_free_ranges:
            self.conflicts.ranges.append((begin, end))
        self.ranges = merge([*self.ranges, (begin, end)])
        for raw in [raw for raw in self.stamped_keys if begin <= raw < end]:
            del self.stamped_keys[raw]
        if self.unreadable is not None:
            still = [gap for taken in self.unreadable.ranges for gap in gaps(*taken, [(begin, end)])]
            points = (key for key in self.unreadable.points if not begin <= key < end)
            self.unreadable = KeySet(points, still)

    def put_stamped_value(self, key: bytes, raw: bytes, *, conflicting: bool) -> None:
        """Set `key` to a value that receives the commit's versionstamp; the key is unreadable until then."""
        self.put(key, StampedAtomics(StampTemplate.parse(raw)), conflicting=conflicting)
        self._pending_keys.append(key)
        self._pending_bytes += len(raw)
        self._now_unreadable().points.add(key)

    def put_stamped_key(self, raw: bytes, value: bytes, *, conflicting: bool) -> None:
        """Set a key that receives the commit's versionstamp; all keys it may become are unreadable until then."""
        template = StampTemplate.parse(raw)
        self.stamped_keys[raw] = (template, value, conflicting)
        first, last = (template.stamped(filler * STAMP_BYTES) for filler in (b"\x00", b"\xff"))
        self._now_unreadable().add_range(first, last + b"\x00")

    def _now_unreadable(self) -> KeySet:
        if self.unreadable is None:
            self.unreadable = KeySet()
        return self.unreadable

    # --- Reading ---

    def keys_in(self, begin: bytes, end: bytes) -> list[bytes]:
        """Return the written keys in [begin, end), in order."""
        keys = self._sorted_keys()
        return keys[bisect_left(keys, begin) : bisect_left(keys, end)]

    def _sorted_keys(self) -> list[bytes]:
        # Keys are only added, at the end of the dictionary; `clear_range` empties the sorted list. So only the last
        # keys are missing, and sorting a sorted list with a short tail costs little.
        keys = self._keys
        if len(keys) != len(self.entries):
            keys += islice(self.entries, len(keys), None)
            keys.sort()
        return keys

    def is_unreadable(self, begin: bytes, end: bytes) -> bool:
        """Return whether a key in [begin, end) depends on a versionstamp that does not exist yet."""
        unreadable = self.unreadable
        if unreadable is None:
            return False
        if any(begin <= key < end for key in unreadable.points):
            return True
        return any_overlap(merge(unreadable.ranges), [(begin, end)])

    def is_independent(self, key: bytes) -> bool:
        """Return whether the value of `key` does not depend on the store."""
        if key not in self.entries:
            return bool(self.ranges) and covers(self.ranges, key)
        return type(self.entries[key]) is not PendingAtomics

    def unwritten(self, begin: bytes, end: bytes) -> Iterable[Range]:
        """Yield the parts of [begin, end) whose content comes, at least in part, from the store.

        Only they are a reason to conflict: no other transaction can change what this one has set or cleared.
        """
        entries = self.entries
        own: list[Range] = []
        for key in self.keys_in(begin, end):
            if type(entries[key]) is not PendingAtomics:
                own.append((key, key + b"\x00"))
        if self.ranges:
            # A pending operation is never inside a cleared range: its base is known to be missing there.
            first = max(bisect_right(self.ranges, (begin,)) - 1, 0)
            own += self.ranges[first : bisect_left(self.ranges, (end,))]
            own = merge(own)
        return gaps(begin, end, own)

    def overlay(
        self, begin: bytes, end: bytes, scan: Callable[[bytes, bytes, bool], Iterator[Pair]], reverse: bool
    ) -> Iterator[Pair]:
        """Yield the pairs of [begin, end) as this transaction sees them, in order.

        `scan(begin, end, reverse)` reads the store; it is called when, and only if, the store has a say: what lies
        before the first such key is this transaction's own, and who stops there has read nothing.
        """
        own = self.keys_in(begin, end)
        parts = list(self.unwritten(begin, end))
        if reverse:
            own.reverse()
        position = 0
        if parts:
            store_begin, store_end = parts[0][0], parts[-1][1]
            while position < len(own) and (own[position] >= store_end if reverse else own[position] < store_begin):
                yield from self._own_pair(own[position], None)
                position += 1
            for key, value in scan(store_begin, store_end, reverse):
                while position < len(own) and (own[position] > key if reverse else own[position] < key):
                    yield from self._own_pair(own[position], None)
                    position += 1
                if position < len(own) and own[position] == key:
                    yield from self._own_pair(key, value)
                    position += 1
                elif not (self.ranges and covers(self.ranges, key)):
                    yield key, value
        for key in own[position:]:
            yield from self._own_pair(key, None)

    def _own_pair(self, key: bytes, stored: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        entry = self.entries.get(key)
        value = entry.apply(stored) if isinstance(entry, PendingAtomics) else entry
        if value is not None:
            yield key, value

    # --- Committing ---

    def size_bytes(self) -> int:
        """Return the size that FoundationDB would count for these writes."""
        total = self.size_bytes_at_most() - self._pending_bytes
        for entry in self.entries.values():
            if isinstance(entry, PendingAtomics):
                total += sum(len(param) for _, param in entry) - len(entry)
                total += len(entry.template.text) if isinstance(entry, StampedAtomics) else 0
        return total

    def size_bytes_at_most(self) -> int:
        """Return an upper bound of it, faster: overwritten parameters of atomic operations count too."""
        entries = self.entries
        # A write counts its key and value, and its conflict range the key twice.
        total = 3 * sum(map(len, entries)) + sum(map(len, filter(None, entries.values()))) + _WRITE_BYTES * len(entries)
        total += self._pending_bytes + self.conflicts.size_bytes()
        for begin, end in self.ranges:
            total += 2 * (len(begin) + len(end)) + _WRITE_BYTES
        for raw, (_, value, _) in self.stamped_keys.items():
            total += 3 * len(raw) + len(value) + _WRITE_BYTES
        return total

    def conflict_keys(self, stamp: bytes) -> tuple[list[bytes], list[Range]]:
        """Return the keys that these writes conflict on: points, and merged ranges."""
        points = self._sorted_keys()
        if self.conflict_free_keys:
            points = [key for key in points if key not in self.conflict_free_keys]
        if self.conflicts.points or self.stamped_keys:
            stamped = (
                template.stamped(stamp) for template, _, conflicting in self.stamped_keys.values() if conflicting
            )
            points = list({*points, *self.conflicts.points, *stamped})
        ranges = self.conflicts.ranges if self.has_conflict_free_ranges else self.ranges + self.conflicts.ranges
        return points, merge(ranges) if len(ranges) > 1 else list(ranges)

    def touched(self) -> Mutations:
        """Return the keys and ranges that another process changed for these writes, without their values.

        Not for writes with a versionstamp.
        """
        return Mutations(self.ranges, list(self.entries), [])

    def mutations(self, stored: Callable[[bytes], bytes | None], stamp: bytes) -> Mutations:
        """Return the changes to the store, given a reader of its present values and this commit's versionstamp."""
        entries = self.entries
        if self._pending_keys:
            entries = entries.copy()
            for key in self._pending_keys:
                entry = entries.get(key)
                if isinstance(entry, PendingAtomics):  # It may have been overwritten since.
                    base = entry.template.stamped(stamp) if isinstance(entry, StampedAtomics) else stored(key)
                    entries[key] = entry.apply(base)
        keys = self._sorted_keys()
        pairs: list[tuple[bytes, Any]] = list(zip(keys, map(entries.__getitem__, keys), strict=True))
        cleared = [key for key, value in pairs if value is None]
        values = [pair for pair in pairs if pair[1] is not None] if cleared else pairs
        if self.stamped_keys:
            final = dict(values)
            final.update((template.stamped(stamp), value) for template, value, _ in self.stamped_keys.values())
            values = sorted(final.items())
            cleared = [key for key in cleared if key not in final]
        return Mutations(self.ranges, cleared, values)
