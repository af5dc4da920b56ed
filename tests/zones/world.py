"""A shard for tests: one database, a clock that stands still, ids that repeat."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, NamedTuple, TypeVar

from fairlead.zones.engines import Database, transact
from fairlead.zones.keyspace import COMPLETION_LOG, ROOT, ROOT_RANGE, pack_int, range_end
from fairlead.zones.layout import Tenant, item_id_of
from fairlead.zones.pipelining import run_one, run_together
from fairlead.zones.policy.fair_share import FairShare
from fairlead.zones.queue import id_retention
from fairlead.zones.queue.dequeue import IndexScan, apply_plan, plan_op
from fairlead.zones.queue.dequeue_plan import Admission, Capacity, Cursor
from fairlead.zones.queue.items import Enqueued, LeasedItem, NewItem, new_item
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.records import ItemRecord, PointerRecord, decode
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.shard import open_shard
from fairlead.zones.top_level.pointers import PointerRef, scan
from fairlead.zones.top_level.process_pointers import DequeueParams, PointerResult, process_pointers
from fairlead.zones.top_level.sessions import SessionRecord, heartbeat
from tests.clocks import ManualClock

T = TypeVar("T")

MS = 1_000
SECOND = 1_000_000
LEASE_US = 10 * SECOND
THROTTLE_US = 100 * MS
PAUSE_US = 5 * SECOND
ANY = {"mail": 1_000, "index": 1_000}

# Keys of nobody: what tests write outside the shard, on a cluster that may hold other things.
NOBODYS = b"\x15fairlead tests/"

PART_COUNT = 2
ALICE = Tenant("shop", "alice")
BOB = Tenant("shop", "bob")


class Dequeued(NamedTuple):
    """A dequeue from its beginning to its end: what it leased, and what `Choice` says besides."""

    items: list[LeasedItem]
    remaining: Admission | None
    cursor: bytes
    best_skipped: Admission
    dead_letters: list[str]
    unreadable: int


class World:
    """One shard and what its users do to it."""

    def __init__(self, db: Database, clock: ManualClock, *, settings: ZoneSettings | None = None) -> None:
        self.db = db
        self.clock = clock
        self.random = Random(7)
        self.shard = open_shard("test", db, clock=clock, random=self.random, settings=settings, part_count=PART_COUNT)
        self.layout = self.shard.layout

    @property
    def now_us(self) -> int:
        return self.clock.now_us()

    @property
    def zone(self) -> QueueZone:
        """Alice's queue."""
        return self.zone_of(ALICE)

    def zone_of(self, tenant: Tenant, name: str = "queue") -> QueueZone:
        return self.shard.zone(tenant, name)

    def new_id(self) -> bytes:
        return self.random.randbytes(16)

    def pass_us(self, duration_us: int) -> None:
        self.clock.advance_us(duration_us)

    def run(self, body: Callable[[Any], T]) -> T:
        """Run `body(tr)` in a transaction of its own."""
        return transact(self.db, body)

    # --- Items ---

    def enqueue(self, kind: str = "mail", payload: Any = None, *, zone: QueueZone | None = None, **how: Any) -> bytes:
        """Enqueue one item and return its id."""
        return self.try_enqueue(kind, payload, zone=zone, **how).item_id

    def try_enqueue(
        self, kind: str = "mail", payload: Any = None, *, zone: QueueZone | None = None, **how: Any
    ) -> Enqueued:
        """Enqueue one item; see `new_item` for `how`, and `NewItem` for `trace`, `run` and `parent`."""
        rest = {name: how.pop(name) for name in ("trace", "run", "parent") if name in how}
        item = new_item(kind, payload, **how)._replace(**rest)
        item_id = self.new_id() if item.given_id is None else item_id_of(item.given_id)
        return self.run(lambda tr: (zone or self.zone).enqueue(tr, item, item_id=item_id, now_us=self.now_us))

    def enqueue_all(self, items: list[NewItem], *, zone: QueueZone | None = None) -> list[bytes]:
        """Enqueue a batch and return the ids, in order."""
        batch = [(self.new_id(), item) for item in items]
        self.run(lambda tr: run_one((zone or self.zone).enqueue_op(tr, batch, now_us=self.now_us)))
        return [item_id for item_id, _ in batch]

    def dequeue(
        self,
        items_max: int = 100,
        kinds: Mapping[str, int] = ANY,
        *,
        zone: QueueZone | None = None,
        lease_us: int = LEASE_US,
    ) -> list[LeasedItem]:
        """Lease what has vested, each dequeue under a lease id of its own."""
        return self.dequeued(items_max, kinds, zone=zone, lease_us=lease_us).items

    def dequeued(
        self,
        items_max: int = 100,
        kinds: Mapping[str, int] = ANY,
        *,
        zone: QueueZone | None = None,
        lease_us: int = LEASE_US,
        cursor: bytes = b"",
        best_skipped: Admission = Admission.PAUSED,
    ) -> Dequeued:
        """Lease what has vested, and return the whole result of the dequeue."""
        lease_id = self.new_id()

        location = (zone or self.zone).location

        def body(tr: Any) -> Dequeued:
            index_scan = IndexScan(location, items_max=items_max, now_us=self.now_us)
            index_scan.send(tr)
            quantum = FairShare(tr, items_max).join(location, tr.get(location.keys.tenant.owner))
            capacity = Capacity(items_max, kinds)
            operation = plan_op(tr, index_scan, capacity, quantum, Cursor(cursor, best_skipped), lease_us=lease_us)
            plan = run_one(operation)
            items = apply_plan(
                tr, location, plan, quantum.policy, lease_id=lease_id, lease_us=lease_us, now_us=self.now_us
            )
            return Dequeued(
                items,
                remaining=plan.remaining,
                cursor=plan.cursor.key,
                best_skipped=plan.cursor.best_skipped,
                dead_letters=[record.kind for _, record, _ in plan.dead_letters],
                unreadable=plan.unreadable,
            )

        return self.run(body)

    def lease(self, item_id: bytes, *, lease_us: int = LEASE_US) -> bytes:
        """Lease one item and return the lease id."""
        lease_id = self.new_id()
        self.run(
            lambda tr: self.zone.obtain_lease(tr, item_id, lease_id=lease_id, lease_us=lease_us, now_us=self.now_us)
        )
        return lease_id

    def complete(self, item_id: bytes) -> None:
        """Lease one item, and complete it under that lease."""
        lease_id = self.lease(item_id)
        self.run(lambda tr: self.zone.complete(tr, item_id, lease_id=lease_id, now_us=self.now_us))

    def record(self, item_id: bytes, *, zone: QueueZone | None = None) -> ItemRecord | None:
        """Return the stored record of an item."""
        value = self.run(lambda tr: tr.get((zone or self.zone).location.keys.item(item_id)).value)
        return None if value is None else decode(ItemRecord, value)

    def count(self, zone: QueueZone | None = None) -> dict[str, int]:
        return self.run((zone or self.zone).count)

    def vested_ids(self) -> list[bytes]:
        """Return the ids that a peek shows, in order."""
        return self.run(lambda tr: self.zone.peek_ids(tr, items_max=1_000, now_us=self.now_us))

    def expire(self, keys_max: int = 10, *, after_us: int = 0) -> int:
        """Expire retained ids and results of all parts, as housekeeping does part by part."""

        def body(tr: Any) -> int:
            now_us = self.now_us + after_us
            return sum(id_retention.expire(tr, part, now_us=now_us, keys_max=keys_max) for part in range(PART_COUNT))

        return self.run(body)

    # --- Pointers ---

    def present(self, name: str, *kinds: str) -> None:
        """Write a heartbeat of a consumer that handles these kinds."""
        sign = SessionRecord("there", 1, sorted(kinds), self.now_us, self.now_us)
        self.run(lambda tr: heartbeat(tr, name.encode(), sign))

    def pointer(self, zone: QueueZone | None = None) -> PointerRecord | None:
        """Return the zone's pointer."""
        location = (zone or self.zone).location
        value = self.run(lambda tr: tr.get(location.keys.pointer).value)
        return None if value is None else decode(PointerRecord, value)

    def pointer_delay_us(self, zone: QueueZone | None = None) -> int:
        """Return how far in the future the zone's pointer vests."""
        pointer = self.pointer(zone)
        assert pointer is not None
        return pointer.vesting_us - self.now_us

    def scan(self, ids_max: int = 1_000) -> list[PointerRef]:
        """Return the vested pointers of all parts."""

        def body(tr: Any) -> list[PointerRef]:
            scans = [scan(tr, part, now_us=self.now_us, ids_max=ids_max) for part in self.layout.parts]
            return [ref for refs, _ in run_together(scans) for ref in refs]

        return self.run(body)

    def terms(self, *, lease_id: bytes | None = None, items_max: int = 10, lease_us: int = LEASE_US) -> DequeueParams:
        """Return what a manager passes to a dequeue now."""
        return DequeueParams(self.now_us, lease_id or self.new_id(), lease_us, items_max, THROTTLE_US, PAUSE_US)

    def process(
        self, kinds: Mapping[str, int] = ANY, *, items_max: int = 10, lease_us: int = LEASE_US
    ) -> list[PointerResult]:
        """Process every vested pointer in one transaction."""
        refs = self.scan()
        terms = self.terms(items_max=items_max, lease_us=lease_us)

        def body(tr: Any) -> list[PointerResult]:
            return process_pointers(tr, self.layout, refs, Capacity(1_000, kinds), terms)[0]

        return self.run(body)

    def ref(self, zone: QueueZone | None = None) -> PointerRef:
        """Return what a scan says, or would say, of the zone's pointer."""
        location, pointer = (zone or self.zone).location, self.pointer(zone)
        assert pointer is not None
        return PointerRef(location.part.part, location.pointer_id, pointer.vesting_us, pointer.priority)

    # --- What is stored ---

    def stored(self, begin: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        """Return all pairs of a range."""
        return self.run(lambda tr: [(pair.key, pair.value) for pair in tr.snapshot.get_range(begin, end)])

    def of_items(self) -> list[tuple[bytes, bytes]]:
        """Return all pairs of Alice's queue but its pointer."""
        keys = self.zone.location.keys
        return [pair for pair in self.stored(keys.prefix, range_end(keys.prefix)) if pair[0] != keys.pointer]

    def everything(self) -> list[tuple[bytes, bytes]]:
        """Return all pairs of the shard except the completion log."""
        return [pair for pair in self.stored(*ROOT_RANGE) if not pair[0].startswith(ROOT + pack_int(COMPLETION_LOG))]

    def get(self, key: bytes) -> bytes | None:
        """Read one key behind the queue's back."""
        value: bytes | None = self.run(lambda tr: tr.get(key).value)
        return value

    def set(self, key: bytes, value: bytes) -> None:
        """Write one key behind the queue's back."""
        self.run(lambda tr: tr.set(key, value))

    def clear(self, key: bytes) -> None:
        """Clear one key behind the queue's back."""
        self.run(lambda tr: tr.clear(key))
