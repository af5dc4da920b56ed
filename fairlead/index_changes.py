"""Changes of indexes of records, as an application begins, watches and ends them."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from fairlead.explanation import explain_at
from fairlead.moves import BEGINS_SOON
from fairlead.operator import Operator
from fairlead.queries.per_shard import ShardResult, query_each_shard
from fairlead.records.alternate_keys import AlternateValue, Field
from fairlead.records.definition import (
    IndexState,
    TypeRecord,
    check_place,
    first_definition,
    list_types,
    read_definition,
    write_if_absent,
)
from fairlead.records.on_shards.index_changes import (
    CHANGE_KIND,
    ChangeRecord,
    ChangeState,
    NoIndex,
    Stage,
    begin_change,
    list_changes,
    request_cancel,
    view_change,
)
from fairlead.records.on_shards.slots import SLOTS_APP, Locations
from fairlead.records.on_shards.violations import violations_on
from fairlead.shards import Shards
from fairlead.zones.durations import Duration, duration_us
from fairlead.zones.engines import Clock
from fairlead.zones.errors import BadArgument, QueueError
from fairlead.zones.layout import DEFAULT_ZONE, Tenant, local_tenant
from fairlead.zones.reporting import audit_log
from fairlead.zones.shard import Shard
from fairlead.zones.transaction_runner import Attempt

RECORDS_PER_S = 10_000  # By default, as the throttle of FoundationDB's Record Layer.
POLL_US = 50_000
UNDER_WAY = "under way"

_STAGES = {
    Stage.MAINTAINED: "telling all shards that writers maintain the index",
    Stage.FILLED: "indexing the records",
    Stage.READABLE: "making it readable",
    Stage.HIDDEN: "hiding the index",
    Stage.OFF: "telling all shards that writers do not maintain the index",
    Stage.STRIPPED: "removing its keys from the records",
    Stage.CLEARED: "clearing the index records",
}
_STATES = {
    ChangeState.UNDER_WAY: UNDER_WAY,
    ChangeState.READABLE: "readable",
    ChangeState.PENDING: "pending",
    ChangeState.DROPPED: "dropped",
    ChangeState.CANCELLED: "cancelled",
    ChangeState.FAILED: "failed",
}
_INDEX_STATES = {IndexState.HIDDEN: "hidden", IndexState.READABLE: "readable", IndexState.PENDING: "pending"}


class ChangePending(QueueError, TimeoutError):
    """The change of the index did not end within the timeout. It goes on, if a fleet runs.

    Do: call `result` again later; `fairlead records` shows how far it is. Without a fleet nobody carries it out: start
    one, `fairlead run`.
    """

    message = "the change of the index has not ended yet"


class NoBuild(QueueError):
    """No build of this index is under way that could be cancelled: it has ended, or is about to.

    Do: see the state of the index, `fairlead records`. To remove the index, drop it: `fairlead records drop-index`.
    """

    message = "no build of this index is under way"


class NoSuchType(QueueError):
    """No shard stores records of this type.

    Do: see the types that there are, `fairlead records`.
    """

    message = "there are no such records"


class ChangeFailed(QueueError):
    """The index was not built: the build was cancelled, or a record cannot be found by the field. It is cleared.

    Do: see `reason`. Change the record that it names, then add the index anew.
    """

    message = "the index was not built"


@dataclass(frozen=True, slots=True)
class IndexChangeView:
    """How the build or the drop of an index stands. Times in seconds, or seconds since the epoch.

    Attributes:
      type, field: of which records, and of which field.
      id: of the change, and of the local item that carries it out on the shard `home`.
      action: "build" or "drop".
      state: "under way"; of a build "readable", "pending", "cancelled" or "failed"; of a drop "dropped". Pending: some
        records were left without their value, because another record has it.
      stage: what it does now, in words; empty after it has ended.
      held_up: why no worker carries it out now, in words; empty: a worker does, or nobody has looked.
      read: how many records it has gone through in this stage; `indexed`: how many index records it has written.
      turn: how often it has gone through all shards before, because tenants have moved meanwhile.
      violations: how many records were left without their value.
      reason: why it was taken back.
    """

    type: str
    field: str
    id: bytes
    home: str
    action: str
    state: str
    stage: str
    held_up: str
    read: int
    indexed: int
    turn: int
    violations: int
    records_per_s: int
    cancel_requested: bool
    began: float
    ended: float | None
    reason: str

    @property
    def is_under_way(self) -> bool:
        """Whether it has not ended."""
        return self.state == UNDER_WAY

    @property
    def now(self) -> str:
        """How it stands, in one line."""
        if not self.is_under_way:
            counted = f"{self.violations:,} violations" if self.violations else ""
            return ": ".join(filter(None, (self.state, self.reason or counted)))
        parts = ["being cancelled" if self.cancel_requested else "", self.stage]
        parts.append(f"{self.read:,} records" if self.read else "")
        parts.append(f"turn {self.turn + 1}, as tenants have moved" if self.turn else "")
        return "; ".join(filter(None, (*parts, self.held_up)))


class IndexChange:
    """A build or a drop of an index that was begun. Makes no call to a store until a method is called."""

    def __init__(
        self, shards: Shards, type_name: str, field: str, change_id: bytes, *, clock: Clock, operator: Operator
    ) -> None:
        self.type = type_name
        self.field = field
        self.id = change_id
        self._shards = shards
        self._clock = clock
        self._operator = operator

    def progress(self) -> IndexChangeView:
        """Return how it stands.

        Raises:
          ChangeFailed: another change of this index has begun since.
        """
        home = type_home(self._shards, self.type)
        record = home.transact(lambda attempt: view_change(attempt.tr, self.type, self.field))
        if record is None or record.change_id != self.id:
            raise ChangeFailed(type=self.type, field=self.field, reason="another change of this index has begun since")
        return change_view(home, self.type, self.field, record)

    def cancel(self) -> bool:
        """Ask for the end of a build: the index is dropped. False: it has ended or is about to, or it is a drop."""
        return cancel_build(self._shards, self.type, self.field, by=self._operator)

    def result(self, timeout: Duration | None = None) -> IndexChangeView:
        """Wait until it has ended. A build with violations has ended, too: its state is "pending".

        Args:
          timeout: seconds or a `timedelta`; None: as long as it takes.

        Raises:
          ChangePending: it has not ended in that time.
          ChangeFailed: the build was cancelled, or has failed.
        """
        until_us = None if timeout is None else self._clock.now_us() + duration_us("timeout", timeout)
        while (view := self.progress()).is_under_way:
            if until_us is not None and self._clock.now_us() >= until_us:
                break
            self._clock.sleep_us(POLL_US)
        return _ended(view)

    async def aresult(self, timeout: Duration | None = None) -> IndexChangeView:  # noqa: ASYNC109 - as `result`
        """Wait as `result` does, and let the event loop go on meanwhile. The event loop's clock measures the time.

        Raises:
          ChangePending, ChangeFailed: see `result`.
        """
        calls, loop = self._shards.calls, asyncio.get_running_loop()
        end_s = None if timeout is None else loop.time() + duration_us("timeout", timeout) / 1e6
        while (view := await calls.run(self.progress)).is_under_way:
            if end_s is not None and loop.time() >= end_s:
                break
            await asyncio.sleep(POLL_US / 1e6)
        return _ended(view)


def _ended(view: IndexChangeView) -> IndexChangeView:
    if view.is_under_way:
        raise ChangePending(type=view.type, field=view.field, now=view.now)
    if view.state in ("cancelled", "failed"):
        raise ChangeFailed(type=view.type, field=view.field, reason=view.reason)
    return view


def type_home(shards: Shards, type_name: str) -> Shard:
    """Return the shard that stores the definition of a type first, and the changes of its indexes."""
    return shards.home(Tenant(SLOTS_APP, type_name))


def begin_index_change(
    shards: Shards,
    locations: Locations,
    field: Field,
    declared: list[Field],
    *,
    place: str | int,
    is_drop: bool,
    records_per_s: int,
    by: Operator,
    clock: Clock,
    random: Random,
) -> IndexChange:
    """Begin to build or to drop an index; see `Records.add_index` and `Records.drop_index`.

    Args:
      declared: the fields with which the type begins, if there are no such records yet.
      place: where the field is in a packed value.
      by: the operator, for the audit log.

    Raises:
      DefinitionDiffers: the records lie elsewhere. See `Records.add_index` and `Records.drop_index`.
    """
    if isinstance(records_per_s, bool) or not isinstance(records_per_s, int) or not 1 <= records_per_s <= 10_000_000:
        raise BadArgument(argument="records_per_s", value=records_per_s, allowed="1 to 10,000,000")
    name, home = locations.type_name, type_home(shards, locations.type_name)
    change_id = random.randbytes(16)

    def body(attempt: Attempt) -> None:
        if is_drop:
            stored = read_definition(attempt.tr, name)
        else:
            first = first_definition(declared, in_tenants=locations.in_tenants)
            stored = write_if_absent(attempt.tr, name, first)
        if stored is not None:
            check_place(stored, name, in_tenants=locations.in_tenants)
        wanted = ChangeRecord(
            change_id,
            0,
            is_drop,
            place,
            locations.in_tenants,
            records_per_s,
            attempt.now_us,
            ChangeState.UNDER_WAY,
            Stage.MAINTAINED,
        )
        begin_change(attempt.tr, home.layout, name, field, wanted, now_us=attempt.now_us)
        _write_audit_entry(attempt, by, "drop index" if is_drop else "add index", name, field.name)

    home.transact(body)
    return IndexChange(shards, name, field.name, change_id, clock=clock, operator=by)


def stored_field(shards: Shards, type_name: str, field: str) -> Field:
    """Return a field as the type's home stores it.

    Raises:
      NoIndex: there is none.
    """
    found = dict(type_home(shards, type_name).transact(lambda attempt: list(list_types(attempt.tr)))).get(type_name)
    named = None if found is None else found.named(field)
    if named is None:
        raise NoIndex(type=type_name, field=field)
    return named.field


def cancel_build(shards: Shards, type_name: str, field: str, *, by: Operator) -> bool:
    """Ask for the end of a build; see `IndexChange.cancel`."""

    def body(attempt: Attempt) -> bool:
        if not request_cancel(attempt.tr, type_name, field):
            return False
        _write_audit_entry(attempt, by, "cancel index", type_name, field)
        return True

    return type_home(shards, type_name).transact(body)


def _write_audit_entry(attempt: Attempt, by: Operator, what: str, type_name: str, field: str) -> None:
    to = {"records": type_name, "field": field}
    audit_log.write(attempt.tr, by.audit_entry(attempt.new_id(), what, to, done_us=attempt.now_us))


def change_view(home: Shard, type_name: str, field: str, record: ChangeRecord) -> IndexChangeView:
    """Return a change as plain data, and if it is under way, why no worker carries it out."""
    held_up = ""
    if record.is_under_way:
        explained = explain_at(home, local_tenant(CHANGE_KIND), DEFAULT_ZONE, record.change_id)
        held_up = "" if explained.cause in BEGINS_SOON else explained.sentence
    return IndexChangeView(
        type=type_name,
        field=field,
        id=record.change_id,
        home=home.name,
        action="drop" if record.is_drop and not record.reason else "build",
        state=_STATES[ChangeState(record.state)],
        stage=_STAGES[Stage(record.stage)] if record.is_under_way else "",
        held_up=held_up,
        read=record.read,
        indexed=record.filled,
        turn=record.cursor.turn,
        violations=record.violations,
        records_per_s=record.records_per_s,
        cancel_requested=record.cancel_requested,
        began=record.began_us / 1e6,
        ended=record.ended_us / 1e6 if record.ended_us else None,
        reason=record.reason,
    )


class IndexView(NamedTuple):
    """One index of a type of records. `state`: "readable", "pending", "hidden", or "dropped"."""

    field: str
    is_unique: bool
    normalizer: str
    state: str
    violations: int


class TypeView(NamedTuple):
    """A type of records, its indexes, and the last change of each index, the youngest first."""

    name: str
    home: str
    indexes: list[IndexView]
    changes: list[IndexChangeView]


class Violation(NamedTuple):
    """A record that was left without a value. `value`: as it is compared; None: it is long, and only hashed."""

    key: str
    field: str
    value: AlternateValue | None
    shard: str


def read_types(shards: Shards) -> list[ShardResult[list[TypeView]]]:
    """Return the types of records, those of each shard that is their home."""

    def read(shard: Shard) -> list[TypeView]:
        found = shard.transact(lambda attempt: list(list_types(attempt.tr)))
        return [
            _type_view(shard, name, definition)
            for name, definition in found
            if definition is not None and shards.home_name(Tenant(SLOTS_APP, name)) == shard.name
        ]

    return query_each_shard(shards, read)


def read_violations(shard: Shard, type_name: str, *, violations_max: int) -> Iterator[Violation]:
    """Yield violations of records that lie on a shard, at most so many."""
    for count, entry in enumerate(violations_on(shard, type_name)):
        if count == violations_max:
            return
        yield Violation(entry.key, entry.field, entry.value, entry.shard)


def _type_view(shard: Shard, name: str, definition: TypeRecord) -> TypeView:
    changes = shard.transact(lambda attempt: list(list_changes(attempt.tr, name)))
    views = [change_view(shard, name, field, record) for field, record in changes]
    under_way = {view.field for view in views if view.is_under_way}
    indexes = [
        IndexView(
            each.name,
            each.is_unique,
            each.normalizer,
            _INDEX_STATES[IndexState(each.state)] if each.is_maintained or each.name in under_way else "dropped",
            each.violations,
        )
        for each in definition.fields
    ]
    return TypeView(name, shard.name, indexes, sorted(views, key=lambda view: (not view.is_under_way, -view.began)))
