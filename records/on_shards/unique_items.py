"""Items that are unique in the whole application: records of the protocol whose data record is an item.

    what the protocol has     what it is here
    primary key               the item: tenant, queue zone, id
    generation g              the life of the item, which for an item without a name is its id
    dummy                     a reservation, beside the tenant's data
    data record               the item, its dead letter, or its id while that stays taken (`unique_for`)
    alternate key             the unique key; its index record lies in a slot

An item never gains a key, so a collection changes nothing of it: phase 3 deletes a reservation, or does nothing. What
ends items leaves garbage (`fairlead.zones.queue.unique_keys`).

A restore of the tenant may bring a reservation back that has ended, or has become an item. Queues are not restored. So
an item comes before its reservation, and a reservation without its cleanup item counts as absent.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from fairlead.records.accesses import Ended
from fairlead.records.alternate_keys import Field, pack_unique
from fairlead.records.definition import TypeRecord
from fairlead.records.errors import RecordUnreadable
from fairlead.records.on_shards.cleanup import cleanup_id
from fairlead.records.on_shards.slots import DATA, SLOTS_APP, Key, Locations
from fairlead.records.on_shards.transaction import LivesHere, RecordTransaction
from fairlead.records.stored import DataRecord, IndexRecord, pack, unpack_data
from fairlead.zones import tuples
from fairlead.zones.errors import BadArgument
from fairlead.zones.layout import DEFAULT_ZONE, Tenant
from fairlead.zones.queue.items import NewItem
from fairlead.zones.records import DeadLetterRecord, ItemRecord, decode, is_newer
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_transaction import EnqueueObserver, TenantTransaction
from fairlead.zones.transaction_runner import Attempt

ITEMS_TYPE = "fairlead.items"
UNIQUE_KEY = Field("unique_key", is_unique=True)
_SEPARATOR = "\x00"  # Names hold no NUL.

R = TypeVar("R", ItemRecord, DeadLetterRecord)

Observe = Callable[[Shard], EnqueueObserver | None]


def item_key(tenant: Tenant, zone: str, item_id: bytes) -> str:
    """Return the primary key of an item."""
    return _SEPARATOR.join((*tenant, zone, item_id.hex()))


def item_of_key(key: str) -> tuple[Tenant, str, bytes]:
    """Return the tenant, the queue zone and the id of an item, by its primary key."""
    app, user, zone, item_id = key.split(_SEPARATOR)
    return Tenant(app, user), zone, bytes.fromhex(item_id)


def pack_unique_key(unique_key: Any) -> bytes:
    """Return the index key of a unique key.

    Raises:
      BadArgument: it is no text, bytes, whole number, or tuple of such; or it is empty, or too long.
    """
    elements = unique_key if isinstance(unique_key, tuple) else (unique_key,)
    allowed = 'text, bytes, a whole number, or a tuple of these, such as ("report", "2026-11")'
    if not elements or any(isinstance(each, bool) or not isinstance(each, str | bytes | int) for each in elements):
        raise BadArgument(argument="unique_key", value=unique_key, allowed=allowed)
    if unique_key in ("", b""):
        raise BadArgument(argument="unique_key", value=unique_key, allowed=allowed)
    try:
        packed: bytes = tuples.pack(elements)
    except (ValueError, OverflowError) as error:
        raise BadArgument(argument="unique_key", value=unique_key, allowed=allowed, reason=str(error)) from None
    return pack_unique(UNIQUE_KEY, packed)


class ItemLocations(Locations):
    """Where items with unique keys, their reservations, and their index records lie."""

    def __init__(self) -> None:
        super().__init__(ITEMS_TYPE)

    def data_tenant(self, key: str) -> Tenant:
        """Return the tenant of an item."""
        return item_of_key(key)[0]

    def data_key(self, key: str) -> Key:
        """Return the key of a reservation, within the item's tenant."""
        _, zone, item_id = item_of_key(key)
        return (SLOTS_APP, ITEMS_TYPE, DATA, f"{item_id.hex()} {zone}")


