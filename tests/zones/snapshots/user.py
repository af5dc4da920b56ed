"""A tenant with snapshots, on one shard whose commits may end as a story wants them to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fairlead import snapshots
from fairlead.snapshots import KeyChange, OldKeys
from fairlead.zones.engines import Database
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import Tenant
from fairlead.zones.records import OwnerRecord, SnapshotRecord, decode
from fairlead.zones.shard import Shard
from fairlead.zones.snapshots.snapshot_keys import WORK_PREFIX
from fairlead.zones.snapshots.upkeep import SnapshotUpkeep
from fairlead.zones.tenant_transaction import ApplicationTransaction, Key
from tests.clocks import ManualClock
from tests.zones.faults import Fault, FaultyDatabase
from tests.zones.world import ALICE, World

T = TypeVar("T")

State = dict[Key, bytes]
LATER_US = 60_000_000


class Killed(BaseException):
    """The process dies here."""


def die() -> None:
    """Let the process die here."""
    raise Killed


class User:
    """One tenant, by the calls that its database makes, and what is stored of its snapshots."""

    calls: Any = None

    def __init__(self, db: Database, clock: ManualClock, tenant: Tenant = ALICE) -> None:
        self.store = FaultyDatabase(db)
        self.world = World(self.store, clock)
        self.tenant = tenant
        self.keys = TenantKeys(*tenant)

    def at_home(self, call: Callable[[Shard], T]) -> T:
        return call(self.world.shard)

    # --- What users do ---

    def transact(self, body: Callable[[ApplicationTransaction], T]) -> T:
        """Run a user's function."""
        shard = self.world.shard
        return shard.transact(lambda attempt: body(ApplicationTransaction(shard, self.tenant, attempt)))

    def set(self, **values: bytes | None) -> None:
        """Set keys, or clear those whose value is None, in one transaction."""

        def body(tr: ApplicationTransaction) -> None:
            for name, value in values.items():
                if value is None:
                    tr.clear((name,))
                else:
                    tr.set((name,), value)

        self.transact(body)

    def now(self) -> dict[str, bytes]:
        """Return the present keys, which each have one element, and values."""
        return {key[0]: value for key, value in self.transact(lambda tr: list(tr.get_range()))}

    def take(self, *, kept_us: int | None = None) -> int:
        return snapshots.take(self, kept_us).number

    def drop(self, number: int) -> None:
        snapshots.drop(self, number)

    def restore(self, number: int) -> None:
        snapshots.restore(self, number)

    def at(self, number: int) -> OldKeys:
        return OldKeys(self, number)

    def then(self, number: int) -> dict[str, bytes]:
        """Return the keys and values at a snapshot."""
        return {key[0]: value for key, value in self.at(number).get_range()}

    def diff(self, number: int) -> list[KeyChange]:
        return list(snapshots.differences(self, number))

    def upkeep(self, *, in_us: int = LATER_US) -> int:
        """Let housekeeping of a new process look, some time from now; return of how many tenants it has done work."""
        return SnapshotUpkeep(self.world.shard).look(now_us=self.world.now_us + in_us)

    def is_killed(self, call: Callable[[], object], *, after_commits: int, applied: bool) -> bool:
        """Let the process die in a commit of a call, which is applied or not; False: there are fewer commits."""
        self.store.faults.clear()
        self.store.faults.extend([None] * after_commits)
        self.store.faults.append(Fault(applied=applied, then=die))
        try:
            call()
        except Killed:
            return True
        finally:
            self.store.faults.clear()
        return False

    # --- What is stored ---

    def listed(self) -> tuple[SnapshotRecord, ...]:
        """Return the list in the ownership record."""
        value = self.world.run(lambda tr: tr.get(self.keys.owner).value)
        owner = None if value is None else decode(OwnerRecord, value)
        return () if owner is None or owner.snapshots is None else owner.snapshots.listed

    def has_owner_record(self) -> bool:
        return bool(self.world.run(lambda tr: tr.get(self.keys.owner).present()))

    def copies(self) -> list[bytes]:
        """Return the keys of all copies."""
        begin = self.keys.snapshots
        return [key for key, _ in self.world.stored(begin + b"\x00", begin + b"\xff")]

    def work(self) -> list[bytes]:
        """Return the list of housekeeping."""
        return [key for key, _ in self.world.stored(WORK_PREFIX, WORK_PREFIX + b"\xff")]
