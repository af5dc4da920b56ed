"""A shard: one database with its own transactions, opened for its queues.

A shard is made once, with an id and a number of parts that never change. Its users must also agree on the settings that
they pass when they open it.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from random import Random
from typing import Protocol, TypeVar

from fairlead.zones import transaction_runner
from fairlead.zones.engines import RETRIES_MAX, Clock, Database, Transaction
from fairlead.zones.errors import BadArgument, ShardRefused, TenantLocked, TenantMoved
from fairlead.zones.keyspace import KEY_FORMAT, META_KEY, PART_COUNT_MAX
from fairlead.zones.layout import DEFAULT_ZONE, ID_BYTES, ShardLayout, Tenant, local_tenant
from fairlead.zones.open_shard import FindShard
from fairlead.zones.placement import home, read_or_write_placement
from fairlead.zones.queue.queue_zone import QueueZone
from fairlead.zones.records import PlacementRecord, ShardRecord, decode, encode, is_newer
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.spanning.committed import CommittedTransactions
from fairlead.zones.spanning.lock_wait import LockWait
from fairlead.zones.transaction_runner import Attempt, Marking

T = TypeVar("T")

RESTORING = b"\x00restoring"  # The shard's record while a backup is being restored; a claim token follows.
DAMAGED = "the record that says what it is made with is damaged: restore a backup of it into an empty store"
OLD_KEYS = "its keys lie where an older version looks for them: back it up with that, and restore the backup with this"
DEFAULT_PART_COUNT = 16  # Enough for sixteen consumers to scan apart; a peek of an empty part costs 10 µs.


class RunBlocking(Protocol):
    """Runs a call that blocks, and returns what it returns, for a coroutine that awaits it."""

    def __call__(self, call: Callable[[], T], /) -> Awaitable[T]:
        """Run the call; raise what it raises."""
        ...


class Shard:
    """An open shard. Safe to use from many threads; each process opens its own.

    Attributes:
      made: whether this call of `open_shard` made the shard; False: it existed.
      check_kind: called with the kind of each item that a transaction of this shard's tenants enqueues; may refuse it
        by an error.
      run_blocking: runs a blocking call for a coroutine that awaits it; by default, on the thread of the coroutine.
      find_shard: finds an open shard by its id, to settle transactions across shards whose locks are met here; by
        default, only this one.
      committed: what this process has committed across shards, and is to be carried out here.
      follow: returns the open shard where a tenant lives now that has moved, as the error says; None: none that is
        configured and open. By default, none is known.
    """

    def __init__(
        self, name: str, db: Database, layout: ShardLayout, *, clock: Clock, random: Random, made: bool = False
    ) -> None:
        self.name = name
        self.db = db
        self.layout = layout
        self.clock = clock
        self.random = random
        self.made = made
        self.check_kind: Callable[[str], None] = _accept_any_kind
        self.run_blocking: RunBlocking = _run_here
        self.find_shard: FindShard = self._find_itself
        self.follow: Callable[[TenantMoved], Shard | None] = _follow_nowhere
        self.committed = CommittedTransactions()
        self._marking = Marking(clock)

    def transact(
        self,
        body: Callable[[Attempt], T],
        *,
        applied: Callable[[Transaction], bool] | None = None,
        retries_max: int = RETRIES_MAX,
        waits_for_locks: bool = True,
    ) -> T:
        """Run `body` in a transaction until it is committed; see `transaction_runner.run`.

        A body that meets the lock of a transaction across shards runs again once the lock is gone.

        Raises:
          TenantBusy: it meets locks for five seconds.
          TenantLocked: it meets one; only without `waits_for_locks`.
          What `transaction_runner.run` raises.
        """
        return transaction_runner.run(
            self.db,
            body,
            clock=self.clock,
            random=self.random,
            applied=applied,
            retries_max=retries_max,
            begin_wait=self._begin_wait if waits_for_locks else None,
            marking=self._marking,
        )

    def _begin_wait(self) -> Callable[[TenantLocked], None]:
        return LockWait(self.find_shard, self.clock).meet

    def _find_itself(self, shard_id: bytes) -> "Shard | None":
        return self if shard_id == self.layout.shard_id else None

    def relax_read_version(self, tr: Transaction) -> None:
        """Let a transaction that has read nothing use a read version that a cluster answers sooner.

        Such a version may be older than the last commit, for a moment after a recovery of the cluster. The commit still
        checks the transaction's writes against its reads and retries it on conflict (QuiCK section 6: for peeks and
        leases, not for enqueues).
        """
        if self.layout.is_watched:
            tr.options.set_causal_read_risky()

    def in_exclusive_section(self, body: Callable[[Attempt], T]) -> Callable[[Attempt], T]:
        """Return a body of hundreds of reads and writes, and no waits, as `transact` should run it.

        See `Database.exclusive_section` and `Database.burst`. Not for a user's function: it may wait, and others would
        wait with it.
        """

        def run(attempt: Attempt) -> T:
            with self.db.exclusive_section(), self.db.burst(attempt.tr) as attempt.tr:
                attempt.now_us = self.clock.now_us()  # A lease must not begin before the wait for the section.
                return body(attempt)

        return run

    def zone(self, tenant: Tenant, name: str = DEFAULT_ZONE) -> QueueZone:
        """Return a queue zone of `tenant`; it need not exist."""
        return QueueZone(self.layout, tenant, name)


def first_shards(shards: Mapping[str, Shard]) -> Sequence[str]:
    """Return the names of the shards with which an application began; if not all of these are given, of those given."""
    began = next(iter(shards.values())).layout.first_shards
    return began if began and set(began) <= set(shards) else list(shards)


def kind_home(kind: str, shards: Mapping[str, Shard]) -> str:
    """Return the name of a kind's own shard, where its limits and ticks are: one for all fleets of an application."""
    return home(local_tenant(kind), first_shards(shards))


