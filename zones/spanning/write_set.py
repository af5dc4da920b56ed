"""What a transaction across shards writes to one shard: as stored bytes, in pieces, and how it is carried out.

An item is stored with its id, and is known to be new: the id was read with conflict when it was prepared, and nobody
changes a locked tenant. Its pointer and the counts are written as they are when it is carried out. Likewise, an item
that is completed is known to be held under the lease.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import msgspec

from fairlead.zones.engines import Transaction
from fairlead.zones.layout import ShardLayout, Tenant
from fairlead.zones.pipelining import run_together
from fairlead.zones.queue import results
from fairlead.zones.queue.items import EnqueueStatus, NewItem
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.records import UNDECODABLE, Trace
from fairlead.zones.workflow.children import EndedChild, report_all

PIECE_BYTES = 90_000  # A value of FoundationDB has at most 100,000.


class WriteKind(IntEnum):
    """What a write to a tenant's own keys does."""

    SET = 1
    CLEAR = 2
    CLEAR_RANGE = 3
    ADD = 4


class DataWrite(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A write to a tenant's own keys. `value`: of CLEAR_RANGE, the end of the range."""

    kind: WriteKind
    key: bytes
    value: bytes = b""


class ItemWrite(msgspec.Struct, array_like=True, frozen=True):
    """An item that is enqueued. Its id was free when it was read, at `now_us`; for the rest see `NewItem`."""

    app: str
    user: str
    zone: str
    item_id: bytes
    now_us: int
    kind: str
    payload: bytes
    priority: int
    delay_us: int
    given_id: Any
    unique_us: int
    trace: Trace | None
    run: bytes | None
    keys: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, tenant: Tenant, zone: str, item_id: bytes, item: NewItem, *, now_us: int) -> "ItemWrite":
        """Return the write that enqueues an item, which is no child of a workflow."""
        assert item.parent is None
        assert not item.unique_key
        kind, payload, priority, delay_us, given_id, unique_us, trace, run, _, keys, _ = item
        app, user = tenant
        return cls(
            app, user, zone, item_id, now_us, kind, payload, priority, delay_us, given_id, unique_us, trace, run, keys
        )

    @property
    def item(self) -> NewItem:
        """The item, as `enqueue_op` takes it."""
        return NewItem(
            self.kind, self.payload, self.priority, self.delay_us, self.given_id, self.unique_us, self.trace, self.run,
            keys=self.keys,
        )  # fmt: skip


class ItemEnd(msgspec.Struct, array_like=True, frozen=True):
    """An item that is completed by the holder of its lease. `result`: packed; `kept_us`: for how long it is kept."""

    app: str
    user: str
    zone: str
    item_id: bytes
    lease_id: bytes
    now_us: int
    result: bytes
    kept_us: int


class WriteSet(msgspec.Struct, array_like=True, frozen=True):
    """The writes to one shard, in order. `ends` come last."""

    data: tuple[DataWrite, ...] = ()
    items: tuple[ItemWrite, ...] = ()
    ends: tuple[ItemEnd, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.data or self.items or self.ends)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(WriteSet)


def pack_writes(writes: WriteSet) -> list[bytes]:
    """Return the writes as pieces that each fit into a value; none if there are no writes."""
    if not writes:
        return []
    packed = _encoder.encode(writes)
    return [packed[at : at + PIECE_BYTES] for at in range(0, len(packed), PIECE_BYTES)]


def unpack_writes(pieces: Sequence[bytes]) -> WriteSet | None:
    """Return the writes that `pack_writes` packed; None: the pieces are damaged."""
    if not pieces:
        return WriteSet()
    try:
        return _decoder.decode(b"".join(pieces))
    except UNDECODABLE:
        return None


def carry_out(tr: Transaction, layout: ShardLayout, writes: WriteSet) -> None:
    """Do all writes. May run twice: the ids of the items are the same.

    Reads with conflict, and writes: for items, see `enqueue_op` and `complete_op`; for the rest, the keys.
    """
    for write in writes.data:
        if write.kind is WriteKind.SET:
            tr.set(write.key, write.value)
        elif write.kind is WriteKind.CLEAR:
            tr.clear(write.key)
        elif write.kind is WriteKind.ADD:
            tr.add(write.key, write.value)
        else:
            tr.clear_range(write.key, write.value)
    zones: dict[tuple[str, str, str, int], list[tuple[bytes, NewItem]]] = {}
    for each in writes.items:
        zones.setdefault((each.app, each.user, each.zone, each.now_us), []).append((each.item_id, each.item))
    operations = [
        QueueZone(layout, Tenant(app, user), zone).enqueue_op(tr, items, now_us=now_us)
        for (app, user, zone, now_us), items in zones.items()
    ]
    for enqueued in run_together(operations):
        assert all(each.status is EnqueueStatus.ENQUEUED for each in enqueued)
    for end in writes.ends:
        _complete(tr, layout, end)


def _complete(tr: Transaction, layout: ShardLayout, end: ItemEnd) -> None:
    """Complete an item, keep its result, and report it to the workflow whose child the item is."""
    zone = QueueZone(layout, Tenant(end.app, end.user), end.zone)
    children: list[EndedChild] = []
    zone.complete(tr, end.item_id, now_us=end.now_us, lease_id=end.lease_id, children=children)
    report_all(tr, [child._replace(result=end.result) for child in children], now_us=end.now_us)
    if end.kept_us:
        results.keep_result(tr, zone.location, end.item_id, end.result, now_us=end.now_us, kept_us=end.kept_us)
