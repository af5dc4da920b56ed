"""The scene of the races of transactions across shards: Alice has money on one shard, and Bob on another one.

Clerks are processes that run transactions across shards. Everything they commit, they commit by the product's own code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from fairlead.simulation.bank.clerk import BALANCE
from fairlead.simulation.bank.keeper import forget_aborts
from fairlead.simulation.database import SimulatedDatabase
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.replica import ShardReplica
from fairlead.simulation.store import Latencies
from fairlead.zones.errors import TenantMoved
from fairlead.zones.layout import Tenant
from fairlead.zones.records import Lock
from fairlead.zones.shard import Shard, open_shard
from fairlead.zones.spanning.coordinator import SpanningTransaction, run_across_shards
from fairlead.zones.spanning.leftovers import Leftovers
from fairlead.zones.tenant_transaction import ApplicationTransaction, TenantTransaction
from tests.simulation.races.director import DirectedStore, Role
from tests.simulation.races.scene import Scene
from tests.simulation.stage import ALICE, SECOND

BOB = Tenant("shop", "bob")
HOME, FAR = "s0", "s1"
HOMES = {ALICE: HOME, BOB: FAR}
BEGINS_WITH = 100

T = TypeVar("T")


class OpenShards:
    """Both shards, as one process has opened them; see `fairlead.zones.spanning.coordinator.ShardFinder`."""

    def __init__(self, host: SimulatedHost, shards: Mapping[str, Shard]) -> None:
        self.host = host
        self._shards = shards
        self._by_id = {shard.layout.shard_id: shard for shard in shards.values()}
        for shard in shards.values():
            shard.find_shard = self.with_id

    def home(self, tenant: Tenant) -> Shard:
        return self._shards[HOMES[tenant]]

    def note_moved(self, moved: TenantMoved) -> bool:
        return False

    def with_id(self, shard_id: bytes) -> Shard | None:
        return self._by_id.get(shard_id)

    def across(self, body: Callable[[SpanningTransaction], T]) -> T:
        """Run a transaction across shards."""
        return run_across_shards(self, body, wait_us=5 * SECOND, clock=self.host.clock, random=self.host.random)

    def on(self, tenant: Tenant, body: Callable[[TenantTransaction], T]) -> T:
        """Run a plain transaction on a tenant."""
        shard = self.home(tenant)
        return shard.transact(lambda attempt: body(ApplicationTransaction(shard, tenant, attempt)))

    def forgets(self, *, ahead_us: int) -> int:
        """Forget the old decisions on Alice's shard, by a clock that is ahead; return how many."""
        shard = self._shards[HOME]
        leftovers = Leftovers(shard, self.with_id)
        return leftovers.forget_old(now_us=self.host.clock.now_us() + ahead_us)

    def forgets_aborts(self) -> None:
        """Forget all aborts on Alice's shard."""
        forget_aborts(self._shards[HOME])


class BankScene(Scene):
    """A scene with a second shard. `far`: its store. Alice, at home on the first one, and Bob have money."""

    def __init__(self) -> None:
        super().__init__()
        self.far = DirectedStore(self.world, FAR, Latencies())
        self.suite.shards[FAR] = ShardReplica(FAR)
        self.far.on_commit.append(self.suite.on_commit)
        self._databases = {HOME: self.database, FAR: SimulatedDatabase(self.far, has_commit_sequence=False)}
        self.own = self._opened(self.host)
        for tenant in HOMES:
            self.play(lambda tenant=tenant: self.own.on(tenant, lambda tr: tr.add(BALANCE, BEGINS_WITH)))  # type: ignore[misc]

    def clerk(self, name: str, body: Callable[[OpenShards], T]) -> Role[T]:
        """Return a role that has opened both shards. Its commits to Alice's shard are held by default."""
        host = self.new_host(name)
        opened = self._opened(host)
        return Role(self.directed, host, opened.home(ALICE), lambda _: body(opened))

    def does(self, body: Callable[[OpenShards], T], *, within_us: int = 10 * SECOND) -> T:
        """Let another process do something, to its end."""
        return self.play(lambda: body(self.own), within_us=within_us)

    def balances(self) -> list[int]:
        """Return Alice's money and Bob's, by plain transactions."""
        return [self.does(lambda own, tenant=tenant: own.on(tenant, balance)) for tenant in HOMES]  # type: ignore[misc]

    def locks(self, tenant: Tenant) -> tuple[Lock, ...]:
        """Return the locks on a tenant."""
        return self.suite.shards[HOMES[tenant]].locks.get(tenant, ())

    def _opened(self, host: SimulatedHost) -> OpenShards:
        shards = {
            name: self.play(
                lambda name=name, database=database: open_shard(  # type: ignore[misc]
                    name, database, clock=host.clock, random=host.random, settings=self._settings, part_count=1
                ),
                host=host,
            )
            for name, database in self._databases.items()
        }
        return OpenShards(host, shards)


def balance(tr: TenantTransaction) -> int:
    """Return the money of a tenant."""
    return int.from_bytes(tr.get(BALANCE) or b"", "little", signed=True)


def put(tr: TenantTransaction, money: int) -> None:
    """Write the money of a tenant."""
    tr.set(BALANCE, money.to_bytes(8, "little", signed=True))


def pays(amount: int = 10) -> Callable[[OpenShards], None]:
    """Return what moves money from Alice to Bob by a transaction across shards. Alice's shard is its home."""

    def body(tx: SpanningTransaction) -> None:
        alice, bob = tx.on(ALICE), tx.on(BOB)
        before, other = balance(alice), balance(bob)
        put(alice, before - amount)
        put(bob, other + amount)

    return lambda shards: shards.across(body)


def sends(amount: int = 10) -> Callable[[OpenShards], None]:
    """Return the same without a read."""

    def body(tx: SpanningTransaction) -> None:
        tx.on(ALICE).add(BALANCE, -amount)
        tx.on(BOB).add(BALANCE, amount)

    return lambda shards: shards.across(body)
