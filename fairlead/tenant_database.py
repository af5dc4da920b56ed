"""One tenant's logical database with its queue, whichever shard holds it."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar, Unpack

from fairlead import snapshots
from fairlead.actors.telemetry.enqueueing import Enqueueing
from fairlead.bulk_enqueue import enqueue_many
from fairlead.ends_elsewhere import ends_elsewhere
from fairlead.explanation import Explanation, explain_at
from fairlead.external_explanation import explain_in_stores
from fairlead.external_queues import ExternalQueues
from fairlead.external_stores import ExternalAccess, OfTenant
from fairlead.handle import Ending, EnqueuedHandle, Handle, StoreErrors
from fairlead.operator import Operator
from fairlead.recorded_steps import RunView, read_steps
from fairlead.shards import Shards
from fairlead.snapshots import OldKeys, Snapshot
from fairlead.store_threads import AwaitableCalls
from fairlead.tenant_locks import HeldLock, TenantLock, lock_of
from fairlead.unique_items import enqueue_unique
from fairlead.views import DeadLetterView, ItemView, dead_letter_view, item_view
from fairlead.zones.durations import Duration, duration_us
from fairlead.zones.engines import Clock
from fairlead.zones.errors import BadArgument, NotADeadLetter, TenantMoved
from fairlead.zones.external.inspection import InspectedStore
from fairlead.zones.external.names import Queue
from fairlead.zones.layout import DEFAULT_ZONE, ID_BYTES, Tenant, check_zone, gone_by_name, named_tenant, shown_id
from fairlead.zones.layout import checked_id as checked_id
from fairlead.zones.open_body import ACROSS_SHARDS, ON_A_TENANT, NestedTransaction, open_body, refuse_across_shards
from fairlead.zones.ownership import check_home
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue import dead_letters, results
from fairlead.zones.queue.items import (
    Enqueued,
    EnqueueStatus,
    HasKind,
    ItemOptions,
    NewItem,
    new_item,
    refuse_option,
)
from fairlead.zones.queue.queue_zone import LATER_THAN_ANY_US, QueueZone
from fairlead.zones.queue.results import NotKept
from fairlead.zones.records import DeadLetterRecord
from fairlead.zones.reporting import audit_log
from fairlead.zones.reporting.completion_log import EndReason, reason_of_last
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_transaction import ApplicationTransaction, TenantTransaction, check_plain, refuse_coroutine
from fairlead.zones.transaction_runner import SEED_BYTES, Attempt, new_seed
from fairlead.zones.workflow import holds
from fairlead.zones.workflow.cancellation import Cancellation, CancelOutcome, cancel_op, was_applied
from fairlead.zones.workflow.holds import Hold

T = TypeVar("T")

RAW_STAYS = "a transaction that has used .raw is not repeated on another shard"


class TenantDatabase:
    """One tenant's keys and queue zones. Made by `App.tenant`; makes no call to the store until a method is called.

    `shards` returns the shards that the application has now: a module may make this object before `App.configure`.
    """

    __slots__ = ("_externals", "_shard_name", "_shards", "tenant")

    def __init__(
        self,
        shards: Callable[[], Shards],
        tenant: Tenant,
        *,
        shard_name: str | None = None,
        externals: ExternalAccess | None = None,
    ) -> None:
        self.tenant = tenant
        self._externals = externals
        self._shards = shards
        self._shard_name = shard_name

    def __repr__(self) -> str:
        return f"<TenantDatabase {self.tenant}>"

    @property
    def shard(self) -> Shard:
        """The shard where the tenant lives, opened."""
        shards = self._shards()
        return shards.home(self.tenant) if self._shard_name is None else shards[self._shard_name]

    def transact(self, body: Callable[[ApplicationTransaction], T], *, under: HeldLock | None = None) -> T:
        """Run `body(tr)` in one transaction on the tenant's keys and queue, and return its result once it is durable.

        `body` may run several times (after a conflict), so it must only read and write through `tr`; leave mails and
        prints to handlers. Its writes through `tr` are applied once.

        Args:
          under: a lock of this tenant that this process holds: what its block gave. The transaction commits only while
            the process holds it.

        Raises:
          BadArgument: `body` is an async function, which would change nothing; `under` is released, or a lock of
            another tenant.
          LockLost: `under` is lost; nothing was changed.
          NestedTransaction: this is called by the body of a transaction across shards.
          TenantBusy: transactions across shards have locked the tenant for five seconds.
          StoreError (on FoundationDB: FDBError): an error that a retry does not cure.
          TenantMoved: the tenant lives on another shard, and `body` has used `.raw`; or that shard is not configured.
          What `body` raises: nothing was changed.
        """
        hold = None if under is None else _hold_of(under, self.tenant)
        with Enqueueing(self.tenant) as enqueueing:
            return self.at_home(lambda shard: self._transact_on(shard, body, enqueueing, hold))

    def _transact_on(
        self, shard: Shard, body: Callable[[ApplicationTransaction], T], enqueueing: Enqueueing, hold: Hold | None
    ) -> T:
        tried: list[ApplicationTransaction] = []
        run_of_hold = None if hold is None else hold.item_id

        def run(attempt: Attempt) -> T:
            if hold is not None:
                holds.check_held(attempt.tr, hold.location(shard.layout), hold)
            enqueuer = enqueueing.begin_attempt(shard)
            tr = ApplicationTransaction(shard, self.tenant, attempt, enqueuer, run=run_of_hold)
            tried.append(tr)
            token = open_body.set(ON_A_TENANT)
            try:
                if token.old_value is ACROSS_SHARDS:  # Asked here, because it costs nothing here.
                    raise NestedTransaction(begun=ON_A_TENANT, inside=ACROSS_SHARDS)
                result = body(tr)
            finally:
                open_body.reset(token)
            refuse_coroutine(result)
            enqueueing.end_attempt()
            return result

        try:
            return shard.transact(run)
        except TenantMoved as moved:
            if any(tr.has_given_raw for tr in tried):
                app, user = self.tenant
                raise TenantMoved(app=app, user=user, shard=shard.name, reason=RAW_STAYS) from moved
            raise

    def _read(self, body: Callable[[Attempt, Shard], T]) -> T:
        """Run a body that reads by snapshot, where the tenant lives."""

        def checked(attempt: Attempt, shard: Shard) -> T:
            check_home(attempt.tr, shard.layout.location(self.tenant, DEFAULT_ZONE))
            return body(attempt, shard)

        return self.at_home(lambda shard: shard.transact(partial(checked, shard=shard)))

    def find(self) -> Shard:
        """Return the shard where the tenant lives now, as the shard says. Reads one key there."""
        return self.shard if self._shard_name is not None else self._shards().find(self.tenant)

    def at_home(self, call: Callable[[Shard], T]) -> T:
        """Return what `call` returns for the tenant's shard; call it again if the tenant lives on another one by now.

        A shard that refuses a transaction because the tenant has moved has changed nothing.
        """
        if self._shard_name is not None:
            return call(self.shard)
        return self._shards().at_home(self.tenant, call)

    def enqueue(
        self,
        kind: str | HasKind,
        payload: Any = None,
        *,
        zone: str = DEFAULT_ZONE,
        unique_key: Any = None,
        within: Any = None,
        **options: Unpack[ItemOptions],
    ) -> EnqueuedHandle:
        """Enqueue one item in a transaction of its own; return a handle: its id, and whether this call put it there.

        Args:
          kind: the handler, or its kind: text of 1 to 96 bytes. An item waits until a consumer handles its kind.
          payload: plain data, at most 1,000,000 bytes packed.
          zone: one of the tenant's queue zones.
          unique_key: what no other item of the whole application has; see `EnqueueOptions`.
          within: a connection to an external store, with an open transaction: the item lies there, and exists if and
            only if that transaction commits. See `zones.postgresql.within`.
            Without a user's transaction: `external`.
          options: see `ItemOptions`.

        Raises:
          BadArgument, PayloadNotData, PayloadTooLarge: nothing was changed.
          NoTransaction, ForeignDatabase, SchemaMissing, PostgresRefused: only with `within`.
          Taken, Interrupted, IndexUnavailable, NestedTransaction: only with a `unique_key`; see `enqueue_unique`.
        """
        refuse_option(
            options, "reserved", "none here: tr.enqueue takes it, in a transaction; or give a unique_key here"
        )
        if within is not None:
            item = self._item_within(kind, payload, unique_key, options)
            access = self._external_access
            name, (enqueued,) = access.enqueue(None, zone, [OfTenant(self.tenant, item)], within)
            return ExternalQueues(self, access, name).enqueued(enqueued, item, zone)
        if unique_key is not None:
            return self._enqueue_unique(kind, payload, zone, unique_key, options)
        item = new_item(kind, payload, **options)
        made = self.transact(lambda tr: tr.enqueue_item(item, zone=zone))
        given = item.given_id if isinstance(item.given_id, str) else None
        return EnqueuedHandle(self, made.item_id, zone, made.status, name=given)

    def _item_within(self, kind: str | HasKind, payload: Any, unique_key: Any, options: ItemOptions) -> NewItem:
        if unique_key is not None:
            allowed = "None with `within`: its index lies in the shards. An item_id is unique in its queue"
            raise BadArgument(argument="unique_key", value=..., allowed=allowed)
        return new_item(kind, payload, **options)

    @property
    def _external_access(self) -> ExternalAccess:
        if self._externals is None or not self.tenant.app:
            raise BadArgument(argument="tenant", value=str(self.tenant), allowed="no local items in an external store")
        return self._externals

    def _stores(self) -> Mapping[str, InspectedStore]:
        return {} if self._externals is None else self._externals.stores()

    def external(self, store: str) -> ExternalQueues:
        """Return the tenant's queues in an external store: what can be done with their items, in SQL or alone.

        So `alice.external("pg").cancel("order 7", within=conn)` cancels an item if the transaction commits. Nothing is
        read. The handle of an item that was enqueued `within` a connection leads there, too.

        Args:
          store: the name of the store in the configuration.

        Raises:
          UnknownStore: there is none of this name.
          BadArgument: these are local items.
        """
        access = self._external_access
        access.store(store)
        return ExternalQueues(self, access, store)

    @property
    def clock(self) -> Clock:
        """The clock of the application."""
        return self._shards().clock

    def home_name(self) -> str:
        """Return the name of the shard where the tenant was last found. Reads nothing."""
        return self._shards().home_name(self.tenant)

    def write_audit_entry(self, by: Operator, what: str, to: dict[str, Any]) -> None:
        """Write an entry of the audit log, in a transaction of its own, about a change in an external store."""
        entry_id = self._shards().random.randbytes(audit_log.ID_BYTES)

        def body(attempt: Attempt) -> None:
            audit_log.write(attempt.tr, by.audit_entry(entry_id, what, to, done_us=attempt.now_us))

        self.at_home(lambda shard: shard.transact(body))

    def _enqueue_unique(
        self, kind: str | HasKind, payload: Any, zone: str, unique_key: Any, options: ItemOptions
    ) -> EnqueuedHandle:
        if options.get("item_id") is not None:
            raise BadArgument(argument="item_id", value=options["item_id"], allowed="None with a unique_key")
        if not self.tenant.app or self._shard_name is not None:
            raise BadArgument(argument="unique_key", value=unique_key, allowed="None for a local item")
        kept = duration_us("unique_for", options.pop("unique_for", 0))
        item = new_item(kind, payload, **options)._replace(unique_us=kept)
        shards, name = self._shards(), check_zone(zone)
        item_id = new_seed(shards.clock.now_us(), shards.random) + bytes(ID_BYTES - SEED_BYTES)
        enqueue_unique(shards, self.tenant, name, item, unique_key, item_id)
        return EnqueuedHandle(self, item_id, zone, EnqueueStatus.ENQUEUED)

    async def atransact(self, body: Callable[[ApplicationTransaction], T], *, under: HeldLock | None = None) -> T:
        """Run `body` as `transact` does, and let the event loop go on meanwhile.

        `body` is a plain function, and runs in another thread. A coroutine that is cancelled while it waits does not
        undo the transaction: one that has begun goes on, and may commit.

        Raises:
          BadArgument: `body` is an async function.
          What `transact` raises.
        """
        check_plain(body)
        return await self.calls.run(partial(self.transact, body, under=under))

    def lock(self, *keys: Any, wait: Duration = 5.0, shared: bool = False) -> TenantLock:
        """Return a block that holds locks, which no workflow and no other block holds meanwhile.

            alice = app.tenant("shop/alice")
            with alice.lock(("account", 7), wait=2.0) as held:
                alice.transact(lambda tr: tr.add(("balance", 7), 10), under=held)

        In a coroutine, write `async with`, and `await alice.atransact(body, under=held)`. In a workflow, use `wf.lock`.

        Locks are given to workflows and processes in the order in which they asked. Several locks are taken one after
        the other, in the order of their tenants and keys. The end of the block releases them, also after an error. If
        this process dies, a consumer releases them within seven seconds. A process that stands still for so long loses
        them, too: only a transaction that is `under` the lock knows that it has not.

        Args:
          keys: tuples, as keys of a tenant are; or pairs of a tenant, on any shard, and such a tuple.
          wait: how long to wait in all for locks that are not free, seconds or a `timedelta`; 0 does not wait.
          shared: others may hold the locks at the same time, if theirs are shared, too.

        Raises:
          BadArgument: a key is none, is too long, or is given twice; `wait` is no duration.
          TooManyLocks: more than 100 keys.
          Busy: by the block: `wait` is over. It has taken nothing.
          LockOrder: by the block: it asks for a lock that sorts before one that this thread or task holds.
          LockInTransaction: by the block: it is in the body of a transaction.
          LockLost: by the block, or by its end: this process was taken for dead while it waited, or held the lock.
        """
        if not self.tenant.app or self._shard_name is not None:
            raise BadArgument(argument="tenant", value=str(self.tenant), allowed="a tenant; local items have no locks")
        return lock_of(self._shards(), self.tenant, keys, wait=wait, shared=shared)

    async def aenqueue(
        self,
        kind: str | HasKind,
        payload: Any = None,
        *,
        zone: str = DEFAULT_ZONE,
        unique_key: Any = None,
        within: Any = None,
        **options: Unpack[ItemOptions],
    ) -> EnqueuedHandle:
        """Enqueue one item as `enqueue` does, and let the event loop go on meanwhile; see `atransact`.

        The payload is packed in another thread: do not change it before this returns.

        Args:
          within: an asynchronous connection to an external store: psycopg's `AsyncConnection`, or SQLAlchemy's
            `AsyncConnection` or `AsyncSession`. See `enqueue`.
        """
        if within is not None:
            item = self._item_within(kind, payload, unique_key, options)
            access, of_tenant = self._external_access, [OfTenant(self.tenant, item)]
            name, (enqueued,) = await access.aenqueue(None, zone, of_tenant, within, self.calls)
            return ExternalQueues(self, access, name).enqueued(enqueued, item, zone)
        return await self.calls.run(partial(self.enqueue, kind, payload, zone=zone, unique_key=unique_key, **options))

    @property
    def calls(self) -> AwaitableCalls:
        """How coroutines wait for the tenant's store."""
        return self._shards().calls

    def item(self, item_id: str | bytes, *, zone: str = DEFAULT_ZONE) -> Handle:
        """Return the handle of an item that was enqueued before, here or elsewhere. Nothing is read.

        Raises:
          BadArgument: `item_id` is neither text nor bytes.
        """
        wanted, name = checked_id(item_id), item_id if isinstance(item_id, str) else None
        return Handle(self, wanted, check_zone(zone), name=name)

    def enqueue_many(self, items: Iterable[NewItem], *, zone: str = DEFAULT_ZONE, within: Any = None) -> list[Enqueued]:
        """Enqueue items that `new_item` made; see `App.enqueue_many`. `within`: see `enqueue`."""
        if within is not None:
            of_tenant = [OfTenant(self.tenant, item) for item in items]
            return self._external_access.enqueue(None, zone, of_tenant, within)[1]
        return enqueue_many(((self, item) for item in items), zone=zone)

    async def aenqueue_many(
        self, items: Iterable[NewItem], *, zone: str = DEFAULT_ZONE, within: Any = None
    ) -> list[Enqueued]:
        """Enqueue items as `enqueue_many` does, and let the event loop go on meanwhile. `within`: see `aenqueue`."""
        if within is None:
            return await self.calls.run(partial(self.enqueue_many, list(items), zone=zone))
        of_tenant = [OfTenant(self.tenant, item) for item in items]
        return (await self._external_access.aenqueue(None, zone, of_tenant, within, self.calls))[1]

    # --- Snapshots of the tenant's own keys ---

    def snapshot(self, *, keep: Duration | None = None, by: Operator | None = None) -> Snapshot:
        """Take a snapshot of the tenant's own keys, in one commit, however many there are.

        From then on the first write of each key costs two more reads and one more write. Queues, logs and locks are no
        part of it. `tr.snapshot()` takes one inside a transaction.

        Args:
          keep: after how long housekeeping drops it: seconds or a `timedelta`; None: it is kept until it is dropped.
          by: see `cancel`.

        Raises:
          BadArgument: `keep` is no duration, or the tenant is a slot of records.
          TooManySnapshots: the tenant has 16 already.
          Restoring: the tenant is being restored.
        """
        refuse_across_shards(ON_A_TENANT)
        kept_us = None if keep is None else duration_us("keep", keep)
        return snapshots.take(self, kept_us, note=snapshots.noting(by, self.tenant))

    def snapshots(self) -> list[Snapshot]:
        """Return the tenant's snapshots, oldest first. Reads one key."""
        return [snapshots.of_record(self, record) for record in snapshots.listing(self).kept]

    def at(self, snapshot: Snapshot | int) -> OldKeys:
        """Return the tenant's own keys as they were at a snapshot, or its number.

            alice = app.tenant("shop/alice")
            with alice.at(alice.snapshot()) as old:
                old.get(("order", 7))
                old.get_range(("order",))

        Raises:
          BadArgument: `snapshot` is neither, or is one of another tenant.
          SnapshotGone: by the calls: the tenant has no such snapshot.
        """
        return OldKeys(self, snapshots.number_of(snapshot, self.tenant))

    def restore(self, snapshot: Snapshot | int, *, by: Operator | None = None) -> None:
        """Give the tenant's own keys the values that they had at a snapshot. Returns once all have them.

        Commits for each 100 keys that have changed since. Meanwhile transactions on the tenant's keys raise
        `Restoring`. Queues and logs stay, and go on. All snapshots stay, so a restore can be undone: take one before.
        If the process dies, housekeeping of any consumer goes on, and so does the same call.

        Args:
          by: see `cancel`.

        Raises:
          BadArgument: `snapshot` is no snapshot of this tenant, or the tenant is a slot of records.
          SnapshotGone: the tenant has no such snapshot.
          RestoreRefused: workflows that have recorded steps are under way.
          Restoring: the tenant is being restored to another snapshot.
        """
        refuse_across_shards(ON_A_TENANT)
        number, note = snapshots.number_of(snapshot, self.tenant), snapshots.noting(by, self.tenant)
        snapshots.restore(self, number, note=note)

    async def asnapshot(self, *, keep: Duration | None = None) -> Snapshot:
        """Take a snapshot as `snapshot` does, and let the event loop go on meanwhile; see `atransact`."""
        return await self.calls.run(partial(self.snapshot, keep=keep))

    async def asnapshots(self) -> list[Snapshot]:
        """Return the snapshots as `snapshots` does, and let the event loop go on meanwhile."""
        return await self.calls.run(self.snapshots)

    async def arestore(self, snapshot: Snapshot | int) -> None:
        """Restore as `restore` does, and let the event loop go on meanwhile; see `atransact`."""
        await self.calls.run(partial(self.restore, snapshot))

    def peek(self, items_max: int = 20, *, vested_only: bool = False, zone: str = DEFAULT_ZONE) -> list[ItemView]:
        """Return the first items of the queue in (priority, vesting time) order, payloads included.

        Includes delayed and leased items, unless `vested_only`. Changes nothing, conflicts with nothing.
        """

        def body(attempt: Attempt, shard: Shard) -> list[ItemView]:
            queue = shard.zone(self.tenant, check_zone(zone))
            until_us = attempt.now_us if vested_only else LATER_THAN_ANY_US
            found = queue.peek(attempt.tr, items_max=items_max, now_us=until_us)
            return [
                item_view(shard, attempt.tr, queue.location, each.id, each.record, now_us=attempt.now_us)
                for each in found
            ]

        return self._read(body)

    def count(self, *, zone: str = DEFAULT_ZONE) -> dict[str, int]:
        """Return how many items of each kind are in the queue: waiting, delayed and leased ones, no dead letters."""

        def body(attempt: Attempt, shard: Shard) -> dict[str, int]:
            return shard.zone(self.tenant, check_zone(zone)).count(attempt.tr)

        return self._read(body)

    def cancel(
        self, item_id: str | bytes, *, zone: str = DEFAULT_ZONE, force: bool = False, by: Operator | None = None
    ) -> CancelOutcome:
        """Delete an item from the queue, leased or not. A running handler learns of it; see `Handle.cancel`.

        A workflow that has recorded steps is not deleted at once. First its steps are undone, last first: from now on
        if it waits or is a dead letter, from its next commit on if it runs. A second call changes nothing.

        Args:
          item_id: the 16 bytes that `enqueue` returned, or the name that it was given.
          force: delete it, even if it is a dead letter, and undo nothing.
          by: the operator, for the audit log; None: the application itself, which writes no entry.

        Returns:
          Whether the item is deleted, or its steps are undone first.

        Raises:
          BadArgument: `item_id` is neither text nor bytes.
          ItemGone: it completed, was cancelled, was never enqueued, or is a dead letter without recorded steps.
        """
        wanted = checked_id(item_id)
        check_zone(zone)

        def cancel_on(shard: Shard) -> CancelOutcome:
            queue = shard.zone(self.tenant, zone)
            cancellation: Cancellation | None = None

            def body(attempt: Attempt) -> CancelOutcome:
                nonlocal cancellation
                cancellation = run_one(cancel_op(attempt.tr, queue, wanted, force=force, now_us=attempt.now_us))
                self._write_audit_entry(attempt, by, "force cancel" if force else "cancel", wanted, zone)
                return cancellation.outcome

            # After an unknown result: another item may have been enqueued by that name since, and must stay.
            return shard.transact(body, applied=lambda tr: was_applied(tr, queue.location, wanted, cancellation))

        with gone_by_name(item_id):
            return self.at_home(cancel_on)

    async def acancel(self, item_id: str | bytes, *, zone: str = DEFAULT_ZONE, force: bool = False) -> CancelOutcome:
        """Cancel an item as `cancel` does, and let the event loop go on meanwhile."""
        return await self.calls.run(partial(self.cancel, item_id, zone=zone, force=force))

    def signal(
        self,
        item_id: str | bytes,
        name: str,
        payload: Any = None,
        *,
        zone: str = DEFAULT_ZONE,
        by: Operator | None = None,
    ) -> None:
        """Send a signal to a workflow of this tenant, in a transaction of its own; see `TenantTransaction.signal`.

        Args:
          item_id, name, payload, zone: see there.
          by: see `cancel`.

        Raises:
          BadArgument, PayloadNotData, PayloadTooLarge, ItemGone: nothing was changed.
        """
        wanted = checked_id(item_id)

        def body(attempt: Attempt, shard: Shard) -> None:
            TenantTransaction(shard, self.tenant, attempt).signal(item_id, name, payload, zone=zone)
            self._write_audit_entry(attempt, by, "signal", wanted, zone)

        self.at_home(lambda shard: shard.transact(partial(body, shard=shard)))

    async def asignal(self, item_id: str | bytes, name: str, payload: Any = None, *, zone: str = DEFAULT_ZONE) -> None:
        """Send a signal as `signal` does, and let the event loop go on meanwhile; see `atransact`.

        The payload is packed in another thread: do not change it before this returns.
        """
        await self.calls.run(partial(self.signal, item_id, name, payload, zone=zone))

    def steps(self, item_id: str | bytes, *, zone: str = DEFAULT_ZONE) -> RunView:
        """Return what a workflow has recorded: its steps in the order in which they began, and its state as a whole.

        Also of a dead letter. A run that has ended keeps no steps.

        Args:
          item_id: the 16 bytes that `enqueue` returned, or the name that it was given.

        Raises:
          BadArgument: `item_id` is neither text nor bytes.
          ItemGone: it ended, was cancelled, or was never enqueued.
          ItemUnreadable: a newer version wrote it.
        """
        wanted, name = checked_id(item_id), check_zone(zone)
        with gone_by_name(item_id):
            return self.at_home(
                lambda shard: read_steps(self._shards(), shard, self.tenant, name, wanted, externals=self._stores())
            )

    def explain(self, item_id: str | bytes, *, zone: str = DEFAULT_ZONE) -> Explanation:
        """Say why an item is not running, or how it ended: one cause. Changes nothing, conflicts with nothing.

        If the tenant's shard does not know the item, the external stores are asked.

        Args:
          item_id: the 16 bytes that `enqueue` returned, or the name that it was given.

        Raises:
          BadArgument: `item_id` is neither text nor bytes.
        """
        shards, name, wanted = self._shards(), check_zone(zone), checked_id(item_id)
        stores = self._stores()
        found = self.at_home(lambda shard: explain_at(shard, self.tenant, name, wanted, shards=shards, stores=stores))
        return explain_in_stores(found, shards, stores, item_id, Queue(self.tenant, name))

    def read_ending(self, item_id: bytes, *, zone: str) -> tuple[Ending, StoreErrors]:
        """Return how an item ended, or a watch; and what the store raises from which that was read.

        The tenant may move meanwhile to a shard of another engine. Of one that has moved, the completion logs of all
        other shards are read that can be.
        """

        def read(shard: Shard) -> tuple[Ending, StoreErrors]:
            location = shard.layout.location(self.tenant, zone)
            return shard.transact(lambda attempt: results.ending(attempt.tr, location, item_id)), shard.db.errors

        found, store_errors = self.at_home(read)
        if isinstance(found, NotKept) and found.end_reason is None:
            found = results.ending_without_result(self._end_reason_elsewhere(item_id, zone))
        return found, store_errors

    def _end_reason_elsewhere(self, item_id: bytes, zone: str) -> EndReason | None:
        """Return how an item ended before the tenant moved; None: it has never moved, or the end is not known any more.

        Reads one key; of a tenant that has moved, the completion logs of all other shards that can be read.
        """
        shards = self._shards()

        def ends(shard: Shard) -> EndReason | None:
            found = ends_elsewhere(shards, shard, shard.layout.location(self.tenant, zone), item_id)
            return reason_of_last(ended for _, ended in found.ends)

        return self.at_home(ends)

    def dead_letters(self, items_max: int = 20, *, zone: str = DEFAULT_ZONE) -> list[DeadLetterView]:
        """Return the tenant's dead letters with their errors, in no particular order. Changes nothing."""
        check_zone(zone)

        def body(attempt: Attempt, shard: Shard) -> list[DeadLetterView]:
            location = shard.layout.location(self.tenant, zone)
            found, _ = dead_letters.in_zone(attempt.tr, location, items_max=items_max)
            return [dead_letter_view(shard, attempt.tr, each) for each in found]

        return self._read(body)

    def retry_dead_letter(self, item_id: str | bytes, *, zone: str = DEFAULT_ZONE, by: Operator | None = None) -> None:
        """Put a dead letter back into its queue, due now, with all its attempts.

        Args:
          by: see `cancel`.

        Raises:
          BadArgument: `item_id` is neither text nor bytes.
          NotADeadLetter: there is no dead letter with this id.
        """

        def retry_dead_letter(attempt: Attempt, queue: QueueZone, wanted: bytes, record: DeadLetterRecord) -> None:
            dead_letters.retry_dead_letter(attempt.tr, queue.location, wanted, record, now_us=attempt.now_us)
            run_one(queue.wake_op(attempt.tr, earliest_us=attempt.now_us, now_us=attempt.now_us))
            self._write_audit_entry(attempt, by, "retry", wanted, zone)

        self._change_dead_letter(item_id, zone, retry_dead_letter)

    def discard_dead_letter(
        self, item_id: str | bytes, *, zone: str = DEFAULT_ZONE, by: Operator | None = None
    ) -> None:
        """Delete a dead letter for good.

        Args:
          by: see `cancel`.

        Raises:
          BadArgument: `item_id` is neither text nor bytes.
          NotADeadLetter: there is no dead letter with this id.
        """

        def discard_dead_letter(attempt: Attempt, queue: QueueZone, wanted: bytes, record: DeadLetterRecord) -> None:
            dead_letters.discard(attempt.tr, queue.location, wanted, record, now_us=attempt.now_us)
            self._write_audit_entry(attempt, by, "discard", wanted, zone)

        self._change_dead_letter(item_id, zone, discard_dead_letter)

    def _write_audit_entry(self, attempt: Attempt, by: Operator | None, what: str, item_id: bytes, zone: str) -> None:
        """Write an entry of the audit log about an item, if an operator asked for the change."""
        if by is not None:
            to = {"tenant": list(self.tenant), "zone": zone, "item": item_id.hex()}
            audit_log.write(attempt.tr, by.audit_entry(attempt.new_id(), what, to, done_us=attempt.now_us))

    def _change_dead_letter(
        self,
        item_id: str | bytes,
        zone: str,
        change: Callable[[Attempt, QueueZone, bytes, DeadLetterRecord], None],
    ) -> None:
        wanted = checked_id(item_id)
        check_zone(zone)

        def change_on(shard: Shard) -> None:
            queue = shard.zone(self.tenant, zone)
            location = queue.location
            dead_letter: DeadLetterRecord | None = None

            def body(attempt: Attempt) -> None:
                nonlocal dead_letter
                dead_letter = dead_letters.read(attempt.tr, location, wanted)
                if dead_letter is None:
                    raise NotADeadLetter(item=shown_id(item_id), tenant=str(self.tenant), zone=zone)
                change(attempt, queue, wanted, dead_letter)

            # After an unknown result: another item of that name may have become a dead letter since, and must stay.
            shard.transact(
                body, applied=lambda tr: not _is_same_dead_letter(dead_letter, dead_letters.read(tr, location, wanted))
            )

        self.at_home(change_on)


def _hold_of(under: HeldLock, tenant: Tenant) -> Hold:
    if not isinstance(under, HeldLock):
        raise BadArgument(
            argument="under", value=under, allowed="what the block of a lock gave: with alice.lock(..) as held"
        )
    return under.hold_of(tenant)


def _is_same_dead_letter(one: DeadLetterRecord | None, other: DeadLetterRecord | None) -> bool:
    return one is not None and other is not None and one.dead_lettered_us == other.dead_lettered_us


def tenant_of(app: str | Tenant | TenantDatabase, user: str | None = None) -> Tenant:
    """Return the tenant of two names, or of one argument: "APP/USER", a `Tenant`, or a tenant's database.

    Raises:
      BadArgument: see `fairlead.zones.layout.named_tenant`.
    """
    return app.tenant if isinstance(app, TenantDatabase) else named_tenant(app, user)
