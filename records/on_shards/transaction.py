"""Accesses of the protocol, carried out in one transaction on one shard.

What a shard does in the transaction of an access, beyond the paper:
- It keeps an index of its own of all records that it holds, so that they are found while an index shard is away.
- It refuses a record that was made by another definition than the shard stores.
- With a dummy it enqueues the item that cleans up after a creator that stops; the record that replaces it deletes that.
- It carries out phases 2 and 3 of a collection, or a whole write whose index records lie here, at once.

An access reads the ownership record of its tenant, the definition if it writes, and the record itself, all with
conflict. A transaction may run twice: an attempt that writes needs a receipt, so its answers are those that count.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, Self

from fairlead.records.accesses import (
    Access,
    AtOnce,
    DeleteAtOnce,
    DeleteIndex,
    DeleteRecord,
    Ended,
    EndWriters,
    IndexAccess,
    ListIndex,
    LookedUp,
    LookUp,
    ReadIndex,
    ReadRecord,
    WriteAtOnce,
    WriteIndex,
    WriteRecord,
)
from fairlead.records.alternate_keys import Field, field_of, value_part
from fairlead.records.definition import (
    SchemaChanged,
    TypeRecord,
    read_definition,
    require_readable,
    require_schema,
    type_key,
    unpack_definition,
)
from fairlead.records.errors import RecordUnreadable
from fairlead.records.on_shards.cleanup import cleanup_id, cleanup_item, dropped_keys_item
from fairlead.records.on_shards.repairing import marks_of, needs_item, repair_item
from fairlead.records.on_shards.slots import Locations
from fairlead.records.on_shards.violations import violation_of
from fairlead.records.stated_keys import FieldPlace, may_state
from fairlead.records.stored import DataRecord, IndexRecord, unpack_data, unpack_index
from fairlead.zones.errors import ItemGone
from fairlead.zones.keyspace import pack_text, unpack_names
from fairlead.zones.layout import Tenant
from fairlead.zones.records import pack_value
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_transaction import (
    TenantTransaction,
    add_to_local_index,
    parts_of,
    remove_from_local_index,
)
from fairlead.zones.transaction_runner import Attempt

NOTHING_DECLARED: Mapping[str, Field] = MappingProxyType({})


class OnSeveralShards(Exception):
    """A write at once meets a record that lies on another shard."""


class LivesHere(Protocol):
    """Says where tenants live, as far as this process knows."""

    def __call__(self, tenant: Tenant, /) -> bool:
        """Return whether a tenant lives on the shard of the transaction."""
        ...


class RecordTransaction:
    """One attempt at a transaction on the records of one type that lie on one shard.

    Args:
      definition: by which the writer has computed the keys of what it writes; None: it writes no record.
      declared: the fields by which a user's program looks for records, by their names.
    """

    def __init__(
        self,
        shard: Shard,
        attempt: Attempt,
        locations: Locations,
        definition: TypeRecord | None,
        lives_here: LivesHere,
        *,
        declared: Mapping[str, Field] = NOTHING_DECLARED,
    ) -> None:
        self._shard = shard
        self._attempt = attempt
        self._locations = locations
        self._definition = definition
        self._lives_here = lives_here
        self._declared = declared
        self._views: dict[Tenant, TenantTransaction] = {}
        self._is_schema_checked = False
        self._readable: set[str] = set()  # fields whose index a user may read, as this attempt has seen

    @classmethod
    def within(cls, tr: TenantTransaction, locations: Locations) -> Self:
        """Return a transaction on the records of the tenant of `tr`: it reads and writes by `tr`, and commits with it.

        The keys of what is written must be computed by the definition that `stored_definition` returns.
        """
        shard, attempt = parts_of(tr)
        made = cls(shard, attempt, locations, None, lambda tenant: tenant == tr.tenant)
        made._views[tr.tenant] = tr
        return made

    def stored_definition(self, first: Callable[[str], TypeRecord]) -> TypeRecord:
        """Return the definition that the shard stores; what is written from now on is written by it.

        `first`: stores the definition on a shard that has none, by a transaction of its own, and returns it. Then this
        transaction conflicts and runs again.
        """
        found = read_definition(self._attempt.tr, self._locations.type_name)
        self._is_schema_checked = True
        return first(self._shard.name) if found is None else found

    def leave_dropped(self, key: str, record: DataRecord, dropped: Sequence[bytes], below: int | None) -> None:
        """Have the index records of dropped keys deleted, once this transaction has committed; see `drop_op`."""
        if dropped:
            item = dropped_keys_item(self._locations.type_name, key, record.generation, dropped, below)
            self._data_view(key).enqueue_item(item)

    def answer(self, access: Access) -> Any:
        """Make one access; return its answer.

        Raises:
          SchemaChanged: the shard maintains other indexes than the writer believes, or cannot tell a reader.
          OnSeveralShards: by `WriteAtOnce` and `DeleteAtOnce`.
          IndexUnavailable, DefinitionDiffers: by a read for a user: see `require_readable`.
          RecordUnreadable: what is stored cannot be read.
          TenantMoved, TenantLocked, Restoring: see `TenantTransaction`.
        """
        match access:
            case ReadRecord(key, found_by):
                return self._read(key) if not found_by else self._read_found(key, found_by)
            case WriteRecord(key, expected, record):
                return self._write(key, expected, record)
            case DeleteRecord(key, expected, is_clean):
                return self._delete(key, expected, is_clean=is_clean)
            case EndWriters(index_key, entry):
                return self._end_writers(index_key, entry)
            case WriteAtOnce(key, read, record):
                return self._write_at_once(key, read, record)
            case DeleteAtOnce(key, read):
                return self._delete_at_once(key, read)
            case _:
                return self._answer_index(access)

    def _answer_index(self, access: IndexAccess) -> Any:
        match access:
            case ReadIndex(index_key):
                return self._read_index(index_key)
            case LookUp(index_key):
                return self._looked_up(index_key)
            case ListIndex(prefix, after, limit):
                self._begin_readable(field_of(prefix))()
                return self._listed(prefix, after, limit)
            case WriteIndex(index_key, expected, entry):
                if self._read_index(index_key) != expected:
                    return False
                self._set_index(index_key, entry)
                return True
            case DeleteIndex(index_key, expected):
                if self._read_index(index_key) != expected:
                    return False
                self._index_view(index_key).clear(self._locations.index_key(index_key))
                return True

    # --- Data records ---

    def _read(self, key: str) -> DataRecord | None:
        value = self._data_view(key).get(self._locations.data_key(key))
        return None if value is None else unpack_data(key, value)

    def _read_found(self, key: str, found_by: bytes) -> DataRecord | None:
        require = self._begin_readable(field_of(found_by))
        found = self._read(key)
        require()
        return found

    def _write(self, key: str, expected: DataRecord | None, record: DataRecord) -> bool:
        found = self._read(key)
        if not _is_as(found, expected):
            return False
        self._set(key, found, record)
        if record.is_dummy and found is not None and found.generation == record.generation:
            return True  # The creator begins again; its item is there.
        if record.is_dummy:
            item = cleanup_item(self._locations.type_name, key, record)
            self._data_view(key).enqueue_item(item, item_id=cleanup_id(record.generation))
        elif found is not None and found.is_dummy and found.generation == record.generation:
            self._cancel_cleanup(key, found)
        return True

    def _delete(self, key: str, expected: DataRecord, *, is_clean: bool) -> bool:
        found = self._read(key)
        if found is None or not _is_as(found, expected):
            return False
        self._clear(key, found)
        if is_clean:
            self._cancel_cleanup(key, found)
        return True

    def _end_writers(self, index_key: bytes, entry: IndexRecord) -> Ended:
        """Carry out phases 2 and 3 of a collection."""
        found = self._read(entry.key)
        if found is None:
            return Ended.ENDED
        if found.has(index_key):
            return Ended.VALID
        if found.is_dummy:
            self._clear(entry.key, found)
        else:
            self._data_view(entry.key).set(self._locations.data_key(entry.key), pack_value(found.bumped()))
        return Ended.ENDED

    def _write_at_once(self, key: str, read: DataRecord | None, record: DataRecord) -> AtOnce:
        """Write a record and its index records, if all that the write touches lies here.

        The version grows, as by the slow path: a slow writer of this record, and one whose index record is taken here,
        fails at its last phase.
        """
        found = self._read(key)
        is_new = read is None and (found is None or found.is_dummy)
        if not is_new and (read is None or not _is_as(found, read)):
            return AtOnce.REFUSED
        added = [each for each in record.keys if found is None or not found.has(each)]
        dropped = [each for each in (() if found is None else found.keys) if each not in record.keys]
        for index_key in (*added, *dropped):
            self._require_here(self._locations.index_tenant(index_key))
        for index_key in added:
            entry = self._read_index(index_key)
            if entry is not None and entry.key != key:
                self._require_here(self._locations.data_tenant(entry.key))
                if self._end_writers(index_key, entry) is Ended.VALID:
                    return AtOnce.REFUSED
        for index_key in added:
            self._set_index(index_key, IndexRecord(key, record.generation, record.version - 1))
        for index_key in dropped:
            self._unindex(index_key, key)
        self._set(key, found, record)
        return AtOnce.WRITTEN

    def _delete_at_once(self, key: str, read: DataRecord) -> AtOnce:
        """Delete a record and its index records, if all of them lie here."""
        found = self._read(key)
        if found is None or not _is_as(found, read):
            return AtOnce.REFUSED
        for index_key in found.keys:
            self._require_here(self._locations.index_tenant(index_key))
        for index_key in found.keys:
            self._unindex(index_key, key)
        self._clear(key, found)
        return AtOnce.WRITTEN

    def _unindex(self, index_key: bytes, key: str) -> None:
        """Clear the index record of a key that a record gives up. A marked key may have that of another record.

        An index record that cannot be read stays, and the record is changed all the same.
        """
        try:
            entry = self._read_index(index_key)
        except RecordUnreadable:
            return
        if entry is not None and entry.key == key:
            self._index_view(index_key).clear(self._locations.index_key(index_key))

    def _set(self, key: str, found: DataRecord | None, record: DataRecord) -> None:
        """Write a data record, what the shard's own index says of it, and the item that repairs it if it is marked."""
        if found is None or (found.writes, found.keys) != (record.writes, record.keys):
            self._check_schema()  # A collection or a repair leaves a record its keys, whatever indexes there are.
        view = self._data_view(key)
        kept = _kept_keys(found, record)
        before, after = self._own_indexes(found, besides=kept), self._own_indexes(record, besides=kept)
        gone = before - after
        if gone:  # A key that is kept may state the same value of the field, in the form of another index.
            gone -= self._own_indexes(record)
        for index in sorted(gone):
            self._remove_entry(view, index, key)
        is_same_life = found is not None and found.generation == record.generation
        for index in sorted(after - before if is_same_life else after):
            self._add_entry(view, index, key)
        view.set(self._locations.data_key(key), pack_value(record))
        if needs_item(found, record):
            view.enqueue_item(repair_item(self._locations.type_name, key))

    def _clear(self, key: str, found: DataRecord) -> None:
        view = self._data_view(key)
        for index in sorted(self._own_indexes(found)):
            self._remove_entry(view, index, key)
        view.clear(self._locations.data_key(key))

    def _cancel_cleanup(self, key: str, dummy: DataRecord) -> bool:
        """Delete the cleanup item; return False if it has run, late, and found nothing to do."""
        try:
            self._data_view(key).cancel(cleanup_id(dummy.generation))
        except ItemGone:
            return False
        return True

    def _check_schema(self) -> None:
        if not self._is_schema_checked:
            assert self._definition is not None, "a record is written without a definition"
            require_schema(self._attempt.tr, self._locations.type_name, self._definition, shard=self._shard.name)
            self._is_schema_checked = True

    # --- Index records ---

    def _read_index(self, index_key: bytes) -> IndexRecord | None:
        value = self._index_view(index_key).get(self._locations.index_key(index_key))
        return None if value is None else unpack_index(value)

    def _looked_up(self, index_key: bytes) -> LookedUp | None:
        """Return the key that an index record names, and the record if it lies here: that saves a transaction."""
        require = self._begin_readable(field_of(index_key))
        entry = self._read_index(index_key)
        require()
        if entry is None:
            return None
        if not self._lives_here(self._locations.data_tenant(entry.key)):
            return LookedUp(entry.key)
        return LookedUp(entry.key, self._read(entry.key), is_read=True)

    def _set_index(self, index_key: bytes, entry: IndexRecord) -> None:
        self._index_view(index_key).set(self._locations.index_key(index_key), pack_value(entry))

    def _listed(self, prefix: bytes, after: str, limit: int) -> Sequence[str]:
        view = self._index_view(prefix)
        begin = prefix + (pack_text(after) + b"\x00" if after else b"\x00")
        bounds = self._locations.index_key(begin), self._locations.index_key(prefix + b"\xff")
        return [unpack_index(value).key for _, value in view.get_between(*bounds, limit=limit)]

    def _begin_readable(self, field: str) -> Callable[[], None]:
        """Begin to read whether a user may read an index; return what sees that it is so.

        So the read is on its way beside those that follow. What is returned raises:
          IndexUnavailable: the index is being built, is dropped, or has violations.
          DefinitionDiffers: records are found by the field in another way than the program declares.
          SchemaChanged: the shard has no definition yet, so it cannot tell.
        """
        if field in self._readable:
            return lambda: None
        stored = self._attempt.tr.get(type_key(self._locations.type_name))

        def require() -> None:
            found = unpack_definition(self._locations.type_name, stored.value)
            if found is None:
                raise SchemaChanged(self._shard.name)
            locations, declared = self._locations, self._declared.get(field)
            require_readable(found, locations.type_name, field, declared=declared, in_tenants=locations.in_tenants)
            self._readable.add(field)

        return require

    # --- The shard's own index ---

    def clear_entry_if_left(self, index: bytes, key: str, places: Mapping[str, FieldPlace]) -> None:
        """Clear an entry of the shard's own index, if it names what a record is not.

        `places`: see `stated_keys`. Reads with conflict: the record, the definition.
        """
        found, lacked = self._read(key), violation_of(index)
        if lacked is None:
            is_left = index not in self._own_indexes(found)
        elif found is None or found.is_dummy or found.has(lacked):
            is_left = True
        else:
            definition = read_definition(self._attempt.tr, self._locations.type_name)
            is_left = definition is None or not may_state(definition, places, key, found, lacked)
        if is_left:
            self._remove_entry(self._data_view(key), index, key)

    # --- Tenants ---

    def _data_view(self, key: str) -> TenantTransaction:
        return self._view(self._locations.data_tenant(key))

    def _index_view(self, index_key: bytes) -> TenantTransaction:
        return self._view(self._locations.index_tenant(index_key))

    def _view(self, tenant: Tenant) -> TenantTransaction:
        if tenant not in self._views:
            self._views[tenant] = TenantTransaction(self._shard, tenant, self._attempt)
        return self._views[tenant]

    def _require_here(self, tenant: Tenant) -> None:
        """See that a tenant lives on this shard, as far as this process knows; its ownership record says for sure.

        Raises:
          OnSeveralShards: it does not.
        """
        if not self._lives_here(tenant):
            raise OnSeveralShards

    def _add_entry(self, view: TenantTransaction, index: bytes, key: str) -> None:
        """Let the shard's own index find a record."""
        add_to_local_index(view, index, key.encode())

    def _remove_entry(self, view: TenantTransaction, index: bytes, key: str) -> None:
        """Undo `_add_entry`."""
        remove_from_local_index(view, index, key.encode())

    def _own_indexes(self, record: DataRecord | None, *, besides: Sequence[bytes] = ()) -> set[bytes]:
        """Return the names of the shard's own indexes that name a record; not those of the keys `besides`."""
        type_name = self._locations.type_name
        if record is None or record.is_dummy:
            return set()
        keys = [each for each in record.keys if each not in besides]
        return {local_index(type_name, value_part(each)) for each in keys} | marks_of(type_name, record)


def local_index(type_name: str, value: bytes) -> bytes:
    """Return the name of the entries of a shard's own index that state a value of a field of a type of records."""
    return pack_text(type_name) + value


def type_of_entry(index: bytes) -> str | None:
    """Return the type of records that an entry of a shard's own index is of; None: it is no record's."""
    named = unpack_names(index, 0, 1)
    return None if named is None else named[0][0] or None


def _kept_keys(found: DataRecord | None, record: DataRecord) -> Sequence[bytes]:
    """Return the keys by which the shard's own index names a record before and after a write: nearly always all.

    A dummy has no entries, whatever its keys are, and a record of another life gets all of its own anew.
    """
    if found is None or found.is_dummy or record.is_dummy or found.generation != record.generation:
        return ()
    return [each for each in found.keys if each in record.keys]


def _is_as(found: DataRecord | None, expected: DataRecord | None) -> bool:
    if found is None or expected is None:
        return found is expected
    return found.is_as(expected)
