"""Moves of tenants between shards, as an application begins, watches and ends them."""

import asyncio
from collections.abc import Iterable, Iterator
from functools import partial
from random import Random
from shlex import quote
from typing import NamedTuple

from fairlead.causes import Cause
from fairlead.explanation import explain_at
from fairlead.move_views import MB, MoveView, move_view
from fairlead.operator import Operator
from fairlead.queries.per_shard import query_each_shard
from fairlead.shards import Shards
from fairlead.zones.durations import Duration, duration_us
from fairlead.zones.engines import Clock
from fairlead.zones.errors import BadArgument, QueueError
from fairlead.zones.keyspace import TenantKeys
from fairlead.zones.layout import DEFAULT_ZONE, Tenant, local_tenant
from fairlead.zones.moving import source
from fairlead.zones.moving.copying import check_limits, read_chunk, row_bytes
from fairlead.zones.moving.errors import MoveFailed, MoveHeldUp, MoveRefused, MoveUnderWay, Unmovable
from fairlead.zones.moving.move_item import carry_on_op
from fairlead.zones.moving.move_record import MOVE_KIND, request_cancel
from fairlead.zones.moving.mover import NEWER
from fairlead.zones.ownership import check_home
from fairlead.zones.pipelining import run_one
from fairlead.zones.placement import first_home
from fairlead.zones.policy.policies import read_policies
from fairlead.zones.records import MoveRecord, MoveState
from fairlead.zones.reporting import audit_log
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_search import all_tenants, has_keys
from fairlead.zones.transaction_runner import Attempt

MB_PER_S_MIN, MB_PER_S_MAX = 0.01, 10_000
MB_PER_S = 16.0  # By default: a move leaves most of a disk to the tenants who stay.
MOVES_LISTED_MAX = 10_000
EXPLAINED_MAX = 20  # Of moves under way: why nobody carries them out; a read of some twenty keys for each.
TENANTS_MAX = 100_000  # Whose moves one rebalance begins.
TENANTS_AT_ONCE = 500  # Read in one transaction by a rebalance.
POLL_US = 50_000
SMALLER = "the destination allows smaller {what}: {there:,} bytes in place of {here:,}"
BEGINS_SOON = (Cause.RUNNING, Cause.COMPLETED, Cause.NEXT, Cause.POINTER_LEASED)
_ITEM_GONE = (Cause.QUARANTINED, Cause.CANCELLED, Cause.DROPPED, Cause.NEVER_SEEN)
TAKES_BACK = "fairlead move {tenant} --cancel takes the move back"
ITEM_GONE = f"no item carries it out; fairlead check --repair makes one, {TAKES_BACK}"
PAUSED = "the destination is paused: the tenant's items will wait until it is resumed"
NO_TENANT = "there is no such tenant: it has neither data nor a queue"


class MovePending(QueueError, TimeoutError):
    """The move did not end within the timeout. It goes on, if a fleet runs.

    Do: call `result` again later; `fairlead moves` shows how far it is. Without a fleet nobody carries it out: start
    one, `fairlead run`.
    """

    message = "the move has not ended yet"


class NoMove(QueueError):
    """No move of the tenant is under way that could be cancelled: it has ended, or the tenant has just moved.

    Do: see how it ended, `fairlead moves`. To bring the tenant back, move it back.
    """

    message = "no move of this tenant is under way"


class MovePlan(NamedTuple):
    """What a move would copy, and what would change for the tenant; see `App.move`."""

    tenant: Tenant
    source: str
    destination: str
    rows: int
    bytes: int
    warnings: tuple[str, ...]

    def seconds(self, mb_per_s: float) -> float:
        """How long copying takes at least at a rate, in megabytes per second."""
        return self.bytes / (mb_per_s * MB)


class Rebalance(NamedTuple):
    """Who moves to which shard; `whole`: these are all who are to move."""

    moves: list[tuple[Tenant, str]]
    whole: bool


