"""What a row of an item holds beside its columns, and how a record is made of both."""

import json
from math import inf
from typing import Any

import msgspec
from msgspec.structs import replace

from fairlead.zones.external.item_ids import unpacked_given
from fairlead.zones.external.store import Start
from fairlead.zones.queue.items import NewItem
from fairlead.zones.records import DeadLetterRecord, ItemRecord, encode

UNREADABLE = b"\xc1"  # The only byte that never begins a value in msgpack.
_NULL = msgspec.msgpack.encode(None)
EXPIRED_ALONE = 3  # In the column `started`, of an item that is leased anew.


def packed_new(item: NewItem) -> bytes | None:
    """Return what the columns do not say of a new item; None: they say it all."""
    if item.trace is None and item.run is None and item.parent is None and not item.keys and not item.unique_key:
        return None
    record = ItemRecord(
        kind=item.kind, payload=b"", priority=item.priority, vesting_us=0, enqueued_us=0, trace=item.trace,
        run=item.run, parent=item.parent, keys=item.keys, unique_key=item.unique_key,
    )  # fmt: skip
    return encode(record)


def packed_history(record: ItemRecord) -> bytes:
    """Return a record without what is in columns."""
    return encode(_history(record))


def packed_dead_letter(record: DeadLetterRecord) -> bytes:
    """Return a dead letter without what is in columns."""
    return encode(replace(record, item=replace(_history(record.item), enqueued_us=record.item.enqueued_us)))


def fill_record(
    record: ItemRecord,
    kind: str,
    priority: int,
    unique_us: int,
    given: bytes | None,
    payload: bytes | None,
    args: str | None,
) -> None:
    """Give a record what is in columns of its own. `args`: the payload as JSON, if `payload` is None."""
    record.kind, record.priority, record.unique_us = kind, priority, unique_us
    record.payload = _packed_args(args) if payload is None else payload
    record.given_id = None if given is None else unpacked_given(given)


def _packed_args(args: str | None) -> bytes:
    """Return a payload that SQL gave as JSON. It may be longer than what Python takes: the server has bounded its text.

    A whole number of more than 64 bits becomes a float, and one beyond all floats infinite, as in JavaScript. What is
    no data for us all the same, such as lists a thousand deep, becomes a payload that cannot be read: the item fails,
    and no other one that was leased with it.
    """
    if args is None:
        return _NULL
    try:
        return msgspec.msgpack.encode(msgspec.json.decode(args))
    except (msgspec.MsgspecError, OverflowError, ValueError, RecursionError):
        try:
            return msgspec.msgpack.encode(_of_64_bits(json.loads(args)))
        except (OverflowError, ValueError, RecursionError):
            return UNREADABLE


def _of_64_bits(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _of_64_bits(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_of_64_bits(each) for each in value]
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        try:
            return float(value)
        except OverflowError:
            return inf if value > 0 else -inf
    return value


def fill_deaths(record: ItemRecord, expired: int, deaths: int, started: int) -> None:
    """Give a record what columns say of its leases that expired. `started`: a `Start`, or `EXPIRED_ALONE`."""
    record.expired_count, record.expiry_count = expired, deaths
    record.started, record.ran_isolated = 0 < started < EXPIRED_ALONE, started > Start.BESIDE_OTHERS


def _history(record: ItemRecord) -> ItemRecord:
    return replace(record, payload=b"", vesting_us=0, enqueued_us=0, lease_id=b"", given_id=None)