async def _run_here(call: Callable[[], T], /) -> T:
    return call()


def _follow_nowhere(moved: TenantMoved) -> Shard | None:
    """Know no other shard."""
    return None


def _accept_any_kind(kind: str) -> None:
    """Accept every kind: an item of a kind without a handler waits."""


def open_shard(
    name: str,
    db: Database,
    *,
    clock: Clock,
    random: Random,
    settings: ZoneSettings | None = None,
    part_count: int = DEFAULT_PART_COUNT,
    first_shards: Collection[str] = (),
) -> Shard:
    """Open `db` as a shard; make it a shard if it is not one yet.

    Args:
      name: what the shard is called in this application's configuration.
      first_shards: the names of the shards with which the application began. They are stored, with the name, if the
        shard does not know them yet. Empty: what is stored counts, and nothing is stored.
      part_count: parts of the top-level queue of a shard that this call makes, 1 to 1,024; an existing shard keeps its
        own.

    Raises:
      BadArgument: `part_count` is out of range.
      ShardRefused: a newer version of Fairlead made it, or one before the first release; or a restore into it has not
        finished; or what it stores about its application cannot be read.
    """
    if not 1 <= part_count <= PART_COUNT_MAX:
        raise BadArgument(argument="part_count", value=part_count, allowed=f"1 to {PART_COUNT_MAX:,}")

    def body(attempt: Attempt) -> tuple[ShardRecord, bool, PlacementRecord | None]:
        there = attempt.tr.get(META_KEY).present()
        made = find_or_create(attempt.tr, name, random=random, part_count=part_count, now_us=attempt.now_us)
        return made, not there, read_or_write_placement(attempt.tr, name, first_shards)

    record, made, placement = transaction_runner.run(db, body, clock=clock, random=random)
    layout = ShardLayout(
        shard_id=record.shard_id,
        part_count=record.part_count,
        settings=settings or ZoneSettings(),
        is_watched=db.commit_sequence() is None,
        placement=placement,
    )
    return Shard(name, db, layout, clock=clock, random=random, made=made)


def find_or_create(tr: Transaction, name: str, *, random: Random, part_count: int, now_us: int) -> ShardRecord:
    """Return the shard's record; write it if there is none.

    Reads its key with conflict: if two processes make the shard at once, one conflicts and finds the other's record.

    Raises:
      ShardRefused: the record cannot be read.
    """
    value = tr.get(META_KEY).value
    if value is None:
        made = ShardRecord(random.randbytes(ID_BYTES), part_count, now_us, KEY_FORMAT)
        tr.set(META_KEY, encode(made))
        return made
    if value.startswith(RESTORING):
        raise ShardRefused(
            shard=name, remedy="a backup is being restored into it; if that broke off, use an empty store"
        )
    record = decode(ShardRecord, value)
    if record is None and not is_newer(value):
        raise ShardRefused(shard=name, remedy=DAMAGED)
    if record is None or record.key_format > KEY_FORMAT:
        raise ShardRefused(shard=name, remedy="it was made by a newer version of fairlead: upgrade this program")
    if record.key_format < KEY_FORMAT:
        raise ShardRefused(shard=name, remedy=OLD_KEYS)
    return record
