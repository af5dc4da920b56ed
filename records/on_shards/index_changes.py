"""Changes of indexes: one is built, or dropped, while clients write. What the type's home stores about a change.

A change goes through stages. Each is complete on every shard before the next one begins:

    build   MAINTAINED  writers on every shard maintain the index: the schema number is odd
            FILLED      each record that was there before has its index record
            READABLE    users may read the index; PENDING, if records were left without their value
    drop    HIDDEN      nobody reads the index on any shard
            OFF         writers maintain it no more: the schema number is even
            STRIPPED    no record has a key of it
            CLEARED     no index record is left

A field is changed at the home first, then copied to every other shard. A shard that copies the whole definition notes
itself at the home before it reads it. So it either reads the changed field, or is found by whoever has changed it.

Who carries out a change has a number, and each takes a higher one. A shard refuses a field of a lower number than it
has. So a process that was held up for long changes nothing any more.
"""

from collections.abc import Iterator
from enum import IntEnum

import msgspec

from fairlead.records.alternate_keys import Field
from fairlead.records.definition import (
    FieldRecord,
    IndexState,
    TypeRecord,
    change_key,
    changes_prefix,
    read_definition,
    write_definition,
)
from fairlead.records.errors import RecordError, RecordUnreadable
from fairlead.records.stated_keys import FieldPlace
from fairlead.zones.engines import Reader, Transaction
from fairlead.zones.keyspace import range_begin, range_end, unpack_name
from fairlead.zones.layout import DEFAULT_ZONE, ShardLayout, local_tenant
from fairlead.zones.pipelining import run_one
from fairlead.zones.probes import probe
from fairlead.zones.queue.insertion import enqueue_op
from fairlead.zones.queue.items import new_item
from fairlead.zones.records import is_newer, pack_value, unpacked

CHANGE_KIND = "fairlead.records.index"
CHANGES_MAX = 1_000  # Listed, of one type: one for each field that it ever had.


class Stage(IntEnum):
    """What a change of an index does; see above."""

    MAINTAINED = 1
    FILLED = 2
    READABLE = 3
    HIDDEN = 4
    OFF = 5
    STRIPPED = 6
    CLEARED = 7


BUILD_STAGES = (Stage.MAINTAINED, Stage.FILLED, Stage.READABLE)
DROP_STAGES = (Stage.HIDDEN, Stage.OFF, Stage.STRIPPED, Stage.CLEARED)


class ChangeState(IntEnum):
    """How a change stands, or has ended."""

    UNDER_WAY = 0
    READABLE = 1
    PENDING = 2
    DROPPED = 3
    CANCELLED = 4
    FAILED = 5


class Cursor(msgspec.Struct, array_like=True, frozen=True):
    """How far a stage has gone through the records of a type.

    Attributes:
      turn: how often it has gone through all shards before.
      counts: the counts of moves of the shards, as they were when this turn began.
      shard: the shard whose tenants it goes through; "" by slots.
      tenant: all tenants up to this one are done; the empty one: none is.
      within, after: of this tenant, a later one, rows up to this key, texts in UTF-8, are done.
    """

    turn: int = 0
    counts: dict[str, int] = {}
    shard: str = ""
    tenant: tuple[str, str] = ("", "")
    within: tuple[str, str] = ("", "")
    after: bytes = b""


class ChangeRecord(msgspec.Struct, array_like=True, frozen=True):
    """A change of an index, as the type's home stores it. The last one of each field stays.

    Attributes:
      change_id: 16 bytes; the id of the item that carries it out, too.
      number: of whoever carries it out now; grows with each.
      is_drop: the index is dropped; also a build that was cancelled or has failed, once it is taken back.
      place: where the field is in a packed value: a name; or a position, if values are packed as arrays. "": unknown;
        that of a drop if the type began with the field.
      in_tenants: records lie in tenants of users, not in slots.
      records_per_s: so fast it goes through the records, at most.
      stage: a `Stage`.
      read, filled: how many records it has gone through in this stage, and how many index records it has written.
      reason: why it was taken back.
    """

    change_id: bytes
    number: int
    is_drop: bool
    place: FieldPlace
    in_tenants: bool
    records_per_s: int
    began_us: int
    state: int
    stage: int
    cursor: Cursor = Cursor()
    read: int = 0
    filled: int = 0
    violations: int = 0
    ended_us: int = 0
    cancel_requested: bool = False
    reason: str = ""

    @property
    def is_under_way(self) -> bool:
        """Whether it has not ended."""
        return self.state == ChangeState.UNDER_WAY


