"""What the users and the workers of a tenant do while it moves, and what they have been told.

Each act follows the tenant wherever it lives. What it was told must be true for ever: `check` reads all of it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlead.zones.engines import transact
from fairlead.zones.errors import TenantMoved
from fairlead.zones.layout import Tenant, ZoneLocation, item_id_of
from fairlead.zones.pipelining import run_one
from fairlead.zones.placement import home
from fairlead.zones.policy.policies import change_tenant_policy, tenant_policy, tenants_with_policies
from fairlead.zones.queue import dead_letters, results
from fairlead.zones.queue.items import EnqueueStatus, new_item
from fairlead.zones.queue.lease_check import check_leases_op
from fairlead.zones.records import ItemRecord
from fairlead.zones.shard import Shard
from fairlead.zones.spanning.coordinator import SpanningTransaction, run_across_shards
from fairlead.zones.spanning.lock_wait import WAIT_US
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.zones.faults import Fault
from tests.zones.moving.town import FIRST, NAMES, Town

KEYS = 8
ZONES = ("queue", "other")
GIVEN = ("first", "second", "third")  # Names that users give to items.
LONG_US = 86_400_000_000
MONEY = ("money",)


class Users:
    """The users of a tenant, and its workers.

    Args:
      meanwhile: lets movers work in the midst of a transaction.

    Attributes:
      pays: whether they move money between tenants.
    """

    def __init__(self, town: Town, meanwhile: Callable[[], None]) -> None:
        self.town, self.random = town, town.random
        self.meanwhile = meanwhile
        self.bob = next(each for number in range(100) if home(each := Tenant("shop", f"b{number}"), FIRST) == "north")
        self.data: dict[tuple[Any, ...], bytes] = {}
        self.items: dict[bytes, str] = {}  # their zones
        self.leases: dict[bytes, bytes] = {}
        self.retained: set[bytes] = set()
        self.dead: dict[bytes, str] = {}
        self.results: dict[bytes, tuple[str, int]] = {}
        self.weight = 1.0
        self.pays = True
        self.transfers = 0

    def act(self) -> None:
        """Do something."""
        writes = (self.set, self.set, self.clear, self.clear_all, self.add, self.add_twice, self.set_slowly)
        queue = (self.enqueue, self.enqueue, self.enqueue_named, self.cancel, self.lease, self.complete, self.complete)
        others = (self.fail, self.retry, self.change_policy, self.transfer, self.read, self.forget_where_it_lives)
        self.random.choice(writes + queue + others)()

    # --- Data ---

    def set(self) -> None:
        key, value = self._key(), self.random.randbytes(3)
        self.town.on(lambda tr: tr.set(key, value))
        self.data[key] = value

    def _key(self) -> tuple[Any, ...]:
        return "key", self.random.randrange(KEYS)

    def set_slowly(self) -> None:
        """Write in a transaction in whose midst movers work."""
        key, value, runs = self._key(), self.random.randbytes(3), list[int]()

        def body(tr: TenantTransaction) -> None:
            tr.set(key, value)
            if not runs:
                runs.append(1)
                self.meanwhile()

        self.town.on(body)
        self.data[key] = value

    def clear(self) -> None:
        key = self._key()
        self.town.on(lambda tr: tr.clear(key))
        self.data.pop(key, None)

    def clear_all(self) -> None:
        if self.random.random() < 0.3:
            self.town.on(lambda tr: tr.clear_prefix(("key",)))
            self.data = {key: value for key, value in self.data.items() if key[0] != "key"}

    def add(self) -> None:
        key = ("counter", self.random.randrange(2))
        self.town.on(lambda tr: tr.add(key, 1))
        before = int.from_bytes(self.data.get(key, b""), "little")
        self.data[key] = (before + 1).to_bytes(8, "little")

    def add_twice(self) -> None:
        """Add without an answer, and repeat it; movers may work before the repetition."""
        then = self.meanwhile if self.random.random() < 0.5 else lambda: None
        faults = self.town.stores[self.town.home_name()].faults
        faults.append(Fault(applied=self.random.random() < 0.7, then=then))
        self.add()
        faults.clear()

    def read(self) -> None:
        """Read all by a process that may know an earlier home."""
        self.forget_where_it_lives()
        assert self._stored() == self.data, "a reader misses what was acknowledged before"

    def write_and_read(self, home: str, other: str) -> None:
        """Write by a process that knows where the tenant lives, and read by one that asks another shard."""
        self.town.alice_lives_at(home)
        self.set()
        self.town.alice_lives_at(other)
        assert self._stored() == self.data, "a reader misses what was acknowledged before"

    def _stored(self) -> dict[tuple[Any, ...], bytes]:
        return {key: value for key, value in self.town.data().items() if key != MONEY}

    def forget_where_it_lives(self) -> None:
        """Let another process go on, which knows another home."""
        self.town.alice_lives_at(self.random.choice(NAMES))

    # --- Items ---

    def enqueue(self) -> None:
        zone = self.random.choice(ZONES)
        self.items[self.town.enqueue(self.random.choice(("mail", "index")), zone=zone)] = zone

    def enqueue_named(self) -> None:
        name = self.random.choice(GIVEN)
        item = new_item("mail", item_id=name, unique_for=LONG_US // 1_000_000)
        item_id, status = self.town.on(lambda tr: tr.enqueue_item(item, zone="queue"))
        assert status is self._status_of(item_id), f"an enqueue of {name} is answered {status}"
        self.items[item_id] = "queue"
        if status is not EnqueueStatus.ENQUEUED and status is not EnqueueStatus.PRESENT:
            del self.items[item_id]

    def _status_of(self, item_id: bytes) -> EnqueueStatus:
        if item_id in self.items:
            return EnqueueStatus.PRESENT
        if item_id in self.dead:
            return EnqueueStatus.DEAD_LETTER
        return EnqueueStatus.COMPLETED if item_id in self.retained else EnqueueStatus.ENQUEUED

    def _some(self, of: dict[bytes, Any]) -> bytes | None:
        return self.random.choice(sorted(of)) if of else None

    def lease(self) -> None:
        """Lease an item for long; the worker completes it, wherever it is then."""
        item_id, lease_id = self._some(self.items), self.random.randbytes(16)
        if item_id is None or item_id in self.leases:
            return
        self.town.in_queue(
            lambda tr, queue, now_us: queue.obtain_lease(
                tr, item_id, lease_id=lease_id, lease_us=1_000 * queue.layout.settings.max_item_lease_ms, now_us=now_us
            ),
            self.items[item_id],
        )
        self.leases[item_id] = lease_id

    def complete(self) -> None:
        """Complete an item under its lease, and keep a result."""
        item_id = self._some(self.leases)
        if item_id is None:
            return
        zone, number = self.items[item_id], self.random.randrange(100)

        def body(tr: Any, queue: Any, now_us: int) -> None:
            queue.complete(tr, item_id, now_us=now_us, lease_id=self.leases[item_id])
            packed = results.pack_result(number)
            results.keep_result(tr, queue.location, item_id, packed, now_us=now_us, kept_us=LONG_US)

        self.town.in_queue(body, zone)
        del self.items[item_id], self.leases[item_id]
        self.results[item_id] = zone, number
        if item_id in {item_id_of(name) for name in GIVEN}:
            self.retained.add(item_id)

    def cancel(self) -> None:
        item_id = self._some(self.items)
        if item_id is not None:
            self.cancel_one(item_id)

    def cancel_one(self, item_id: bytes) -> None:
        """Cancel an item, which must be there."""
        self.town.in_queue(
            lambda tr, queue, now_us: queue.complete(tr, item_id, now_us=now_us, lease_id=None), self.items[item_id]
        )
        del self.items[item_id]
        self.leases.pop(item_id, None)

    def fail(self) -> None:
        """Make an item a dead letter."""
        item_id = self._some(self.items)
        if item_id is None:
            return

        def body(tr: Any, queue: Any, now_us: int) -> None:
            (record,) = run_one(check_leases_op(tr, queue.location, [(item_id, None)]))
            assert isinstance(record, ItemRecord), f"item {item_id.hex()} is lost"
            dead_letters.move_to_dead_letters(
                tr, queue.location, item_id, record, reason="failed", error="", traceback="", now_us=now_us
            )

        self.town.in_queue(body, self.items[item_id])
        self.dead[item_id] = self.items.pop(item_id)
        self.leases.pop(item_id, None)

    def retry(self) -> None:
        """Put a dead letter back."""
        item_id = self._some(self.dead)
        if item_id is None:
            return

        def body(tr: Any, queue: Any, now_us: int) -> None:
            dead_letter = dead_letters.read(tr, queue.location, item_id)
            assert dead_letter is not None, f"dead letter {item_id.hex()} is lost"
            dead_letters.retry_dead_letter(tr, queue.location, item_id, dead_letter, now_us=now_us)
            run_one(queue.wake_op(tr, earliest_us=now_us, now_us=now_us))

        self.town.in_queue(body, self.dead[item_id])
        self.items[item_id] = self.dead.pop(item_id)

    # --- The rest ---

    def change_policy(self) -> None:
        weight = float(self.random.randrange(1, 4))

        def call(shard: Shard) -> None:
            shard.transact(
                lambda attempt: change_tenant_policy(
                    attempt.tr, shard.layout, self.town.alice, now_us=attempt.now_us, weight=weight
                )
            )

        self.town.at_home(call)
        self.weight = weight

    def transfer(self) -> None:
        """Move money from Alice to Bob; movers may work in the midst."""
        if not self.pays:
            return
        runs: list[int] = []

        def body(tx: SpanningTransaction) -> None:
            alice, bob = tx.on(self.town.alice), tx.on(self.bob)
            before, other = _number(alice.get(MONEY)), _number(bob.get(MONEY))
            if not runs and self.random.random() < 0.5:
                runs.append(1)
                self.meanwhile()
            alice.set(MONEY, _packed(before - 1))
            bob.set(MONEY, _packed(other + 1))

        run_across_shards(self, body, wait_us=WAIT_US, clock=self.town.clock, random=self.random)
        self.transfers += 1

    # --- As `ShardFinder` ---

    def home(self, tenant: Tenant) -> Shard:
        return self.town.shard_of(tenant)

    def note_moved(self, moved: TenantMoved) -> bool:
        return self.town.note_moved(moved)

    def with_id(self, shard_id: bytes) -> Shard | None:
        return self.town.with_id(shard_id)

    # --- In the end ---

    def check(self) -> None:
        """See that all that was acknowledged is there, and nothing else."""
        for name in NAMES:
            self.town.alice_lives_at(name)
            assert self._stored() == self.data
        money = self.town.on(lambda tr: tr.get(MONEY)), self.town.on(lambda tr: tr.get(MONEY), self.bob)
        assert [_number(each) for each in money] == [-self.transfers, self.transfers], "money is lost or made"
        at = self.town.shards[self.town.home_name()]
        listed = {letter.id for letter in transact(at.db, lambda tr: list(self._listing(tr, at)))}
        assert listed == set(self.dead), "the list of dead letters is wrong"
        for item_id, (zone, number) in self.results.items():
            if item_id not in self.items and item_id not in self.dead:
                assert self._result(at, item_id, zone) == number, "a result is lost"
        policy = transact(at.db, lambda tr: tenant_policy(tr, at.layout, self.town.alice))
        assert policy.weight == self.weight
        expected = [] if self.weight == 1.0 else [self.town.alice]
        for shard in self.town.shards.values():
            listed_here = transact(shard.db, lambda tr: tenants_with_policies(tr, tenants_max=9))
            assert [tenant for tenant, _ in listed_here] == (expected if shard is at else [])
        for item_id in sorted(self.items):
            self.cancel_one(item_id)
        while self.dead:
            self.retry()

    def _listing(self, tr: Any, at: Shard) -> Any:
        return dead_letters.listing(tr, at.layout, items_max=1_000)

    def _result(self, at: Shard, item_id: bytes, zone: str) -> Any:
        location: ZoneLocation = at.layout.location(self.town.alice, zone)
        ending = transact(at.db, lambda tr: results.ending(tr, location, item_id))
        return getattr(ending, "value", None)


def _number(value: bytes | None) -> int:
    return int.from_bytes(value or b"", "little", signed=True)


def _packed(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)