class TenantMove:
    """A move that was begun. Makes no call to a store until a method is called."""

    def __init__(
        self, shards: Shards, tenant: Tenant, at: str, move_id: bytes, *, clock: Clock, operator: Operator
    ) -> None:
        self.tenant = tenant
        self.id = move_id
        self._shards = shards
        self._at = at
        self._clock = clock
        self._operator = operator

    def progress(self) -> MoveView:
        """Return how the move stands.

        Raises:
          MoveFailed: it is not listed any more: it ended more than a day ago, or another move of the tenant began.
        """
        shard = self._shards[self._at]
        record = self._record(shard)
        return move_view(shard.name, self.tenant, record, held_up=_held_up(shard, self.tenant, record))

    def _record(self, shard: Shard) -> MoveRecord:
        record = shard.transact(lambda attempt: source.read_move(attempt.tr, self.tenant))
        if record is None or record.move_id != self.id:
            raise MoveFailed(tenant=str(self.tenant), reason="the move is not listed any more")
        return record

    def cancel(self) -> bool:
        """Ask the mover to take the move back: the tenant stays where it is, and loses nothing.

        False: the tenant has moved, or the move has ended. A move that is being decided at this moment may still end
        with the tenant moved; `result` says how it ended.
        """
        return cancel_move(self._shards, self.tenant, by=self._operator)

    def result(self, timeout: Duration | None = None) -> MoveView:
        """Wait until the tenant has moved.

        Args:
          timeout: seconds or a `timedelta`; None: as long as it takes.

        Raises:
          MovePending: it has not ended in that time.
          MoveFailed: it was cancelled, or has failed.
        """
        until_us = None if timeout is None else self._clock.now_us() + duration_us("timeout", timeout)
        while self._is_under_way():
            if until_us is not None and self._clock.now_us() >= until_us:
                break
            self._clock.sleep_us(POLL_US)
        return self._ended()

    async def aresult(self, timeout: Duration | None = None) -> MoveView:  # noqa: ASYNC109 - as `result`
        """Wait as `result` does, and let the event loop go on meanwhile. The event loop's clock measures the time.

        Raises:
          MovePending, MoveFailed: see `result`.
        """
        calls, loop = self._shards.calls, asyncio.get_running_loop()
        end_s = None if timeout is None else loop.time() + duration_us("timeout", timeout) / 1e6
        while await calls.run(self._is_under_way):
            if end_s is not None and loop.time() >= end_s:
                break
            await asyncio.sleep(POLL_US / 1e6)
        return await calls.run(self._ended)

    def _is_under_way(self) -> bool:
        return self._record(self._shards[self._at]).state is MoveState.UNDER_WAY

    def _ended(self) -> MoveView:
        view = self.progress()
        if view.is_under_way:
            raise MovePending(tenant=str(self.tenant), to=view.destination, now=view.now)
        if view.state != "moved":
            raise MoveFailed(tenant=str(self.tenant), to=view.destination, reason=view.error)
        return view


def begin_move(
    shards: Shards, tenant: Tenant, to: str, *, mb_per_s: float, by: Operator, clock: Clock, random: Random
) -> TenantMove:
    """Begin to move a tenant; see `App.move`. `by`: the operator, for the audit log."""
    destination, bytes_per_s = _destination(shards, tenant, to), _bytes_per_s(mb_per_s)
    move_id = random.randbytes(16)

    def begin_at(shard: Shard) -> TenantMove:
        def body(attempt: Attempt) -> None:
            attempt.needs_receipt = True  # The move may have ended before this runs again, and must not begin anew.
            check_home(attempt.tr, shard.layout.location(tenant, DEFAULT_ZONE))  # Where it has lived, nothing is left.
            if not has_keys(attempt.tr, tenant):
                raise MoveRefused(tenant=str(tenant), reason=NO_TENANT)
            record = MoveRecord(move_id, 0, to, destination.layout.shard_id, attempt.now_us, bytes_per_s)
            source.begin(attempt.tr, shard.layout, tenant, record, now_us=attempt.now_us)
            _write_audit_entry(attempt, by, "move", tenant, destination=to)

        shard.transact(body)
        return TenantMove(shards, tenant, shard.name, move_id, clock=clock, operator=by)

    try:
        return shards.at_home(tenant, begin_at)
    except MoveUnderWay as error:
        under_way = move_under_way(shards, tenant)
        if under_way is None:
            raise
        raise MoveUnderWay(tenant=str(tenant), to=under_way.destination, now=under_way.now) from error


def _write_audit_entry(attempt: Attempt, by: Operator, what: str, tenant: Tenant, **more: str) -> None:
    to = {"tenant": list(tenant), **more}
    audit_log.write(attempt.tr, by.audit_entry(attempt.new_id(), what, to, done_us=attempt.now_us))


def move_under_way(shards: Shards, tenant: Tenant) -> MoveView | None:
    """Return the move of a tenant that is under way, from whichever shard; None: there is none. Reads every shard."""

    def read(shard: Shard) -> MoveView | None:
        record = shard.transact(lambda attempt: source.read_move(attempt.tr, tenant))
        if record is None or record.state is not MoveState.UNDER_WAY:
            return None
        return move_view(shard.name, tenant, record, held_up=_held_up(shard, tenant, record))

    return next((each.found for each in query_each_shard(shards, read) if each.found is not None), None)


