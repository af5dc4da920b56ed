"""Lookups that ask all shards, while the shard of an index record is away (Uniqorn section 3.2).

Each shard finds what it holds by an index of its own, which is written with each record. What it finds is compared with
the record, as an entry may be left over. Nobody has a key if no record is found, every shard has answered, and none has
counted a move of a tenant meanwhile: a record that had the key all the time would have been found; and if none had it
all the time, there was a moment in which nobody had it, because a key does not pass on without one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from fairlead.records.accesses import ReadRecord, run_op, several
from fairlead.records.alternate_keys import Field, field_of, value_part
from fairlead.records.definition import read_definition, require_readable
from fairlead.records.errors import IndexUnavailable
from fairlead.records.on_shards.performing import RESTORED, Homes, ShardRecords, is_away
from fairlead.records.on_shards.slots import Locations
from fairlead.records.on_shards.transaction import NOTHING_DECLARED, local_index
from fairlead.records.stored import DataRecord
from fairlead.zones.engines import Database, Reader, StoreUnavailable
from fairlead.zones.errors import Restoring, ShardRefused
from fairlead.zones.keyspace import pack_text
from fairlead.zones.local_index_search import search
from fairlead.zones.probes import probe

T = TypeVar("T")

ENTRIES_MAX = 10_000  # Of one shard. So many records with one value are found without its index.
READ_TOGETHER = 100
NOT_WHOLE = "tenants keep moving between the shards, or more than 10,000 records of one shard have the value"


class AllHomes(Homes, Protocol):
    """All shards of an application, by name."""

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        ...


class RunsCalls(Protocol):
    """Runs calls on several shards, at once or one after the other."""

    def __call__(self, calls: Sequence[Callable[[], T]], /) -> list[T]:
        """Return what the calls return, in order."""
        ...


class Named(NamedTuple):
    """The primary keys of records that shards name, in order. `missing`: why there may be more; "": there are none.

    `away`: the shards that do not answer.
    """

    keys: list[str]
    missing: str
    away: list[str]


class Scatter:
    """Looks for records of one type on all shards.

    `declared`: the fields by which a user's program looks for records, by their names.
    """

    def __init__(
        self,
        homes: AllHomes,
        locations: Locations,
        run_all: RunsCalls,
        *,
        declared: Mapping[str, Field] = NOTHING_DECLARED,
    ) -> None:
        self._homes = homes
        self._locations = locations
        self._run_all = run_all
        self._declared = declared
        self._records = ShardRecords(homes, locations, None, run_all)

    def find(self, index_key: bytes) -> tuple[str, DataRecord] | None:
        """Return the record that has an alternate key, with its own key; or None.

        Raises:
          IndexUnavailable: it is not found, and a shard does not answer, or tenants keep moving; or the index is being
            built, is dropped, or has violations.
          StoreError: a shard has stopped answering meanwhile.
        """
        probe("a lookup asks all shards, as the shard of an index record is away")
        named = self._named(index_key)
        found = next(self._that_have(named.keys, lambda _: index_key), None)
        if found is None:
            _require_whole(named, index_key)
        return found

    def find_holders(self, index_key: bytes) -> list[tuple[str, DataRecord]]:
        """Return all records that have an alternate key: more than one, if they were written without its index.

        Raises:
          IndexUnavailable: see `find`; also if some are found.
        """
        named = self._named(index_key)
        _require_whole(named, index_key)
        return list(self._that_have(named.keys, lambda _: index_key))

    def find_all(self, value: bytes, limit: int) -> list[tuple[str, DataRecord]]:
        """Return records that have a value in a field for lookup, with their keys, in order; at most `limit`.

        Misses no record that has the value all the while.

        Raises:
          IndexUnavailable: see `find`; also if some are found.
        """
        named = self._named(value)
        _require_whole(named, value)
        found = self._that_have(named.keys, lambda key: value + pack_text(key))
        return [each for each, _ in zip(found, range(limit), strict=False)]

    def _named(self, index_key: bytes) -> Named:
        index = local_index(self._locations.type_name, value_part(index_key))
        check = partial(self._require_readable, field=field_of(index_key))
        return self.named_by(index, check)

    def named_by(self, index: bytes, check: Callable[[Reader], None] | None = None) -> Named:
        """Return the primary keys that the shards' own indexes name. `check`: see `search`."""
        stores: dict[str, Database] = {}
        away: list[str] = []
        for name in self._homes:
            try:
                stores[name] = self._homes[name].db
            except (StoreUnavailable, ShardRefused):
                away.append(name)

        def run_all(calls: Sequence[Callable[[], T]]) -> list[T | None]:
            named = list(zip(stores, calls, strict=True))
            return self._run_all([partial(self._answered, name, call, away) for name, call in named])

        found = search(list(stores.values()), index, entries_max=ENTRIES_MAX, run_all=run_all, check=check)
        missing = "" if found.is_whole and not away else "a shard does not answer" if away else NOT_WHOLE
        return Named(sorted({entry.member.decode() for entry in found.entries}), missing, sorted(set(away)))

    def _answered(self, name: str, call: Callable[[], T], away: list[str]) -> T | None:
        try:
            return call()
        except tuple(self._homes.errors()) as error:
            if not is_away(error):
                raise
            away.append(name)
            return None

    def _that_have(self, keys: Sequence[str], wanted: Callable[[str], bytes]) -> Iterator[tuple[str, DataRecord]]:
        """Yield those of the records that have the index key that `wanted` returns for their keys."""
        return ((key, record) for key, record in self.read(keys) if record.has(wanted(key)))

    def read(self, keys: Sequence[str]) -> Iterator[tuple[str, DataRecord]]:
        """Yield the records of primary keys with these, those that there are.

        Raises:
          IndexUnavailable: the tenant of one of them is being restored. Whose that is is not said.
          RecordUnreadable: one is damaged.
        """
        for at in range(0, len(keys), READ_TOGETHER):
            some = keys[at : at + READ_TOGETHER]
            try:
                answers = run_op(several([ReadRecord(each) for each in some]), self._records.perform)
            except Restoring:
                raise IndexUnavailable(type=self._locations.type_name, reason=RESTORED) from None
            for key, record in zip(some, answers, strict=True):
                if record is not None:
                    yield key, record

    def _require_readable(self, tr: Reader, *, field: str) -> None:
        """See that a shard's records are all found by a field. Reads one key.

        Raises:
          IndexUnavailable, DefinitionDiffers: see `require_readable`.
        """
        found, locations = read_definition(tr.snapshot, self._locations.type_name), self._locations
        if found is None:
            return  # The shard has none of the records.
        declared = self._declared.get(field)
        require_readable(found, locations.type_name, field, declared=declared, in_tenants=locations.in_tenants)


def _require_whole(named: Named, index_key: bytes) -> None:
    if named.missing:
        raise IndexUnavailable(field=field_of(index_key), reason=named.missing, shards=named.away)
