"""A bank whose clients are tenants of three shards, and what may happen to its stores."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from random import Random
from typing import Any, TypeVar

from fairlead.zones.engines import Database, transact
from fairlead.zones.engines.memory.engine import MemoryDatabase
from fairlead.zones.errors import TenantMoved
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.placement import home
from fairlead.zones.records import Lock, OwnerRecord, TransactionId, decode
from fairlead.zones.shard import Shard, open_shard
from fairlead.zones.spanning.coordinator import SpanningTransaction, run_across_shards
from fairlead.zones.spanning.leftovers import Leftovers, list_decisions, list_prepared
from fairlead.zones.spanning.lock_wait import WAIT_US
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.transaction_runner import Attempt
from tests.clocks import ManualClock
from tests.rooted import on_cluster
from tests.zones.faults import Fault, FaultyDatabase

T = TypeVar("T")

NAMES = ("east", "north", "west")
BEGINS_WITH = 100
LATER_THAN_ANY_US = 1 << 62


class Killed(BaseException):
    """The process dies here."""


def elsewhere(call: Callable[[], object]) -> None:
    """Make a call as another process would, which is in no body."""
    Context().run(call)


class PausingStore(FaultyDatabase):
    """A store after whose next commit the committing process pauses, while something happens elsewhere."""

    def __init__(self, db: Database) -> None:
        super().__init__(db)
        self.pause: Callable[[], object] | None = None

    def commit(self, tr: Any) -> None:
        super().commit(tr)
        pause, self.pause = self.pause, None
        if pause is not None:
            elsewhere(pause)


def die() -> None:
    """Let the process die here."""
    raise Killed


def tenant_on(shard: str) -> Tenant:
    """Return a tenant whose first home is a shard."""
    return next(each for number in range(1_000) if home(each := Tenant("bank", f"{shard}{number}"), NAMES) == shard)


ALICE, BOB, CAROL = tenant_on("east"), tenant_on("west"), tenant_on("north")


class Bank:
    """Three shards, each with a store whose commits end as a story wants them to. Time passes when somebody sleeps."""

    def __init__(self, engine: str = "memory") -> None:
        self.clock, self.random = ManualClock(), Random(5)
        self.stores = {name: PausingStore(self._open(engine)) for name in NAMES}
        self.shards: dict[str, Shard] = {}
        for name, store in self.stores.items():
            opened = open_shard(name, store, clock=self.clock, random=self.random, part_count=2, first_shards=NAMES)
            opened.find_shard = self.with_id
            self.shards[name] = opened
        self.away: set[str] = set()  # Shards that nobody finds by their ids.
        for tenant in (ALICE, BOB, CAROL):
            self.on(tenant, lambda tr: tr.set(("balance",), packed(BEGINS_WITH)))

    def _open(self, engine: str) -> Database:
        if engine == "memory":
            return MemoryDatabase("memory:", self.clock, Random(7))
        return on_cluster(clock=self.clock, random=Random(7))

    def close(self) -> None:
        """Leave nothing on a cluster."""
        for store in self.stores.values():
            store.close()

    # --- As `ShardFinder` ---

    def home(self, tenant: Tenant) -> Shard:
        return self.shards[home(tenant, NAMES)]

    def note_moved(self, moved: TenantMoved) -> bool:
        return False

    def with_id(self, shard_id: bytes) -> Shard | None:
        found = [
            each for name, each in self.shards.items() if each.layout.shard_id == shard_id and name not in self.away
        ]
        return found[0] if found else None

    # --- Transactions ---

    def across(self, body: Callable[[SpanningTransaction], T], *, wait_us: int = WAIT_US) -> T:
        """Run a transaction across shards."""
        return run_across_shards(self, body, wait_us=wait_us, clock=self.clock, random=self.random)

    def on(self, tenant: Tenant, body: Callable[[TenantTransaction], T]) -> T:
        """Run a transaction on one tenant."""
        shard = self.home(tenant)

        def run(attempt: Attempt) -> T:
            return body(TenantTransaction(shard, tenant, attempt))

        return shard.transact(run)

    def transfer(self, amount: int = 10, *, source: Tenant = ALICE, target: Tenant = BOB) -> None:
        """Move money from one tenant to another one."""
        self.across(lambda tx: move_money(tx, source, target, amount))

    def is_killed(self, call: Callable[[], object], *, on: str, applied: bool, after_commits: int = 0) -> None:
        """Let a process die in a commit on a shard, which is applied or not. It has made some commits there before."""
        self.stores[on].faults.extend([None] * after_commits)
        self.stores[on].faults.append(Fault(applied=applied, then=die))
        try:
            call()
        except Killed:
            return
        raise AssertionError("the process was not killed")

    # --- What is stored ---

    def balance(self, tenant: Tenant) -> int:
        """Return the balance of a tenant, by a transaction on its tenant."""
        return self.on(tenant, balance)

    def total(self) -> int:
        """Return the money in the bank."""
        return sum(self.balance(tenant) for tenant in (ALICE, BOB, CAROL))

    def locks(self, tenant: Tenant) -> tuple[Lock, ...]:
        """Return the locks on a tenant."""
        value = transact(self.home(tenant).db, lambda tr: tr.get(TenantKeys(*tenant).owner).value)
        record = None if value is None else decode(OwnerRecord, value)
        return () if record is None else record.locks

    def prepared(self) -> set[tuple[str, TransactionId]]:
        """Return what is prepared, with the name of the shard."""
        return {
            (name, transaction)
            for name, shard in self.shards.items()
            for transaction, _ in transact(shard.db, lambda tr: list_prepared(tr, transactions_max=100))
        }

    def decisions(self) -> dict[str, list[bool]]:
        """Return on each shard that has any which decisions there are: whether they are commits."""
        found = {}
        for name, shard in self.shards.items():
            listed = transact(shard.db, lambda tr: list_decisions(tr, before_us=LATER_THAN_ANY_US))
            if listed:
                found[name] = [record.committed for _, record in listed]
        return found

    def leftovers(self, name: str) -> Leftovers:
        """Return the housekeeping of a shard by a new process."""
        return Leftovers(self.shards[name], self.with_id)


def balance(tr: Any) -> int:
    """Return the balance of the tenant that a transaction is on."""
    return int.from_bytes(tr.get(("balance",)) or b"", "little")


def packed(number: int) -> bytes:
    """Return a balance as it is stored."""
    return number.to_bytes(8, "little")


def move_money(tx: SpanningTransaction, source: Tenant, target: Tenant, amount: int) -> None:
    """Read both balances, and write them."""
    left, right = tx.on(source), tx.on(target)
    before, other = balance(left), balance(right)
    left.set(("balance",), packed(before - amount))
    right.set(("balance",), packed(other + amount))
