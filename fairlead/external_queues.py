"""One tenant's queues in an external store: what applications and operators do with their items.

The methods are those of `TenantDatabase`. Those that take `within` are done in a user's SQL transaction if they get its
connection: if and only if it commits. Without one, they are done at once.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NoReturn, Protocol, Unpack

from fairlead.explanation import Explanation
from fairlead.external_stores import ExternalAccess, OfTenant
from fairlead.handle import Ending, EnqueuedHandle, Handle, StoreErrors
from fairlead.operator import Operator
from fairlead.store_threads import AwaitableCalls
from fairlead.views import DeadLetterView, ItemView, external_dead_letter_view, external_item_view
from fairlead.zones.engines import Clock, StoreUnavailable
from fairlead.zones.errors import ItemGone, NotADeadLetter, QueueError
from fairlead.zones.external.item_ids import ids_named
from fairlead.zones.external.names import Queue, check_zone_name, pointer_zone
from fairlead.zones.external.queue_operations import DeadRow, FoundRow, QueueOperations
from fairlead.zones.layout import DEFAULT_ZONE, Tenant, checked_id, shown_id
from fairlead.zones.queue.items import Enqueued, HasKind, Item, ItemOptions, NewItem, new_item, unpack_payload
from fairlead.zones.queue.queue_zone import check_count
from fairlead.zones.queue.results import Failed, NotKept, Pending, Returned
from fairlead.zones.reporting.completion_log import reason_of_last
from fairlead.zones.workflow.cancellation import CancelOutcome


class NoWorkflow(QueueError):
    """An item in an external store is no workflow: it has no steps, and takes no signals.

    Do: enqueue the workflow without `within`; then it lies in the tenant's shard, and may write to the external store.
    """

    message = "an item in an external store is no workflow"


class HomeDatabase(Protocol):
    """The database of the tenant, in its shard; see `fairlead.tenant_database.TenantDatabase`."""

    @property
    def tenant(self) -> Tenant:
        """Return the tenant."""
        ...

    @property
    def calls(self) -> AwaitableCalls:
        """Return how coroutines wait for stores."""
        ...

    def home_name(self) -> str:
        """Return the name of the shard that holds the pointers of the queues."""
        ...

    def explain(self, item_id: str | bytes, *, zone: str) -> Explanation:
        """Say why an item is not running, wherever it lies."""
        ...

    def read_ending(self, item_id: bytes, *, zone: str) -> tuple[Ending, StoreErrors]:
        """Return how an item ended; by the name of a pointer of an external queue: what the completion log says."""
        ...

    def write_audit_entry(self, by: Operator, what: str, to: dict[str, Any]) -> None:
        """Write an entry of the audit log about the tenant's items."""
        ...


