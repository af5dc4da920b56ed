"""Which shard is a tenant's home: rendezvous hashing over the configured shards.

Every shard gets a score for the tenant, and the highest score wins. So all processes agree without communicating, and a
new shard receives only those tenants for which it has the highest score. Moving tenants is not implemented yet. Until
then the set of shards of an application must not change once it holds tenants.
"""

from collections.abc import Sequence
from hashlib import blake2b

from fairlead.zones.keyspace import pack_text
from fairlead.zones.layout import Tenant


def home(tenant: Tenant, shard_names: Sequence[str]) -> str:
    """Return the name of the tenant's home among `shard_names`, in whatever order they are given."""
    packed = pack_text(tenant.app) + pack_text(tenant.user)
    return max(shard_names, key=lambda name: (blake2b(packed, digest_size=8, key=_key(name)).digest(), name))


def _key(shard_name: str) -> bytes:
    return blake2b(shard_name.encode(), digest_size=32).digest()
