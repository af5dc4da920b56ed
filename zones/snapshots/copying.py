"""Copy on write: the first write of a key after a snapshot keeps the key's value for it, in the same transaction.

Two transactions that both write a key for the first time read with conflict that it has no copy, and both write one: so
one of them is repeated, and finds the copy. Later writes read that there is a copy, and conflict with nobody.
"""

from collections.abc import Mapping

from fairlead.zones.engines import Limits, StoreError, Transaction
from fairlead.zones.engines.api.errors import KEY_TOO_LARGE
from fairlead.zones.errors import RangeTooLarge
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.probes import probe
from fairlead.zones.records import TenantSnapshots
from fairlead.zones.snapshots.snapshot_keys import copies_prefix, pack_copy
from fairlead.zones.snapshots.snapshot_list import copied_to

COPIED_SHARE = 2  # Of a transaction's size: a range may be cleared whose copies fill at most one half of it.
COPY_BYTES = 64  # What a copy costs beside its key and its value, at most.
TOO_LONG = "The tenant has snapshots, and the key of a copy is longer by a few bytes. Shorten the key, or drop them."


class CopyingWriter:
    """Writes a tenant's own keys, and copies first what snapshots need. Takes the place of the engine's transaction.

    `tr` is where it writes, and reads what to copy: with conflict which keys have copies, by snapshot their values. It
    must see its own writes. `snapshots` has been read with conflict in `tr`.
    """

    def __init__(self, tr: Transaction, keys: TenantKeys, snapshots: TenantSnapshots, limits: Limits) -> None:
        self._tr = tr
        self._limits = limits
        self._data_bytes = len(keys.data)
        self._prefixes = [copies_prefix(keys, number) for number in copied_to(snapshots)]
        if len(self._prefixes) > 1:
            probe("a write looks for copies at a dropped snapshot")
        self._has_copy: set[bytes] = set()  # keys that this transaction has copied, or found copied

    def set(self, key: bytes, value: bytes) -> None:
        """Set a key."""
        self._keep(key)
        self._tr.set(key, value)

    def clear(self, key: bytes) -> None:
        """Clear a key."""
        self._keep(key)
        self._tr.clear(key)

    def add(self, key: bytes, param: bytes) -> None:
        """Add to a counter."""
        self._keep(key)
        self._tr.add(key, param)

    def clear_range(self, begin: bytes, end: bytes) -> None:
        """Clear [begin, end).

        Raises:
          RangeTooLarge: the copies would fill more than half a transaction.
        """
        if self._prefixes:
            self._keep_range(begin, end)
        self._tr.clear_range(begin, end)

    def _keep(self, key: bytes) -> None:
        """Copy a key, unless there is a copy of it."""
        if not self._prefixes or key in self._has_copy:
            return
        copies = self._copies(key[self._data_bytes :])
        reads = [self._tr.get(copy) for copy in copies]
        if not any(read.present() for read in reads):
            self._tr.set(copies[0], pack_copy(self._tr.snapshot.get(key).value))
        self._has_copy.add(key)

    def _copies(self, suffix: bytes) -> list[bytes]:
        """Return the keys where a key's copy may be; the first one is that of a new copy."""
        copies = [prefix + suffix for prefix in self._prefixes]
        size, size_max = len(copies[-1]), self._limits.key_bytes_max
        if size > size_max:
            raise StoreError(KEY_TOO_LARGE, remedy=TOO_LONG, key_bytes=size, key_bytes_max=size_max)
        return copies

    def _keep_range(self, begin: bytes, end: bytes) -> None:
        """Copy the keys of a range that have no copy."""
        size = self._data_bytes
        found = [
            self._tr.get_range(prefix + begin[size:], prefix + end[size:]) for prefix in self._prefixes
        ]  # All are on their way at once.
        rows = self._tr.snapshot.get_range(begin, end)
        copied = {row.key[len(prefix) :] for prefix, each in zip(self._prefixes, found, strict=True) for row in each}
        new: dict[bytes, bytes] = {}
        left = self._limits.transaction_bytes_max // COPIED_SHARE
        for row in rows:
            suffix = row.key[size:]
            if suffix not in copied:
                copy = self._copies(suffix)[0]
                new[copy] = pack_copy(row.value)
                left -= len(copy) + len(row.value) + COPY_BYTES
                if left < 0:
                    raise RangeTooLarge(bytes_max=self._limits.transaction_bytes_max // COPIED_SHARE)
        self._set_all(new)

    def _set_all(self, pairs: Mapping[bytes, bytes]) -> None:
        for key, value in pairs.items():
            self._tr.set(key, value)
