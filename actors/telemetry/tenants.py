"""A tenant as telemetry names it: a hash, so that no user's name leaves the database for a tracing tool."""

from hashlib import blake2b

from fairlead.zones.layout import Tenant

HASH_BYTES = 8


def tenant_hash(tenant: Tenant) -> str:
    """Return the same sixteen hex digits for a tenant in every process.

    The hash hides names from readers who do not know them. A reader who knows a name can compute its hash, by design.
    """
    return blake2b("\0".join(tenant).encode(), digest_size=HASH_BYTES).hexdigest()
