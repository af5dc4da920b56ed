"""What a user's function gets as its transaction: the tenant's own keys, and the tenant's queue.

A thin view of the engine's transaction. Keys are tuples below the tenant's data, so no key can reach another tenant.
Ids of enqueued items stay the same when the transaction is retried. A handler gets nothing more. An application's own
transactions also have `.raw`, for users who know the invariants of the key space.

Each attempt that writes needs a receipt (`fairlead.zones.transaction_runner`): after a commit of unknown result the
transaction is applied once, whatever it writes.
"""

import inspect
from collections.abc import Callable, Iterator
from types import CoroutineType
from typing import Any, Protocol, Unpack, runtime_checkable

from fairlead.zones import local_index, tuples
from fairlead.zones.durations import Duration, duration_us
from fairlead.zones.engines import Reads, Transaction
from fairlead.zones.engines.api.database import ValueFuture
from fairlead.zones.errors import BadArgument, RawRefused
from fairlead.zones.keyspace import range_begin, range_end
from fairlead.zones.layout import (
    DEFAULT_ZONE,
    Tenant,
    check_name,
    check_zone,
    checked_id,
    gone_by_name,
    item_id_of,
    named_tenant,
)
from fairlead.zones.ownership import check_owner
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue import results
from fairlead.zones.queue.items import Enqueued, HasKind, ItemOptions, NewItem, new_item, refuse_option
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.queue.results import pack_result
from fairlead.zones.records import RESTRICTED_FORMAT, Parent, TenantSnapshots
from fairlead.zones.shard import Shard
from fairlead.zones.snapshots import taking
from fairlead.zones.snapshots.copying import CopyingWriter
from fairlead.zones.snapshots.snapshot_list import usable_snapshots
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow import locks, signals
from fairlead.zones.workflow.cancellation import CancelOutcome, cancel_op
from fairlead.zones.workflow.children import EndedChild, report_all
from fairlead.zones.workflow.locks import LockKey, LockRequest

Key = tuple[Any, ...]


class DataWriter(Protocol):
    """What writes a tenant's own keys: the engine's transaction, or what copies them first for snapshots."""

    def set(self, key: bytes, value: bytes) -> None:
        """See `Transaction`."""
        ...

    def clear(self, key: bytes) -> None:
        """See `Transaction`."""
        ...

    def clear_range(self, begin: bytes, end: bytes) -> None:
        """See `Transaction`."""
        ...

    def add(self, key: bytes, param: bytes) -> None:
        """See `Transaction`."""
        ...


class EnqueueObserver(Protocol):
    """Observes what a transaction enqueues, and adds a trace context to the stored items."""

    def with_trace(self, item: NewItem) -> NewItem:
        """Return an item that is about to be enqueued, with its trace context."""
        ...

    def on_enqueued(self, item: NewItem, enqueued: Enqueued) -> None:
        """Note the result of enqueueing `item` in this attempt."""
        ...


@runtime_checkable
class Reserved(Protocol):
    """A reservation of a unique key; see `App.reserve`."""

    def use(self, tr: "TenantTransaction", item: NewItem) -> tuple[bytes, NewItem]:
        """Use it up in a transaction: return the id of the item that is enqueued by it, and the item with its key."""
        ...


class SpanningEnqueueObserver(EnqueueObserver, Protocol):
    """Observes what a transaction across shards enqueues."""

    def begin_attempt_across_shards(self) -> None:
        """Note that the body runs: what it enqueued in an earlier attempt is not there."""
        ...

    def on_shard(self, shard: Shard) -> None:
        """Note on which shard the next item is enqueued."""
        ...

    def end_attempt(self) -> None:
        """Note that the body has ended, and that its items are being committed."""
        ...


class HasTenant(Protocol):
    """What stands for its tenant where one is named, such as a tenant's database."""

    @property
    def tenant(self) -> Tenant:
        """Return the tenant."""
        ...


