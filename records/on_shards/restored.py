"""The records of a tenant that was restored to a snapshot: each is marked, and what was left of it is cleared.

A restore brings records back as they were. Their index records may be gone, or name others. Indexes may have been
built, dropped, or built in another way since. So each record gets the keys that its value states by the definition of
today, and all of them are unindexed: a repair is to follow (`repairing`).

A snapshot has no part of the shard's own index. So entries are left of what a record was before the restore.
"""

from collections.abc import Mapping
from functools import partial
from random import Random

from fairlead.records.accesses import Op, Perform
from fairlead.records.definition import TypeRecord
from fairlead.records.errors import Interrupted, RecordError, RecordUnreadable
from fairlead.records.on_shards.definitions import Definitions
from fairlead.records.on_shards.index_changes import list_places
from fairlead.records.on_shards.operations import Operations
from fairlead.records.on_shards.performing import Homes, ShardRecords
from fairlead.records.on_shards.slots import DATA, SLOTS_APP, Locations
from fairlead.records.on_shards.transaction import RecordTransaction, type_of_entry
from fairlead.records.protocol import Protocol
from fairlead.records.stated_keys import FieldPlace, restated_keys
from fairlead.records.stored import GENERATION_BYTES
from fairlead.zones.layout import DEFAULT_ZONE, Tenant
from fairlead.zones.local_index import held_op
from fairlead.zones.ownership import check_home
from fairlead.zones.pipelining import run_one
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_transaction import Key, TenantTransaction
from fairlead.zones.transaction_runner import Attempt

PAGE_KEYS = 500
TRIES = 20  # At a record that changes: to begin again would give each record before it a new generation, and a repair.


def mark_restored(homes: Homes, shard: Shard, tenant: Tenant) -> None:
    """Mark all records of a tenant that was restored, and clear what the shard's own index has left of others.

    A transaction for each 500 keys of the tenant's records, one for each record, and one for each 500 entries. Safe to
    run twice, late, and beside users. A record that cannot be marked holds up no other one.

    Raises:
      Restoring: the tenant is being restored.
      Interrupted, RecordUnreadable: a record changes all the time, or cannot be read; all else is done.
      TenantMoved: the tenant moves.
    """
    held_up: RecordError | None = None
    types: dict[str, _RestoredType] = {}
    begin: Key = (SLOTS_APP,)
    while page := shard.transact(partial(_page, shard=shard, tenant=tenant, begin=begin)):
        for type_name, key in [(each[1], each[3]) for each in page if len(each) == 4 and each[2] == DATA]:
            if type_name not in types:
                types[type_name] = _RestoredType(homes, tenant, type_name)
            try:
                types[type_name].mark(key, shard.random)
            except (Interrupted, RecordUnreadable) as error:
                held_up = error
        begin = (*page[-1], b"")
    places = {name: each.places for name, each in types.items()}
    next_key: bytes | None = None
    while True:
        next_key = shard.transact(partial(_clear_left, shard=shard, tenant=tenant, places=places, next_key=next_key))
        if next_key is None:
            break
    if held_up is not None:
        raise held_up


class _RestoredType:
    """The records of one type that lie in the tenant. `places`: of the fields of its definition, once one is marked.

    Its definition is read after the restore. So an index that is maintained then has the keys of its records here; and
    one that is not is filled, or stripped of its keys, by whoever comes after.
    """

    def __init__(self, homes: Homes, tenant: Tenant, type_name: str) -> None:
        self._homes = homes
        self._type_name = type_name
        self._locations = Locations(type_name, lambda _: tenant)
        self._protocol = Protocol()
        definitions, home_name = Definitions(homes, type_name, (), in_tenants=None), homes.home_name(tenant)
        self._is_defined = definitions.copy_to(home_name)
        self._operations = Operations(type_name, definitions, lambda _: homes.home_name(tenant), self._performing)
        self.places: dict[str, FieldPlace] = {}
        self._places_are_of: TypeRecord | None = None

    def mark(self, key: str, random: Random) -> None:
        """Mark a record. Without a definition nobody can read it, and it stays.

        Raises:
          Interrupted: it has changed each time. RecordUnreadable: it cannot be read.
        """
        tries = 0
        while self._is_defined:
            try:
                return self._mark_once(key, random.randbytes(GENERATION_BYTES))
            except Interrupted:
                tries += 1
                if tries == TRIES:
                    raise

    def _mark_once(self, key: str, generation: bytes) -> None:
        def begin(definition: TypeRecord) -> Op[None]:
            self._read_places(definition)
            return self._protocol.mark_op(key, generation, partial(restated_keys, definition, self.places, key))

        self._operations.write(key, begin)

    def _read_places(self, definition: TypeRecord) -> None:
        """Read where the fields of a definition are in a value, from the home of the type."""
        if definition is not self._places_are_of:
            home = self._homes[self._homes.home_name(Tenant(SLOTS_APP, self._type_name))]
            self.places = home.transact(lambda attempt: list_places(attempt.tr, self._type_name))
            self._places_are_of = definition

    def _performing(self, definition: TypeRecord | None) -> Perform:
        return ShardRecords(self._homes, self._locations, definition).perform


def _page(attempt: Attempt, *, shard: Shard, tenant: Tenant, begin: Key) -> list[Key]:
    """Return keys of records, and of index records, from `begin` on. A range of reads."""
    rows = TenantTransaction(shard, tenant, attempt).get_between(begin, (SLOTS_APP + "\x00",), limit=PAGE_KEYS)
    return [key for key, _ in rows]


def _clear_left(
    attempt: Attempt,
    *,
    shard: Shard,
    tenant: Tenant,
    places: Mapping[str, Mapping[str, FieldPlace]],
    next_key: bytes | None,
) -> bytes | None:
    """Clear those of some entries that name what no record is any more; return where to go on; None: that is all.

    Reads by snapshot: entries; with conflict: the records that they name. `places`: of the fields of each type.
    """
    location = shard.layout.location(tenant, DEFAULT_ZONE)
    check_home(attempt.tr, location)
    page = run_one(held_op(attempt.tr, location.keys.tenant, entries_max=PAGE_KEYS, next_key=next_key))
    by_type: dict[str, RecordTransaction] = {}
    for index, member in page.entries:
        type_name = type_of_entry(index)
        if type_name is None:
            continue
        if type_name not in by_type:
            locations = Locations(type_name, lambda _: tenant)
            by_type[type_name] = RecordTransaction(shard, attempt, locations, None, lambda _: True)
        by_type[type_name].clear_entry_if_left(index, member.decode(), places.get(type_name, {}))
    return page.next_key
