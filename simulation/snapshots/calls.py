"""The calls of an application on the snapshots of one tenant, as `fairlead.snapshots` makes them.

The simulator may not import that module. Each call follows the tenant, and reads and commits in transactions of its
own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fairlead.simulation.open_shards import OpenShards
from fairlead.zones.engines import KeyValue
from fairlead.zones.errors import TooManySnapshots
from fairlead.zones.keyspace import TenantKeys, range_begin, range_end
from fairlead.zones.layout import Tenant
from fairlead.zones.records import RestoreRecord
from fairlead.zones.shard import Shard
from fairlead.zones.snapshots import merging, restoring, taking
from fairlead.zones.snapshots.reading import Change, SnapshotReads
from fairlead.zones.transaction_runner import Attempt

T = TypeVar("T")


class SnapshotCalls:
    """The calls of one process on the snapshots of a tenant. For errors see `fairlead.snapshots`.

    `pause` is called between two transactions of a call.
    """

    def __init__(self, shards: OpenShards, tenant: Tenant, pause: Callable[[], None]) -> None:
        self._shards = shards
        self.tenant = tenant
        self._keys = TenantKeys(*tenant)
        self._pause = pause

    def take(self, kept_us: int | None) -> int:
        """Take a snapshot; return its number."""

        def body(shard: Shard, attempt: Attempt) -> int:
            attempt.needs_receipt = True
            number, _ = taking.take(attempt.tr, shard.layout, self._keys, now_us=attempt.now_us, kept_us=kept_us)
            return number

        try:
            return self._transact(body)
        except TooManySnapshots as error:
            if error.fields["kept"] == error.fields["snapshots_max"]:
                raise
        self.merge()
        return self._transact(body)

    def kept(self) -> list[int]:
        """Return the numbers of the snapshots that are not dropped."""
        listing = self._transact(lambda shard, attempt: taking.list_snapshots(attempt.tr, shard.layout, self._keys))
        return [each.number for each in listing.kept]

    def pairs(self, number: int, *, reverse: bool = False) -> list[KeyValue]:
        """Return all pairs that there were at a snapshot, page by page."""
        begin, end = range_begin(self._keys.data), range_end(self._keys.data)
        rows: list[KeyValue] = []
        while True:
            page = self._read(number, lambda reads, begin=begin, end=end: reads.page(begin, end, reverse=reverse))  # type: ignore[misc]
            rows += page.rows
            if page.next_key is None:
                return rows
            begin, end = (begin, page.next_key) if reverse else (page.next_key, end)
            self._pause()

    def get(self, number: int, key: bytes) -> bytes | None:
        """Return the value that a key of DATA had at a snapshot."""
        return self._read(number, lambda reads: reads.get(key))

    def changes(self, number: int) -> list[Change]:
        """Return the keys whose values have changed since a snapshot."""
        cursor: bytes | None = self._keys.data
        changes: list[Change] = []
        while cursor is not None:
            found, cursor = self._read(number, lambda reads, begin=cursor: reads.changes(begin))  # type: ignore[misc]
            changes += found
        return changes

    def drop(self, number: int, *, merges: bool = True) -> None:
        """Drop a snapshot, and merge its copies; without `merges` leave that, as a process does that dies here."""
        self._transact(
            lambda shard, attempt: taking.drop(attempt.tr, shard.layout, self._keys, {number}, now_us=attempt.now_us)
        )
        if merges:
            self.merge()

    def merge(self) -> None:
        """Merge what is dropped."""
        self._pause()
        while self._transact(lambda shard, attempt: merging.merge_piece(attempt.tr, shard.layout, self._keys)):
            self._pause()

    def restore(self, number: int) -> None:
        """Restore the tenant to a snapshot."""
        begun = self._transact(lambda shard, attempt: self.begin_restore(shard, attempt, number))
        cursor: bytes | None = None

        def piece(shard: Shard, attempt: Attempt) -> bytes | None:
            limits = shard.db.limits
            return restoring.restore_piece(attempt.tr, shard.layout, self._keys, begun.id, cursor, limits=limits)

        self._pause()
        while (cursor := self._transact(piece)) is not None:
            self._pause()

    def begin_restore(self, shard: Shard, attempt: Attempt, number: int) -> RestoreRecord:
        """Begin to restore, in a transaction."""
        return restoring.begin_restore(attempt.tr, shard.layout, self._keys, number, now_us=attempt.now_us)

    def _read(self, number: int, body: Callable[[SnapshotReads], T]) -> T:
        return self._transact(lambda shard, attempt: body(SnapshotReads(attempt.tr, shard.layout, self._keys, number)))

    def _transact(self, body: Callable[[Shard, Attempt], T]) -> T:
        return self._shards.at_home(self.tenant, lambda shard: shard.transact(lambda attempt: body(shard, attempt)))