class IndexExists(RecordError):
    """Records of this type are found by this field already; nothing was changed.

    Do: use it. To change how values are compared, drop the index with `drop_index`, then add it anew.
    """

    message = "the field has an index already"


class NoIndex(RecordError):
    """Records of this type are not found by this field, or there are no records of this type.

    Do: see the types and fields that there are, `fairlead records`. Add an index with `add_index`.
    """

    message = "the field has no index"


class IndexChanging(RecordError):
    """The index of this field is being built or dropped; nothing was changed.

    Do: wait for the end, which `fairlead records` shows; or cancel a build, `fairlead records add-index --cancel`.
    """

    message = "the index is being built or dropped"


class ChangeReplaced(Exception):
    """Another process carries out the change, or it has ended: this one stops, and changes nothing more."""


_decoder = msgspec.msgpack.Decoder(ChangeRecord)


def begin_change(
    tr: Transaction, layout: ShardLayout, type_name: str, field: Field, wanted: ChangeRecord, *, now_us: int
) -> None:
    """Begin to build or to drop an index, and enqueue the item that carries it out.

    Of `wanted`, number and stage are set. Reads with conflict, and writes: the definition, the last change of the
    field. May run twice: the id tells its own change.

    Raises:
      IndexExists, NoIndex, IndexChanging: see there; nothing is changed.
      RecordUnreadable: what is stored cannot be read.
    """
    last = read_change(tr, type_name, field.name)
    if last is not None and last.change_id == wanted.change_id:
        return
    if last is not None and last.is_under_way:
        raise IndexChanging(type=type_name, field=field.name, doing="drop" if last.is_drop else "build")
    definition = read_definition(tr, type_name)
    stored = None if definition is None else definition.named(field.name)
    stage = _drop_from(type_name, field, stored) if wanted.is_drop else _build_from(type_name, field, stored)
    number = 1 + (0 if last is None else last.number)
    if stored is None or (not wanted.is_drop and stored.field != field):
        schema = 0 if stored is None else stored.schema
        stored = FieldRecord(field.name, field.is_unique, field.normalizer, schema, IndexState.HIDDEN, number)
        write_definition(tr, type_name, (definition or TypeRecord(())).with_field(stored))
    place = last.place if wanted.is_drop and last is not None else wanted.place  # Records may be restored meanwhile.
    record = msgspec.structs.replace(wanted, number=number, stage=stage, violations=stored.violations, place=place)
    _write(tr, type_name, field.name, record)
    item = new_item(CHANGE_KIND, {"type": type_name, "field": field.name, "change": wanted.change_id})
    location = layout.location(local_tenant(CHANGE_KIND), DEFAULT_ZONE)
    run_one(enqueue_op(tr, location, [(wanted.change_id, item)], now_us=now_us, ids_are_new=False))


def _build_from(type_name: str, field: Field, stored: FieldRecord | None) -> Stage:
    """Return the stage with which a build begins; that of an index with violations looks only at these."""
    if stored is None or not stored.is_maintained:
        return Stage.MAINTAINED
    if stored.state == IndexState.READABLE or stored.field != field:
        raise IndexExists(type=type_name, field=field.name, stored=stored.field.how)
    return Stage.READABLE if stored.state == IndexState.PENDING else Stage.MAINTAINED


def _drop_from(type_name: str, field: Field, stored: FieldRecord | None) -> Stage:
    if stored is None or not stored.is_maintained:
        raise NoIndex(type=type_name, field=field.name)
    return Stage.HIDDEN


def read_change(tr: Transaction, type_name: str, field: str) -> ChangeRecord | None:
    """Return the last change of an index; None: there was none. Reads one key, with conflict.

    Raises:
      RecordUnreadable: it cannot be read.
    """
    return _decoded(type_name, field, tr.get(change_key(type_name, field)).value)


def view_change(tr: Reader, type_name: str, field: str) -> ChangeRecord | None:
    """Return what `read_change` does, by a snapshot read."""
    return _decoded(type_name, field, tr.snapshot.get(change_key(type_name, field)).value)


