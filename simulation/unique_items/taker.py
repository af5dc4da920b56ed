"""One taker: enqueues items with unique keys, by the product's own code.

A process of an application does this by `fairlead.unique_items`, which the simulator may not import.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

from fairlead.records.accesses import Access, Op, run_op
from fairlead.records.errors import IndexUnavailable, Interrupted, RecordError, Taken
from fairlead.records.on_shards.performing import ShardRecords
from fairlead.records.on_shards.unique_items import (
    ItemLocations,
    ItemTransaction,
    item_key,
    items_transaction,
    reservation,
)
from fairlead.records.protocol import Protocol
from fairlead.records.stored import GENERATION_BYTES, DataRecord
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.open_shards import OpenShards
from fairlead.simulation.oracles.unique_items import KeysHaveOneHolder, UniqueItem
from fairlead.simulation.unique_items.stock import WORK, ZONES, Habits
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.errors import Restoring, TenantBusy, TenantMoved
from fairlead.zones.queue.items import NewItem, new_item
from fairlead.zones.tenant_transaction import ApplicationTransaction, TenantTransaction

T = TypeVar("T")

TAKE_OPERATIONS = ("enqueue", "reserve", "collect")
UNUSED_FRAC = 0.2  # How often a reservation is given up.
LEFT_FRAC = 0.1  # How often a process forgets it instead.
DELAY_US = 100_000


class Taker:
    """One incarnation of a taker."""

    def __init__(
        self, host: SimulatedHost, shards: OpenShards, random: Random, habits: Habits, oracle: KeysHaveOneHolder
    ) -> None:
        self._host = host
        self._shards = shards
        self._draw = random
        self._habits = habits
        self._oracle = oracle
        self._protocol = Protocol(ends_at_once=True, writes_at_once=habits.at_once)

    def call_one(self) -> None:
        """Run a drawn operation. It may give up."""
        weights, key = self._habits.takes, self._draw.choice(self._habits.keys)
        (name,) = self._draw.choices(list(weights), list(weights.values()))
        operations: Sequence[Callable[[bytes], object]] = (self.enqueue, self.reserve, self.collect)
        try:
            operations[TAKE_OPERATIONS.index(name)](key)
        except (StoreError, Restoring, TenantBusy, TenantMoved) as error:
            self._host.world.note(f"gives up to {name}: {error!r}")

    def enqueue(self, unique_key: bytes) -> UniqueItem | None:
        """Enqueue an item with a key; return it; None: it was refused."""
        item = self._new()
        new = self._new_item()._replace(unique_key=unique_key)
        create = self._protocol.create_op(item_key(*item), [unique_key], b"", item.item_id)
        return self._take(item, unique_key, lambda: self._run(create, items_transaction(new)))

    def reserve(self, unique_key: bytes) -> UniqueItem | None:
        """Reserve a key, wait perhaps, and enqueue the item in a transaction on its tenant; return it, as `enqueue`."""
        item = self._new()
        dummy = reservation(item.item_id, [unique_key])
        new = self._new_item()
        if self._take(item, unique_key, lambda: self._begin(item, dummy), is_item=False) is None:
            return None
        drawn = self._draw.random()
        if drawn < LEFT_FRAC:
            return None
        self._host.clock.sleep_us(self._draw.choice(self._habits.holds_us))
        used = None if drawn < LEFT_FRAC + UNUSED_FRAC else self._enqueue_held(item, unique_key, dummy, new)
        try:
            self._run(self._protocol.clean_op(item_key(*item), item.item_id, [unique_key]))
        except (RecordError, StoreError) as error:
            self._host.world.note(f"leaves a reservation: {error!r}")
        return used

    def collect(self, unique_key: bytes) -> bool:
        """Collect the index record of a key, if it is garbage; return whether it was."""
        try:
            return self._run(self._protocol.collect_op(unique_key))
        except (IndexUnavailable, Interrupted) as error:
            self._host.world.note(f"collects nothing: {error}")
            return False

    def _begin(self, item: UniqueItem, dummy: DataRecord) -> None:
        self._run(self._protocol.reserve_op(item_key(*item), dummy))

    def _enqueue_held(self, item: UniqueItem, unique_key: bytes, dummy: DataRecord, new: NewItem) -> UniqueItem | None:
        reserved = _Reserved(item, unique_key, dummy)

        def body(tr: TenantTransaction) -> None:
            tr.set(("asked", item.item_id), b"")
            item_id, made = reserved.use(tr, new)
            tr.enqueue_item(made, zone=item.zone, item_id=item_id)

        def commit() -> None:
            self._shards.at_home(
                item.tenant,
                lambda shard: shard.transact(lambda attempt: body(ApplicationTransaction(shard, item.tenant, attempt))),
            )

        return self._take(item, unique_key, commit)

    def _take(
        self, item: UniqueItem, unique_key: bytes, take: Callable[[], object], *, is_item: bool = True
    ) -> UniqueItem | None:
        """Run what takes a key, and report the answer. `is_item`: whether there is an item afterwards."""
        since_us = self._host.world.now_us()
        try:
            take()
        except Taken:
            self._oracle.note_key_refused(item, unique_key, since_us)
            return None
        except (Interrupted, IndexUnavailable) as error:
            self._host.world.note(f"does not take a key: {error!r}")
            self._oracle.note_refused(item)
            return None
        if is_item:
            self._oracle.note_acknowledged(item)
        return item

    def _run(self, operation: Op[T], transaction: Callable[..., ItemTransaction] = ItemTransaction) -> T:
        records = ShardRecords(self._shards, ItemLocations(), None, self._in_any_order, transaction)

        def perform(accesses: Sequence[Access]) -> list[Any]:
            self._pause()
            return records.perform(accesses)

        return run_op(operation, perform)

    def _in_any_order(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Run calls on several shards one after the other, in any order, with pauses."""
        outcomes: dict[int, T] = {}
        for number in self._draw.sample(range(len(calls)), len(calls)):
            outcomes[number] = calls[number]()
            self._pause()
        return [outcomes[number] for number in range(len(calls))]

    def _new(self) -> UniqueItem:
        item_id = self._host.random.randbytes(GENERATION_BYTES)
        return UniqueItem(self._draw.choice(self._habits.tenants), self._draw.choice(ZONES), item_id)

    def _new_item(self) -> NewItem:
        kept_us, delay_us = self._draw.choice(self._habits.kept_us), self._draw.choice([0, 0, 0, DELAY_US])
        return new_item(WORK)._replace(unique_us=kept_us, delay_us=delay_us)

    def _pause(self) -> None:
        if self._host.random.random() < self._habits.pauses_frac:
            self._host.clock.sleep_us(self._host.random.choice([1_000, 20_000, 300_000]))


class _Reserved:
    """A reservation, as a transaction uses it; see `fairlead.unique_items.Reservation`."""

    def __init__(self, item: UniqueItem, unique_key: bytes, dummy: DataRecord) -> None:
        self._item = item
        self._unique_key = unique_key
        self._dummy = dummy

    def use(self, tr: TenantTransaction, new: NewItem) -> tuple[bytes, NewItem]:
        """Use it up. Raises `Interrupted` if it has ended."""
        if not ItemTransaction.within(tr, ItemLocations()).use_reservation(item_key(*self._item), self._dummy):
            raise Interrupted(key=item_key(*self._item), reason="the reservation has ended")
        return self._item.item_id, new._replace(unique_key=self._unique_key)
