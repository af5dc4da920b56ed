"""Snapshots of a tenant's own keys, as its database gives them: to read, to compare, to restore, to drop."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Protocol, TypeVar

from fairlead.operator import Operator
from fairlead.records.on_shards.repairing import mark_once_restored
from fairlead.records.on_shards.slots import SLOTS_APP
from fairlead.store_threads import AwaitableCalls
from fairlead.zones import tuples
from fairlead.zones.errors import BadArgument, SnapshotGone, TooManySnapshots
from fairlead.zones.keyspace import TenantKeys, range_begin, range_end
from fairlead.zones.layout import Tenant
from fairlead.zones.records import RestoreRecord, SnapshotRecord
from fairlead.zones.reporting import audit_log
from fairlead.zones.shard import Shard
from fairlead.zones.snapshots import merging, restoring, taking
from fairlead.zones.snapshots.reading import Change, Page, SnapshotReads
from fairlead.zones.snapshots.taking import Listing
from fairlead.zones.transaction_runner import Attempt

T = TypeVar("T")

Key = tuple[Any, ...]
Note = Callable[[Attempt, str, int], None]  # Notes in a transaction what is done, to which snapshot, by its number.


class TenantHome(Protocol):
    """A tenant's database, as far as its snapshots use it."""

    @property
    def tenant(self) -> Tenant:
        """The tenant."""
        ...

    @property
    def calls(self) -> AwaitableCalls:
        """How coroutines wait for the tenant's store."""
        ...

    def at_home(self, call: Callable[[Shard], T], /) -> T:
        """Return what `call` returns for the shard where the tenant lives."""
        ...


