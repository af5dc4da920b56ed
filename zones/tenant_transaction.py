"""What a user's function gets as its transaction: the tenant's own keys, and the tenant's queue.

A thin view of the engine's transaction. Keys are tuples and lie below the tenant's data, so no key can reach another
tenant; enqueued items draw ids that survive a retry. Whoever knows the rules takes `.raw`.
"""

from collections.abc import Iterator
from typing import Any, Protocol

from zones import tuples
from zones.attempt import Attempt
from zones.errors import BadArgument
from zones.items import Enqueued, NewItem, new_item
from zones.keyspace import range_begin, range_end
from zones.layout import DEFAULT_ZONE, Tenant, check_name, item_id_of
from zones.queue_zone import QueueZone
from zones.shard import Shard

Key = tuple[Any, ...]


class Enqueuer(Protocol):
    """Who wants to know what a transaction enqueues, and has something to store with it."""

    def traced(self, item: NewItem) -> NewItem:
        """Return an item that is about to be enqueued, with its trace context."""
        ...

    def entered(self, item: NewItem, enqueued: Enqueued) -> None:
        """Note what became of it in this attempt."""
        ...


class TenantTransaction:
    """One attempt at a transaction on one tenant's logical database. The function it is given to may run twice."""

    __slots__ = ("_attempt", "_data", "_enqueuer", "_shard", "tenant")

    def __init__(self, shard: Shard, tenant: Tenant, attempt: Attempt, enqueuer: Enqueuer | None = None) -> None:
        self.tenant = tenant
        self._shard = shard
        self._attempt = attempt
        self._enqueuer = enqueuer
        self._data = shard.layout.place(tenant, DEFAULT_ZONE).keys.tenant.data

    @property
    def raw(self) -> Any:
        """The engine's transaction, all keys of the shard within reach."""
        return self._attempt.tr

    @property
    def now_us(self) -> int:
        """The time of this attempt, microseconds since the epoch; the same throughout."""
        return self._attempt.now_us

    def get(self, key: Key, *, snapshot: bool = False) -> bytes | None:
        """Return the value of `key`, or None. With `snapshot`, a change by others does not conflict."""
        reader = self.raw.snapshot if snapshot else self.raw
        value: bytes | None = reader.get(self._pack(key)).value
        return value

    def set(self, key: Key, value: bytes) -> None:
        """Set `key` to `value`, at most 100,000 bytes."""
        self.raw.set(self._pack(key), value)

    def clear(self, key: Key) -> None:
        """Clear `key`."""
        self.raw.clear(self._pack(key))

    def clear_prefix(self, prefix: Key = ()) -> None:
        """Clear all keys that begin with `prefix` and are longer."""
        packed = self._pack_prefix(prefix)
        self.raw.clear_range(range_begin(packed), range_end(packed))

    def add(self, key: Key, amount: int) -> None:
        """Add `amount`, a 64-bit number, to an 8-byte little-endian signed counter; adds do not conflict."""
        if not isinstance(amount, int) or not -(2**63) <= amount < 2**63:
            raise BadArgument(argument="amount", value=amount, allowed="a whole number of 64 bits")
        self.raw.add(self._pack(key), amount.to_bytes(8, "little", signed=True))

    def get_range(
        self, prefix: Key = (), *, limit: int = 0, reverse: bool = False, snapshot: bool = False
    ) -> Iterator[tuple[Key, bytes]]:
        """Yield keys and values below `prefix` in order; `limit` 0 is no limit."""
        reader = self.raw.snapshot if snapshot else self.raw
        packed = self._pack_prefix(prefix)
        for row in reader.get_range(range_begin(packed), range_end(packed), limit=limit, reverse=reverse):
            yield tuples.unpack(row.key, len(self._data)), row.value

    def enqueue(
        self,
        kind: str,
        payload: Any = None,
        *,
        item_id: str | bytes | None = None,
        priority: int = 100,
        delay_ms: int = 0,
        unique_ms: int = 0,
        zone: str = DEFAULT_ZONE,
    ) -> Enqueued:
        """Enqueue work in this transaction: it is there if and only if the transaction commits.

        Args and errors: see `new_item`; `zone` names one of the tenant's queue zones.
        """
        item = new_item(kind, payload, priority=priority, delay_ms=delay_ms, given_id=item_id, unique_ms=unique_ms)
        return self.enqueue_item(item, zone=zone)

    def enqueue_item(self, item: NewItem, *, zone: str = DEFAULT_ZONE) -> Enqueued:
        """Enqueue an item that `new_item` made."""
        self._attempt.enqueued = True
        item_id = self._attempt.new_id() if item.given_id is None else item_id_of(item.given_id)
        if self._enqueuer is not None:
            item = self._enqueuer.traced(item)
        enqueued = self.zone(zone).enqueue(self.raw, item, item_id=item_id, now_us=self.now_us)
        if self._enqueuer is not None:
            self._enqueuer.entered(item, enqueued)
        return enqueued

    def zone(self, name: str = DEFAULT_ZONE) -> QueueZone:
        """Return one of the tenant's queue zones, whose operations take `.raw`."""
        return self._shard.zone(self.tenant, check_name("zone", name))

    def _pack(self, key: Key) -> bytes:
        if not isinstance(key, tuple) or not key:
            raise BadArgument(argument="key", value=key, allowed='a tuple that is not empty, such as ("order", 7)')
        return self._pack_prefix(key)

    def _pack_prefix(self, key: Key) -> bytes:
        if not isinstance(key, tuple):
            raise BadArgument(argument="key", value=key, allowed='a tuple, such as ("order",)')
        try:
            packed: bytes = self._data + tuples.pack(key)
        except (ValueError, AttributeError) as error:  # AttributeError: a Versionstamp, without the client library
            raise BadArgument(argument="key", value=key, allowed="a tuple of data", reason=str(error)) from None
        return packed
