"""Items that are unique in the whole application: records of the protocol whose data record is an item.

    what the protocol has     what it is here
    primary key               the item: tenant, queue zone, id
    generation g              the life of the item, which for an item without a name is its id
    dummy                     a reservation: the item that cleans up after it (`cleanup`)
    data record               the item, its dead letter, or its id while that stays taken (`unique_for`)
    alternate key             the unique key; its index record lies in a slot

An item never gains a key, so a collection changes nothing of it: phase 3 deletes a reservation, or does nothing. What
ends items leaves garbage (`fairlead.zones.queue.unique_keys`).

All of these lie in queues, and none beside the tenant's data: a restore of the tenant takes no reservation away, and
brings none back.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from fairlead.records.accesses import Ended
from fairlead.records.alternate_keys import Field, pack_unique
from fairlead.records.definition import TypeRecord
from fairlead.records.errors import RecordUnreadable
from fairlead.records.on_shards.cleanup import cleanup_id, keys_of_cleanup
from fairlead.records.on_shards.slots import Locations
from fairlead.records.on_shards.transaction import LivesHere, RecordTransaction
from fairlead.records.stored import DataRecord, IndexRecord
from fairlead.zones import tuples
from fairlead.zones.errors import BadArgument
from fairlead.zones.layout import DEFAULT_ZONE, Tenant, ZoneLocation
from fairlead.zones.queue import dead_letters
from fairlead.zones.queue.items import NewItem
from fairlead.zones.records import DeadLetterRecord, ItemRecord, decode, is_newer
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_transaction import EnqueueObserver, TenantTransaction, queue_reader
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


def reservation(item_id: bytes, unique_keys: Sequence[bytes]) -> DataRecord:
    """Return the dummy of an item: a reservation of its unique keys, packed."""
    return DataRecord(item_id, 0, tuple(unique_keys), 0, b"")


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
    """Where items with unique keys, and their index records, lie. There is no data record beside an item."""

    def __init__(self) -> None:
        super().__init__(ITEMS_TYPE)

    def data_tenant(self, key: str) -> Tenant:
        """Return the tenant of an item."""
        return item_of_key(key)[0]


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
        """Return what there is of an item. Reads with conflict: ownership, and each place where it may be."""
        tenant, zone, item_id = item_of_key(key)
        tr, keys = queue_reader(self._view(tenant)), self._shard.layout.location(tenant, zone).keys
        cleanup = self._cleanup_location(tenant).keys
        places = keys.item(item_id), keys.dead_letter(item_id), keys.retained_id(item_id)
        of_cleanup = cleanup.item(cleanup_id(item_id)), cleanup.dead_letter(cleanup_id(item_id))
        item, dead_letter, retained, *reserved = [tr.get(each) for each in (*places, *of_cleanup)]
        record = _item_of(item.value, dead_letter.value)
        if record is not None:
            return DataRecord(record.run_of(item_id), 1, (record.unique_key,), 1, b"")
        if retained.value is not None and int.from_bytes(retained.value[:8], "big") > self._attempt.now_us:
            return DataRecord(item_id, 1, (), 1, b"")  # Which keys it keeps is not stored.
        record = _item_of(*(each.value for each in reserved))
        return None if record is None else reservation(item_id, keys_of_cleanup(record.payload))

    def _end_writers(self, index_key: bytes, entry: IndexRecord) -> Ended:
        """Carry out phases 2 and 3 of a collection: an item holds its key, also while its id stays taken."""
        found = self._read(entry.key)
        if found is not None and found.is_dummy:
            self._end_reservation(entry.key, found)
            return Ended.ENDED
        if found is None or found.generation != entry.generation:
            return Ended.ENDED
        return Ended.VALID if found.has(index_key) or not found.keys else Ended.ENDED

    def _set(self, key: str, found: DataRecord | None, record: DataRecord) -> None:
        """Enqueue the item. Of a reservation nothing is stored but its cleanup item, which the caller enqueues."""
        if record.is_dummy:
            return
        tenant, zone, item_id = item_of_key(key)
        assert self._item is not None
        self._view(tenant).enqueue_item(self._item, zone=zone, item_id=item_id)

    def _delete(self, key: str, expected: DataRecord, *, is_clean: bool) -> bool:
        """End a reservation, also for its cleanup item: that may run again, and must not count meanwhile."""
        found = self._read(key)
        if found is None or not found.is_as(expected):
            return False
        if is_clean:
            self._cancel_cleanup(key, found)
        else:
            self._end_reservation(key, found)
        return True

    def use_reservation(self, key: str, dummy: DataRecord) -> bool:
        """End a reservation whose item is enqueued in this transaction; return whether it was still there."""
        found = self._read(key)
        if found is None or not found.is_as(dummy):
            return False
        self._cancel_cleanup(key, found)
        return True

    def _end_reservation(self, key: str, found: DataRecord) -> None:
        """Delete a reservation, and leave an item that deletes its index records."""
        self._cancel_cleanup(key, found)
        self.leave_dropped(key, found, found.keys, None)

    def _cancel_cleanup(self, key: str, dummy: DataRecord) -> bool:
        """Delete the cleanup item, also as a dead letter: one that is retried would be a reservation again."""
        if super()._cancel_cleanup(key, dummy):
            return True
        location, item_id = self._cleanup_location(item_of_key(key)[0]), cleanup_id(dummy.generation)
        dead_letter = dead_letters.read(self._attempt.tr, location, item_id)
        if dead_letter is None:
            return False
        dead_letters.discard(self._attempt.tr, location, item_id, dead_letter, now_us=self._attempt.now_us)
        return True

    def _cleanup_location(self, tenant: Tenant) -> ZoneLocation:
        return self._shard.layout.location(tenant, DEFAULT_ZONE)


def _item_of(item: bytes | None, dead_letter: bytes | None) -> ItemRecord | None:
    """Return the record of an item, or of its dead letter; None: there is neither.

    Raises:
      RecordUnreadable: it cannot be read, so it may have the key.
    """
    if item is not None:
        return _readable(ItemRecord, item)
    return None if dead_letter is None else _readable(DeadLetterRecord, dead_letter).item


def _readable(struct: type[R], value: bytes) -> R:
    record = decode(struct, value)
    if record is None:
        raise RecordUnreadable(what="an item that may have the unique key", newer=is_newer(value))
    return record


def items_transaction(item: NewItem | None = None, observe: Observe | None = None) -> Callable[..., ItemTransaction]:
    """Return what makes transactions on items with unique keys, for `ShardRecords`."""
    return partial(ItemTransaction, item=item, observe=observe)
