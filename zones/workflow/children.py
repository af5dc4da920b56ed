"""Children: items that a call of a workflow has enqueued, and whose ends are reported to that workflow's run.

Whatever ends such an item reports it in the same transaction: a completion, a cancellation, a drop, and also the move
to the dead letters. The report lies under the parent's run and the call, in a key of its own. The first report counts,
so a dead letter that is retried changes nothing, and none counts once the run is over. If the parent is of another
tenant, perhaps on another shard, a *delivery item* in the child's zone brings the report.

A report reads the parent's record, which an operation on another zone of the same transaction may be about to write. So
reports are written last, one after the other: see `report_all`.
"""

from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum
from hashlib import blake2b
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from fairlead.zones.engines import Transaction
from fairlead.zones.errors import ItemUnreadable, PayloadDamaged
from fairlead.zones.keyspace import TenantKeys, pack_int, pack_text
from fairlead.zones.layout import ID_BYTES, ShardLayout, Tenant, ZoneLocation
from fairlead.zones.pipelining import Operation, run_one
from fairlead.zones.probes import probe
from fairlead.zones.queue import insertion
from fairlead.zones.queue.items import new_item
from fairlead.zones.records import ItemRecord, Parent, TimeUs, pack_value, unpacked
from fairlead.zones.workflow.arrival import note_arrival_op, receiver_op
from fairlead.zones.workflow.run_records import unreadable

DELIVERY_KIND = "fairlead.delivery"
WAKE_SPACING_US = 50_000  # At least so long after its last start is an item woken that waits for several children.


class ChildState(IntEnum):
    """How a child ended."""

    COMPLETED = 0
    FAILED = 1  # it is a dead letter
    DROPPED = 2  # it failed for good, and its kind says that such items are deleted
    CANCELLED = 3


class ChildResult(msgspec.Struct, array_like=True, frozen=True):
    """What is reported of a child. `result`: packed, as `results.pack_result` does; empty: there is none."""

    state: Annotated[int, Meta(ge=0, le=3)]
    result: bytes
    error: str
    at_us: TimeUs


class EndedChild(NamedTuple):
    """A child that this transaction ends. `location`: its zone. `result`: packed; the caller that has it adds it."""

    location: ZoneLocation
    item_id: bytes
    run: bytes
    parent: Parent
    state: ChildState
    error: str = ""
    result: bytes = b""


class Report(msgspec.Struct, frozen=True):
    """The payload of a delivery item."""

    parent: Parent
    child: ChildResult


_decoder = msgspec.msgpack.Decoder(ChildResult)


def child_wait_name(name: str, occurrence: int) -> str:
    """Return how a waiting item's record names the child of a call that it waits for."""
    return f"child {occurrence} {name}"


def child_result_key(keys: TenantKeys, run: bytes, name: str, occurrence: int) -> bytes:
    """Return the key of the report on the child of a call, to be cleared in the transaction that notes it as taken."""
    return keys.child_results(run) + pack_text(name) + pack_int(occurrence)


def child_result_op(
    tr: Transaction, location: ZoneLocation, run: bytes, name: str, occurrence: int
) -> Operation[ChildResult | None]:
    """Return how the child of a call ended; None: it has not.

    Reads with conflict: the key of the report.

    Raises:
      RunUnreadable: the report is damaged, or a newer version wrote it: waiting on would not help.
    """
    key = child_result_key(location.keys.tenant, run, name, occurrence)
    stored = tr.get(key)
    yield
    if stored.value is None:
        return None
    child = decode_child_result(stored.value)
    if child is None:
        raise unreadable(key, stored.value)
    return child


def decode_child_result(value: bytes) -> ChildResult | None:
    """Return how a child ended, as it is stored; None: it is damaged, or of a newer version."""
    child: ChildResult | None = unpacked(_decoder, value)
    return child


def ended_child(
    location: ZoneLocation, item_id: bytes, record: ItemRecord, state: ChildState, *, error: str = ""
) -> EndedChild:
    """Return the child that an item with a parent is, whose end this transaction writes."""
    assert record.parent is not None
    return EndedChild(location, item_id, record.run_of(item_id), record.parent, state, error)


