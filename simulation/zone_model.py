"""The sequential model of a queue zone: its state, and the answer and the new state of each operation. Pure.

Three checks use this one model: the history of concurrent clients (`linearizability`), the oracle of each commit
(`oracles/zone_operations`), and the stateful test of one client (`tests/zones/test_zone_model.py`).

An operation has the arguments of that of `fairlead.zones.queue.queue_zone`. `now_us` is the caller's own clock.

Each operation except the dequeue is one instant: it reads one snapshot, or it reads with conflict all keys that decide
its outcome. A dequeue is two instants. It plans by a snapshot of the vesting index (`PlanDequeue`). Its commit finds
the planned items unchanged, or is refused (`CommitDequeue`). It does not see entries that other transactions insert in
front meanwhile, so that an enqueue never conflicts with a dequeue. It sees all entries that existed when it planned.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Hashable
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeAlias

from fairlead.zones.queue.items import EnqueueStatus, Outcome
from fairlead.zones.queue.poison_candidates import SHARED_EXPIRIES
from fairlead.zones.records import ItemRecord


class Item(NamedTuple):
    """The parts of an item that users of its zone can see. Items sort as the queue: by priority, vesting time, id."""

    priority: int
    vesting_us: int
    id: bytes
    kind: str
    payload: Hashable  # Distinguishes items with the same id.
    unique_us: int = 0
    lease_id: bytes = b""
    expiry_count: int = 0
    error_count: int = 0
    return_count: int = 0
    ran_isolated: bool = False
    started: bool = False

    @property
    def deaths(self) -> int:
        """The number of leases in a row that expired after the item had started, if the present one has expired."""
        return self.expiry_count + self.started

    def is_poison(self, candidate_after: int) -> bool:
        """Whether a dequeue dead-letters the item. An item is a poison candidate after `candidate_after` deaths."""
        return bool(self.lease_id and self.ran_isolated) or self.deaths >= candidate_after + SHARED_EXPIRIES

    def leased(self, lease_id: bytes, vesting_us: int) -> Item:
        """Return the item under a new lease. The last lease expired if the item had started and was not returned."""
        return self._replace(lease_id=lease_id, vesting_us=vesting_us, expiry_count=self.deaths, started=False)

    def extended(self, vesting_us: int, *, started: bool, ran_isolated: bool) -> Item:
        """Return the item with its lease moved. The marks of its start do not change."""
        return self._replace(
            vesting_us=vesting_us, started=self.started or started, ran_isolated=self.ran_isolated or ran_isolated
        )

    def requeued(self, vesting_us: int, error_count: int | None) -> Item:
        """Return the item without a lease: with `error_count` after a failure, otherwise with all counts unchanged."""
        returned = error_count is None
        return self._replace(
            lease_id=b"",
            vesting_us=vesting_us,
            started=False,
            ran_isolated=False,
            expiry_count=self.expiry_count if returned and not self.started else 0,
            error_count=self.error_count if error_count is None else error_count,
            return_count=self.return_count + returned,
        )

    def dead_lettered(self, error_count: int) -> Item:
        """Return the item as a dead letter."""
        return self._replace(lease_id=b"", error_count=error_count)

    def retried(self, vesting_us: int) -> Item:
        """Return a dead letter as an item in the queue: due now, with all counts reset."""
        return Item(self.priority, vesting_us, self.id, self.kind, self.payload, self.unique_us)


def item_of(item_id: bytes, record: ItemRecord, payload: Hashable, *, epoch_us: int = 0) -> Item:
    """Return the item of a stored record. Times count from `epoch_us`."""
    return Item(
        priority=record.priority,
        vesting_us=record.vesting_us - epoch_us,
        id=item_id,
        kind=record.kind,
        payload=payload,
        unique_us=record.unique_us,
        lease_id=record.lease_id,
        expiry_count=record.expiry_count,
        error_count=record.error_count,
        return_count=record.return_count,
        ran_isolated=record.ran_isolated,
        started=record.started,
    )


class DequeuePlan(NamedTuple):
    """The plan of a dequeue: items before, and under their new leases (None: it dead-letters the item)."""

    dequeue: int
    items: tuple[tuple[Item, Item | None], ...]


class Zone(NamedTuple):
    """The state of a queue zone.

    Attributes:
      items: in the order of the queue.
      retained: retained ids of completed items, and the ends of their retention.
      plans: the plans of dequeues that have not committed, and still can.
    """

    items: tuple[Item, ...] = ()
    dead_letters: tuple[Item, ...] = ()
    retained: tuple[tuple[bytes, int], ...] = ()
    plans: tuple[DequeuePlan, ...] = ()

    def find(self, item_id: bytes) -> Item | None:
        """Return the item of an id, if it is in the queue."""
        return next((item for item in self.items if item.id == item_id), None)

    def find_dead_letter(self, item_id: bytes) -> Item | None:
        """Return the dead letter of an id, if there is one."""
        return next((item for item in self.dead_letters if item.id == item_id), None)

    def vested(self, now_us: int) -> list[Item]:
        """Return the items that have vested, in order."""
        return [item for item in self.items if item.vesting_us <= now_us]

    def put(self, item: Item) -> Zone:
        """Return the zone with a new item, or with an item changed."""
        zone = self.remove(item.id)
        items = list(zone.items)
        insort(items, item)
        return zone._replace(items=tuple(items))

    def remove(self, item_id: bytes) -> Zone:
        """Return the zone without an item, and without the plans that contain it."""
        return self._replace(
            items=tuple(item for item in self.items if item.id != item_id),
            plans=tuple(plan for plan in self.plans if all(item.id != item_id for item, _ in plan.items)),
        )

    def put_dead_letter(self, item: Item) -> Zone:
        """Return the zone with an item moved to the dead letters."""
        return self.remove(item.id)._replace(dead_letters=tuple(sorted((*self.dead_letters, item))))

    def remove_dead_letter(self, item_id: bytes) -> Zone:
        """Return the zone without a dead letter."""
        return self._replace(dead_letters=tuple(item for item in self.dead_letters if item.id != item_id))


class Refusal(Enum):
    """The reason for an operation without effect, for reasons that `Outcome` does not have."""

    NOT_A_DEAD_LETTER = "no dead letter"
    CONFLICT = "conflict"  # No client sees this refusal, because the dequeue is retried.


class NotVested(NamedTuple):
    """The answer that an item cannot be leased now."""

    vests_in_ms: int


Result: TypeAlias = tuple[Any, Zone]


class ZoneOperation(Protocol):
    """An operation with its arguments."""

    def on(self, zone: Zone, /) -> Result:
        """Return its answer in the state `zone`, and the state afterwards."""
        ...


class Enqueue(NamedTuple):
    """Add an item, unless its id is present, a dead letter's, or was completed within its `unique_us`."""

    item_id: bytes
    named: bool
    kind: str
    payload: Hashable
    priority: int
    delay_us: int
    unique_us: int
    now_us: int

    def on(self, zone: Zone) -> Result:
        """See `ZoneOperation`."""
        if zone.find(self.item_id) is not None:
            return EnqueueStatus.PRESENT, zone
        if self.named:
            if zone.find_dead_letter(self.item_id) is not None:
                return EnqueueStatus.DEAD_LETTER, zone
            if dict(zone.retained).get(self.item_id, self.now_us) > self.now_us:
                return EnqueueStatus.COMPLETED, zone
        vesting_us = self.now_us + self.delay_us
        item = Item(self.priority, vesting_us, self.item_id, self.kind, self.payload, self.unique_us)
        return EnqueueStatus.ENQUEUED, zone.put(item)


