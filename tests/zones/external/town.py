"""A shard in memory, an external store, a producer, a reader and consumers, which stop before each access.

Each is a greenlet. Before it uses a store, and before a transaction of the shard commits, it gives way: whoever
schedules them decides who goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import msgspec
from greenlet import getcurrent, greenlet

from fairlead.simulation.external.calls import ItemsAtOnce
from fairlead.zones import engines
from fairlead.zones.engines.api.errors import StoreError
from fairlead.zones.external.arrivals import ReaderRecord, note_arrival, save_seen, take_reader
from fairlead.zones.external.cursors import Cursors
from fairlead.zones.external.names import pointer_zone
from fairlead.zones.external.store import Dequeued, ItemLease, Look, Outlook, Queue, Stop, Want
from fairlead.zones.external.visits import visit_queues
from fairlead.zones.layout import Tenant
from fairlead.zones.pipelining import run_one
from fairlead.zones.queue.dequeue_plan import Capacity
from fairlead.zones.queue.items import new_item
from fairlead.zones.records import PointerRecord, decode, encode
from fairlead.zones.shard import open_shard
from fairlead.zones.top_level import pointers
from fairlead.zones.top_level.process_pointers import DequeueParams, PointerResult
from fairlead.zones.transaction_runner import Attempt
from tests.clocks import ManualClock

ALICE = Queue(Tenant("shop", "alice"), "queue")
STORE = "pg"
LEASE_US = 60_000_000


def give_way() -> None:
    """Let another greenlet go on, if this one is scheduled."""
    parent = getcurrent().parent
    if parent is not None:
        parent.switch()


class SteppedItems(ItemsAtOnce):
    """The external store; whoever calls it gives way first."""

    def dequeue(
        self, wants: Sequence[Want], rooms: Mapping[str, int], *, lease_id: bytes, lease_us: int, now_us: int
    ) -> Dequeued:
        """See `ExternalStore`."""
        give_way()
        return super().dequeue(wants, rooms, lease_id=lease_id, lease_us=lease_us, now_us=now_us)

    def outlook(self, queues: Sequence[Queue], stops: Sequence[Sequence[Stop]] = ()) -> list[list[Outlook]]:
        """See `ExternalStore`."""
        give_way()
        return super().outlook(queues, stops)

    def arrivals(self, seen: str, history: str) -> Look:
        """See `ExternalStore`."""
        give_way()
        return super().arrivals(seen, history)


class Town:
    """What everybody works on. `taken`: the items that consumers have leased."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.items = SteppedItems(self.clock.now_us)
        db = engines.open("memory:", clock=self.clock, random=Random(1))
        self.shard = open_shard("main", db, clock=self.clock, random=Random(2))
        self.taken: list[bytes] = []
        self.cursors = Cursors()
        self._numbers = iter(range(1_000))

    @property
    def location(self) -> Any:
        """Where the pointer of alice's queue lies."""
        return self.shard.layout.location(ALICE.tenant, pointer_zone(STORE, ALICE.zone))

    @property
    def pointer(self) -> PointerRecord | None:
        """The pointer of alice's queue."""
        value = self.shard.transact(lambda attempt: attempt.tr.get(self.location.keys.pointer).value)
        return None if value is None else decode(PointerRecord, value)

    # --- What they do ---

    def produce(self, name: str) -> None:
        """Enqueue an item, and commit later."""
        user = self.items.begin()
        self.items.enqueue(user, ALICE, name.encode().rjust(16, b"."), new_item("mail"))
        give_way()
        self.items.commit(user)

    def read(self) -> None:
        """Look once for arrivals, make or wake pointers, and save what was seen."""
        found = self.shard.transact(self._taken_by_reader)
        look = self.items.arrivals(found.seen, self.items.history())
        for arrival in look.arrivals:
            self._transact(
                lambda attempt, arrival=arrival: note_arrival(  # type: ignore[misc]
                    attempt.tr, self.shard.layout, STORE, arrival, now_us=attempt.now_us
                )
            )
        after = msgspec.structs.replace(found, seen=look.seen)
        give_way()
        self.shard.transact(lambda attempt: save_seen(attempt.tr, STORE, found.reader, after))

    def _taken_by_reader(self, attempt: Attempt) -> ReaderRecord:
        found = take_reader(attempt.tr, STORE, b"r" * 16, lease_us=LEASE_US, now_us=attempt.now_us)
        assert found is not None
        return found

    def visit(self) -> list[bytes]:
        """Visit the vested pointers, and return what was taken; one that conflicts is left to the next visit."""
        got = [item.id for result in self.visit_results({"mail": 10}) for item in result.items]
        self.taken += got
        return got

    def visit_results(self, kinds: Mapping[str, int], *, poison_candidates: int = 1) -> list[PointerResult]:
        """Visit the vested pointers with room for items of some kinds, and for so many that must run isolated."""
        refs = self.vested()
        if not refs:
            return []
        lease_id = next(self._numbers).to_bytes(16, "big")
        found: list[PointerResult] = []

        def body(attempt: Attempt) -> None:
            params = DequeueParams(attempt.now_us, lease_id, LEASE_US, 10, 10_000, 1_000_000)
            capacity = Capacity(10, kinds, poison_candidates=poison_candidates)
            results, _ = visit_queues(
                attempt.tr, self.shard.layout, refs, capacity, params, self.items, cursors=self.cursors
            )
            found.extend(results)
            give_way()

        with suppress(StoreError):  # A conflict: what was leased is leased.
            self.shard.transact(body, retries_max=0)
        return found

    def end_leased(self) -> None:
        """End what consumers have leased."""
        self.items.complete([ItemLease(each, None) for each in self.taken])
        self.taken.clear()

    def vested(self) -> list[pointers.PointerRef]:
        """Return the vested pointers."""

        def body(attempt: Attempt) -> list[pointers.PointerRef]:
            now_us = attempt.now_us
            scans = [pointers.scan(attempt.tr, part, now_us=now_us, ids_max=10) for part in self.shard.layout.parts]
            return [ref for scan in scans for ref in run_one(scan)[0]]

        return self.shard.transact(body)

    def _transact(self, body: Callable[[Attempt], Any]) -> Any:
        """Run a body until it commits, and give way before it begins, and before each commit."""

        def run(attempt: Attempt) -> Any:
            result = body(attempt)
            give_way()
            return result

        give_way()
        return self.shard.transact(run)

    # --- What must hold ---

    def waits_unseen(self) -> str:
        """Return what is wrong once the reader has seen all: an item that waits behind a pointer that does not vest."""
        self.read()
        waiting = [row for row in self.items.items.values() if not row.lease_id]
        pointer = self.pointer
        soon_us = self.clock.now_us() + 1000 * self.shard.layout.settings.wake_slack_ms
        if not waiting or (pointer is not None and pointer.vesting_us <= soon_us):
            return ""
        return f"{len(waiting)} items wait behind {pointer}"


def with_pointer(town: Town, **changes: Any) -> None:
    """Change the pointer of alice's queue, without waking anybody."""

    def body(attempt: Attempt) -> None:
        stored = town.pointer
        assert stored is not None
        pointer = msgspec.structs.replace(stored, **changes)
        attempt.tr.set(town.location.keys.pointer, encode(pointer))

    town.shard.transact(body)


def schedules(begin: Callable[[], tuple[Town, list[Callable[[], object]]]]) -> Any:
    """Yield a town at the end of every order in which its people can go on, with the order: depth first, by repetition.

    `begin` returns a new town, and what its people do.
    """
    prefix: list[int] = []
    while True:
        town, people = begin()
        running = [greenlet(each) for each in people]
        order: list[int] = []
        choices: list[list[int]] = []
        while living := [number for number, each in enumerate(running) if not each.dead]:
            at = len(order)
            chosen = prefix[at] if at < len(prefix) else living[0]
            choices.append(living)
            order.append(chosen)
            running[chosen].switch()
        yield town, order
        while order and order[-1] == choices[-1][-1]:
            order.pop()
            choices.pop()
        if not order:
            return
        later = [number for number in choices[-1] if number > order[-1]]
        prefix = [*order[:-1], later[0]]
