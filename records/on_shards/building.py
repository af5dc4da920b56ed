"""Carries out a change of an index from wherever another process has stopped: builds it, or drops it.

It holds nothing but what it can read again: the change, as the type's home stores it, says how far it has come. So it
may stop at any point, for ever or for a while, and the next one goes on. See `index_changes` for the stages.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from fairlead.records.accesses import Op, ReadRecord, one, run_op, together
from fairlead.records.definition import (
    FieldRecord,
    SchemaChanged,
    TypeRecord,
    copy_definition,
    list_copies,
    read_definition,
    write_if_absent,
)
from fairlead.records.errors import RecordError
from fairlead.records.filling import Filled, fill_op
from fairlead.records.on_shards.index_changes import (
    BUILD_STAGES,
    DROP_STAGES,
    ChangeReplaced,
    ChangeState,
    Cursor,
    Stage,
    changed_field,
    note_change,
    put_field,
    take_over,
)
from fairlead.records.on_shards.performing import MOVES_MAX, RunAll, ShardRecords, run_in_order
from fairlead.records.on_shards.slots import DATA, INDEX, Locations
from fairlead.records.on_shards.violations import (
    ViolationEntry,
    forget_violation,
    move_count,
    note_violation,
    violations_on,
)
from fairlead.records.on_shards.walking import AllShards, Row, Walk
from fairlead.records.protocol import Protocol
from fairlead.records.stated_keys import FieldPlace, stated_key
from fairlead.records.stored import DataRecord, unpack_data
from fairlead.zones.engines import Transaction
from fairlead.zones.errors import BadArgument, TenantMoved
from fairlead.zones.keyspace import pack_text
from fairlead.zones.layout import Tenant
from fairlead.zones.probes import probe
from fairlead.zones.shard import Shard
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.transaction_runner import Attempt

NOTE_US = 500_000  # So often it notes how far it has come, and looks whether it is to stop.
ATTEMPTS_MAX = 8  # Of some records, whose shard's definition changes meanwhile.
CANCELLED = "it was cancelled"
NOT_CONFIGURED = "shard {name} has records of this type, or had them, and this fleet's configuration does not have it"
TENANTS_UNKNOWN = "records of this type lie in tenants of users, and the application of this fleet does not declare it"


class ChangeHeldUp(RecordError):
    """A shard or a tenant cannot be used now that the change of the index needs. It goes on by itself once it can.

    Do: see to what `reason` names. Or cancel a build, `fairlead records add-index --cancel`.
    """

    message = "the change of the index is held up"


class BuilderStopped(Exception):
    """The builder is to stop, because its process ends; another one goes on."""


class _Unbuildable(Exception):
    """The build cannot succeed, or is cancelled: it is taken back, and its record says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Builder:
    """Carries out one change of an index.

    Args:
      home: the shard that stores the change.
      locations: where records of the type lie; None: the application does not declare the type.
      should_stop: asked between transactions; True ends the builder, and another one goes on.
      run_all: runs calls on several shards.
    """

    def __init__(
        self,
        homes: AllShards,
        home: Shard,
        type_name: str,
        field: str,
        *,
        locations: Locations | None,
        should_stop: Callable[[], bool] = lambda: False,
        run_all: RunAll = run_in_order,
    ) -> None:
        self._homes = homes
        self._home = home
        self._type_name = type_name
        self._field = field
        self._declared = locations
        self._locations = locations or Locations(type_name)
        self._should_stop = should_stop
        self._run_all = run_all
        self._protocol = Protocol(ends_at_once=True)
        self._noted_us = self._began_us = home.clock.now_us()
        self._paced = 0
        self._definitions: dict[str, TypeRecord] = {}  # of each shard, as it was last read

    def run(self, change_id: bytes) -> ChangeState | None:
        """Carry out the change to its end, and return how it ended; None: it has ended before.

        Raises:
          BuilderStopped: `should_stop` says so.
          ChangeReplaced: another process carries it out.
          ChangeHeldUp, IndexUnavailable, what the stores raise: try again later.
        """
        taken = self._home.transact(lambda attempt: take_over(attempt.tr, self._type_name, self._field, change_id))
        if taken is None:
            return None
        self._mine = taken
        self._require_locations()
        try:
            self._stop_if_asked()
            self._run_stages()
        except _Unbuildable as error:
            self._note(is_drop=True, reason=error.reason, stage=DROP_STAGES[0], cursor=Cursor(), read=0)
            self._run_stages()
        return self._end()

    def _require_locations(self) -> None:
        if self._mine.in_tenants and (self._declared is None or not self._declared.in_tenants):
            raise ChangeHeldUp(type=self._type_name, field=self._field, reason=TENANTS_UNKNOWN)
        if not self._mine.in_tenants and self._locations.in_tenants:
            self._locations = Locations(self._type_name)

    def _run_stages(self) -> None:
        stages: Sequence[Stage] = DROP_STAGES if self._mine.is_drop else BUILD_STAGES
        for stage in stages[stages.index(Stage(self._mine.stage)) :]:
            if stage != self._mine.stage:
                self._note(stage=stage, cursor=Cursor(), read=0)
            self._began_us, self._paced = self._home.clock.now_us(), 0
            match stage:
                case Stage.FILLED:
                    self._fill()
                case Stage.READABLE:
                    self._change_field(stage, self._check_violations())
                case Stage.STRIPPED:
                    self._strip()
                case Stage.CLEARED:
                    self._clear()
                case _:
                    self._change_field(stage)

    def _end(self) -> ChangeState:
        state = ChangeState.PENDING if self._mine.violations else ChangeState.READABLE
        if self._mine.is_drop:
            was_cancelled = self._mine.reason == CANCELLED
            state = ChangeState.CANCELLED if was_cancelled else ChangeState.FAILED
            state = state if self._mine.reason else ChangeState.DROPPED
        self._note(state=state, ended_us=self._home.clock.now_us())
        match state:
            case ChangeState.READABLE:
                probe("an index is built")
            case ChangeState.DROPPED:
                probe("an index is dropped")
            case ChangeState.CANCELLED:
                probe("the build of an index is cancelled")
        return state

    # --- Stages that change the definition of every shard ---

    def _change_field(self, stage: Stage, violations: int = 0) -> None:
        """Change the field at the home, then on every other shard that has the definition, or may get it."""

        def at_home(tr: Transaction) -> FieldRecord:
            self._mine = note_change(tr, self._type_name, self._field, self._mine, violations=violations)
            definition = read_definition(tr, self._type_name)
            assert definition is not None, "the home has the definition of what changes"
            stored = self._stored_field(definition)
            changed = changed_field(stored, stage, self._mine, violations=violations)
            put_field(tr, self._type_name, changed)
            return changed

        changed = self._home.transact(lambda attempt: at_home(attempt.tr))
        copies = self._home.transact(lambda attempt: list_copies(attempt.tr, self._type_name))
        for name in sorted({*copies, *self._homes} - {self._home.name}):
            self._stop_if_asked()
            self._definition_of(name)
            self._shard(name).transact(lambda attempt: put_field(attempt.tr, self._type_name, changed))
        self._definitions.clear()

    def _definition_of(self, name: str) -> TypeRecord:
        """Return the definition of a shard, as it was last read; one without gets a copy."""
        if name not in self._definitions:
            shard = self._shard(name)
            found = shard.transact(lambda attempt: read_definition(attempt.tr, self._type_name))
            found = self._copied(shard) if found is None else found
            self._require_latest(found)
            self._definitions[name] = found
        return self._definitions[name]

    def _require_latest(self, definition: TypeRecord) -> None:
        """See that no later change has come to a shard, whose definition this is.

        What is written then must read the definition with conflict, or state its schema.

        Raises:
          ChangeReplaced: one has. This process was held up, and what it would write is of a change that has ended.
        """
        stored = definition.named(self._field)
        if stored is not None and stored.change > self._mine.number:
            raise ChangeReplaced

    def _copied(self, shard: Shard) -> TypeRecord:
        copied = self._home.transact(lambda attempt: copy_definition(attempt.tr, self._type_name, shard.name))
        assert copied is not None, "the home has the definition of what changes"
        return shard.transact(lambda attempt: write_if_absent(attempt.tr, self._type_name, copied))

    def _shard(self, name: str) -> Shard:
        if name not in set(self._homes):
            reason = NOT_CONFIGURED.format(name=name)
            raise ChangeHeldUp(type=self._type_name, field=self._field, reason=reason)
        return self._homes[name]

    def _stored_field(self, definition: TypeRecord) -> FieldRecord:
        stored = definition.named(self._field)
        assert stored is not None, "a change begins with the field"
        return stored

    # --- Stages that go through all records ---

    def _fill(self) -> None:
        self._walk_records(
            partial(key_in_value, self._stored_field(self._definition_of(self._home.name)), self._mine.place)
        )

    def _strip(self) -> None:
        self._walk_records(lambda key, record: None)

    def _walk_records(self, key_of: Callable[[str, DataRecord], bytes | None]) -> None:
        walk = Walk(self._homes, self._locations, DATA, self._mine.cursor)
        while (rows := walk.next()) is not None:
            by_schema: dict[tuple[tuple[str, int], ...], list[Row]] = {}  # One group, but while an index changes.
            for row in rows:
                by_schema.setdefault(self._definition_of(row.shard).schema, []).append(row)
            for some in by_schema.values():
                filled = self._fill_some(some[0].shard, [(row.key, row.record()) for row in some], key_of)
                for row, each in zip(some, filled, strict=True):
                    if each.violation is not None:
                        note = partial(self._note_violation, key=row.key, violation=each.violation, key_of=key_of)
                        self._at_home(row.tenant, note)
                count = self._mine.filled + sum(each.is_filled for each in filled)
                self._mine = msgspec.structs.replace(self._mine, filled=count)
            self._advance(len(rows), walk.cursor)

    def _fill_some(
        self, name: str, records: list[tuple[str, DataRecord | None]], key_of: Callable[[str, DataRecord], bytes | None]
    ) -> list[Filled]:
        """Fill some records, by the definition of a shard."""
        reads: list[tuple[str, DataRecord | None, bool]] = [(key, record, True) for key, record in records]
        for _ in range(ATTEMPTS_MAX):
            performing = ShardRecords(self._homes, self._locations, self._definition_of(name), self._run_all)
            operations = [self._fill_op(key, record, key_of, is_read=is_read) for key, record, is_read in reads]
            try:
                return run_op(together(operations), performing.perform)
            except SchemaChanged as changed:
                name = changed.shard
                self._definitions.pop(name, None)
                reads = [(key, None, False) for key, _, _ in reads]
        raise ChangeHeldUp(type=self._type_name, field=self._field, reason="other indexes change all the time")

    def _fill_op(
        self, key: str, read: DataRecord | None, key_of: Callable[[str, DataRecord], bytes | None], *, is_read: bool
    ) -> Op[Filled]:
        if not is_read:
            read = yield from one(ReadRecord(key))
        return (yield from fill_op(self._protocol, key, read, self._field, partial(key_of, key)))

    def _note_violation(
        self, view: TenantTransaction, *, key: str, violation: bytes, key_of: Callable[[str, DataRecord], bytes | None]
    ) -> None:
        """List a record that was left without its value, if it still states the value, and still lacks the key.

        It may have changed since: an update that keeps the value, and a collection, give it no key.
        """
        found = view.get(self._locations.data_key(key))
        record = None if found is None else unpack_data(key, found)
        if record is None or record.is_dummy or record.has(violation):
            return
        if key_of(key, record) == violation:
            probe("the build of an index lists a record that lacks its value")
            note_violation(view, self._type_name, key, violation)

    def _check_violations(self) -> int:
        """Look at the violations again: records that can have their value now get it. Return how many cannot."""
        key_of = partial(key_in_value, self._stored_field(self._definition_of(self._home.name)), self._mine.place)
        while True:
            counts = self._move_counts()
            left = 0
            for entry in self._violations():
                self._stop_if_asked()
                (filled,) = self._fill_some(entry.shard, [(entry.key, self._read(entry))], key_of)
                if filled.violation == entry.index_key:
                    left += 1
                else:
                    self._at_home(entry.tenant, partial(self._forget, entry=entry))
                    if filled.violation is not None:
                        left += 1
                        violation, key = filled.violation, entry.key
                        note = partial(self._note_violation, key=key, violation=violation, key_of=key_of)
                        self._at_home(entry.tenant, note)
            if counts == self._move_counts():
                return left

    def _violations(self) -> Iterator[ViolationEntry]:
        for name in sorted(self._homes):
            yield from list(violations_on(self._homes[name], self._type_name, self._field))

    def _move_counts(self) -> dict[str, int]:
        return {name: move_count(self._homes[name]) for name in sorted(self._homes)}

    def _read(self, entry: ViolationEntry) -> DataRecord | None:
        value = self._at_home(entry.tenant, lambda view: view.get(self._locations.data_key(entry.key)))
        return None if value is None else unpack_data(entry.key, value)

    def _forget(self, view: TenantTransaction, *, entry: ViolationEntry) -> None:
        forget_violation(view, self._type_name, entry.key, entry.index_key)

    def _clear(self) -> None:
        """Clear the index records, and what lists violations."""
        prefix = pack_text(self._field)
        walk = Walk(self._homes, self._locations, INDEX, self._mine.cursor, prefix=prefix)
        while (rows := walk.next()) is not None:
            by_tenant: dict[Tenant, list[Row]] = {}
            for row in rows:
                by_tenant.setdefault(row.tenant, []).append(row)
            for tenant, some in by_tenant.items():
                self._at_home(tenant, partial(self._clear_rows, rows=some))
            self._advance(len(rows), walk.cursor)
        for entry in self._violations():
            self._at_home(entry.tenant, partial(self._forget, entry=entry))

    def _clear_rows(self, view: TenantTransaction, *, rows: Sequence[Row]) -> None:
        for row in rows:
            view.clear(self._locations.index_key(row.key))

    # --- What all of them use ---

    def _at_home(self, tenant: Tenant, body: Callable[[TenantTransaction], Any]) -> Any:
        """Run a transaction on a tenant where it lives. Reads the definition of the shard with conflict. May run twice.

        Raises:
          ChangeReplaced: see `_require_latest`; nothing is written.
        """
        for _ in range(MOVES_MAX):
            shard = self._homes[self._homes.home_name(tenant)]

            def checked(attempt: Attempt, shard: Shard = shard) -> Any:
                definition = read_definition(attempt.tr, self._type_name)
                if definition is not None:
                    self._require_latest(definition)
                return body(TenantTransaction(shard, tenant, attempt))

            try:
                return shard.transact(checked)
            except TenantMoved as moved:
                if not self._homes.note_moved(moved):
                    raise
        raise ChangeHeldUp(type=self._type_name, field=self._field, reason=f"{tenant} moves on and on")

    def _advance(self, count: int, cursor: Cursor) -> None:
        """Note how far it has come, now and then, and sleep as the rate demands."""
        self._paced += count
        self._mine = msgspec.structs.replace(self._mine, read=self._mine.read + count, cursor=cursor)
        until_us = self._began_us + self._paced * 1_000_000 // self._mine.records_per_s
        clock = self._home.clock
        self._look_up()
        while (left_us := until_us - clock.now_us()) > 0:
            clock.sleep_us(min(left_us, NOTE_US))
            self._look_up()

    def _look_up(self) -> None:
        self._stop_if_asked()
        if abs(self._home.clock.now_us() - self._noted_us) >= NOTE_US:
            self._note()

    def _note(self, **changes: object) -> None:
        """Note how far it has come.

        Raises:
          _Unbuildable: the build is to be cancelled.
          ChangeReplaced: another process has taken over.
        """
        mine = self._mine
        known = {"read": mine.read, "filled": mine.filled, "cursor": mine.cursor, **changes}
        self._mine = self._home.transact(
            lambda attempt: note_change(attempt.tr, self._type_name, self._field, mine, **known)
        )
        self._noted_us = self._home.clock.now_us()
        if self._mine.cancel_requested and not self._mine.is_drop and mine.stage != Stage.READABLE:
            raise _Unbuildable(CANCELLED)

    def _stop_if_asked(self) -> None:
        if self._should_stop():
            raise BuilderStopped


def key_in_value(field: FieldRecord, place: FieldPlace, key: str, record: DataRecord) -> bytes | None:
    """Return the index key that a record's value states; None: it states none.

    Raises:
      _Unbuildable: the value cannot be a key.
    """
    try:
        return stated_key(field.field, place, key, record.value)
    except BadArgument as error:
        raise _Unbuildable(f"record {key} cannot be found by it: {error}") from None
