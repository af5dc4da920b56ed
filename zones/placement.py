"""Where a tenant lives at first: rendezvous hashing over the shards with which its application began.

Every one of these shards gets a score for the tenant, and the highest score wins. So all processes agree without
communicating. The list of these shards is stored in each shard of the application, beside the shard's own name. A
process with another list would look for tenants where they are not, so the shards refuse it. A shard that is added
later is no tenant's first home.
"""

from collections.abc import Collection, Sequence
from functools import lru_cache
from hashlib import blake2b

from fairlead.zones.engines import Transaction
from fairlead.zones.errors import ShardRefused
from fairlead.zones.keyspace import PLACEMENT, ROOT, pack_int, pack_text
from fairlead.zones.layout import Tenant
from fairlead.zones.records import PlacementRecord, decode, encode, is_newer

_KEY = ROOT + pack_int(PLACEMENT)
NEWER = "what it stores about its application is of a newer version of fairlead: upgrade this program"
DAMAGED = "what it stores about its application is damaged: fairlead check --quarantine sets it aside"


def home(tenant: Tenant, shard_names: Sequence[str]) -> str:
    """Return the name of the tenant's first home among `shard_names`, in whatever order they are given."""
    return first_home(pack_text(tenant.app) + pack_text(tenant.user), tuple(shard_names))


@lru_cache(maxsize=4_096)  # Each transaction on a tenant asks, and each shard costs a microsecond.
def first_home(packed: bytes, shard_names: tuple[str, ...]) -> str:
    """Return the first home of the tenant whose names are packed as in a key."""
    return max(shard_names, key=lambda name: (blake2b(packed, digest_size=8, key=_key(name)).digest(), name))


def _key(shard_name: str) -> bytes:
    return blake2b(shard_name.encode(), digest_size=32).digest()


def read_or_write_placement(tr: Transaction, shard_name: str, first_shards: Collection[str]) -> PlacementRecord | None:
    """Return what a shard stores about its application; if it stores nothing, write it.

    Reads its key with conflict. May run twice.

    Args:
      first_shards: what to write; empty: nothing, for a tool that does not know the application. A tool gets None for
        what cannot be read: it may have to set that aside.

    Raises:
      ShardRefused: it cannot be read.
    """
    value = tr.get(_KEY).value
    if value is not None:
        stored = decode(PlacementRecord, value)
        if stored is None and first_shards:
            raise ShardRefused(shard=shard_name, remedy=NEWER if is_newer(value) else DAMAGED)
        return stored
    if not first_shards:
        return None
    made = PlacementRecord(shard_name, tuple(sorted(first_shards)))
    tr.set(_KEY, encode(made))
    return made


def check_placement(stored: PlacementRecord, shard_name: str, shard_names: Collection[str]) -> None:
    """See that a shard belongs to the application that is configured with `shard_names`.

    An application with one shard may give it another name. A shard that was added later is never alone.

    Raises:
      ShardRefused: it has another name, or not all shards are named with which the application began.
    """
    if stored.first_shards == (stored.name,) and len(shard_names) == 1:
        return
    if stored.name != shard_name:
        raise ShardRefused(shard=shard_name, remedy=f"its application calls it {stored.name}: name it so")
    if not set(stored.first_shards) <= set(shard_names):
        listed = ", ".join(stored.first_shards)
        raise ShardRefused(shard=shard_name, remedy=f"its application began with the shards {listed}: name them all")
