"""One ender: ends items with unique keys, as a worker or an operator does.

A worker leases items, waits perhaps, and completes several by one transaction, or lets one fail for good. An operator
cancels an item, and retries or discards a dead letter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.open_shards import OpenShards
from fairlead.simulation.oracles.unique_items import KeysHaveOneHolder, UniqueItem
from fairlead.simulation.unique_items.stock import (
    WORK,
    ZONES,
    Habits,
    dead_letters_in,
    items_in,
    make_dead_letter,
    on_zone,
    retry_dead_letter,
)
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.errors import ItemGone, LeaseLost, NotVested, Restoring, TenantBusy, TenantMoved
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue import dead_letters
from fairlead.zones.queue.lease_check import LeaseRef
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.reporting import completion_log
from fairlead.zones.reporting.completion_log import EndedOfZone
from fairlead.zones.transaction_runner import Attempt

END_OPERATIONS = ("complete", "cancel", "fail", "retry", "discard")
LEASE_US = 2_000_000
BATCH_MAX = 3


class Ender:
    """One incarnation of an ender."""

    def __init__(
        self, host: SimulatedHost, shards: OpenShards, random: Random, habits: Habits, oracle: KeysHaveOneHolder
    ) -> None:
        self._host = host
        self._shards = shards
        self._draw = random
        self._habits = habits
        self._oracle = oracle

    def call_one(self) -> None:
        """Run a drawn operation on a drawn queue zone. It may give up, or find nothing."""
        weights = self._habits.ends
        (name,) = self._draw.choices(list(weights), list(weights.values()))
        place = UniqueItem(self._draw.choice(self._habits.tenants), self._draw.choice(ZONES), b"")
        operations: Sequence[Callable[[UniqueItem], None]] = (
            self.complete, self.cancel, self.fail, self.retry, self.discard
        )  # fmt: skip
        try:
            operations[END_OPERATIONS.index(name)](place)
        except (StoreError, TenantBusy, TenantMoved, Restoring, ItemGone, LeaseLost, NotVested) as error:
            self._host.world.note(f"gives up to {name}: {error!r}")

    def complete(self, place: UniqueItem) -> None:
        """Lease items of a queue zone, and complete them together."""
        held = [(each, self._lease(each)) for each in self._some(place, BATCH_MAX)]
        self._pause()
        for each, _ in held:
            self._oracle.note_asked(each)
        if held:
            self._on(place, lambda queue, attempt: _complete(queue, attempt, [(e.item_id, lease) for e, lease in held]))

    def cancel(self, place: UniqueItem) -> None:
        """Cancel an item."""
        for each in self._some(place, 1):
            self.cancel_item(each)

    def cancel_item(self, item: UniqueItem) -> None:
        """Cancel an item. Raises `ItemGone`."""
        self._oracle.note_asked(item)
        self._on(item, lambda queue, attempt: queue.complete(attempt.tr, item.item_id, now_us=attempt.now_us))

    def fail(self, place: UniqueItem) -> None:
        """Lease an item, and let it become a dead letter."""
        for each in self._some(place, 1):
            lease_id = self._lease(each)
            self._pause()
            self._on(
                each,
                lambda queue, attempt: make_dead_letter(queue, attempt, each.item_id, "failed", lease_id),  # noqa: B023
            )

    def retry(self, place: UniqueItem) -> None:
        """Retry a dead letter."""
        for each in self._dead(place):
            self._on(each, lambda queue, attempt: retry_dead_letter(queue, attempt, each.item_id))  # noqa: B023

    def discard(self, place: UniqueItem) -> None:
        """Discard a dead letter."""
        for each in self._dead(place):
            self.discard_item(each)

    def discard_item(self, item: UniqueItem) -> None:
        """Discard a dead letter, if it is still there."""
        self._oracle.note_asked(item)
        self._on(item, lambda queue, attempt: _discard(queue, attempt, item.item_id))

    def items(self, place: UniqueItem) -> list[UniqueItem]:
        """Return the items with unique keys of a queue zone. `place`: any item of it."""
        found = items_in(self._shards, place.tenant, place.zone)
        return [place._replace(item_id=each.id) for each in found if each.record.kind == WORK]

    def dead(self, place: UniqueItem) -> list[UniqueItem]:
        """Return the dead letters with unique keys of a queue zone."""
        found = dead_letters_in(self._shards, place.tenant, place.zone)
        return [place._replace(item_id=each.id) for each in found if each.record.item.kind == WORK]

    def _some(self, place: UniqueItem, most: int) -> list[UniqueItem]:
        found = self.items(place)
        return self._draw.sample(found, min(len(found), self._draw.randint(1, most)))

    def _dead(self, place: UniqueItem) -> list[UniqueItem]:
        found = self.dead(place)
        return [self._draw.choice(found)] if found else []

    def _lease(self, item: UniqueItem) -> bytes:
        lease_id = self._draw.randbytes(16)

        def body(queue: QueueZone, attempt: Attempt) -> None:
            queue.obtain_lease(attempt.tr, item.item_id, lease_id=lease_id, lease_us=LEASE_US, now_us=attempt.now_us)

        self._on(item, body)
        return lease_id

    def _on(self, item: UniqueItem, body: Callable[[QueueZone, Attempt], None]) -> None:
        on_zone(self._shards, item.tenant, item.zone, body)

    def _pause(self) -> None:
        if self._host.random.random() < self._habits.pauses_frac:
            self._host.clock.sleep_us(self._host.random.choice([1_000, 20_000, 300_000, 3_000_000]))


def _complete(queue: QueueZone, attempt: Attempt, held: Sequence[LeaseRef]) -> None:
    ended: list[EndedOfZone] = []
    run_one(queue.complete_op(attempt.tr, held, now_us=attempt.now_us, ended=ended))
    completion_log.append(attempt.tr, queue.layout, ended, now_us=attempt.now_us)


def _discard(queue: QueueZone, attempt: Attempt, item_id: bytes) -> None:
    found = dead_letters.read(attempt.tr, queue.location, item_id)
    if found is not None:
        dead_letters.discard(attempt.tr, queue.location, item_id, found, now_us=attempt.now_us)