class TenantTransaction:
    """One attempt at a transaction on one tenant's logical database. The function that gets it may run twice.

    No argument and no result of its methods reaches another tenant, but for a signal that names one.

    Its first operation reads the tenant's ownership record with conflict, beside what it reads itself. No value is
    returned, and nothing is written, before the record has been read: a method raises `TenantMoved` if another shard
    owns the tenant, `TenantLocked` if a transaction across shards has locked it, and `Restoring` if it is being
    restored to a snapshot. A shared lock refuses writes only. If the tenant has snapshots, a write keeps for them what
    the key holds.

    Args:
      owner_is_checked: the caller has read the record with conflict, or will, before it commits.
      run: of the workflow whose step this is; None: it is none.
    """

    __slots__ = (
        "_attempt",
        "_copying",
        "_enqueuer",
        "_keys",
        "_owner_is_checked",
        "_owner_is_known",
        "_raw_is_out",
        "_restricted_owner",
        "_run",
        "_shard",
        "_signal_count",
        "_tr",
        "_writes_plainly",
        "tenant",
    )

    def __init__(
        self,
        shard: Shard,
        tenant: Tenant,
        attempt: Attempt,
        enqueuer: EnqueueObserver | None = None,
        *,
        owner_is_checked: bool = False,
        run: bytes | None = None,
    ) -> None:
        self.tenant = tenant
        self._shard = shard
        self._attempt = attempt
        self._tr = attempt.tr
        self._enqueuer = enqueuer
        self._raw_is_out = False
        self._signal_count = 0
        self._run = run
        self._keys = shard.layout.location(tenant, DEFAULT_ZONE).keys.tenant
        self._owner_is_checked = owner_is_checked
        self._owner_is_known = False  # this transaction has seen the record itself
        self._restricted_owner: bytes | None = None  # the ownership record, if it may restrict writes
        self._copying: CopyingWriter | None = None  # what writes, if the tenant has snapshots
        self._writes_plainly = False  # The record is known, and lets the engine's transaction write.

    @property
    def now_us(self) -> int:
        """The time of this attempt, microseconds since the epoch; the same throughout."""
        return self._attempt.now_us

    def get(self, key: Key, *, snapshot: bool = False) -> bytes | None:
        """Return the value of `key`, or None. With `snapshot`, a concurrent change of `key` does not conflict."""
        packed = self._pack(key)
        reader = self._reader(snapshot)
        if self._owner_is_checked:
            value: bytes | None = reader.get(packed).value
            return value
        owner, read = self._tr.get(self._keys.owner), reader.get(packed)  # Both are on their way at once.
        self._check_owner(owner)
        return read.value

    def set(self, key: Key, value: bytes) -> None:
        """Set `key` to `value`, at most 100,000 bytes."""
        self._writer().set(self._pack(key), value)

    def clear(self, key: Key) -> None:
        """Clear `key`."""
        self._writer().clear(self._pack(key))

    def clear_prefix(self, prefix: Key = ()) -> None:
        """Clear all keys that begin with `prefix` and are longer."""
        packed = self._pack_prefix(prefix)
        self._writer().clear_range(range_begin(packed), range_end(packed))

    def add(self, key: Key, amount: int) -> None:
        """Add `amount`, a 64-bit number, to an 8-byte little-endian signed counter; adds do not conflict."""
        if not isinstance(amount, int) or not -(2**63) <= amount < 2**63:
            raise BadArgument(argument="amount", value=amount, allowed="a whole number of 64 bits")
        self._writer().add(self._pack(key), amount.to_bytes(8, "little", signed=True))

    def get_range(
        self, prefix: Key = (), *, limit: int = 0, reverse: bool = False, snapshot: bool = False
    ) -> Iterator[tuple[Key, bytes]]:
        """Yield keys and values below `prefix` in order; `limit` 0 is no limit."""
        packed = self._pack_prefix(prefix)
        reader = self._reader(snapshot)
        owner = None if self._owner_is_checked else self._tr.get(self._keys.owner)
        rows = reader.get_range(range_begin(packed), range_end(packed), limit=limit, reverse=reverse)
        if owner is not None:
            self._check_owner(owner)
        for row in rows:
            yield tuples.unpack(row.key, len(self._keys.data)), row.value

    def get_between(self, begin: Key, end: Key, *, limit: int = 0) -> Iterator[tuple[Key, bytes]]:
        """Yield keys and values from `begin` to before `end`, in order; `limit` 0 is no limit."""
        reader = self._reader(snapshot=False)
        owner = None if self._owner_is_checked else self._tr.get(self._keys.owner)
        rows = reader.get_range(self._pack(begin), self._pack(end), limit=limit)
        if owner is not None:
            self._check_owner(owner)
        for row in rows:
            yield tuples.unpack(row.key, len(self._keys.data)), row.value

    def snapshot(self, *, keep: Duration | None = None) -> int:
        """Take a snapshot of the tenant's own keys, with what this transaction has written so far; return its number.

        It exists if and only if the transaction commits. `TenantDatabase.at` reads at it.

        Args:
          keep: after how long it is dropped: seconds or a `timedelta`; None: it is kept until it is dropped.

        Raises:
          BadArgument: `keep` is no duration.
          TooManySnapshots: the tenant has 16 already.
          RawRefused: this transaction has used `.raw`.
        """
        kept_us = None if keep is None else duration_us("keep", keep)
        if self._raw_is_out:
            raise RawRefused(tenant=str(self.tenant))
        tr = self._queue_writer()
        number, snapshots = taking.take(tr, self._shard.layout, self._keys, now_us=self.now_us, kept_us=kept_us)
        self._note_answer()
        self._owner_is_checked = self._owner_is_known = True
        self._copy_for(snapshots)
        return number

    def enqueue(
        self,
        kind: str | HasKind,
        payload: Any = None,
        *,
        zone: str = DEFAULT_ZONE,
        reserved: Reserved | None = None,
        **options: Unpack[ItemOptions],
    ) -> Enqueued:
        """Enqueue work in this transaction: the item exists if and only if the transaction commits.

        Args:
          kind: the handler, or its kind.
          payload: plain data, at most 1,000,000 bytes packed.
          zone: one of the tenant's queue zones.
          reserved: what `app.reserve` gave: the item is unique in the application.
          options: see `ItemOptions`.

        Raises:
          BadArgument, PayloadNotData, PayloadTooLarge: see `new_item`.
          ReservationEnded: the reservation holds its key no more; the transaction must not commit.
        """
        refuse_option(options, "unique_key", "none in a transaction: app.reserve before it, and reserved= in it")
        item = new_item(kind, payload, **options)
        if reserved is None:
            return self.enqueue_item(item, zone=zone)
        if not isinstance(reserved, Reserved):
            allowed = "a reservation: with app.reserve(tenant, key) as reserved"
            raise BadArgument(argument="reserved", value=reserved, allowed=allowed)
        item_id, item = reserved.use(self, item)
        return self.enqueue_item(item, zone=zone, item_id=item_id)

    def enqueue_item(self, item: NewItem, *, zone: str = DEFAULT_ZONE, item_id: bytes | None = None) -> Enqueued:
        """Enqueue an item that `new_item` made. `item_id`: of an item without a name; no other item has it."""
        self._shard.check_kind(item.kind)
        return self._enqueue(item, zone, item_id)

    def _enqueue(self, item: NewItem, zone: str, item_id: bytes | None = None) -> Enqueued:
        tr = self._queue_writer()
        if item.given_id is None:
            item_id = item_id or self._attempt.new_id()
        else:
            item_id, item = item_id_of(item.given_id), item._replace(run=self._attempt.new_id())
        if self._enqueuer is not None:
            item = self._enqueuer.with_trace(item)
        with self._shard.db.burst(tr) as writer:
            enqueued = self._zone(zone).enqueue(writer, item, item_id=item_id, now_us=self.now_us)
        self._note_answer()
        if self._enqueuer is not None:
            self._enqueuer.on_enqueued(item, enqueued)
        return enqueued

    def signal(
        self,
        item_id: str | bytes,
        name: str,
        payload: Any = None,
        *,
        zone: str = DEFAULT_ZONE,
        to: Tenant | HasTenant | str | None = None,
    ) -> None:
        """Send a signal to a workflow in this transaction: it arrives if and only if the transaction commits.

        A workflow that waits for the signal continues at once. Otherwise the signal is kept until the workflow takes
        it, or ends. A dead letter keeps it for its retry.

        Args:
          item_id: the 16 bytes that `enqueue` returned, or the name that the item was given.
          name: of the signal, text of 1 to 96 bytes.
          payload: plain data, at most 64,000 bytes packed.
          zone: the item's queue zone.
          to: the item's tenant, if it is another one, as a `Tenant`, "APP/USER", or a tenant's database. Then the
            signal is brought by an item in this tenant's queue. It is dropped if the workflow has ended by then.

        Raises:
          BadArgument: an argument is outside its range.
          PayloadNotData, PayloadTooLarge: see `pack_payload`.
          ItemGone: there is neither such an item nor such a dead letter; not with `to`. The transaction must not
            commit: let the error pass, or catch it to commit what else it does.
          ItemUnreadable: a newer version wrote the item.
        """
        wanted, receiver_zone = checked_id(item_id), check_zone(zone)
        packed = signals.pack_signal(check_name("name", name), payload)
        receiver = self.tenant if to is None else tenant_of(to)
        if receiver == self.tenant:
            location = self._zone(zone).location
            operation = signals.send_op(
                self._queue_writer(), location, wanted, name, packed, number=self._signal_count, now_us=self.now_us
            )
            self._signal_count += 1
            with gone_by_name(item_id):
                run_one(operation)
            self._note_answer()
            return
        self._enqueue(signals.delivery_of(receiver, receiver_zone, wanted, name, payload), DEFAULT_ZONE)

    def cancel(self, item_id: str | bytes, *, zone: str = DEFAULT_ZONE) -> CancelOutcome:
        """Cancel an item of this tenant in this transaction: it is deleted, or its steps are undone first.

        Raises:
          BadArgument: an argument is outside its range.
          ItemGone: it ended, or is a dead letter without recorded steps.
        """
        wanted, queue = checked_id(item_id), self._zone(zone)
        with gone_by_name(item_id):
            cancellation = run_one(cancel_op(self._queue_writer(), queue, wanted, force=False, now_us=self.now_us))
        self._note_answer()
        return cancellation.outcome

    def cancel_child(self, item_id: bytes, parent: Parent, *, zone: str) -> None:
        """Cancel the child of a workflow's call; see `cancel`. Another item of its name stays.

        Raises:
          ItemGone: see `cancel`; or the item there is another one.
        """
        operation = cancel_op(
            self._queue_writer(), self._zone(zone), item_id, force=False, now_us=self.now_us, parent=parent
        )
        run_one(operation)
        self._note_answer()

    def require_unlocked(self, key: LockKey) -> None:
        """Refuse to go on while another one holds the lock `key` of this tenant, also a shared one.

        Nobody can take the lock before this transaction has committed. A step may require a lock that its own run
        holds, and a transaction one that it is `under`.

        Raises:
          BadArgument: `key` is no key of a lock.
          Busy: a workflow or a process holds the lock; let the error pass, and try again later.
          RunUnreadable: what is stored of the lock is damaged, or a newer version wrote it.
        """
        lock = locks.pack_lock(key)
        self._attempt.begin_read()
        location = self._zone(DEFAULT_ZONE).location
        held = run_one(locks.holder_op(self._tr, location, lock, besides=self._run))
        self._note_answer()
        if held is not None:
            raise locks.busy(lock, held, now_us=self.now_us)

    def take_lock(self, lock: bytes, request: LockRequest) -> bool:
        """Request a packed lock of this tenant for a workflow's run, in a step of it; return whether the run holds it.

        Raises:
          AskedTwice: the run has requested it in another step.
        """
        is_held = run_one(locks.take_op(self._queue_writer(), self._zone(DEFAULT_ZONE).location, lock, request))
        self._note_answer()
        return is_held

    def release_lock(self, lock: bytes, run: bytes) -> None:
        """Give up a run's request of a packed lock of this tenant, in a step of the run."""
        location = self._zone(DEFAULT_ZONE).location
        run_one(locks.release_op(self._queue_writer(), location, lock, run, now_us=self.now_us))
        self._note_answer()

    def complete(
        self,
        item_id: bytes,
        *,
        lease_id: bytes,
        zone: str = DEFAULT_ZONE,
        result: Any = None,
        keep_result: Duration = 0,
    ) -> None:
        """Complete an item in this transaction, and keep `result` for as long as `keep_result`; 0 keeps none.

        If the item is a child of a workflow, `result` is also reported to its parent. Handlers call
        `job.complete_in(tr)` instead, which supplies the lease id.

        Raises:
          BadArgument: `keep_result` is no duration.
          LeaseLost, ItemGone: another consumer holds the item, or it is gone; the transaction must not commit.
          ResultNotKept: `result` is not plain data, or too long.
        """
        kept_us = duration_us("keep_result", keep_result)
        queue, tr = self._zone(zone), self._queue_writer()
        children: list[EndedChild] = []
        with self._shard.db.burst(tr) as writer:
            queue.complete(writer, item_id, now_us=self.now_us, lease_id=lease_id, children=children)
        self._note_answer()
        packed = pack_result(result) if kept_us or children else b""
        report_all(tr, [child._replace(result=packed) for child in children], now_us=self.now_us)
        if kept_us:
            results.keep_result(tr, queue.location, item_id, packed, now_us=self.now_us, kept_us=kept_us)

    def _reader(self, snapshot: bool) -> Reads:
        """Return what reads."""
        if self._attempt.before_read is not None:
            self._attempt.begin_read()
        return self._tr.snapshot if snapshot else self._tr

    def _queue_writer(self) -> Transaction:
        """Return the engine's transaction for an operation on a queue, which reads the ownership record itself."""
        self._attempt.begin_read()
        self._attempt.needs_receipt = True
        return self._tr

    def _writer(self) -> DataWriter:
        """Return what writes the tenant's own keys: the attempt needs a receipt from now on."""
        writer = self._tr if self._writes_plainly else self._careful_writer()
        self._attempt.needs_receipt = True
        return writer

    def _careful_writer(self) -> DataWriter:
        """Return what writes the tenant's own keys, by the ownership record, which is read if it is not known yet."""
        if not self._owner_is_checked:
            self._check_owner(self._tr.get(self._keys.owner))
        if self._restricted_owner is not None:
            check_owner(self._tr, self._shard.layout, self._keys, self._restricted_owner)  # A lock, or a move.
            self._restricted_owner = None
        if not self._owner_is_known:
            if self._attempt.before_read is not None:
                return self._tr  # A step that has read nothing: its run knows the record, and that there are none.
            owners, key = self._attempt.owners, self._keys.owner
            self._note_owner(owners[key] if key in owners else self._tr.get(key).value)
            self._owner_is_known = True
        if self._copying is not None:
            return self._copying
        self._writes_plainly = True
        return self._tr

    def _check_owner(self, owner: ValueFuture) -> None:
        """Wait for the ownership record, and see that this shard owns the tenant, and that it may be read."""
        value, layout = owner.value, self._shard.layout
        if value is not None or layout.first_shards:  # Nearly all tenants have no record.
            check_owner(self._tr, layout, self._keys, value, writes=False)
            if value is not None and value[0] == RESTRICTED_FORMAT:
                self._restricted_owner = value
                self._note_owner(value)
        self._owner_is_known = True
        self._owner_is_checked = True
        self._note_answer()

    def _note_owner(self, value: bytes | None) -> None:
        """Note the ownership record, as this transaction sees it, and that the tenant is not being restored."""
        snapshots = usable_snapshots(self._keys, value)
        if snapshots is not None:
            self._copy_for(snapshots)

    def _copy_for(self, snapshots: TenantSnapshots) -> None:
        """Copy for snapshots what is written from now on."""
        self._copying = CopyingWriter(self._tr, self._keys, snapshots, self._shard.db.limits)
        self._writes_plainly = False

    def _note_answer(self) -> None:
        """Note that the store has answered a read. Not after use of `raw`: the value may be this attempt's own."""
        self._attempt.has_read = not self._raw_is_out

    def _zone(self, name: str) -> QueueZone:
        return self._shard.zone(self.tenant, check_zone(name))

    def _pack(self, key: Key) -> bytes:
        if not isinstance(key, tuple) or not key:
            raise BadArgument(argument="key", value=key, allowed='a tuple that is not empty, such as ("order", 7)')
        return self._pack_prefix(key)

    def _pack_prefix(self, key: Key) -> bytes:
        if not isinstance(key, tuple):
            raise BadArgument(argument="key", value=key, allowed='a tuple, such as ("order",)')
        try:
            packed: bytes = self._keys.data + tuples.pack(key)
        except (ValueError, AttributeError) as error:  # AttributeError: a Versionstamp, without the client library
            raise BadArgument(argument="key", value=key, allowed="a tuple of data", reason=str(error)) from None
        return packed


