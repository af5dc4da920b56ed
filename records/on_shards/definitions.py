"""The definitions of one type of records, as each shard stores them, and as this process last read them."""

from collections.abc import Sequence

from fairlead.records.alternate_keys import Field
from fairlead.records.definition import (
    TypeRecord,
    check_place,
    copy_definition,
    first_definition,
    read_definition,
    write_if_absent,
)
from fairlead.records.errors import DefinitionDiffers
from fairlead.records.on_shards.performing import Homes
from fairlead.records.on_shards.slots import SLOTS_APP
from fairlead.zones.layout import Tenant
from fairlead.zones.transaction_runner import Attempt


class Definitions:
    """The definitions of a type on all shards.

    `declared`: the fields that the program names; `in_tenants`: it names the tenants of records, too; None: it
    looks for records wherever they lie.

    A type's home is one shard, the same for all processes. It gets the definition first; others copy it before the
    first record is written there. So two programs that declare different fields cannot both begin.
    """

    def __init__(self, homes: Homes, type_name: str, declared: Sequence[Field], *, in_tenants: bool | None) -> None:
        self._homes = homes
        self._type_name = type_name
        self._declared = tuple(declared)
        self._in_tenants = in_tenants
        self._read: dict[str, TypeRecord] = {}
        self._places_checked: set[str] = set()

    def on(self, shard_name: str) -> TypeRecord:
        """Return the definition on a shard, as this process last read it; a shard without one gets it.

        Raises:
          DefinitionDiffers: the program declares other fields, or another place of the records.
        """
        found = self._read.get(shard_name)
        if found is None:
            found = self._read[shard_name] = self._stored(shard_name)
        return found

    def check_place(self, stored: TypeRecord) -> None:
        """See that a stored definition has the records where the program looks for them. Raises as `on` does."""
        check_place(stored, self._type_name, in_tenants=self._in_tenants)

    def check_place_on(self, shard_name: str) -> None:
        """See that the definition on a shard, if there is one, has the records where the program looks for them.

        Reads one key, once in this process if there is a definition. Raises as `on` does.
        """
        if shard_name in self._places_checked:
            return
        shard = self._homes[shard_name]
        found = shard.transact(lambda attempt: read_definition(attempt.tr, self._type_name))
        if found is not None:
            self.check_place(found)
            self._places_checked.add(shard_name)

    def forget(self, shard_name: str) -> None:
        """Read the definition of a shard anew before it is used again."""
        self._read.pop(shard_name, None)

    def copy_to(self, shard_name: str) -> bool:
        """Let a shard that has no definition get a copy; False: no shard has one, so there are no such records."""
        self.forget(shard_name)
        return self._copied(shard_name, first=None) is not None

    def declare(self, field: Field) -> None:
        """Add a field to those that the program names: its index is being built."""
        self._declared = (*(each for each in self._declared if each.name != field.name), field)

    def undeclare(self, name: str) -> None:
        """Remove a field from those that the program names: its index is being dropped."""
        self._declared = tuple(each for each in self._declared if each.name != name)

    def _stored(self, shard_name: str) -> TypeRecord:
        shard = self._homes[shard_name]
        found = shard.transact(lambda attempt: read_definition(attempt.tr, self._type_name))
        if found is None:
            found = self._copied(shard_name, first=first_definition(self._declared, in_tenants=self._in_tenants))
            assert found is not None, "there is a definition now"
        self._check(found)
        return found

    def _copied(self, shard_name: str, *, first: TypeRecord | None) -> TypeRecord | None:
        """Copy the home's definition to a shard. `first`: what the home stores if it has none; None: nothing."""
        shard = self._homes[shard_name]
        home = self._homes[self._homes.home_name(Tenant(SLOTS_APP, self._type_name))]

        def at_home(attempt: Attempt) -> TypeRecord | None:
            if first is not None:
                write_if_absent(attempt.tr, self._type_name, first)
            return copy_definition(attempt.tr, self._type_name, shard_name)

        copied = home.transact(at_home)
        if copied is None:
            return None
        return shard.transact(lambda attempt: write_if_absent(attempt.tr, self._type_name, copied))

    def _check(self, stored: TypeRecord) -> None:
        """See that the declared fields are stored, here or at the home: a field that is new comes there first."""
        self.check_place(stored)
        for field in self._declared:
            named = stored.named(field.name)
            if named is None or named.field != field:
                home = self._homes[self._homes.home_name(Tenant(SLOTS_APP, self._type_name))]
                at_home = home.transact(lambda attempt: read_definition(attempt.tr, self._type_name))
                named = None if at_home is None else at_home.named(field.name)
            if named is None or named.field != field:
                kept = None if named is None else named.field.how
                raise DefinitionDiffers(type=self._type_name, field=field.name, declared=field.how, stored=kept)
