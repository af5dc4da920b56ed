"""A town of three shards, between which a tenant moves while things happen between the mover's commits."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from fairlead.zones import tuples
from fairlead.zones.engines import Database, transact
from fairlead.zones.engines.memory.engine import MemoryDatabase
from fairlead.zones.errors import TenantMoved
from fairlead.zones.keyspace import TenantKeys, range_begin, range_end
from fairlead.zones.layout import Tenant
from fairlead.zones.maintenance.integrity import check_integrity
from fairlead.zones.moving import source
from fairlead.zones.moving.mover import Mover
from fairlead.zones.ownership import check_owner
from fairlead.zones.placement import home
from fairlead.zones.queue.items import new_item
from fairlead.zones.records import MoveRecord, MoveState, OwnerRecord, decode
from fairlead.zones.shard import Shard, open_shard
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.transaction_runner import Attempt
from tests.clocks import ManualClock
from tests.zones.faults import FaultyDatabase

T = TypeVar("T")

FIRST = ("east", "north")
NAMES = (*FIRST, "west")  # West was added later: it is nobody's first home.
RATE = 1_000_000_000
FOLLOWED_MAX = 8


class Killed(BaseException):
    """The process dies here."""


def before(moving: Mover, **happenings: Callable[[], object]) -> Mover:
    """Let something happen once before a method of a mover."""
    for name, happen in happenings.items():
        method, pending = getattr(moving, name), [happen]

        def planted(*args: Any, method: Any = method, pending: Any = pending, **named: Any) -> Any:
            if pending:
                pending.pop()()
            return method(*args, **named)

        setattr(moving, name, planted)
    return moving


class HookedStore(FaultyDatabase):
    """A store around whose commits something happens; not around commits of what happens."""

    def __init__(self, name: str, db: Database, town: Town) -> None:
        super().__init__(db)
        self.name = name
        self.town = town

    def commit(self, tr: Any) -> None:
        self.town.around_commit(self.name, lambda: super(HookedStore, self).commit(tr))


class Town:
    """Three shards, and a tenant who lives on the first one.

    Attributes:
      epochs: in which each move has begun, by its id.
      hook: called before and after each commit, with the name of the shard and the number of the commit; may raise
        `Killed`.
    """

    def __init__(self) -> None:
        self.clock, self.random = ManualClock(), Random(5)
        self.hook: Callable[[str, int, bool], object] | None = None
        self.commits = 0
        self.stores = {
            name: HookedStore(name, MemoryDatabase("memory:", self.clock, Random(7)), self) for name in NAMES
        }
        self.shards: dict[str, Shard] = {}
        for name, store in self.stores.items():
            opened = open_shard(name, store, clock=self.clock, random=self.random, part_count=2, first_shards=FIRST)
            opened.find_shard = self.with_id
            self.shards[name] = opened
        self.alice = next(each for number in range(100) if home(each := Tenant("shop", f"a{number}"), FIRST) == "east")
        self._at: dict[Tenant, str] = {}
        self.epochs: dict[bytes, int] = {}
        self.began_at = ""

    def around_commit(self, name: str, commit: Callable[[], None]) -> None:
        hook, self.hook = self.hook, None
        if hook is None:
            commit()
            return
        self.commits += 1
        try:
            hook(name, self.commits, False)
            commit()
            hook(name, self.commits, True)
        finally:
            self.hook = hook

    def with_id(self, shard_id: bytes) -> Shard | None:
        return next((each for each in self.shards.values() if each.layout.shard_id == shard_id), None)

    def lives_on(self, tenant: Tenant, name: str) -> bool:
        """Say whether a tenant that never moved lives on a shard."""
        return home(tenant, FIRST) == name

    # --- What the tenant's users and its queue do: they follow the tenant ---

    def at_home(self, call: Callable[[Shard], T], tenant: Tenant | None = None) -> T:
        """Call with the shard of a tenant, Alice by default, and follow it."""
        tenant = tenant or self.alice
        for _ in range(FOLLOWED_MAX):
            try:
                return call(self.shard_of(tenant))
            except TenantMoved as moved:
                self.note_moved(moved)
        raise AssertionError("the tenant is nowhere")

    def shard_of(self, tenant: Tenant) -> Shard:
        """Return the shard where a tenant was last found."""
        return self.shards[self._at.get(tenant) or home(tenant, FIRST)]

    def note_moved(self, moved: TenantMoved) -> bool:
        """Note where a tenant lives now."""
        self._at[Tenant(*moved.tenant)] = moved.first_home or self._name_of(moved.owner or "")
        return True

    def alice_lives_at(self, name: str) -> None:
        """Let users ask a shard first; without this, the one where they have found the tenant last."""
        self._at[self.alice] = name

    def forget_where_alice_lives(self) -> None:
        """Let users ask the first home."""
        self._at.clear()

    def _name_of(self, shard_id: str) -> str:
        return next(name for name, each in self.shards.items() if each.layout.shard_id.hex() == shard_id)

    def on(self, body: Callable[[TenantTransaction], T], tenant: Tenant | None = None) -> T:
        """Run a transaction on a tenant, wherever it lives."""
        named = tenant or self.alice

        def call(shard: Shard) -> T:
            def run(attempt: Attempt) -> T:
                return body(TenantTransaction(shard, named, attempt))

            return shard.transact(run)

        return self.at_home(call, named)

    def enqueue(self, kind: str = "mail", *, zone: str = "queue", **how: Any) -> bytes:
        """Enqueue an item, and return its id."""
        return self.on(lambda tr: tr.enqueue_item(new_item(kind, **how), zone=zone).item_id)

    def in_queue(self, body: Callable[[Any, Any, int], T], zone: str = "queue") -> T:
        """Call `body(tr, zone, now)` in a transaction on one of the tenant's queue zones."""

        def call(shard: Shard) -> T:
            return shard.transact(lambda attempt: body(attempt.tr, shard.zone(self.alice, zone), attempt.now_us))

        return self.at_home(call)

    def on_rows(self, body: Callable[[Any, TenantKeys], T]) -> T:
        """Call `body(tr, keys)` in a transaction that has read the tenant's ownership record."""
        keys = TenantKeys(*self.alice)

        def call(shard: Shard) -> T:
            def run(attempt: Attempt) -> T:
                check_owner(attempt.tr, shard.layout, keys, attempt.tr.get(keys.owner).value)
                return body(attempt.tr, keys)

            return shard.transact(run)

        return self.at_home(call)

    # --- Moves ---

    def begin(self, to: str, *, at: str | None = None) -> bytes:
        """Begin a move of the tenant, and return its id."""
        move_id = self.random.randbytes(16)
        to_id = self.shards[to].layout.shard_id

        def call(shard: Shard) -> bytes:
            def body(attempt: Attempt) -> int:
                record = MoveRecord(move_id, 0, to, to_id, attempt.now_us, RATE)
                source.begin(attempt.tr, shard.layout, self.alice, record, now_us=attempt.now_us)
                return record.epoch

            self.epochs[move_id] = shard.transact(body)
            self.began_at = shard.name
            return move_id

        return self.at_home(call) if at is None else call(self.shards[at])

    def mover(self, move_id: bytes, to: str, *, at: str | None = None) -> Mover:
        """Return a new mover of a move."""
        shards = self.shards
        first = shards[home(self.alice, FIRST)]
        return Mover(shards[at or self.began_at], shards[to], first, self.alice, move_id)

    def mover_that(self, to: str, **happenings: Callable[[], object]) -> Mover:
        """Begin a move, and return its mover, before whose methods something happens once; see `before`."""
        return before(self.mover(self.begin(to), to), **happenings)

    def move(self, to: str) -> MoveState | None:
        """Move the tenant."""
        move_id = self.begin(to)
        return self.mover(move_id, to).run()

    def record(self, name: str) -> MoveRecord | None:
        """Return the record of the tenant's last move away from a shard."""
        return transact(self.shards[name].db, lambda tr: source.read_move(tr, self.alice))

    # --- What is stored ---

    def owner(self, name: str) -> OwnerRecord | None:
        """Return the tenant's ownership record on a shard."""
        value = transact(self.shards[name].db, lambda tr: tr.get(TenantKeys(*self.alice).owner).value)
        return None if value is None else decode(OwnerRecord, value)

    def data(self) -> dict[tuple[Any, ...], bytes]:
        """Return the tenant's own data."""
        return self.on(lambda tr: dict(tr.get_range()))

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """Return all keys of the tenant on a shard, as tuples."""
        prefix = TenantKeys(*self.alice).prefix
        stored = transact(
            self.shards[name].db, lambda tr: [row.key for row in tr.get_range(range_begin(prefix), range_end(prefix))]
        )
        return [tuples.unpack(key, len(prefix)) for key in stored]

    def home_name(self) -> str:
        """Return the name of the shard where the tenant lives."""
        return self.at_home(lambda shard: shard.transact(lambda attempt: self._checked(attempt, shard)))

    def _checked(self, attempt: Attempt, shard: Shard) -> str:
        TenantTransaction(shard, self.alice, attempt).get(("nothing",))
        return shard.name

    def findings(self) -> dict[str, list[Any]]:
        """Return what a check of each shard finds wrong."""
        found = {name: check_integrity(shard).findings for name, shard in self.shards.items()}
        return {name: findings for name, findings in found.items() if findings}
