"""The definitions of one type of records, as each shard stores them, and as this process last read them."""

from collections.abc import Sequence

from fairlead.records.alternate_keys import Field
from fairlead.records.definition import TypeRecord, first_definition, read_definition, write_if_absent
from fairlead.records.errors import RecordError
from fairlead.records.on_shards.performing import Homes
from fairlead.records.on_shards.slots import SLOTS_APP
from fairlead.zones.layout import Tenant


class DefinitionDiffers(RecordError):
    """The program declares a field that the stored records are not found by, or are found by in another way.

    Do: `add_index` builds an index while the application runs, and `drop_index` ends one. To change how a field is
    compared, drop its index, then add it anew.
    """

    message = "the declared fields are not those that are stored"


class Definitions:
    """The definitions of a type on all shards. `declared`: the fields that the program names.

    A type's home is one shard, the same for all processes. It gets the definition first; others copy it before the
    first record is written there. So two programs that declare different fields cannot both begin.
    """

    def __init__(self, homes: Homes, type_name: str, declared: Sequence[Field]) -> None:
        self._homes = homes
        self._type_name = type_name
        self._declared = declared
        self._read: dict[str, TypeRecord] = {}

    def on(self, shard_name: str) -> TypeRecord:
        """Return the definition on a shard, as this process last read it; a shard without one gets it.

        Raises:
          DefinitionDiffers: the program declares other fields.
        """
        found = self._read.get(shard_name)
        if found is None:
            found = self._read[shard_name] = self._stored(shard_name)
        return found

    def forget(self, shard_name: str) -> None:
        """Read the definition of a shard anew before it is used again."""
        self._read.pop(shard_name, None)

    def _stored(self, shard_name: str) -> TypeRecord:
        shard = self._homes[shard_name]
        found = shard.transact(lambda attempt: read_definition(attempt.tr, self._type_name))
        if found is None:
            first = self._at_home()
            found = shard.transact(lambda attempt: write_if_absent(attempt.tr, self._type_name, first))
        self._check(found)
        return found

    def _at_home(self) -> TypeRecord:
        home = self._homes[self._homes.home_name(Tenant(SLOTS_APP, self._type_name))]
        first = first_definition(self._declared)
        return home.transact(lambda attempt: write_if_absent(attempt.tr, self._type_name, first))

    def _check(self, stored: TypeRecord) -> None:
        for field in self._declared:
            named = stored.named(field.name)
            if named is None or named.field != field:
                kept = None if named is None else named.field
                raise DefinitionDiffers(type=self._type_name, declared=tuple(field), stored=kept and tuple(kept))