def plan_move(shards: Shards, tenant: Tenant, to: str) -> MovePlan:
    """Read what a move would copy, and check it against the destination's limits; change nothing.

    Raises:
      MoveRefused: it could not be done.
    """
    destination, at = _destination(shards, tenant, to), shards.find(tenant)
    if not at.transact(lambda attempt: has_keys(attempt.tr, tenant)):
        raise MoveRefused(tenant=str(tenant), reason=NO_TENANT)
    if at.name == to:
        raise MoveRefused(tenant=str(tenant), reason=f"it lives on {to} already")
    rows = total = 0
    keys, begin = TenantKeys(*tenant), b""
    while (
        copied := at.transact(lambda attempt, begin=begin: read_chunk(attempt.tr, keys, begin))  # type: ignore[misc]
    ) is not None:
        try:
            check_limits(copied.rows, destination.db.limits)
        except Unmovable as error:
            raise MoveRefused(tenant=str(tenant), reason=error.reason) from None
        rows, total, begin = rows + len(copied.rows), total + sum(map(row_bytes, copied.rows)), copied.end
    return MovePlan(tenant, at.name, to, rows, total, tuple(_warnings(at, destination)))


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
    is_number = isinstance(mb_per_s, int | float) and not isinstance(mb_per_s, bool)
    if not is_number or not MB_PER_S_MIN <= mb_per_s <= MB_PER_S_MAX:
        allowed = f"megabytes per second, {MB_PER_S_MIN} to {MB_PER_S_MAX:,}"
        raise BadArgument(argument="mb_per_s", value=mb_per_s, allowed=allowed)
    return int(mb_per_s * MB)


def cancel_move(shards: Shards, tenant: Tenant, *, by: Operator) -> bool:
    """Ask the mover of a tenant to take the move back; False: none is under way that could be. See `TenantMove.cancel`.

    Args:
      by: the operator, for the audit log.

    Raises:
      StoreUnavailable, ShardRefused, StoreMissing: no shard that can be read knows of a move.
      MoveHeldUp: a newer version carries it out.
    """
    home = shards.home_name(tenant)
    error: Exception | None = None
    for name in (home, *(name for name in shards if name != home)):
        (asked,) = query_each_shard(shards, partial(_request_cancel, tenant=tenant, by=by), only=name)
        if asked.found:
            return True
        error = error or asked.error
    if error is not None:
        raise error
    return False


def _request_cancel(shard: Shard, tenant: Tenant, by: Operator) -> bool:
    def body(attempt: Attempt) -> bool:
        tr, keys = attempt.tr, TenantKeys(*tenant)
        record = source.read_move(tr, tenant)
        owner = source.read_owner(shard.layout, keys, tr.snapshot.get(keys.owner).value)
        if owner is not None and owner.move is not None and source.is_of_newer_version(tr, tenant):
            raise MoveHeldUp(tenant=str(tenant), reason=NEWER)
        if record is None or source.has_moved_away(shard.layout, owner, epoch=record.epoch):
            return False
        if not request_cancel(tr, tenant):
            return False
        run_one(carry_on_op(tr, shard.layout, tenant, record, now_us=attempt.now_us))
        _write_audit_entry(attempt, by, "cancel move", tenant, destination=record.destination)
        return True

    return shard.transact(body)


def list_moves(shards: Shards) -> list[MoveView]:
    """Return the moves of all shards: first those under way, then those ended within a day; the youngest first."""
    return in_reading_order(view for shard in shards.values() for view in read_moves(shard))


def in_reading_order(moves: Iterable[MoveView]) -> list[MoveView]:
    """Return those moves first that are under way, and of these and of the others the youngest first."""
    return sorted(moves, key=lambda view: (not view.is_under_way, -view.began))


def read_moves(shard: Shard) -> list[MoveView]:
    """Return the moves away from a shard: under way, and ended within a day; by tenant.

    Of the first `EXPLAINED_MAX` that are under way, also why no worker carries them out.
    """
    moves = shard.transact(lambda attempt: list(source.list_moves(attempt.tr, moves_max=MOVES_LISTED_MAX)))
    under_way = [move for move in moves if move[1].state is MoveState.UNDER_WAY]
    held_up = {record.move_id: _held_up(shard, tenant, record) for tenant, record in under_way[:EXPLAINED_MAX]}
    return [move_view(shard.name, tenant, record, held_up=held_up.get(record.move_id, "")) for tenant, record in moves]


def _held_up(shard: Shard, tenant: Tenant, record: MoveRecord) -> str:
    """Return why no worker carries out a move now; empty: a worker does, or the move has ended."""
    if record.state is not MoveState.UNDER_WAY:
        return ""
    explained = explain_at(shard, local_tenant(MOVE_KIND), DEFAULT_ZONE, record.move_id)
    if explained.cause in _ITEM_GONE:
        return ITEM_GONE.format(tenant=quote(str(tenant)))
    if explained.cause is Cause.DEAD_LETTER:
        return f"{explained.sentence}; {TAKES_BACK.format(tenant=quote(str(tenant)))}"
    return "" if explained.cause in BEGINS_SOON else explained.sentence


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