class KeyChange(NamedTuple):
    """A key whose value is not what it was at a snapshot. None: the key was not there, or is not there now."""

    key: Key
    then: bytes | None
    now: bytes | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of a tenant's own keys, as it was listed. Times in microseconds since the epoch.

    `number`: larger than that of every earlier snapshot of the tenant. `expires_us`: from when on housekeeping drops
    it; None: it is kept until it is dropped.
    """

    home: TenantHome
    number: int
    taken_us: int
    expires_us: int | None

    def __repr__(self) -> str:
        return f"<Snapshot {self.number} of {self.home.tenant}>"

    def diff(self) -> Iterator[KeyChange]:
        """Yield the keys whose values have changed since, in order.

        Reads in several transactions. Each key is compared at one moment, but not all keys at the same one.

        Raises:
          SnapshotGone: it was dropped, or has expired.
        """
        return differences(self.home, self.number)

    def drop(self, *, by: Operator | None = None) -> None:
        """Drop it: nobody reads at it any more. Returns once its copies are merged into an older snapshot, or deleted.

        One commit, and one for each 500 of its copies. If the process dies meanwhile, housekeeping of any consumer goes
        on, and so does the next drop. Other transactions go on.

        Args:
          by: the operator, for the audit log; None: the application itself, which writes no entry.

        Raises:
          SnapshotGone: it is gone already.
          Restoring: the tenant is being restored.
        """
        drop(self.home, self.number, note=noting(by, self.home.tenant))

    async def adrop(self) -> None:
        """Drop it as `drop` does, and let the event loop go on meanwhile."""
        await self.home.calls.run(self.drop)

    async def adiff(self) -> list[KeyChange]:
        """Return what `diff` yields, and let the event loop go on meanwhile."""
        return await self.home.calls.run(lambda: list(self.diff()))


class OldKeys:
    """A tenant's own keys as they were at a snapshot. Made by `TenantDatabase.at`; a context, which holds nothing open.

    Each call reads in transactions of its own, so that it may be used for as long as the snapshot is kept. All calls
    raise `SnapshotGone` once it is dropped, or has expired.
    """

    def __init__(self, home: TenantHome, number: int) -> None:
        self._home = home
        self._number = number
        self._keys = TenantKeys(*home.tenant)

    def __enter__(self) -> "OldKeys":
        self._read(lambda reads: None)  # Raises `SnapshotGone`.
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        return

    def get(self, key: Key) -> bytes | None:
        """Return the value that `key` had, or None."""
        if not isinstance(key, tuple) or not key:
            raise BadArgument(argument="key", value=key, allowed='a tuple that is not empty, such as ("order", 7)')
        packed = self._pack(key)
        return self._read(lambda reads: reads.get(packed))

    def get_range(self, prefix: Key = (), *, limit: int = 0, reverse: bool = False) -> Iterator[tuple[Key, bytes]]:
        """Yield the keys and values that there were below `prefix`, in order; `limit` 0 is no limit.

        Reads in several transactions, and sees one state: a snapshot does not change.
        """
        packed = self._pack(prefix)
        begin, end = range_begin(packed), range_end(packed)
        left = limit
        while True:
            page = self._read(partial(_page, begin=begin, end=end, limit=left, reverse=reverse))
            for row in page.rows:
                yield tuples.unpack(row.key, len(self._keys.data)), row.value
            if limit:
                left -= len(page.rows)
                if not left:
                    return
            if page.next_key is None:
                return
            begin, end = (begin, page.next_key) if reverse else (page.next_key, end)

    async def aget(self, key: Key) -> bytes | None:
        """Return the value that `key` had, as `get` does, and let the event loop go on meanwhile."""
        return await self._home.calls.run(partial(self.get, key))

    async def aget_range(self, prefix: Key = (), *, limit: int = 0, reverse: bool = False) -> list[tuple[Key, bytes]]:
        """Return what `get_range` yields, and let the event loop go on meanwhile."""
        return await self._home.calls.run(lambda: list(self.get_range(prefix, limit=limit, reverse=reverse)))

    def _pack(self, key: Key) -> bytes:
        if not isinstance(key, tuple):
            raise BadArgument(argument="key", value=key, allowed='a tuple, such as ("order",)')
        try:
            packed: bytes = self._keys.data + tuples.pack(key)
        except (ValueError, AttributeError) as error:  # AttributeError: a Versionstamp, without the client library
            raise BadArgument(argument="key", value=key, allowed="a tuple of data", reason=str(error)) from None
        return packed

    def _read(self, body: Callable[[SnapshotReads], T]) -> T:
        def read(attempt: Attempt, shard: Shard) -> T:
            return body(SnapshotReads(attempt.tr, shard.layout, self._keys, self._number))

        return self._home.at_home(lambda shard: shard.transact(partial(read, shard=shard)))


def _page(reads: SnapshotReads, *, begin: bytes, end: bytes, limit: int, reverse: bool) -> Page:
    return reads.page(begin, end, limit=limit, reverse=reverse)


def number_of(snapshot: Snapshot | int, tenant: Tenant) -> int:
    """Return the number of a snapshot of a tenant, which may be given by its number.

    Raises:
      BadArgument: it is neither; or a snapshot of another tenant, which may have one of the same number.
    """
    number = snapshot.number if isinstance(snapshot, Snapshot) else snapshot
    if isinstance(snapshot, Snapshot) and snapshot.home.tenant != tenant:
        raise BadArgument(argument="snapshot", value=snapshot, allowed=f"a snapshot of {tenant}, or its number")
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise BadArgument(argument="snapshot", value=snapshot, allowed="a snapshot, or its number")
    return number


def note_nothing(attempt: Attempt, what: str, number: int) -> None:
    """Note nothing: an application's own calls are not in the audit log."""


def noting(by: Operator | None, tenant: Tenant) -> Note:
    """Return what writes an entry of the audit log, if an operator has asked for the change."""
    if by is None:
        return note_nothing

    def note(attempt: Attempt, what: str, number: int) -> None:
        to = {"tenant": list(tenant), "snapshot": number}
        audit_log.write(attempt.tr, by.audit_entry(attempt.new_id(), what, to, done_us=attempt.now_us))

    return note


def _refuse_slots(tenant: Tenant) -> None:
    """Refuse a slot of records: what its index records name lies elsewhere, and goes on.

    Raises:
      BadArgument: the tenant is one.
    """
    if tenant.app == SLOTS_APP:
        allowed = "a tenant of yours; a slot of records goes with all other slots of their type, as a backup has them"
        raise BadArgument(argument="tenant", value=str(tenant), allowed=allowed)


