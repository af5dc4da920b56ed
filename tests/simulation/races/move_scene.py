"""The scene of the races of moves: Alice lives on her first home, and moves to the other shard by the product's mover.

After every commit the oracles of moves and of queues look at both shards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fairlead.actors.execution.job import Job
from fairlead.actors.handlers import handler_of
from fairlead.simulation.database import SimulatedDatabase
from fairlead.simulation.host import NodeClock, SimulatedHost
from fairlead.simulation.open_shards import OpenShards
from fairlead.simulation.oracles.consistency import IndexNamesEveryItem
from fairlead.simulation.oracles.moving import TenantsMoveWhole
from fairlead.simulation.oracles.oracle import OracleSuite
from fairlead.simulation.store import Latencies
from fairlead.simulation.tenant_moves import begin_move, first_home_of
from fairlead.simulation.world import World
from fairlead.zones.layout import Tenant
from fairlead.zones.moving.mover import Mover
from fairlead.zones.placement import home
from fairlead.zones.queue.dequeue_plan import Capacity
from fairlead.zones.queue.items import LeasedItem
from fairlead.zones.records import MovePhase, MoveRecord, MoveState
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.shard import Shard, open_shard
from fairlead.zones.tenant_transaction import ApplicationTransaction, TenantTransaction
from fairlead.zones.transaction_runner import Attempt
from tests.simulation.races.director import DirectedStore, Role, SentCommit
from tests.simulation.races.scene import LEASE_US, WorkerRole, ref_of
from tests.simulation.stage import ALICE

NAMES = ("s0", "s1")
OLD = home(ALICE, NAMES)
(NEW,) = set(NAMES) - {OLD}
BOB = next(each for number in range(100) if home(each := Tenant("shop", f"b{number}"), NAMES) == NEW)
RATE = 1_000_000_000
ITEM = "mail-1"

T = TypeVar("T")


class MoveScene:
    """Two shards, and processes that follow tenants. `old`, `new`: the stores between which Alice moves."""

    def __init__(self) -> None:
        self.world = World(1)
        self.suite = OracleSuite(self.world, NAMES)
        self.suite.oracles = [TenantsMoveWhole(self.world, self.suite.shards), IndexNamesEveryItem(self.world)]
        self.stores = {name: DirectedStore(self.world, name, Latencies()) for name in NAMES}
        for store in self.stores.values():
            store.on_commit.append(self.suite.on_commit)
        self.old, self.new = self.stores[OLD], self.stores[NEW]
        self._databases = {
            name: SimulatedDatabase(store, has_commit_sequence=False) for name, store in self.stores.items()
        }
        self._hosts = 0
        self.does(lambda shards: on(shards, ALICE, lambda tr: tr.set(("key",), b"1")))

    def role(self, name: str, body: Callable[[OpenShards], T]) -> Role[T]:
        """Return a process with its open shards. It begins when it is told to run."""
        host, clock = f"{name}#1", NodeClock(self.world, 0)
        process = SimulatedHost(self.world, host, clock, self.world.random(host), on_recycle=print, on_failure=print)
        opened = Role(self.old, process, None, lambda _: self._open(process))  # type: ignore[arg-type]
        shards = opened.runs()
        return Role(self.old, process, shards[OLD], lambda _: body(shards))

    def does(self, body: Callable[[OpenShards], T]) -> T:
        """Let another process do something, to its end."""
        self._hosts += 1
        return self.role(f"other{self._hosts}", body).runs()

    def begins(self) -> None:
        """Begin the move."""
        self.does(lambda shards: begin_move(shards, ALICE, NEW, self.world.random("move"), RATE))

    def mover(self, name: str = "mover") -> Role[MoveState | None]:
        """Return a process that carries out the move."""
        move_id = self.record.move_id

        def move(shards: OpenShards) -> MoveState | None:
            return Mover(shards[OLD], shards[NEW], first_home_of(shards, ALICE), ALICE, move_id).run()

        return self.role(name, move)

    def worker(self, handle: Callable[[Job], None]) -> WorkerRole:
        """Return a worker that has just leased Alice's mails where she lives first."""

        def lease(shard: Shard) -> list[LeasedItem]:
            def body(attempt: Attempt) -> list[LeasedItem]:
                lease_id, capacity = attempt.new_id(), Capacity(100, {"mail": 100})
                return shard.zone(ALICE).dequeue(
                    attempt.tr, capacity=capacity, lease_id=lease_id, lease_us=LEASE_US, now_us=attempt.now_us
                )

            return shard.transact(body)

        items = self.does(lambda shards: shards.at_home(ALICE, lease))
        refs = [ref_of(item)._replace(shard=OLD) for item in items]
        opened = self.role("worker", lambda shards: shards)
        return WorkerRole(self.old, opened.host, opened.runs(), [handler_of("mail", handle)], refs)

    def items_of(self, tenant: Tenant) -> list[bytes]:
        """Return the ids of a tenant's items, on whichever shard."""
        replicas = self.suite.shards.values()
        return [item.item_id for replica in replicas for item, _ in replica.items() if item.tenant == tenant]

    def frozen(self) -> tuple[Role[MoveState | None], SentCommit]:
        """Begin the move; return its mover, which has frozen Alice, and its decision, which is on its way."""
        self.begins()
        mover = self.mover()
        while True:
            commit = mover.runs_until_any_commit(list(self.stores.values()), ["mover#1"], lambda: mover.is_over)
            assert commit is not None
            if self.phase is MovePhase.FROZEN:
                return mover, commit

    def moves(self) -> MoveState | None:
        """Move Alice, from the begin to the end."""
        self.begins()
        return self.mover().runs()

    def ends_well(self, state: MoveState) -> None:
        """See that the last move has ended so, that Alice lives on one shard, and that no oracle has found anything."""
        assert self.record.state is state
        for oracle in self.suite.oracles:
            oracle.at_end(list(self.suite.shards.values()))
        assert self.world.violation is None

    @property
    def record(self) -> MoveRecord:
        return self.suite.shards[OLD].moves[ALICE]

    @property
    def phase(self) -> MovePhase | None:
        owner = self.suite.shards[OLD].owners.get(ALICE)
        return None if owner is None or owner.move is None else owner.move.phase

    def _open(self, host: SimulatedHost) -> OpenShards:
        return OpenShards(
            {
                name: open_shard(
                    name,
                    database,
                    clock=host.clock,
                    random=host.random,
                    settings=ZoneSettings(),
                    part_count=1,
                    first_shards=NAMES,
                )
                for name, database in self._databases.items()
            }
        )


def on(shards: OpenShards, tenant: Tenant, body: Callable[[TenantTransaction], T]) -> T:
    """Run a transaction of a tenant, wherever the tenant lives."""

    def call(shard: Shard) -> T:
        return shard.transact(lambda attempt: body(ApplicationTransaction(shard, tenant, attempt)))

    return shards.at_home(tenant, call)


def writes(shards: OpenShards) -> None:
    on(shards, ALICE, lambda tr: tr.set(("key",), b"2"))


def reads(shards: OpenShards) -> bytes | None:
    return on(shards, ALICE, lambda tr: tr.get(("key",)))
