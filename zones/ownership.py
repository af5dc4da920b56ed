"""Whether a shard owns a tenant, and whether the tenant is locked, by the tenant's ownership record.

Every transaction on a tenant reads the record with conflict, whether it writes or not. So a change of the record takes
effect for all of them at once: each sees the change, or is refused at its commit.
"""

from fairlead.zones.engines import Reader
from fairlead.zones.errors import OwnerUnreadable, TenantLocked, TenantMoved
from fairlead.zones.keyspace import TenantKeys, pack_text
from fairlead.zones.layout import ShardLayout, ZoneLocation
from fairlead.zones.placement import first_home
from fairlead.zones.records import RESTRICTED_FORMAT, OwnerRecord, TenantPolicy, decode, is_newer

_NO_POLICY = TenantPolicy()
_LOCAL = pack_text("")  # How the packed names of local items begin: they have no app.


def check_owner(layout: ShardLayout, keys: TenantKeys, value: bytes | None, *, writes: bool = True) -> TenantPolicy:
    """Return the policy of a tenant that lives on this shard. `value`: the tenant's ownership record.

    Without a record the tenant lives on its first home, and has no policy. `writes`: whether the transaction writes to
    the tenant; one that only reads passes a shared lock.

    Raises:
      TenantMoved: the record names another shard; or there is none, and this shard is not the tenant's first home.
      OwnerUnreadable: the record cannot be read.
      TenantLocked: a transaction across shards has locked the tenant.
    """
    if value is None:
        if is_first_home(layout, keys):
            return _NO_POLICY
        raise TenantMoved(**_names(layout, keys), first_home=first_home(keys.packed, layout.first_shards))
    owner = decode(OwnerRecord, value)
    if owner is None:
        raise OwnerUnreadable(**_names(layout, keys), newer=is_newer(value, newest=RESTRICTED_FORMAT))
    if owner.shard_id != layout.shard_id:
        raise TenantMoved(**_names(layout, keys), owner=owner.shard_id.hex())
    for lock in owner.locks:
        if writes or lock.exclusive:
            raise TenantLocked(**_names(layout, keys), lock=lock)
    return owner.policy


def _names(layout: ShardLayout, keys: TenantKeys) -> dict[str, str]:
    app, user = keys.names
    return {"app": app, "user": user, "shard": layout.shard_id.hex()}


def check_home(tr: Reader, location: ZoneLocation) -> None:
    """See that a tenant lives on this shard, for what reads by snapshot only. One snapshot read.

    Raises:
      TenantMoved, OwnerUnreadable, TenantLocked: see `check_owner`. A shared lock is passed.
    """
    keys = location.keys.tenant
    check_owner(location.layout, keys, tr.snapshot.get(keys.owner).value, writes=False)


def is_first_home(layout: ShardLayout, keys: TenantKeys) -> bool:
    """Whether this is the shard where a tenant lives without a record. Local items of a kind live on every shard."""
    if not layout.first_shards or layout.placement is None or keys.packed.startswith(_LOCAL):
        return True
    return first_home(keys.packed, layout.first_shards) == layout.placement.name