class ItemTransaction(RecordTransaction):
    """One attempt at a transaction on items with unique keys.

    Args:
      item: what is enqueued in phase 3; None: nothing is.
      observe: returns what observes the enqueue in this attempt.
    """

    def __init__(
        self,
        shard: Shard,
        attempt: Attempt,
        locations: Locations,
        definition: TypeRecord | None,
        lives_here: LivesHere,
        *,
        item: NewItem | None = None,
        observe: Observe | None = None,
    ) -> None:
        super().__init__(shard, attempt, locations, definition, lives_here)
        self._item = item
        self._enqueuer = None if observe is None else observe(shard)

    def _view(self, tenant: Tenant) -> TenantTransaction:
        if tenant not in self._views:
            self._views[tenant] = TenantTransaction(self._shard, tenant, self._attempt, self._enqueuer)
        return self._views[tenant]

    def _check_schema(self) -> None:
        """Do nothing: items have one definition."""

    def _begin_readable(self, field: str) -> Callable[[], None]:
        """Begin nothing: the index is never built."""
        return lambda: None

    def _read(self, key: str) -> DataRecord | None:
        value = self._data_view(key).get(self._locations.data_key(key))
        tenant, zone, item_id = item_of_key(key)
        keys = self._shard.layout.location(tenant, zone).keys
        stored = self._attempt.tr.get(keys.item(item_id)), self._attempt.tr.get(keys.dead_letter(item_id))
        record = None if stored[0].value is None else _readable(ItemRecord, stored[0].value)
        if record is None and stored[1].value is not None:
            record = _readable(DeadLetterRecord, stored[1].value).item
        if record is not None:
            return DataRecord(record.run_of(item_id), 1, (record.unique_key,), 1, b"")
        retained = self._attempt.tr.get(keys.retained_id(item_id)).value
        is_kept = retained is not None and int.from_bytes(retained[:8], "big") > self._attempt.now_us
        if is_kept:
            return DataRecord(item_id, 1, (), 1, b"")  # Which keys it keeps is not stored.
        dummy = None if value is None else unpack_data(key, value)
        return dummy if dummy is not None and self._has_cleanup(tenant, dummy) else None

    def _has_cleanup(self, tenant: Tenant, dummy: DataRecord) -> bool:
        """Say whether there is the item that cleans up after a reservation.

        The item goes with the reservation, but no restore of the tenant brings it back.
        """
        keys = self._shard.layout.location(tenant, DEFAULT_ZONE).keys
        return self._attempt.tr.get(keys.item(cleanup_id(dummy.generation))).value is not None

    def _end_writers(self, index_key: bytes, entry: IndexRecord) -> Ended:
        """Carry out phases 2 and 3 of a collection: an item holds its key, also while its id stays taken."""
        found = self._read(entry.key)
        if found is not None and found.is_dummy:
            self._clear(entry.key, found)
            self._cancel_cleanup(entry.key, found)
            self.leave_dropped(entry.key, found, found.keys, None)
            return Ended.ENDED
        if found is None or found.generation != entry.generation:
            return Ended.ENDED
        return Ended.VALID if found.has(index_key) or not found.keys else Ended.ENDED

    def _set(self, key: str, found: DataRecord | None, record: DataRecord) -> None:
        view = self._data_view(key)
        if record.is_dummy:
            view.set(self._locations.data_key(key), pack(record).value)
            return
        if found is not None:
            view.clear(self._locations.data_key(key))
        _, zone, item_id = item_of_key(key)
        assert self._item is not None
        view.enqueue_item(self._item, zone=zone, item_id=item_id)

    def _clear(self, key: str, found: DataRecord) -> None:
        self._data_view(key).clear(self._locations.data_key(key))

    def use_reservation(self, key: str, dummy: DataRecord) -> bool:
        """Clear a reservation whose item is enqueued in this transaction; return whether it was still there."""
        found = self._read(key)
        if found is None or not found.is_as(dummy):
            return False
        self._clear(key, found)
        self._cancel_cleanup(key, found)
        return True


def _readable(struct: type[R], value: bytes) -> R:
    """Return what is stored of an item: one that cannot be read may have the key.

    Raises:
      RecordUnreadable: it cannot be read.
    """
    record = decode(struct, value)
    if record is None:
        raise RecordUnreadable(what="an item that may have the unique key", newer=is_newer(value))
    return record


def items_transaction(item: NewItem | None = None, observe: Observe | None = None) -> Callable[..., ItemTransaction]:
    """Return what makes transactions on items with unique keys, for `ShardRecords`."""
    return partial(ItemTransaction, item=item, observe=observe)
