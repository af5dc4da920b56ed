"""A tenant as telemetry knows it: a hash, so that no user's name leaves the database for a tracing tool."""

from hashlib import blake2b

from fairlead.zones.layout import Tenant

HASH_BYTES = 8


def tenant_hash(tenant: Tenant) -> str:
    """Return the same sixteen hex digits for a tenant in every process.

    It hides names from those who do not know them; whoever knows a name can compute its hash, and is meant to.
    """
    return blake2b("\0".join(tenant).encode(), digest_size=HASH_BYTES).hexdigest()