class Peek(NamedTuple):
    """Show the first items that have vested, in order."""

    items_max: int
    now_us: int

    def on(self, zone: Zone) -> Result:
        """See `ZoneOperation`."""
        return tuple(zone.vested(self.now_us)[: self.items_max]), zone


class ObtainLease(NamedTuple):
    """Lease one vested item. Answer the leased item, or the time until it vests."""

    item_id: bytes
    lease_id: bytes
    lease_us: int
    now_us: int

    def on(self, zone: Zone) -> Result:
        """See `ZoneOperation`."""
        item = zone.find(self.item_id)
        if item is None:
            return Outcome.GONE, zone
        if item.vesting_us > self.now_us:
            return NotVested((item.vesting_us - self.now_us) // 1000), zone
        leased = item.leased(self.lease_id, self.now_us + self.lease_us)
        return leased, zone.put(leased)


class PlanDequeue(NamedTuple):
    """Plan a dequeue of vested items, in order, while there is capacity. Answer the items under their new leases.

    `capacity`: the most items of each kind. `poison_candidates`: the most items with `candidate_after` deaths; further
    ones are skipped. An item that expired again in an isolated run, or had many more deaths, becomes a dead letter.
    Neither uses capacity: later items are leased instead.
    """

    dequeue: int
    items_max: int
    capacity: tuple[tuple[str, int], ...]
    poison_candidates: int
    candidate_after: int
    lease_id: bytes
    lease_us: int
    now_us: int

    def on(self, zone: Zone) -> Result:
        """See `ZoneOperation`."""
        planned: list[tuple[Item, Item | None]] = []
        leased: list[Item] = []
        capacity, poison_candidates = dict(self.capacity), self.poison_candidates
        for item in zone.vested(self.now_us):
            if len(leased) == self.items_max:
                break
            if not capacity.get(item.kind):
                continue
            is_candidate = item.deaths >= self.candidate_after
            if item.is_poison(self.candidate_after):
                planned.append((item, None))
            elif poison_candidates or not is_candidate:
                capacity[item.kind] -= 1
                poison_candidates -= is_candidate
                leased.append(item.leased(self.lease_id, self.now_us + self.lease_us))
                planned.append((item, leased[-1]))
        return tuple(leased), zone._replace(plans=(*zone.plans, DequeuePlan(self.dequeue, tuple(planned))))


class CommitDequeue(NamedTuple):
    """Commit the plan of a dequeue, if every item of the plan is unchanged."""

    dequeue: int

    def on(self, zone: Zone) -> Result:
        """See `ZoneOperation`."""
        plan = next((plan for plan in zone.plans if plan.dequeue == self.dequeue), None)
        if plan is None:
            return Refusal.CONFLICT, zone
        zone = zone._replace(plans=tuple(other for other in zone.plans if other is not plan))
        for item, leased in plan.items:
            zone = zone.put_dead_letter(item.dead_lettered(item.error_count)) if leased is None else zone.put(leased)
        return Outcome.DONE, zone


class Complete(NamedTuple):
    """Delete an item: under its lease because it is done, or without a lease because it is cancelled."""

    item_id: bytes
    lease_id: bytes | None
    now_us: int

    def on(self, zone: Zone) -> Result:
        """See `ZoneOperation`."""
        item = _held(zone, self.item_id, self.lease_id)
        if isinstance(item, Outcome):
            return item, zone
        zone = zone.remove(item.id)
        if item.unique_us and self.lease_id is not None:
            retained = {**dict(zone.retained), item.id: self.now_us + item.unique_us}
            zone = zone._replace(retained=tuple(sorted(retained.items())))
        return Outcome.DONE, zone


class ExtendLease(NamedTuple):
    """Move the vesting time of a held item; perhaps note that it starts, or runs isolated."""

    item_id: bytes
    lease_id: bytes
    lease_us: int
    started: bool
    ran_isolated: bool
    now_us: int

    def on(self, zone: Zone) -> Result:
        """See `ZoneOperation`."""
        item = _held(zone, self.item_id, self.lease_id)
        if isinstance(item, Outcome):
            return item, zone
        extended = item.extended(self.now_us + self.lease_us, started=self.started, ran_isolated=self.ran_isolated)
        return Outcome.DONE, zone.put(extended)


class Requeue(NamedTuple):
    """Requeue a held item: with `error_count` because it failed, otherwise because it is returned."""

    item_id: bytes
    lease_id: bytes | None
    delay_us: int
    error_count: int | None
    now_us: int

    def on(self, zone: Zone) -> Result:
        """See `ZoneOperation`."""
        item = _held(zone, self.item_id, self.lease_id)
        if isinstance(item, Outcome):
            return item, zone
        return Outcome.DONE, zone.put(item.requeued(self.now_us + self.delay_us, self.error_count))


class NoteStep(NamedTuple):
    """Note that a workflow has done a step under its lease: its errors and expiries count from here."""

    item_id: bytes
    lease_id: bytes

    def on(self, zone: Zone) -> Result:
        """See `ZoneOperation`."""
        item = _held(zone, self.item_id, self.lease_id)
        if isinstance(item, Outcome):
            return item, zone
        return Outcome.DONE, zone.put(item._replace(error_count=0, expiry_count=0))


class Suspend(NamedTuple):
    """Let a held item, a workflow, wait in its queue: it has neither failed nor been returned."""

    item_id: bytes
    lease_id: bytes
    until_us: int

    def on(self, zone: Zone) -> Result:
        """See `ZoneOperation`."""
        item = _held(zone, self.item_id, self.lease_id)
        if isinstance(item, Outcome):
            return item, zone
        waiting = item.requeued(self.until_us, 0)
        return Outcome.DONE, zone.put(waiting)


class Wake(NamedTuple):
    """Let an item that waits without a lease vest earlier."""

    item_id: bytes
    wake_us: int

    def on(self, zone: Zone) -> Result:
        """See `ZoneOperation`."""
        item = zone.find(self.item_id)
        if item is None:
            return Outcome.GONE, zone
        if item.lease_id or item.vesting_us <= self.wake_us:
            return Outcome.LEASE_LOST, zone
        return Outcome.DONE, zone.put(item._replace(vesting_us=self.wake_us))


class MoveToDeadLetters(NamedTuple):
    """Move a held item that failed for good to the dead letters. `error_count`: None does not change the count."""

    item_id: bytes
    lease_id: bytes | None
    error_count: int | None = None

    def on(self, zone: Zone) -> Result:
        """See `ZoneOperation`."""
        item = _held(zone, self.item_id, self.lease_id)
        if isinstance(item, Outcome):
            return item, zone
        errors = item.error_count if self.error_count is None else self.error_count
        return Outcome.DONE, zone.put_dead_letter(item.dead_lettered(errors))


class RetryDeadLetter(NamedTuple):
    """Put a dead letter back into the queue, due now, with its attempts reset."""

    item_id: bytes
    now_us: int

    def on(self, zone: Zone) -> Result:
        """See `ZoneOperation`."""
        item = zone.find_dead_letter(self.item_id)
        if item is None:
            return Refusal.NOT_A_DEAD_LETTER, zone
        return Outcome.DONE, zone.remove_dead_letter(item.id).put(item.retried(self.now_us))


class DiscardDeadLetter(NamedTuple):
    """Delete a dead letter."""

    item_id: bytes

    def on(self, zone: Zone) -> Result:
        """See `ZoneOperation`."""
        if zone.find_dead_letter(self.item_id) is None:
            return Refusal.NOT_A_DEAD_LETTER, zone
        return Outcome.DONE, zone.remove_dead_letter(self.item_id)


class InOneTransaction(NamedTuple):
    """Do several operations in one transaction: all or none. Each sees the state after the one before."""

    operations: tuple[ZoneOperation, ...]

    def on(self, zone: Zone) -> Result:
        """See `ZoneOperation`."""
        answers = []
        for operation in self.operations:
            answer, zone = operation.on(zone)
            answers.append(answer)
        return tuple(answers), zone


class Count(NamedTuple):
    """Count the items of each kind that has items."""

    def on(self, zone: Zone) -> Result:
        """See `ZoneOperation`."""
        counts: dict[str, int] = {}
        for item in zone.items:
            counts[item.kind] = counts.get(item.kind, 0) + 1
        return counts, zone


class IsEmpty(NamedTuple):
    """Answer whether there is no item."""

    def on(self, zone: Zone) -> Result:
        """See `ZoneOperation`."""
        return not zone.items, zone


class IsGone(NamedTuple):
    """Answer whether there is no item of an id."""

    item_id: bytes

    def on(self, zone: Zone) -> Result:
        """See `ZoneOperation`."""
        return zone.find(self.item_id) is None, zone


class MinVesting(NamedTuple):
    """Answer the earliest vesting time, None without items."""

    def on(self, zone: Zone) -> Result:
        """See `ZoneOperation`."""
        return min((item.vesting_us for item in zone.items), default=None), zone


def changes_nothing(operation: object, answer: object) -> bool:
    """Whether an operation with this answer has not changed the zone."""
    return isinstance(operation, _READS) or isinstance(answer, NotVested) or answer in _REFUSED


def _held(zone: Zone, item_id: bytes, lease_id: bytes | None) -> Item | Outcome:
    """Return an item that the caller may change, or the refusal. An expired lease is valid until another is taken."""
    item = zone.find(item_id)
    if item is None:
        return Outcome.GONE
    if lease_id is not None and item.lease_id != lease_id:
        return Outcome.LEASE_LOST
    return item


_READS = (Peek, Count, IsEmpty, IsGone, MinVesting)
_REFUSED = (
    Outcome.GONE,
    Outcome.LEASE_LOST,
    Refusal.NOT_A_DEAD_LETTER,
    EnqueueStatus.PRESENT,
    EnqueueStatus.DEAD_LETTER,
    EnqueueStatus.COMPLETED,
)
