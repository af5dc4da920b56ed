"""Where records lie: in slots, which are tenants, by the hash of the primary key or of the alternate key.

A slot has an owner record like every tenant, so `app.move` moves it, under writers, when shards are added. An index
record names a primary key, and no shard: a move of a record touches none.

    fairlead.records/account:0a3  ("fairlead.records", "account", DATA, key)         -> `DataRecord`
                                  ("fairlead.records", "account", INDEX, index key)  -> `IndexRecord`

A type of records may lie in its users' tenants instead, below the same keys: then only its index records are in slots.
"""

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b

from fairlead.records.alternate_keys import value_part
from fairlead.zones.layout import Tenant

SLOT_COUNT = 4_096  # So many tenants hold a type at least, and each is moved alone: 100 shards get 41 each.
SLOTS_APP = "fairlead.records"
DATA, INDEX = 1, 2

Key = tuple[str, str, int, str | bytes]


class Locations:
    """Where the records of one type, and their index records, lie.

    Args:
      tenant_of: returns the tenant of a primary key; None: a slot.
      slot_count: how many slots there are. Fewer are for the simulation: it goes through all of them in milliseconds.
    """

    def __init__(
        self, type_name: str, tenant_of: Callable[[str], Tenant] | None = None, *, slot_count: int = SLOT_COUNT
    ) -> None:
        self.type_name = type_name
        self.slot_count = slot_count
        self._tenant_of = tenant_of

    @property
    def in_tenants(self) -> bool:
        """Whether records lie in tenants of users; False: in slots."""
        return self._tenant_of is not None

    def data_tenant(self, key: str) -> Tenant:
        """Return the tenant that holds a record."""
        if self._tenant_of is not None:
            return self._tenant_of(key)
        return _data_slot(self.type_name, self.slot_count, key)

    def index_tenant(self, index_key: bytes) -> Tenant:
        """Return the tenant that holds an index record. All index records of one value lie together."""
        return _index_slot(self.type_name, self.slot_count, index_key)

    def slots(self, begin: int = 0, *, limit: int = SLOT_COUNT) -> list[Tenant]:
        """Return the slots of the type from number `begin` on, at most so many."""
        return [slot(self.type_name, number) for number in range(begin, min(begin + limit, self.slot_count))]

    def data_key(self, key: str) -> Key:
        """Return the key of a data record, within its tenant."""
        return (SLOTS_APP, self.type_name, DATA, key)

    def index_key(self, index_key: bytes) -> Key:
        """Return the key of an index record, within its tenant."""
        return (SLOTS_APP, self.type_name, INDEX, index_key)


# A transaction asks three times for the slot of each key; to hash it anew takes some 2 microseconds each time.
@lru_cache(maxsize=1_024)
def _data_slot(type_name: str, slot_count: int, key: str) -> Tenant:
    return _hashed_slot(type_name, slot_count, key.encode())


@lru_cache(maxsize=1_024)
def _index_slot(type_name: str, slot_count: int, index_key: bytes) -> Tenant:
    return _hashed_slot(type_name, slot_count, value_part(index_key))


def _hashed_slot(type_name: str, slot_count: int, hashed: bytes) -> Tenant:
    number = int.from_bytes(blake2b(hashed, digest_size=8).digest(), "big") % slot_count
    return slot(type_name, number)


def slot(type_name: str, number: int) -> Tenant:
    """Return a slot of a type of records."""
    return Tenant(SLOTS_APP, f"{type_name}:{number:03x}")


def slot_number(tenant: Tenant) -> int:
    """Return the number of a slot."""
    return int(tenant.user.rpartition(":")[2], 16)
