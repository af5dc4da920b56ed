"""Whether a shard owns a tenant, and what restricts transactions on the tenant, by the tenant's ownership record.

Every transaction on a tenant reads the record with conflict, whether it writes or not. So a change of the record takes
effect for all of them at once: each sees the change, or is refused at its commit.
"""

from fairlead.zones.engines import Reader
from fairlead.zones.errors import OwnerUnreadable, TenantFrozen, TenantLocked, TenantMoved
from fairlead.zones.keyspace import TenantKeys, pack_text
from fairlead.zones.layout import ShardLayout, ZoneLocation
from fairlead.zones.moving.marks import TenantMoving
from fairlead.zones.placement import first_home
from fairlead.zones.records import RESTRICTED_FORMAT, MovePhase, OwnerRecord, TenantPolicy, decode, is_newer

_NO_POLICY = TenantPolicy()
_LOCAL = pack_text("")  # How the packed names of local items begin: they have no app.


def check_owner(
    tr: Reader, layout: ShardLayout, keys: TenantKeys, value: bytes | None, *, writes: bool = True
) -> TenantPolicy:
    """Return the policy of a tenant that lives on this shard. `value`: the tenant's ownership record.

    Without a record the tenant lives on its first home, and has no policy. `writes`: whether the transaction writes to
    the tenant; one that only reads passes a shared lock. If the tenant moves, `tr` marks what it writes there.

    Raises:
      TenantMoved: the record names another shard; or there is none, and this shard is not the tenant's first home.
      OwnerUnreadable: the record cannot be read.
      TenantLocked: a transaction across shards has locked the tenant.
      TenantFrozen: the tenant is in the last milliseconds of a move.
      TenantMoving: it moves, and `tr` does not mark what it writes.
    """
    if value is None:
        if is_first_home(layout, keys):
            return _NO_POLICY
        raise lives_elsewhere(layout, keys, None)
    owner = decode(OwnerRecord, value)
    if owner is None:
        raise OwnerUnreadable(**_names(layout, keys), newer=is_newer(value, newest=RESTRICTED_FORMAT))
    if owner.shard_id != layout.shard_id:
        raise lives_elsewhere(layout, keys, owner)
    for lock in owner.locks:
        if writes or lock.exclusive:
            raise TenantLocked(**_names(layout, keys), lock=lock)
    if owner.move is not None:
        if owner.move.phase is MovePhase.FROZEN:
            raise TenantFrozen(**_names(layout, keys), move=owner.move)
        if writes:
            mark_if_moving(tr, keys, owner)
    return owner.policy


def lives_elsewhere(layout: ShardLayout, keys: TenantKeys, owner: OwnerRecord | None) -> TenantMoved:
    """Return the error that says where to ask for a tenant that does not live here, by its ownership record."""
    names = _names(layout, keys)
    if layout.placement is not None:
        names["shard"] = layout.placement.name
    if owner is None:
        return TenantMoved(**names, first_home=first_home(keys.packed, layout.first_shards))
    return TenantMoved(**names, owner=owner.shard_id.hex())


def mark_if_moving(tr: Reader, keys: TenantKeys, owner: OwnerRecord) -> None:
    """Let a transaction mark what it writes to a tenant, if the tenant moves.

    Raises:
      TenantMoving: it cannot.
    """
    if owner.move is None or owner.move.phase is not MovePhase.MOVING:
        return
    mark_below = getattr(tr, "mark_below", None)
    if mark_below is None:
        raise TenantMoving
    mark_below(keys, owner.move.pause_us)


def _names(layout: ShardLayout, keys: TenantKeys) -> dict[str, str]:
    app, user = keys.names
    return {"app": app, "user": user, "shard": layout.shard_id.hex()}


def check_home(tr: Reader, location: ZoneLocation) -> None:
    """See that a tenant lives on this shard, for what reads by snapshot only. One snapshot read.

    Raises:
      TenantMoved, OwnerUnreadable, TenantLocked, TenantFrozen: see `check_owner`. A shared lock is passed.
    """
    keys = location.keys.tenant
    check_owner(tr, location.layout, keys, tr.snapshot.get(keys.owner).value, writes=False)


def comes_in(value: bytes | None) -> bool:
    """Say whether a tenant is being copied to this shard by a move. `value`: the tenant's ownership record."""
    owner = None if value is None else decode(OwnerRecord, value)
    return owner is not None and owner.move is not None and owner.move.phase is MovePhase.INCOMING


def is_first_home(layout: ShardLayout, keys: TenantKeys) -> bool:
    """Whether this is the shard where a tenant lives without a record. Local items of a kind live on every shard."""
    if not layout.first_shards or layout.placement is None or keys.packed.startswith(_LOCAL):
        return True
    return first_home(keys.packed, layout.first_shards) == layout.placement.name