class ExternalQueues:
    """One tenant's queues in an external store. Made by `TenantDatabase.external`; nothing is read until it is used.

    Every method raises `StoreUnavailable` if the store does not answer, or another transaction has locked the item for
    more than a second: that of its handler in SQL, for example. Those with `within` raise what
    `zones.postgresql.within.open_within` raises, and wait for a locked item as long as the connection is told to.
    """

    __slots__ = ("_access", "_home", "name", "tenant")

    def __init__(self, home: HomeDatabase, access: ExternalAccess, name: str) -> None:
        self.tenant = home.tenant
        self.name = name
        self._home = home
        self._access = access

    def __repr__(self) -> str:
        return f"<ExternalQueues of {self.tenant} in {self.name}>"

    @property
    def calls(self) -> AwaitableCalls:
        """How coroutines wait for the store."""
        return self._home.calls

    @property
    def clock(self) -> Clock:
        """The clock of the application."""
        return self._access.clock()

    # --- Enqueue ---

    def enqueue(
        self,
        kind: str | HasKind,
        payload: Any = None,
        *,
        zone: str = DEFAULT_ZONE,
        within: Any = None,
        **options: Unpack[ItemOptions],
    ) -> EnqueuedHandle:
        """Enqueue one item; return a handle: its id, and whether this call put it there.

        Args:
          kind, payload, options: see `TenantDatabase.enqueue`.
          zone: text of 1 to 78 bytes.
          within: a connection to the store, with an open transaction; None: a transaction of its own.

        Raises:
          BadArgument, PayloadNotData, PayloadTooLarge: nothing was changed.
          AnswerLost: without `within`: the connection broke during the commit, and the item may be there. With an
            `item_id`, calling again is harmless.
        """
        item = new_item(kind, payload, **options)
        _, (made,) = self._access.enqueue(self.name, zone, [OfTenant(self.tenant, item)], within)
        return self.enqueued(made, item, zone)

    async def aenqueue(
        self,
        kind: str | HasKind,
        payload: Any = None,
        *,
        zone: str = DEFAULT_ZONE,
        within: Any = None,
        **options: Unpack[ItemOptions],
    ) -> EnqueuedHandle:
        """Enqueue one item as `enqueue` does, and let the event loop go on meanwhile.

        Args:
          within: an asynchronous connection.
        """
        if within is None:
            return await self.calls.run(partial(self.enqueue, kind, payload, zone=zone, **options))
        item = new_item(kind, payload, **options)
        of_tenant = OfTenant(self.tenant, item)
        _, (made,) = await self._access.aenqueue(self.name, zone, [of_tenant], within, self.calls)
        return self.enqueued(made, item, zone)

    def enqueued(self, made: Enqueued, item: NewItem, zone: str) -> EnqueuedHandle:
        """Return the handle of an item that was enqueued here."""
        given = item.given_id if isinstance(item.given_id, str) else None
        return EnqueuedHandle(self, made.item_id, zone, made.status, name=given)

    def enqueue_many(self, items: Iterable[NewItem], *, zone: str = DEFAULT_ZONE, within: Any = None) -> list[Enqueued]:
        """Enqueue items that `new_item` made; return the result of each, in order.

        Within a user's transaction all or none are there; without one, 500 are one transaction.
        """
        return self._access.enqueue(self.name, zone, self._of_tenant(items), within)[1]

    async def aenqueue_many(
        self, items: Iterable[NewItem], *, zone: str = DEFAULT_ZONE, within: Any = None
    ) -> list[Enqueued]:
        """Enqueue items as `enqueue_many` does, and let the event loop go on meanwhile."""
        if within is None:
            return await self.calls.run(partial(self.enqueue_many, list(items), zone=zone))
        _, made = await self._access.aenqueue(self.name, zone, self._of_tenant(items), within, self.calls)
        return made

    def _of_tenant(self, items: Iterable[NewItem]) -> list[OfTenant]:
        return [OfTenant(self.tenant, item) for item in items]

    # --- Look ---

    def item(self, item_id: str | bytes, *, zone: str = DEFAULT_ZONE) -> Handle:
        """Return the handle of an item that was enqueued before, here or elsewhere. Nothing is read.

        Raises:
          BadArgument: `item_id` is neither text nor bytes.
        """
        queue = self._queue(zone)
        checked_id(item_id)
        name = item_id if isinstance(item_id, str) else None
        return Handle(self, ids_named(queue, item_id)[0], zone, name=name)

    def peek(self, items_max: int = 20, *, vested_only: bool = False, zone: str = DEFAULT_ZONE) -> list[ItemView]:
        """Return the first items of the queue in (priority, vesting time) order, payloads included.

        Includes delayed and leased items, unless `vested_only`. Changes nothing.
        """
        check_count("items_max", items_max)
        queue, now_us = self._queue(zone), self.clock.now_us()
        found = self._own.peek(queue, items_max=items_max, vested_only=vested_only, now_us=now_us)
        home = self._home.home_name()
        return [external_item_view(home, self.name, queue, each, now_us=now_us) for each in found]

    def count(self, *, zone: str = DEFAULT_ZONE) -> dict[str, int]:
        """Return how many items of each kind are in the queue: waiting, delayed and leased ones, no dead letters.

        Of a kind and priority, 10,000 at most are counted.
        """
        return self._own.count(self._queue(zone))

    def read_ending(self, item_id: bytes, *, zone: str) -> tuple[Ending, StoreErrors]:
        """Return how an item ended, or that it has not; and what the store raises."""
        queue, now_us = self._queue(zone), self.clock.now_us()
        found = _ending_of(self._own.find(queue, [item_id], now_us=now_us, with_payload=False))
        if isinstance(found, NotKept):
            found = self._ending_without_result(item_id, queue)
        return found, (StoreUnavailable,)

    def _ending_without_result(self, item_id: bytes, queue: Queue) -> Ending:
        """Return how an item ended that has left no result: as the tenant's shard or the store knows."""
        found, _ = self._home.read_ending(item_id, zone=pointer_zone(self.name, queue.zone))
        if isinstance(found, NotKept) and found.end_reason is None:
            cancelled = self._access.store(self.name).cancelled([item_id], now_us=self.clock.now_us())
            return NotKept(reason_of_last(each for each in cancelled if Queue(each.tenant, each.zone) == queue))
        return found

    def explain(self, item_id: str | bytes, *, zone: str = DEFAULT_ZONE) -> Explanation:
        """Say why an item is not running, or how it ended; see `TenantDatabase.explain`."""
        return self._home.explain(item_id, zone=zone)

    # --- Change ---

    def cancel(
        self,
        item_id: str | bytes,
        *,
        zone: str = DEFAULT_ZONE,
        force: bool = False,
        by: Operator | None = None,
        within: Any = None,
    ) -> CancelOutcome:
        """Delete an item from the queue, leased or not. A running handler learns of it when its lease is extended.

        Waits for the transaction of a handler in SQL that runs the item; then the item is gone.

        Args:
          item_id: the 16 bytes that `enqueue` returned, or the name that it was given.
          force: delete it, even if it is a dead letter.
          by: the operator, for the audit log, which is written in the tenant's shard afterwards; None: no entry.
          within: a connection to the store, with an open transaction; None: a transaction of its own.

        Raises:
          BadArgument: `item_id` is neither text nor bytes.
          ItemGone: it completed, was cancelled, was never enqueued, or is a dead letter.
        """
        queue, ids = self._named(zone, item_id)
        _, operations = self._access.operations(self.name, within)
        if not operations.cancel(queue, ids, force=force):
            raise self._gone(item_id, zone)
        self._note(by, "force cancel" if force else "cancel", ids[0], zone)
        return CancelOutcome.DELETED

    async def acancel(
        self, item_id: str | bytes, *, zone: str = DEFAULT_ZONE, force: bool = False, within: Any = None
    ) -> CancelOutcome:
        """Cancel an item as `cancel` does, and let the event loop go on meanwhile.

        Args:
          within: an asynchronous connection.
        """
        if within is None:
            return await self.calls.run(partial(self.cancel, item_id, zone=zone, force=force))
        queue, ids = self._named(zone, item_id)
        _, operations = await self._access.async_operations(self.name, within, self.calls)
        if not await operations.cancel(queue, ids, force=force):
            raise self._gone(item_id, zone)
        return CancelOutcome.DELETED

    def dead_letters(self, items_max: int = 20, *, zone: str = DEFAULT_ZONE) -> list[DeadLetterView]:
        """Return the dead letters of the queue with their errors, oldest first. Changes nothing."""
        check_count("items_max", items_max)
        rows = self._own.dead_letters(self._queue(zone), items_max=items_max)
        found = [row.dead_letter for row in rows if row.dead_letter is not None]
        return [external_dead_letter_view(self._home.home_name(), self.name, each) for each in found]

    def retry_dead_letter(
        self, item_id: str | bytes, *, zone: str = DEFAULT_ZONE, by: Operator | None = None, within: Any = None
    ) -> None:
        """Put a dead letter back into its queue, due now, with all its attempts.

        Args:
          by, within: see `cancel`.

        Raises:
          BadArgument: `item_id` is neither text nor bytes.
          NotADeadLetter: there is no dead letter with this id.
        """
        _, operations = self._access.operations(self.name, within)
        row = self._dead_letter(operations, item_id, zone)
        if not operations.retry_dead_letters([row], now_us=self.clock.now_us()):
            raise self._not_dead(item_id, zone)
        self._note(by, "retry", row.place.id, zone)

    def discard_dead_letter(
        self, item_id: str | bytes, *, zone: str = DEFAULT_ZONE, by: Operator | None = None, within: Any = None
    ) -> None:
        """Delete a dead letter for good; see `retry_dead_letter`."""
        _, operations = self._access.operations(self.name, within)
        row = self._dead_letter(operations, item_id, zone)
        if not operations.discard_dead_letters([row]):
            raise self._not_dead(item_id, zone)
        self._note(by, "discard", row.place.id, zone)

    # --- What only workflows have ---

    def signal(
        self, item_id: str | bytes, name: str, payload: Any = None, *, zone: str, by: Operator | None = None
    ) -> NoReturn:
        """Refuse: see `NoWorkflow`."""
        raise NoWorkflow(item=shown_id(item_id), store=self.name)

    def steps(self, item_id: str | bytes, *, zone: str) -> NoReturn:
        """Refuse: see `NoWorkflow`."""
        raise NoWorkflow(item=shown_id(item_id), store=self.name)

    # --- Parts ---

    @property
    def _own(self) -> QueueOperations:
        return self._access.store(self.name).queues

    def _queue(self, zone: str) -> Queue:
        return Queue(self.tenant, check_zone_name(zone))

    def _named(self, zone: str, item_id: str | bytes) -> tuple[Queue, Sequence[bytes]]:
        checked_id(item_id)
        queue = self._queue(zone)
        return queue, ids_named(queue, item_id)

    def _dead_letter(self, operations: QueueOperations, item_id: str | bytes, zone: str) -> DeadRow:
        queue, ids = self._named(zone, item_id)
        found = operations.find(queue, ids, now_us=self.clock.now_us())
        if not isinstance(found, DeadRow) or found.dead_letter is None:
            raise self._not_dead(item_id, zone)
        return found

    def _gone(self, item_id: str | bytes, zone: str) -> ItemGone:
        return ItemGone(item=shown_id(item_id), tenant=str(self.tenant), zone=zone, store=self.name)

    def _not_dead(self, item_id: str | bytes, zone: str) -> NotADeadLetter:
        return NotADeadLetter(item=shown_id(item_id), tenant=str(self.tenant), zone=zone, store=self.name)

    def _note(self, by: Operator | None, what: str, item_id: bytes, zone: str) -> None:
        if by is not None:
            to = {"tenant": list(self.tenant), "store": self.name, "zone": zone, "item": item_id.hex()}
            self._home.write_audit_entry(by, what, to)


def _ending_of(found: FoundRow | None) -> Ending:
    if isinstance(found, Item):
        return Pending(None)
    if isinstance(found, DeadRow):
        return Failed("" if found.dead_letter is None else found.dead_letter.record.error, dead_letter=True)
    if found is not None and found.result is not None:
        return Returned(unpack_payload(found.result))
    return NotKept(None)