def take(home: TenantHome, kept_us: int | None, *, note: Note = note_nothing) -> Snapshot:
    """Take a snapshot in a transaction of its own; see `TenantDatabase.snapshot`."""
    _refuse_slots(home.tenant)
    keys = TenantKeys(*home.tenant)

    def body(attempt: Attempt, shard: Shard) -> SnapshotRecord:
        attempt.needs_receipt = True
        number, snapshots = taking.take(attempt.tr, shard.layout, keys, now_us=attempt.now_us, kept_us=kept_us)
        note(attempt, "take snapshot", number)
        return snapshots.listed[-1]

    def take_at(shard: Shard) -> SnapshotRecord:
        return shard.transact(partial(body, shard=shard))

    try:
        return of_record(home, home.at_home(take_at))
    except TooManySnapshots as error:
        if error.fields["kept"] == error.fields["snapshots_max"]:
            raise
    merge(home)  # Some are dropped, and were left.
    return of_record(home, home.at_home(take_at))


def of_record(home: TenantHome, record: SnapshotRecord) -> Snapshot:
    """Return a snapshot, by its record."""
    return Snapshot(home, record.number, record.taken_us, record.expires_us or None)


def listing(home: TenantHome) -> Listing:
    """Return a tenant's snapshots, as they are stored. One snapshot read."""
    keys = TenantKeys(*home.tenant)
    return home.at_home(
        lambda shard: shard.transact(lambda attempt: taking.list_snapshots(attempt.tr, shard.layout, keys))
    )


def drop(home: TenantHome, number: int, *, note: Note = note_nothing) -> None:
    """Drop a snapshot, and merge what is dropped; see `Snapshot.drop`."""
    keys = TenantKeys(*home.tenant)

    def body(attempt: Attempt, shard: Shard) -> None:
        taking.drop(attempt.tr, shard.layout, keys, {number}, now_us=attempt.now_us)
        note(attempt, "drop snapshot", number)

    home.at_home(lambda shard: shard.transact(partial(body, shard=shard)))
    merge(home)


def merge(home: TenantHome) -> None:
    """Merge what is dropped, piece by piece."""
    keys = TenantKeys(*home.tenant)

    def merge_at(shard: Shard) -> bool:
        return shard.transact(lambda attempt: merging.merge_piece(attempt.tr, shard.layout, keys))

    while home.at_home(merge_at):
        pass


def restore(home: TenantHome, number: int, *, note: Note = note_nothing) -> None:
    """Restore a tenant to a snapshot, piece by piece; see `TenantDatabase.restore`."""
    _refuse_slots(home.tenant)
    keys = TenantKeys(*home.tenant)

    def begin(attempt: Attempt, shard: Shard) -> RestoreRecord:
        begun = restoring.begin_restore(attempt.tr, shard.layout, keys, number, now_us=attempt.now_us)
        mark_once_restored(attempt, shard, home.tenant)
        note(attempt, "restore", number)
        return begun

    begun = home.at_home(lambda shard: shard.transact(partial(begin, shard=shard)))
    cursor: bytes | None = None

    def restore_at(shard: Shard) -> bytes | None:
        def body(attempt: Attempt) -> bytes | None:
            limits = shard.db.limits
            return restoring.restore_piece(attempt.tr, shard.layout, keys, begun.id, cursor, limits=limits)

        return shard.transact(body)

    while (cursor := home.at_home(restore_at)) is not None:
        pass


def differences(home: TenantHome, number: int) -> Iterator[KeyChange]:
    """Yield the keys whose values have changed since a snapshot; see `Snapshot.diff`."""
    keys = TenantKeys(*home.tenant)
    cursor: bytes | None = keys.data

    def read(shard: Shard) -> tuple[list[Change], bytes | None]:
        def body(attempt: Attempt) -> tuple[list[Change], bytes | None]:
            return SnapshotReads(attempt.tr, shard.layout, keys, number).changes(cursor or keys.data)

        return shard.transact(body)

    while cursor is not None:
        found, cursor = home.at_home(read)
        for change in found:
            yield KeyChange(tuples.unpack(change.key, len(keys.data)), change.then, change.now)


def find(home: TenantHome, number: int) -> Snapshot:
    """Return a snapshot by its number.

    Raises:
      SnapshotGone: the tenant has no such snapshot.
    """
    for record in listing(home).kept:
        if record.number == number:
            return of_record(home, record)
    app, user = home.tenant
    raise SnapshotGone(app=app, user=user, snapshot=number)
