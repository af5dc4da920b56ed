"""Moves of tenants between shards, as an application begins, watches and ends them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import NamedTuple

from fairlead.shards import Shards
from fairlead.zones.durations import Duration, duration_us
from fairlead.zones.engines import Clock
from fairlead.zones.errors import BadArgument, QueueError
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import DEFAULT_ZONE, Tenant
from fairlead.zones.moving import source
from fairlead.zones.moving.copying import check_limits, read_chunk, row_bytes
from fairlead.zones.moving.errors import MoveFailed, MoveRefused, Unmovable
from fairlead.zones.ownership import check_home
from fairlead.zones.placement import first_home
from fairlead.zones.policy.policies import read_policies
from fairlead.zones.records import MoveRecord, MoveState
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_search import all_tenants
from fairlead.zones.transaction_runner import Attempt

MB_PER_S = 16.0  # By default: a move leaves most of a disk to the tenants who stay.
MB = 1_000_000
MOVES_LISTED_MAX = 10_000
TENANTS_AT_ONCE = 500  # Read in one transaction by a rebalance.
POLL_US = 50_000
SMALLER = "the destination allows smaller {what}: {there:,} bytes in place of {here:,}"
PAUSED = "the destination is paused: the tenant's items will wait until it is resumed"
NO_TENANT = "there is no such tenant: it has neither data nor a queue"


class MovePending(QueueError, TimeoutError):
    """The move did not end within the timeout. It goes on, if a fleet runs.

    Do: call `result` again later; `fairlead moves` shows how far it is. Without a fleet nobody carries it out: start
    one, `fairlead run`.
    """

    message = "the move has not ended yet"


@dataclass(frozen=True, slots=True)
class MoveView:
    """How a move stands. Times in seconds, or seconds since the epoch.

    Attributes:
      source, destination: the names of the shards.
      state: "under way", "moved", "cancelled" or "failed".
      stage: what it does now, in words.
      copied_bytes, total_bytes: those of a second copy included; total: when it began, 0 while that is being measured.
      rounds: how often what had changed meanwhile was copied.
      frozen: how long transactions on the tenant waited at the end.
      error: why it failed, or was cancelled.
    """

    tenant: Tenant
    source: str
    destination: str
    state: str
    stage: str
    copied_rows: int
    copied_bytes: int
    total_rows: int
    total_bytes: int
    rounds: int
    frozen: float
    began: float
    ended: float | None
    error: str

    @property
    def fraction(self) -> float:
        """How much has been copied, 0 to 1."""
        if self.state == "moved":
            return 1.0
        return min(1.0, self.copied_bytes / self.total_bytes) if self.total_bytes else 0.0


_STATES = {
    MoveState.UNDER_WAY: "under way",
    MoveState.MOVED: "moved",
    MoveState.CANCELLED: "cancelled",
    MoveState.FAILED: "failed",
}


class MovePlan(NamedTuple):
    """What a move would copy, and what would change for the tenant; see `App.move`."""

    tenant: Tenant
    source: str
    destination: str
    rows: int
    bytes: int
    warnings: tuple[str, ...]


class Rebalance(NamedTuple):
    """Who moves to which shard; `whole`: these are all who are to move."""

    moves: list[tuple[Tenant, str]]
    whole: bool


class TenantMove:
    """A move that was begun. Makes no call to a store until a method is called."""

    def __init__(self, shards: Shards, tenant: Tenant, at: str, move_id: bytes, clock: Clock) -> None:
        self.tenant = tenant
        self.id = move_id
        self._shards = shards
        self._at = at
        self._clock = clock

    def progress(self) -> MoveView:
        """Return how the move stands.

        Raises:
          MoveFailed: it is not listed any more: it ended more than a day ago, or another move of the tenant began.
        """
        shard = self._shards[self._at]
        record = shard.transact(lambda attempt: source.read_move(attempt.tr, self.tenant))
        if record is None or record.move_id != self.id:
            raise MoveFailed(tenant=str(self.tenant), reason="the move is not listed any more")
        return _view(self._at, self.tenant, record)

    def cancel(self) -> bool:
        """Ask the mover to take the move back; False: it has ended. The tenant stays where it is, and loses nothing."""
        return cancel_move(self._shards, self.tenant)

    def result(self, timeout: Duration | None = None) -> MoveView:
        """Wait until the tenant has moved.

        Args:
          timeout: seconds or a `timedelta`; None: as long as it takes.

        Raises:
          MovePending: it has not ended in that time.
          MoveFailed: it was cancelled, or has failed.
        """
        until_us = None if timeout is None else self._clock.now_us() + duration_us("timeout", timeout)
        while (view := self.progress()).state == "under way":
            if until_us is not None and self._clock.now_us() >= until_us:
                raise MovePending(tenant=str(self.tenant), stage=view.stage)
            self._clock.sleep_us(POLL_US)
        if view.state != "moved":
            raise MoveFailed(tenant=str(self.tenant), reason=view.error)
        return view


def begin_move(
    shards: Shards, tenant: Tenant, to: str, *, clock: Clock, random: Random, mb_per_s: float = MB_PER_S
) -> TenantMove:
    """Begin to move a tenant; see `App.move`."""
    destination, bytes_per_s = _destination(shards, tenant, to), _bytes_per_s(mb_per_s)
    move_id = random.randbytes(16)

    def begin_at(shard: Shard) -> TenantMove:
        def body(attempt: Attempt) -> None:
            check_home(attempt.tr, shard.layout.location(tenant, DEFAULT_ZONE))  # Where it has lived, nothing is left.
            if not _exists(attempt, tenant):
                raise MoveRefused(tenant=str(tenant), reason=NO_TENANT)
            record = MoveRecord(move_id, 0, to, destination.layout.shard_id, attempt.now_us, bytes_per_s)
            source.begin(attempt.tr, shard.layout, tenant, record, now_us=attempt.now_us)

        shard.transact(body)
        return TenantMove(shards, tenant, shard.name, move_id, clock)

    return shards.at_home(tenant, begin_at)


def plan_move(shards: Shards, tenant: Tenant, to: str) -> MovePlan:
    """Read what a move would copy, and check it against the destination's limits; change nothing.

    Raises:
      MoveRefused: it could not be done.
    """
    destination, at = _destination(shards, tenant, to), shards.find(tenant)
    if at.name == to:
        raise MoveRefused(tenant=str(tenant), reason=f"it lives on {to} already")
    if not at.transact(partial(_exists, tenant=tenant)):
        raise MoveRefused(tenant=str(tenant), reason=NO_TENANT)
    rows = size = 0
    keys, begin = TenantKeys(*tenant), b""
    while (
        copied := at.transact(lambda attempt, begin=begin: read_chunk(attempt.tr, keys, begin))  # type: ignore[misc]
    ) is not None:
        try:
            check_limits(copied.rows, destination.db.limits)
        except Unmovable as error:
            raise MoveRefused(tenant=str(tenant), reason=error.reason) from None
        rows, size, begin = rows + len(copied.rows), size + sum(map(row_bytes, copied.rows)), copied.end
    return MovePlan(tenant, at.name, to, rows, size, tuple(_warnings(at, destination)))


def _warnings(at: Shard, destination: Shard) -> Iterator[str]:
    here, there = at.db.limits, destination.db.limits
    for what, ours, theirs in (
        ("keys", here.key_bytes_max, there.key_bytes_max),
        ("values", here.value_bytes_max, there.value_bytes_max),
        ("transactions", here.transaction_bytes_max, there.transaction_bytes_max),
    ):
        if theirs < ours:
            yield SMALLER.format(what=what, here=ours, there=theirs)
    if destination.transact(lambda attempt: read_policies(attempt.tr).shard_paused):
        yield PAUSED


def _destination(shards: Shards, tenant: Tenant, to: str) -> Shard:
    """Return the shard to which a tenant is to move, opened.

    Raises:
      MoveRefused: the tenant is that of local items.
      UnknownShard, StoreUnavailable, ShardRefused: the shard cannot be used.
    """
    if not tenant.app:
        raise MoveRefused(tenant=str(tenant), reason="local items stay on their shard")
    return shards[to]


def _bytes_per_s(mb_per_s: float) -> int:
    if isinstance(mb_per_s, bool) or not isinstance(mb_per_s, int | float) or not 0.01 <= mb_per_s <= 10_000:
        raise BadArgument(argument="mb_per_s", value=mb_per_s, allowed="megabytes per second, 0.01 to 10,000")
    return int(mb_per_s * MB)


def _exists(attempt: Attempt, tenant: Tenant) -> bool:
    """Say whether a tenant has any row of its own. Snapshot reads."""
    keys, begin = TenantKeys(*tenant), b""
    while (copied := read_chunk(attempt.tr, keys, begin)) is not None:
        if copied.rows:
            return True
        begin = copied.end
    return False


def cancel_move(shards: Shards, tenant: Tenant) -> bool:
    """Ask the mover of a tenant to take the move back; False: none is under way."""
    asked = False
    for shard in shards.values():
        asked = shard.transact(lambda attempt: source.request_cancel(attempt.tr, tenant)) or asked
    return asked


def list_moves(shards: Shards) -> list[MoveView]:
    """Return the moves of all shards: under way, and ended within a day; the youngest first."""
    found = []
    for name, shard in shards.items():
        moves = shard.transact(lambda attempt: list(source.list_moves(attempt.tr, moves_max=MOVES_LISTED_MAX)))
        found += [_view(name, tenant, record) for tenant, record in moves]
    return sorted(found, key=lambda view: view.began, reverse=True)


def _view(at: str, tenant: Tenant, record: MoveRecord) -> MoveView:
    return MoveView(
        tenant=tenant,
        source=at,
        destination=record.destination,
        state=_STATES[record.state],
        stage=record.stage,
        copied_rows=record.copied_rows,
        copied_bytes=record.copied_bytes,
        total_rows=record.total_rows,
        total_bytes=record.total_bytes,
        rounds=record.rounds,
        frozen=record.frozen_us / 1e6,
        began=record.began_us / 1e6,
        ended=record.ended_us / 1e6 if record.ended_us else None,
        error=record.error,
    )


def plan_rebalance(shards: Shards, to: list[str], *, tenants_max: int) -> tuple[list[tuple[Tenant, str]], bool]:
    """Return who is to move to which of the shards `to`, at most so many, and whether these are all.

    Rendezvous hashing over all shards chooses: those who score highest for one of `to`. So each shard ends up with
    about as many tenants as any other, nobody moves between other shards, and a second call chooses the same.
    """
    names = tuple(shards)
    planned: list[tuple[Tenant, str]] = []
    for name, shard in shards.items():
        if name in to:
            continue
        for tenant in _tenants_of(shard):
            wanted = first_home(TenantKeys(*tenant).packed, names)
            if wanted in to:
                if len(planned) == tenants_max:
                    return planned, False
                planned.append((tenant, wanted))
    return planned, True


def _tenants_of(shard: Shard) -> Iterator[Tenant]:
    """Yield the tenants that live on a shard and do not move, in the order of their names."""
    after: Tenant | None = None
    while True:
        some = shard.transact(lambda attempt, after=after: _some_tenants(attempt, shard, after))  # type: ignore[misc]
        yield from some.here
        if some.last is None:
            return
        after = some.last


class _Some(NamedTuple):
    here: list[Tenant]
    last: Tenant | None


def _some_tenants(attempt: Attempt, shard: Shard, after: Tenant | None) -> _Some:
    tenants = all_tenants(attempt.tr, after=after, tenants_max=TENANTS_AT_ONCE)
    here = [tenant for tenant in tenants if source.may_begin(attempt.tr, shard.layout, tenant)]
    return _Some(here, tenants[-1] if len(tenants) == TENANTS_AT_ONCE else None)