def report_all(tr: Transaction, children: Sequence[EndedChild], *, now_us: int) -> None:
    """Report ended children, after all other operations of the transaction; see `report_op`."""
    for child in children:
        run_one(report_op(tr, child, now_us=now_us))


def report_dead_letters(
    tr: Transaction, location: ZoneLocation, moved: Sequence[tuple[bytes, ItemRecord]], *, now_us: int
) -> None:
    """Report the children among items of a zone that this transaction has moved to the dead letters; see `report_all`.

    `moved`: ids and records.
    """
    children = [
        ended_child(location, item_id, record, ChildState.FAILED, error=record.last_error)
        for item_id, record in moved
        if record.parent is not None
    ]
    report_all(tr, children, now_us=now_us)


def report_op(tr: Transaction, child: EndedChild, *, now_us: int) -> Operation[None]:
    """Report the end of a child in the transaction that ends it. May run twice.

    Parent of the same tenant: reads and writes what `deliver_report_op` does. Of another tenant, or unreadable: what an
    enqueue reads and writes.
    """
    location, parent = child.location, child.parent
    report = Report(parent, ChildResult(child.state, child.result, child.error, now_us))
    if (parent.app, parent.user) == location.tenant:
        with suppress(ItemUnreadable):  # Raised before anything was written; another version may be able to read it.
            yield from deliver_report_op(tr, location.layout, report, now_us=now_us)
            return
    probe("the end of a child is reported by a delivery item")
    delivery_id = blake2b(b"delivery" + child.run, digest_size=ID_BYTES).digest()
    delivery = new_item(DELIVERY_KIND, msgspec.to_builtins(report, builtin_types=(bytes,)))
    yield from insertion.enqueue_op(tr, location, [(delivery_id, delivery)], now_us=now_us, ids_are_new=False)


def report_of(payload: Any) -> Report:
    """Return the report that the payload of a delivery item is.

    Raises:
      PayloadDamaged: it is none.
    """
    try:
        return msgspec.convert(payload, Report, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise PayloadDamaged(reason=str(error)) from None


def deliver_report_op(tr: Transaction, layout: ShardLayout, report: Report, *, now_us: int) -> Operation[None]:
    """Write a report under its parent's run, and wake the parent if it waits for the child. May run twice.

    Nothing is written if the parent's item is gone or of another run, or if a report on the child is there. An item
    that waits for several things is woken no earlier than 50 ms after its last attempt began, which its record says,
    and no later than in 50 ms. Its next attempt takes all reports that are there by then.

    Reads with conflict: ownership, the parent's record or dead letter, the key of the report; see `note_arrival_op`.
    Writes: the report, and see there.

    Raises:
      ItemUnreadable: a newer version wrote the parent's record, or it is damaged; nothing is written.
      TenantMoved: another shard owns the parent's tenant; nothing is written.
    """
    parent = report.parent
    location = layout.location(Tenant(parent.app, parent.user), parent.zone)
    key = child_result_key(location.keys.tenant, parent.run, parent.name, parent.occurrence)
    present = tr.get(key)
    receiver = yield from receiver_op(tr, location, parent.item_id)
    if receiver is None or receiver.run != parent.run:
        probe("a child ends after its parent")
        return
    if present.value is not None:
        probe("the end of a child has been reported before")
        return
    tr.set(key, pack_value(report.child))
    name = child_wait_name(parent.name, parent.occurrence)
    wake_us = _wake_us(receiver.record, now_us)
    yield from note_arrival_op(tr, receiver, name, wake_us=wake_us, now_us=now_us)


def _wake_us(record: ItemRecord, now_us: int) -> int:
    """Return when to wake an item: a fleet that ends thousands of children must not start it for each of them."""
    if len(record.waits_for) < 2:
        return now_us
    return min(max(now_us, record.leased_us + WAKE_SPACING_US), now_us + WAKE_SPACING_US)
