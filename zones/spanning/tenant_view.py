"""What the body of a transaction across shards gets for each tenant: the tenant's keys, and enqueueing.

A handler may also complete its item: `job.complete_in(tx.on(job.tenant))`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, cast

from fairlead.zones.durations import Duration, duration_us
from fairlead.zones.engines import Transaction
from fairlead.zones.engines.api.database import ValueFuture
from fairlead.zones.errors import QueueError, TenantLocked, TenantMoved
from fairlead.zones.layout import DEFAULT_ZONE, Tenant, item_id_of
from fairlead.zones.moving.marks import NONCE_BYTES, MarkingTransaction
from fairlead.zones.queue.id_retention import read_id_state, status_of_id
from fairlead.zones.queue.items import Enqueued, EnqueueStatus, NewItem, Outcome
from fairlead.zones.queue.lease_check import check_lease, error_of
from fairlead.zones.queue.results import pack_result
from fairlead.zones.shard import Shard
from fairlead.zones.spanning.write_buffer import BufferedTransaction, WriteBuffer
from fairlead.zones.spanning.write_set import ItemEnd, ItemWrite
from fairlead.zones.tenant_transaction import DataWriter, SpanningEnqueueObserver, TenantTransaction
from fairlead.zones.transaction_runner import Attempt


class NotAcrossShards(QueueError):
    """A transaction across shards cannot do this to a queue, or take a snapshot; nothing was changed.

    Do: enqueue an item, whose handler does it in a transaction of its own; or do it in `tenant.transact`.
    """

    message = (
        "a transaction across shards can read, write, enqueue, and complete the handler's own item, and do nothing else"
    )


class BranchAttempt(Attempt):
    """The part of an attempt that runs on one shard. All parts draw ids from one sequence."""

    __slots__ = ("_draw_id",)

    def __init__(self, tr: Transaction, now_us: int, draw_id: Callable[[], bytes]) -> None:
        super().__init__(tr, b"", now_us)
        self._draw_id = draw_id

    def new_id(self) -> bytes:
        """See `Attempt`."""
        return self._draw_id()


class Branch:
    """The part of one attempt at a transaction across shards that is on one shard.

    `note_read` is called when the shard has given a read version, and perhaps again. `enqueuer`: see `TenantView`.

    Attributes:
      tr: the engine's transaction, in which the body reads.
      buffer: what the body has written.
      views: the tenants that the body has named.
    """

    def __init__(
        self,
        shard: Shard,
        now_us: int,
        draw_id: Callable[[], bytes],
        note_read: Callable[["Branch"], None],
        enqueuer: SpanningEnqueueObserver | None,
    ) -> None:
        self.shard = shard
        self._enqueuer = enqueuer
        self._note_read = note_read
        # What is carried out at home is written by it, and marked if a tenant moves.
        self.tr = cast(
            Transaction, MarkingTransaction(shard.db.create_transaction(), shard.random.randbytes(NONCE_BYTES))
        )
        self.buffer = WriteBuffer(shard.db.limits)
        self.views: dict[Tenant, TenantView] = {}
        buffered = cast(Transaction, BufferedTransaction(self.tr, self.buffer))
        self._attempt = BranchAttempt(buffered, now_us, draw_id)

    def view(self, tenant: Tenant, note_refusal: Callable[[TenantMoved | TenantLocked], None]) -> "TenantView":
        """Return what the body gets for a tenant."""
        if tenant not in self.views:
            note_read = partial(self._note_read, self)
            self.views[tenant] = TenantView(
                self.shard, tenant, self._attempt, self.buffer, note_read, note_refusal, self._enqueuer
            )
        return self.views[tenant]

    @property
    def used(self) -> dict[Tenant, bool]:
        """The tenants whom the body has read or written, and whether it has written."""
        return {tenant: view.has_written for tenant, view in self.views.items() if view.is_used}


class TenantView(TenantTransaction):
    """One tenant in a transaction across shards. Its writes are buffered; its reads see them.

    Copies for the tenant's snapshots are buffered, too, and count against the size of the transaction. They stay right
    until they are carried out: no one else writes to the tenant, or changes its snapshots, while it is locked.

    `enqueuer`: observes what the whole transaction enqueues; None: nobody does.
    """

    __slots__ = ("_buffer", "_note_read", "_note_refusal", "_spanning_enqueuer", "has_written")

    def __init__(
        self,
        shard: Shard,
        tenant: Tenant,
        attempt: Attempt,
        buffer: WriteBuffer,
        note_read: Callable[[], None],
        note_refusal: Callable[[TenantMoved | TenantLocked], None],
        enqueuer: SpanningEnqueueObserver | None,
    ) -> None:
        super().__init__(shard, tenant, attempt)
        self._spanning_enqueuer = enqueuer
        self._buffer = buffer
        self._note_read = note_read
        self._note_refusal = note_refusal
        self.has_written = False

    @property
    def is_used(self) -> bool:
        """Whether the body has read or written the tenant."""
        return self._owner_is_checked

    def _enqueue(self, item: NewItem, zone: str, item_id: bytes | None = None) -> Enqueued:
        """Enqueue an item if its id is free, which is read with conflict; see `insertion.enqueue_op`."""
        self._writer()
        location = self._zone(zone).location
        if item.given_id is None:
            item_id, status = item_id or self._attempt.new_id(), EnqueueStatus.ENQUEUED
        else:
            item_id, item = item_id_of(item.given_id), item._replace(run=self._attempt.new_id())
            status = status_of_id(read_id_state(self._tr, location.keys, item_id, is_given=True), self.now_us)
            if self._buffer.holds_item((*self.tenant, zone), item_id):
                status = EnqueueStatus.PRESENT
        enqueuer = self._spanning_enqueuer
        if enqueuer is not None:
            enqueuer.on_shard(self._shard)
            item = enqueuer.with_trace(item)
        if status is EnqueueStatus.ENQUEUED:
            self._buffer.enqueue(ItemWrite.of(self.tenant, zone, item_id, item, now_us=self.now_us))
        enqueued = Enqueued(item_id, status)
        if enqueuer is not None:
            enqueuer.on_enqueued(item, enqueued)
        return enqueued

    def complete(
        self,
        item_id: bytes,
        *,
        lease_id: bytes,
        zone: str = DEFAULT_ZONE,
        result: Any = None,
        keep_result: Duration = 0,
    ) -> None:
        """Complete an item in this transaction; see `TenantTransaction.complete`. Reads its record with conflict."""
        kept_us = duration_us("keep_result", keep_result)
        self._writer()
        location = self._zone(zone).location
        record = check_lease(self._tr.get(location.keys.item(item_id)).value, lease_id)
        if isinstance(record, Outcome):
            raise error_of(record, item_id)
        if self._buffer.ends_item((*self.tenant, zone), item_id):
            raise error_of(Outcome.GONE, item_id)
        packed = pack_result(result) if kept_us or record.parent is not None else b""
        self._buffer.complete(ItemEnd(*self.tenant, zone, item_id, lease_id, self.now_us, packed, kept_us))

    @property
    def raw(self) -> NoReturn:
        """Refuse: what is written past the buffer would be committed without the transaction.

        Raises:
          NotAcrossShards: always.
        """
        raise NotAcrossShards(tenant=str(self.tenant))

    def _queue_writer(self) -> NoReturn:
        raise NotAcrossShards(tenant=str(self.tenant))

    def _writer(self) -> DataWriter:
        try:
            writer = super()._writer()
        except TenantLocked as locked:
            self._note_refusal(locked)
            raise
        self.has_written = True
        return writer

    def _check_owner(self, owner: ValueFuture) -> None:
        try:
            super()._check_owner(owner)
        except (TenantMoved, TenantLocked) as refusal:
            self._note_refusal(refusal)
            raise
        self._note_read()