def tenant_of(named: Tenant | HasTenant | str) -> Tenant:
    """Return the tenant that an argument names: a `Tenant`, "APP/USER", or a tenant's database.

    Raises:
      BadArgument: it names none.
    """
    if isinstance(named, Tenant | str):
        return named_tenant(named)
    tenant = getattr(named, "tenant", None)
    if not isinstance(tenant, Tenant):
        allowed = '"APP/USER", such as "shop/alice", a Tenant, or app.tenant(...)'
        raise BadArgument(argument="tenant", value=named, allowed=allowed)
    return tenant


def check_plain(body: Callable[..., Any]) -> None:
    """Refuse an async function as the body of a transaction: it would run nothing, and commit nothing.

    Raises:
      BadArgument: see there.
    """
    if inspect.iscoroutinefunction(body):
        raise _not_plain(getattr(body, "__qualname__", repr(body)))  # A `functools.partial` has no name.


def refuse_coroutine(result: object) -> None:
    """Refuse a coroutine as the result of a transaction's body: the body was an async function, and has not run.

    Raises:
      BadArgument: see there. Raised in the transaction, it prevents the commit.
    """
    if type(result) is CoroutineType:
        result.close()  # Python would warn that it was never awaited.
        raise _not_plain(result.__qualname__)


def _not_plain(name: str) -> BadArgument:
    return BadArgument(argument="body", value=name, allowed="a plain function of a transaction, not an async one")


