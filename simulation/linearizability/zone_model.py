"""A queue zone that does one thing at a time: the operations and outcomes of `fairlead.zones.queue.queue_zone`.

A call knows what the product's operation was given, the time `now_us` included, which is the caller's own clock's.

All operations but one read with conflict what their outcome hangs on, or read only, from one snapshot: each is one
instant. A dequeue is two. It chooses by a snapshot of the vesting index (`Look`), and its commit finds the chosen
items as they were, or is refused (`Take`). What other transactions bring to the front in between it misses: that is
why an enqueue never conflicts with a dequeue. It misses nothing that was there when it looked.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from fairlead.simulation.linearizability.history import Call, Model, Operation
from fairlead.zones.queue.items import EnqueueStatus, Outcome
from fairlead.zones.queue.poison_candidates import SHARED_EXPIRIES


class Item(NamedTuple):
    """An item as far as users of its zone can see it. Items sort as the queue does: by priority, vesting time, id."""

    priority: int
    vesting_us: int
    id: bytes
    kind: str
    payload: int  # tells items of one id apart
    unique_us: int = 0
    lease_id: bytes = b""
    expiry_count: int = 0
    error_count: int = 0
    ran_isolated: bool = False
    started: bool = False


class Chosen(NamedTuple):
    """What a dequeue chose: items as they were, and as it leases them (None: it buries the item)."""

    dequeue: int
    items: tuple[tuple[Item, Item | None], ...]


class Zone(NamedTuple):
    """The state of a queue zone.

    `items` in the order of the queue; `taken`: ids that stay taken after completion, until when; `chosen`: by dequeues
    that have looked and not taken, and could.
    """

    items: tuple[Item, ...] = ()
    dead_lettered: tuple[Item, ...] = ()
    taken: tuple[tuple[bytes, int], ...] = ()
    chosen: tuple[Chosen, ...] = ()

    def find(self, item_id: bytes) -> Item | None:
        """Return the item of an id, if it is in the queue."""
        return next((item for item in self.items if item.id == item_id), None)

    def put(self, item: Item) -> Zone:
        """Return the zone with a new item, or with an item changed."""
        zone = self.remove(item.id)
        items = list(zone.items)
        insort(items, item)
        return zone._replace(items=tuple(items))

    def remove(self, item_id: bytes) -> Zone:
        """Return the zone without an item, and without the choices that it spoils."""
        return self._replace(
            items=tuple(item for item in self.items if item.id != item_id),
            chosen=tuple(each for each in self.chosen if all(item.id != item_id for item, _ in each.items)),
        )


class Refusal(Enum):
    """Why an operation did nothing, where `Outcome` has no word for it."""

    NOT_A_DEAD_LETTER = "not buried"
    CONFLICT = "conflict"  # never told: a dequeue that meets it tries again


class NotVested(NamedTuple):
    """Why an item cannot be leased now."""

    vests_in_ms: int


Result: TypeAlias = tuple[Any, Zone]


class Enqueue(NamedTuple):
    """Add an item, unless its id is present, buried, or was completed within its `unique_us`."""

    item_id: bytes
    named: bool
    kind: str
    payload: int  # tells items of one id apart
    priority: int
    delay_us: int
    unique_us: int
    now_us: int

    def on(self, zone: Zone) -> Result:
        """See `Call`."""
        if zone.find(self.item_id) is not None:
            return EnqueueStatus.PRESENT, zone
        if self.named:
            if any(item.id == self.item_id for item in zone.dead_lettered):
                return EnqueueStatus.DEAD_LETTER, zone
            if dict(zone.taken).get(self.item_id, self.now_us) > self.now_us:
                return EnqueueStatus.COMPLETED, zone
        vesting_us = self.now_us + self.delay_us
        item = Item(self.priority, vesting_us, self.item_id, self.kind, self.payload, self.unique_us)
        return EnqueueStatus.ENQUEUED, zone.put(item)


class Peek(NamedTuple):
    """Show the first items that have vested, in order."""

    items_max: int
    now_us: int

    def on(self, zone: Zone) -> Result:
        """See `Call`."""
        return tuple(item for item in zone.items if item.vesting_us <= self.now_us)[: self.items_max], zone


class ObtainLease(NamedTuple):
    """Lease one item that has vested; answer how long it is until it vests, or the item as leased."""

    item_id: bytes
    lease_id: bytes
    lease_us: int
    now_us: int

    def on(self, zone: Zone) -> Result:
        """See `Call`."""
        item = zone.find(self.item_id)
        if item is None:
            return Outcome.GONE, zone
        if item.vesting_us > self.now_us:
            return NotVested((item.vesting_us - self.now_us) // 1000), zone
        leased = _leased(item, self.lease_id, self.now_us + self.lease_us)
        return leased, zone.put(leased)


class Look(NamedTuple):
    """Choose vested items for a dequeue, in order, as far as there is room; answer them as it leases them.

    `room`: how many items of a kind at most. Of items that lapsed `lapses_before_alone` times `poison_candidates` are
    taken, and others looked for in the place of those passed over; one that lapsed again while it ran alone, or much
    oftener, is buried, in the place of one that is taken.
    """

    dequeue: int
    items_max: int
    room: tuple[tuple[str, int], ...]
    poison_candidates: int
    lapses_before_alone: int
    lease_id: bytes
    lease_us: int
    now_us: int

    def on(self, zone: Zone) -> Result:
        """See `Call`."""
        chosen: list[tuple[Item, Item | None]] = []
        leased: list[Item] = []
        room, poison_candidates, passed = dict(self.room), self.poison_candidates, True
        left = deque(item for item in zone.items if item.vesting_us <= self.now_us)
        while passed:
            passed = False
            for item in _that_fit(left, room, self.items_max - len(leased)):
                deaths = item.expiry_count + item.started
                poison_candidate = deaths >= self.lapses_before_alone
                if (item.lease_id and item.ran_isolated) or deaths >= self.lapses_before_alone + SHARED_EXPIRIES:
                    chosen.append((item, None))
                    room[item.kind] += 1
                elif poison_candidate and not poison_candidates:
                    passed = True
                    room[item.kind] += 1
                else:
                    poison_candidates -= poison_candidate
                    leased.append(_leased(item, self.lease_id, self.now_us + self.lease_us))
                    chosen.append((item, leased[-1]))
        return tuple(leased), zone._replace(chosen=(*zone.chosen, Chosen(self.dequeue, tuple(chosen))))


class Take(NamedTuple):
    """Commit what a dequeue has chosen, when it has looked and every item still is as it was then."""

    dequeue: int

    def on(self, zone: Zone) -> Result:
        """See `Call`."""
        mine = next((chosen for chosen in zone.chosen if chosen.dequeue == self.dequeue), None)
        if mine is None:
            return Refusal.CONFLICT, zone
        zone = zone._replace(chosen=tuple(chosen for chosen in zone.chosen if chosen is not mine))
        for item, leased in mine.items:
            zone = _move_to_dead_letters(zone, item) if leased is None else zone.put(leased)
        return Outcome.DONE, zone


class Complete(NamedTuple):
    """Delete an item: under its lease because it is done, or whoever holds it because it is cancelled."""

    item_id: bytes
    lease_id: bytes | None
    now_us: int

    def on(self, zone: Zone) -> Result:
        """See `Call`."""
        item = _held(zone, self.item_id, self.lease_id)
        if isinstance(item, Outcome):
            return item, zone
        zone = zone.remove(item.id)
        if item.unique_us and self.lease_id is not None:
            taken = {**dict(zone.taken), item.id: self.now_us + item.unique_us}
            zone = zone._replace(taken=tuple(sorted(taken.items())))
        return Outcome.DONE, zone


class ExtendLease(NamedTuple):
    """Move the vesting time of an item that nobody else has taken over; perhaps note that it starts, or runs alone."""

    item_id: bytes
    lease_id: bytes
    lease_us: int
    started: bool
    ran_isolated: bool
    now_us: int

    def on(self, zone: Zone) -> Result:
        """See `Call`."""
        item = _held(zone, self.item_id, self.lease_id)
        if isinstance(item, Outcome):
            return item, zone
        noted = item._replace(started=item.started or self.started, ran_isolated=item.ran_isolated or self.ran_isolated)
        return Outcome.DONE, zone.put(noted._replace(vesting_us=self.now_us + self.lease_us))


class Requeue(NamedTuple):
    """Let go of a held item, which forgets its lapses if it has started; with `error_count` because it failed."""

    item_id: bytes
    lease_id: bytes | None
    delay_us: int
    error_count: int | None
    now_us: int

    def on(self, zone: Zone) -> Result:
        """See `Call`."""
        item = _held(zone, self.item_id, self.lease_id)
        if isinstance(item, Outcome):
            return item, zone
        errors = item.error_count if self.error_count is None else self.error_count
        expiries = item.expiry_count if self.error_count is None and not item.started else 0
        free = item._replace(lease_id=b"", expiry_count=expiries, started=False, ran_isolated=False, error_count=errors)
        return Outcome.DONE, zone.put(free._replace(vesting_us=self.now_us + self.delay_us))


class Bury(NamedTuple):
    """Move a held item out of the queue into the grave: it failed for good."""

    item_id: bytes
    lease_id: bytes

    def on(self, zone: Zone) -> Result:
        """See `Call`."""
        item = _held(zone, self.item_id, self.lease_id)
        return (item, zone) if isinstance(item, Outcome) else (Outcome.DONE, _move_to_dead_letters(zone, item))


class Revive(NamedTuple):
    """Put a buried item back, due now, its attempts forgotten."""

    item_id: bytes
    now_us: int

    def on(self, zone: Zone) -> Result:
        """See `Call`."""
        item = next((item for item in zone.dead_lettered if item.id == self.item_id), None)
        if item is None:
            return Refusal.NOT_A_DEAD_LETTER, zone
        zone = zone._replace(dead_lettered=tuple(other for other in zone.dead_lettered if other is not item))
        retried = item._replace(
            vesting_us=self.now_us, expiry_count=0, error_count=0, started=False, ran_isolated=False
        )
        return Outcome.DONE, zone.put(retried)


class Together(NamedTuple):
    """Do several things in one transaction: all or none, each seeing what came before it."""

    calls: tuple[Call[Zone], ...]

    def on(self, zone: Zone) -> Result:
        """See `Call`."""
        answers = []
        for call in self.calls:
            answer, zone = call.on(zone)
            answers.append(answer)
        return tuple(answers), zone


class Count(NamedTuple):
    """Count the items of each kind; kinds of which there are none are left out."""

    def on(self, zone: Zone) -> Result:
        """See `Call`."""
        counts: dict[str, int] = {}
        for item in zone.items:
            counts[item.kind] = counts.get(item.kind, 0) + 1
        return counts, zone


class IsEmpty(NamedTuple):
    """Say whether there is no item."""

    def on(self, zone: Zone) -> Result:
        """See `Call`."""
        return not zone.items, zone


class IsGone(NamedTuple):
    """Say whether there is no item of an id."""

    item_id: bytes

    def on(self, zone: Zone) -> Result:
        """See `Call`."""
        return zone.find(self.item_id) is None, zone


class MinVesting(NamedTuple):
    """Return the earliest vesting time, None without items."""

    def on(self, zone: Zone) -> Result:
        """See `Call`."""
        return min((item.vesting_us for item in zone.items), default=None), zone


def _held(zone: Zone, item_id: bytes, lease_id: bytes | None) -> Item | Outcome:
    """Return an item that the caller may touch, or why not. A lease that ran out holds until another is taken."""
    item = zone.find(item_id)
    if item is None:
        return Outcome.GONE
    if lease_id is not None and item.lease_id != lease_id:
        return Outcome.LEASE_LOST
    return item


def _that_fit(left: deque[Item], room: dict[str, int], count: int) -> list[Item]:
    """Return the next items that there is room for, and take them and the others before them from what is left."""
    fitting: list[Item] = []
    while left and len(fitting) < count:
        item = left.popleft()
        if room.get(item.kind, 0):
            room[item.kind] -= 1
            fitting.append(item)
    return fitting


def _leased(item: Item, lease_id: bytes, vesting_us: int) -> Item:
    """Return an item under a lease. It lapsed if its last lease was never given back once it had started."""
    expiry_count = item.expiry_count + item.started
    return item._replace(lease_id=lease_id, vesting_us=vesting_us, expiry_count=expiry_count, started=False)


def _move_to_dead_letters(zone: Zone, item: Item) -> Zone:
    dead_lettered = item._replace(lease_id=b"")
    return zone.remove(item.id)._replace(dead_lettered=tuple(sorted((*zone.dead_lettered, dead_lettered))))


_READS = (Peek, Count, IsEmpty, IsGone, MinVesting)
_REFUSED = (
    Outcome.GONE,
    Outcome.LEASE_LOST,
    Refusal.NOT_A_DEAD_LETTER,
    EnqueueStatus.PRESENT,
    EnqueueStatus.DEAD_LETTER,
    EnqueueStatus.COMPLETED,
)


def _changes_nothing(operation: Operation) -> bool:
    """Say whether an operation, answered as it was, left the zone as it was."""
    call, answer = operation.call, operation.answer
    return isinstance(call, _READS) or isinstance(answer, NotVested) or answer in _REFUSED


QUEUE_ZONE = Model(Zone(), _changes_nothing)
