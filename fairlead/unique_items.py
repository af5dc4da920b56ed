"""Items that are unique in the whole application, as an application enqueues them: by one call, or by a reservation."""

import logging
from collections.abc import Callable
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, TypeVar

from fairlead.actors.telemetry.enqueueing import Enqueueing
from fairlead.records.accesses import Op, run_op
from fairlead.records.errors import RecordError, ReservationEnded, Taken
from fairlead.records.on_shards.performing import ShardRecords
from fairlead.records.on_shards.unique_items import (
    ItemLocations,
    ItemTransaction,
    item_key,
    items_transaction,
    pack_unique_key,
    reservation,
)
from fairlead.records.protocol import Protocol
from fairlead.shards import Shards
from fairlead.zones.engines import StoreError
from fairlead.zones.errors import BadArgument
from fairlead.zones.layout import ID_BYTES, Tenant
from fairlead.zones.open_body import refuse_any
from fairlead.zones.queue.items import NewItem
from fairlead.zones.tenant_transaction import TenantTransaction

log = logging.getLogger("fairlead.records")

T = TypeVar("T")

ENQUEUE, RESERVE = "an enqueue with a unique key", "a reservation of a unique key"
_PROTOCOL = Protocol(ends_at_once=True, writes_at_once=True)


def enqueue_unique(shards: Shards, tenant: Tenant, zone: str, item: NewItem, unique_key: Any, item_id: bytes) -> None:
    """Enqueue an item whose key no other item of the application has. `item_id`: 16 random bytes.

    Raises:
      BadArgument: `unique_key` is none.
      Taken: an item, a dead letter, or an id that stays taken, has the key.
      Interrupted: another enqueue ended this one; try again.
      IndexUnavailable: the shard that holds the key does not answer.
      NestedTransaction: this is called by the body of a transaction.
    """
    refuse_any(ENQUEUE)
    index_key = pack_unique_key(unique_key)
    with Enqueueing(tenant) as enqueueing:
        begun = items_transaction(item._replace(unique_key=index_key), enqueueing.begin_attempt)
        create = _PROTOCOL.create_op(item_key(tenant, zone, item_id), [index_key], b"", item_id)
        try:
            run_op(create, _records(shards, begun).perform)
        except Taken:
            raise Taken(field="unique_key", value=unique_key) from None
        enqueueing.end_attempt()


class Reservation:
    """A unique key that is held for one item; what the `with` or `async with` block of `App.reserve` gets.

    It ends with the block. If the process dies, or a task is cancelled in `async with`, an item ends it after a minute
    at the latest. Whoever enqueues an item with the key meanwhile ends it, too: then the transaction that uses it
    raises `ReservationEnded`. A block that is entered again takes the key anew, for another item.
    """

    def __init__(self, shards: Shards, tenant: Tenant, zone: str, unique_key: Any, random: Random) -> None:
        self.tenant = tenant
        self.zone = zone
        self.unique_key = unique_key
        self._shards = shards
        self._random = random
        self._index_key = pack_unique_key(unique_key)
        self._draw_item()

    def __enter__(self) -> "Reservation":
        """Take the key.

        Raises:
          Taken, Interrupted, IndexUnavailable, NestedTransaction: see `enqueue_unique`.
        """
        refuse_any(RESERVE)
        self._draw_item()
        try:
            self._run(_PROTOCOL.reserve_op(self._key, self._dummy))
        except Taken:
            raise Taken(field="unique_key", value=self.unique_key) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give the key up, unless an item has it now."""
        try:
            self._run(_PROTOCOL.clean_op(self._key, self._item_id, [self._index_key]))
        except (RecordError, StoreError) as failure:
            log.info("the reservation of %r ends within a minute: %s", self.unique_key, failure)

    async def __aenter__(self) -> "Reservation":
        """Take the key as `with` does, and let the event loop go on meanwhile."""
        return await self._shards.calls.run(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give the key up, unless an item has it now, and let the event loop go on meanwhile."""
        await self._shards.calls.run(partial(self.__exit__, kind, error, traceback))

    def use(self, tr: TenantTransaction, item: NewItem) -> tuple[bytes, NewItem]:
        """See `Reserved`.

        Raises:
          BadArgument: the reservation is another tenant's, or the item has a name, which is unique by itself.
          ReservationEnded: see there.
        """
        if tr.tenant != self.tenant:
            raise BadArgument(argument="reserved", value=str(self.tenant), allowed=f"a reservation of {tr.tenant}")
        if item.given_id is not None:
            raise BadArgument(argument="item_id", value=item.given_id, allowed="None: the unique key names the item")
        if not ItemTransaction.within(tr, ItemLocations()).use_reservation(self._key, self._dummy):
            raise ReservationEnded(unique_key=self.unique_key)
        return self._item_id, item._replace(unique_key=self._index_key)

    def _draw_item(self) -> None:
        """Draw the id of the item. What deletes the index record of an earlier one must not find that of this one."""
        self._item_id = self._random.randbytes(ID_BYTES)
        self._key = item_key(self.tenant, self.zone, self._item_id)
        self._dummy = reservation(self._item_id, [self._index_key])

    def _run(self, operation: Op[T]) -> T:
        return run_op(operation, _records(self._shards, ItemTransaction).perform)


def _records(shards: Shards, transaction: Callable[..., ItemTransaction]) -> ShardRecords:
    return ShardRecords(shards, ItemLocations(), None, shards.parallel.run_all, transaction)
