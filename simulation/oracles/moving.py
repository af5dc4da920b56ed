"""Moves: a tenant arrives whole, nobody changes it where it does not live, and in the end it lives on one shard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from fairlead.simulation.oracles.oracle import Oracle
from fairlead.simulation.replica import ParsedCommit, ShardReplica
from fairlead.simulation.store import Change
from fairlead.simulation.world import World
from fairlead.zones.keyspace import FENCE, TenantKeys, pack_int
from fairlead.zones.layout import Tenant
from fairlead.zones.moving.destination import NOBODY
from fairlead.zones.moving.rows import expires, is_copied, is_external_pointer, parse_zone_row
from fairlead.zones.placement import home
from fairlead.zones.queue.id_retention import kept_until_us
from fairlead.zones.records import MovePhase, MoveRecord, MoveState, OwnerRecord, PointerRecord, decode
from fairlead.zones.workflow.participants import is_tombstone

AHEAD_US_MAX = 5_000_000  # The largest `max_skew_ms` of a plan.
_MOVE_ENDED = frozenset({MoveState.MOVED, MoveState.CANCELLED, MoveState.FAILED})


class TenantsMoveWhole(Oracle):
    """With the commit by which a shard owns a tenant, it has exactly the rows that the frozen source has.

    Rows that expire, and tombstones, may be cleared at the source unseen. They are listed at the destination, too, and
    are cleared there when their time comes: perhaps before the source clears them.

    From then on the source's rows of the tenant are only cleared, once it says that the tenant has moved. A shard to
    which the tenant does not come in gets no rows. A source goes on only if nobody can come in at the destination. At
    the source the pointer of an external queue may still be woken: at the destination all vest at once.

    At the end each tenant lives on one shard. All others have nothing of it, but for the stub at its first home, and
    what a mover has prepared that was replaced, and has died, or whose record a later move replaced.
    """

    promise = "a tenant moves whole, and lives on one shard"

    def __init__(self, world: World, shards: Mapping[str, ShardReplica]) -> None:
        super().__init__(world)
        self._shards = shards
        self._prepared_late: set[tuple[str, Tenant, bytes]] = set()  # by movers of moves that had ended

    def on_commit(self, parsed: ParsedCommit) -> None:
        """See `Oracle`."""
        for tenant in parsed.arrived:
            self._check_arrival(parsed, tenant)
        for tenant in parsed.moved_away:
            self._check_move_away(parsed, tenant)
        for tenant, change in parsed.away:
            owner = parsed.shard.owners.get(tenant)
            may_change = owner is not None and owner.move is not None and owner.move.phase is MovePhase.INCOMING
            may_clear = owner is None or owner.shard_id != parsed.shard.shard_id
            expired = change.before is not None and _may_expire(TenantKeys(*tenant), change.key, change.before)
            may_clear = may_clear or expired  # The source has not said yet that the tenant has moved.
            may_clear = may_clear and change.after is None
            if _is_copied(TenantKeys(*tenant), change.key) and not (
                may_change or may_clear or _is_woken(tenant, change)
            ):
                self.report_violation(
                    f"{parsed.by} changes {change.key!r} of {_name(tenant)} on {parsed.shard.name}, who lives elsewhere"
                )
        for tenant, before in parsed.owners_before.items():
            self._note_late(parsed, tenant)
            if before is not None and before.move is not None:
                self._check_closed(parsed, tenant)

    def at_end(self, shards: Sequence[ShardReplica]) -> None:
        """See `Oracle`."""
        for shard in shards:
            for tenant, record in shard.moves.items():
                if record.state not in _MOVE_ENDED:
                    self.report_violation(f"the move of {_name(tenant)} from {shard.name} has not ended: {record}")
        for tenant in sorted({tenant for shard in shards for tenant in shard.rows}):
            homes = [shard.name for shard in shards if shard.lives_here(tenant)]
            if len(homes) != 1:
                self.report_violation(f"{_name(tenant)} lives on {homes or 'no shard'}")
            for shard in shards:
                self._check_rest(shard, tenant)

    def _check_arrival(self, parsed: ParsedCommit, tenant: Tenant) -> None:
        owner = parsed.shard.owners.get(tenant)
        source = None if owner is None or owner.move is None else self._with_id(owner.move.shard_id)
        if source is None:
            self.report_violation(f"{parsed.by} lets {_name(tenant)} appear on {parsed.shard.name}: {owner}")
            return
        left = source.owners.get(tenant)
        if not _is_frozen(left):
            self.report_violation(f"{parsed.by} moves {_name(tenant)}, who is not frozen on {source.name}: {left}")
        there, here = _copied(source, tenant), _copied(parsed.shard, tenant)
        different = sorted(
            key
            for key in {*there, *here}
            if there.get(key) != here.get(key)
            and not (key not in there and _may_expire(TenantKeys(*tenant), key, here[key]))
            and not (key not in here and self._has_expired(TenantKeys(*tenant), key, there[key]))
            and not _is_woken(tenant, Change(key, there.get(key), here.get(key)))
        )
        if different:
            key = different[0]
            self.report_violation(
                f"{parsed.by} moves {_name(tenant)} to {parsed.shard.name} with {len(different)} other rows than"
                f" {source.name} has: {key!r} is {here.get(key)!r}, and was {there.get(key)!r}"
            )

    def _has_expired(self, keys: TenantKeys, key: bytes, value: bytes) -> bool:
        """Return whether the time of a row has passed, by the clock of a consumer that may be ahead."""
        row = parse_zone_row(keys, key)
        return row is not None and expires(row) and kept_until_us(value) < self.world.now_us() + AHEAD_US_MAX

    def _check_move_away(self, parsed: ParsedCommit, tenant: Tenant) -> None:
        owner = parsed.shard.owners[tenant]
        new_home = self._with_id(owner.shard_id)
        if new_home is None or not new_home.lives_here(tenant):
            self.report_violation(f"{parsed.by} says that {_name(tenant)} has moved, who does not live there: {owner}")

    def _check_closed(self, parsed: ParsedCommit, tenant: Tenant) -> None:
        """See that a tenant who goes on where it lives cannot come in elsewhere, by the move that has ended."""
        owner, here = parsed.shard.owners.get(tenant), parsed.shard
        if owner is None or owner.shard_id != here.shard_id or owner.move is not None:
            return
        for shard in self._shards.values():
            coming = shard.owners.get(tenant)
            if coming is None or coming.move is None or coming.move.phase is not MovePhase.INCOMING:
                continue
            is_of_this_move = coming.move.shard_id == here.shard_id and coming.epoch == owner.epoch + 1
            if is_of_this_move and coming.move.mover != NOBODY:
                self.report_violation(f"{parsed.by} lets {_name(tenant)} go on at {here.name}; {shard.name} is open")

    def _check_rest(self, shard: ShardReplica, tenant: Tenant) -> None:
        keys, owner = TenantKeys(*tenant), shard.owners.get(tenant)
        rows = shard.rows.get(tenant, {})
        if self._is_forgotten(shard, tenant):
            return
        if owner is not None and owner.move is not None:
            self.report_violation(f"{shard.name} still says of {_name(tenant)}: {owner.move}")
        if any(key.startswith(keys.marks) for key in rows):
            self.report_violation(f"{shard.name} keeps marks of {_name(tenant)}")
        if not shard.lives_here(tenant):
            is_first_home = home(tenant, shard.first_shards) == shard.name
            left = sorted(set(rows) - ({keys.owner} if is_first_home else set()))
            if left:
                self.report_violation(f"{shard.name} keeps {len(left)} rows of {_name(tenant)}, such as {left[0]!r}")

    def _is_forgotten(self, shard: ShardReplica, tenant: Tenant) -> bool:
        """Return whether a shard is still prepared by a mover that was replaced, and nobody knows it any more.

        A mover that stood still meanwhile may prepare it after its move has ended. It clears what it has prepared,
        unless it dies then, or a later move has replaced the record of its own. The next move to that shard clears it.
        """
        owner = shard.owners.get(tenant)
        if owner is None or owner.move is None or owner.move.phase is not MovePhase.INCOMING:
            return False
        late = (shard.name, tenant, owner.move.move_id) in self._prepared_late
        return late or self._record_of(owner.move.move_id) is None

    def _note_late(self, parsed: ParsedCommit, tenant: Tenant) -> None:
        owner = parsed.shard.owners.get(tenant)
        move = None if owner is None else owner.move
        if move is not None and move.phase is MovePhase.INCOMING:
            record = self._record_of(move.move_id)
            if record is not None and record.state in _MOVE_ENDED and move.mover < record.mover:
                self._prepared_late.add((parsed.shard.name, tenant, move.move_id))

    def _record_of(self, move_id: bytes) -> MoveRecord | None:
        records = (record for shard in self._shards.values() for record in shard.moves.values())
        return next((record for record in records if record.move_id == move_id), None)

    def _with_id(self, shard_id: bytes) -> ShardReplica | None:
        return next((shard for shard in self._shards.values() if shard.shard_id == shard_id), None)


def _is_frozen(owner: OwnerRecord | None) -> bool:
    return owner is not None and owner.move is not None and owner.move.phase is MovePhase.FROZEN


def _copied(shard: ShardReplica, tenant: Tenant) -> dict[bytes, bytes]:
    keys = TenantKeys(*tenant)
    return {key: value for key, value in shard.rows.get(tenant, {}).items() if _is_copied(keys, key)}


def _is_copied(keys: TenantKeys, key: bytes) -> bool:
    """Say whether a move copies a key, which may be an entry in the top-level queue."""
    return key.startswith(keys.prefix) and is_copied(keys, key)


def _is_woken(tenant: Tenant, change: Change) -> bool:
    """Say whether a change only wakes the pointer of an external queue, as the resume of a kind does at its place.

    Where the tenant arrives all such pointers vest at once.
    """
    row = parse_zone_row(TenantKeys(*tenant), change.key)
    if row is None or not is_external_pointer(row) or change.before is None or change.after is None:
        return False
    before, after = decode(PointerRecord, change.before), decode(PointerRecord, change.after)
    same = {"vesting_us": 0, "scheduled_us": 0, "bound_us": 0, "deferred": False}
    return before is not None and after is not None and replace(before, **same) == replace(after, **same)


def _may_expire(keys: TenantKeys, key: bytes, value: bytes) -> bool:
    row = parse_zone_row(keys, key)
    is_fence = key.startswith(keys.prefix + pack_int(FENCE))
    return expires(row) if row is not None else is_fence and is_tombstone(value)


def _name(tenant: Tenant) -> str:
    return f"{tenant.app}/{tenant.user}"
