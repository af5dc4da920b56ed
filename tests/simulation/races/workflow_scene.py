"""The scene of the races of workflows: Alice's run acts on herself, on Bob, who lives on another shard, and on Carol.

Executors are workers of the product. The story says where Bob and Carol live first, and lets the product move them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fairlead.simulation.database import SimulatedDatabase
from fairlead.simulation.host import SimulatedHost
from fairlead.simulation.replica import RUN_KEYS, ShardReplica, unpack_key
from fairlead.simulation.store import Latencies
from fairlead.workflows.async_context import AsyncWorkflowContext
from fairlead.workflows.context import WorkflowContext
from fairlead.workflows.system_kinds import system_handlers
from fairlead.workflows.workflow_kind import WorkflowKind, workflow_handler
from fairlead.zones.durations import DAY_S
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import ID_BYTES, Tenant, item_id_of
from fairlead.zones.moving import source as moving
from fairlead.zones.moving.mover import Mover
from fairlead.zones.pipelining import run_one
from fairlead.zones.records import MoveRecord, MoveState
from fairlead.zones.shard import Shard, open_shard
from fairlead.zones.tenant_transaction import ApplicationTransaction, TenantTransaction
from fairlead.zones.transaction_runner import Attempt
from fairlead.zones.workflow.children import DELIVERY_KIND
from fairlead.zones.workflow.floor import raise_daily
from fairlead.zones.workflow.participants import clean_up_op
from fairlead.zones.workflow.run_end import CLEANUP_KIND
from fairlead.zones.workflow.signals import SIGNAL_KIND
from tests.simulation.races.director import DirectedStore, Role
from tests.simulation.races.scene import LEASE_US, Scene, WorkerRole
from tests.simulation.stage import ALICE, SECOND

BOB = Tenant("shop", "bob")  # On the other shard, until he moves.
CAROL = Tenant("shop", "carol")  # On Alice's shard, until she moves.
HOME, FAR = "s0", "s1"
KIND, NAME = "checkout", "mine"
MINE = item_id_of(NAME)

RATE = 1_000_000_000

T = TypeVar("T")
Function = Callable[[WorkflowContext], Any] | Callable[[AsyncWorkflowContext], Any]


def do(tr: TenantTransaction, name: str) -> None:
    """Do a step: count it. Nothing is read, so two executors of the step do not conflict by what it does."""
    tr.add((name,), 1)


def undo(tr: TenantTransaction, name: str) -> None:
    """Undo a step: count the undo."""
    tr.add((f"undo {name}",), 1)


class WorkflowScene(Scene):
    """A scene with a second shard. `far`: its store. `homes`: where tenants live, as every process knows at once."""

    def __init__(self) -> None:
        super().__init__()
        self.far = DirectedStore(self.world, FAR, Latencies())
        self.suite.shards[FAR] = ShardReplica(FAR)
        self.far.on_commit.append(self.suite.on_commit)
        self._databases = {
            HOME: self.database,
            FAR: SimulatedDatabase(self.far, has_commit_sequence=False),
        }
        self.homes = {ALICE: HOME, BOB: FAR, CAROL: HOME}
        self._opened: dict[tuple[str, str], Shard] = {}
        self._open_all(self.host)

    # --- Executors ---

    def enqueued(self) -> None:
        """Let Alice enqueue the workflow, under its name."""
        self.has(lambda alice: alice.enqueue(KIND, item_id=NAME))

    def executor(self, function: Function, *, lease_us: int = LEASE_US, version: int = 1, **options: Any) -> WorkerRole:
        """Return a worker that has just leased the workflow."""
        runner = WorkflowKind(function, version=version, home_of=self._home_of)
        handler = workflow_handler(KIND, runner, **options)
        role = self.worker([handler], self.leased(lease_us, kinds=[KIND]))
        self._open_all(role.host)
        return role

    def overtaken_by(self, function: Function, **how: Any) -> WorkerRole:
        """Return the item to its queue, as if its lease had ended; return another executor."""
        self.give_back()
        return self.executor(function, **how)

    def give_back(self, item_id: bytes = MINE) -> None:
        """Return an item to its queue, whoever holds it."""
        zone = self.shard.zone(ALICE)

        def body(attempt: Attempt) -> None:
            run_one(zone.requeue_op(attempt.tr, item_id, None, delay_us=0, now_us=attempt.now_us))

        self.play(lambda: self.shard.transact(body))

    def system(self) -> WorkerRole:
        """Return a worker that has leased what Fairlead has enqueued for workflows."""
        role = self.worker(
            system_handlers(self._home_of), self.leased(kinds=[CLEANUP_KIND, DELIVERY_KIND, SIGNAL_KIND])
        )
        self._open_all(role.host)
        return role

    def cleans_up(self) -> None:
        """Run the cleanup of a run that has ended."""
        self.system().runs_until_idle()

    # --- Others ---

    def signals(self, name: str) -> None:
        """Let Alice send a signal to the run."""
        self.has(lambda alice: alice.transact(lambda tr: tr.signal(NAME, name)))

    def raises_floor(self, *, ahead_us: int, at: str = FAR) -> None:
        """Raise FLOOR on a shard if that is due, by a clock that is ahead: its tombstones go."""
        self.at(at, lambda attempt: raise_daily(attempt.tr, now_us=attempt.now_us + ahead_us, tombstones_max=10))

    def ends_at_bobs(self, run: bytes) -> None:
        """Leave the tombstone of a run at Bob's."""
        keys, layout = TenantKeys(*BOB), self._shard(FAR).layout
        self.at(FAR, lambda attempt: run_one(clean_up_op(attempt.tr, layout, BOB, keys, run, now_us=attempt.now_us)))

    def moves(self, tenant: Tenant, to: str) -> None:
        """Move a tenant by the product's own mover, from the begin to the end."""
        assert self._mover(tenant, to).runs() is MoveState.MOVED
        self.homes[tenant] = to

    def leaves(self, tenant: Tenant, to: str) -> Role[MoveState | None]:
        """Move a tenant until the source says that it has moved, and has cleared nothing; return the mover.

        So what arrives at the source now conflicts with no more than the ownership record.
        """
        source = self.homes[tenant]
        mover, there = self._mover(tenant, to), self._shard(to).layout.shard_id
        while (owner := self.suite.shards[source].owners.get(tenant)) is None or owner.shard_id != there:
            mover.runs_until_commit(at=self.store_of(tenant))
        self.homes[tenant] = to
        return mover

    def moves_twice(self, tenant: Tenant) -> None:
        """Move a tenant to the other shard and back. FLOOR is raised there meanwhile: the tenant's tombstones go."""
        here = self.homes[tenant]
        there = FAR if here == HOME else HOME
        self.moves(tenant, there)
        self.raises_floor(ahead_us=DAY_S * SECOND, at=there)
        self.moves(tenant, here)

    def _mover(self, tenant: Tenant, to: str) -> Role[MoveState | None]:
        """Begin a move; return the process that carries it out."""
        source, host = self.homes[tenant], self.new_host("mover")
        self._open_all(host)
        move_id, destination_id = self.world.random(host.name).randbytes(ID_BYTES), self._shard(to).layout.shard_id

        def begin(attempt: Attempt) -> None:
            record = MoveRecord(move_id, 0, to, destination_id, attempt.now_us, RATE)
            moving.begin(attempt.tr, self._shard(source).layout, tenant, record, now_us=attempt.now_us)

        self.at(source, begin)
        leaves, enters = self._opened[host.name, source], self._opened[host.name, to]
        return Role(self.directed, host, leaves, lambda _: Mover(leaves, enters, leaves, tenant, move_id).run())

    # --- What is stored ---

    def counts(self, tenant: Tenant, *names: str) -> list[int]:
        """Return how often bodies of these names have committed, by what is stored where the tenant lives."""

        def body(attempt: Attempt) -> list[bytes | None]:
            tr = ApplicationTransaction(self._shard(self.homes[tenant]), tenant, attempt)
            return [tr.get((name,)) for name in names]

        return [int.from_bytes(value or b"", "little") for value in self.at(self.homes[tenant], body)]

    @property
    def run(self) -> bytes:
        """The run of the item."""
        return self.zone.items[MINE].run_of(MINE)

    def store_of(self, tenant: Tenant) -> DirectedStore:
        """Return the store of the shard where a tenant lives."""
        return self.far if self.homes[tenant] == FAR else self.directed

    def kept(self, shard: str) -> list[int]:
        """Return the sorts of the keys that a shard keeps for runs: logs, fences, signals, results of children."""
        paths = [unpack_key(key) for key in self.suite.shards[shard].others]
        return sorted(path[3] for path in paths if len(path) > 3 and path[3] in RUN_KEYS)

    # --- Parts ---

    def _open_all(self, host: SimulatedHost) -> None:
        for name, database in self._databases.items():
            self._opened[host.name, name] = self.play(
                lambda name=name, database=database: open_shard(  # type: ignore[misc]
                    name, database, clock=host.clock, random=host.random, settings=self._settings, part_count=1
                ),
                host=host,
            )

    def _home_of(self, tenant: Tenant) -> Shard:
        assert self.world.current is not None
        return self._opened[self.world.current.host.name, self.homes[tenant]]

    def _shard(self, name: str) -> Shard:
        """Return a shard as the story itself has opened it."""
        return self._opened[self.host.name, name]

    def at(self, shard: str, body: Callable[[Attempt], T]) -> T:
        """Run a transaction on a shard, by the story itself."""
        return self.play(lambda: self._shard(shard).transact(body))
