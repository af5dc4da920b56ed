"""The floor: a plain loop in one process over LMDB that makes the writes of any durable queue, and nothing else.

It has no queue, no log, no conflicts and no fairness; every transaction is fsynced. An item's keys and values have the
sizes of the queue's own, built by concatenation and written one after the other. Per item:

    record    56-byte key, 304 bytes       the item
    index     66-byte key, its kind        the vesting time
    count     44-byte key, 8 bytes         the number of items of the kind in the zone; read, changed, written

and per zone two keys of a pointer, which says that the zone has work:

    pointer   28-byte key, 56 bytes
    index     38-byte key, empty           the pointer's vesting time

The queue's own two pointer keys have the same length within five bytes. But the queue's pointer record lies beside the
zone; here the record has a random id and so a page of its own, as in earlier versions of the queue. So the floor writes
more pages than a queue must. This keeps its figures comparable with earlier ones.

`write` adds items one by one or a hundred to a transaction. `lease_and_complete` handles these items in batches of 64
zones, with two transactions each. The first moves the pointers and index keys to the end of the lease, and rewrites the
records. The second deletes records and index keys, and changes the counts. The loop keeps its keys in memory, so it
reads only the counts; a queue has to read its keys.

`bench.floor_foundationdb` runs the same loop over FoundationDB.
"""

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import lmdb

ZONES_PER_BATCH = 64
MAP_BYTES = 16 << 30

ITEM = bytes(304)
KIND = b"noop"
POINTER = bytes(56)

Stamp = bytes  # a vesting time, 8 bytes
Written = tuple[
    Stamp, list[tuple[bytes, Stamp]]
]  # The vesting time of a zone's pointer; the id and the vesting time of each item.


class Writing(Protocol):
    """A transaction, with the method names of LMDB."""

    def put(self, key: bytes, value: bytes) -> Any:
        """Set a key."""
        ...

    def get(self, key: bytes, default: bytes) -> bytes:
        """Return the value of a key."""
        ...

    def delete(self, key: bytes) -> Any:
        """Clear a key."""
        ...


class PlainLoop(ABC):
    """A store without a queue. Not thread-safe. The process that wrote the items leases and completes them."""

    def __init__(self) -> None:
        self._random = random.Random(0)
        self._zones: dict[int, Written] = {}
        self._pointer_ids: dict[int, bytes] = {}

    def write(self, first: int, end: int, *, zones: int, batch: int) -> None:
        """Write the items `first` to `end - 1`, `batch` in a transaction, each into zone `number % zones`."""
        for begin in range(first, end, batch):
            numbers = range(begin, min(begin + batch, end))
            with self._transaction(number % zones for number in numbers) as txn:
                for number in numbers:
                    self._write_item(txn, number % zones)

    def lease_and_complete(self) -> int:
        """Lease and complete all items, 64 zones at a time. Return the number of items."""
        zones = list(self._zones.items())
        self._zones = {}
        for begin in range(0, len(zones), ZONES_PER_BATCH):
            batch = zones[begin : begin + ZONES_PER_BATCH]
            leased = _stamp()
            with self._transaction(()) as txn:
                for zone, (vests, items) in batch:
                    self._lease_zone(txn, zone, vests, items, leased)
            with self._transaction(zone for zone, _ in batch) as txn:
                for zone, (_, items) in batch:
                    _complete_zone(txn, zone, items, leased)
        return sum(len(items) for _, (_, items) in zones)

    @abstractmethod
    def entries(self) -> int:
        """Return how many keys there are."""

    @abstractmethod
    def close(self) -> None:
        """Close the store."""

    @abstractmethod
    def _transaction(self, zones: Iterable[int]) -> AbstractContextManager[Any]:
        """Return a `Writing` that commits at its end. `zones`: it reads their counts, one for each item or zone."""

    def _write_item(self, txn: Writing, zone: int) -> None:
        prefix, item_id, vests = prefix_of(zone), self._random.randbytes(16), _stamp()
        txn.put(record_key(prefix, item_id), ITEM)
        txn.put(index_key(prefix, vests, item_id), KIND)
        key = count_key(prefix)
        count = int.from_bytes(txn.get(key, b""), "little")
        txn.put(key, (count + 1).to_bytes(8, "little"))
        if zone not in self._zones:
            pointer_id = self._pointer_ids[zone] = self._random.randbytes(16)
            txn.put(pointer_key(pointer_id), POINTER)
            txn.put(pointer_index_key(vests, pointer_id), b"")
            self._zones[zone] = vests, []
        self._zones[zone][1].append((item_id, vests))

    def _lease_zone(
        self, txn: Writing, zone: int, vests: Stamp, items: list[tuple[bytes, Stamp]], leased: Stamp
    ) -> None:
        pointer_id = self._pointer_ids[zone]
        txn.put(pointer_key(pointer_id), POINTER)
        txn.delete(pointer_index_key(vests, pointer_id))
        txn.put(pointer_index_key(leased, pointer_id), b"")
        prefix = prefix_of(zone)
        for item_id, item_vests in items:
            txn.put(record_key(prefix, item_id), ITEM)
            txn.delete(index_key(prefix, item_vests, item_id))
            txn.put(index_key(prefix, leased, item_id), KIND)


class Floor(PlainLoop):
    """The loop over LMDB."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        path.mkdir(parents=True)
        self._env = lmdb.open(str(path), map_size=MAP_BYTES)

    def entries(self) -> int:
        """Return how many keys there are."""
        return int(self._env.stat()["entries"])

    def close(self) -> None:
        """Close the store."""
        self._env.close()

    def _transaction(self, zones: Iterable[int]) -> AbstractContextManager[Any]:
        transaction: AbstractContextManager[Any] = self._env.begin(write=True)
        return transaction


def _complete_zone(txn: Writing, zone: int, items: list[tuple[bytes, Stamp]], leased: Stamp) -> None:
    prefix = prefix_of(zone)
    for item_id, _ in items:
        txn.delete(record_key(prefix, item_id))
        txn.delete(index_key(prefix, leased, item_id))
    key = count_key(prefix)
    count = int.from_bytes(txn.get(key, b""), "little") - len(items)
    if count:
        txn.put(key, count.to_bytes(8, "little"))
    else:
        txn.delete(key)


# --- Keys: as long as the queue's own, for a tenant and a zone with names like those of `bench.harness` ---


def prefix_of(zone: int) -> bytes:
    """Return the prefix of the keys of a zone's items and count."""
    return b"fl/db/bench/tenant-%05d/zone/queue/" % zone


def record_key(prefix: bytes, item_id: bytes) -> bytes:
    """Return the key of an item's record."""
    return prefix + b"item" + item_id


def index_key(prefix: bytes, vests: Stamp, item_id: bytes) -> bytes:
    """Return the key with an item's vesting time."""
    return prefix + b"vest/p" + vests + item_id


def count_key(prefix: bytes) -> bytes:
    """Return the key that counts a zone's items of the kind."""
    return prefix + b"cnt/noop"


def pointer_key(pointer_id: bytes) -> bytes:
    """Return the key of a zone's pointer."""
    return b"fl/top/item/" + pointer_id


def pointer_index_key(vests: Stamp, pointer_id: bytes) -> bytes:
    """Return the key with the vesting time of a zone's pointer."""
    return b"fl/top/vest100" + vests + pointer_id


def _stamp() -> Stamp:
    return (time.time_ns() // 1000).to_bytes(8, "big")