def list_changes(tr: Reader, type_name: str) -> Iterator[tuple[str, ChangeRecord]]:
    """Yield the last change of each field of a type. Snapshot reads of a range; passes over what cannot be read."""
    prefix = changes_prefix(type_name)
    for row in tr.snapshot.get_range(range_begin(prefix), range_end(prefix), limit=CHANGES_MAX):
        name, record = unpack_name(row.key, len(prefix)), unpacked(_decoder, row.value)
        if name is not None and record is not None:
            yield name, record


def list_places(tr: Reader, type_name: str) -> dict[str, FieldPlace]:
    """Return where fields are in packed values, of those whose indexes were built beside users; see `list_changes`."""
    return {name: change.place for name, change in list_changes(tr, type_name) if change.place != ""}


def is_readable_change(value: bytes) -> bool:
    """Say whether what is stored of a change can be read."""
    return unpacked(_decoder, value) is not None


def take_over(tr: Transaction, type_name: str, field: str, change_id: bytes) -> ChangeRecord | None:
    """Become the one that carries out a change: earlier ones change nothing any more. None: it has ended.

    Reads with conflict, and writes: the change. May run twice: it only counts on.
    """
    found = read_change(tr, type_name, field)
    if found is None or found.change_id != change_id or not found.is_under_way:
        return None
    taken = msgspec.structs.replace(found, number=found.number + 1)
    _write(tr, type_name, field, taken)
    return taken


def note_change(tr: Transaction, type_name: str, field: str, mine: ChangeRecord, **changes: object) -> ChangeRecord:
    """Change what is stored of a change, and return it. Reads with conflict, and writes: the change.

    Raises:
      ChangeReplaced: the caller does not carry it out any more.
    """
    found = read_change(tr, type_name, field)
    if found is None or (found.change_id, found.number) != (mine.change_id, mine.number) or not found.is_under_way:
        probe("who carries out a change of an index finds itself replaced")
        raise ChangeReplaced
    changed = msgspec.structs.replace(found, **changes)
    _write(tr, type_name, field, changed)
    return changed


def request_cancel(tr: Transaction, type_name: str, field: str) -> bool:
    """Ask for the end of a build; False: none is under way, or all records are done. Reads and writes the change."""
    found = read_change(tr, type_name, field)
    if found is None or not found.is_under_way or found.is_drop or found.stage == Stage.READABLE:
        return False
    _write(tr, type_name, field, msgspec.structs.replace(found, cancel_requested=True))
    return True


def changed_field(stored: FieldRecord, stage: Stage, mine: ChangeRecord, *, violations: int = 0) -> FieldRecord:
    """Return a field as it is once a stage has begun; of FILLED, STRIPPED and CLEARED as it is."""
    schema, state, left = stored.schema, stored.state, stored.violations
    match stage:
        case Stage.MAINTAINED:
            schema, state = schema + 1 - schema % 2, IndexState.HIDDEN
        case Stage.READABLE:
            state, left = (IndexState.PENDING if violations else IndexState.READABLE), violations
        case Stage.HIDDEN:
            state, left = IndexState.HIDDEN, 0
        case Stage.OFF:
            schema += schema % 2
    return msgspec.structs.replace(stored, schema=schema, state=state, violations=left, change=mine.number)


def put_field(tr: Transaction, type_name: str, field: FieldRecord) -> None:
    """Store a field in the definition of a shard, which has one. Reads with conflict, and writes: the definition.

    Conflicts with all writes of records of the type on the shard. May run twice.

    Raises:
      ChangeReplaced: a later change has come here.
    """
    definition = read_definition(tr, type_name)
    assert definition is not None, "a shard gets its definition first"
    found = definition.named(field.name)
    if found == field:
        return
    if found is not None and found.change > field.change:
        raise ChangeReplaced
    write_definition(tr, type_name, definition.with_field(field))


def _write(tr: Transaction, type_name: str, field: str, record: ChangeRecord) -> None:
    tr.set(change_key(type_name, field), pack_value(record))


def _decoded(type_name: str, field: str, value: bytes | None) -> ChangeRecord | None:
    if value is None:
        return None
    found = unpacked(_decoder, value)
    if found is None:
        raise RecordUnreadable(type=type_name, what=f"the change of its index {field}", newer=is_newer(value))
    return found  # type: ignore[no-any-return]