def add_to_local_index(tr: TenantTransaction, index: bytes, member: bytes) -> None:
    """Let the shard find what a transaction writes, see `local_index.add`. For layers above queues, no handlers."""
    tr._writer()
    local_index.add(tr._tr, tr._keys, index, member)


def remove_from_local_index(tr: TenantTransaction, index: bytes, member: bytes) -> None:
    """Undo `add_to_local_index`."""
    tr._writer()
    local_index.remove(tr._tr, tr._keys, index, member)


def parts_of(tr: TenantTransaction) -> tuple[Shard, Attempt]:
    """Return the shard and the attempt of a transaction, for layers that write rows of the tenant within it."""
    return tr._shard, tr._attempt


def queue_reader(tr: TenantTransaction) -> Reads:
    """Return the engine's transaction, for layers that decide by what a queue of the tenant holds.

    Reads the ownership record with conflict. A restore refuses no such read: it touches no queue.

    Raises:
      TenantMoved, TenantLocked, TenantFrozen: see `check_owner`.
    """
    tr._attempt.begin_read()
    check_owner(tr._tr, tr._shard.layout, tr._keys, tr._tr.get(tr._keys.owner).value, writes=False)
    tr._note_answer()
    return tr._tr


class ApplicationTransaction(TenantTransaction):
    """A tenant transaction that the application opens (`app.tenant(...).transact`). It also has `.raw`."""

    __slots__ = ()

    @property
    def raw(self) -> Transaction:
        """The engine's transaction, which reaches all keys of the shard: those of other tenants, and of the queues.

        Writes through it are not observed, so a transaction that uses it counts as one that writes. After a commit of
        unknown result (FoundationDB) it is applied once; and even if it only reads, it pays for a commit. After such a
        commit a versionstamp that it asked for is unknown: read it back from the keys that were written with it.

        Raises:
          RawRefused: the tenant has snapshots, which such writes would change.
        """
        self._raw_is_out = True
        self._attempt.begin_read()
        self._writer()
        if self._copying is not None:
            raise RawRefused(tenant=str(self.tenant))
        return self._tr

    @property
    def has_given_raw(self) -> bool:
        """Whether `.raw` has been used."""
        return self._raw_is_out

    def zone(self, name: str = DEFAULT_ZONE) -> QueueZone:
        """Return one of the tenant's queue zones, whose operations take `.raw`."""
        return self._zone(name)
